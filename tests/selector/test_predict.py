"""Predictions hold whatever the keys are, and are near on tables like real ones."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given, settings

from .simulate import SimTable
from .test_final import block_lists, options, policies, table_from


def assert_holds(table, policy="levels", **chosen_options):
    """Carry a plan out; return the relative error of the expected depth, None where nothing was done."""
    plan = table.plan(policy, **chosen_options)
    predicted = plan.predicted
    overlaps, depth = table.figures()
    assert (predicted.average_overlaps_before, predicted.average_depth_before) == (overlaps, depth)
    table.merge(plan)
    overlaps, depth = table.figures()
    assert predicted.block_count_after == sum(not (b.unclustered or b.unknown) for b in table.blocks)
    after = predicted.average_depth_after
    assert after.low <= depth <= after.high
    assert predicted.average_overlaps_after.low <= overlaps <= predicted.average_overlaps_after.high
    return abs(after.expected - depth) / depth if plan.groups else None


@settings(max_examples=500, deadline=None)
@given(block_lists, options, policies)
def test_the_range_holds_what_is_measured(blocks, chosen_options, policy):
    table = table_from(*blocks)
    for _ in range(4):
        assert_holds(table, policy, **chosen_options)


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


def test_nothing_to_do_predicts_exactly_what_is():
    table = SimTable(block_rows=4).append([1, 2, 3, 4], [4, 5, 6, 7])
    after = table.plan().predicted.average_depth_after
    assert (after.low, after.expected, after.high) == (2, 2, 2)
