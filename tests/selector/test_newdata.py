"""Which blocks `newdata` fills into cubes: one rule a test. A block has 4 rows, and 4 bytes on storage."""

from __future__ import annotations

import pytest

from tblctl.selector.table_view import MOST_LEVEL

from .tables import SimTable

CUBE = 8
"""Bytes from which on a cube is full; it is filled up to 12."""


def full(low, high):
    return [low, low + 1, high - 1, high]


def table_of(*pairs, **kind):
    return SimTable(block_rows=4).append(*(full(*pair) for pair in pairs), **kind)


def plan_of(table, cube_bytes=CUBE, **options):
    return table.plan("newdata", cube_bytes=cube_bytes, **options)


def ranges(table, **options):
    return table.ranges_of(plan_of(table, **options))


def levels(table, **options):
    return [group.output_level for group in plan_of(table, **options).groups]


def rules(table, **options):
    return {item.rule: item.blocks for item in plan_of(table, **options).rejected}


def test_cubes_are_filled_in_order_of_arrival_not_by_key():
    table = table_of((0, 99), (500, 900), (10, 20), (510, 800), (0, 50), (700, 999), (30, 40))
    assert ranges(table) == [
        [(0, 99), (10, 20), (500, 900)],
        [(0, 50), (510, 800), (700, 999)],
    ]
    assert rules(table) == {"no_gain": 1}, "the seventh is alone in its cube"


def test_a_full_cube_is_never_written_again():
    table = table_of((0, 50), (60, 99), level=1).append(full(10, 80), full(20, 70))
    assert ranges(table) == [[(10, 80), (20, 70)]]
    assert rules(table) == {"full_cube": 2}


def test_new_blocks_are_merged_with_the_open_cube():
    table = table_of((0, 50), level=1).append(full(10, 80))
    assert ranges(table) == [[(0, 50), (10, 80)]]
    assert levels(table) == [2]


def test_new_blocks_come_first_so_that_a_budget_takes_these():
    table = table_of((0, 50), level=1).append(full(10, 80), full(20, 70))
    (group,) = plan_of(table, cube_bytes=100).groups
    assert group.blocks == tuple(table.blocks[number].path for number in (1, 2, 0))
    assert ranges(table, cube_bytes=100, max_blocks=2) == [[(10, 80), (20, 70)]]


def test_without_new_blocks_there_is_nothing_to_do():
    table = table_of((0, 50), (20, 70), level=1)
    assert ranges(table, cube_bytes=100) == []
    assert rules(table, cube_bytes=100) == {"no_new_data": 2}


def test_what_stays_open_gets_the_lowest_level_that_no_full_cube_has():
    table = table_of((0, 50), (60, 99), level=1).append(full(0, 50), full(60, 99), level=2)
    table.append([1, 5], [2, 6])
    assert levels(table) == [3]
    table.merge(plan_of(table))
    table.append([3, 4])
    assert ranges(table) == [[(1, 6), (3, 4)]]
    assert levels(table) == [4]


def test_what_becomes_full_gets_the_highest_level_of_full_cubes():
    table = table_of((0, 50), (60, 99), level=5).append(full(0, 50), full(60, 99), level=3)
    assert levels(table.append(full(0, 9), full(1, 8))) == [5]
    assert levels(table_of((0, 50), (60, 99), level=1).append(full(0, 9), full(1, 8))) == [1]


def test_several_full_cubes_of_one_plan_share_a_level():
    assert levels(table_of(*[(0, 9), (1, 8), (2, 7)] * 3)) == [1, 1, 1]


def test_new_blocks_that_are_one_sorted_run_are_not_written_again():
    table = table_of((0, 9), (10, 19), (20, 29))
    assert ranges(table) == []
    assert rules(table) == {"no_gain": 3}


def test_blocks_of_an_open_cube_are_not_packed_without_new_ones():
    table = SimTable(block_rows=4).append([0], [1], level=1).append(full(10, 20))
    assert ranges(table, cube_bytes=100) == []


def test_a_part_of_a_sorted_run_makes_no_full_cube():
    table = table_of((0, 50), (60, 99), level=1).append(full(0, 9), full(10, 19), [20], [21])
    assert ranges(table) == [[(20, 20), (21, 21)]]
    assert levels(table) == [2]


def test_each_partition_has_its_own_cubes():
    table = table_of((0, 9), (1, 8), partition=1).append(full(2, 7), full(3, 6), partition=2)
    assert ranges(table) == [[(0, 9), (1, 8)], [(2, 7), (3, 6)]]


def test_unclustered_blocks_are_new_if_asked_for():
    table = table_of((0, 9)).append(full(1, 8), unclustered=True)
    assert ranges(table) == []
    assert ranges(table, include_unclustered=True) == [[(0, 9), (1, 8)]]


def test_an_open_cube_that_was_merged_as_often_as_any_may_be_is_left_alone():
    table = table_of((0, 50), level=MOST_LEVEL - 1).append(full(10, 80))
    assert levels(table) == [MOST_LEVEL]
    table.merge(plan_of(table))
    table.append(full(10, 70), full(11, 60))
    assert ranges(table) == [[(10, 70), (11, 60)]]


@pytest.mark.parametrize("new", [1, 3])
def test_however_long_it_goes_on_no_row_of_a_full_cube_is_written_again(new):
    table, written = SimTable(block_rows=4), {}
    for number in range(120):
        table.append(*[[4 * number % 37, 4 * number % 37 + 60 + n] for n in range(new)])
        plan = plan_of(table, cube_bytes=20)
        for group in plan.groups:
            assert not any(written.get(path, 0) >= 20 for path in group.blocks)
        before = {block.path for block in table.blocks}
        table.merge(plan)
        made = [block for block in table.blocks if block.path not in before]
        by_level = {block.level: 0 for block in made}
        for block in made:
            by_level[block.level] += len(block.keys)
        written |= {block.path: by_level[block.level] for block in made}
    assert max(block.level for block in table.blocks) < 12, (
        "cubes of 20 rows are open for 10 appends of 2 at most"
    )
