"""Where blocks lie, as a picture shows it: rows of bars or a density of them, and the depth above.

Pure: ranks in, arrays out. Rank r is the cell [r, r + 1) of the key axis, so a block covers [low, high + 1), and blocks
that share one key share a cell.

Blocks lie in one band a level, the lowest level on top as in an LSM tree, and within a band from the bottom up in the
order of their ranges: a sorted level is a diagonal, one whose blocks all hold everything is a full rectangle.

Cost: O(n log n) for n blocks to order them, O(n + ranks) for each band's depths and densities. Memory O(n + ranks).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tblctl.metrics.intervals import Integers

LAST_LEVEL = 7
"""Levels from this one on share a band."""

_LEAST_HEIGHT = 0.06  # of a band, as a share of all, so that it can be seen and bears its name
_GAP = 0.015  # between bands


@dataclass(frozen=True, kw_only=True, eq=False)
class Band:
    """The blocks of one level.

    Attributes:
        level: -1 for constant and full; `LAST_LEVEL` stands for all from there on.
        members: the numbers of its blocks, from the bottom up.
        bottom, top: its share of the height, from 0 to 1.
        depths: for every column of the key axis, how many of its blocks hold the key at which the table is deepest.
    """

    level: int
    members: Integers
    bottom: float
    top: float
    depths: Integers


def lay_out(
    low: Integers, high: Integers, level: npt.NDArray[np.integer], *, rank_count: int, columns: int
) -> tuple[Band, ...]:
    """Return the bands from the bottom up: constant, the highest level, .., level 0.

    Depths are told for `columns` equal parts of the ranks 0 to `rank_count` - 1. A column stands for the rank of it
    that most blocks hold (the first of several), and the bands' depths there add up to the table's depth.
    """
    shown = np.minimum(level, LAST_LEVEL)
    order = np.lexsort((high, low, np.where(shown < 0, -LAST_LEVEL - 1, -shown)))
    starts = np.flatnonzero(np.diff(shown[order], prepend=-LAST_LEVEL - 1))
    groups = [] if low.size == 0 else np.split(order, starts[1:])
    deepest = _deepest_ranks(_depth_at_ranks(low, high, rank_count), columns)
    heights = _heights([group.size for group in groups])
    bands, bottom = [], 0.0
    for group, height in zip(groups, heights, strict=True):
        depths = _depth_at_ranks(low[group], high[group], rank_count)[deepest]
        bands.append(
            Band(level=int(shown[group[0]]), members=group, bottom=bottom, top=bottom + height, depths=depths)
        )
        bottom += height + _GAP
    return tuple(bands)


def density(
    low: Integers, high: Integers, weights: Integers, *, rank_count: int, rows: int, columns: int
) -> npt.NDArray[np.float64]:
    """Return the sum of the weights of blocks in each cell of a grid; row 0 holds the first blocks.

    The blocks, in their given order, are dealt to `rows` rows of about equally many; a block is in every column, of
    `columns` equal parts of the ranks, that it touches. O(n + rows x columns).
    """
    row = np.arange(low.size) * rows // max(1, low.size)
    width = columns + 1  # the last takes what ends at the right edge
    first, behind = low * columns // rank_count, high * columns // rank_count + 1
    size = rows * width
    steps = np.bincount(row * width + first, weights, size) - np.bincount(row * width + behind, weights, size)
    return np.cumsum(steps.reshape(rows, width), axis=1)[:, :columns]


def first_ranks(rank_count: int, columns: int) -> Integers:
    """Return the rank at which each column begins, and `rank_count` behind the last; `columns` <= `rank_count`."""
    return -(-np.arange(columns + 1, dtype=np.int64) * rank_count // columns)


def _depth_at_ranks(low: Integers, high: Integers, rank_count: int) -> Integers:
    starts = np.bincount(low, minlength=rank_count)
    stops = np.bincount(high + 1, minlength=rank_count + 1)[:rank_count]
    return np.cumsum(starts - stops)


def _deepest_ranks(depths: Integers, columns: int) -> Integers:
    """Return for every column the rank of its greatest depth."""
    begins = first_ranks(depths.size, columns)
    return np.array(
        [begin + int(depths[begin:end].argmax()) for begin, end in itertools.pairwise(begins)],
        dtype=np.int64,
    )


def _heights(counts: list[int]) -> list[float]:
    """Share the height between bands: by their blocks, but none below the least."""
    if not counts:
        return []
    free = 1 - _GAP * (len(counts) - 1)
    shares = [max(_LEAST_HEIGHT, count / sum(counts)) for count in counts]
    return [free * share / sum(shares) for share in shares]
