"""What else to ask for, where `levels` finds nothing to do in a table whose blocks overlap.

`info` counts closed intervals over the blocks of all levels; `levels` looks at one level at a time, and only above a
threshold. So both can be right at once: nothing to do, at a depth of 3. Whether another selection would part the blocks
is not guessed: it is planned too, and named with the depth that it expects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tblctl.selector.plan import Advice, Plan
from tblctl.selector.policies.full import Full, FullOptions
from tblctl.selector.policies.levels import Levels, LevelsOptions
from tblctl.selector.policy import Policy
from tblctl.selector.table_view import TableView


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A policy, its options, and the threshold that these name; None for none."""

    policy: Policy
    options: Any
    threshold: float | None


def needs_advice(plan: Plan) -> bool:
    """Tell whether a plan leaves blocks that overlap though no limit is in its way."""
    depth = plan.predicted.average_depth_before
    return plan.policy == Levels.name and not plan.groups and not plan.is_limited and (depth or 0) > 1


def other_selections(view: TableView, options: LevelsOptions) -> Iterator[Selection]:
    """Yield selections that take more than `levels` with `options`, the cheapest first."""
    if options.threshold_for(len(view)) > 1:
        yield Selection(policy=Levels(), options=replace(options, threshold=1.0, ratio=None), threshold=1.0)
    asked = {
        item.name: getattr(options, item.name)
        for item in fields(FullOptions)
        if getattr(options, item.name) != getattr(LevelsOptions(), item.name)
    }
    yield Selection(policy=Full(), options=FullOptions(**asked), threshold=None)


def advice_of(plan: Plan, other: Plan, selection: Selection) -> Advice | None:
    """Return the advice to take `selection` instead, which `other` is the plan of; None if it parts no blocks."""
    before, after = plan.predicted.average_depth_before, other.predicted.average_depth_after
    if not other.groups or before is None or after is None or after >= before:
        return None
    return Advice(policy=other.policy, threshold=selection.threshold, average_depth_after=after)


def advised(plan: Plan, found: Sequence[Advice]) -> Plan:
    """Return a plan that has nothing to do with what would have."""
    if not found:
        return plan
    would = " or ".join(
        f"`tblctl recluster LOC {item.arguments}` (to about {item.average_depth_after:.2f})" for item in found
    )
    note = (
        f"{plan.note}. All levels together are {plan.predicted.average_depth_before:.4f} deep on average, as info "
        f"counts (closed intervals): {would} would part blocks"
    )
    return replace(plan, note=note, advice=tuple(found))
