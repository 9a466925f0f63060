"""Lay out blocks for a picture: bars or a density, one band for each level, and the depth above them.

Pure: ranks in, arrays out. Rank r is the cell [r, r + 1) of the key axis. So a block covers [low, high + 1), and blocks
that share one key share a cell.

Each level is a band; the lowest level is on top, as in an LSM tree. Within a band, blocks lie from the bottom up in the
order of their ranges. So a sorted level is a diagonal, and a level whose blocks all hold every key is a full rectangle.

Cost: O(n log n) for n blocks to order them, O(n + ranks) for each band's depths and densities. Memory O(n + ranks).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tblctl.metrics.intervals import Integers

LAST_LEVEL = 7
"""This level and all higher ones share a band."""

_LEAST_HEIGHT = 0.06  # of a band, as a share of the height: it must be visible and have room for its name
_GAP = 0.015  # between bands


@dataclass(frozen=True, kw_only=True, eq=False)
class Band:
    """The blocks of one level.

    Attributes:
        level: -1 for blocks that are constant and full; `LAST_LEVEL` stands for itself and all higher levels.
        members: the numbers of its blocks, from the bottom up.
        bottom, top: where it lies in the height, from 0 to 1.
        depths: for every column of the key axis, how many of the band's blocks hold the column's deepest key, the key
            that most blocks of the table hold.
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

    The ranks 0 to `rank_count` - 1 are divided into `columns` equal parts. A column's depths are measured at the rank
    that most blocks hold (the first of several). There the bands' depths add up to the table's depth.
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

    The blocks, in their given order, are divided into `rows` rows of about equal numbers. The ranks are divided into
    `columns` equal parts. A block counts in every column that it touches. O(n + rows x columns).
    """
    row = np.arange(low.size) * rows // max(1, low.size)
    width = columns + 1  # the last column takes what ends at the right edge
    first, behind = low * columns // rank_count, high * columns // rank_count + 1
    size = rows * width
    steps = np.bincount(row * width + first, weights, size) - np.bincount(row * width + behind, weights, size)
    return np.cumsum(steps.reshape(rows, width), axis=1)[:, :columns]


def first_ranks(rank_count: int, columns: int) -> Integers:
    """Return the rank at which each column begins, then `rank_count`. `columns` must not exceed `rank_count`."""
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
    """Divide the height among bands in proportion to their blocks, but give each at least `_LEAST_HEIGHT`."""
    if not counts:
        return []
    free = 1 - _GAP * (len(counts) - 1)
    shares = [max(_LEAST_HEIGHT, count / sum(counts)) for count in counts]
    return [free * share / sum(shares) for share in shares]
