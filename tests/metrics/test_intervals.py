"""Overlap and depth against a model that looks at every pair of blocks."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.metrics.intervals import (
    depth_curve,
    depths,
    grouped_selection_depths,
    overlaps,
    overlaps_and_depths,
    rounded_mean,
    selection_depth_curve,
    selection_depths,
)

INT64 = (-(2**63), 2**63 - 1)


def ordered(ends):
    return tuple(sorted(ends))


def blocks_of(ranks):
    return st.lists(st.tuples(ranks, ranks).map(ordered), max_size=12)


# Few ranks make blocks touch, nest and repeat; many are sorted instead of counted.
some_blocks = st.one_of(
    blocks_of(st.integers(0, 5)),
    blocks_of(st.integers(-9, 9).map(lambda rank: rank * 1000)),
    blocks_of(st.integers(*INT64)),
)


def arrays(blocks):
    pairs = np.array(blocks, np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def plain_depth(point, blocks):
    return sum(low <= point <= high for low, high in blocks)


def plain_selection_depth(point, blocks):
    here = [block for block in blocks if block[0] <= point <= block[1]]
    if len(here) == 2 and here[0] != here[1]:
        first, second = sorted(here)
        if first[1] == point == second[0]:
            return 1
    return len(here)


@given(some_blocks.filter(len), st.randoms())
def test_every_point_of_a_curve_has_its_number(blocks, random):
    curve = depth_curve(*arrays(blocks))
    numbers = random.choices(range(curve.points.size), k=9)
    assert curve.numbers(curve.points[numbers]).tolist() == numbers


def plain_curve(point_depth, blocks):
    return [
        (point, point_depth(point, blocks)) for point in sorted({end for block in blocks for end in block})
    ]


def plain_block_depths(point_depth, blocks):
    curve = plain_curve(point_depth, blocks)
    return [max(depth for point, depth in curve if low <= point <= high) for low, high in blocks]


def plain_overlaps(blocks):
    return [sum(a[0] <= b[1] and b[0] <= a[1] for b in blocks) - 1 for a in blocks]


def pairs_of(curve):
    return list(zip(curve.points.tolist(), curve.depths.tolist(), strict=True))


@given(some_blocks)
def test_overlaps_and_depths_are_those_of_the_plain_model(blocks):
    low, high = arrays(blocks)
    assert overlaps(low, high).tolist() == plain_overlaps(blocks)
    assert depths(low, high).tolist() == plain_block_depths(plain_depth, blocks)
    assert pairs_of(depth_curve(low, high)) == plain_curve(plain_depth, blocks)
    both = overlaps_and_depths(low, high)
    assert [part.tolist() for part in both] == [overlaps(low, high).tolist(), depths(low, high).tolist()]


@given(some_blocks)
def test_selection_depths_are_those_of_the_plain_model(blocks):
    low, high = arrays(blocks)
    assert selection_depths(low, high).tolist() == plain_block_depths(plain_selection_depth, blocks)
    assert pairs_of(selection_depth_curve(low, high)) == plain_curve(plain_selection_depth, blocks)


@given(
    st.lists(blocks_of(st.integers(-9, 9)).filter(len), max_size=5),
    st.sampled_from([1, 1000]),
    st.randoms(),
)
def test_selection_depths_of_groups_are_those_of_each_by_itself(groups, step, random):
    blocks = [(number, low * step, high * step) for number, some in enumerate(groups) for low, high in some]
    random.shuffle(blocks)
    group = np.array([number for number, *_ in blocks], np.int64)
    low, high = arrays([ends for _, *ends in blocks])
    found, curves = grouped_selection_depths(low, high, group)
    for number in range(len(groups)):
        of_group = low[group == number], high[group == number]
        assert found[group == number].tolist() == selection_depths(*of_group).tolist()
        assert pairs_of(curves.of(number)) == pairs_of(selection_depth_curve(*of_group))


@given(some_blocks)
def test_figures_keep_their_bounds(blocks):
    low, high = arrays(blocks)
    overlap, depth, selection = overlaps(low, high), depths(low, high), selection_depths(low, high)
    assert overlap.sum() % 2 == 0, "every overlap has two sides"
    assert (depth <= overlap + 1).all()
    assert (selection >= 1).all()
    assert (selection <= depth).all()
    assert ((depth == 1) == (overlap == 0)).all()
    assert overlap.dtype == depth.dtype == selection.dtype == np.int64


@given(some_blocks, st.randoms(use_true_random=False))
def test_the_order_of_blocks_does_not_matter(blocks, random):
    order = random.sample(range(len(blocks)), len(blocks))
    low, high = arrays(blocks)
    for figure in (overlaps, depths, selection_depths):
        assert figure(low, high)[order].tolist() == figure(low[order], high[order]).tolist()


@given(some_blocks)
def test_the_direction_of_the_key_does_not_matter(blocks):
    low, high = arrays(blocks)
    turned_low, turned_high = ~high, ~low  # ~x = -x - 1 turns the order round and cannot overflow
    for figure in (overlaps, depths, selection_depths):
        assert figure(low, high).tolist() == figure(turned_low, turned_high).tolist()


@given(some_blocks)
def test_gaps_between_ranks_mean_nothing(blocks):
    low, high = arrays(blocks)
    _, places = np.unique(np.concatenate((low, high)), return_inverse=True)
    for figure in (overlaps, depths, selection_depths):
        assert figure(low, high).tolist() == figure(places[: low.size], places[low.size :]).tolist()


@given(some_blocks, st.tuples(st.integers(0, 5), st.integers(0, 5)).map(ordered))
def test_one_more_block_lowers_no_figure(blocks, added):
    low, high = arrays(blocks)
    more_low, more_high = arrays([*blocks, added])
    for figure in (overlaps, depths, selection_depths):
        assert (figure(more_low, more_high)[: low.size] >= figure(low, high)).all()


@pytest.mark.parametrize(
    ("blocks", "selection"),
    [
        ([(1, 3), (3, 5), (5, 7)], [1, 1, 1]),  # golden/recluster.json "touching_is_not_overlap"
        ([(1, 5), (5, 5)], [1, 1]),
        ([(5, 5), (5, 9)], [1, 1]),
        ([(5, 5), (5, 5)], [2, 2]),
        ([(1, 9), (5, 5)], [2, 2]),
        ([(1, 5), (1, 5)], [2, 2]),
        ([(1, 5), (5, 5), (5, 9)], [3, 3, 3]),
        ([(1, 5), (3, 5), (5, 9)], [3, 3, 3]),
        ([(1, 5), (5, 9), (5, 9)], [3, 3, 3]),
        ([(0, 9), (1, 5), (5, 9)], [3, 3, 3]),
        ([(1, 9), (5, 5), (5, 8)], [3, 3, 3]),
        ([(7, 7)], [1]),
        ([], []),
    ],
)
def test_only_two_neighbours_that_share_one_key_touch(blocks, selection):
    assert selection_depths(*arrays(blocks)).tolist() == selection


def test_a_sorted_run_has_selection_depth_1_however_its_blocks_touch():
    low = np.arange(0, 1000, dtype=np.int64)
    assert set(selection_depths(low, low + 1).tolist()) == {1}
    assert set(depths(low, low + 1).tolist()) == {2}


def test_every_length_of_a_range_finds_its_maximum():
    # Blocks [0,0], [1,1] .. of growing count under one wide block each: all levels of the sparse table are asked.
    size = 70
    heights = (np.arange(size) * 37) % 23  # a value that jumps from point to point
    points = np.repeat(np.arange(size), heights)
    first, last = np.triu_indices(size)
    low = np.concatenate((points, first)).astype(np.int64)
    high = np.concatenate((points, last)).astype(np.int64)
    curve = depth_curve(low, high)
    assert curve.points.tolist() == list(range(size))
    expected = [int(curve.depths[a : b + 1].max()) for a, b in zip(low, high, strict=True)]
    assert depths(low, high).tolist() == expected


@pytest.mark.parametrize("spread", [1, 10**12], ids=["dense ranks", "sparse ranks"])
def test_a_hundred_thousand_blocks(spread):
    rng = np.random.default_rng(20)
    low = rng.integers(0, 200_000, 100_000)
    high = low + rng.integers(0, 50, low.size)
    overlap, depth = overlaps_and_depths(low * spread, high * spread)
    selection = selection_depths(low * spread, high * spread)
    for block in rng.integers(0, low.size, 20):
        near = (low <= high[block]) & (high >= low[block])
        assert overlap[block] == near.sum() - 1
        inside = range(low[block], high[block] + 1)
        neighbours = list(zip(low[near].tolist(), high[near].tolist(), strict=True))
        assert depth[block] == max(plain_depth(point, neighbours) for point in inside)
        assert selection[block] == max(plain_selection_depth(point, neighbours) for point in inside)


def test_the_widest_ranges_do_not_overflow():
    low, high = np.array([INT64[0], INT64[0], INT64[1]]), np.array([INT64[1], INT64[0], INT64[1]])
    assert depths(low, high).tolist() == [2, 2, 2]
    assert overlaps(low, high).tolist() == [2, 1, 1]


@pytest.mark.parametrize("figure", [overlaps, depths, selection_depths, depth_curve, selection_depth_curve])
def test_a_range_that_ends_before_it_begins_is_refused(figure):
    with pytest.raises(ValueError, match="block 1 has its low 4 above its high 3"):
        figure(np.array([1, 4]), np.array([2, 3]))
    with pytest.raises(ValueError, match="of one length"):
        figure(np.array([1, 4]), np.array([2]))


@given(st.integers(0, 10**30), st.integers(1, 10**9))
def test_means_are_rounded_half_up_exactly(total, count):
    half_up = math.floor(Fraction(total, count) * 10_000 + Fraction(1, 2))
    assert rounded_mean(total, count) == float(Fraction(half_up, 10_000))


def test_a_half_is_rounded_up_where_python_rounds_it_to_even():
    assert round(1 / 32, 4) == 0.0312
    assert rounded_mean(1, 32) == 0.0313
    assert rounded_mean(4, 3) == 1.3333
    assert rounded_mean(0, 0) == 0.0


def test_dense_ranks_are_counted_and_sparse_ones_sorted_with_the_same_result():
    rng = np.random.default_rng(4)
    low = rng.integers(0, 50, 40)
    high = low + rng.integers(0, 9, 40)
    counted = [figure(low, high).tolist() for figure in (overlaps, depths, selection_depths)]
    apart = 10**6 * low, 10**6 * high
    assert [figure(*apart).tolist() for figure in (overlaps, depths, selection_depths)] == counted
