"""Policy `levels`, the RFC's: merge the deepest ranges of the lowest level that is not well clustered.

A block's level is how often its rows were merged. Merging only blocks of one level, the lowest first, means that old
and large runs are not rewritten for every few new blocks (the LSM idea): a row is rewritten about once a level.

The rule is Databend 1.2.453's (seen by running it, and in its source), with two additions: all disjoint ranges of the
highest depth become groups, and a range whose merge would change nothing (draft.py) is passed over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from tblctl.metrics.intervals import (
    DepthCurve,
    rounded_mean,
    selection_depth_curve,
    selection_depths,
)
from tblctl.selector.assemble import assemble, left_out, rejection
from tblctl.selector.candidates import Candidates, Context, Integers, joined
from tblctl.selector.draft import (
    MOST_GROUPS,
    Draft,
    Limits,
    changes,
    next_level,
    selectable,
    split_in_key_order,
    worth_merging,
)
from tblctl.selector.options import DEFAULT_GROUP_BYTES
from tblctl.selector.plan import Plan, Rejection
from tblctl.selector.ranges import HotRanges, around_deepest, hot_ranges, members
from tblctl.tableformat.model.block import FULL_SHARE


@dataclass(kw_only=True)
class _Found:
    """What planning found so far; the one thing here that changes as it goes on."""

    drafts: list[Draft] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)


def plan_levels(context: Context) -> Plan:
    """Return the next round's groups. O(n log n) for n blocks, in numpy but for the groups.

    Unclustered blocks, if they are asked for, make a round of their own before all levels: they hide from every
    measure until they are merged.
    """
    include = context.options.include_unclustered is True
    found = _Found(rejected=left_out(context, include_unclustered=include))
    blocks = context.blocks
    chosen = selectable(context)
    unclustered = np.flatnonzero(chosen & blocks.unclustered)
    if include and unclustered.size:
        _take_unclustered(context, unclustered, found)
    if not found.drafts:
        known = _with_known_ranges(context)
        clustered = np.flatnonzero(chosen & ~blocks.unclustered)
        for level, level_blocks in _by_level(blocks, clustered):
            _take_level(known, level, level_blocks, found)
            if found.drafts:
                break
    return assemble(context, policy="levels", drafts=found.drafts, rejected=found.rejected)


def _with_known_ranges(context: Context) -> Context:
    """Return the context with every unknown range replaced by the whole of what is known: it may be anywhere there."""
    blocks = context.blocks
    unknown = blocks.unknown
    if not unknown.any():
        return context
    low, high = blocks.low.copy(), blocks.high.copy()
    low[unknown] = blocks.low[~unknown].min(initial=0)
    high[unknown] = blocks.high[~unknown].max(initial=0)
    return replace(context, blocks=replace(blocks, low=low, high=high))


def _by_level(blocks: Candidates, chosen: Integers) -> list[tuple[int, Integers]]:
    order = chosen[np.argsort(blocks.level[chosen], kind="stable")]
    levels, begins = np.unique(blocks.level[order], return_index=True)
    return list(zip(levels.tolist(), np.split(order, begins[1:]), strict=False))


def _take_unclustered(context: Context, chosen: Integers, found: _Found) -> None:
    blocks = context.blocks
    limits = Limits.of(context, group_bytes=DEFAULT_GROUP_BYTES)
    groups, rest, rule = split_in_key_order(blocks, chosen, limits, _most_groups(context))
    found.drafts += [
        Draft(
            blocks=group,
            output_level=next_level(blocks, group),
            why="not sorted by the current key: sorted in",
        )
        for group in groups
    ]
    if rule:
        found.rejected.append(_over_limit(context, rule, None, rest))


def _take_level(context: Context, level: int, chosen: Integers, found: _Found) -> None:
    """Add what is to be done at one level, or why there is nothing to do."""
    blocks, options = context.blocks, context.table_options
    if chosen.size < 2:  # noqa: PLR2004 - one block has nothing to merge with
        why = f"level {level} has one block only"
        found.rejected.append(rejection(context, "too_few_blocks", chosen, why, level=level))
        return
    rows, decoded = int(blocks.row_count[chosen].sum()), int(blocks.decoded_bytes[chosen].sum())
    if rows <= math.floor(FULL_SHARE * options.block_rows) and decoded < FULL_SHARE * options.block_bytes:
        _take_small(context, level, chosen, found)
        return
    low, high = blocks.low[chosen], blocks.high[chosen]
    average = rounded_mean(int(selection_depths(low, high).sum()), chosen.size)
    threshold = context.options.threshold_for(len(blocks))
    if average <= threshold:
        why = f"level {level} is well clustered: average selection depth {average:g}, threshold {threshold:g}"
        figures = {"average_selection_depth": average, "threshold": threshold}
        found.rejected.append(rejection(context, "well_clustered", chosen, why, level=level, **figures))
        return
    curve = selection_depth_curve(low, high)
    text = f"level {level}: average selection depth {average:g} is above the threshold {threshold:g}"
    _take_ranges(context, _Level(number=level, blocks=chosen, curve=curve, text=text), threshold, found)


def _take_small(context: Context, level: int, chosen: Integers, found: _Found) -> None:
    """Add a level that does not fill a block, whole: few rows to rewrite, and fewer blocks."""
    blocks = context.blocks
    limits = Limits.of(context, group_bytes=DEFAULT_GROUP_BYTES)
    groups, _, rule = split_in_key_order(blocks, chosen, limits, MOST_GROUPS)
    picked = next((group for group in groups if group.size > 1), chosen[:0])
    if picked.size:
        rows = int(blocks.row_count[chosen].sum())
        why = f"level {level} is small: {rows} rows in {chosen.size} blocks make one block"
        found.drafts.append(Draft(blocks=picked, output_level=level + 1, why=why))
    rest = np.setdiff1d(chosen, picked, assume_unique=True)
    if rest.size:
        ended = "max_group_bytes" if len(groups) > 1 else rule
        found.rejected.append(_over_limit(context, ended, level, rest))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Level:
    number: int
    blocks: Integers
    curve: DepthCurve
    text: str


def _take_ranges(context: Context, level: _Level, threshold: float, found: _Found) -> None:
    """Add the deepest hot ranges whose merge changes anything, as groups."""
    blocks, options = context.blocks, context.table_options
    low, high = blocks.low[level.blocks], blocks.high[level.blocks]
    unchanged: list[Integers] = []
    for depth, ranges in hot_ranges(level.curve, threshold).by_depth():
        inside, number = members(low, high, level.curve, ranges)
        inside = level.blocks[inside]
        useful = changes(blocks, inside, number, options)
        enough = np.bincount(number, minlength=useful.size) > 1
        futile = ~(useful & enough)[number]
        unchanged.append(inside[futile])
        inside, number = inside[~futile], number[~futile]
        if inside.size and _take_groups(context, level, (depth, ranges), (inside, number), found):
            break
    futile_blocks = np.unique(joined(unchanged))
    if futile_blocks.size:
        why = (
            f"level {level.number}: merging would only write the same again: blocks that share no more than one key "
            "with each other, or that no other of the level is left to merge with"
        )
        found.rejected.append(rejection(context, "no_gain", futile_blocks, why, level=level.number))


def _take_groups(
    context: Context,
    level: _Level,
    deepest: tuple[int, HotRanges],
    inside: tuple[Integers, Integers],
    found: _Found,
) -> bool:
    """Add every range as a group, as far as limits and budgets go; tell whether any was added."""
    blocks = context.blocks
    depth, ranges = deepest
    limits = Limits.of(context, group_bytes=DEFAULT_GROUP_BYTES)
    begins = np.flatnonzero(np.diff(inside[1], prepend=-1))
    numbers = inside[1][begins]
    left: dict[str, list[Integers]] = {}
    added = 0
    ends = np.append(begins[1:], inside[1].size)
    for number, begin, end in zip(numbers.tolist(), begins.tolist(), ends.tolist(), strict=True):
        if added == _most_groups(context) or min(limits.size_bytes, limits.blocks) <= 0:
            rule = "max_groups" if added == _most_groups(context) else _spent(limits)
            left.setdefault(rule, []).append(inside[0][begin:])
            break
        chosen = inside[0][begin:end]
        hot = (int(ranges.first[number]), int(ranges.last[number]))
        parts, others, rule = _fitting(context, level, hot, chosen, limits)
        if rule:
            left.setdefault(rule, []).append(others)
        room = _most_groups(context) - added
        if len(parts) > room:
            left.setdefault("max_groups", []).append(joined(parts[room:]))
        for part in parts[:room]:
            limits = limits.after(int(blocks.size_bytes[part].sum()), part.size)
            why = f"{level.text}; {part.size} blocks around a depth of {depth}"
            found.drafts.append(Draft(blocks=part, output_level=level.number + 1, why=why))
            added += 1
    found.rejected += [_over_limit(context, rule, level.number, joined(rest)) for rule, rest in left.items()]
    return added > 0


def _fitting(
    context: Context, level: _Level, hot: tuple[int, int], chosen: Integers, limits: Limits
) -> tuple[list[Integers], Integers, str]:
    """Return what to merge of a range, nothing if what fits would not change; what does not fit; the limit met."""
    blocks = context.blocks
    fits, rule = limits.fitting(blocks, chosen)
    if fits == chosen.size:
        picked, others, rule = chosen, chosen[:0], ""
    else:
        picked, others, rule = around_deepest(blocks, chosen, level.curve, hot, limits)
    parts = worth_merging(blocks, picked, context.table_options)
    return parts, others if parts else chosen, rule


def _spent(limits: Limits) -> str:
    return "max_bytes" if limits.size_bytes <= 0 else "max_blocks"


def _over_limit(context: Context, rule: str, level: int | None, blocks: Integers) -> Rejection:
    where = "blocks that are not sorted by the key" if level is None else f"level {level}"
    why = f"{where}: left for later by {rule}"
    return rejection(context, rule, blocks, why, level=level)


def _most_groups(context: Context) -> int:
    limit = context.options.max_groups
    return MOST_GROUPS if limit is None else min(limit, MOST_GROUPS)
