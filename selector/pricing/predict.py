"""Count what drafts take: rows, bytes, requests, seconds, money.

Which row groups a merge copies undecoded depends on keys, which are not read here. It is estimated from the bounds of
blocks: a merge copies the row groups that no other block of the group interleaves with. The rows of a block are assumed
to spread evenly over the ranks between its bounds, as the forecast of depth does. A stretch of a block that no other
meets holds whole row groups but for half a one, on average, at each end that lies inside the block. Blocks in no order,
or in another than the output's, and row groups of less than half of `row_group_rows` are decoded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tblctl.metrics.intervals import Integers
from tblctl.metrics.order import stable_order
from tblctl.selector.budget import Budget
from tblctl.selector.draft import Draft, most_rows, sort_id_of
from tblctl.selector.plan import Prediction
from tblctl.selector.pricing.price import Bill, Price, cost_of, total_price
from tblctl.selector.pricing.rates import BLOCK_REQUESTS, OUTPUT_REQUESTS, ROW_GROUP_REQUESTS, Rates
from tblctl.selector.table_view import TableView, joined

_DENSE_SPAN = 8
"""Places that span at most this many times the number of blocks are counted; sparser ones are sorted."""

_LEAST_SHARE = 0.5
"""Of `row_group_rows`: row groups with fewer rows are not copied (`merger/task/copying.py`)."""


def prices(view: TableView, drafts: Sequence[Draft], rates: Rates, budget: Budget) -> list[Price]:
    """Return the price of each draft; the budget says what a GiB and an hour cost. O(n log n) for n blocks."""
    blocks = joined(draft.blocks for draft in drafts)
    group = np.repeat(np.arange(len(drafts)), [draft.blocks.size for draft in drafts])
    rows, sizes, decoded = (
        np.bincount(group, values[blocks], minlength=len(drafts))
        for values in (view.row_count, view.size_bytes, view.decoded_bytes)
    )
    shares = copied_shares(view, drafts)
    copied = np.bincount(group, shares * view.size_bytes[blocks], minlength=len(drafts))
    group_rows = view.table_options.row_group_rows
    row_groups = np.bincount(group, np.ceil(view.row_count[blocks] / group_rows), minlength=len(drafts))
    return [
        _price(
            view,
            rates,
            budget,
            blocks=draft.blocks.size,
            rows=int(rows[number]),
            size_bytes=int(sizes[number]),
            decoded_bytes=int(decoded[number]),
            copied_bytes=float(copied[number]),
            row_groups=int(row_groups[number]),
        )
        for number, draft in enumerate(drafts)
    ]


def _price(
    view: TableView,
    rates: Rates,
    budget: Budget,
    *,
    blocks: int,
    rows: int,
    size_bytes: int,
    decoded_bytes: int,
    copied_bytes: float,
    row_groups: int,
) -> Price:
    suggested = min(int(copied_bytes), size_bytes)
    copied = min(round(suggested * rates.copied_factor), size_bytes)
    stored = size_bytes - copied
    memory = round(decoded_bytes * stored / size_bytes) if size_bytes else 0
    encoded = round(stored * rates.written_factor)
    outputs = math.ceil(
        rows / int(most_rows(np.array([rows]), np.array([decoded_bytes]), view.table_options)[0])
    )
    requests = math.ceil(
        BLOCK_REQUESTS * blocks + ROW_GROUP_REQUESTS * row_groups + OUTPUT_REQUESTS * outputs
    )
    seconds = rates.byte_seconds(
        memory_bytes=memory, encoded_bytes=encoded, copied_bytes=copied
    ) + rates.fixed_seconds(groups=1, requests=requests)
    return Price(
        blocks=blocks,
        rows=rows,
        bytes_read=size_bytes,
        bytes_copied=copied,
        bytes_written=encoded + copied,
        memory_bytes=memory,
        requests=requests,
        seconds=seconds,
        cost=cost_of(
            size_bytes, seconds, price_per_gib=budget.price_per_gib, price_per_hour=budget.price_per_hour
        ),
        suggested_bytes=suggested,
    )


def copied_shares(view: TableView, drafts: Sequence[Draft]) -> np.ndarray:
    """Return the share of each block of the drafts, one after the other, that is expected to be copied undecoded.

    O(n log n) for n blocks of drafts.
    """
    blocks = joined(draft.blocks for draft in drafts)
    shares = np.zeros(blocks.size)
    group = np.repeat(np.arange(len(drafts)), [draft.blocks.size for draft in drafts])
    sort_ids = np.array([sort_id_of(view, draft) for draft in drafts], np.int64)
    least = math.ceil(_LEAST_SHARE * view.table_options.row_group_rows)
    by_key = (sort_ids == view.sort_id)[group] & (view.sort_ids[blocks] == view.sort_id)
    placed = by_key & ~view.unknown[blocks]
    # A block that may lie anywhere may interleave with every row group of its group.
    interleaved = np.bincount(group, ~placed, minlength=len(drafts)) > 0
    chosen = np.flatnonzero(~interleaved[group])
    if not chosen.size:
        return shares
    numbers = blocks[chosen]
    row_groups = np.ceil(view.row_count[numbers] / view.table_options.row_group_rows)
    whole = _whole_row_groups(group[chosen], view.low[numbers], view.high[numbers], row_groups)
    large = view.row_count[numbers] >= least * row_groups
    shares[chosen] = np.where(large, np.minimum(whole / row_groups, 1.0), 0.0)
    return shares


def _whole_row_groups(group: Integers, low: Integers, high: Integers, row_groups: np.ndarray) -> np.ndarray:
    """Return how many row groups of each block lie where no other block of its group has keys.

    `group` is the group of each block, from 0, ascending; `low` and `high` are the ranks of its bounds. Blocks that
    share one rank interleave there.
    """
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    number = np.cumsum(np.diff(group, prepend=-1) > 0) - 1  # of the groups that have blocks
    least, most = np.minimum.reduceat(low, firsts), np.maximum.reduceat(high, firsts)
    section = 2 * (np.cumsum(most - least + 1) - (most - least + 1) - least)[number]
    begin, end = section + 2 * low, section + 2 * high + 1  # a closed range of one rank is one long
    points, depth, names = _open_blocks(begin, end)
    alone = np.flatnonzero(depth == 1)
    owner = names[alone]
    first, last = points[alone] == begin[owner], points[alone + 1] == end[owner]
    stretch = (points[alone + 1] - points[alone]) / (end - begin)[owner] * row_groups[owner]
    whole = np.maximum(stretch - 0.5 * (~first) - 0.5 * (~last), 0.0)
    found: np.ndarray = np.bincount(owner, whole, minlength=low.size)
    return found


def _open_blocks(begin: Integers, end: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the places where blocks begin or end, and, from each to the next, how many are open, and their sum.

    The sum is of their numbers: the number itself of a single one. O(n) if the places span a few times as many as there
    are, else O(n log n).
    """
    numbers = np.arange(begin.size)
    span = int(end.max()) + 1
    if span <= _DENSE_SPAN * begin.size:
        begun, ended = np.bincount(begin, minlength=span), np.bincount(end, minlength=span)
        points = np.flatnonzero(begun + ended)
        named = np.bincount(begin, numbers, minlength=span) - np.bincount(end, numbers, minlength=span)
        return points, np.cumsum((begun - ended)[points]), np.cumsum(named[points]).astype(np.int64)
    places = np.concatenate((begin, end))
    order = stable_order(places)
    places = places[order]
    last = np.flatnonzero(np.diff(places, append=places[-1:] + 1))  # of those at one place
    is_begin = order < begin.size
    depth = np.cumsum(np.where(is_begin, 1, -1))
    names = np.cumsum(np.where(is_begin, order, begin.size - order))
    return places[last], depth[last], names[last]


def bill_of(view: TableView, priced: Sequence[Price], predicted: Prediction, rates: Rates) -> Bill:
    """Return what a plan of these groups costs and brings."""
    total = total_price(priced)
    live_bytes = int(view.size_bytes.sum())
    before = _point_query_bytes(predicted.average_depth_before, live_bytes, predicted.block_count_before)
    after = _point_query_bytes(
        predicted.average_depth_after,
        live_bytes - total.bytes_read + total.bytes_written,
        predicted.block_count_after,
    )
    saved = 0 if before is None or after is None else before - after
    return Bill(
        total=total,
        point_query_bytes_before=before,
        point_query_bytes_after=after,
        payback_queries=math.ceil((total.bytes_read + total.bytes_written) / saved) if saved > 0 else None,
        measured_runs=rates.runs,
    )


def _point_query_bytes(depth: float | None, size_bytes: int, blocks: int) -> int | None:
    """Return the bytes of files that hold a key, on average; None if that is not known."""
    if depth is None:
        return None
    return round(depth * size_bytes / blocks) if blocks else 0
