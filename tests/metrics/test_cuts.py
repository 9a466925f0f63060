"""Cuts of a table by another column, compared with rows counted one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.metrics.cuts import even_cuts, least_in_ranges, touched


def cut(blocks, rows, count, *, discrete=True):
    low, high = (np.array([block[side] for block in blocks], np.float64) for side in (0, 1))
    begin, end = even_cuts(
        low, high, np.array(rows, np.float64), cuts=np.linspace(0, sum(rows), count + 1), discrete=discrete
    )
    return list(zip(begin.tolist(), end.tolist(), strict=True))


def test_blocks_over_seven_values_are_cut_into_blocks_of_one_value_each():
    assert cut([(1, 7)] * 14, [10] * 14, 14) == [(value, value) for value in range(1, 8) for _ in range(2)]


def test_a_value_that_a_cut_goes_through_is_in_both_blocks():
    assert cut([(1, 3)], [30], 2) == [(1, 2), (2, 3)]


def test_sorted_blocks_stay_as_they_are():
    assert cut([(0, 9), (10, 19), (20, 29)], [5, 5, 5], 3) == [(0, 9), (10, 19), (20, 29)]


def test_a_full_part_of_the_line_is_cut_finer():
    assert cut([(0, 99), (100, 199)], [30, 10], 4) == [(0, 33), (33, 66), (66, 99), (100, 199)]


def test_floats_are_cut_between_values_and_one_value_fills_whole_blocks():
    assert cut([(0.0, 1.0), (5.0, 5.0)], [10, 10], 4, discrete=False) == [
        pytest.approx((0, 0.5)),
        pytest.approx((0.5, 1)),
        (5, 5),
        (5, 5),
    ]


@given(
    blocks=st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 50)), min_size=1, max_size=10
    ),
    count=st.integers(1, 12),
)
def test_cuts_hold_all_values_and_as_many_rows_each(blocks, count):
    ends = [(min(a, b), max(a, b)) for a, b, _ in blocks]
    rows = [row_count for _, _, row_count in blocks]
    found = cut(ends, rows, count)
    assert found[0][0] == min(low for low, _ in ends)
    assert found[-1][1] == max(high for _, high in ends)
    assert all(low <= high for low, high in found)
    assert all(one[0] <= other[0] and one[1] <= other[1] for one, other in itertools.pairwise(found))
    share = sum(rows) / count
    for low, high in found:
        within = sum(
            row_count * max(0, min(high, b) - max(low, a) + 1) / (b - a + 1)
            for (a, b), row_count in zip(ends, rows, strict=True)
        )
        assert within >= share - 1e-3


@given(st.data())
def test_touched_ranges_are_those_that_meet_the_block(data):
    edges = sorted(data.draw(st.lists(st.integers(0, 30), min_size=2, max_size=12)))
    low, high = np.array(edges[:-1], np.float64), np.array(edges[1:], np.float64)
    ends = sorted(data.draw(st.tuples(st.integers(edges[0], edges[-1]), st.integers(edges[0], edges[-1]))))
    first, last = touched(np.array([ends[0]], float), np.array([ends[1]], float), low, high)
    meeting = np.flatnonzero((low <= ends[1]) & (high >= ends[0]))
    assert (int(first[0]), int(last[0])) == (meeting[0], meeting[-1])


@given(st.data())
def test_least_in_ranges_agrees_with_looking_at_every_place(data):
    size = data.draw(st.integers(1, 40))
    place = st.integers(0, size - 1)
    ranges = data.draw(st.lists(st.tuples(place, place, st.integers(-50, 50)), max_size=20))
    first = np.array([min(a, b) for a, b, _ in ranges], np.int64)
    last = np.array([max(a, b) for a, b, _ in ranges], np.int64)
    values = np.array([value for _, _, value in ranges], np.int64)
    expected = [min([99, *values[(first <= at) & (last >= at)].tolist()]) for at in range(size)]
    assert least_in_ranges(values, first, last, size, start=99).tolist() == expected
