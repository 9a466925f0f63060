"""How large the next round of a run may be, given how the last one ended: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tblctl.maintain.request import Request
from tblctl.merger.round.group_run import CONFLICTED, LEFT, GroupOutcome

_NOTHING_BLOCKS = 1
"""The least that a budget can be given: no group fits into it."""


def paced(request: Request, most_groups: int | None, most_blocks: int | None) -> Request:
    """Return the request for a round of at most so many groups and blocks; None for what it asks itself."""
    budget = request.options.budget
    if most_groups is not None:
        budget = replace(budget, max_groups=min(most_groups, budget.max_groups or most_groups))
    if most_blocks is not None:
        budget = replace(budget, max_blocks=most_blocks)
    return replace(request, options=replace(request.options, budget=budget))


def next_most_groups(
    most_groups: int | None, groups: Sequence[GroupOutcome], *, put_back: int = 0
) -> int | None:
    """Return how many groups the next round may have: half as many after conflicts, else one more (as TCP's window).

    The fewer groups a round has, the less time passes from the plan to their commit, in which they can lose a block.
    If all conflicted, twice as many: a writer that is always in the deepest range must not keep the others waiting.
    Groups that were put back count as conflicts: they lost blocks as well.
    """
    conflicted = sum(group.status == CONFLICTED for group in groups) + put_back
    count = len(groups) + put_back
    if 0 < conflicted < count:
        return max(1, count // 2)
    if most_groups is None or count < most_groups:
        return None
    return 2 * most_groups if conflicted else most_groups + 1


def blocks_left(most_blocks: int, groups: Iterable[GroupOutcome]) -> int:
    """Return how many blocks are left of those that a round could have, after some of its groups began."""
    began = sum(group.blocks_in for group in groups if group.status != LEFT)
    return max(most_blocks - began, _NOTHING_BLOCKS)
