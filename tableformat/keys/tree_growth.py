"""Grow a tree from a sample of rows: each node gets the cut with which conditions skip the most rows.

Source: Yang et al., Qd-tree, SIGMOD 2020, section 4 (the greedy algorithm). A condition skips a node if the bounds of
the node's rows rule it out, or the tests on the path to the node: a scan knows both of blocks. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tblctl.tableformat.keys.ranked import RankedColumn
from tblctl.tableformat.keys.tree_keys import holds, test_of_cut
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.statistics import NONE, ColumnStatistics
from tblctl.tableformat.model.tree import LEAF, MOST_LEAVES, Cut
from tblctl.tableformat.predicate.implied import Implied, Known
from tblctl.tableformat.predicate.match import match
from tblctl.tableformat.predicate.nodes import Node

Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_ABOVE = np.int32(2**31 - 1)
_LEAST_GAIN = 1e-9
"""Of all rows times conditions. Less is a rounding error."""


@dataclass(kw_only=True, eq=False)
class _Place:
    """A node of the tree as it grows: the sampled rows that fall there, and its cut and two ends if it has one.

    `known` is what the tests on the path to it tell of the rows.
    """

    rows: Integers
    known: Known
    cut: int = LEAF
    ends: tuple[_Place, ...] = field(default=())


def grow(
    rows: pa.Table,
    weights: Floats,
    cuts: Sequence[Cut],
    conditions: Sequence[Node],
    schema: Schema,
    *,
    min_rows: float,
) -> tuple[int, ...]:
    """Return the nodes of a tree over `cuts`; see `Tree`. A single LEAF if no cut helps.

    O(depth x rows x cuts x columns), and as many matches of the conditions as the tree has levels.

    Args:
        rows: the sample: columns by leaf name, in statistic types.
        weights: how many rows of the table each stands for.
        cuts: the candidates.
        conditions: for which rows are to be skipped.
        schema: of the table.
        min_rows: the least weight of a leaf.
    """
    sample = _Sample.of(rows, weights, cuts, conditions, schema)
    root = _Place(rows=np.arange(len(rows)), known=sample.implied.nothing())
    frontier, leaves = [root], 1
    while frontier and leaves < MOST_LEAVES:
        best = _best_cuts(sample, frontier, conditions, schema, min_rows)
        order = sorted(range(len(frontier)), key=lambda number: -best[number][0])
        split = [
            number
            for number in order[: MOST_LEAVES - leaves]
            if best[number][0] > _LEAST_GAIN * weights.sum()
        ]
        for number in split:
            _split(frontier[number], best[number][1], sample)
        frontier = [end for number in sorted(split) for end in frontier[number].ends]
        leaves += len(split)
    return tuple(_nodes(root))


def _split(place: _Place, cut: int, sample: _Sample) -> None:
    left = sample.holds[place.rows, cut]
    place.cut = cut
    place.ends = tuple(
        _Place(rows=place.rows[side], known=sample.implied.narrowed(place.known, cut, holds=holds))
        for side, holds in ((left, True), (~left, False))
    )


def _nodes(root: _Place) -> Iterator[int]:
    todo = [root]
    while todo:
        place = todo.pop()
        yield place.cut
        todo += reversed(place.ends)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sample:
    """The sampled rows. `holds` says for each row and cut whether the row goes left."""

    columns: Mapping[str, RankedColumn]
    weights: Floats
    holds: Bools
    implied: Implied

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        weights: Floats,
        cuts: Sequence[Cut],
        conditions: Sequence[Node],
        schema: Schema,
    ) -> _Sample:
        """Return the rows with what is needed of them."""
        leaves = {leaf.id: leaf for leaf in schema.leaves}
        tests = [test_of_cut(cut, leaves[cut.column_id]) for cut in cuts]
        lefts = [holds(test, rows, schema) for test in tests]
        return cls(
            columns={name: RankedColumn.of(rows.column(name).combine_chunks()) for name in rows.column_names},
            weights=weights,
            holds=np.array(lefts, bool).reshape(len(cuts), len(rows)).T.copy(),
            implied=Implied(tests, conditions),
        )


class _Sides:
    """Statistics of nodes, and of both sides of each cut in each: as of blocks, of which the sample is all rows.

    One after the other for each of f nodes: the node, the left sides of its c cuts, their right sides.
    """

    def __init__(self, sample: _Sample, places: Sequence[_Place]) -> None:
        self._sample = sample
        self._rows = [place.rows for place in places]
        self._lefts = [sample.holds[rows] for rows in self._rows]
        self._known: Known = {
            column_id: np.concatenate([place.known[column_id] for place in places])
            for column_id in places[0].known
        }
        self.row_count = self._sums([np.ones(len(rows), np.int64) for rows in self._rows])
        self._found: dict[str, ColumnStatistics] = {}

    def weights(self) -> Floats:
        """Return the rows of the table that each stands for."""
        return self._sums([self._sample.weights[rows] for rows in self._rows])

    def skipped(self, condition: Node, schema: Schema) -> Bools:
        """Return which a condition skips: by bounds, or by the tests on the path to a node and the cut itself."""
        found: Bools = match(condition, self, schema).outcome == NONE
        if self._known:
            found |= ~self._sample.implied.may_hold_beside(condition, self._known).reshape(-1)
        return found

    def column(self, leaf: Leaf) -> ColumnStatistics | None:
        """Return bounds and counts of a column; None of one that is not sampled."""
        column = self._sample.columns.get(leaf.name)
        if column is None:
            return None
        if leaf.name not in self._found:
            self._found[leaf.name] = self._column(column)
        return self._found[leaf.name]

    def _column(self, column: RankedColumn) -> ColumnStatistics:
        ends = [_ends(column.ranks[rows], left) for rows, left in zip(self._rows, self._lefts, strict=True)]
        low, high = (np.concatenate([end[side] for end in ends]) for side in (0, 1))
        nowhere = high < 0
        nulls = self._sums([column.is_null[rows].astype(np.int64) for rows in self._rows])
        nan = None
        if column.counts_nan:
            bare = self._sums([(column.ranks[rows] < 0).astype(np.int64) for rows in self._rows])
            nan = bare - nulls
        return ColumnStatistics(
            min=column.values.take(pa.array(low, mask=nowhere)),
            max=column.values.take(pa.array(high, mask=nowhere)),
            null_count=nulls,
            nan_count=nan,
        )

    def _sums(self, counts: Sequence[np.ndarray]) -> np.ndarray:
        """Return the sums of a figure of the rows."""
        found = []
        for each, left in zip(counts, self._lefts, strict=True):
            lefts, whole = each @ left, each.sum()
            found += [[whole], lefts, whole - lefts]
        return np.concatenate(found)


def _ends(ranks: npt.NDArray[np.int32], left: Bools) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest rank of rows, then of those on the left and on the right of each cut."""
    some = ranks >= 0
    ranks, left = ranks[some, None], left[some]
    every = np.ones((len(ranks), 1), bool)
    sides = np.concatenate((every, left, ~left), axis=1)
    low = np.where(sides, ranks, _ABOVE).min(axis=0, initial=_ABOVE)
    high = np.where(sides, ranks, np.int32(-1)).max(axis=0, initial=-1)
    return low, high


def _best_cuts(
    sample: _Sample, places: Sequence[_Place], conditions: Sequence[Node], schema: Schema, min_rows: float
) -> list[tuple[float, int]]:
    """Return for each node how many more rows conditions skip with its best cut, and the number of this cut.

    The gain is 0 if no cut leaves `min_rows` on both sides.
    """
    sides = _Sides(sample, places)
    weights = sides.weights()
    skipping = np.zeros(len(weights))
    for condition in conditions:
        skipping += sides.skipped(condition, schema)
    count = sample.holds.shape[1]
    skipped = (skipping * weights).reshape(len(places), 1 + 2 * count)
    rows = weights.reshape(len(places), 1 + 2 * count)[:, 1:]
    gains = skipped[:, 1 : 1 + count] + skipped[:, 1 + count :] - skipped[:, :1]
    gains[np.minimum(rows[:, :count], rows[:, count:]) < min_rows] = 0
    chosen = gains.argmax(axis=1)
    return list(zip(gains[np.arange(len(places)), chosen].tolist(), chosen.tolist(), strict=True))
