"""Predictions are exact where no key is guessed, and near on tables like real ones."""

from __future__ import annotations

import random
import statistics

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.selector.draft import Draft
from tblctl.selector.predict.forecast import forecast
from tblctl.tableformat.model.cut import cut_rows, slack_rows

from .tables import SimTable
from .test_final import block_lists, options, policies, table_from


def is_unknown(table):
    return bool(table.blocks) and not any(block.is_measured for block in table.blocks)


def carry_out(table, policy="levels", **chosen_options):
    """Carry a plan out; return the relative error of the expected depth, None where nothing was done."""
    plan = table.plan(policy, **chosen_options)
    predicted = plan.predicted
    before = (None, None) if is_unknown(table) else table.figures()
    assert (predicted.average_overlaps_before, predicted.average_depth_before) == before
    assert predicted.block_count_before == len(table.blocks)
    table.merge(plan)
    after = (None, None) if is_unknown(table) else table.figures()
    if not plan.groups:
        assert (predicted.average_overlaps_after, predicted.average_depth_after) == after
        return None
    assert predicted.average_depth_after >= 1
    return abs(predicted.average_depth_after - table.depth) / table.depth


@settings(max_examples=cases(100), deadline=None)
@given(block_lists, options, policies)
def test_the_number_of_blocks_is_predicted_exactly_where_rows_are_of_one_width(
    blocks, chosen_options, policy
):
    table = table_from(*blocks)
    for _ in range(4):
        predicted = table.plan(policy, **chosen_options).predicted
        carry_out(table, policy, **chosen_options)
        assert predicted.block_count_after == len(table.blocks)


def ranges_apart(counts, seed):
    """Return a table of ranges that lie far apart, each with a number of blocks of keys from all over it."""
    table, rng = SimTable(block_rows=1_000), random.Random(seed)
    for place, count in enumerate(counts):
        base = 100_000 * place
        for _ in range(count):
            table.append(rng.sample(range(base, base + 100 * count), 200))
    return table


def every_cut_finds_the_end_of_a_key(table, plan):
    """Return whether no key of a group has more rows than each of the group's cuts may move back by, and one more."""
    return all(
        slack + 1 >= group.same_key_rows
        for group in plan.groups
        for slack in slack_rows(cut_rows(group.rows, table.block_rows, group.same_key_rows), table.block_rows)
    )


@settings(max_examples=cases(15), deadline=None)
@given(st.lists(st.integers(24, 45), min_size=1, max_size=3), st.integers(0, 2**32), policies)
def test_figures_are_predicted_exactly_where_every_cut_finds_the_end_of_a_key(counts, seed, policy):
    table = ranges_apart(counts, seed)
    plan = table.plan(policy, threshold=1)
    assume(every_cut_finds_the_end_of_a_key(table, plan))
    table.merge(plan)
    assert (plan.predicted.average_overlaps_after, plan.predicted.average_depth_after) == table.figures()


def test_shared_keys_are_expected_where_full_blocks_leave_cuts_no_room():
    table = ranges_apart([24, 41, 45], seed=0)
    plan = table.plan(threshold=1)
    (group,) = plan.groups
    assert group.rows == 22 * table.block_rows
    assert group.same_key_rows == 45, "23 blocks would leave a slack of 43"
    assert not every_cut_finds_the_end_of_a_key(table, plan)
    assert plan.predicted.average_depth_after == 1.9545, "19 of 20 cuts are expected to split a key"
    assert carry_out(table, threshold=1) < 0.08, "10 of them find the end of one by chance"


@settings(max_examples=cases(100), deadline=None)
@given(block_lists, options, policies)
def test_blocks_that_a_merge_does_not_reach_need_not_be_measured_again(blocks, chosen_options, policy):
    table = table_from(*blocks)
    plan = table.plan(policy, **chosen_options)
    view = table.view()
    numbers = {block.path: number for number, block in enumerate(table.blocks)}
    drafts = [
        Draft(
            blocks=np.array([numbers[path] for path in group.blocks]),
            output_level=group.output_level,
            why=group.why,
        )
        for group in plan.groups
    ]
    everything = forecast(view, drafts, meets=lambda low, *_: np.ones(low.size, np.bool_))
    assert everything == forecast(view, drafts)
    assert everything.prediction == plan.predicted


def test_merged_blocks_share_no_key_where_no_key_has_more_rows_than_the_slack():
    table = SimTable(block_rows=1_000)
    rng = random.Random(0)
    table.append(*[rng.sample(range(2_000), 200) for _ in range(40)])
    predicted = table.plan().predicted
    assert predicted.average_depth_after == 1
    assert predicted.block_count_after == 9, "8 would leave no slack"
    assert carry_out(table) == 0


def test_merged_blocks_share_keys_that_have_more_rows_than_a_block():
    blocks = [[*range(n, n + 900, 10), *[450] * 10] for n in range(40)]  # 450 has at least 400 of 4,000 rows
    table = SimTable(block_rows=100).append(*blocks)
    assert table.plan().predicted.average_depth_after > 1
    assert carry_out(table) < 0.4


def test_the_widths_of_rows_decide_how_many_blocks_are_expected():
    blocks = [list(range(n, 100 + n, 4)) for n in range(4)]
    roomy = SimTable(block_rows=20, block_bytes=1001).append(*blocks).plan().predicted
    assert roomy.block_count_after == 5
    assert roomy == SimTable(block_rows=20).append(*blocks).plan().predicted
    tight = SimTable(block_rows=20, block_bytes=100).append(*blocks).plan().predicted
    assert tight.block_count_after == 10


@settings(max_examples=cases(70), deadline=None)
@given(st.lists(block_lists.map(lambda found: found[1]), min_size=2, max_size=4), policies)
def test_what_is_predicted_of_partitions_is_what_each_is_predicted_by_itself(several, policy):
    together, alone = SimTable(block_rows=8), []
    for number, blocks in enumerate(several):
        alone.append(SimTable(block_rows=8))
        for keys, level, kind in blocks:
            marks = {"unclustered": kind in {"unclustered", "both"}, "unknown": kind in {"unknown", "both"}}
            together.append(keys[:8], level=level, partition=7 * number, **marks)
            alone[-1].append(keys[:8], level=level, **marks)
    found = together.plan(policy, threshold=1).predicted
    apart = [table.plan(policy, threshold=1).predicted for table in alone]
    assert found.block_count_before == sum(one.block_count_before for one in apart)
    assert found.block_count_after == sum(one.block_count_after for one in apart)
    counts = [sum(block.is_measured for block in table.blocks) for table in alone]
    total = sum((one.average_depth_before or 0) * count for one, count in zip(apart, counts, strict=True))
    assert (found.average_depth_before or 0) * sum(counts) == pytest.approx(total, abs=0.05)


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
                    error = carry_out(table, policy, **chosen)
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
    assert sorted_in.average_depth_after == 1
    assert SimTable(block_rows=4).plan().predicted.average_depth_after == 0


def test_nothing_to_do_predicts_exactly_what_is():
    table = SimTable(block_rows=4).append([1, 2, 3, 4], [4, 5, 6, 7])
    assert table.plan().predicted.average_depth_after == 2
