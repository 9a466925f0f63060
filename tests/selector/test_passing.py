"""Blocks that pass through a sort unwritten, and the stretches merged between them: never a sliver."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.metrics.intervals import overlaps_and_depths
from tblctl.selector.budget import Room, split_in_key_order
from tblctl.selector.passing import runs

from .tables import SimTable

BLOCK_ROWS = 10


def spread(low, high, count=BLOCK_ROWS):
    """Return the keys of a block, the ends among them."""
    return np.linspace(low, high, count).astype(int).tolist()


def table_of(*blocks, **options):
    return SimTable(block_rows=BLOCK_ROWS, **options).append(*blocks)


def merged(table, **options):
    return table.ranges_of(table.plan("full", **options))


def test_only_blocks_that_overlap_are_merged():
    table = table_of(spread(0, 9), spread(10, 19), range(20, 40, 2), range(21, 41, 2), spread(50, 59))
    assert merged(table) == [[(20, 38), (21, 39)]]
    plan = table.plan("full")
    assert {item.rule: item.blocks for item in plan.rejected} == {"no_gain": 3}
    before = set(table.blocks)
    table.merge(plan)
    assert len(before & set(table.blocks)) == 3  # as they were, their level too
    assert table.figures() == (0.0, 1.0)
    assert not table.plan("full").groups


def test_runs_between_blocks_that_stay_are_merged_each_by_itself():
    table = table_of(
        spread(0, 9), spread(5, 14), spread(20, 29), spread(30, 39), spread(31, 38), spread(32, 37)
    )
    plan = table.plan("full")
    assert table.ranges_of(plan) == [[(0, 9), (5, 14)], [(30, 39), (31, 38), (32, 37)]]
    assert [group.output_level for group in plan.groups] == [1, 1]


PAIR = (spread(100, 119), spread(110, 129))


@pytest.mark.parametrize(
    ("beside", "why"),
    [
        ([spread(90, 100)], "it shares a key with the pair"),
        ([spread(90, 99, 7)], "it is small"),
        ([spread(80, 99, 11)], "it is larger than a block may be"),
    ],
)
def test_a_block_that_a_merge_would_change_does_not_stay(beside, why):
    assert [len(group) for group in merged(table_of(*beside, *PAIR))] == [3], why


def test_a_block_without_order_or_bounds_does_not_stay():
    assert len(merged(table_of(*PAIR).append(spread(0, 9), unclustered=True))[0]) == 3
    assert len(merged(table_of(*PAIR, spread(0, 9)).append(spread(200, 209), unknown=True))[0]) == 4


def test_a_block_is_full_by_its_bytes_too_and_too_large_by_them():
    widths = {0: 20, 20: 30}  # 4 rows of 20 bytes are full, 4 rows of 30 are too large

    def width(key):
        return widths.get(key // 10 * 10, 1)

    table = table_of(spread(0, 9, 4), spread(20, 29, 4), *PAIR, block_bytes=100, width=width)
    assert merged(table) == [[(20, 29), (100, 119), (110, 129)]]


def test_a_run_that_is_a_sliver_takes_the_smaller_neighbour_along():
    left, right = spread(0, 9, 9), spread(30, 39, 8)
    slivers = ([12, 14], [13, 15])
    assert merged(table_of(left, *slivers, right)) == [[(12, 14), (13, 15), (30, 39)]]
    assert merged(table_of(left, *slivers, spread(30, 39))) == [[(0, 9), (12, 14), (13, 15)]]
    assert merged(table_of(*slivers, right)) == [[(12, 14), (13, 15), (30, 39)]]
    assert merged(table_of(left, *slivers)) == [[(0, 9), (12, 14), (13, 15)]]
    assert merged(table_of(left, [12, 14, 16], [13, 15], right)) == [
        [(12, 16), (13, 15)]
    ]  # half a block is not a sliver


def test_two_slivers_that_take_the_same_neighbour_become_one_run_with_it():
    table = table_of([1, 3], [2, 4], spread(10, 19, 8), [21, 23], [22, 24], spread(30, 39))
    assert merged(table) == [[(1, 3), (2, 4), (10, 19), (21, 23), (22, 24)]]


def test_small_blocks_of_a_run_that_is_sorted_are_packed_not_rewritten():
    table = table_of([1, 2, 3, 4], [5, 6], spread(10, 19), spread(30, 39, 6), spread(50, 59), *PAIR)
    assert merged(table) == [[(1, 4), (5, 6)], [(100, 119), (110, 129)]]


def test_a_sorted_run_is_packed_as_ever_though_blocks_of_it_could_stay():
    assert merged(table_of(spread(0, 9, 8), [12, 13], spread(20, 29))) == [[(0, 9), (12, 13)]]


def test_the_most_groups_are_the_first_runs():
    table = table_of(spread(0, 9), spread(5, 14), spread(20, 29), *PAIR)
    plan = table.plan("full", max_groups=1)
    assert table.ranges_of(plan) == [[(0, 9), (5, 14)]]
    assert {item.rule: item.blocks for item in plan.rejected} == {"max_groups": 2, "no_gain": 1}
    assert len(table.final("full", max_groups=1)) == 2


def test_groups_that_become_several_runs_count_as_many():
    over_all, beside = spread(0, 2000), [spread(1 + n, 31 + n) for n in range(4)]
    runs_ = [*PAIR, spread(200, 209), spread(300, 319), spread(310, 329)]
    table = table_of(over_all, *beside, *runs_, *(spread(400 + n, 430 + n) for n in range(5)))
    for most in range(1, 6):
        plan = table.plan("full", max_groups=most, max_group_bytes=table.decoded_bytes(list(range(50))))
        assert len(plan.groups) == min(most, 4)
        left = {1: {"max_groups": 10}, 2: {"max_groups": 8}, 3: {"max_groups": 6}}.get(
            most, {"max_group_bytes": 1}
        )
        assert {item.rule: item.blocks for item in plan.rejected} == left


@pytest.mark.parametrize("limits", [{"max_blocks": 4}, {"max_bytes": 25}])
def test_limits_count_what_is_rewritten_not_what_stays(limits):
    table = table_of(*(spread(20 * n, 20 * n + 9) for n in range(10)), spread(300, 319), spread(310, 329))
    assert table.ranges_of(table.plan("full", **limits)) == [[(300, 319), (310, 329)]]


def test_a_pair_that_the_limit_of_a_group_would_part_is_merged_all_the_same():
    apart = [spread(20 * n, 20 * n + 9) for n in range(5)]
    table = table_of(
        *apart, spread(100, 119), spread(110, 129), *(spread(200 + 20 * n, 209 + 20 * n) for n in range(5))
    )
    six = table.decoded_bytes([key for keys in apart for key in keys]) * 6 // 5
    assert table.ranges_of(table.plan("full", max_group_bytes=six)) == [[(100, 119), (110, 129)]]


def test_what_the_limit_of_a_group_parts_is_merged_round_by_round_until_nothing_overlaps():
    table = table_of(*(spread(10 * n, 10 * n + 14) for n in range(12)))
    five = table.decoded_bytes(list(range(50)))
    plans = table.final("full", max_group_bytes=five)
    assert len(plans) > 1
    run = sorted(block.keys for block in table.blocks)
    assert all(before[-1] <= after[0] for before, after in itertools.pairwise(run))


kinds = st.sampled_from(["clustered"] * 9 + ["unclustered"])
tables = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 9), st.integers(2, 11), kinds), min_size=1, max_size=30
)


def table_from(blocks):
    table = SimTable(block_rows=BLOCK_ROWS)
    for low, width, count, kind in blocks:
        table.append(spread(3 * low, 3 * low + width, count), unclustered=kind == "unclustered")
    return table


@settings(max_examples=cases(100), deadline=None)
@given(tables)
def test_runs_and_blocks_that_stay_are_apart_and_together_everything(blocks):
    table = table_from(blocks)
    found = table.view()
    every = np.arange(len(found))
    (in_order,), _, _ = split_in_key_order(found, every, Room())
    chosen, run = runs(found, in_order)
    stay = np.setdiff1d(every, chosen)
    assert np.unique(chosen).size == chosen.size
    overlap, _ = overlaps_and_depths(found.low, found.high)
    assert not overlap[stay].any()
    assert not found.unclustered[stay].any()
    assert ((found.row_count[stay] >= 8) & (found.row_count[stay] <= BLOCK_ROWS)).all()
    for number in np.unique(run):
        members = chosen[run == number]
        low, high = found.low[members].min(), found.high[members].max()
        assert ((found.high[stay] < low) | (found.low[stay] > high)).all(), (
            "a run reaches over a block that stays"
        )
        assert not stay.size or found.row_count[members].sum() >= BLOCK_ROWS / 2, "a sliver"


@settings(max_examples=cases(70), deadline=None)
@given(tables)
def test_one_round_leaves_one_sorted_run_of_the_same_keys(blocks):
    table = table_from(blocks)
    before = sorted(key for block in table.blocks for key in block.keys)
    table.merge(table.plan("full"))
    assert not any(block.unclustered for block in table.blocks)
    run = sorted(block.keys for block in table.blocks)
    assert [key for keys in run for key in keys] == before
