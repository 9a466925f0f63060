"""Policy `runs`: which blocks it chooses, one rule a test. Runs are given by name, as appends and merges make them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.errors import InvalidOptionError
from tblctl.selector.budget import Budget
from tblctl.selector.checks import checked
from tblctl.selector.connected import component_at, components, greedy_runs
from tblctl.selector.draft import Draft, lowers_coverage
from tblctl.selector.planner import plan
from tblctl.selector.policies.runs import Runs, RunsOptions
from tblctl.selector.policies.runs_rule import ROWS_POWER
from tblctl.selector.policy import Decision
from tblctl.selector.simulate import SimulatedTable
from tblctl.selector.table_view import MOST_LEVEL

ROWS = 100


@dataclass(frozen=True)
class Block:
    """A block's bounds, its run (-1: unknown) and rows."""

    low: int
    high: int
    run: int = -1
    rows: int = ROWS
    level: int = 0
    partition: int = 0


def view_of(*blocks, **more):
    table = SimulatedTable(block_rows=ROWS)
    for block in blocks:
        table.append(
            [block.low] * (block.rows - 1) + [block.high], level=block.level, partition=block.partition
        )
    return replace(table.view(), run=np.array([block.run for block in blocks], np.int64), **more)


def run_of(run, low, high, count, **more):
    """Return a run: blocks of equal width from low to high."""
    step = (high - low) // count
    return [Block(low + n * step, low + (n + 1) * step - 1, run, **more) for n in range(count)]


def chosen(view, target=1.0, options=None, **budget):
    """Return the blocks of each group that the policy drafts, as the planner takes them."""
    limits = Budget(target_depth=target, **budget)
    decision = Runs().decide(view, limits, options or RunsOptions())
    return [sorted(draft.blocks.tolist()) for draft in checked(view, Runs(), decision).drafts]


def rules(view, target=1.0, options=None, **budget):
    decision = Runs().decide(view, Budget(target_depth=target, **budget), options or RunsOptions())
    return {item.rule: item.blocks for item in decision.rejections}


def test_a_table_at_the_target_depth_is_left_alone():
    view = view_of(*run_of(0, 0, 1000, 4), *run_of(1, 3, 1003, 4))
    assert chosen(view, target=3) == []
    assert rules(view, target=3) == {"well_clustered": 8}
    assert chosen(view, target=2) == []
    assert chosen(view, target=1.9) == [list(range(8))]


def test_without_a_target_it_is_five():
    appends = [block for number in range(8) for block in run_of(number, number, 1000 + number, 4)]
    view = view_of(*appends)
    decision = Runs().decide(view, Budget(), RunsOptions())
    assert [draft.blocks.size for draft in decision.drafts] == [32]
    assert Runs().decide(view_of(*appends[:12]), Budget(), RunsOptions()).drafts == ()


def test_a_large_run_is_left_and_the_smaller_ones_are_merged():
    large = run_of(0, 0, 6400, 32)
    small = [block for number in range(1, 4) for block in run_of(number, 100 * number, 6400, 2)]
    assert chosen(view_of(*large, *small), target=2) == [[32, 33, 34, 35, 36, 37]]


def over_all_keys(*counts):
    """Return runs of as many blocks as each number says, which all overlap."""
    return [block for run, count in enumerate(counts) for block in run_of(run, 100 * run, 64_000, count)]


def test_a_larger_run_is_merged_with_smaller_ones_where_the_gain_makes_up_for_its_rows():
    with_it = (
        "of four runs, 3 are got rid of; of the three smaller ones, 2: half more gain, for 18 / 6 of the rows"
    )
    assert (18 / 6) ** ROWS_POWER < 1.5
    assert chosen(view_of(*over_all_keys(12, 2, 2, 2)), target=2) == [list(range(18))], with_it
    assert (30 / 6) ** ROWS_POWER > 1.5
    assert chosen(view_of(*over_all_keys(24, 2, 2, 2)), target=2) == [list(range(24, 30))]


def test_of_very_many_runs_the_large_one_is_left_too():
    view = view_of(*over_all_keys(320, *[1] * 40))
    assert chosen(view, target=2) == [list(range(320, 360))]


def test_no_more_places_are_merged_than_the_target_needs():
    two = [*run_of(0, 0, 1000, 2), *run_of(1, 5, 1005, 2)]
    three = [
        Block(block.low + 5000, block.high + 5000, block.run) for block in (*two, *run_of(2, 9, 1009, 2))
    ]
    view = view_of(*two, *three)  # the depths of the ten blocks add up to 26
    assert chosen(view, target=1.9) == [[4, 5, 6, 7, 8, 9]], "that takes 12 away, and 7 are above the target"
    assert rules(view, target=1.9) == {"target_reached": 4}
    assert len(chosen(view, target=1.3)) == 2, "13 are above it"


def test_each_partition_is_brought_to_the_target_by_itself():
    deep = [block for number in range(3) for block in run_of(number, number, 1000 + number, 2)]
    both = [*deep, *(replace(block, partition=1) for block in deep)]
    assert chosen(view_of(*both), target=2) == [list(range(6)), list(range(6, 12))]


def test_only_what_overlaps_around_the_place_is_merged():
    here = [*run_of(0, 0, 1000, 2), *run_of(1, 5, 1005, 2), *run_of(2, 9, 1009, 2)]
    there = [*run_of(0, 5000, 6000, 2), *run_of(1, 5005, 6005, 2)]
    assert chosen(view_of(*here, *there), target=2) == [[0, 1, 2, 3, 4, 5]]


def test_blocks_that_touch_do_not_overlap():
    view = view_of(Block(0, 10, 0), Block(10, 20, 1), Block(20, 30, 2), Block(10, 10, 3, rows=5))
    assert chosen(view) == []


def test_every_place_above_the_target_becomes_a_group_the_deepest_first():
    two = [*run_of(0, 0, 1000, 2), *run_of(1, 5, 1005, 2)]
    three = [
        Block(block.low + 5000, block.high + 5000, block.run) for block in (*two, *run_of(2, 9, 1009, 2))
    ]
    assert chosen(view_of(*two, *three)) == [[4, 5, 6, 7, 8, 9], [0, 1, 2, 3]]
    assert chosen(view_of(*two, *three), max_groups=1) == [[4, 5, 6, 7, 8, 9]]
    assert rules(view_of(*two, *three), max_groups=1) == {"max_groups": 4}


def test_sparse_blocks_over_dense_ones_are_merged_without_these():
    dense = run_of(0, 0, 100_000, 100)
    late = [Block(10 + n, 60_000 + n, 1 + n) for n in range(6)]
    assert chosen(view_of(*dense, *late), target=2) == [[100, 101, 102, 103, 104, 105]]


def test_the_largest_of_equal_runs_is_rewritten_too():
    equal = [block for number in range(4) for block in run_of(number, number, 1000 + number, 2)]
    assert chosen(view_of(*equal), target=2) == [list(range(8))]


def test_a_group_that_exceeds_its_limit_is_cut_into_connected_parts():
    view = view_of(*[block for number in range(3) for block in run_of(number, 9 * number, 9000, 30)])
    size = 10 * ROWS * 8
    found = chosen(view, options=RunsOptions(max_group_bytes=size))
    assert len(found) > 5
    assert all(1 < len(group) <= 10 and lowers_coverage(view, np.array(group)) for group in found)


def test_budgets_are_kept_and_named():
    view = view_of(*[block for number in range(3) for block in run_of(number, 9 * number, 9000, 30)])
    assert sum(map(len, chosen(view, max_blocks=12))) <= 12
    assert "max_blocks" in rules(view, max_blocks=12)
    assert chosen(view, max_bytes=1) == []


def test_partitions_are_tables_of_their_own():
    deep = [block for number in range(4) for block in run_of(number, number, 1000 + number, 2)]
    flat = [replace(block, partition=1, run=9) for block in run_of(9, 0, 1000, 4)]
    assert chosen(view_of(*deep, *flat), target=2) == [list(range(8))]
    assert rules(view_of(*deep, *flat), target=2) == {"well_clustered": 4}
    both = [*deep, *(replace(block, partition=1) for block in deep)]
    assert chosen(view_of(*both), target=2) == [list(range(8)), list(range(8, 16))]


def test_blocks_without_a_run_get_the_fewest_runs():
    large = [replace(block, run=-1) for block in run_of(0, 0, 6400, 32)]
    small = [replace(block, run=-1) for n in range(1, 4) for block in run_of(n, 100 * n, 6400, 2)]
    assert chosen(view_of(*large, *small), target=2) == [[32, 33, 34, 35, 36, 37]]


def test_blocks_that_failed_or_are_excluded_are_not_taken():
    blocks = [block for number in range(3) for block in run_of(number, number, 1000 + number, 1)]
    view = view_of(*blocks)
    assert chosen(replace(view, failed=np.array([True, False, False]))) == [[1, 2]]
    assert chosen(replace(view, restricted=np.array([True, False, True]))) == [[0, 2]]
    assert chosen(replace(view, failed=np.array([True, True, False]))) == []


def test_blocks_in_no_order_are_sorted_in_if_asked_for():
    table = SimulatedTable(block_rows=10).append(range(10), range(5, 15), unclustered=True)
    assert not table.plan("runs", target_depth=1).groups
    found = table.plan("runs", target_depth=1, include_unclustered=True).groups
    assert [len(group.blocks) for group in found] == [2]


def test_a_block_of_unknown_range_that_a_limit_leaves_alone_waits():
    table = SimulatedTable(block_rows=3).append([0], [0], unknown=True)
    plan = table.plan("runs", target_depth=1, include_unclustered=True, max_bytes=1)
    assert plan.groups == ()
    assert sum(item.blocks for item in plan.rejected) == 2
    assert len(table.plan("runs", target_depth=1, include_unclustered=True).groups) == 1


def test_blocks_that_were_merged_most_often_are_parted_all_the_same():
    blocks = [
        block for number in range(3) for block in run_of(number, number, 1000 + number, 2, level=MOST_LEVEL)
    ]
    view = view_of(*blocks)
    assert not view.selectable.any()
    assert chosen(view) == [list(range(6))]
    mixed = view_of(*blocks[:4], *run_of(9, 9, 1009, 2))
    assert chosen(mixed) == [list(range(6))]
    assert chosen(replace(mixed, inexact=np.arange(6) > 3)) == []
    inexact = replace(view, inexact=np.ones(6, np.bool_))
    assert chosen(inexact) == []
    assert rules(inexact) == {"max_level": 6}


def test_a_draft_of_such_blocks_that_parts_nothing_is_refused():
    view = view_of(*run_of(0, 0, 1000, 4, level=MOST_LEVEL))

    class Bad(Runs):
        def decide(self, view, budget, options, **_):
            return Decision(drafts=(Draft(blocks=np.arange(2), output_level=MOST_LEVEL, why=""),))

    with pytest.raises(InvalidOptionError, match="block 0 may not be selected"):
        plan(view, Bad(), RunsOptions(), Budget(), memory_bytes=2**30, now=0.0, rng=lambda: 0.5)


intervals = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12)).map(lambda pair: (pair[0], sum(pair))),
    min_size=1,
    max_size=30,
)


def bounds(pairs):
    low, high = np.array(pairs, np.int64).T
    return low.copy(), high.copy()


@given(intervals)
def test_greedy_runs_are_the_fewest_and_do_not_overlap_themselves(pairs):
    low, high = bounds(pairs)
    run = greedy_runs(low, high)
    deepest = max(int(((low <= gap) & (high > gap)).sum()) for gap in range(int(high.max())))
    assert sorted(set(run.tolist())) == list(range(deepest))
    for number in range(deepest):
        ordered = sorted(pair for pair, own in zip(pairs, run.tolist(), strict=True) if own == number)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(ordered))


@given(intervals, st.integers(0, 45))
def test_components_are_connected_by_overlaps(pairs, gap):
    low, high = bounds(pairs)
    wanted = list(range(low.size))
    for one in range(low.size):  # a plain union-find
        for other in range(low.size):
            if max(low[one], low[other]) < min(high[one], high[other]):
                old, new = wanted[one], wanted[other]
                wanted = [new if number == old else number for number in wanted]
    found = components(low, high).tolist()
    assert [[a == b for b in found] for a in found] == [[a == b for b in wanted] for a in wanted]
    at = component_at(low, high, gap)
    covering = {found[place] for place in np.flatnonzero((low <= gap) & (high > gap)).tolist()}
    here = {place for place in range(low.size) if found[place] in covering}
    assert set(np.flatnonzero(at).tolist()) == here
