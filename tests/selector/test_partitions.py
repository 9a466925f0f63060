"""A partition is planned as a table of its own: no group crosses one, and nothing is measured across them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import cases

from .tables import SimTable
from .test_final import block_lists, options, policies

BLOCK_ROWS = 8


def tables_of(several):
    """Return a table of one partition for each list of blocks, and tables of these alone."""
    together, alone = SimTable(block_rows=BLOCK_ROWS), []
    for number, blocks in enumerate(several):
        one = SimTable(block_rows=BLOCK_ROWS)
        for keys, level, kind in blocks:
            marks = {"unclustered": kind in {"unclustered", "both"}, "unknown": kind in {"unknown", "both"}}
            together.append(keys[:BLOCK_ROWS], level=level, partition=5 * number, **marks)
            one.blocks.append(together.blocks[-1])
        alone.append(one)
    return together, alone


partitions = st.lists(block_lists.map(lambda found: found[1]), min_size=1, max_size=4)


@settings(max_examples=cases(100), deadline=None)
@given(partitions, options, policies)
def test_no_group_crosses_partitions(several, chosen_options, policy):
    table, _ = tables_of(several)
    of = {block.path: block.partition for block in table.blocks}
    plan = table.plan(policy, **chosen_options)
    for group in plan.groups:
        assert len({of[path] for path in group.blocks}) == 1
    assert len(plan.groups) <= chosen_options.get("max_groups", 10**9)
    assert sum(len(group.blocks) for group in plan.groups) <= chosen_options.get("max_blocks", 10**9)
    assert sum(group.size_bytes for group in plan.groups) <= chosen_options.get("max_bytes", 10**9)


@settings(max_examples=cases(100), deadline=None)
@given(partitions, st.sampled_from([1, 1.5, 3]), st.booleans(), policies, st.integers(40, 600))
@example(
    [
        [([0] * 3, 0, "unknown"), ([1, 38], 0, "clustered"), ([0, 0, 19], 0, "clustered")],
        [([0, 23], 0, "clustered")],
    ],
    1,
    False,
    "levels",
    40,
)
def test_the_groups_are_those_of_each_partition_by_itself(several, threshold, include, policy, group_bytes):
    table, alone = tables_of(several)
    asked = {
        "threshold": threshold,
        "include_unclustered": include,
        "max_group_bytes": group_bytes,
    }

    def groups(*plans):
        found = [
            (item.blocks, item.output_level, item.why, item.rows) for plan in plans for item in plan.groups
        ]
        return sorted(found) if policy == "runs" else found  # it has the deepest of all partitions first

    apart = [one.plan(policy, **asked) for one in alone]
    found = table.plan(policy, **asked)
    assert groups(found) == groups(*apart)

    def left(plans):
        sums = {}
        for item in (item for plan in plans for item in plan.rejected):
            sums[item.rule] = sums.get(item.rule, 0) + item.blocks
        return sums

    assert left([found]) == left(apart)


@settings(max_examples=cases(30), deadline=None)
@given(partitions, policies)
def test_a_partitioned_table_is_merged_until_every_partition_is_done(several, policy):
    table, _ = tables_of(several)
    keys = {
        number: sorted(key for block in table.blocks if block.partition == number for key in block.keys)
        for number in {block.partition for block in table.blocks}
    }
    table.final(policy, include_unclustered=True)
    for number, before in keys.items():
        after = (key for block in table.blocks if block.partition == number for key in block.keys)
        assert sorted(after) == before


def test_a_group_names_its_partition_and_one_of_a_table_without_names_none():
    table = SimTable(block_rows=4).append([1, 9, 9, 9], [2, 8, 8, 8], [3, 7, 7, 7], partition=4)
    assert [group.partition for group in table.plan().groups] == [None]
    table.append([1, 5, 5, 5], [2, 6, 6, 6], partition=2)
    assert [group.partition for group in table.plan().groups] == [2, 4]
    view = dataclasses.replace(table.view(), partition_values=("a", "b", "2024-01-01", "d", "e"))
    assert view.partition_values[table.blocks[-1].partition] == "2024-01-01"


@pytest.mark.parametrize("policy", ["levels", "full"])
def test_blocks_of_two_partitions_do_not_overlap(policy):
    table = SimTable(block_rows=4)
    for partition in (1, 2, 3):
        table.append([1, 4, 6, 9], partition=partition)
    plan = table.plan(policy)
    assert not plan.groups
    assert (plan.predicted.average_depth_before, plan.predicted.average_overlaps_before) == (1, 0)


def test_two_hot_ranges_at_the_border_of_partitions_stay_two_groups():
    table = SimTable(block_rows=4)
    table.append([1, 2, 8, 9], [2, 3, 7, 9], partition=0)
    table.append([9, 10, 11, 20], [9, 12, 13, 20], partition=1)
    assert table.ranges_of(table.plan()) == [[(1, 9), (2, 9)], [(9, 20), (9, 20)]]


def test_what_partitions_leave_out_for_one_reason_is_summed_up_under_the_deepest():
    table = SimTable(block_rows=4)
    for partition, count in enumerate((2, 3, 2)):
        table.append(*[[1, 4, 6, 9]] * count, partition=partition)
    (item,) = table.plan(threshold=4).rejected
    assert (item.rule, item.level, item.blocks, item.average_selection_depth) == ("well_clustered", 0, 7, 3.0)
    assert item.why == (
        "level 0 is well clustered: average selection depth 3, threshold 4 (and in 2 other partitions)"
    )


def test_a_budget_is_shared_by_all_partitions():
    table = SimTable(block_rows=4)
    for partition in range(3):
        table.append([1, 4, 6, 9], [2, 4, 6, 8], partition=partition)
    plan = table.plan(max_groups=2)
    assert [group.partition for group in plan.groups] == [0, 1]
    assert [(item.rule, item.blocks) for item in plan.rejected] == [("max_groups", 2)]
