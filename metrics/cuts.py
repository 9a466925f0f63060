"""Where a table would be cut if it were sorted by another column: an estimate from the ranges of its blocks alone.

Pure. Values are points on a line of floats. Of a block's rows only their closed range [low, high] is known, so they
count as spread evenly over it. Query planners assume the same (Selinger et al., "Access path selection in a relational
database management system", SIGMOD 1979). The sum over all blocks is the table's distribution. Its quantiles are the
places where blocks of equal rows would begin and end.

On a discrete line values are whole numbers, and every value covers the unit after it: the 7 values 1 to 7 in 70 blocks
fill 10 blocks each.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tblctl.metrics.intervals import Integers

Floats: TypeAlias = npt.NDArray[np.float64]

_EDGE = 1e-6
"""Row counts and discrete values count as equal below this difference: sums of floats are inexact."""


def even_cuts(
    low: Floats, high: Floats, row_count: Floats, *, cuts: Floats, discrete: bool
) -> tuple[Floats, Floats]:
    """Return the least and greatest value of the rows between each pair of neighbouring `cuts`.

    Args:
        low: where each block begins.
        high: where it ends.
        row_count: its rows.
        cuts: how many rows lie before each cut, ascending; at most the sum of `row_count`.
        discrete: whether values are whole numbers.

    O(n log n + cuts log n).
    """
    points, rows = _distribution(low, high + 1 if discrete else high, row_count)
    near = rows[np.minimum(np.searchsorted(rows, cuts - _EDGE), rows.size - 1)]
    cuts = np.where(np.abs(near - cuts) <= _EDGE, near, cuts)
    # If no value lies between two rows, the rows before the cut end with the first row's value, and the rows after it
    # begin with the second's.
    begin = np.interp(cuts[:-1], rows, points)
    end = np.interp(-cuts[1:], -rows[::-1], points[::-1])
    if discrete:
        begin, end = np.floor(begin + _EDGE), np.ceil(end - _EDGE) - 1
    return begin, np.maximum(begin, end)


def _distribution(low: Floats, high: Floats, row_count: Floats) -> tuple[Floats, Floats]:
    """Return ascending points, each twice: first with the rows before it, then with the rows up to and at it."""
    points = np.unique(np.concatenate((low, high)))
    first, last = np.searchsorted(points, low), np.searchsorted(points, high)
    spread = high > low
    rate = np.divide(row_count, high - low, out=np.zeros_like(row_count), where=spread)
    change = np.bincount(first, rate, points.size) - np.bincount(last, rate, points.size)
    between = np.maximum(np.cumsum(change)[:-1], 0) * np.diff(points)
    at = np.bincount(first[~spread], row_count[~spread], points.size)
    rows = np.empty(2 * points.size)
    rows[0::2] = np.concatenate(([0.0], np.cumsum(at[:-1] + between)))
    rows[1::2] = rows[0::2] + at
    return np.repeat(points, 2), rows


def touched(low: Floats, high: Floats, cut_low: Floats, cut_high: Floats) -> tuple[Integers, Integers]:
    """Return for each block the first and last of the closed, ascending ranges between cuts that may get its rows."""
    first = np.minimum(np.searchsorted(cut_high, low, side="left"), cut_low.size - 1)
    last = np.searchsorted(cut_low, high, side="right") - 1
    return first.astype(np.int64), np.maximum(first, last).astype(np.int64)


def least_in_ranges(values: Integers, first: Integers, last: Integers, size: int, *, start: int) -> Integers:
    """Return for each of `size` places the least value whose range [first, last] holds it, at most `start`.

    A range is covered by two overlapping ones whose length is a power of two. From the longest length down, each range
    passes its value to its halves. O(n + size log(size)).
    """
    level = np.frexp(last - first + 1)[1] - 1
    found = np.full(size, start, np.int64)
    for k in range(int(level.max(initial=0)), -1, -1):
        length = 1 << k
        mine = level == k
        np.minimum.at(found, first[mine], values[mine])
        np.minimum.at(found, last[mine] + 1 - length, values[mine])
        if k:
            half = length // 2
            handed = found.copy()
            np.minimum(handed[half:], found[:-half], out=handed[half:])
            found = handed
    return found
