"""Policy `full`: all that overlaps, in one sort. The baseline: the best clustering for the most work."""

from __future__ import annotations

import numpy as np

from tblctl.selector.assemble import assemble, left_out, rejection
from tblctl.selector.candidates import Candidates, Context, Integers, joined
from tblctl.selector.draft import (
    MOST_GROUPS,
    Draft,
    Limits,
    next_level,
    selectable,
    split_in_key_order,
)
from tblctl.selector.passing import worth_sorting
from tblctl.selector.plan import Plan


def plan_full(context: Context) -> Plan:
    """Return one group of all blocks that overlap or are small. O(n log n) for n blocks.

    Full blocks that overlap nothing pass through unwritten; what is left between them is a group each (`passing.py`).
    Where all are one sorted run already, only neighbours that fit into one block are merged, each such block a group.
    Unclustered blocks are part of everything, unless the options say otherwise. Blocks of one key that are full stay.
    A group that limits do not hold is cut into neighbours by key; the overlap between these is left for another plan.
    """
    blocks, options = context.blocks, context.options
    include = options.include_unclustered is not False
    chosen = np.flatnonzero(selectable(context) & (include | ~blocks.unclustered))
    most_groups = MOST_GROUPS if options.max_groups is None else min(options.max_groups, MOST_GROUPS)
    in_order = joined(split_in_key_order(blocks, chosen, Limits(), 1)[0])
    parts = worth_sorting(blocks, in_order, context.table_options, most=MOST_GROUPS + 1)
    limits = Limits.of(context, group_bytes=None)
    drafts: list[Draft] = []
    left = {"no_gain": [np.setdiff1d(in_order, joined(parts), assume_unique=True)]}
    for part in parts:
        groups, rules = _within(context, part, limits, most_groups - len(drafts))
        drafts += [_draft(blocks, group, in_order) for group in groups]
        taken = joined(groups)
        limits = limits.after(int(blocks.size_bytes[taken].sum()), taken.size)
        for rule, rest in rules.items():
            left.setdefault(rule, []).append(rest)
    rejected = left_out(context, include_unclustered=include)
    rejected += [
        rejection(context, rule, joined(some), _NO_GAIN if rule == "no_gain" else f"left out by {rule}")
        for rule, some in left.items()
        if joined(some).size
    ]
    return assemble(context, policy="full", drafts=drafts, rejected=rejected)


def _within(
    context: Context, part: Integers, limits: Limits, most_groups: int
) -> tuple[list[Integers], dict[str, Integers]]:
    """Return what to merge of a part, at most so many groups within the limits; and what is left, by the limit."""
    blocks = context.blocks
    if most_groups and not limits.fitting(blocks, part)[1]:
        return [part], {}
    groups, rest, rule = split_in_key_order(blocks, part, limits, most_groups)
    worth: list[Integers] = []
    for group in groups:
        worth += worth_sorting(blocks, group, context.table_options, most=most_groups - len(worth) + 1)
        if len(worth) > most_groups:
            rule, worth = rule or "max_groups", worth[:most_groups]
            break
    idle = np.setdiff1d(joined(groups), joined(worth), assume_unique=True)
    return worth, {rule or "max_group_bytes": joined((idle, rest))}


_NO_GAIN = "merging would only write the same again: these blocks are in order already"


def _draft(blocks: Candidates, part: Integers, group: Integers) -> Draft:
    whole = part.size == group.size
    why = (
        f"all of {part.size} blocks in one sort"
        if whole
        else f"{part.size} neighbours that overlap, or fit into one block"
    )
    return Draft(blocks=part, output_level=next_level(blocks, part), why=why)
