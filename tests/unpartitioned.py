"""Versions of tables without partitions: a condition leaves none out."""

from __future__ import annotations

from typing import Any, Self

from tblctl.tableformat.model.cluster_key import Sort, parse_terms


class Unpartitioned:
    """A part of `tblctl.tableformat.port.Version`."""

    is_pruned = False

    next_sort_id: Any
    schema: Any

    def sort_by(self, terms: str, *, reads_rows: bool = True) -> Sort:
        del reads_rows
        return Sort(id=self.next_sort_id, terms=parse_terms(terms, self.schema))

    def may_add(self, sort: Sort) -> bool:
        return bool(sort.id >= self.next_sort_id)

    def deletions(self) -> None:
        return None

    def pruned(self, condition: Any) -> Self:
        del condition
        return self
