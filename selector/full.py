"""Policy `full`: everything, in one sort. The baseline: the best clustering for the most work."""

from __future__ import annotations

import numpy as np

from tblctl.selector.assemble import assemble, left_out, rejection
from tblctl.selector.blocks import Context
from tblctl.selector.draft import (
    MOST_GROUPS,
    Draft,
    Limits,
    changes,
    next_level,
    selectable,
    split_in_key_order,
)
from tblctl.selector.plan import Plan


def plan_full(context: Context) -> Plan:
    """Return one group of all blocks, or none where they are one sorted run already. O(n log n) for n blocks.

    Unclustered blocks are part of everything, unless the options say otherwise. Blocks of one key that are full stay.
    Limits that do not hold everything cut the group into neighbours by key; the overlap between these stays.
    """
    blocks, options = context.blocks, context.options
    include = options.include_unclustered is not False
    rejected = left_out(context, include_unclustered=include)
    chosen = np.flatnonzero(selectable(context) & (include | ~blocks.unclustered))
    most_groups = MOST_GROUPS if options.max_groups is None else min(options.max_groups, MOST_GROUPS)
    groups, rest, rule = split_in_key_order(blocks, chosen, Limits.of(context, group_bytes=None), most_groups)
    if rest.size:
        rejected.append(rejection(context, rule, rest, f"left out by {rule}"))
    drafts = []
    for group in groups:
        one = np.zeros(group.size, np.int64)
        if changes(blocks, group, one, context.table_options)[0]:
            why = f"all of {group.size} blocks in one sort"
            drafts.append(Draft(blocks=group, output_level=next_level(blocks, group), why=why))
        else:
            why = "merging would only write the same again: these blocks are one sorted run"
            rejected.append(rejection(context, "no_gain", group, why))
    return assemble(context, policy="full", drafts=drafts, rejected=rejected)
