"""Rewrite one block without the rows that an operation removes, or with new values in those that it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.keys.kinds import has_key_columns, key_leaves, key_maker
from tblctl.tableformat.keys.linear import leaf_values
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.blocks import address_of
from tblctl.tableformat.native.read.metadata import BlockMetadata
from tblctl.tableformat.native.read.scan import condition_columns, rows_satisfying
from tblctl.tableformat.native.write.writer import BlockWriter
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.predicate.nodes import Node
from tblctl.tableformat.storage import Storage

Assign = Callable[[Schema], Mapping[str, pa.Scalar]]
"""New values by column name, scalars of the read types of a schema."""


@dataclass(frozen=True, kw_only=True)
class RewrittenBlock:
    """The blocks that replace a block. `copied_rows` counts their unchanged rows."""

    records: tuple[BlockRecord, ...] = ()
    copied_rows: int = 0


@dataclass(frozen=True, kw_only=True)
class BlockRewriter:
    """Rewrites blocks of one snapshot; threads may share one.

    Attributes:
        condition: which rows are removed or changed; None for all.
        assign: the new values; None to remove the rows.
    """

    storage: Storage
    writer: BlockWriter
    head: Snapshot
    condition: Node | None
    assign: Assign | None

    def replacement(self, block: Block, nulls: Mapping[str, int]) -> RewrittenBlock | None:
        """Return the replacement of a block; None if none of its rows match.

        Args:
            block: the block.
            nulls: its null counts in the metadata, see `null_counts`.

        Raises:
            CorruptTableError: the block's null counts differ.
        """
        rows, mask = _rows_and_mask(self.storage, block, self.head, self.condition)
        require_nulls(block.path, rows, nulls, self.head.schema)
        concerned = int(mask.sum())
        if concerned == 0:
            return None
        if self.assign is None:
            return self._without(block, rows, mask)
        return self._changed(
            block, _assigned(rows, mask, self._values), copied_rows=rows.num_rows - concerned
        )

    @cached_property
    def _values(self) -> Mapping[str, pa.Scalar]:
        return self.assign(self.head.schema) if self.assign else {}

    def _without(self, block: Block, rows: pa.Table, mask: np.ndarray) -> RewrittenBlock:
        """Write the rows that stay as one block, in their present order."""
        rows = rows.filter(pa.array(~mask))
        if not rows.num_rows:
            return RewrittenBlock()
        sort = block_sort(block, self.head)
        level, run_id = (
            (_level(block), block.run_id) if sort else (0, None)
        )  # both hold in the block's own sort only
        kept = self.writer.write_block(rows, sort=sort, level=level, run_id=run_id)
        return RewrittenBlock(records=(kept,), copied_rows=rows.num_rows)

    def _changed(self, block: Block, rows: pa.Table, *, copied_rows: int) -> RewrittenBlock:
        """Write all rows, in their present order unless their keys have changed."""
        sort = block_sort(block, self.head)
        if sort is None or _touches_key(sort, self._values, self.head.schema):
            records = self.writer.write_rows(rows)
        else:
            records = self.writer.write_ordered(rows, sort=sort, level=_level(block), run_id=block.run_id)
        return RewrittenBlock(records=tuple(records), copied_rows=copied_rows)


def _level(block: Block) -> int:
    return block.cluster.level if block.cluster else 0


def null_counts(metadata: BlockMetadata, paths: Sequence[str], schema: Schema) -> list[dict[str, int]]:
    """Return the null counts of some blocks in the metadata, by the name of the leaf; -1 if unknown."""
    if not paths:
        return []
    counts = metadata.null_counts(schema.leaves, paths)
    return [
        {leaf.name: int(values[place]) for leaf, values in zip(schema.leaves, counts, strict=True)}
        for place in range(len(paths))
    ]


def require_nulls(path: str, rows: pa.Table, stated: Mapping[str, int], schema: Schema) -> None:
    """Refuse rows of a block whose null counts differ from the metadata: such a block must not be replaced.

    Raises:
        CorruptTableError: names the first column where they differ.
    """
    for leaf in schema.leaves:
        expected, found = stated[leaf.name], leaf_values(rows, leaf.path).null_count
        if expected not in {-1, found}:
            msg = (
                f"block {path} has {found} nulls in column {leaf.name!r}, its segment has {expected}: one of them is "
                "damaged. Nothing was changed: see `tblctl check --deep`"
            )
            raise CorruptTableError(msg, name=path, column=leaf.name)


def _touches_key(sort: Sort, values: Mapping[str, object], schema: Schema) -> bool:
    if not has_key_columns(sort, schema):
        return True
    return any(leaf.path[0] in values for leaf in key_leaves(sort, schema))


def block_sort(block: Block, snapshot: Snapshot) -> Sort | None:
    """Return the sort that the rows of `block` are in the order of, or None.

    None also if a column of the sort was dropped since, or widened while the sort was not the current key: widening
    keeps the order of the current key, but transforms of a former key may order wider values differently.
    """
    sort = snapshot.sorts.get(block.cluster.cluster_key_id) if block.cluster else None
    written = snapshot.schemas.get(block.schema_id)
    if sort is None or written is None:
        return None
    for column_id in key_maker(sort).column_ids:
        then = written.leaf_by_id(column_id)
        now = snapshot.schema.leaf_by_id(column_id)
        if then is None or now is None:
            return None
        if then.type != now.type and sort.id != snapshot.cluster_key_id:
            return None
    return sort


def read_block(
    storage: Storage, block: Block, snapshot: Snapshot, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return all rows of a block of a snapshot, with one chunk for each column."""
    with BlockFile(storage, address_of(block, snapshot.column_ids), ahead=True) as file:
        projection = file.projection(snapshot.schema, columns)
        return file.read(range(file.metadata.num_row_groups), projection, use_threads=True).combine_chunks()


def _rows_and_mask(
    storage: Storage, block: Block, snapshot: Snapshot, condition: Node | None
) -> tuple[pa.Table, np.ndarray]:
    """Return all rows of a block, and which satisfy the condition. Rows for which it is NULL do not."""
    if condition is None:
        rows = read_block(storage, block, snapshot)
        return rows, np.ones(rows.num_rows, dtype=bool)

    schema = snapshot.schema
    names = list(schema.names)
    nested = [name for name in condition_columns(condition, schema) if name not in names]
    rows = read_block(storage, block, snapshot, [*names, *nested])
    mask = pc.fill_null(rows_satisfying(rows, condition, schema), False)  # noqa: FBT003
    return rows.select(names), np.asarray(mask.to_numpy(zero_copy_only=False), dtype=bool)


def _assigned(rows: pa.Table, mask: np.ndarray, values: Mapping[str, pa.Scalar]) -> pa.Table:
    """Return `rows` with new values in the columns of `values` where `mask` is true."""
    chosen = pa.array(mask)
    for name, value in values.items():
        place = rows.schema.get_field_index(name)
        column = pc.if_else(chosen, value, rows.column(place))
        rows = rows.set_column(place, rows.schema.field(place), column)
    return rows
