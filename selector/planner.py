"""From a policy's decision to a plan: what the budget holds of it, what to expect of it, and why nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from tblctl.metrics.intervals import Integers
from tblctl.selector.advice import advice_of, advised, needs_advice, other_selections
from tblctl.selector.budget import Budget, affordable
from tblctl.selector.draft import Draft, sort_id_of
from tblctl.selector.plan import LIMITS, Group, Plan, PlanOptions, Rejection
from tblctl.selector.policy import Policy, Rates, Rng, State, Workload
from tblctl.selector.predict.forecast import Forecast, forecast
from tblctl.selector.rejections import rejection
from tblctl.selector.table_view import TableView, joined
from tblctl.tableformat.model.cluster_key import Sort


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan, and what its policy wants to be handed at the next one."""

    plan: Plan
    state: State


def plan(
    view: TableView,
    policy: Policy,
    options: Any,
    budget: Budget,
    *,
    memory_bytes: int,
    workload: Workload = None,
    state: State = None,
    rates: Rates = None,
    now: float,
    rng: Rng,
) -> Planned:
    """Return the plan of what `policy` decides, cut to the budget. Pure; O(n log n) for n blocks beside the policy.

    Where `levels` has nothing to do in a table whose blocks overlap, two more plans are made, for advice.

    Args:
        view: the table.
        policy: decides what to merge.
        options: one of the policy's own `options`.
        budget: what the plan may rewrite.
        memory_bytes: most memory of one merge task; the plan carries it to the merge.
        workload: what was asked of the table lately; see `Policy.decide`.
        state: that of the plan before.
        rates: what reading and rewriting cost.
        now: seconds since 1970-01-01 UTC.
        rng: the policy's source of chance.

    Raises:
        ValueError: the policy broke the rules of a `Decision`.
    """
    planned = partial(
        _planned,
        view,
        budget=budget,
        memory_bytes=memory_bytes,
        asked={"workload": workload, "rates": rates, "now": now, "rng": rng},
    )
    found = planned(policy, options, state=state)
    if not needs_advice(found.plan):
        return found
    others = [
        advice_of(found.plan, planned(other.policy, other.options, state=None).plan, other)
        for other in other_selections(view, options)
    ]
    return Planned(plan=advised(found.plan, [item for item in others if item]), state=found.state)


def _planned(
    view: TableView,
    policy: Policy,
    options: Any,
    *,
    budget: Budget,
    memory_bytes: int,
    asked: Mapping[str, Any],
    state: State,
) -> Planned:
    decision = policy.decide(view, budget, options, state=state, **asked)
    _check(view, policy, decision.drafts)
    drafts, left = affordable(view, decision.drafts, budget)
    rejected = [
        *decision.rejections,
        *(rejection(view, rule, blocks, f"left for later by {rule}") for rule, blocks in left.items()),
    ]
    predicted = forecast(view, drafts)
    chosen = PlanOptions(policy=asdict(options), budget=budget, memory_bytes=memory_bytes)
    made = Plan(
        table_id=view.table_id,
        snapshot=view.snapshot,
        policy=policy.name,
        groups=tuple(_groups(view, drafts, predicted)),
        rejected=tuple(rejected),
        predicted=predicted.prediction,
        note=_note(view, drafts, rejected, chosen),
        options=chosen,
        sorts=_new_sorts(view, drafts),
    )
    return Planned(plan=made, state=decision.state)


def _new_sorts(view: TableView, drafts: Sequence[Draft]) -> tuple[Sort, ...]:
    """Return the sorts of drafts that the table has not, in the order of their ids."""
    named = {draft.sort.id: draft.sort for draft in drafts if draft.sort}
    return tuple(named[number] for number in sorted(named) if number not in view.sorts)


def _check(view: TableView, policy: Policy, drafts: Sequence[Draft]) -> None:
    """Do nothing if the drafts are what a `Decision` may hold.

    Raises:
        ValueError: one is empty, has a block that may not be selected or crosses partitions, or two share a block.
    """
    chosen = joined(draft.blocks for draft in drafts)
    problem = ""
    if not all(draft.blocks.size for draft in drafts):
        problem = "a group has no blocks"
    elif not _are_selectable(view, drafts):
        problem = "a block is selected that may not be"
    elif chosen.size and np.bincount(chosen).max() > 1:
        problem = "a block is selected twice"
    elif any(draft.sort and view.sorts.get(draft.sort.id, draft.sort) != draft.sort for draft in drafts):
        problem = "a sort has the id of another one"
    elif view.is_partitioned and any(np.ptp(view.partition[draft.blocks]) for draft in drafts):
        problem = "a group crosses partitions"
    if problem:
        raise ValueError(f"policy {policy.name}: {problem}")


def _are_selectable(view: TableView, drafts: Sequence[Draft]) -> bool:
    """Tell whether all blocks of drafts may be given the sorts that they are to get."""
    wanted: dict[int, list[Integers]] = {}
    for draft in drafts:
        wanted.setdefault(sort_id_of(view, draft), []).append(draft.blocks)
    return all(view.selectable_for(sort_id)[joined(blocks)].all() for sort_id, blocks in wanted.items())


def _groups(view: TableView, drafts: Sequence[Draft], predicted: Forecast) -> list[Group]:
    names = view.names(joined(draft.blocks for draft in drafts))
    groups, start = [], 0
    for number, draft in enumerate(drafts):
        chosen = draft.blocks
        groups.append(
            Group(
                number=number,
                blocks=tuple(names[start : start + chosen.size]),
                sort_id=sort_id_of(view, draft),
                output_level=draft.output_level,
                why=draft.why,
                rows=int(view.row_count[chosen].sum()),
                size_bytes=int(view.size_bytes[chosen].sum()),
                decoded_bytes=int(view.decoded_bytes[chosen].sum()),
                same_key_rows=predicted.group_same_key_rows[number],
                depth_before=predicted.group_depth_before[number],
                depth_after=predicted.group_depth_after[number],
                partition=_partition(view, chosen),
            )
        )
        start += chosen.size
    return groups


def _partition(view: TableView, chosen: Integers) -> Any:
    number = int(view.partition[chosen[0]])
    if view.partition_values is not None:
        return view.partition_values[number]
    return number if view.is_partitioned else None


def _how_far(view: TableView, rejected: Sequence[Rejection], options: PlanOptions) -> str:
    """Return which limits to raise, and, where that says enough, to what: two blocks of average size."""
    limits = {**options.policy, **asdict(options.budget)}
    typical = {
        "max_group_bytes": (view.decoded_bytes, "two blocks of average size take {} bytes of memory"),
        "max_bytes": (view.size_bytes, "two blocks of average size are {} bytes of files"),
        "max_blocks": (np.ones(1), "a group is {} blocks at least"),
    }
    found = []
    for rule in LIMITS:
        if limits.get(rule) is not None and any(item.rule == rule for item in rejected):
            sizes, text = typical[rule]
            two = round(2 * float(sizes.mean()))
            more = f": {text.format(two)}" if two > limits[rule] else ""
            found.append(f"Raise {rule}, now {limits[rule]}{more}")
    return "; ".join(found)


def _note(
    view: TableView, drafts: Sequence[Draft], rejected: Sequence[Rejection], options: PlanOptions
) -> str:
    """Return one sentence: what is to be done, or why nothing is."""
    if drafts:
        chosen = joined(draft.blocks for draft in drafts)
        groups = f"{len(drafts)} group" + ("s" if len(drafts) > 1 else "")
        return f"{groups} of {chosen.size} blocks, {int(view.size_bytes[chosen].sum())} bytes"
    if not len(view):
        return "nothing to do: the table has no blocks"
    reasons = "; ".join(
        item.why if item.level is not None else f"{item.blocks} blocks: {item.why}" for item in rejected
    )
    reasons = reasons or f"{len(view)} blocks, and the policy selects none"
    measured = any(item.rule == "well_clustered" for item in rejected)
    if any(item.rule in LIMITS for item in rejected):
        return f"nothing to do within the limits: {reasons}. {_how_far(view, rejected, options)}"
    hint = (
        " (selection depth: blocks that share one key at their ends only do not overlap)" if measured else ""
    )
    return f"nothing to do: {reasons}{hint}"
