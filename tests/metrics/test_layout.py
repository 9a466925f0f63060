"""The places and depths of blocks in a picture."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.metrics.intervals import depth_curve
from tblctl.metrics.layout import LAST_LEVEL, density, first_ranks, lay_out

BLOCKS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(-1, 9)).map(
        lambda t: (t[0], t[0] + t[1], t[2])
    ),
    min_size=1,
    max_size=40,
)


def arrays(blocks):
    low, high, level = np.array(blocks, dtype=np.int64).reshape(-1, 3).T
    return low, high, level


def test_bands_lie_from_constant_over_the_highest_level_up_to_new_blocks_each_in_key_order():
    low, high, level = arrays(
        [(5, 6, 0), (0, 9, 0), (0, 3, 0), (4, 4, 3), (0, 1, 1), (2, 2, -1), (1, 2, 8), (0, 0, 7)]
    )
    bands = lay_out(low, high, level, rank_count=10, columns=10)
    assert [(band.level, band.members.tolist()) for band in bands] == [
        (-1, [5]),
        (LAST_LEVEL, [7, 6]),
        (3, [3]),
        (1, [4]),
        (0, [2, 1, 0]),
    ]


@given(BLOCKS)
def test_bands_fill_the_height_without_overlapping_and_hold_every_block_once(blocks):
    bands = lay_out(*arrays(blocks), rank_count=41, columns=41)
    assert bands[0].bottom == 0
    assert bands[-1].top == pytest.approx(1)
    for lower, upper in itertools.pairwise(bands):
        assert lower.bottom < lower.top < upper.bottom < upper.top
    assert sorted(np.concatenate([band.members for band in bands]).tolist()) == list(range(len(blocks)))


def test_a_level_of_one_block_among_a_million_can_be_seen():
    low = np.arange(1_000_000)
    level = np.zeros(low.size, dtype=np.int64)
    level[7] = 1
    bands = lay_out(low, low, level, rank_count=low.size, columns=400)
    assert bands[0].top - bands[0].bottom > 0.05


@given(BLOCKS, st.integers(1, 41))
def test_the_bands_depths_add_up_to_the_greatest_depth_in_each_column(blocks, columns):
    low, high, level = arrays(blocks)
    bands = lay_out(low, high, level, rank_count=41, columns=columns)
    total = np.sum([band.depths for band in bands], axis=0)
    at_rank = [int(((low <= rank) & (rank <= high)).sum()) for rank in range(41)]
    begins = first_ranks(41, columns)
    assert total.tolist() == [max(at_rank[a:b]) for a, b in itertools.pairwise(begins)]
    assert total.max() == depth_curve(low, high).depths.max()


@given(BLOCKS, st.integers(1, 12), st.integers(1, 41))
def test_a_cell_of_a_density_is_the_weight_of_the_blocks_of_its_row_that_touch_its_column(
    blocks, rows, columns
):
    low, high, _ = arrays(blocks)
    weights = np.arange(1, low.size + 1)
    begins = first_ranks(41, columns)
    expected = np.zeros((rows, columns))
    for block in range(low.size):
        for column in range(columns):
            if low[block] < begins[column + 1] and high[block] >= begins[column]:
                expected[block * rows // low.size, column] += weights[block]
    found = density(low, high, weights, rank_count=41, rows=rows, columns=columns)
    assert found.tolist() == expected.tolist()


def test_no_blocks_have_no_bands():
    none = np.zeros(0, dtype=np.int64)
    assert lay_out(none, none, none, rank_count=1, columns=1) == ()
