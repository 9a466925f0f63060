"""What else to ask for, where a policy finds nothing to do in a table whose blocks overlap.

`info` counts closed intervals over the blocks of all levels; `levels` looks at one level at a time, and only above a
threshold. So both can be right at once: nothing to do, at a depth of 3. Whether an alternative would part the blocks is
not guessed: it is planned too, and named with the depth that it expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tblctl.selector.plan import Advice, Plan
from tblctl.selector.policy import Alternative


def needs_advice(plan: Plan) -> bool:
    """Return whether a plan leaves blocks that overlap though no limit is in its way, and no target is reached."""
    is_enough = plan.is_limited or any(item.rule == "target_reached" for item in plan.rejected)
    return not plan.groups and not is_enough and (plan.predicted.average_depth_before or 0) > 1


def advice_of(plan: Plan, other: Plan, alternative: Alternative) -> Advice | None:
    """Return the advice to take `alternative` instead, which `other` is the plan of; None if it parts no blocks."""
    before, after = plan.predicted.average_depth_before, other.predicted.average_depth_after
    if not other.groups or before is None or after is None or after >= before:
        return None
    return Advice(policy=other.policy, threshold=alternative.threshold, average_depth_after=after)


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
