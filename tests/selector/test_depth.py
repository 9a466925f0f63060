"""Which blocks `depth` selects: one rule a test. Blocks have 10 rows at most."""

from __future__ import annotations

from .tables import SimTable


def full(low, high):
    """Nine rows of a table with blocks of ten."""
    return [low, *[low + 1] * 7, high]


def table_of(*pairs, **kind):
    return SimTable(block_rows=10).append(*(full(*pair) for pair in pairs), **kind)


def ranges(table, depth=1, **options):
    return table.ranges_of(table.plan("depth", clustering_depth=depth, **options))


def rules(plan):
    return {item.rule: item.blocks for item in plan.rejected}


def test_the_blocks_at_the_deepest_point_are_a_group():
    assert ranges(table_of((0, 9), (20, 29), (2, 8))) == [[(0, 9), (2, 8)]]


def test_a_table_at_the_target_exactly_is_left_alone():
    table = table_of((0, 9), (2, 8), (20, 29), (40, 49))
    plan = table.plan("depth", clustering_depth=1.5)
    assert not plan.groups
    assert rules(plan) == {"well_clustered": 4}
    assert ranges(table, 1.4) == [[(0, 9), (2, 8)]]


def test_dremio_s_target_of_3_is_the_default():
    table = table_of((0, 9), (0, 8), (0, 7))
    assert not table.plan("depth").groups
    assert table.append(full(0, 6)).plan("depth").groups


def test_a_group_has_the_first_blocks_at_the_point_as_many_as_asked_for():
    table = table_of((0, 9), (1, 8), (0, 7), (2, 9), (1, 6))
    assert ranges(table, most_blocks=2, max_groups=1) == [[(0, 9), (1, 8)]]
    assert ranges(table, most_blocks=2) == [[(0, 9), (1, 8)], [(0, 7), (2, 9)]]
    assert ranges(table, most_blocks=3) == [[(0, 7), (0, 9), (1, 8)], [(1, 6), (2, 9)]]


def test_disjoint_points_are_groups_of_one_plan_the_deepest_first():
    table = table_of((0, 9), (2, 8), (20, 29), (21, 28), (22, 27), (40, 49), (41, 45))
    assert ranges(table) == [[(20, 29), (21, 28), (22, 27)], [(0, 9), (2, 8)], [(40, 49), (41, 45)]]


def test_points_of_one_depth_with_nothing_between_them_are_groups_too():
    assert ranges(SimTable(block_rows=10).append([1] * 4, [1] * 4, [2] * 4, [2] * 4)) == [
        [(1, 1), (1, 1)],
        [(2, 2), (2, 2)],
    ]


def test_of_points_that_share_a_block_only_the_deepest_is_taken():
    table = table_of((0, 9), (8, 15), (7, 10), (14, 20))
    assert ranges(table) == [[(0, 9), (7, 10), (8, 15)]]


def test_no_more_groups_are_taken_than_bring_the_average_to_the_target():
    table = table_of(*((100 * number + side, 100 * number + 9) for number in range(10) for side in (0, 1)))
    assert len(table.plan("depth", clustering_depth=1.5).groups) == 5
    table.merge(table.plan("depth", clustering_depth=1.5))
    assert not table.plan("depth", clustering_depth=1.5).groups


def test_blocks_that_only_touch_are_left_alone():
    plan = table_of((0, 9), (9, 18), (18, 27)).plan("depth", clustering_depth=1)
    assert not plan.groups
    assert rules(plan) == {"well_clustered": 3}


def test_a_point_that_no_merge_could_part_does_not_hide_others():
    table = table_of((1, 5), (5, 9), (2, 4)).append([5] * 6)
    assert ranges(table) == [[(1, 5), (2, 4)]]
    plan = table_of((1, 5), (5, 9)).append([5] * 6).plan("depth", clustering_depth=1)
    assert not plan.groups
    assert rules(plan) == {"not_deepest": 3}


def test_levels_do_not_matter_and_the_output_has_the_next_one():
    table = table_of((0, 9)).append(full(1, 8), level=3)
    assert [group.output_level for group in table.plan("depth", clustering_depth=1).groups] == [4]


def test_each_partition_has_its_own_average():
    table = table_of((0, 9), (1, 8), partition=1)
    table.append(*[full(100 * number, 100 * number + 9) for number in range(20)], partition=2)
    plan = table.plan("depth", clustering_depth=1.5)
    assert table.ranges_of(plan) == [[(0, 9), (1, 8)]]
    assert rules(plan) == {"well_clustered": 20}


def test_a_block_of_unknown_range_lies_over_every_point():
    table = table_of((0, 9), (20, 29)).append(full(3, 4), unknown=True)
    plan = table.plan("depth", clustering_depth=1)
    assert len(plan.groups[0].blocks) == 2


def test_unclustered_blocks_are_sorted_in_first_if_asked_for():
    table = table_of((0, 9), (1, 8)).append(full(3, 4), full(50, 60), unclustered=True)
    assert ranges(table) == [[(0, 9), (1, 8)]]
    assert ranges(table, include_unclustered=True) == [[(3, 4), (50, 60)], [(0, 9), (1, 8)]]
    plan = table.plan("depth", clustering_depth=1, include_unclustered=True, max_groups=1)
    assert rules(plan) == {"max_groups": 2}


def test_a_group_holds_no_more_bytes_than_asked_for():
    table = table_of((0, 9), (1, 8), (0, 7))
    assert ranges(table, max_group_bytes=150) == [[(0, 9), (1, 8)]]
