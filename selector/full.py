"""Policy `full`: all that overlaps, in one sort. The baseline: the best clustering for the most work."""

from __future__ import annotations

import numpy as np

from tblctl.selector.assemble import assemble, left_out, rejection
from tblctl.selector.blocks import Candidates, Context, Integers, joined
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
    Limits that do not hold everything cut it into neighbours by key first; the overlap between these stays.
    """
    blocks, options = context.blocks, context.options
    include = options.include_unclustered is not False
    chosen = np.flatnonzero(selectable(context) & (include | ~blocks.unclustered))
    most_groups = MOST_GROUPS if options.max_groups is None else min(options.max_groups, MOST_GROUPS)
    groups, rest, rule = split_in_key_order(blocks, chosen, Limits.of(context, group_bytes=None), MOST_GROUPS)
    left = {rule: [rest]} if rest.size else {}
    alone = "max_group_bytes" if len(groups) > 1 else rule or "no_gain"
    drafts: list[Draft] = []
    for group in groups:
        room = most_groups - len(drafts)
        parts = worth_sorting(blocks, group, context.table_options, most=room + 1)
        drafts += [_draft(blocks, part, group) for part in parts[:room]]
        others = np.setdiff1d(group, joined(parts[:room]), assume_unique=True)
        if len(parts) > room:
            left.setdefault("max_groups", []).append(others)
        elif others.size:
            left.setdefault(alone if group.size == 1 else "no_gain", []).append(others)
    rejected = left_out(context, include_unclustered=include)
    rejected += [
        rejection(context, rule, joined(parts), _NO_GAIN if rule == "no_gain" else f"left out by {rule}")
        for rule, parts in left.items()
    ]
    return assemble(context, policy="full", drafts=drafts, rejected=rejected)


_NO_GAIN = "merging would only write the same again: these blocks are in order already"


def _draft(blocks: Candidates, part: Integers, group: Integers) -> Draft:
    whole = part.size == group.size
    why = (
        f"all of {part.size} blocks in one sort"
        if whole
        else f"{part.size} neighbours that overlap, or fit into one block"
    )
    return Draft(blocks=part, output_level=next_level(blocks, part), why=why)
