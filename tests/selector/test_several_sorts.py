"""Blocks in a live sort beside the current one: who may select them, and what plans and figures make of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.policies import policy_of
from tblctl.selector.budget import Budget
from tblctl.selector.draft import Draft, next_level
from tblctl.selector.options import parts
from tblctl.selector.plan import Plan
from tblctl.selector.planner import plan as planned
from tblctl.selector.policies.levels import Levels, LevelsOptions
from tblctl.selector.policy import Decision
from tblctl.selector.simulate import SORT
from tblctl.selector.table_view import MOST_LEVEL, NO_SORT
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.cluster_key import Sort, Term

from .tables import SimTable
from .test_final import block_lists, policies, table_from

OTHER = Sort(id=2, terms=(Term(column_id=2),))
THIRD = Sort(id=3, terms=(Term(column_id=3),))

LEFT = (
    "in the order of another live sort, and left in it: `tblctl alter LOC --cluster-by KEY`, even with the same key, "
    "ends that sort"
)


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """Nothing may be asked of the policy."""


class Give:
    """Merges blocks, given by their numbers, into a sort: a draft for each of its arguments."""

    name = "give"
    options = NoOptions

    def __init__(self, *drafts):
        self.drafts = drafts

    def decide(self, view, budget, options, *, workload, state, rates, now, rng):
        return Decision(
            drafts=tuple(
                Draft(
                    blocks=np.array(blocks),
                    output_level=min(next_level(view, np.array(blocks)), MOST_LEVEL),
                    why="",
                    sort=sort,
                )
                for blocks, sort in self.drafts
            )
        )


def give(table, *drafts, **options):
    """Carry out groups of blocks and sorts, and return the plan."""
    plan = table.plan(Give(*drafts), **options)
    table.merge(plan)
    return plan


def mixed():
    """Return a table of two overlapping blocks, two in another sort, and one in none."""
    table = SimTable(block_rows=4).append([0, 2, 4, 6], [1, 3, 5, 7], [0, 3, 4, 7], [1, 2, 5, 6])
    give(table, ([2, 3], OTHER))
    return table.append([0, 9], unclustered=True)


def test_a_view_tells_the_sort_of_each_block():
    table = mixed()
    view = table.view()
    assert view.sort_ids.tolist() == [1, 1, 2, 2, NO_SORT]
    assert view.in_other_sort.tolist() == [False, False, True, True, False]
    assert view.unclustered.tolist() == [False, False, True, True, True]
    assert (dict(view.sorts), view.next_sort_id) == ({1: SORT, 2: OTHER}, 3)
    assert SimTable(block_rows=4).view().next_sort_id == 2
    assert replace(view, sort_ids=np.empty(0, np.int64)).sort_ids.tolist() == [1, 1, -1, -1, -1]
    with pytest.raises(ValueError, match="blocks in the current sort are not unclustered"):
        replace(view, sort_ids=np.ones(5, np.int64))
    with pytest.raises(ValueError, match="those in another live sort are"):
        replace(view, unclustered=np.zeros(5, bool))


@pytest.mark.parametrize("policy", ["levels", "full"])
def test_measured_blocks_of_whose_order_nothing_is_known_are_selected_as_those_of_level_0(policy):
    """Files that other writers left in a table of another format: measured by their bounds, in no known order.

    `full` also puts the rows of the third block in order, which overlaps nothing.
    """
    view = SimTable(block_rows=4).append([0, 2, 4, 6], [1, 3, 5, 7], [10, 11, 12, 13]).view()
    foreign = replace(view, sort_ids=np.full(3, NO_SORT))
    assert not foreign.unclustered.any()
    assert foreign.selectable.all()
    first, second = (
        planned(
            blocks, chosen, parts(chosen, {}).policy, Budget(), memory_bytes=2**30, now=0.0, rng=lambda: 0.5
        )
        for chosen in (policy_of(policy),)
        for blocks in (view, foreign)
    )
    count = len(first.plan.groups)
    assert first.plan.groups == second.plan.groups[:count]
    assert first.plan.groups
    assert [group.blocks for group in second.plan.groups[count:]] == [("data/000003",)] * (policy == "full")


def test_a_merge_into_another_sort_makes_blocks_that_no_average_counts():
    table = mixed()
    assert [block.sort_id for block in table.blocks] == [1, 1, 2, 2, NO_SORT]
    assert sorted(key for block in table.blocks[2:4] for key in block.keys) == list(range(8))
    assert table.depth == 2
    give(table, ([0, 1], OTHER))
    assert not any(block.is_measured for block in table.blocks)


@pytest.mark.parametrize("policy", ["levels", "full"])
@pytest.mark.parametrize("include", [True, False])
def test_blocks_in_another_live_sort_are_left_there_and_the_plan_says_so(policy, include):
    table = mixed()
    plan = table.plan(policy, threshold=1, include_unclustered=include)
    others = {block.path for block in table.blocks if block.sort_id == 2}
    assert not others & {path for group in plan.groups for path in group.blocks}
    (left,) = [item for item in plan.rejected if item.rule == "other_sort"]
    assert (left.blocks, left.why) == (2, LEFT)
    table.final(policy, include_unclustered=True)
    assert others == {block.path for block in table.blocks if block.sort_id == 2}
    assert not any(block.sort_id == NO_SORT for block in table.blocks)


@pytest.mark.parametrize("policy", ["levels", "full"])
def test_a_table_all_of_whose_blocks_are_in_another_sort_says_why_nothing_is_done(policy):
    table = SimTable(block_rows=4).append([0, 2], [1, 3])
    give(table, ([0, 1], OTHER))
    plan = table.plan(policy, include_unclustered=True)
    assert plan.note == f"nothing to do: 1 block: {LEFT}"


def test_the_level_of_a_block_in_a_live_sort_counts_in_any_sort():
    table = mixed()
    give(table, ([2, 3], OTHER))
    view = table.view()
    assert [block.level for block in table.blocks if block.sort_id == 2] == [2, 2]
    assert next_level(view, np.flatnonzero(view.in_other_sort)) == 3
    assert next_level(view, np.flatnonzero(view.sort_ids == NO_SORT)) == 1
    constant = SimTable(block_rows=4).append([5] * 4).view()
    assert (constant.level.tolist(), next_level(constant, np.arange(1))) == ([-1], 1)


def test_blocks_that_change_sorts_to_and_fro_end_at_the_highest_level():
    table = SimTable(block_rows=4).append([0, 2, 4, 6], [1, 3, 5, 7])
    for number in range(MOST_LEVEL):
        assert table.view().selectable.all()
        before = table.work_left
        give(table, ([0, 1], None if number % 2 else OTHER))
        assert table.work_left <= before - 8
    for sort_id in (1, 2, 3):
        assert not table.view().selectable_for(sort_id).any()


def test_a_full_block_of_one_key_may_be_given_another_sort_but_not_its_own_again():
    table = SimTable(block_rows=4).append([5] * 4, [6] * 4, [0, 1])
    assert table.view().selectable.tolist() == [False, False, True]
    assert table.view().selectable_for(2).tolist() == [True, True, True]
    with pytest.raises(InvalidOptionError, match="may not be selected"):
        table.plan(Give(([0, 1], None)))
    give(table, ([0, 1], OTHER))
    assert [block.keys for block in table.blocks[1:]] == [(5, 5, 6, 6)] * 2
    table.blocks[1] = replace(table.blocks[1], level=-1)  # of one key by the other sort, say
    assert table.view().selectable_for(2).tolist() == [True, False, True]
    assert table.view().selectable_for(3).tolist() == [True, True, True]
    with pytest.raises(InvalidOptionError, match="may not be selected"):
        table.plan(Give(([1, 2], OTHER)))


def test_a_budget_cuts_a_draft_with_another_sort_to_its_first_blocks():
    """By the current key the blocks are one sorted run, and merging them would change nothing."""
    table = SimTable(block_rows=4).append(*[range(4 * n, 4 * n + 4) for n in range(6)])
    plan = table.plan(Give((range(6), OTHER)), max_blocks=4)
    assert [(len(group.blocks), group.sort_id) for group in plan.groups] == [(4, 2)]
    assert [(item.rule, item.blocks) for item in plan.rejected] == [("max_blocks", 2)]
    assert "4 of 6 blocks by max_blocks" in plan.groups[0].why
    assert not table.plan(Give((range(6), OTHER)), max_bytes=1).groups
    assert not table.plan(Give((range(6), None)), max_blocks=4).groups


def test_what_gets_another_sort_is_expected_to_be_measured_by_no_figure():
    table = SimTable(block_rows=4).append([0, 2, 4, 6], [1, 3, 5, 7], [3, 3, 3, 3, 3])
    plan = give(table, ([0, 1], OTHER))
    (group,) = plan.groups
    assert (group.depth_before, group.depth_after, group.same_key_rows) == (3.0, None, None)
    assert (plan.predicted.block_count_before, plan.predicted.block_count_after) == (3, 3)
    assert plan.predicted.average_depth_after == 1 == table.depth
    assert Plan.from_json(plan.to_json()) == plan
    last = give(table, ([0], OTHER)).predicted
    assert (last.average_depth_after, last.average_overlaps_after, last.block_count_after) == (None, None, 4)


@settings(max_examples=cases(70), deadline=None)
@given(block_lists, st.lists(st.sampled_from([OTHER, THIRD]), min_size=1, max_size=3), st.data())
def test_figures_without_blocks_that_get_other_sorts_are_predicted_exactly(blocks, sorts, data):
    table = table_from(*blocks)
    view = table.view()
    allowed = np.flatnonzero(view.selectable_for(2)).tolist()
    chosen = [data.draw(st.lists(st.sampled_from(allowed), unique=True)) if allowed else [] for _ in sorts]
    taken = [set(some).difference(*chosen[:place]) for place, some in enumerate(chosen)]
    drafts = [(sorted(some), sort) for some, sort in zip(taken, sorts, strict=True) if some]
    plan = give(table, *drafts)
    figures = (plan.predicted.average_overlaps_after, plan.predicted.average_depth_after)
    measured = [block for block in table.blocks if block.is_measured]
    assert figures == (table.figures() if measured or not table.blocks else (None, None))
    assert plan.predicted.block_count_after == len(table.blocks)
    assert all(group.depth_after is None for group in plan.groups)


@settings(max_examples=cases(30), deadline=None)
@given(block_lists, policies, st.lists(st.booleans(), max_size=40))
def test_groups_of_the_key_beside_such_of_another_sort_are_predicted_as_without_their_blocks(
    blocks, policy, moved
):
    table = table_from(*blocks)
    view = table.view()
    allowed = view.selectable_for(2)
    others = [number for number, move in enumerate(moved[: len(view)]) if move and allowed[number]]
    without = table.copy()
    without.blocks = [block for number, block in enumerate(table.blocks) if number not in others]
    numbers = {block.path: number for number, block in enumerate(table.blocks)}
    plan = without.plan(policy, threshold=1)
    ours = [([numbers[path] for path in group.blocks], None) for group in plan.groups]
    theirs = [(others, OTHER)] if others else []
    both = table.plan(Give(*ours, *theirs))
    moved_only = table.plan(Give(*theirs)).predicted.block_count_after
    become = moved_only - (len(table.blocks) - len(others))
    assert both.predicted.block_count_after == plan.predicted.block_count_after + become
    alone = [(group.depth_before is None, group.same_key_rows) for group in plan.groups]
    assert [(g.depth_before is None, g.same_key_rows) for g in both.groups[: len(ours)]] == alone
    assert all(group.depth_after >= 1 for group in both.groups[: len(ours)])


class Compared(np.ndarray):
    """Counts how often it is compared with one value."""

    times = 0
    __hash__ = None

    def __eq__(self, other):
        Compared.times += 1
        return super().__eq__(other)


def test_the_blocks_of_all_partitions_are_counted_at_once():
    table = SimTable(block_rows=4)
    for partition in range(20):
        table.append([0, 2, 4, 6], [1, 3, 5, 7], partition=partition)
    view = table.view()
    view = replace(view, partition=view.partition.view(Compared))
    Compared.times = 0
    assert len(Levels().decide(view, Budget(), LevelsOptions(threshold=1)).drafts) == 20
    assert Compared.times == 0
