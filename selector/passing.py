"""Which blocks of a sort pass through unwritten, and what is merged between them.

A block stays if a merge would only write it again: it is sorted by the key, it is as large as a merge would make it,
and its range meets no other block of the sort, not even at one key. The stretches between such blocks are sorted one by
one. The result is one sorted run, with the same depth as if everything were sorted.

This writes fewer bytes, but blocks are less even in size: a stretch alone may be a sliver. So a stretch that would not
fill half a block takes a neighbour along. Then every output block is at least half full.
"""

from __future__ import annotations

import math

import numpy as np

from tblctl.metrics.intervals import Integers, Mask
from tblctl.selector.draft import changes, most_rows, worth_merging
from tblctl.selector.table_view import TableView
from tblctl.tableformat.model.block import FULL_SHARE

_LEAST_SHARE = 0.5
"""A stretch that fills less than this share of a block is a sliver."""


def worth_sorting(view: TableView, in_order: Integers, *, most: int) -> list[Integers]:
    """Return the parts to merge, each by itself, so that `in_order` becomes one sorted run; at most `most` parts.

    `in_order` is in the order of `split_in_key_order`. O(n log n) for n blocks.
    """
    parts = worth_merging(view, in_order, most=most)
    if [part.size for part in parts] != [in_order.size]:
        return parts  # it is one already
    chosen, run = runs(view, in_order)
    if chosen.size == in_order.size:
        return parts
    useful = np.flatnonzero(changes(view, chosen, run))
    begins, ends = np.searchsorted(run, useful), np.searchsorted(run, useful, side="right")
    parts = []
    for begin, end in zip(begins[:most].tolist(), ends[:most].tolist(), strict=True):
        if len(parts) >= most:
            break
        parts += worth_merging(view, chosen[begin:end], most=most - len(parts))
    return parts


def runs(view: TableView, in_order: Integers) -> tuple[Integers, Integers]:
    """Return the blocks of `in_order` that do not stay, and the ascending number of each one's stretch, with gaps."""
    share = _shares_of_a_block(view, in_order)
    stays = _meets_nothing(view, in_order) & _is_as_merged(view, in_order, share)
    run = np.cumsum(stays, dtype=np.int64)  # how many blocks before it stay
    filled = np.bincount(run[~stays], share[~stays], minlength=int(stays.sum()) + 1)
    slivers = np.flatnonzero((filled > 0) & (filled < _LEAST_SHARE))
    staying = np.flatnonzero(stays)
    if staying.size and slivers.size:
        beside = np.concatenate(([math.inf], share[staying], [math.inf]))
        takes_next = beside[slivers + 1] < beside[slivers]
        stays[staying[slivers - 1 + takes_next]] = False
    return in_order[~stays], np.cumsum(stays, dtype=np.int64)[~stays]


def _meets_nothing(view: TableView, in_order: Integers) -> Mask:
    """Return which blocks share no key with another; none of them if any range is unknown."""
    if view.unknown[in_order].any():
        return np.zeros(in_order.size, np.bool_)
    low, high = view.low[in_order], view.high[in_order]
    apart = np.maximum.accumulate(high)[:-1] < low[1:]  # no block up to this one meets a later one
    found: Mask = np.concatenate(([True], apart)) & np.concatenate((apart, [True]))
    return found


def _is_as_merged(view: TableView, chosen: Integers, share: np.ndarray) -> Mask:
    """Return which blocks are sorted by the key, and as large as a merge makes them."""
    allowed = (view.row_count[chosen] <= view.table_options.block_rows) & (
        view.decoded_bytes[chosen] <= view.table_options.block_bytes
    )
    found: Mask = ~view.unclustered[chosen] & (share >= FULL_SHARE) & allowed
    return found


def _shares_of_a_block(view: TableView, chosen: Integers) -> np.ndarray:
    """Return how full each block is: its rows as a share of the most rows of its width that a block holds."""
    rows = view.row_count[chosen]
    return rows / most_rows(rows, view.decoded_bytes[chosen], view.table_options)
