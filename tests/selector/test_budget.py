"""A budget limits the drafts of any policy, and every block is taken or left by a rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.selector.budget import Budget, Room, affordable
from tblctl.selector.draft import MOST_GROUPS, Draft, next_level
from tblctl.selector.policy import Decision
from tblctl.tableformat.errors import InvalidOptionError

from .tables import SimTable
from .test_final import block_lists, table_from

budgets = st.builds(
    Budget,
    max_bytes=st.none() | st.integers(1, 120),
    max_blocks=st.none() | st.integers(1, 20),
    max_groups=st.none() | st.integers(1, 4),
)


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """Nothing may be asked of the policy."""


class Spender:
    """Selects all selectable blocks, as groups of a few blocks, and ignores the budget."""

    name = "spender"
    options = NoOptions

    def __init__(self, sizes):
        self.sizes = sizes

    def decide(self, view, budget, options, *, workload, state, rates, now, rng):
        chosen = np.flatnonzero(view.selectable)
        ends = np.cumsum([size for size in self.sizes if size])
        parts = [part for part in np.split(chosen, ends[ends < chosen.size]) if part.size]
        return Decision(
            drafts=tuple(Draft(blocks=part, output_level=next_level(view, part), why="all") for part in parts)
        )


def drafts_of(view, sizes):
    return (
        Spender(sizes)
        .decide(view, Budget(), NoOptions(), workload=None, state=None, rates=None, now=0, rng=None)
        .drafts
    )


@settings(max_examples=cases(130), deadline=None)
@given(block_lists, st.lists(st.integers(1, 6), max_size=8), budgets)
def test_what_is_taken_never_exceeds_the_budget_and_with_what_is_left_is_everything(blocks, sizes, budget):
    view = table_from(*blocks).view()
    drafts = drafts_of(view, sizes)
    taken, left = affordable(view, drafts, budget)
    chosen = [number for draft in taken for number in draft.blocks.tolist()]
    rest = [number for numbers in left.values() for number in numbers.tolist()]
    assert sorted(chosen + rest) == np.flatnonzero(view.selectable).tolist()
    assert len(taken) <= (budget.max_groups or MOST_GROUPS)
    assert len(chosen) <= (budget.max_blocks or len(view))
    assert view.size_bytes[chosen].sum() <= (budget.max_bytes or view.size_bytes.sum())
    assert set(left) <= {"max_bytes", "max_blocks", "max_groups"}
    whole = Room.of(budget).holds(view, [draft.blocks for draft in drafts])
    assert whole == (not rest)


@settings(max_examples=cases(70), deadline=None)
@given(block_lists, st.lists(st.integers(1, 6), max_size=8), budgets)
def test_groups_and_rejections_of_a_plan_are_the_selectable_blocks(blocks, sizes, budget):
    table = table_from(*blocks)
    limits = {"max_bytes": budget.max_bytes, "max_blocks": budget.max_blocks, "max_groups": budget.max_groups}
    plan = table.plan(Spender(sizes), **limits)
    taken = [path for group in plan.groups for path in group.blocks]
    assert len(set(taken)) == len(taken)
    rejected = sum(item.blocks for item in plan.rejected)
    assert len(taken) + rejected == np.count_nonzero(table.view().selectable)
    assert sum(group.size_bytes for group in plan.groups) <= (budget.max_bytes or 10**9)


@settings(max_examples=cases(70), deadline=None)
@given(block_lists, st.sampled_from(["levels", "full"]), budgets)
def test_the_planner_takes_what_the_policies_of_tblctl_decide_as_it_is(blocks, policy, budget):
    table = table_from(*blocks)
    limits = {"max_bytes": budget.max_bytes, "max_blocks": budget.max_blocks, "max_groups": budget.max_groups}
    plan = table.plan(policy, **limits)
    assert not any("blocks by max" in group.why for group in plan.groups)


def test_a_draft_that_fits_in_part_is_cut_and_says_so():
    table = SimTable(block_rows=10).append(*[[0, 100 + n] for n in range(6)])
    plan = table.plan(Spender([6]), max_blocks=4)
    (group,) = plan.groups
    assert group.blocks == tuple(block.path for block in table.blocks[:4])
    assert group.why == "all; 4 of 6 blocks by max_blocks"
    assert [(item.rule, item.blocks) for item in plan.rejected] == [("max_blocks", 2)]


def test_a_part_whose_merge_would_change_nothing_is_left():
    table = SimTable(block_rows=10).append(range(10), range(20, 30), range(5, 25))
    plan = table.plan(Spender([3]), max_blocks=2)
    assert not plan.groups
    assert [(item.rule, item.blocks) for item in plan.rejected] == [("max_blocks", 3)]
    assert plan.is_limited


def test_no_plan_has_more_groups_than_the_most():
    table = SimTable(block_rows=2).append(*[[n] for n in range(5)])
    view = table.view()
    room = Room.of(Budget(max_groups=10 * MOST_GROUPS))
    assert room.groups == MOST_GROUPS
    left = room.after(view, [np.array([0, 1]), np.array([2])])
    assert (left.groups, left.spent) == (MOST_GROUPS - 2, "")


@pytest.mark.parametrize("name", ["max_bytes", "max_blocks", "max_groups"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "7"])
def test_a_budget_takes_whole_numbers_from_1_on(name, value):
    with pytest.raises(InvalidOptionError, match=f"{name}: expected a whole number of "):
        Budget(**{name: value})


def test_every_problem_of_a_budget_is_named_at_once():
    with pytest.raises(InvalidOptionError, match=r"max_bytes.*max_groups"):
        Budget(max_bytes=0, max_groups=0)
