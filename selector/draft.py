"""Groups in the making: which blocks, and whether merging them would change anything.

`--final` repeats plan, merge and commit until a plan has no groups. It stops, whatever the blocks are:

Every block of a group has a level below `MOST_LEVEL` (an unclustered one counts as -1 here), the output's level is
above that of each of its inputs, and a merge keeps the rows. So the sum over all rows of (MOST_LEVEL - level), counting
0 for rows of level -1 or at least MOST_LEVEL, which nobody selects, falls with every group by at least its rows. It is
a whole number, and cannot fall below 0.

That is the guarantee; few rounds come near it, since a group must also change something (`worth_merging`):

- Blocks that are no sorted run become one, all of them or (`passing.py`) but for those that are part of one already.
  What a merge writes is such a run, unless bounds are inexact. Into how many blocks it is cut is not counted on: they
  are planned by the average width of a row, and wide rows next to each other make more of them.
- Of a sorted run only neighbours that fit into one block together become that block. Packed one after the other, no
  two that follow each other then fit together: a run is packed once.

Neither depth nor overlap could show that: [1,7] [7,7] [7,9] have depth 3 however often they are merged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tblctl.selector.candidates import Candidates, Context, Integers, Mask, joined
from tblctl.tableformat.model.block import CONSTANT_LEVEL, FULL_SHARE
from tblctl.tableformat.model.cut import ROOM
from tblctl.tableformat.model.options import TableOptions

MOST_LEVEL = 32
"""Blocks of this level or above are left alone (as Databend does), so that `--final` stops."""

MOST_GROUPS = 10_000
"""Most groups of a plan where no budget says less: more make neither planning nor merging faster."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Draft:
    """A group by block numbers, before anything of it became a Python object."""

    blocks: Integers
    output_level: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a group may hold at most; the rest of the plan's budgets, and of a group's bytes."""

    decoded_bytes: float = math.inf
    size_bytes: float = math.inf
    blocks: float = math.inf

    @classmethod
    def of(cls, context: Context, *, group_bytes: int | None) -> Limits:
        """Return the limits at the start of a plan; `group_bytes` is the policy's own limit of a group."""
        options = context.options
        return cls(
            decoded_bytes=_or_none(options.max_group_bytes or group_bytes),
            size_bytes=_or_none(options.max_bytes),
            blocks=_or_none(options.max_blocks),
        )

    def after(self, size_bytes: int, blocks: int) -> Limits:
        """Return what is left for the next group."""
        return Limits(
            decoded_bytes=self.decoded_bytes,
            size_bytes=self.size_bytes - size_bytes,
            blocks=self.blocks - blocks,
        )

    def fitting(self, blocks: Candidates, order: Integers) -> tuple[int, str]:
        """Return how many of `order`, from its start, fit together; and the limit that the next one breaks, or ""."""
        sums = (
            ("max_group_bytes", np.cumsum(blocks.decoded_bytes[order]), self.decoded_bytes),
            ("max_bytes", np.cumsum(blocks.size_bytes[order]), self.size_bytes),
            ("max_blocks", np.arange(1, order.size + 1), self.blocks),
        )
        counts = [(int(np.searchsorted(total, most, side="right")), rule) for rule, total, most in sums]
        count, rule = min(counts, key=lambda found: found[0])
        return (count, rule) if count < order.size else (count, "")


def selectable(context: Context) -> Mask:
    """Return the blocks that a policy may select: not those that `left_out` tells of (unclustered ones aside)."""
    blocks = context.blocks
    chosen = ~(finished(context) | too_high(blocks))
    if context.restricted is not None:
        chosen &= context.restricted
    if context.failed is not None:
        chosen &= ~context.failed
    return chosen


def finished(context: Context) -> Mask:
    """Return the clustered blocks of one key that are full, and those so marked."""
    blocks, options = context.blocks, context.table_options
    full = (blocks.row_count >= math.floor(FULL_SHARE * options.block_rows)) | (
        blocks.decoded_bytes >= FULL_SHARE * options.block_bytes
    )
    done: Mask = ~blocks.unclustered & ((blocks.level == CONSTANT_LEVEL) | (blocks.constant & full))
    return done


def too_high(blocks: Candidates) -> Mask:
    """Return the clustered blocks that were merged as often as any may be."""
    return ~blocks.unclustered & (blocks.level >= MOST_LEVEL)


def next_level(blocks: Candidates, chosen: Integers) -> int:
    """Return the level of what a merge of `chosen` yields: the highest of theirs + 1; unclustered blocks count as 0."""
    return int(np.where(blocks.unclustered[chosen], 0, blocks.level[chosen]).max()) + 1


def most_rows(rows: Integers, decoded_bytes: Integers, options: TableOptions) -> Integers:
    """Return the most rows that a block is planned to hold which groups of so many rows become (`cut.most_rows`)."""
    row_bytes = np.maximum(decoded_bytes / rows, 1)
    most = np.minimum(options.block_rows, np.floor(ROOM * options.block_bytes / row_bytes))
    return np.maximum(most, 1).astype(np.int64)


def changes(blocks: Candidates, chosen: Integers, group: Integers, options: TableOptions) -> Mask:
    """Return for every group whether merging it, or some of it, changes anything (`worth_merging`); O(n log n).

    `group[i]`, ascending, is the one of `chosen[i]`.
    """
    order = _key_order(blocks, chosen, group)
    found = _unsorted(blocks, chosen[order], group)
    same = group[1:] == group[:-1]
    found[group[1:][same & _fit_together(blocks, chosen[order], options)]] = True
    return found


def worth_merging(
    blocks: Candidates, chosen: Integers, options: TableOptions, *, most: int = MOST_GROUPS
) -> list[Integers]:
    """Return what to merge of `chosen`, each part by itself: all of it, or, of a sorted run, what makes one block.

    A run is packed from its smallest key on: neighbours, at least two, as long as they fit. At most `most` parts.
    """
    if not chosen.size:
        return []
    one = np.zeros(chosen.size, np.int64)
    run = chosen[_key_order(blocks, chosen, one)]
    if _unsorted(blocks, run, one)[0]:
        return [chosen]
    begins = np.flatnonzero(_fit_together(blocks, run, options))
    rows = np.concatenate(([0], np.cumsum(blocks.row_count[run])))
    sizes = np.concatenate(([0], np.cumsum(_planned_bytes(blocks, run))))
    most_bytes = math.ceil(ROOM * options.block_bytes)  # a float would make all sizes floats, every time
    parts: list[Integers] = []
    place = 0
    while place < begins.size and len(parts) < most:
        begin = int(begins[place])
        by_rows = np.searchsorted(rows, rows[begin] + options.block_rows, side="right")
        by_bytes = np.searchsorted(sizes, sizes[begin] + most_bytes, side="left")
        end = int(min(by_rows, by_bytes)) - 1
        parts.append(run[begin:end])
        place = int(np.searchsorted(begins, end))
    return parts


def _key_order(blocks: Candidates, chosen: Integers, group: Integers) -> Integers:
    """Return the places of `chosen` by group, low and high; blocks of unknown range come last."""
    unknown = blocks.unknown[chosen]
    low = np.where(unknown, np.iinfo(np.int64).max, blocks.low[chosen])
    high = blocks.high[chosen]
    # What `split_in_key_order` gave is in order: a million blocks are checked in 2 ms, and sorted anew in 65.
    rises = high[1:] >= high[:-1]
    for key in (low, group):
        rises = (key[1:] > key[:-1]) | (key[1:] == key[:-1]) & rises
    order: Integers = np.arange(chosen.size) if rises.all() else np.lexsort((high, low, group))
    return order


def _unsorted(blocks: Candidates, in_order: Integers, group: Integers) -> Mask:
    """Return for every group, its blocks in key order, whether they are no sorted run.

    So it is if two share more than one point, or one lies within another, or a bound is unknown, or one is unclustered.
    """
    count = int(group[-1]) + 1 if group.size else 0
    before, after = in_order[:-1], in_order[1:]
    found = np.zeros(count, np.bool_)
    found[group[1:][(group[1:] == group[:-1]) & (blocks.high[before] > blocks.low[after])]] = True
    several = np.bincount(group, minlength=count)[group] > 1
    found[group[(blocks.unknown[in_order] & several) | blocks.unclustered[in_order]]] = True
    return found


def _fit_together(blocks: Candidates, in_order: Integers, options: TableOptions) -> Mask:
    """Return for every block but the last whether it and the next one are planned as one block."""
    rows, sizes = blocks.row_count[in_order], _planned_bytes(blocks, in_order)
    found: Mask = (rows[1:] + rows[:-1] <= options.block_rows) & (
        sizes[1:] + sizes[:-1] < ROOM * options.block_bytes
    )
    return found


def _planned_bytes(blocks: Candidates, chosen: Integers) -> Integers:
    """Return what blocks are planned to take of `block_bytes`: at least a byte a row (`cut.most_rows`)."""
    sizes: Integers = np.maximum(blocks.decoded_bytes[chosen], blocks.row_count[chosen])
    return sizes


def split_in_key_order(
    blocks: Candidates, chosen: Integers, limits: Limits, most_groups: int
) -> tuple[list[Integers], Integers, str]:
    """Return `chosen` cut into groups of neighbours by key, what is left, and the limit that left it, or "".

    Blocks of unknown range come last. One that breaks the group's limit alone is left too, and the next ones are tried.
    """
    waiting = chosen[_key_order(blocks, chosen, np.zeros(chosen.size, np.int64))]
    alone = blocks.decoded_bytes[waiting] > limits.decoded_bytes
    too_large, waiting = waiting[alone], waiting[~alone]
    groups: list[Integers] = []
    rule = "max_group_bytes" if too_large.size else ""
    affordable, broken = replace(limits, decoded_bytes=math.inf).fitting(blocks, waiting)
    decoded = np.concatenate(([0], np.cumsum(blocks.decoded_bytes[waiting])))
    start = 0
    while start < waiting.size:
        if len(groups) == most_groups or start == affordable:
            rule = "max_groups" if start < affordable else broken
            break
        fits = int(np.searchsorted(decoded, decoded[start] + limits.decoded_bytes, side="right")) - 1
        end = min(fits, affordable)
        groups.append(waiting[start:end])
        start = end
    return groups, joined((too_large, waiting[start:])), rule


def _or_none(limit: int | None) -> float:
    return math.inf if limit is None else limit
