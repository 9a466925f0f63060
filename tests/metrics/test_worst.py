"""The deepest ranges: disjoint, deepest first, with every block that reaches into them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.metrics.worst import deepest_hills

BLOCKS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    max_size=25,
)


def hills_of(blocks, limit=5):
    low = np.array([block[0] for block in blocks], np.int64)
    high = np.array([block[1] for block in blocks], np.int64)
    return [
        (hill.low, hill.high, hill.depth, np.flatnonzero(hill.blocks).tolist())
        for hill in deepest_hills(low, high, limit)
    ]


def depth_at(blocks, point):
    return sum(low <= point <= high for low, high in blocks)


def test_blocks_apart_have_no_worst_range():
    assert hills_of([]) == []
    assert hills_of([(1, 2), (3, 4)]) == []


def test_neighbours_that_share_a_key_are_worst_at_that_key_alone():
    assert hills_of([(1, 5), (5, 9)]) == [(5, 5, 2, [0, 1])]


def test_a_range_reaches_as_far_as_the_depth_stays_above_half_and_is_one_for_a_bumpy_top():
    blocks = [(0, 20), (5, 12), (6, 14), (13, 15), (40, 50), (45, 60)]
    assert hills_of(blocks) == [(5, 15, 3, [0, 1, 2, 3]), (45, 50, 2, [4, 5])]


def test_the_shoulders_of_a_range_are_left_out_but_not_with_a_block_of_their_own():
    blocks = [(0, 10), (0, 10), (5, 6), (5, 6)]
    assert hills_of(blocks) == [(5, 6, 4, [0, 1, 2, 3])]
    assert hills_of([*blocks, (10, 12)])[1:] == [(10, 10, 3, [0, 1, 4])]


def test_equally_deep_ranges_come_in_key_order_and_no_more_than_asked_for():
    blocks = [(point, point) for point in range(0, 40, 2) for _ in range(2)]
    assert [hill[0] for hill in hills_of(blocks, limit=3)] == [0, 2, 4]


@given(blocks=BLOCKS)
def test_ranges_are_disjoint_deepest_first_and_tell_all_their_blocks(blocks):
    hills = hills_of(blocks, limit=100)
    for low, high, depth, members in hills:
        assert depth == max(depth_at(blocks, point) for point in range(low, high + 1))
        assert members == [i for i, (a, b) in enumerate(blocks) if a <= high and b >= low]
        assert all(2 * depth_at(blocks, point) > depth for point in range(low, high + 1))
    assert [hill[2] for hill in hills] == sorted((hill[2] for hill in hills), reverse=True)
    spans = sorted((low, high) for low, high, _, _ in hills)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(spans))
    covered = {point for low, high, _, _ in hills for point in range(low, high + 1)}
    ends = {end for block in blocks for end in block}
    for point in ends - covered:
        sharing = {i for i, (low, high) in enumerate(blocks) if low <= point <= high}
        assert len(sharing) < 2 or any(sharing <= set(members) for _, _, _, members in hills)
    if hills:
        assert hills[0][2] == max(depth_at(blocks, point) for point in ends)


def test_a_low_above_its_high_is_refused():
    with pytest.raises(ValueError, match="above"):
        hills_of([(2, 1)])
