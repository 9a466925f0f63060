"""Box depth and shares read, compared with a model that looks at every pair of blocks and at every place of a range."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.metrics.boxes import (
    Boxes,
    _noise,
    best_share,
    box_depths,
    box_figures,
    range_shares,
    shares_of_groups,
)
from tblctl.metrics.intervals import rounded_mean


def made(ends, rows=None, partition=None):
    """Return the boxes of blocks, each a list of (low, high), one a column, with dense ranks."""
    count = len(ends)
    lows, highs = [], []
    for column in range(len(ends[0]) if ends else 2):
        both = np.array([[block[column][side] for block in ends] for side in (0, 1)], np.int64).reshape(-1)
        ranks = np.unique(both, return_inverse=True)[1].astype(np.int64)
        lows.append(ranks[:count])
        highs.append(ranks[count:])
    return Boxes(
        low=tuple(lows),
        high=tuple(highs),
        row_count=np.array(rows or [1] * count, np.int64),
        partition=np.array(partition or [0] * count, np.int64),
    )


def plain_depths(boxes):
    columns = list(zip(boxes.low, boxes.high, strict=True))
    return [
        sum(
            boxes.partition[other] == boxes.partition[block]
            and all(2 * low[other] <= low[block] + high[block] <= 2 * high[other] for low, high in columns)
            for other in range(boxes.row_count.size)
        )
        for block in range(boxes.row_count.size)
    ]


def all_depths(boxes):
    return box_depths(boxes, np.arange(boxes.row_count.size)).tolist()


@st.composite
def some_boxes(draw, most=90):
    """Up to `most` blocks in 1 to 4 columns and 1 to 3 partitions: more than one word of 64 holds."""
    seed, count = draw(st.integers(0, 2**32 - 1)), draw(st.integers(1, most))
    columns, partitions = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    span, longest = draw(st.sampled_from([3, 40, 1000])), draw(st.sampled_from([1, 20, 1000]))
    rng = np.random.default_rng(seed)
    low = rng.integers(0, span, (count, columns))
    ends = np.stack((low, low + rng.integers(0, longest, (count, columns))), axis=2)
    return made(
        ends.tolist(), rng.integers(0, 9, count).tolist(), rng.integers(0, partitions, count).tolist()
    )


@given(some_boxes())
def test_box_depths_are_those_of_every_pair_of_blocks(boxes):
    assert all_depths(boxes) == plain_depths(boxes)


@given(some_boxes(), st.integers(1, 9))
def test_depths_of_some_centres_are_those_they_have_among_all(boxes, step):
    centres = np.arange(0, boxes.row_count.size, step)
    assert box_depths(boxes, centres).tolist() == plain_depths(boxes)[::step]


def test_more_boxes_than_are_prepared_at_once_are_all_counted(monkeypatch):
    monkeypatch.setattr("tblctl.metrics.boxes._BATCH", 2)
    rng = np.random.default_rng(3)
    low = rng.integers(0, 50, (500, 2))
    boxes = made(np.stack((low, low + rng.integers(0, 20, (500, 2))), axis=2).tolist())
    assert all_depths(boxes) == plain_depths(boxes)


@given(some_boxes())
def test_figures_of_depth_are_those_of_rows_counted_one_by_one(boxes):
    found = box_figures("abcd"[: len(boxes.low)], boxes).depth
    weights = np.maximum(boxes.row_count, 1).tolist()
    depths = sorted(
        itertools.chain.from_iterable(
            [depth] * rows for depth, rows in zip(plain_depths(boxes), weights, strict=True)
        )
    )
    assert found.mean == rounded_mean(sum(depths), len(depths))
    assert found.p99 == depths[math.ceil(0.99 * len(depths)) - 1]
    assert (found.max, found.sampled, found.standard_error) == (depths[-1], None, None)


def test_disjoint_boxes_have_the_depth_1():
    tiles = [[(10 * x, 10 * x + 9), (10 * y, 10 * y + 9)] for x in range(9) for y in range(9)]
    assert all_depths(made(tiles)) == [1] * 81


def test_boxes_that_meet_in_one_column_only_do_not_count():
    assert all_depths(made([[(0, 9), (0, 9)], [(0, 9), (10, 19)], [(20, 29), (0, 9)]])) == [1, 1, 1]


def test_a_box_around_others_counts_for_those_and_they_not_for_it():
    assert all_depths(made([[(0, 99), (0, 99)], [(1, 2), (1, 2)], [(97, 98), (97, 98)]])) == [1, 2, 2]


def test_blocks_of_other_partitions_do_not_count():
    same = [[(0, 9), (0, 9)]] * 3
    assert all_depths(made(same)) == [3, 3, 3]
    assert all_depths(made(same, partition=[4, 7, 4])) == [2, 1, 2]


def test_a_block_counts_by_its_rows():
    boxes = made([[(0, 9), (0, 9)], [(0, 9), (0, 9)], [(20, 29), (20, 29)]], [1, 1, 98])
    found = box_figures("ab", boxes).depth
    assert (found.mean, found.p99, found.max) == (1.02, 2, 2)
    assert box_figures("ab", made([[(0, 9), (0, 9)]] * 2, [1, 3])).depth.mean == 2.0


def test_samples_of_boxes_of_one_depth_have_no_error():
    tiles = [[(10 * x, 10 * x + 9), (10 * y, 10 * y + 9)] for x in range(9) for y in range(9)]
    found = box_figures("ab", made(tiles), exact=80, samples=20).depth
    assert found.to_dict() == {"mean": 1.0, "p99": 1, "max": 1, "sampled": 20, "standard_error": 0.0}


def test_samples_are_of_rows_and_their_error_is_stated():
    rng = np.random.default_rng(11)
    low = rng.integers(0, 4000, (2000, 2))
    boxes = made(
        np.stack((low, low + rng.integers(0, 400, (2000, 2))), axis=2).tolist(),
        rng.integers(1, 99, 2000).tolist(),
    )
    exact = box_figures("ab", boxes).depth
    found = box_figures("ab", boxes, exact=1999, samples=500).depth
    assert found.sampled == 500
    assert 0 < found.standard_error < 0.1 * exact.mean
    assert abs(found.mean - exact.mean) < 3 * found.standard_error
    assert exact.mean < found.p99 <= found.max <= exact.max


def test_blocks_that_are_listed_run_by_run_are_not_sampled_at_one_place_of_each_run():
    """Every tenth block is deep: samples at even distances would meet all of these, or none."""
    ends = [
        [(0, 9), (0, 9)] if place % 10 == 0 else [(10 * place, 10 * place + 9)] * 2 for place in range(3000)
    ]
    exact = box_figures("ab", made(ends)).depth.mean
    found = box_figures("ab", made(ends), exact=1, samples=300).depth
    assert exact == pytest.approx(30.9, abs=0.5)
    assert abs(found.mean - exact) < 3 * found.standard_error


def test_samples_are_drawn_with_the_published_numbers_of_splitmix():
    first = [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]  # of seed 0
    assert _noise(2).tolist() == [(number >> 11) / 2**53 for number in first]


def plain_rows(low, high, weights):
    """Return the rows of each rank and gap between ranks (rank + 0.5), as blocks spread theirs step by step."""
    inside = [
        [low_ + 0.5 + place for place in range(high_ - low_)] or [low_]
        for low_, high_ in zip(low, high, strict=True)
    ]
    rows = dict.fromkeys(itertools.chain.from_iterable(inside), 0.0)
    for places, weight in zip(inside, weights, strict=True):
        for place in places:
            rows[place] += weight / len(places)
    for _ in range(5):
        spread = dict.fromkeys(rows, 0.0)
        for low_, high_, weight in zip(low, high, weights, strict=True):
            mine = [place for place in rows if low_ <= place <= high_]
            total = sum(rows[place] for place in mine)
            for place in mine:
                spread[place] += weight * rows[place] / total
        rows = spread
    return rows


def plain_shares(boxes, selectivity, places=500):
    """Return the share of blocks that ranges meet, which begin at `places` of the rows of each column, and go round."""
    weights = np.maximum(boxes.row_count, 1).tolist()
    chances = []
    for low, high in zip(boxes.low, boxes.high, strict=True):
        rows = plain_rows(low.tolist(), high.tolist(), weights)
        before = [sum(rows[place] for place in rows if place < end) / sum(weights) for end in low]
        up_to = [sum(rows[place] for place in rows if place <= end) / sum(weights) for end in high]
        begins = (np.arange(places) + 0.5) / places
        met = np.zeros((low.size, places), bool)
        for turn in (0, 1):
            met |= (begins <= np.array(up_to)[:, None] + turn) & (
                begins + selectivity >= np.array(before)[:, None] + turn
            )
        chances.append(met.mean(axis=1))
    return [*(float(chance.mean()) for chance in chances), float(np.prod(chances, axis=0).mean())]


@given(some_boxes(most=6), st.sampled_from([0.01, 0.3, 1.0]))
def test_shares_read_are_those_of_ranges_at_all_places(boxes, selectivity):
    assert range_shares(boxes, selectivity) == pytest.approx(plain_shares(boxes, selectivity), abs=0.01)


@pytest.mark.parametrize("size", [1, 2, 7, 9, 200])
def test_groups_measured_together_have_the_shares_of_each_bit_for_bit(size):
    rng = np.random.default_rng(size)
    ends = np.sort(rng.integers(0, 10 ** rng.integers(1, 7, (40 * size, 1, 1)), (40 * size, 3, 2)), axis=2)
    together = made(ends.tolist(), rows=rng.integers(0, 10_000, 40 * size).tolist())
    found = shares_of_groups(together, size, 0.01)
    for number, shares in enumerate(found.tolist()):
        some = slice(number * size, (number + 1) * size)
        alone = Boxes(
            low=tuple(low[some] for low in together.low),
            high=tuple(high[some] for high in together.high),
            row_count=together.row_count[some],
            partition=together.partition[some],
        )
        assert shares == range_shares(alone, 0.01)


def test_a_grid_reads_the_best_share_of_its_size():
    for columns, side in ((2, 9), (3, 4), (4, 3)):
        tiles = [
            [(10 * x, 10 * x + 10) for x in place] for place in itertools.product(range(side), repeat=columns)
        ]
        found = box_figures("abcd"[:columns], made(tiles), selectivity=0.05)
        for read in found.reads:
            assert read.share == pytest.approx(read.best)
        assert [read.columns for read in found.reads] == [
            *map(tuple, "abcd"[:columns]),
            tuple("abcd"[:columns]),
        ]


def test_blocks_sorted_by_one_column_read_all_by_the_other():
    slices = [[(10 * x, 10 * x + 9), (0, 9)] for x in range(100)]
    one, other, both = (read.share for read in box_figures("ab", made(slices)).reads)
    assert (one, other, both) == (pytest.approx(0.02), 1.0, pytest.approx(0.02))


def test_blocks_of_unsorted_rows_read_nearly_all_although_their_ends_differ():
    rng = np.random.default_rng(5)
    ends = [[(low, 10**6 - high)] * 2 for low, high in rng.integers(0, 1000, (500, 2)).tolist()]
    one, other, both = range_shares(made(ends), 0.01)
    assert min(one, other) > 0.9
    assert both > 0.8


def test_the_rows_of_one_value_are_one_place():
    """Half of the rows have the value 5: a range that touches it reads all its blocks."""
    ends = [[(5, 5)]] * 5 + [[(10 + x, 11 + x)] for x in range(0, 10, 2)]
    assert range_shares(made(ends), 0.01) == [pytest.approx((0.51 + 0.11) / 2)] * 2


@given(some_boxes(), st.floats(0.001, 1))
def test_more_columns_with_ranges_never_read_more(boxes, selectivity):
    *alone, together = range_shares(boxes, selectivity)
    assert 0 < together <= min(alone) <= max(alone) <= 1


def test_the_best_share_is_the_formula():
    assert best_share(10_000, 2, 1, 0.01) == pytest.approx((0.01 * 100 + 1) / 100)
    assert best_share(10_000, 2, 2, 0.01) == pytest.approx((0.01 * 100 + 1) ** 2 / 10_000)
    assert best_share(10_000, 4, 2, 0.01) == pytest.approx((0.01 * 10 + 1) ** 2 / 100)
    assert best_share(1, 2, 2, 0.01) == 1.0
    assert best_share(100, 2, 2, 1.0) == 1.0


def test_no_blocks_have_figures_of_0():
    found = box_figures("ab", made([]))
    assert (found.total_block_count, found.depth.mean, found.depth.p99, found.depth.max) == (0, 0.0, 0, 0)
    assert [(read.share, read.best) for read in found.reads] == [(0.0, 0.0)] * 3


def test_blocks_of_unknown_bounds_are_counted_and_no_figure_is_of_them():
    found = box_figures("ab", made([[(0, 9), (0, 9)]] * 2), unknown=3)
    assert (found.total_block_count, found.unknown_block_count, found.depth.mean) == (5, 3, 2.0)
    assert found.reads[0].best == best_share(2, 2, 1, 0.01)


def test_figures_are_unknown_if_all_bounds_are():
    found = box_figures("ab", made([]), unknown=3)
    assert (found.total_block_count, found.depth.mean, found.depth.p99, found.depth.max) == (
        3,
        None,
        None,
        None,
    )
    assert [(read.share, read.best) for read in found.reads] == [(None, None)] * 3


def test_figures_are_json():
    assert box_figures("ab", made([[(0, 9), (0, 9)]])).to_dict() == {
        "columns": ["a", "b"],
        "total_block_count": 1,
        "unknown_block_count": 0,
        "depth": {"mean": 1.0, "p99": 1, "max": 1, "sampled": None, "standard_error": None},
        "selectivity": 0.01,
        "reads": [
            {"columns": ["a"], "share": 1.0, "best": 1.0},
            {"columns": ["b"], "share": 1.0, "best": 1.0},
            {"columns": ["a", "b"], "share": 1.0, "best": 1.0},
        ],
    }


def test_shares_of_more_boxes_than_are_counted_are_those_of_some():
    slices = made([[(10 * x, 10 * x + 9), (0, 9)] for x in range(1000)])
    assert [read.share for read in box_figures("ab", slices, exact=100, samples=10).reads] == pytest.approx(
        [0.02, 1.0, 0.02]
    )


def test_wrong_arrays_are_refused():
    one = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="one length"):
        Boxes(low=(one,), high=(one,), row_count=np.zeros(2, np.int64), partition=one)
    with pytest.raises(ValueError, match="low must be at most high"):
        Boxes(low=(one + 1,), high=(one,), row_count=one, partition=one)
