"""Policy `sort-one`: each block that is not in the order of the key is sorted alone. Hudi's single-file sort.

It trades the depth of the table, which stays as it was, against what one rewrite costs: no block waits for another, a
group fails or conflicts alone, and every block can be merged in a stream afterwards. The rule comes from Apache Hudi
(`SparkSingleFileSortPlanStrategy`). There, each run sorts all files that match its filter; here, only those that are
not known to be in order.

Termination: every group takes a block in the order of no live sort, and writes blocks in that of the current one. So
the number of blocks in no order falls with every group, and never below 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tblctl.selector.budget import Budget
from tblctl.selector.draft import MOST_GROUPS, Draft, next_level
from tblctl.selector.option_fields import require_valid
from tblctl.selector.policy import Decision, State
from tblctl.selector.rejections import left_out, rejection
from tblctl.selector.table_view import TableView
from tblctl.tableformat.model.cluster_key import NO_SORT


@dataclass(frozen=True, kw_only=True)
class SortOneOptions:
    """`sort-one` has no options of its own."""

    def __post_init__(self) -> None:
        require_valid(self)


class SortOne:
    """A group for each block that is in no known order, in the order in which the table lists them. O(n)."""

    name = "sort-one"
    options = SortOneOptions
    summary = "sorts each block alone that is not in the order of the key"

    def decide(
        self,
        view: TableView,
        budget: Budget,
        options: SortOneOptions,
        *,
        state: State = None,
        **_: object,
    ) -> Decision:
        """Return a group for each block that is in the order of no live sort."""
        del budget, options
        allowed = view.selectable & ~view.in_other_sort
        chosen = np.flatnonzero(allowed & (view.sort_ids == NO_SORT))
        sorted_ones = allowed & (view.sort_ids != NO_SORT)
        drafts = tuple(
            Draft(
                blocks=chosen[place : place + 1],
                output_level=next_level(view, chosen[place : place + 1]),
                why="in no known order: sorted alone",
            )
            for place in range(min(chosen.size, MOST_GROUPS))
        )
        reasons = (
            ("max_groups", chosen[MOST_GROUPS:], f"left for later: a plan has at most {MOST_GROUPS} groups"),
            ("sorted", np.flatnonzero(sorted_ones), "in the order of the key already"),
        )
        found = [rejection(view, rule, blocks, why) for rule, blocks, why in reasons if blocks.size]
        return Decision(
            drafts=drafts, rejections=(*left_out(view, include_unclustered=True), *found), state=state
        )
