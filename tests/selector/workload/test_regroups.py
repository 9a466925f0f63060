"""Which blocks are sorted together for queries, by what, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from tblctl.selector.workload.arrive import best_order, blocks_in_order
from tblctl.selector.workload.asked import Asked, recency, stand_ins
from tblctl.selector.workload.choose import regroups
from tblctl.selector.workload.outputs import predicted_cost, sorted_groups
from tblctl.selector.workload.replay import Blocks, read_cost, wasted
from tblctl.selector.workload.savings import savings

ROWS = 100.0


def blocks(low, high, *, rewrite=1.0):
    low, high = np.atleast_2d(np.array(low, float)), np.atleast_2d(np.array(high, float))
    count = low.shape[1]
    return Blocks(
        low=low,
        high=high,
        rows=np.full(count, ROWS),
        read_seconds=np.ones(count),
        rewrite_seconds=np.full(count, rewrite),
    )


def overlapping(count=8, columns=1, **how):
    return blocks(np.zeros((columns, count)), np.ones((columns, count)), **how)


def asked(*boxes, cost=1.0):
    low = np.array([[-np.inf if end is None else end[0] for end in box] for box in boxes])
    high = np.array([[np.inf if end is None else end[1] for end in box] for box in boxes])
    return Asked.of(low, high, np.full(len(boxes), cost))


def test_blocks_that_overlap_are_sorted_by_the_column_that_queries_ask_for():
    (group,) = regroups(overlapping(columns=2), asked([None, (0.1, 0.12)], cost=2.0), block_rows=ROWS)
    assert group.key == (1,)
    assert group.blocks.tolist() == list(range(8))
    assert (group.before, group.after, group.price) == (16.0, 2.0, 8.0)


def test_a_sorted_table_is_left_alone_though_queries_end_inside_its_blocks():
    edges = np.arange(64) / 64
    window = asked(*([(x, x + 0.1)] for x in np.linspace(0, 0.9, 40)), cost=50.0)
    assert regroups(blocks(edges, edges + 1 / 64), window, block_rows=ROWS) == []


def test_what_does_not_save_its_price_is_left_alone():
    window = asked([(0.1, 0.12)], cost=1.0)
    assert regroups(overlapping(rewrite=1.0), window, block_rows=ROWS) == []
    assert regroups(overlapping(rewrite=0.5), window, block_rows=ROWS) != []
    assert regroups(overlapping(rewrite=0.5), window, block_rows=ROWS, alpha=2) == []
    assert regroups(overlapping(rewrite=0.5), window, block_rows=ROWS, group_seconds=10) == []


def test_without_queries_nothing_is_chosen():
    nothing = Asked.of(np.empty((0, 1)), np.empty((0, 1)), np.empty(0))
    assert regroups(overlapping(), nothing, block_rows=ROWS) == []
    assert best_order(overlapping(), [overlapping()], nothing, sort_seconds=0) is None
    assert read_cost(overlapping(), nothing).tolist() == [0.0] * 8


def test_queries_of_two_columns_get_a_curve_through_both():
    window = asked([(0.1, 0.3), (0.1, 0.3)], [(0.6, 0.8), (0.5, 0.7)], cost=40.0)
    (group,) = regroups(overlapping(64, columns=2), window, block_rows=ROWS)
    assert sorted(group.key) == [0, 1]


def test_halves_that_are_asked_differently_get_keys_of_their_own():
    low = np.zeros((3, 32))
    high = np.ones((3, 32))
    low[0], high[0] = np.arange(32) / 32, np.arange(32) / 32
    window = asked([(0.0, 0.45), (0.1, 0.12), None], [(0.5, 1.0), None, (0.1, 0.12)], cost=20.0)
    found = {
        group.key: group.blocks.tolist() for group in regroups(blocks(low, high), window, block_rows=ROWS)
    }
    assert found == {(1,): list(range(15)), (2,): list(range(16, 32))}


def test_groups_cross_no_partition_and_share_no_block():
    partition = np.arange(200) % 3
    window = asked([(0.1, 0.12)], [(0.5, 0.55)], cost=20.0)
    found = regroups(overlapping(200), window, block_rows=ROWS, partition=partition, sizes=(16,))
    taken = np.concatenate([group.blocks for group in found])
    assert len(set(taken.tolist())) == taken.size > 100
    assert all(len(set(partition[group.blocks].tolist())) == 1 for group in found)


def test_larger_groups_are_taken_only_if_they_gain_a_tenth_more():
    few = asked([(0.1, 0.3)], cost=20.0)
    assert {len(group.blocks) for group in regroups(overlapping(256), few, block_rows=ROWS)} == {64}
    narrow = asked([(0.1, 0.1001)], cost=1.6)
    sizes = {
        len(group.blocks) for group in regroups(overlapping(256), narrow, block_rows=ROWS, sizes=(4, 64))
    }
    assert sizes == {64}


def test_several_boxes_of_one_query_read_a_block_once():
    both = Asked(
        low=np.array([[0.1], [0.5]]), high=np.array([[0.2], [0.6]]), query=np.array([0, 0]), cost=np.ones(1)
    )
    assert read_cost(overlapping(3), both).tolist() == [1.0, 1.0, 1.0]
    assert wasted(overlapping(1), both, [(0,)])[0, 0] == pytest.approx(0.8)
    made = sorted_groups(overlapping(10), np.arange(10)[None, :], (0,), ROWS)
    assert predicted_cost(made, both)[0] == 6.0  # cells that end where a box begins count


def test_queries_of_one_box_count_as_one_and_parts_do_not_change_sums(monkeypatch):
    rng = np.random.default_rng(7)
    low = rng.random((50, 2))
    window = Asked.of(np.vstack((low, low)), np.vstack((low, low)) + 0.2, np.ones(100))
    assert len(window) == 50
    table = blocks(rng.random((2, 30)) / 2, 0.5 + rng.random((2, 30)) / 2)
    whole = read_cost(table, window), wasted(table, window, [(0,), (0, 1)])
    monkeypatch.setattr("tblctl.selector.workload.asked._MOST_CELLS", 90)
    assert len(list(window.parts(30))) == 17
    np.testing.assert_allclose(read_cost(table, window), whole[0])
    np.testing.assert_allclose(wasted(table, window, [(0,), (0, 1)]), whole[1])


def test_predicted_bounds_are_quantiles_of_rows_that_spread_evenly():
    table = blocks([0, 0, 2], [1, 1, 4])
    made = sorted_groups(table, np.arange(3)[None, :], (0,), ROWS)
    assert made.edges[0][0].tolist() == [0.0, 0.5, 2.0, 4.0]
    assert (made.low[0, 0], made.high[0, 0]) == (0.0, 4.0)


def test_the_savings_of_queries_add_up_to_those_of_the_group():
    window = asked([(0.1, 0.12)], [(0.4, 0.9)], cost=20.0)
    table = overlapping()
    (group,) = regroups(table, window, block_rows=ROWS)
    found = savings(table, window, group, block_rows=ROWS)
    assert found.sum() == pytest.approx(group.before - group.after)
    assert found[0] > found[1]


def test_rows_that_arrive_are_sorted_if_that_pays():
    window, edges = asked([(0.1, 0.12)], cost=2.0), np.arange(8) / 8
    other, half = blocks(edges, edges + 1 / 8), blocks(edges / 2, 0.5 + edges)
    assert best_order(overlapping(), [half, other], window, sort_seconds=5) == 1
    assert best_order(overlapping(), [half, other], window, sort_seconds=15) is None
    assert best_order(other, [overlapping(), half], window, sort_seconds=0) is None


def test_rows_are_cut_into_blocks_of_one_size_whose_bounds_leave_out_nulls():
    values = np.array([[3.0, 1.0, np.nan, 2.0, 5.0, np.nan, np.nan]])
    made = blocks_in_order(values, np.array([1, 3, 0, 4, 2, 5, 6]), 3, rows=700.0, read_seconds=6.0)
    assert made.low[0].tolist() == [1.0, 3.0, np.inf]
    assert made.high[0].tolist() == [2.0, 5.0, -np.inf]
    assert read_cost(made, asked([(0.0, 9.0)])).tolist() == [2.0, 2.0, 0.0]


def test_columns_that_hardly_anybody_asks_for_are_no_keys():
    window = asked([(0.1, 0.2), None], [None, (0.1, 0.2)])
    rare = Asked.of(window.low, window.high, np.array([1.0, 0.01]))
    assert {window.candidate_keys(), rare.candidate_keys()} == {
        ((0,), (1,), (0, 1)),
        tuple(rare.candidate_keys()),
    }
    assert len(rare.candidate_keys()) == 1


def test_a_query_counts_half_after_so_many_others():
    assert recency([0, 384, 768]).tolist() == [1.0, 0.5, 0.25]


def test_of_too_many_queries_some_stand_for_all_with_all_their_boxes_and_all_of_the_cost():
    edges = np.arange(64.0).repeat(8)[:, None]
    cost = np.ones(64)
    cost[40] = 30.0
    window = Asked(low=edges, high=edges, query=np.arange(64).repeat(8), cost=cost)
    assert window.sampled(1_000)[0] is window
    found, numbers = window.sampled(100_000_000)
    assert len(found.query) <= 256
    assert np.bincount(found.query).tolist() == [8] * len(found)
    assert found.low[::8, 0].tolist() == numbers.tolist()
    assert 40 in numbers
    assert found.cost.sum() == pytest.approx(cost.sum())
    assert found.cost[numbers.tolist().index(40)] == pytest.approx(30, rel=0.1)


def test_queries_of_no_cost_are_all_kept():
    assert stand_ins(np.zeros(3), np.ones(3, np.int64), 1)[0].tolist() == [0, 1, 2]
