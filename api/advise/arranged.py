"""Rows put in the order of a sort and cut into blocks, without writing them: what scans would see of these blocks.

Of a sample, a block's part has fewer rows than the block, so its bounds are narrower. `Sparse` widens them: m rows span
(m - 1) / (m + 1) of what they are drawn from, on average, where values count by their rank among all. So bounds move
out, by rank, until they span what the block's own number of rows would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.keys.order import key_table, sort_indices
from tblctl.tableformat.keys.ranked import RankedColumn
from tblctl.tableformat.keys.tree_leaves import leaves_for
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.cut import leaf_cuts
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.statistics import ColumnStatistics
from tblctl.tableformat.model.tree import TREE
from tblctl.tableformat.predicate.nodes import Node
from tblctl.tableformat.predicate.outcomes import Sets

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Rows whose columns are ranked once, to be arranged by many keys.

    Attributes:
        schema: of the table.
        table: the rows: columns by the names of leaves, in statistic types.
        ends: for columns, by id: two values, the least and the greatest of the rows that these stand for.
    """

    schema: Schema
    table: pa.Table
    ends: Mapping[int, pa.Array] = field(default_factory=dict)
    _ranked: dict[int, RankedColumn] = field(default_factory=dict)

    def column(self, leaf: Leaf) -> RankedColumn | None:
        """Return a column with its values ranked, its ends among them; None if the rows lack it."""
        if leaf.name not in self.table.column_names:
            return None
        if leaf.id not in self._ranked:
            found = RankedColumn.of(self.table.column(leaf.name).combine_chunks())
            ends = self.ends.get(leaf.id)
            self._ranked[leaf.id] = found if ends is None else _between(ends, found)
        return self._ranked[leaf.id]


def _between(ends: pa.Array, column: RankedColumn) -> RankedColumn:
    """Return the column with the ends that lie beyond its values, as values that no row has."""
    values = column.values
    if not len(values):
        return column
    below = ends[:1] if pc.less(ends[0], values[0]).as_py() else ends[:0]
    above = ends[1:] if pc.greater(ends[1], values[-1]).as_py() else ends[:0]
    return RankedColumn(
        values=pa.concat_arrays([below, values, above]),
        ranks=np.where(column.ranks < 0, column.ranks, column.ranks + len(below)).astype(np.int32),
        is_null=column.is_null,
        counts_nan=column.counts_nan,
    )


class Arranged:
    """Statistics of the blocks of rows in the order of a sort. O(n log n), then O(n) for each column."""

    def __init__(self, rows: Rows, sort: Sort, block_count: int) -> None:
        keys = key_table(rows.table, sort, rows.schema)
        self._rows, self._sort = rows, sort
        self._order = np.asarray(sort_indices(keys, sort))
        leaves = keys.column(0).to_numpy().astype(np.int64)[self._order] if sort.kind == TREE else None
        self._leaf_of_row = leaves
        ends = np.rint(self._marks(np.ones(len(self._order)), block_count))
        self._cut(np.unique(ends.astype(np.int64)))

    def _marks(self, weights: Floats, block_count: int) -> Floats:
        """Return how many rows lie before each block, and in all; `weights` are the rows that each stands for.

        Blocks in the order of a tree end where leaves end, as merges write them: so there are some more.
        """
        total = float(weights.sum())
        if self._leaf_of_row is None:
            return np.linspace(0, total, min(block_count, len(weights)) + 1)
        rows = np.rint(np.bincount(self._leaf_of_row, weights)).astype(np.int64)
        return np.cumsum([0, *leaf_cuts(rows.tolist(), -(-int(rows.sum()) // block_count))], dtype=np.float64)

    def _cut(self, ends: Integers) -> None:
        """Cut the rows into blocks that end at some of them; the first end is 0."""
        self._starts = ends[:-1]
        self.row_count = np.diff(ends)
        leaves = self._leaf_of_row
        self._leaves = None if leaves is None else (leaves[self._starts], leaves[ends[1:] - 1])
        self._columns: dict[int, ColumnStatistics | None] = {}

    def column(self, leaf: Leaf) -> ColumnStatistics | None:
        """Return the bounds and counts of one column; None if the rows lack it."""
        if leaf.id not in self._columns:
            column = self._rows.column(leaf)
            self._columns[leaf.id] = None if column is None else self._statistics(column)
        return self._columns[leaf.id]

    def _statistics(self, column: RankedColumn) -> ColumnStatistics:
        ranks = column.ranks[self._order]
        high = np.maximum.reduceat(ranks, self._starts)
        least = np.where(ranks < 0, np.iinfo(np.int32).max, ranks)
        low = np.minimum.reduceat(least, self._starts)
        nulls, is_empty = self._sums(column.is_null), high < 0
        low, high = self._bounds(column, np.where(is_empty, 0, low), np.maximum(high, 0))
        return ColumnStatistics(
            min=column.values.take(pa.array(low, mask=is_empty)),
            max=column.values.take(pa.array(high, mask=is_empty)),
            null_count=nulls,
            nan_count=self._sums(column.ranks < 0) - nulls if column.counts_nan else None,
        )

    def _bounds(self, column: RankedColumn, low: Integers, high: Integers) -> tuple[Integers, Integers]:
        """Return the least and greatest ranks of blocks for those of their rows."""
        del column
        return low, high

    def described(self, condition: Node) -> Callable[[Node], Sets] | None:
        """Return what the leaves of the blocks tell of a condition."""
        known = leaves_for([self._sort], condition, self._rows.schema) if self._leaves else []
        if not known or self._leaves is None:
            return None
        first, last = self._leaves
        return lambda part: known[0].outcomes(part, first, last)

    def _sums(self, flags: npt.NDArray[np.bool_]) -> Integers:
        return np.add.reduceat(flags[self._order].astype(np.int64), self._starts)


class Sparse(Arranged):
    """The same of a sample, whose rows each stand for some of the table: blocks of as many of these, bounds widened."""

    def __init__(self, rows: Rows, sort: Sort, block_count: int, weights: Floats) -> None:
        super().__init__(rows, sort, block_count)
        through = np.cumsum(weights[self._order])
        marks = self._marks(weights[self._order], block_count)[1:-1]
        ends = np.concatenate(
            ([0], np.searchsorted(through - weights[self._order] / 2, marks), [len(through)])
        )
        self._cut(np.unique(ends).astype(np.int64))
        self._stands_for = np.add.reduceat(weights[self._order], self._starts)

    def _bounds(self, column: RankedColumn, low: Integers, high: Integers) -> tuple[Integers, Integers]:
        if not len(column.values):
            return low, high
        present = column.ranks[column.ranks >= 0]
        ends = np.cumsum(np.bincount(present, minlength=len(column.values)))
        middles = (np.concatenate(([0], ends[:-1])) + ends) / 2
        first, last = middles[low], middles[high]
        gaps = (last - first) * _missing(self.row_count, self._stands_for)
        most = len(column.values) - 1
        wider_low = np.searchsorted(ends, first - gaps, side="right")
        wider_high = np.searchsorted(ends, last + gaps, side="right")
        return np.minimum(wider_low, low), np.clip(wider_high, high, most)


def _missing(rows: Integers, stands_for: Floats) -> Floats:
    """Return what the rows of a block's part lack of the block's range at either end, as a share of theirs."""
    part, whole = np.maximum(rows, 2).astype(np.float64), np.maximum(stands_for, rows)
    missing: Floats = np.maximum((whole - 1) / (whole + 1) * (part + 1) / (part - 1) - 1, 0) / 2
    return missing
