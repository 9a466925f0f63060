"""Overlap and depth of blocks, from the integer ranges of their keys.

A block is a closed interval [low, high] of ranks. The caller makes ranks from key tuples (any direction, nulls,
composite keys): int64 in key order, equal for equal keys. Block i is (low[i], high[i]). Gaps between ranks have no
meaning.

*Overlaps* of a block: the number of other blocks that share a point with it.
*Depth at a point*: the number of blocks that contain it. *Depth of a block*: the largest over its range.

*Selection depth* is the depth that a rewrite could lower. Neighbours of a sorted run that share one key only touch, and
no rewrite would separate them. A point is a *touching point* if exactly two blocks contain it, it is the high of one
and the low of the other, and they are not the same single key. There the selection depth is 1. Everywhere else it is
the depth:

    [1,5] [5,9]              1 at 5: one ends, the next begins
    [1,5] [5,5]              1 at 5: so does a block of one key, before or after
    [5,5] [5,5]              2 at 5: they share all they have, and can become one block
    [1,9] [5,5]              2 at 5: the first does not end there
    [1,5] [5,5] [5,9]        3 at 5: three blocks
    [1,5] [3,5] [5,9]        3 at 5: two end
    [0,9] [1,5] [5,9]        3 at 5: one goes on

This is the rule of Databend 1.2.453 (seen by running it) except for two of its accidents: Databend gives [5,5] [5,9] a
2 although [1,5] [5,5] is 1, and the three blocks [1,9] [5,5] [5,8] a 1 at 5. Adding a block can raise the depth by 2,
from a touching point's 1 to 3. It never lowers it.

Cost, with n blocks: O(n) if ranks are dense (their span is a few times n), else O(n log n) to sort them. Block depths
add range maxima: at most O(n log n) of sequential work, less for shorter ranges. Memory O(n).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tblctl.metrics.order import distinct

Integers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_DENSE_SPAN = 8
"""Ranks that span at most this many times the number of blocks are counted directly; sparser ones are sorted first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DepthCurve:
    """Depth at every point where a block begins or ends.

    Attributes:
        points: those ranks, ascending, each once.
        depths: the depth at each. Between two neighbouring points no block begins or ends, and the depth is no greater
            than at either of them.
    """

    points: Integers
    depths: Integers

    def numbers(self, ranks: Integers) -> Integers:
        """Return the number of the point at each rank; every rank must be a point."""
        least, most = int(self.points[0]), int(self.points[-1])
        if most - least >= _DENSE_SPAN * self.points.size:
            return np.searchsorted(self.points, ranks)
        numbers = np.zeros(
            most - least + 1, np.int64
        )  # a search in points that fit no cache costs ten times as much
        numbers[self.points - least] = np.arange(self.points.size)
        return numbers[ranks - least]


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupedCurves:
    """Depth curves of several groups of blocks, one after the other; that of group i begins at `begins[i]`."""

    points: Integers
    depths: Integers
    begins: Integers

    def of(self, group: int) -> DepthCurve:
        part = slice(int(self.begins[group]), int(self.begins[group + 1]))
        return DepthCurve(points=self.points[part], depths=self.depths[part])


def check_ranges(low: Integers, high: Integers) -> None:
    """Do nothing if the arrays are the ends of blocks.

    Raises:
        ValueError: they differ in length, or a block's low is above its high.
    """
    if low.ndim != 1 or low.shape != high.shape:
        msg = f"low and high must be flat and of one length, not of shapes {low.shape} and {high.shape}"
        raise ValueError(msg)
    crossed = low > high
    if crossed.any():
        block = int(crossed.argmax())
        msg = f"block {block} has its low {low[block]} above its high {high[block]}; low must be at most high"
        raise ValueError(msg)


def overlaps(low: Integers, high: Integers) -> Integers:
    """Return for every block the number of other blocks whose closed interval intersects its own.

    Raises:
        ValueError: the arrays differ in length, or a block's low is above its high.
    """
    return _overlaps(_place(low, high))


def depths(low: Integers, high: Integers) -> Integers:
    """Return for every block the largest depth over its range; at least 1, at most its overlaps + 1.

    Raises:
        ValueError: as `overlaps`.
    """
    ends = _place(low, high)
    return _block_depths(ends, _point_depths(ends))


def overlaps_and_depths(low: Integers, high: Integers) -> tuple[Integers, Integers]:
    """Return what `overlaps` and `depths` return, at less cost than both calls.

    Raises:
        ValueError: as `overlaps`.
    """
    ends = _place(low, high)
    return _overlaps(ends), _block_depths(ends, _point_depths(ends))


def depth_curve(low: Integers, high: Integers) -> DepthCurve:
    """Return the depth at every end of a block.

    Raises:
        ValueError: as `overlaps`.
    """
    ends = _place(low, high)
    return _curve(ends, _point_depths(ends))


def selection_depths(low: Integers, high: Integers) -> Integers:
    """Return for every block the largest selection depth over its range; at least 1, at most its depth.

    Raises:
        ValueError: as `overlaps`.
    """
    ends = _place(low, high)
    return _block_depths(ends, _selection_point_depths(ends))


def selection_depth_curve(low: Integers, high: Integers) -> DepthCurve:
    """Return the selection depth at every end of a block.

    Raises:
        ValueError: as `overlaps`.
    """
    ends = _place(low, high)
    return _curve(ends, _selection_point_depths(ends))


def grouped_selection_depths(
    low: Integers, high: Integers, group: Integers
) -> tuple[Integers, GroupedCurves]:
    """Return what `selection_depths` and `selection_depth_curve` return of each group of blocks by itself.

    For all groups at once: there may be tens of thousands, of few blocks each. The span of all ranks, times the number
    of groups, is below 2^63.

    Args:
        low: the first rank of each block.
        high: its last rank.
        group: its group: 0, 1, ..

    Raises:
        ValueError: as `overlaps`.
    """
    least = int(low.min(initial=0))
    span = int(high.max(initial=0)) - least + 1
    ends = _place(low + group * span, high + group * span)
    points = _selection_point_depths(ends)
    curve = _curve(ends, points)
    owner = (curve.points - least) // span
    begins = np.searchsorted(owner, np.arange(int(group.max(initial=-1)) + 2))
    curves = GroupedCurves(points=curve.points - owner * span, depths=curve.depths, begins=begins)
    return _block_depths(ends, points), curves


def rounded_mean(total: int, count: int) -> float:
    """Return total / count to four decimals, half up; 0.0 for a count of 0.

    Exact for integers of any size: the rounding is done on integers, and the float is the one nearest to the decimal.
    """
    if count == 0:
        return 0.0
    ten_thousandths = (2 * 10_000 * total + count) // (2 * count)
    return ten_thousandths / 10_000


def known_mean(total: int, measured: int, blocks: int) -> float | None:
    """Return the mean over the `measured` ones of `blocks`: 0.0 without blocks, None if none is measured."""
    return None if blocks and not measured else rounded_mean(total, measured)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ends:
    """The blocks on positions that stand for ascending points; at some positions no block may end.

    Attributes:
        points: the rank of every position.
        low, high: for every block the positions of its ends.
        starts, stops: for every position how many blocks begin and end there.
    """

    points: Integers
    low: Integers
    high: Integers
    starts: Integers
    stops: Integers


def _place(low: Integers, high: Integers) -> _Ends:
    check_ranges(low, high)
    if low.size == 0:
        none = np.empty(0, np.int64)
        return _Ends(points=none, low=none, high=none, starts=none, stops=none)
    least, most = int(low.min()), int(high.max())
    if most - least < _DENSE_SPAN * low.size:
        points = np.arange(least, most + 1, dtype=np.int64)
        low, high = low - least, high - least
    else:
        points, places = distinct(np.concatenate((low, high)))
        low, high = places[: low.size], places[low.size :]
    return _Ends(
        points=points,
        low=low,
        high=high,
        starts=np.bincount(low, minlength=points.size),
        stops=np.bincount(high, minlength=points.size),
    )


def _overlaps(ends: _Ends) -> Integers:
    """Count the blocks that begin by a block's high, less those that end before its low, less itself."""
    started = np.cumsum(ends.starts)
    stopped_before = np.cumsum(ends.stops) - ends.stops
    return started[ends.high] - stopped_before[ends.low] - 1


def _point_depths(ends: _Ends) -> Integers:
    """Return the depth at every position."""
    return np.cumsum(ends.starts) - np.cumsum(ends.stops) + ends.stops


def _selection_point_depths(ends: _Ends) -> Integers:
    """Return the selection depth at every position."""
    found = _point_depths(ends)
    of_one_key = np.bincount(ends.low[ends.low == ends.high], minlength=ends.points.size)
    # Two blocks at a point touch if each of these happens at most once: one ends, one begins, one is the point itself.
    # The three add up to 2 unless a block goes on through the point.
    stopping, starting = ends.stops - of_one_key, ends.starts - of_one_key
    touching = (found == 2) & (starting + stopping + of_one_key == 2)  # noqa: PLR2004 - two blocks, as documented
    touching &= (stopping <= 1) & (starting <= 1) & (of_one_key <= 1)
    found[touching] = 1
    return found


def _curve(ends: _Ends, point_depths: Integers) -> DepthCurve:
    used = (ends.starts > 0) | (ends.stops > 0)
    return DepthCurve(points=ends.points[used], depths=point_depths[used])


def _block_depths(ends: _Ends, point_depths: Integers) -> Integers:
    """Return the largest of `point_depths` over each block's range.

    The maximum is at a position where a block begins. At any other position, all open blocks were already open at the
    start before it. That start lies within the range too, since the range begins with one. If it is a touching point,
    one block goes on from it.
    """
    begins = ends.starts > 0
    start_number = np.cumsum(begins) - 1
    return range_maxima(point_depths[begins], start_number[ends.low], start_number[ends.high])


def range_maxima(values: Integers, first: Integers, last: Integers) -> Integers:
    """Return the maximum of values[first .. last], both inclusive, for every pair.

    A sparse table that keeps only one level at a time. Level k holds the maxima of every 2^k consecutive values. Two of
    them answer a range of length 2^k to 2^(k+1) - 1. O(m log(longest range) + q) for m values and q ranges, memory
    O(m + q).
    """
    result = np.empty(first.size, np.int64)
    if first.size == 0:
        return result
    level = (np.frexp(last - first + 1)[1] - 1).astype(np.int8)  # of the length's highest bit
    by_level = np.argsort(level, kind="stable")
    cuts = np.searchsorted(level[by_level], np.arange(int(level.max()) + 2))
    maxima = values
    for k in range(cuts.size - 1):
        if k > 0:
            half = 1 << (k - 1)
            maxima = np.maximum(maxima[:-half], maxima[half:])
        ranges = by_level[cuts[k] : cuts[k + 1]]
        result[ranges] = np.maximum(maxima[first[ranges]], maxima[last[ranges] + 1 - (1 << k)])
    return result
