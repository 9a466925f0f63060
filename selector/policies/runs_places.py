"""Where a table is deep: stretches of connected blocks, the deepest place of each, and the next one beside a group."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np

from tblctl.metrics.intervals import Integers, Mask, depths, rounded_mean
from tblctl.selector.connected import components, greedy_runs
from tblctl.selector.policies.runs_rule import Field, Floats, deepest_gap, gain, gap_depths
from tblctl.selector.table_view import TableView, joined
from tblctl.tableformat.model.runs import NO_RUN


def separable(view: TableView) -> Mask:
    """Return the blocks of the highest level that may be taken.

    There are none where any other block's bounds may be wider than its keys: a group of both kinds could not be shown
    to lower what its blocks cover.
    """
    inexact = view.inexact is not None and bool((view.inexact & view.selectable).any())
    found: Mask = view.separable & (not inexact)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """The deepest place of a stretch of connected blocks.

    Attributes:
        field: the blocks of the stretch; those of groups chosen before are not free.
        numbers: their numbers in the table.
        gap: the middle of the first deepest plateau.
        depth: how many of the free blocks overlap there.
        closed: the gaps within the groups chosen before.
        partition: the number of its partition.
    """

    field: Field
    numbers: Integers
    gap: int
    depth: int
    closed: Mask
    partition: int

    @classmethod
    def of(cls, field: Field, numbers: Integers, closed: Mask, partition: int) -> Place:
        depth = np.where(closed, 0, gap_depths(field.low[field.free], field.high[field.free], closed.size))
        gap = deepest_gap(depth)
        return cls(
            field=field,
            numbers=numbers,
            gap=gap,
            depth=int(depth[gap]),
            closed=closed,
            partition=partition,
        )

    def without(self, group: Integers) -> Place:
        """Return the next deepest place, beside a group that is merged."""
        free, closed = self.field.free.copy(), self.closed.copy()
        free[group] = False
        closed[int(self.field.low[group].min()) : int(self.field.high[group].max())] = True
        return Place.of(replace(self.field, free=free), self.numbers, closed, self.partition)

    def left(self) -> Integers:
        """Return the numbers of the blocks that are free."""
        return self.numbers[self.field.free]


class Places:
    """The places that are deeper than a target, the deepest first, of partitions that are so on average.

    They end where the groups chosen are expected to bring the average of their partition to the target.

    Attributes:
        fine: the blocks of other partitions, and their average depth, to four decimals.
        shallow: the rest of the blocks that may be merged.
        points: blocks of one key that could be merged, but overlap none.
    """

    def __init__(
        self,
        target: float,
        fine: Integers,
        points: Integers,
        stretches: _Stretches | None,
        excess: Floats,
    ) -> None:
        self._least = max(target, 1)
        self._excess = excess  # by partition, how far the sum of its blocks' depths is above the target
        self._spared: list[Integers] = []
        self._stretches = stretches
        self._number = 0 if stretches is None else stretches.deepest.size
        # Each has its depth below 0, and a number: that of a stretch, if the place is None.
        self._heap: list[tuple[int, int, Place | None]] = []
        self.fine, self.fine_depth = fine, 0.0
        self.points = points
        self.shallow = fine[:0] if stretches is None else stretches.numbers
        if stretches is not None:
            deep = np.flatnonzero(stretches.deepest > self._least)
            depth = -stretches.deepest[deep]
            self._heap = list(zip(depth.tolist(), deep.tolist(), [None] * deep.size, strict=True))
            heapq.heapify(self._heap)

    @classmethod
    def of(cls, view: TableView, target: float, waiting: Mask) -> Places:
        """Return the places of a table. O(n log n) for n blocks.

        Args:
            view: the table.
            target: average depth of a partition's blocks.
            waiting: blocks of partitions where there is something else to do first.
        """
        known = ~(view.unclustered | view.unknown | waiting | view.finished)
        chosen = np.flatnonzero(known & (view.low < view.high))
        points = np.flatnonzero(known & (view.low == view.high) & view.selectable)
        free = (view.selectable | separable(view))[chosen]
        partition = np.unique(view.partition[chosen], return_inverse=True)[1]
        low, high = _dense(view.low[chosen], view.high[chosen], partition)
        found = depths(low, high - 1)
        sizes, totals = np.bincount(partition), np.bincount(partition, found)
        is_deep = (totals > target * sizes)[partition]
        fine = chosen[free & ~is_deep]
        at = np.flatnonzero(is_deep & free)
        stretches = None
        if at.size:
            run = _runs(view.run[chosen[at]], partition[at], low[at], high[at])
            stretches = _Stretches.of(
                low[at], high[at], view.row_count[chosen[at]], run, chosen[at], partition=partition[at]
            )
        places = cls(target, fine, points, stretches, totals - target * sizes)
        count = int(sizes.sum()) - int(is_deep.sum())
        places.fine_depth = rounded_mean(int(found[~is_deep].sum()), count)
        return places

    def deepest(self) -> Place | None:
        """Return the deepest place, the first of equals; None if none is left. The caller closes it."""
        while self._heap:
            _, number, place = heapq.heappop(self._heap)
            if place is None and self._stretches:
                place = self._stretches.place(number)
            if place is not None and self._excess[place.partition] > 0:
                return place
            self._spared.append(self._left(number, place))
        return None

    def close(self, place: Place, group: Integers) -> None:
        """Go on beside a group that was chosen at a place."""
        if not group.size:
            return
        self._excess[place.partition] -= gain(place.field, group)
        following = place.without(group)
        if following.depth > self._least:
            self._number += 1
            heapq.heappush(self._heap, (-following.depth, self._number, following))

    def spared(self) -> Integers:
        """Return the blocks around the places passed over, since the target is reached without them."""
        return joined(self._spared)

    def left(self) -> Integers:
        """Return the blocks around the places that are left."""
        return joined(self._left(number, place) for _, number, place in self._heap)

    def _left(self, number: int, place: Place | None) -> Integers:
        if place is not None:
            return place.left()
        return np.empty(0, np.int64) if self._stretches is None else self._stretches.blocks(number)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Stretches:
    """Stretches of connected blocks, one after the other in key order.

    Attributes:
        low, high, rows, run, numbers: of the blocks, in order of stretch; `numbers` are those in the table.
        partition: of each stretch.
        begins: where the blocks of each stretch begin, and where the last one ends.
        deepest: the depth of each stretch.
    """

    low: Integers
    high: Integers
    rows: Integers
    run: Integers
    numbers: Integers
    partition: Integers
    begins: Integers
    deepest: Integers

    @classmethod
    def of(
        cls,
        low: Integers,
        high: Integers,
        rows: Integers,
        run: Integers,
        numbers: Integers,
        *,
        partition: Integers,
    ) -> _Stretches:
        number = components(low, high)
        order = np.argsort(number, kind="stable")
        begins = np.flatnonzero(np.diff(number[order], prepend=-1))
        depth = gap_depths(low, high, int(high.max()))
        return cls(
            low=low[order],
            high=high[order],
            rows=rows[order],
            run=run[order],
            numbers=numbers[order],
            partition=partition[order][begins],
            begins=np.append(begins, low.size),
            deepest=np.maximum.reduceat(depth, np.minimum.reduceat(low[order], begins)),
        )

    def blocks(self, stretch: int) -> Integers:
        """Return the numbers of the blocks of a stretch."""
        return self.numbers[self.begins[stretch] : self.begins[stretch + 1]]

    def place(self, stretch: int) -> Place:
        """Return the deepest place of a stretch."""
        part = slice(int(self.begins[stretch]), int(self.begins[stretch + 1]))
        low, high = self.low[part], self.high[part]
        least, most = int(low.min()), int(high.max())
        field = Field(
            low=low - least,
            high=high - least,
            rows=self.rows[part],
            run=np.unique(self.run[part], return_inverse=True)[1],
            free=np.ones(low.size, np.bool_),
        )
        closed = np.zeros(most - least, np.bool_)
        return Place.of(field, self.numbers[part], closed, int(self.partition[stretch]))


def _dense(low: Integers, high: Integers, partition: Integers) -> tuple[Integers, Integers]:
    """Return bounds as ranks without gaps, apart for each partition."""
    if not low.size:
        return low, high
    span = int(high.max()) + 1
    low, high = low + partition * span, high + partition * span
    least, most = int(low.min()), int(high.max())
    if most - least > _DENSE_SPAN * low.size:
        places = np.unique(np.concatenate((low, high)), return_inverse=True)[1]
        return places[: low.size], places[low.size :]
    used = np.zeros(most - least + 1, np.bool_)
    used[low - least] = used[high - least] = True
    number = np.cumsum(used) - 1
    return number[low - least], number[high - least]


_DENSE_SPAN = 8
"""Ranks that span at most this many times the number of blocks are counted directly; sparser ones are sorted first."""


def _runs(run: Integers, partition: Integers, low: Integers, high: Integers) -> Integers:
    """Return the run of each block, apart for each partition. Blocks of no known run get the fewest there can be."""
    unknown = np.flatnonzero(run == NO_RUN)
    known = run * (int(partition.max()) + 1) + partition
    if unknown.size:
        known[unknown] = int(known.max()) + 1 + greedy_runs(low[unknown], high[unknown])
    return known
