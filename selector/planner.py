"""Turn a policy's decision into a plan: what fits the budget, the predicted figures, and why the rest is left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from tblctl.metrics.intervals import Integers
from tblctl.metrics.partitions import TABLE
from tblctl.selector.advice import advice_of, advised, needs_advice
from tblctl.selector.box_test import NOT_LOOKED_AT, Unfinished, worth_reading
from tblctl.selector.budget import TYPICAL, Budget
from tblctl.selector.checks import checked
from tblctl.selector.draft import Draft, sort_id_of
from tblctl.selector.plan import Group, Plan, PlanOptions, Rejection
from tblctl.selector.policy import Alternative, Decision, Policy, Rates, Rng, State, Workload, lowers_depth
from tblctl.selector.predict.forecast import Forecast
from tblctl.selector.pricing.cut import SPENT, fitting
from tblctl.selector.pricing.predict import bill_of
from tblctl.selector.pricing.price import Price
from tblctl.selector.pricing.rates import DEFAULT_RATES
from tblctl.selector.pricing.rates import Rates as MergeRates
from tblctl.selector.rejections import rejection
from tblctl.selector.table_view import TableView, joined
from tblctl.selector.target_depth import enough, spare, why_spared
from tblctl.tableformat.model.cluster_key import Sort


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan, and what its policy wants to be handed at the next one, once this one was carried out.

    Attributes:
        state: that of the plan before, where the budget left nothing of what the policy chose.
    """

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
    with_advice: bool = True,
) -> Planned:
    """Return the plan of a policy's decision, cut to the budget. Pure; O(n log n) for n blocks, besides the policy.

    Where there is nothing to do in a table whose blocks overlap, the alternatives that the policy names are planned
    too, for advice.

    Args:
        view: the table.
        policy: decides what to merge.
        options: an instance of the policy's `options`.
        budget: how much the plan may rewrite.
        memory_bytes: most memory of one merge task; the plan carries it to the merge.
        workload: recent queries; see `Policy.decide`.
        state: from the plan before.
        rates: what reading and rewriting take; None for the stated defaults.
        now: seconds since 1970-01-01 UTC.
        rng: the policy's source of chance.
        with_advice: False where nobody reads it.

    Raises:
        InvalidOptionError: the policy broke the rules of a `Decision`.
    """
    planned = partial(
        _planned,
        view,
        budget=budget,
        memory_bytes=memory_bytes,
        asked={"workload": workload, "rates": rates or DEFAULT_RATES, "now": now, "rng": rng},
    )
    found, alternatives = planned(policy, options, state=state)
    if not (with_advice and needs_advice(found.plan)):
        return found
    others = [
        advice_of(found.plan, planned(other.policy, other.options, state=None)[0].plan, other)
        for other in alternatives
    ]
    return replace(found, plan=advised(found.plan, [item for item in others if item]))


def _planned(
    view: TableView,
    policy: Policy,
    options: Any,
    *,
    budget: Budget,
    memory_bytes: int,
    asked: Mapping[str, Any],
    state: State,
) -> tuple[Planned, tuple[Alternative, ...]]:
    remembered = state.policy if isinstance(state, Unfinished) else state

    def decide(seen: TableView) -> Decision:
        return checked(seen, policy, policy.decide(seen, budget, options, state=remembered, **asked))

    with_boxes = view.boxes_of is not None and lowers_depth(policy)
    decision = worth_reading(view, decide, state) if with_boxes else decide(view)
    rates: MergeRates = asked["rates"]
    found = fitting(view, decision.drafts, budget, rates)
    drafts = found.drafts
    rejected = [
        *decision.rejections,
        *(rejection(view, rule, blocks, f"left for later by {rule}") for rule, blocks in found.left.items()),
    ]
    needed, predicted = enough(view, drafts, budget.target_depth)
    rejected += _not_needed(view, drafts, needed, predicted, budget)
    drafts, priced = list(needed), found.priced[: len(needed)]
    chosen = PlanOptions(policy=asdict(options), budget=budget, memory_bytes=memory_bytes)
    made = Plan(
        table_id=view.table_id,
        snapshot=view.snapshot,
        policy=policy.name,
        groups=tuple(_groups(view, drafts, predicted, priced)),
        rejected=tuple(rejected),
        predicted=predicted.prediction,
        note=_note(view, drafts, rejected, chosen, found.least),
        options=chosen,
        sorts=_new_sorts(view, drafts),
        bill=bill_of(view, priced, predicted.prediction, rates),
    )
    carried_out = drafts or not decision.drafts
    return Planned(plan=made, state=decision.state if carried_out else state), decision.alternatives


def _not_needed(
    view: TableView, drafts: Sequence[Draft], needed: Sequence[Draft], predicted: Forecast, budget: Budget
) -> list[Rejection]:
    if budget.target_depth is None or len(needed) == len(drafts):
        return []
    why = why_spared(predicted.prediction, budget.target_depth, some_needed=bool(needed))
    return [rejection(view, "target_reached", spare(drafts, needed), why)]


def _new_sorts(view: TableView, drafts: Sequence[Draft]) -> tuple[Sort, ...]:
    """Return the sorts of drafts that are new to the table, in the order of their ids."""
    named = {draft.sort.id: draft.sort for draft in drafts if draft.sort}
    return tuple(named[number] for number in sorted(named) if number not in view.sorts)


def _groups(
    view: TableView, drafts: Sequence[Draft], predicted: Forecast, priced: Sequence[Price]
) -> list[Group]:
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
                price=priced[number],
            )
        )
        start += chosen.size
    return groups


def _partition(view: TableView, chosen: Integers) -> Any:
    number = int(view.partition[chosen[0]])
    if view.partition_values is not None:
        return view.partition_values[number]
    return number if view.is_partitioned else None


def _how_far(
    view: TableView, rejected: Sequence[Rejection], options: PlanOptions, least: Mapping[str, Price]
) -> str:
    """Return which limits to raise, and, where that is known, to what: what two blocks or the cheapest group take."""
    found = []
    for rule, limit in options.limits.items():
        if any(item.rule == rule for item in rejected):
            two, text = TYPICAL[rule](view) if rule in TYPICAL else (0, "")
            more = f": {text}" if two > limit else ""
            if rule in least:
                more = f", to {_rounded_up(SPENT[rule](least[rule]))}: the cheapest group is expected to take that"
            found.append(f"Raise {rule}, now {limit}{more}")
    return "; ".join(found)


def _rounded_up(value: float) -> str:
    """Return a number of two digits that is not below `value`, as text."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / unit * (1 - 1e-9)) * unit:.2g}"


def _count(blocks: int) -> str:
    return f"{blocks} block" + ("" if blocks == 1 else "s")


def _note(
    view: TableView,
    drafts: Sequence[Draft],
    rejected: Sequence[Rejection],
    options: PlanOptions,
    least: Mapping[str, Price],
) -> str:
    """Return one sentence: what is to be done, or why there is nothing to do."""
    if drafts:
        chosen = joined(draft.blocks for draft in drafts)
        groups = f"{len(drafts)} group" + ("s" if len(drafts) > 1 else "")
        return f"{groups} of {chosen.size} blocks, {int(view.size_bytes[chosen].sum())} bytes"
    if not len(view):
        has = (
            "the table has no blocks" if view.figures_of == TABLE else "the condition excludes all partitions"
        )
        return f"nothing to do: {has}"
    reasons = "; ".join(
        item.why if item.level is not None else f"{_count(item.blocks)}: {item.why}" for item in rejected
    )
    reasons = reasons or f"{_count(len(view))}, and the policy selects none"
    measured = any(item.rule == "well_clustered" for item in rejected)
    if any(item.rule in options.limits for item in rejected):
        return f"nothing to do within the limits: {reasons}. {_how_far(view, rejected, options, least)}"
    hint = (
        " (selection depth: blocks that share one key at their ends only do not overlap)" if measured else ""
    )
    is_part = any(item.rule == NOT_LOOKED_AT for item in rejected)
    return f"{'nothing to do so far' if is_part else 'nothing to do'}: {reasons}{hint}"
