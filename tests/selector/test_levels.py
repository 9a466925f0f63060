"""Which blocks `levels` selects: the golden cases, and one rule a test."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from .tables import SimTable

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "recluster.json").read_text())["cases"]


@pytest.mark.parametrize("case", GOLDEN, ids=[case["name"] for case in GOLDEN])
def test_golden(case):
    table = SimTable(block_rows=case["block_rows"]).append(*case["inserts"])
    rows = sorted(key for keys in case["inserts"] for key in keys)
    for step, expected in case["steps"]:
        if step == "levels":
            assert [block.level for block in table.blocks] == expected
        elif step == "recluster":
            plan = table.plan()
            assert (expected == "no-op") == (not plan.groups)
            table.merge(plan)
            if expected != "no-op":
                assert table.listed() == sorted(expected)
        elif expected == "no-op":
            assert table.final() == []
        else:
            table.final(most_rounds=6)
            assert max(table.selection_depths().values()) <= 2
        assert sorted(key for block in table.blocks for key in block.keys) == rows


def ranges(table, **options):
    return table.ranges_of(table.plan(**options))


def full(low, high):
    """Four rows of a table with blocks of four."""
    return [low, low + 1, high - 1, high]


def table_of(*pairs, level=0):
    return SimTable(block_rows=4).append(*(full(*pair) for pair in pairs), level=level)


def rules(plan):
    return {item.rule: item for item in plan.rejected}


def test_the_lowest_level_that_needs_work_is_the_only_one_selected():
    table = table_of((0, 9), (2, 8)).append(full(0, 9), full(1, 9), full(0, 8), level=1)
    plan = table.plan()
    assert [group.output_level for group in plan.groups] == [1]
    assert table.ranges_of(plan) == [[(0, 9), (2, 8)]]


def test_a_well_clustered_level_gives_way_to_the_next_one():
    table = table_of((0, 9), (20, 29)).append(full(0, 9), full(1, 9), level=1)
    plan = table.plan()
    assert [group.output_level for group in plan.groups] == [2]
    assert rules(plan)["well_clustered"].level == 0


def test_a_level_of_one_block_is_skipped():
    plan = table_of((0, 9)).plan()
    assert not plan.groups
    assert rules(plan)["too_few_blocks"].level == 0


def test_a_small_level_is_merged_whole_though_disjoint():
    table = SimTable(block_rows=10).append([1, 2, 3], [5, 6], [8, 9, 9])
    assert ranges(table) == [[(1, 3), (5, 6), (8, 9)]]


def test_a_level_of_more_than_eight_tenths_of_a_block_is_not_small():
    table = SimTable(block_rows=10).append([1, 2, 3], [5, 6, 7], [8, 9, 9])
    assert ranges(table) == []


def test_an_average_exactly_at_the_threshold_is_well_clustered():
    table = table_of((0, 9), (2, 8), (20, 29), (22, 28))
    assert ranges(table, threshold=2) == []
    assert len(ranges(table, threshold=1.9)) == 2


def test_the_ratio_counts_all_blocks_of_the_table():
    table = table_of((0, 9), (2, 8), (20, 29), (22, 28))
    assert ranges(table, ratio=0.5) == []
    table.append([7] * 4)  # constant, yet a block of the table: the threshold is 2.5 now
    assert ranges(table, ratio=0.4) == []
    assert len(ranges(table, ratio=0.2)) == 2


def test_all_disjoint_ranges_of_highest_depth_become_groups():
    table = table_of((0, 9), (1, 8), (20, 29), (22, 28), (40, 49), (41, 49), (42, 49))
    assert ranges(table) == [[(40, 49), (41, 49), (42, 49)]], "depth 3 before depth 2"
    table.merge(table.plan())
    assert ranges(table) == [[(0, 9), (1, 8)], [(20, 29), (22, 28)]]


def test_a_range_grows_while_its_neighbours_are_deeper_than_the_threshold():
    table = table_of((0, 9), (5, 15), (12, 25), (20, 30), (6, 14), (40, 50))
    assert ranges(table) == [[(0, 9), (5, 15), (6, 14), (12, 25), (20, 30)]]
    assert ranges(table, threshold=2) == [[(0, 9), (5, 15), (6, 14), (12, 25)]]


def test_blocks_that_only_touch_are_not_selected():
    assert ranges(table_of((0, 5), (5, 9), (9, 14))) == []


def test_a_block_in_two_ranges_goes_to_the_first():
    table = table_of((0, 40), (1, 9), (2, 8), (30, 39), (31, 38), (32, 36))
    table.append(full(50, 60))
    found = ranges(table, threshold=2)
    assert found == [[(0, 40), (30, 39), (31, 38), (32, 36)]], "depth 4 before depth 3"
    table = table_of((0, 40), (1, 9), (2, 8), (3, 7), (30, 39), (31, 38), (32, 36))
    assert ranges(table, threshold=2) == [[(0, 40), (1, 9), (2, 8), (3, 7)], [(30, 39), (31, 38), (32, 36)]]


def test_every_range_above_the_threshold_is_taken_in_one_round_if_asked_for_the_deepest_first():
    table = table_of((0, 9), (1, 8), (20, 29), (22, 28), (40, 49), (41, 49), (42, 49), (60, 69))
    assert ranges(table, every_range=True) == [
        [(40, 49), (41, 49), (42, 49)],
        [(0, 9), (1, 8)],
        [(20, 29), (22, 28)],
    ]


def test_a_block_that_reaches_into_a_deeper_range_is_not_taken_twice():
    table = table_of((0, 40), (1, 9), (2, 8), (30, 39), (31, 38), (32, 36))
    table.append(full(50, 60))
    found = ranges(table, threshold=2, every_range=True)
    assert found == [[(0, 40), (30, 39), (31, 38), (32, 36)], [(1, 9), (2, 8)]]


def test_a_range_too_large_for_a_group_becomes_groups_of_neighbours_if_every_range_is_taken():
    table = table_of((0, 9), (5, 15), (12, 25), (20, 30), (6, 14))
    plan = table.plan(max_group_bytes=3 * 4 * 8, every_range=True)
    assert table.ranges_of(plan) == [[(0, 9), (5, 15), (6, 14)], [(12, 25), (20, 30)]]
    assert "max_group_bytes" not in rules(plan)


def test_a_budget_leaves_the_shallower_ranges_for_later_if_every_range_is_taken():
    table = table_of((0, 9), (1, 8), (40, 49), (41, 49), (42, 49))
    plan = table.plan(max_groups=1, every_range=True)
    assert table.ranges_of(plan) == [[(40, 49), (41, 49), (42, 49)]]
    assert rules(plan)["max_groups"].blocks == 2


def test_a_group_keeps_to_its_bytes_around_the_deepest_point():
    table = table_of((0, 9), (5, 15), (12, 25), (20, 30), (6, 14))
    plan = table.plan(max_group_bytes=3 * 4 * 8)
    assert table.ranges_of(plan) == [[(0, 9), (5, 15), (6, 14)]]
    assert rules(plan)["max_group_bytes"].blocks == 2


def test_growing_takes_the_deeper_side_first_and_the_left_one_of_equals():
    # The deepest point is 20 (depth 3); to its left the depth falls to 1 at once, to its right to 2.
    table = table_of((0, 10), (9, 24), (19, 25), (20, 30), (28, 40))
    assert ranges(table, max_group_bytes=4 * 4 * 8) == [[(0, 10), (9, 24), (19, 25), (20, 30)]]
    table = table_of((0, 15), (12, 24), (20, 34), (19, 21), (33, 40), (36, 44), (35, 43), (5, 14))
    assert table.plan(max_group_bytes=3 * 4 * 8).groups[0].rows == 12


def test_of_too_many_blocks_at_one_point_the_widest_are_kept():
    table = table_of((0, 90), (40, 50), (1, 80), (42, 48), (2, 99))
    assert ranges(table, max_blocks=3) == [[(0, 90), (1, 80), (2, 99)]]


def test_a_budget_of_groups_leaves_the_others_for_later():
    table = table_of((0, 9), (1, 8), (20, 29), (22, 28), (40, 49), (41, 49))
    plan = table.plan(max_groups=2)
    assert table.ranges_of(plan) == [[(0, 9), (1, 8)], [(20, 29), (22, 28)]]
    assert rules(plan)["max_groups"].blocks == 2


def test_a_budget_of_blocks_cuts_the_last_group_or_drops_it():
    table = table_of((0, 9), (1, 8), (2, 7), (20, 29), (21, 28), (22, 27))
    assert [len(group.blocks) for group in table.plan(max_blocks=5).groups] == [3, 2]
    plan = table.plan(max_blocks=4)
    assert [len(group.blocks) for group in plan.groups] == [3]
    assert rules(plan)["max_blocks"].blocks == 3


def test_a_budget_of_bytes_cuts_the_list():
    table = table_of((0, 9), (1, 8), (20, 29), (22, 28))
    plan = table.plan(max_bytes=8)
    assert len(plan.groups) == 1
    assert rules(plan)["max_bytes"].size_bytes == 8


@pytest.mark.parametrize(
    ("policy", "block_rows", "limits", "rule"),
    [
        (policy, block_rows, limits, rule)
        for limits, rule in [({"max_group_bytes": 40}, "max_group_bytes"), ({"max_blocks": 1}, "max_blocks")]
        for policy, block_rows in [("levels", 100), ("levels", 4), ("full", 4)]
    ],
)
def test_the_limit_that_ended_a_group_is_the_one_reported(policy, block_rows, limits, rule):
    table = SimTable(block_rows=block_rows).append(*[full(n, 20 - n) for n in range(3)])
    assert not table.plan(policy, **limits).groups
    assert {name: item.blocks for name, item in rules(table.plan(policy, **limits)).items()} == {rule: 3}
    assert f"by {rule}" in table.plan(policy, **limits).note


def test_a_small_level_is_merged_as_far_as_its_group_may_go():
    table = SimTable(block_rows=100).append([1, 2, 3, 4, 5], [6, 7], [8], [9])
    plan = table.plan(max_group_bytes=6 * 8)
    assert table.ranges_of(plan) == [[(6, 7), (8, 8), (9, 9)]]
    assert {name: item.blocks for name, item in rules(plan).items()} == {"max_group_bytes": 1}


@pytest.mark.parametrize("policy", ["levels", "full"])
@pytest.mark.parametrize(
    ("limits", "advice"),
    [
        ({"max_blocks": 1}, "Raise max_blocks, now 1: a group has at least 2 blocks"),
        ({"max_bytes": 7}, "Raise max_bytes, now 7: two blocks of average size are 8 bytes of files"),
        (
            {"max_group_bytes": 9},
            "Raise max_group_bytes, now 9: two blocks of average size take 64 bytes of memory",
        ),
    ],
)
def test_a_limit_that_leaves_no_room_for_two_blocks_is_named_with_how_far_to_raise_it(policy, limits, advice):
    table = table_of((0, 9), (1, 8))
    plan = table.plan(policy, **limits)
    assert not plan.groups
    assert plan.is_limited
    assert plan.note.startswith("nothing to do within the limits: ")
    assert plan.note.endswith(advice)
    assert not table.plan(policy).is_limited


def test_only_blocks_that_where_allows_are_selected_and_measured():
    table = table_of((0, 9), (1, 8), (20, 29), (22, 28), (23, 27))
    plan = table.plan(restricted=np.array([True, True, True, False, False]))
    assert table.ranges_of(plan) == [[(0, 9), (1, 8)]]
    assert rules(plan)["where"].blocks == 2


def test_a_run_that_merging_would_not_change_gives_way_to_a_shallower_range():
    table = SimTable(block_rows=1000)
    table.append([1] + [7] * 699, [7] * 700, [7] * 699 + [9])
    assert not table.plan().groups
    assert rules(table.plan())["no_gain"].blocks == 3
    table.append(range(2000, 2900), range(2010, 2910))
    assert ranges(table) == [[(2000, 2899), (2010, 2909)]]


def test_a_constant_full_block_is_never_selected_whatever_its_mark_says():
    table = SimTable(block_rows=4).append([7] * 4, [1, 2, 8, 9])
    table.blocks = [replace(table.blocks[0], level=0), table.blocks[1]]
    assert table.blocks[0].level == 0
    assert not table.plan().groups
    assert rules(table.plan())["constant"].blocks == 1


def test_blocks_merged_often_enough_are_left_alone():
    table = table_of((0, 9), (1, 8), level=32)
    assert rules(table.plan())["max_level"].blocks == 2
    assert table_of((0, 9), (1, 8), level=31).plan().groups[0].output_level == 32


def test_unclustered_blocks_are_ignored_until_asked_for():
    table = table_of((0, 9), (1, 8)).append([3, 4], [5, 6], unclustered=True)
    plan = table.plan()
    assert table.ranges_of(plan) == [[(0, 9), (1, 8)]]
    assert rules(plan)["unclustered"].blocks == 2


def test_unclustered_blocks_come_first_even_a_single_one():
    table = table_of((0, 9), (1, 8)).append([3, 4], unclustered=True)
    plan = table.plan(include_unclustered=True)
    assert table.ranges_of(plan) == [[(3, 4)]]
    assert plan.groups[0].output_level == 1
    assert plan.groups[0].depth_before is None
    table.merge(plan)
    assert table.ranges_of(table.plan(include_unclustered=True)) == [[(0, 9), (1, 8)]]


def test_unclustered_blocks_are_grouped_by_key_within_the_limit_unknown_ones_last():
    table = SimTable(block_rows=4)
    table.append(full(50, 60), full(0, 9), full(1, 8), full(51, 59), unclustered=True)
    table.append(full(0, 99), unclustered=True, unknown=True)
    plan = table.plan(include_unclustered=True, max_group_bytes=2 * 4 * 8)
    assert table.ranges_of(plan) == [[(0, 9), (1, 8)], [(50, 60), (51, 59)], [(0, 99)]]


def test_a_block_without_bounds_overlaps_all_of_its_level():
    table = table_of((0, 9), (20, 29)).append(full(3, 5), unknown=True)
    assert ranges(table) == [[(0, 9), (3, 5), (20, 29)]]


def test_nothing_to_do_says_why():
    note = table_of((0, 9), (20, 29)).plan(threshold=4).note
    assert "average selection depth 1, threshold 4" in note
    assert SimTable(block_rows=4).plan().note == "nothing to do: the table has no blocks"


def test_full_merges_everything_once():
    table = table_of((0, 9), (1, 8)).append(full(9, 40), level=3).append([5] * 4)
    plan = table.plan("full")
    assert [(len(group.blocks), group.output_level) for group in plan.groups] == [(3, 4)]
    table.merge(plan)
    assert not table.plan("full").groups
    assert "the same again" in table.plan("full").note


def test_full_within_a_limit_merges_neighbours():
    table = table_of((0, 9), (1, 8), (20, 30), (21, 29))
    plan = table.plan("full", max_group_bytes=2 * 4 * 8)
    assert table.ranges_of(plan) == [[(0, 9), (1, 8)], [(20, 30), (21, 29)]]


def test_full_takes_unclustered_blocks_unless_told_not_to():
    table = table_of((0, 9), (1, 8)).append([3, 4], unclustered=True)
    assert [len(group.blocks) for group in table.plan("full").groups] == [3]
    assert [len(group.blocks) for group in table.plan("full", include_unclustered=False).groups] == [2]
