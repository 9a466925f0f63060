"""What else to ask for, where a policy finds nothing to do in a table whose blocks overlap.

`info` counts closed intervals over the blocks of all levels; `levels` looks at one level at a time, and only above a
threshold. So both can be right at once: nothing to do, at a depth of 3. Whether another selection would part the blocks
is not guessed: it is planned too, and named with the depth that it expects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tblctl.selector.candidates import Context
from tblctl.selector.plan import Advice, Plan
from tblctl.selector.registry import POLICIES


def advised(context: Context, plan: Plan) -> Plan:
    """Return `plan`; if it has nothing to do, with what would have. The cost is that of two more plans."""
    before = plan.predicted.average_depth_before
    if plan.groups or plan.is_limited or before is None or before <= 1:
        return plan
    found = []
    for policy, threshold in _others(context, plan):
        options = replace(context.options, threshold=threshold, ratio=None)
        other = POLICIES[policy](replace(context, options=options))
        after = other.predicted.average_depth_after
        if other.groups and after is not None and after.expected < before:
            found.append(Advice(policy=policy, threshold=threshold, average_depth_after=after.expected))
    if not found:
        return plan
    would = " or ".join(
        f"`tblctl recluster LOC {item.arguments}` (to about {item.average_depth_after:.2f})" for item in found
    )
    note = (
        f"{plan.note}. All levels together are {before:.4f} deep on average, as info counts (closed intervals): "
        f"{would} would part blocks"
    )
    return replace(plan, note=note, advice=tuple(found))


def _others(context: Context, plan: Plan) -> Iterator[tuple[str, float | None]]:
    """Yield policy and threshold of selections that take more than the plan's, the cheapest first."""
    if plan.policy != "levels":
        return
    if context.options.threshold_for(len(context.blocks)) > 1:
        yield "levels", 1.0
    yield "full", None
