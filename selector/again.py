"""The figures of a plan that was made before, for the table as it is now.

A plan may be old, or a file that somebody edited. So what its groups take and bring is counted again before they are
merged: budgets, cuts and the rates that later plans learn rest on no figure of a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.metrics.intervals import Integers
from tblctl.selector.draft import Draft
from tblctl.selector.plan import Group, Plan
from tblctl.selector.predict.forecast import forecast
from tblctl.selector.pricing.predict import bill_of, prices
from tblctl.selector.pricing.rates import Rates
from tblctl.selector.table_view import TableView
from tblctl.tableformat.model.cluster_key import Sort


def estimated_again(plan: Plan, view: TableView, rates: Rates) -> Plan:
    """Return a plan with the figures that its groups have in a view. Pure; O(n log n) for n blocks.

    Those of a group are of its blocks that are still there, as only these can be merged. A group without any, of a sort
    that ended, or of blocks of several partitions, has no price and no depth: it will not be merged. Groups stay what
    they are: their blocks, sorts and levels.
    """
    drafts = dict(_drafts(plan, view))
    found = forecast(view, list(drafts.values()))
    priced = prices(view, list(drafts.values()), rates, plan.options.budget)
    place = {number: index for index, number in enumerate(drafts)}

    def anew(group: Group) -> Group:
        at = place.get(group.number)
        if at is None:
            return replace(group, depth_before=None, depth_after=None, price=None)
        return replace(
            group,
            same_key_rows=found.group_same_key_rows[at],
            depth_before=found.group_depth_before[at],
            depth_after=found.group_depth_after[at],
            price=priced[at],
        )

    return replace(
        plan,
        groups=tuple(anew(group) for group in plan.groups),
        predicted=found.prediction,
        bill=bill_of(view, priced, found.prediction, rates),
    )


def _drafts(plan: Plan, view: TableView) -> Iterator[tuple[int, Draft]]:
    """Yield the number of each group that may be merged, and the group as a draft."""
    named = [path for group in plan.groups for path in group.blocks]
    if not len(view) or not named:
        return
    places: Integers = pc.index_in(pa.array(named, view.paths.type), view.paths).fill_null(-1).to_numpy()
    ends = np.cumsum([len(group.blocks) for group in plan.groups])
    sorts = {**{sort.id: sort for sort in plan.sorts}, **view.sorts}
    for group, chosen in zip(plan.groups, np.split(places, ends[:-1]), strict=True):
        blocks = chosen[chosen >= 0].astype(np.int64)
        sort: Sort | None = None if group.sort_id == view.sort_id else sorts.get(group.sort_id)
        has_sort = group.sort_id == view.sort_id or sort is not None
        if blocks.size and has_sort and (view.partition[blocks] == view.partition[blocks[0]]).all():
            yield (
                group.number,
                Draft(blocks=blocks, output_level=group.output_level, why=group.why, sort=sort),
            )
