"""Predictions hold whatever the keys are, and are near on tables like real ones."""

from __future__ import annotations

import random
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.selector import predict
from tblctl.selector.plan import Range
from tblctl.selector.predict import most_extra
from tblctl.tableformat.model.options import TableOptions

from .simulate import SimTable
from .test_final import block_lists, options, policies, table_from


def is_unknown(table):
    return bool(table.blocks) and all(b.unclustered or b.unknown for b in table.blocks)


def assert_holds(table, policy="levels", **chosen_options):
    """Carry a plan out; return the relative error of the expected depth, None where nothing was done."""
    plan = table.plan(policy, **chosen_options)
    predicted = plan.predicted
    expected = (None, None) if is_unknown(table) else table.figures()
    assert (predicted.average_overlaps_before, predicted.average_depth_before) == expected
    table.merge(plan)
    overlaps, depth = table.figures()
    after = predicted.block_count_after
    assert after.low <= sum(not (b.unclustered or b.unknown) for b in table.blocks) <= after.high
    after = predicted.average_depth_after
    if is_unknown(table):
        assert (after, predicted.average_overlaps_after, plan.groups) == (None, None, ())
        return None
    assert after.low <= depth <= after.high
    assert predicted.average_overlaps_after.low <= overlaps <= predicted.average_overlaps_after.high
    return abs(after.expected - depth) / depth if plan.groups else None


@settings(max_examples=cases(500), deadline=None)
@given(block_lists, options, policies)
def test_the_range_holds_what_is_measured(blocks, chosen_options, policy):
    table = table_from(*blocks)
    for _ in range(4):
        assert_holds(table, policy, **chosen_options)


@settings(max_examples=cases(300), deadline=None)
@given(block_lists, options, policies)
def test_blocks_that_a_merge_does_not_reach_need_not_be_measured_again(blocks, chosen_options, policy):
    table = table_from(*blocks)
    quick = table.plan(policy, **chosen_options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict, "_meet", lambda low, *_, **__: np.ones(low.size, np.bool_))
        assert table.plan(policy, **chosen_options) == quick


repeating = st.lists(  # blocks that cuts have slack in: lists of keys from ranges of different sizes
    st.sampled_from([1, 3, 12, 60, 10_000]).flatmap(
        lambda several: st.lists(st.integers(0, several), min_size=1, max_size=40)
    ),
    min_size=2,
    max_size=12,
)


@settings(max_examples=cases(400), deadline=None)
@given(repeating, st.integers(20, 60), st.booleans(), policies, st.integers(150, 2_000))
def test_the_range_holds_where_cuts_move_to_the_ends_of_keys(
    blocks, block_rows, counted, policy, block_bytes
):
    table = SimTable(block_rows=block_rows, keys_are_counted=counted).append(*blocks)
    for chosen in ({"max_blocks": 5}, {}, {"threshold": 1}):
        assert_holds(table, policy, **chosen)
    table = SimTable(block_rows=block_rows, block_bytes=block_bytes, keys_are_counted=counted).append(*blocks)
    table.width = lambda key: 3 + key % 13
    assert_holds(table, policy)


def test_merged_blocks_surely_share_no_key_where_no_key_has_more_rows_than_the_slack():
    table = SimTable(block_rows=1_000)
    rng = random.Random(0)
    table.append(*[rng.sample(range(2_000), 200) for _ in range(40)])
    predicted = table.plan().predicted
    assert predicted.average_depth_after == Range(low=1, expected=1, high=1)
    assert predicted.block_count_after == Range(low=9, expected=9, high=9), "8 would leave no slack"
    assert assert_holds(table) == 0


def test_merged_blocks_may_share_keys_where_it_is_not_known_how_often_they_repeat():
    rng = random.Random(0)
    blocks = [[rng.randrange(2_000) for _ in range(200)] for _ in range(61)]
    predicted = SimTable(block_rows=1_000, keys_are_counted=False).append(*blocks).plan().predicted
    assert predicted.block_count_after == Range(low=13, expected=13, high=13)
    assert predicted.average_depth_after.low == 1
    assert predicted.average_depth_after.high == 13


def test_no_more_merged_blocks_share_a_key_than_its_rows_reach():
    blocks = [[*range(n, n + 900, 10), *[450] * 10] for n in range(40)]  # 450 has at least 400 of 4,000 rows
    table = SimTable(block_rows=100).append(*blocks)
    assert table.plan().predicted.average_depth_after.high <= 2 + 438 // 100
    assert assert_holds(table) is not None


widths = st.lists(st.sampled_from([0, 1, 8, 8, 8, 30, 99, 400]), min_size=1, max_size=41)


@settings(max_examples=cases(500), deadline=None)
@given(block_lists, options, policies, st.integers(1, 200), widths)
def test_the_range_holds_where_rows_differ_in_width(blocks, chosen_options, policy, block_bytes, widths):
    table = table_from(*blocks)
    table.width = lambda key: widths[key % len(widths)]
    table.block_bytes = block_bytes
    for _ in range(4):
        assert_holds(table, policy, **chosen_options)


def test_where_a_merge_takes_less_than_a_block_the_widths_of_rows_do_not_matter():
    blocks = [list(range(n, 100 + n, 4)) for n in range(4)]
    even = SimTable(block_rows=20, block_bytes=1001).append(*blocks).plan().predicted
    assert even.block_count_after == Range(low=5, expected=5, high=5)
    assert even == SimTable(block_rows=20).append(*blocks).plan().predicted
    tight = SimTable(block_rows=20, block_bytes=999).append(*blocks).plan().predicted
    assert tight.block_count_after == Range(low=5, expected=5, high=7)
    assert tight.average_depth_after.high > even.average_depth_after.high


@pytest.mark.parametrize(
    ("rows", "decoded", "pieces", "extra"),
    [(10, 80, 1, 0), (10, 81, 1, 2), (10, 160, 1, 2), (10, 161, 2, 4), (3, 1000, 1, 2), (3, 10_000, 3, 0)],
)
def test_a_merge_has_at_most_so_many_blocks_beyond_its_pieces(rows, decoded, pieces, extra):
    found = most_extra(
        np.array([rows]),
        np.array([decoded]),
        np.array([pieces]),
        TableOptions(block_rows=10, block_bytes=100),
    )
    assert found.tolist() == [extra]


def arrivals(kind, rng):
    """Return a table of 60 arriving blocks of 200 rows, their keys spread in a way that tables have."""
    table = SimTable(block_rows=200)
    for number in range(60):
        centre = number * 1000
        draw = {
            "uniform": lambda: rng.randrange(10**9),
            "dates": lambda: rng.randrange(250),
            "late": lambda c=centre: c + round(rng.expovariate(1 / 3000)),
            "late dates": lambda c=centre: (c + round(rng.expovariate(1 / 3000))) // 400,
            "skewed": lambda: round(rng.paretovariate(1.2) * 1000),
            "mixed": lambda c=centre: (
                rng.randrange(60_000) if rng.random() < 0.02 else c + rng.randrange(1500)
            ),
        }[kind]
        table.append([draw() for _ in range(200)])
    return table


KINDS = ["uniform", "dates", "late", "late dates", "skewed", "mixed"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_expected_depth_is_near_on_tables_like_real_ones(kind):
    errors = []
    for seed in range(3):
        for chosen in ({}, {"max_group_bytes": 12 * 200 * 8}, {"threshold": 4, "max_blocks": 20}):
            for policy in ("levels", "full"):
                table = arrivals(kind, random.Random(seed))
                for _ in range(8):
                    error = assert_holds(table, policy, **chosen)
                    if error is None:
                        break
                    errors.append(error)
    median = statistics.median(errors)
    print(f"{kind}: median error {median:.1%}, worst {max(errors):.1%} of {len(errors)} plans")
    assert median <= 0.10


def test_a_group_tells_the_depth_of_its_blocks_before_and_after():
    table = SimTable(block_rows=100).append(*[range(n, 10_000 + n, 100) for n in range(8)])
    (group,) = table.plan().groups
    assert group.depth_before == 8
    assert 1 <= group.depth_after < 1.5


def test_a_depth_that_is_unknown_and_stays_so_is_not_predicted_as_0():
    table = SimTable(block_rows=4).append([1, 2], [2, 3], unclustered=True)
    predicted = table.plan().predicted
    assert (predicted.average_depth_after, predicted.average_overlaps_after) == (None, None)
    sorted_in = table.plan(include_unclustered=True).predicted
    assert sorted_in.average_depth_before is None
    assert sorted_in.average_depth_after.expected == 1
    nothing = SimTable(block_rows=4).plan().predicted
    assert nothing.average_depth_after == Range(low=0, expected=0, high=0)


def test_nothing_to_do_predicts_exactly_what_is():
    table = SimTable(block_rows=4).append([1, 2, 3, 4], [4, 5, 6, 7])
    after = table.plan().predicted.average_depth_after
    assert (after.low, after.expected, after.high) == (2, 2, 2)
