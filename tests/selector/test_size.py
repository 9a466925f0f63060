"""Which blocks `size` stitches: one rule a test. Blocks have 10 rows at most, so those of 8 and more are not small."""

from __future__ import annotations

import pytest

from tblctl.selector.policies.size import SizeOptions
from tblctl.selector.simulate import ROW_BYTES
from tblctl.tableformat.errors import InvalidOptionError

from .tables import SimTable


def table_of(*rows, **kind):
    """Return a table of blocks of so many rows, all with other keys, the highest keys first."""
    return SimTable(block_rows=10).append(
        *(range(-100 * number, -100 * number + count) for number, count in enumerate(rows)), **kind
    )


def stitched(table, **options):
    """Return the rows of the blocks of each group, in the order of the table."""
    rows = {block.path: len(block.keys) for block in table.blocks}
    return [[rows[path] for path in group.blocks] for group in table.plan("size", **options).groups]


def rules(table, **options):
    return {item.rule: item.blocks for item in table.plan("size", **options).rejected}


def test_small_blocks_are_stitched_and_larger_ones_never():
    table = table_of(3, 8, 3, 10, 3)
    assert stitched(table) == [[3, 3, 3]]
    assert rules(table) == {"large_enough": 2}


def test_key_ranges_are_ignored_and_blocks_are_taken_in_the_order_of_the_table():
    table = SimTable(block_rows=10).append(range(500, 504), range(4), range(900, 904), range(2, 6))
    plan = table.plan("size")
    assert table.ranges_of(plan) == [[(0, 3), (2, 5), (500, 503), (900, 903)]]
    assert [group.blocks for group in plan.groups] == [tuple(block.path for block in table.blocks)]


def test_a_table_of_full_blocks_that_all_overlap_is_left_alone():
    assert stitched(SimTable(block_rows=10).append(*[range(0, 90, 10)] * 6)) == []


def test_a_group_that_fills_blocks_leaves_no_small_one():
    assert stitched(table_of(3, 3, 3, 3, 3)) == [[3, 3, 3], [3, 3]], "15 rows would make two blocks of 7 or 8"
    assert stitched(table_of(*[4] * 6)) == [[4] * 6], "24 rows make three of 8"


def test_blocks_that_cannot_become_fewer_are_left_alone():
    table = table_of(7, 7)
    assert stitched(table) == []
    assert rules(table) == {"too_few_small": 2}
    assert stitched(table_of(7, 7, 7, 7)) == [[7, 7, 7, 7]], "28 rows make three"


def test_what_stays_small_is_written_only_into_a_block_half_as_large_again():
    assert stitched(table_of(4, 1)) == []
    assert stitched(table_of(4, 1, 1)) == [[4, 1, 1]]
    assert stitched(table_of(5, 1, 1)) == [[1, 1]]


def test_a_block_that_fits_no_group_does_not_keep_later_ones_from_being_stitched():
    assert stitched(table_of(7, 4, 4)) == [[4, 4]]


def test_fewer_than_the_least_number_are_stitched_only_if_they_fill_a_block():
    assert stitched(table_of(3, 3), min_input_files=3) == []
    assert stitched(table_of(4, 4), min_input_files=3) == [[4, 4]]
    assert stitched(table_of(2, 2, 2), min_input_files=3) == [[2, 2, 2]]


def test_a_group_holds_no_more_bytes_than_asked_for():
    assert stitched(table_of(*[4] * 6), max_group_bytes=11 * ROW_BYTES) == [[4, 4]] * 3
    assert stitched(table_of(*[4] * 6), max_group_bytes=3 * ROW_BYTES) == []


def test_blocks_that_only_the_limit_of_a_group_keeps_apart_name_it():
    plan = table_of(4, 4).plan("size", max_group_bytes=7 * ROW_BYTES)
    assert {item.rule: item.blocks for item in plan.rejected} == {"max_group_bytes": 2}
    assert f"Raise max_group_bytes, now {7 * ROW_BYTES}" in plan.note
    assert rules(table_of(7, 7), max_group_bytes=7 * ROW_BYTES) == {"too_few_small": 2}


def test_blocks_from_the_limit_on_storage_on_are_not_small():
    assert stitched(table_of(5, 4, 4, 4), small_file_bytes=5) == [[4, 4, 4]], (
        "each output has 6 bytes or more"
    )
    assert rules(table_of(9, 9), small_file_bytes=100) == {"large_enough": 2}, "a merge makes none larger"


def test_with_a_target_each_group_becomes_one_block_of_about_that_size():
    table = table_of(*[2] * 6, 3, 9)
    assert stitched(table, target_file_bytes=4) == [[2, 2]] * 3, "blocks of 3 bytes are 0.75 of it"
    table.merge(table.plan("size", target_file_bytes=4))
    assert sorted(len(block.keys) for block in table.blocks) == [3, 4, 4, 4, 9]
    assert stitched(table, target_file_bytes=4) == []


def test_a_limit_above_the_target_is_refused():
    with pytest.raises(InvalidOptionError, match="small_file_bytes 9 is above target_file_bytes 8"):
        SizeOptions(small_file_bytes=9, target_file_bytes=8)


def test_groups_that_get_rid_of_most_blocks_for_their_bytes_come_first():
    table = table_of(4, 4, partition=1).append(*[[number] for number in range(8)], partition=2)
    assert stitched(table) == [[1] * 8, [4, 4]]
    assert stitched(table, max_groups=1) == [[1] * 8]
    assert rules(table, max_groups=1) == {"max_groups": 2}


def test_a_group_that_a_budget_cuts_is_worth_its_bytes_too():
    assert stitched(table_of(3, 3, 3), max_blocks=2) == [[3, 3]]
    assert rules(table_of(3, 3, 3), max_blocks=2) == {"max_blocks": 1}
    assert stitched(table_of(7, 1), max_bytes=7) == []
    assert rules(table_of(7, 1), max_bytes=7) == {"max_bytes": 2}


def test_unclustered_blocks_are_stitched_like_others_and_sorted_by_the_key():
    table = table_of(4, 4, unclustered=True)
    assert stitched(table) == [[4, 4]]
    table.merge(table.plan("size"))
    assert [(block.unclustered, block.level) for block in table.blocks] == [(False, 1)]


def test_a_row_is_rewritten_few_times_however_small_the_appends_are():
    table, rewritten = SimTable(block_rows=200), 0
    for number in range(500):
        table.append([number])
        plan = table.planned("size", with_advice=False).plan
        rewritten += sum(group.rows for group in plan.groups)
        table.merge(plan)
    levels = [block.level for block in table.blocks if len(block.keys) >= 160]
    print(f"{rewritten / 500:.2f} times, {len(table.blocks)} blocks, levels {levels}")
    assert rewritten / 500 < 8, "a rule that always writes the last small block again: half of 200"
    assert max(levels) < 14, "log(200) / log(1.5) is 13.1"
    assert len(table.blocks) < 3 + 13
