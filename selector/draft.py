"""Groups in the making: which blocks, and whether merging them would change anything.

`--final` repeats plan, merge and commit until a plan has no groups. It stops, whatever the blocks are:

Every block of a group has a level below `MOST_LEVEL` (an unclustered one counts as -1 here), the output's level is
above that of each of its inputs, and a merge keeps the rows. So the sum over all rows of (MOST_LEVEL - level), counting
0 for rows of level -1 or at least MOST_LEVEL, which nobody selects, falls with every group by at least its rows. It is
a whole number, and cannot fall below 0.

Where no input is larger than the limits of an output, a merge yields at most as many blocks as it takes. Then the same
sum over blocks falls by at least 1 a block taken: n blocks need at most 33 n / 2 groups, so 33 n / 2 rounds.

That is the guarantee; few rounds come near it, since a group must also change something (`changes`): a merge of blocks
that already are one sorted run, into no fewer blocks, would write the same again. What a merge writes is such a run, so
a table that was merged once and got nothing new is left alone at once. Neither depth nor overlap could show that:
[1,7] [7,7] [7,9] have depth 3 however often they are merged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tblctl.selector.blocks import Candidates, Context, Integers, Mask, joined
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


def output_counts(
    rows: Integers, decoded_bytes: Integers, options: TableOptions
) -> tuple[Integers, Integers]:
    """Return into how many blocks groups of so many rows are cut, and the most rows that one of them holds."""
    row_bytes = np.maximum(decoded_bytes / rows, 1)
    most = np.minimum(options.block_rows, np.floor(ROOM * options.block_bytes / row_bytes))
    most = np.maximum(most, 1).astype(np.int64)
    return -(-rows // most), most


def changes(blocks: Candidates, chosen: Integers, group: Integers, options: TableOptions) -> Mask:
    """Return for every group whether merging it changes anything; `group[i]`, ascending, is the one of `chosen[i]`.

    It does if two of its blocks share more than one point, or one lies within another, or a bound is unknown, or one is
    unclustered; or if fewer blocks come out than go in. O(n log n).
    """
    count = int(group[-1]) + 1 if group.size else 0
    sizes = np.bincount(group, minlength=count)
    rows = np.bincount(group, blocks.row_count[chosen], minlength=count).astype(np.int64)
    decoded = np.bincount(group, blocks.decoded_bytes[chosen], minlength=count).astype(np.int64)
    outputs, _ = output_counts(rows, decoded, options)
    low, high = blocks.low[chosen], blocks.high[chosen]
    order = np.lexsort((high, low, group))
    before, after = order[:-1], order[1:]
    crossing = (group[before] == group[after]) & (high[before] > low[after])
    overlap = np.zeros(count, np.bool_)
    overlap[group[before][crossing]] = True
    open_ended = blocks.unknown[chosen] & (sizes[group] > 1)
    overlap[group[open_ended | blocks.unclustered[chosen]]] = True
    found: Mask = overlap | (outputs < sizes)
    return found


def split_in_key_order(
    blocks: Candidates, chosen: Integers, limits: Limits, most_groups: int
) -> tuple[list[Integers], Integers, str]:
    """Return `chosen` cut into groups of neighbours by key, what is left, and the limit that left it, or "".

    Blocks of unknown range come last. One that breaks the group's limit alone is left too, and the next ones are tried.
    """
    low = np.where(blocks.unknown[chosen], np.iinfo(np.int64).max, blocks.low[chosen])
    waiting = chosen[np.lexsort((blocks.high[chosen], low))]
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
