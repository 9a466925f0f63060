"""Policies are pure objects that programs may add; they get all arguments, and their decisions are checked."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.selector.budget import Budget, Room
from tblctl.selector.draft import Draft, next_level
from tblctl.selector.option_fields import option, options_of
from tblctl.selector.options import SelectOptions, parts
from tblctl.selector.plan import Plan
from tblctl.selector.planner import plan
from tblctl.selector.policies.full import Full, FullOptions
from tblctl.selector.policies.levels import Levels, LevelsOptions
from tblctl.selector.policy import Alternative, Decision
from tblctl.selector.pricing.rates import Rates
from tblctl.selector.registry import policy_named, register, registered, unregister
from tblctl.selector.rejections import rejection
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.cluster_key import Sort, Term

from .tables import SimTable
from .test_final import block_lists, options, policies, table_from

OWN = tuple(policy.name for policy in registered())

NEW_SORT = Sort(id=5, terms=(Term(column_id=1),))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairsOptions:
    span: int = option(default=2, unit="blocks", help="Blocks of a group.", least=2)
    reach: float = option(default=0.5, unit="share", help="Not looked at.", least=0, most=1)
    spill_bytes: int | None = option(default=None, unit="bytes", help="Not looked at.")


class Pairs:
    """Takes blocks in the order of their numbers, counts its plans, and keeps what it was handed."""

    name = "pairs"
    summary = "takes the first blocks"
    options = PairsOptions

    def __init__(self):
        self.handed = None

    def decide(self, view, budget, options, *, workload, state, rates, now, rng):
        self.handed = (view, budget, options, workload, state, rates, now, rng())
        chosen = np.flatnonzero(view.selectable)[: options.span]
        drafts = (
            Draft(
                blocks=chosen,
                output_level=1,
                why="the first ones",
                sort=NEW_SORT,
            ),
        )
        return Decision(drafts=drafts if chosen.size else (), state=(state or 0) + 1)


@pytest.fixture
def pairs():
    policy = Pairs()
    register(policy)
    yield policy
    unregister("pairs")


def some_table():
    return SimTable(block_rows=4).append([1, 5], [2, 6], [3, 7], [4, 8])


def test_a_policy_is_found_by_its_name_once_it_is_registered(pairs):
    assert policy_named("pairs") is pairs
    assert [policy.name for policy in registered()] == [*OWN, "pairs"]
    plan = some_table().plan("pairs", span=3)
    assert [len(group.blocks) for group in plan.groups] == [3]
    assert (plan.policy, plan.groups[0].sort_id, plan.sorts) == ("pairs", 5, (NEW_SORT,))
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.options.policy == {"span": 3, "reach": 0.5, "spill_bytes": None}


def test_an_unknown_policy_is_refused_with_the_nearest_name():
    with pytest.raises(InvalidOptionError, match="did you mean levels"):
        policy_named("level")
    with pytest.raises(InvalidOptionError, match="policies are levels, full, runs"):
        policy_named("zzz")


def test_two_policies_of_one_name_are_refused(pairs):
    register(pairs)
    with pytest.raises(InvalidOptionError, match="there is a policy 'pairs' already"):
        register(Pairs())
    with pytest.raises(InvalidOptionError, match="there is a policy 'levels' already"):
        register(Levels())
    assert policy_named("pairs") is pairs


def test_the_policies_of_tblctl_stay():
    with pytest.raises(InvalidOptionError, match="cannot be removed"):
        unregister("full")


RATES = Rates(seconds_per_group=3.0)


def test_workload_state_and_rates_are_handed_through_and_the_state_comes_back(pairs):
    planned = some_table().planned(
        pairs,
        options={"span": 3, "max_groups": 2},
        workload="queries",
        state=41,
        rates=RATES,
        now=7.5,
        rng=lambda: 0.25,
    )
    view, budget, asked, *rest = pairs.handed
    assert len(view) == 4
    assert budget == Budget(max_groups=2)
    assert asked == PairsOptions(span=3)
    assert rest == ["queries", 41, RATES, 7.5, 0.25]
    assert planned.state == 42


@pytest.mark.parametrize("policy", [Levels(), Full()])
def test_policies_without_a_memory_return_the_state_that_they_were_handed(policy):
    assert some_table().planned(policy, state="kept").state == "kept"
    assert SimTable(block_rows=4).append([1, 2]).planned(policy, state="kept").state == "kept"


@settings(max_examples=cases(70), deadline=None)
@given(block_lists, options, policies, st.booleans())
def test_a_policy_decides_the_same_twice_and_changes_nothing(blocks, chosen_options, policy, partitioned):
    table = table_from(*blocks)
    if partitioned:
        table.blocks = [
            dataclasses.replace(block, partition=number % 3) for number, block in enumerate(table.blocks)
        ]
    view, chosen = table.view(), policy_named(policy)
    asked = parts(chosen, chosen_options)
    arrays = {name: value for name, value in vars(view).items() if isinstance(value, np.ndarray)}
    before = {name: array.copy() for name, array in arrays.items()}
    one, other = (
        plan(view, chosen, asked.policy, asked.budget, memory_bytes=1, now=now, rng=lambda now=now: now)
        for now in (0.1, 0.9)
    )
    assert one == other
    for name, array in before.items():
        assert (getattr(view, name) == array).all()


def test_options_are_what_their_fields_declare():
    span, reach, spill = options_of(PairsOptions)
    assert (span.kind, span.default, span.unit, span.help) == (int, 2, "blocks", "Blocks of a group.")
    assert (reach.kind, reach.least, reach.most, reach.is_optional) == (float, 0, 1, False)
    assert (spill.kind, spill.is_optional, spill.least) == (int, True, 1)


def test_every_wrong_option_of_a_policy_is_named_at_once():
    wrong = {"span": 1, "reach": 2, "spill_bytes": "3 elephants", "threshold": 0, "max_blocks": 0, "spam": 1}
    with pytest.raises(InvalidOptionError) as raised:
        parts(Pairs(), wrong)
    for problem in (
        "unknown option 'spam'; did you mean span?",
        "span: expected a whole number of blocks from 2 on, got 1",
        "reach: expected a share from 0 to 1, got 2",
        "spill_bytes: '3 elephants'",
        "threshold: expected a number from 1 on, got 0",
        "max_blocks: expected a whole number of blocks from 1 on, got 0",
    ):
        assert problem in str(raised.value)


def test_options_are_split_into_what_concerns_the_policy_the_planner_and_the_merge():
    asked = {"span": 4, "spill_bytes": "2MiB", "max_bytes": "1GiB", "memory_bytes": "500MB"}
    found = parts(Pairs(), asked)
    assert found.policy == PairsOptions(span=4, spill_bytes=2**21)
    assert (found.budget, found.memory_bytes) == (Budget(max_bytes=2**30), 500 * 10**6)


def test_select_options_are_accepted_by_every_policy():
    options_ = SelectOptions(threshold=3, max_group_bytes=7, max_groups=1)
    assert parts(Levels(), options_).policy == LevelsOptions(threshold=3, max_group_bytes=7)
    assert parts(Full(), options_).policy == FullOptions(max_group_bytes=7)
    assert parts(Pairs(), options_).policy == PairsOptions()
    assert parts(Pairs(), options_).budget == Budget(max_groups=1)


def test_what_is_not_asked_is_as_the_policy_has_it():
    assert parts(Levels(), None).policy == LevelsOptions()
    assert parts(Levels(), SelectOptions()).policy.max_group_bytes == 8 * 2**30
    assert parts(Full(), SelectOptions()).policy == FullOptions(
        max_group_bytes=None, include_unclustered=True
    )
    assert parts(Levels(), None, final=True).policy.include_unclustered
    assert not parts(Full(), {"include_unclustered": False}, final=True).policy.include_unclustered


class Cursor:
    """Takes four blocks at a time, in the order of their numbers, and remembers how many it has taken."""

    name = "cursor"
    summary = "goes through the table once"
    options = FullOptions

    def decide(self, view, budget, options, *, workload, state, rates, now, rng):
        at = state or 0
        chosen = np.arange(at, min(at + 4, len(view)))
        chosen = chosen[: Room.of(budget).fitting(view, chosen)[0]]
        drafts = (Draft(blocks=chosen, output_level=next_level(view, chosen), why=""),) if chosen.size else ()
        return Decision(drafts=drafts, state=at + chosen.size)


def test_a_policy_that_fits_its_drafts_to_the_budget_skips_nothing():
    table = SimTable(block_rows=4).append(*([start, start + 9] for start in range(10)))
    state, seen = None, []
    for _ in range(6):
        found = table.planned(Cursor(), options={"max_blocks": 3}, state=state)
        state = found.state
        seen += [path for group in found.plan.groups for path in group.blocks]
    assert seen == [block.path for block in table.blocks]


def test_a_plan_that_the_budget_leaves_nothing_of_keeps_the_state_before(pairs):
    assert some_table().planned(pairs, options={"max_bytes": 1}, state=7).state == 7
    assert some_table().planned(pairs, state=7).state == 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class PickyOptions:
    largest_bytes: int = option(default=1, unit="bytes", help="Leave larger blocks.")


class Picky:
    """Leaves all blocks, for their size, and names another policy to ask."""

    name = "picky"
    summary = "leaves all blocks"
    options = PickyOptions

    def __init__(self, *, rule="too_large"):
        self.rule = rule

    def decide(self, view, budget, options, *, workload, state, rates, now, rng):
        return Decision(
            rejections=(rejection(view, self.rule, view.selectable, "too large"),),
            alternatives=(Alternative(policy=Full(), options=FullOptions()),),
        )


def test_the_alternatives_of_any_policy_become_advice_where_they_part_blocks():
    found = some_table().plan(Picky())
    (advice,) = found.advice
    assert (advice.policy, advice.arguments) == ("full", "--policy full")
    assert "`tblctl recluster LOC --policy full` (to about 1.00) would separate blocks" in found.note
    assert some_table().planned(Picky(), with_advice=False).plan.advice == ()
    assert SimTable(block_rows=4).append([1, 2], [3, 4]).plan(Picky()).advice == ()


def test_a_rejection_by_the_name_of_an_option_says_to_raise_it():
    found = some_table().plan(Picky(rule="largest_bytes"))
    assert found.is_limited
    assert found.note == "nothing to do within the limits: 4 blocks: too large. Raise largest_bytes, now 1"
    assert not some_table().plan(Picky()).is_limited
    assert Plan.from_json(found.to_json()).is_limited
