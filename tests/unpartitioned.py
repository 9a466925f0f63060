"""Versions of tables without partitions: a condition leaves none out."""

from __future__ import annotations

from typing import Any, Self


class Unpartitioned:
    """A part of `tblctl.tableformat.port.Version`."""

    is_pruned = False

    def pruned(self, condition: Any) -> Self:
        del condition
        return self
