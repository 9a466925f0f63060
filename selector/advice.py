"""Advice for a table whose blocks overlap although `levels` finds nothing to do.

`info` counts closed intervals over the blocks of all levels. `levels` looks at one level at a time, and only above a
threshold. So both can be right: nothing to do at a depth of 3. Other selections are not guessed at: each is planned,
and named together with its predicted depth.
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
    """A policy, its options, and the threshold in these options, or None."""

    policy: Policy
    options: Any
    threshold: float | None


def needs_advice(plan: Plan) -> bool:
    """Return whether a plan leaves overlapping blocks although no limit stopped it."""
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
    """Return the advice to use `selection`, whose plan is `other`; None if that plan separates no blocks."""
    before, after = plan.predicted.average_depth_before, other.predicted.average_depth_after
    if not other.groups or before is None or after is None or after >= before:
        return None
    return Advice(policy=other.policy, threshold=selection.threshold, average_depth_after=after)


def advised(plan: Plan, found: Sequence[Advice]) -> Plan:
    """Return an empty plan with advice: the selections that would find work."""
    if not found:
        return plan
    would = " or ".join(
        f"`tblctl recluster LOC {item.arguments}` (to about {item.average_depth_after:.2f})" for item in found
    )
    note = (
        f"{plan.note}. All levels together are {plan.predicted.average_depth_before:.4f} deep on average, as info "
        f"counts (closed intervals): {would} would separate blocks"
    )
    return replace(plan, note=note, advice=tuple(found))
