"""How many blocks typical conditions on a key read. Pure."""

from __future__ import annotations

import numpy as np

from tblctl.metrics.intervals import Integers

_CONDITIONS = 1_000
"""Conditions that are averaged over, spread evenly over the bounds of the blocks: a block that is narrow counts as much
as a wide one, as conditions follow where rows are."""


def average_reads(low: Integers, high: Integers, share: float = 0.0) -> float:
    """Return how many blocks a condition on the key reads on average. O(n log n).

    Args:
        low: the least key of each of n blocks, int64.
        high: the greatest, at least `low`.
        share: how much of the keys a condition asks for, from 0 (one key) to 1, as a share of the blocks' bounds.
    """
    if not len(low):
        return 0.0
    lows, highs = np.sort(low), np.sort(high)
    ends = np.sort(np.concatenate((low, high)))
    width = min(round(share * len(ends)), len(ends) - 1)
    begin = np.unique(np.linspace(0, len(ends) - 1 - width, _CONDITIONS).round().astype(np.int64))
    first, last = ends[begin], ends[begin + width]
    met = np.searchsorted(lows, last, side="right") - np.searchsorted(highs, first, side="left")
    return float(met.mean())
