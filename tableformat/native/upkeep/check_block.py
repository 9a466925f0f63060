"""Compare one block's file, read whole, with its row of a segment."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.tableformat.keys.kinds import has_key_columns, key_leaves, key_width
from tblctl.tableformat.keys.order import SameKeys, is_sorted, key_range, key_table
from tblctl.tableformat.model.block import CONSTANT_LEVEL
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.model.values import python_value
from tblctl.tableformat.native.log.segment_columns import BASE_COLUMNS, key_names, statistic_names
from tblctl.tableformat.parquet.opened import BlockAddress, require_safe_footer
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.parquet.statistics import column_records, measure
from tblctl.tableformat.storage import Storage


@dataclass(frozen=True, eq=False)
class BlockCheck:
    """One block of a table.

    Attributes:
        head: the newest snapshot.
        row: the one row of a segment that lists the block.
        is_current: the head has the block; otherwise only older snapshots do.
    """

    head: Snapshot
    row: pa.Table
    is_current: bool = True

    @cached_property
    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.row.select(BASE_COLUMNS.names).to_pylist()[0]
        return facts

    @property
    def path(self) -> str:
        """The block's name."""
        return str(self._facts["path"])

    def problems(self, storage: Storage) -> Iterator[str]:
        """Yield the differences between the file and the metadata; none if its schema is unknown."""
        schema = self.head.schemas.get(self._facts["schema_id"])
        if schema is None:
            return
        address = self._address(schema)
        require_safe_footer(storage, address)
        with BlockFile(storage, address) as file:
            groups = range(file.metadata.num_row_groups)
            rows = file.read(groups, file.projection(schema), use_threads=True).combine_chunks()
            footer = file.metadata
            order_problem = self._order_today(file, schema)
        for item in schema.arrow:
            if not item.nullable and rows.column(item.name).null_count:
                yield f"{self.path}: null in the non-nullable column {item.name}"
        yield from self._statistics_problems(rows, schema, footer)
        yield from self._order_problems(rows, schema)
        yield from order_problem

    def _address(self, schema: Schema) -> BlockAddress:
        facts = self._facts
        return BlockAddress(
            path=self.path,
            size_bytes=facts["size_bytes"],
            row_count=facts["row_count"],
            uncompressed_bytes=facts["uncompressed_bytes"],
            column_ids=schema.ids,
            seal=Seal.of(facts["footer_bytes"], facts["footer_checksum"]),
        )

    def _statistics_problems(self, rows: pa.Table, schema: Schema, footer: pq.FileMetaData) -> Iterator[str]:
        records = column_records(measure(rows, schema.leaves), schema, footer)
        for leaf in schema.leaves:
            for name, kind in statistic_names(leaf).items():
                if name not in self.row.column_names or self.row[name].null_count > _is_bound(name):
                    continue  # the column was dropped since, or added after the block
                worked_out = getattr(records[leaf.id], name.removeprefix(f"column_{leaf.id}_"))
                if not isinstance(worked_out, pa.Scalar):
                    worked_out = pa.scalar(worked_out, kind)
                yield from self._difference(name, worked_out, f" (column {leaf.name})")

    def _order_problems(self, rows: pa.Table, schema: Schema) -> Iterator[str]:
        key_id = self._facts["cluster_key_id"]
        sort = None if key_id is None else self.head.sorts.get(key_id)
        if sort is None or not has_key_columns(sort, schema):
            return
        keys = key_table(rows, sort, schema)
        if not is_sorted(keys, sort):
            yield f"{self.path}: its rows are not in the order of cluster key {sort.id}"
            return
        found = key_range(keys, sort)
        lows, highs, exact = key_names(sort.id, key_width(sort))
        for name, value in zip([*lows, *highs], [*found.min, *found.max], strict=True):
            yield from self._difference(name, value, "")
        yield from self._difference(exact, pa.scalar(found.exact), "")
        if self._facts["same_key_rows"] is not None:
            same_keys = SameKeys()
            same_keys.add(keys)
            yield from self._difference("same_key_rows", pa.scalar(same_keys.most_rows, pa.int64()), "")
        if self._facts["level"] == CONSTANT_LEVEL and not found.constant:
            yield f"{self.path}: level {CONSTANT_LEVEL}, but its rows have several keys"

    def _order_today(self, file: BlockFile, schema: Schema) -> list[str]:
        """Return that the rows left the order of a live sort when its columns were widened since they were written.

        Keys are made of rows as the head's schema has them: a bucket of a date is another than that of its midnight.
        """
        sort = self.head.live_sorts.get(self._facts["cluster_key_id"])
        if sort is None or not self.is_current:
            return []
        leaves = key_leaves(sort, self.head.schema)
        if [leaf.type for leaf in leaves] == [leaf.type for leaf in key_leaves(sort, schema)]:
            return []
        names = list(dict.fromkeys(leaf.path[0] for leaf in leaves))
        projection = file.projection(self.head.schema, names)
        rows = file.read(range(file.metadata.num_row_groups), projection, use_threads=True)
        if is_sorted(key_table(rows, sort, self.head.schema), sort):
            return []
        return [
            f"{self.path}: sort {sort.id} is live, but its rows are no longer in that order: a column was widened"
        ]

    def _difference(self, name: str, worked_out: pa.Scalar, where: str) -> Iterator[str]:
        stated = self.row[name][0].cast(worked_out.type)
        found, said = python_value(worked_out), python_value(stated)
        floats = isinstance(found, float) and isinstance(said, float)
        alike = floats and (found == said or (math.isnan(found) and math.isnan(said)))  # 0.0 and -0.0; NaN
        if not worked_out.equals(stated) and not alike:
            yield f"{self.path}: {name}{where} is {found}, metadata says {said}"


def _is_bound(name: str) -> bool:
    return name.endswith(("_min", "_max"))
