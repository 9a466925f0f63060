"""Blocks that overlap, directly or by others between them, and runs of blocks that do not.

Two blocks overlap here if they share more than one point. Neighbours of a run that share one key do not, and neither
does a block of one key overlap any other: no merge would part them.
"""

from __future__ import annotations

import numpy as np

from tblctl.metrics.intervals import Integers, Mask
from tblctl.metrics.order import stable_order


def components(low: Integers, high: Integers) -> Integers:
    """Return the component of each block: 0, 1, .. in key order. Blocks of one component are connected by overlaps.

    O(n log n) for n blocks, given by their bounds.
    """
    order = stable_order(low, high)
    found = np.empty(low.size, np.int64)
    found[order] = np.cumsum(_begins(low[order], high[order])) - 1
    return found


def _begins(low: Integers, high: Integers) -> Mask:
    """Return which blocks, in key order, overlap none before them."""
    found = np.ones(low.size, np.bool_)
    found[1:] = np.maximum.accumulate(high)[:-1] <= low[1:]
    return found


def component_at(low: Integers, high: Integers, gap: int) -> Mask:
    """Return which blocks are in the component that covers the gap from rank `gap` to the next; none if none does.

    O(n + m) for n blocks and m ranks.
    """
    size = int(high.max(initial=0)) + 1
    begun, ended = (np.cumsum(np.bincount(ends, minlength=size)) for ends in (low, high))
    if gap + 1 >= size or begun[gap] == ended[gap]:
        return np.zeros(low.size, np.bool_)
    between = np.flatnonzero(
        np.concatenate(([0], begun[:-1])) == ended
    )  # no block goes on across these ranks
    begin = int(between[np.searchsorted(between, gap, side="right") - 1])
    end = int(between[np.searchsorted(between, gap + 1)])
    found: Mask = (low >= begin) & (high <= end) & (low < high)
    return found


def greedy_runs(low: Integers, high: Integers) -> Integers:
    """Return a run for each block, from 0 on: the fewest runs so that no two blocks of one overlap.

    In key order, a block joins the run that ended last before it, or begins a new one where no run has ended (interval
    partitioning: Kleinberg and Tardos, Algorithm Design, 4.1). Between neighbours of a large run there is little space
    for another run to end in, so most runs come back as they were written.

    That needs no loop: ends and begins are as brackets that open and close, so blocks pair up where brackets do. At one
    height of the stack they alternate. Then each run is named by the first of its blocks, found by doubling.
    O(n log n) for n blocks.
    """
    count = low.size
    events = stable_order(np.concatenate((2 * high, 2 * low + 1)))  # at one rank, ends come first
    is_end = events < count
    stack = np.cumsum(np.where(is_end, 1, -1))
    floor = np.minimum(np.minimum.accumulate(stack), 0)  # it falls at each begin that finds no run
    continues = ~is_end & (np.diff(floor, prepend=0) == 0)
    paired = np.flatnonzero(is_end | continues)
    height = (stack - floor)[paired] + ~is_end[paired]
    paired = paired[stable_order(height)]
    closes = np.flatnonzero(continues[paired])
    before = np.arange(count)
    before[events[paired[closes]] - count] = events[paired[closes - 1]]
    while (before != (further := before[before])).any():
        before = further
    found: Integers = np.unique(before, return_inverse=True)[1]
    return found
