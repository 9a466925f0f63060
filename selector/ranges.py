"""The deepest ranges of one level: which blocks lie there, and which to leave out if not all fit.

A *hot range* is a maximal sequence of neighbouring points that are all deeper than the threshold. One gets it from its
first deepest point by adding the deeper neighbour repeatedly, while that is deeper than the threshold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tblctl.metrics.intervals import DepthCurve, Integers
from tblctl.selector.budget import Room
from tblctl.selector.table_view import TableView


@dataclass(frozen=True, kw_only=True, eq=False)
class HotRanges:
    """Ranges of the points of a curve, ascending: the numbers of their first and last points, and their depths."""

    first: Integers
    last: Integers
    depth: Integers

    def by_depth(self) -> Iterator[tuple[int, HotRanges]]:
        """Yield the ranges of each depth, the deepest ones first."""
        if self.depth.size == 1:  # as in most of many partitions
            yield int(self.depth[0]), self
            return
        for depth in np.unique(self.depth)[::-1].tolist():
            same = self.depth == depth
            yield depth, HotRanges(first=self.first[same], last=self.last[same], depth=self.depth[same])


def hot_ranges(curve: DepthCurve, threshold: float) -> HotRanges:
    """Return every range that is deeper than the threshold, with its largest depth."""
    hot = np.zeros(curve.depths.size + 2, np.bool_)
    hot[1:-1] = curve.depths > threshold
    edges = np.flatnonzero(hot[1:] != hot[:-1])
    first, last = edges[::2], edges[1::2] - 1
    if not first.size:
        return HotRanges(first=first, last=last, depth=first)
    ends = np.empty(edges.size, np.int64)
    ends[::2], ends[1::2] = first, last + 1
    depth = np.maximum.reduceat(curve.depths, ends[:-1])[::2]
    return HotRanges(first=first, last=last, depth=depth)


def members(low: Integers, high: Integers, curve: DepthCurve, ranges: HotRanges) -> tuple[Integers, Integers]:
    """Return the blocks in any of the ranges, in order of range, and the first range that each touches.

    O(n log n) for n blocks given by their bounds.
    """
    begins, ends = curve.points[ranges.first], curve.points[ranges.last]
    found = np.searchsorted(ends, low)
    inside = np.flatnonzero(found < ends.size)
    inside = inside[begins[found[inside]] <= high[inside]]
    order = np.argsort(found[inside], kind="stable")
    return inside[order], found[inside][order]


def around_deepest(
    view: TableView, chosen: Integers, curve: DepthCurve, hot: tuple[int, int], room: Room
) -> tuple[Integers, Integers, str]:
    """Return the blocks of `chosen` that fit, those that do not, and the rule that these break.

    All blocks lie in one hot range. Blocks at its first deepest point come first, the widest ones before others since
    they add most depth. Then the range grows to its deeper neighbour, the left one of equals, and the blocks that begin
    or end there follow, until one does not fit.

    Args:
        view: the table; none of `chosen` has an unknown range.
        chosen: the numbers of the range's blocks.
        curve: that of their level.
        hot: first and last point of the range.
        room: what fits.
    """
    low, high = view.low[chosen], view.high[chosen]
    deepest = hot[0] + int(curve.depths[hot[0] : hot[1] + 1].argmax())
    point = curve.points[deepest]
    turn = _turns(curve, hot, deepest)
    place = curve.numbers(np.where(low > point, low, high)) - hot[0]
    here = (low <= point) & (high >= point)
    turns = np.where(here, 0, turn[np.clip(place, 0, turn.size - 1)])
    early = turns <= _last_turn(view, chosen, turns, room)  # sorting the few that may fit is enough
    order = np.flatnonzero(early)
    order = order[np.lexsort((low[order], (low - high)[order], turns[order]))]
    count, rule = room.fitting(view, chosen[order])
    left = np.ones(chosen.size, np.bool_)
    left[order[:count]] = False
    return chosen[order[:count]], chosen[left], rule


def _last_turn(view: TableView, chosen: Integers, turns: Integers, room: Room) -> int:
    """Return a turn by whose end a rule is broken. Later blocks do not fit."""
    last = int(turns.max())
    for sizes, most in (
        (view.decoded_bytes, room.group_bytes),
        (view.size_bytes, room.size_bytes),
        (np.ones_like(view.size_bytes), room.blocks),
    ):
        by_turn = np.cumsum(np.bincount(turns, sizes[chosen]))
        last = min(last, int(np.searchsorted(by_turn, most, side="right")))
    return last


def _turns(curve: DepthCurve, hot: tuple[int, int], deepest: int) -> Integers:
    """Return the turn in which each point of a hot range is reached from its deepest point, which has turn 0.

    A side is followed until its next point is shallower than the next point of the other side. So the turns are the
    order of merging the two sides by their running minima; the left side goes first if these are equal.
    """
    left = np.minimum.accumulate(curve.depths[hot[0] : deepest][::-1])
    right = np.minimum.accumulate(curve.depths[deepest + 1 : hot[1] + 1])
    reached = np.argsort(-np.concatenate((left, right)), kind="stable")
    points = np.concatenate((np.arange(deepest - 1, hot[0] - 1, -1), np.arange(deepest + 1, hot[1] + 1)))
    turn = np.zeros(hot[1] - hot[0] + 1, np.int64)
    turn[points[reached] - hot[0]] = np.arange(1, reached.size + 1)
    return turn


def with_known_ranges(view: TableView) -> TableView:
    """Return the view with every unknown range replaced by its partition's known range: it may be anywhere there."""
    if not view.unknown.any():
        return view
    low, high = view.low.copy(), view.high.copy()
    for blocks in view.by_partition(np.arange(len(view))):
        is_unknown = view.unknown[blocks]
        unknown, known = blocks[is_unknown], blocks[~is_unknown]
        low[unknown] = view.low[known].min() if known.size else 0
        high[unknown] = view.high[known].max() if known.size else 0
    return replace(view, low=low, high=high)
