"""Drafts of groups: which blocks to merge, and whether merging them would change anything.

`--final` repeats plan, merge and commit until a plan has no groups. It always stops:

Every block of a group has a level below `MOST_LEVEL` (one in no live sort counts as -1 here), the output's level is
above that of each of its inputs, and a merge keeps the rows. So the sum over all rows of (MOST_LEVEL - level), counting
0 for rows of level -1 or at least MOST_LEVEL, which nobody selects, falls with every group by at least its rows. It is
a whole number, and cannot fall below 0. The planner refuses drafts of another level (`checks.py`).

A group may take blocks that were merged MOST_LEVEL times, and stay at that level, if it lowers what its blocks cover
together (`lowers_coverage`). The sum above stays as it is then, or falls: and of such groups there are finitely many in
turn. So the pair of both numbers falls with every group, the sum first.

A block to which deletes apply may be rewritten alone and keep its level, even one of level -1 or of MOST_LEVEL. Then
the number of pairs of a block and a file of deletes that applies to it falls: none applies to what was just written, so
no group raises it. It comes first, before the sum above, which may rise then.

A block that changes from one live sort to another keeps its level, so that two policies cannot hand it to and fro for
ever. Only a full block of one key, which has no level, may be given another sort once more (`selectable_for`): a policy
that does so must itself remember to stop, and never take blocks of that sort back.

That is the guarantee; few rounds come near it, since a group must also change something (`worth_merging`):

- Blocks that are not a sorted run become one: all of them, or all but those that already are part of one
  (`passing.py`). A merge writes a sorted run. Where its keys were truncated, bounds do not show that, but
  `TableView.truncated_run` does. The number of output blocks is not relied on: it is planned by the average width of a
  row, and wide rows next to each other make more blocks.
- In a sorted run, only neighbours that fit into one block together are merged into that block. They are packed one
  after the other. Then no two neighbours fit together, so a run is packed once.

Neither depth nor overlap could guarantee that: [1,7] [7,7] [7,9] have depth 3 however often they are merged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tblctl.metrics.intervals import Integers, Mask
from tblctl.metrics.order import stable_order
from tblctl.selector.connected import components
from tblctl.selector.table_view import TableView
from tblctl.tableformat.model.cluster_key import NO_SORT, Sort
from tblctl.tableformat.model.cut import ROOM
from tblctl.tableformat.model.options import TableOptions

MOST_GROUPS = 10_000
"""Most groups of a plan, unless a budget says less: more groups make neither planning nor merging faster."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Draft:
    """A proposed group, by block numbers: none of its blocks is a Python object yet.

    Attributes:
        blocks: all of one partition; the first ones are taken where a budget does not hold all.
        output_level: the level of what they become: at least `next_level`, at most `MOST_LEVEL`.
        why: for people.
        sort: the sort of what they become; None for the current one. It may be new to the table (`next_sort_id`).
    """

    blocks: Integers
    output_level: int
    why: str
    sort: Sort | None = None


def sort_id_of(view: TableView, draft: Draft) -> int:
    """Return the id of the sort that a draft's blocks get."""
    return view.sort_id if draft.sort is None else draft.sort.id


def next_level(view: TableView, chosen: Integers) -> int:
    """Return the level of what a merge of `chosen` yields: the highest of theirs + 1, and at least 1.

    Blocks in the order of no live sort count as 0.
    """
    return int(counted_level(view, chosen).max(initial=0)) + 1


def lowers_coverage(view: TableView, chosen: Integers) -> bool:
    """Return whether a merge of `chosen` by the current sort lowers how much of the keys blocks cover together.

    Count for every gap between two neighbouring keys of the rows how many blocks cover it. Blocks that overlap in more
    than a point, directly or by others between them, cover each gap between their ends, and some gaps twice. What they
    become covers each gap once at most. So the sum of these counts falls by one at least. It is a whole number, and no
    merge adds a key. That needs bounds that are keys, of blocks in order that have several. O(n log n).
    """
    fit = ~(view.unknown | view.unclustered)[chosen] & (view.low < view.high)[chosen]
    if view.inexact is not None:
        fit &= ~view.inexact[chosen]
    low, high = view.low[chosen], view.high[chosen]
    return bool(chosen.size > 1 and fit.all() and not components(low, high).any())


def counted_level(view: TableView, chosen: Integers) -> Integers:
    """Return the level of each of `chosen`, at least 0; blocks in the order of no live sort count as 0."""
    known = view.sort_ids[chosen] != NO_SORT
    levels: Integers = np.maximum(np.where(known, view.level[chosen], 0), 0)
    return levels


def most_rows(rows: Integers, decoded_bytes: Integers, options: TableOptions) -> Integers:
    """Return the most rows that an output block of each group is planned to hold (`cut.most_rows`)."""
    row_bytes = np.maximum(decoded_bytes / rows, 1)
    most = np.minimum(options.block_rows, np.floor(ROOM * options.block_bytes / row_bytes))
    return np.maximum(most, 1).astype(np.int64)


def changes(view: TableView, chosen: Integers, group: Integers) -> Mask:
    """Return for every group whether merging it, or part of it, changes anything (`worth_merging`). O(n log n).

    `group[i]`, ascending, is the group of `chosen[i]`.
    """
    order = key_order(view, chosen, group)
    found = _unsorted(view, chosen[order], group)
    same = group[1:] == group[:-1]
    found[group[1:][same & _fit_together(view, chosen[order])]] = True
    return found


def worth_merging(view: TableView, chosen: Integers, *, most: int = MOST_GROUPS) -> list[Integers]:
    """Return the parts of `chosen` to merge, each by itself: all of it, or, in a sorted run, what fits into one block.

    A run is packed from its smallest key on: at least two neighbours, as many as fit. At most `most` parts.
    """
    if not chosen.size:
        return []
    one = np.zeros(chosen.size, np.int64)
    run = chosen[key_order(view, chosen, one)]
    if _unsorted(view, run, one)[0]:
        return [chosen]
    begins = np.flatnonzero(_fit_together(view, run))
    rows = np.concatenate(([0], np.cumsum(view.row_count[run])))
    sizes = np.concatenate(([0], np.cumsum(_planned_bytes(view, run))))
    most_bytes = math.ceil(ROOM * view.table_options.block_bytes)  # a float would turn all sizes into floats
    parts: list[Integers] = []
    place = 0
    while place < begins.size and len(parts) < most:
        begin = int(begins[place])
        by_rows = np.searchsorted(rows, rows[begin] + view.table_options.block_rows, side="right")
        by_bytes = np.searchsorted(sizes, sizes[begin] + most_bytes, side="left")
        end = int(min(by_rows, by_bytes)) - 1
        parts.append(run[begin:end])
        place = int(np.searchsorted(begins, end))
    return parts


def key_order(view: TableView, chosen: Integers, group: Integers) -> Integers:
    """Return the places of `chosen` by group, low and high; blocks of unknown range come last."""
    unknown = view.unknown[chosen]
    low = view.low[chosen]
    low = np.where(unknown, low.max(initial=0) + 1, low)
    high = view.high[chosen]
    # Blocks from `split_in_key_order` are in order already. Checking a million takes 2 ms, sorting them again 65 ms.
    rises = high[1:] >= high[:-1]
    for key in (low, group):
        rises = (key[1:] > key[:-1]) | (key[1:] == key[:-1]) & rises
    return np.arange(chosen.size) if rises.all() else stable_order(group, low, high)


def _unsorted(view: TableView, in_order: Integers, group: Integers) -> Mask:
    """Return for every group whether its blocks, given in key order, are not a sorted run.

    They are not if two share more than one point, one lies within another, a bound is unknown, or one is unclustered.
    Neighbours with truncated keys that are of one run share none.
    """
    count = int(group[-1]) + 1 if group.size else 0
    before, after = in_order[:-1], in_order[1:]
    found = np.zeros(count, np.bool_)
    overlap = (group[1:] == group[:-1]) & (view.high[before] > view.low[after])
    if view.truncated_run is not None and overlap.any():
        overlap &= ~_of_one_run(view, view.truncated_run, before, after)
    found[group[1:][overlap]] = True
    several = np.bincount(group, minlength=count)[group] > 1
    found[group[(view.unknown[in_order] & several) | view.unclustered[in_order]]] = True
    return found


def _of_one_run(view: TableView, run: Integers, before: Integers, after: Integers) -> Mask:
    """Return which pairs of blocks one merge wrote by the current sort: they overlap in their truncated keys alone."""
    mine = (
        (run[before] >= 0) & (view.sort_ids[before] == view.sort_id) & (view.sort_ids[after] == view.sort_id)
    )
    found: Mask = mine & (run[before] == run[after])
    return found


def _fit_together(view: TableView, in_order: Integers) -> Mask:
    """Return for every block but the last whether it and the next one fit into one planned block."""
    rows, sizes = view.row_count[in_order], _planned_bytes(view, in_order)
    found: Mask = (rows[1:] + rows[:-1] <= view.table_options.block_rows) & (
        sizes[1:] + sizes[:-1] < ROOM * view.table_options.block_bytes
    )
    return found


def _planned_bytes(view: TableView, chosen: Integers) -> Integers:
    """Return the bytes that blocks are planned to take of `block_bytes`: at least one a row (`cut.most_rows`)."""
    sizes: Integers = np.maximum(view.decoded_bytes[chosen], view.row_count[chosen])
    return sizes
