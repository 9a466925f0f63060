"""What a plan is expected to cost: rates, prices of groups, what limits of seconds and money leave."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.selector.budget import Budget
from tblctl.selector.draft import Draft
from tblctl.selector.pricing.cut import best_first, fitting
from tblctl.selector.pricing.predict import copied_shares, prices
from tblctl.selector.pricing.price import GIB, Price, cost_of, total_price
from tblctl.selector.pricing.rates import DEFAULT_RATES, Rates, Run, learned
from tblctl.tableformat.errors import InvalidOptionError

from .tables import SimTable
from .test_budget import Spender, drafts_of
from .test_final import block_lists, table_from

A_SECOND_A_BYTE = Rates(
    seconds_per_decoded_byte=0.0,
    seconds_per_written_byte=1.0,
    seconds_per_copied_byte=0.0,
    seconds_per_group=0.0,
)
"""A second for a stored byte that is encoded; blocks of a simulated table have one byte a row."""


def view_of(*blocks: range, group_rows: int = 4, **how: bool):
    table = SimTable(block_rows=64)
    for keys in blocks:
        table.append(keys, **how)
    view = table.view()
    return replace(view, table_options=replace(view.table_options, row_group_rows=group_rows))


def one_draft(view) -> Draft:
    return Draft(blocks=np.arange(len(view)), output_level=1, why="all")


def run_of(seconds: float, **figures: int) -> Run:
    """Return a run of as many bytes as lineitem at scale 1."""
    usual = dict(
        groups=1, requests=0, bytes_read=10**8, bytes_copied=0, bytes_written=10**8, memory_bytes=10**9
    )
    return Run(**{**usual, "suggested_bytes": 0, **figures}, seconds=seconds)


# -- rates ---------------------------------------------------------------------------------------------------------


def test_without_runs_the_defaults_hold():
    assert learned([]) == DEFAULT_RATES
    assert DEFAULT_RATES.runs == 0


def test_a_table_that_takes_twice_as_long_has_twice_the_rates_of_bytes_and_the_same_of_groups():
    taken = DEFAULT_RATES.byte_seconds(memory_bytes=10**9, encoded_bytes=10**8, copied_bytes=0)
    found = learned([run_of(2 * taken + DEFAULT_RATES.seconds_per_group)])
    assert found.seconds_per_decoded_byte == pytest.approx(2 * DEFAULT_RATES.seconds_per_decoded_byte)
    assert found.seconds_per_copied_byte == pytest.approx(2 * DEFAULT_RATES.seconds_per_copied_byte)
    assert found.seconds_per_group == DEFAULT_RATES.seconds_per_group
    assert found.runs == 1


def test_small_runs_correct_what_a_group_takes_and_not_what_a_byte_takes():
    small = run_of(0.5, bytes_read=10, bytes_written=10, memory_bytes=10)
    found = learned([small])
    assert found.seconds_per_group == pytest.approx(0.5)
    assert found.seconds_per_written_byte == DEFAULT_RATES.seconds_per_written_byte


def test_one_odd_run_among_three_does_not_move_the_rates():
    usual = [run_of(4.0), run_of(4.0)]
    assert learned([*usual, run_of(400.0)]) == replace(learned(usual), runs=3)


def test_copies_and_bytes_written_are_corrected_by_what_runs_had():
    half = run_of(4.0, bytes_copied=10**7, suggested_bytes=2 * 10**7, bytes_written=9 * 10**7)
    found = learned([half])
    assert (found.copied_factor, found.written_factor) == (0.5, 0.9)


def test_a_run_in_which_nothing_was_to_be_copied_says_nothing_of_copies():
    assert learned([run_of(4.0, suggested_bytes=10)]).copied_factor == 1.0


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_rates_are_numbers_from_0_on(value):
    with pytest.raises(InvalidOptionError, match="seconds_per_group is"):
        Rates(seconds_per_group=value)


# -- prices --------------------------------------------------------------------------------------------------------


def test_blocks_that_overlap_all_over_are_decoded():
    view = view_of(range(0, 64, 2), range(0, 64, 2))
    (price,) = prices(view, [one_draft(view)], DEFAULT_RATES, Budget())
    assert (price.blocks, price.rows, price.bytes_read, price.bytes_copied) == (2, 64, 64, 0)
    assert (price.bytes_written, price.memory_bytes, price.cost) == (64, 512, None)


def test_what_no_other_block_meets_is_copied_but_for_the_row_groups_at_the_edges():
    view = view_of(range(32), range(24, 56))  # a fourth of each overlaps; 8 row groups each
    shares = copied_shares(view, [one_draft(view)])
    assert shares == pytest.approx([0.5, 0.5], abs=0.25)
    assert (shares < 0.75).all(), "row groups that the edge cuts are decoded"


def test_blocks_side_by_side_are_copied_whole():
    view = view_of(range(32), range(32, 64))
    assert copied_shares(view, [one_draft(view)]).tolist() == [1.0, 1.0]


def test_groups_do_not_meet_each_other():
    view = view_of(range(32), range(32))
    alone = [Draft(blocks=np.array([number]), output_level=1, why="") for number in (0, 1)]
    assert copied_shares(view, alone).tolist() == [1.0, 1.0]
    assert copied_shares(view, [one_draft(view)]).tolist() == [0.0, 0.0]


def test_small_row_groups_are_decoded():
    view = view_of(range(32), range(32, 64), group_rows=65)
    assert copied_shares(view, [one_draft(view)]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("how", [{"unclustered": True}, {"unknown": True}])
def test_nothing_is_copied_beside_a_block_that_may_lie_anywhere(how):
    table = SimTable(block_rows=64).append(range(32), range(32, 64)).append(range(90, 99), **how)
    view = table.view()
    view = replace(view, table_options=replace(view.table_options, row_group_rows=4))
    assert copied_shares(view, [one_draft(view)]).tolist() == [0.0, 0.0, 0.0]


@settings(max_examples=cases(30), deadline=None)
@given(block_lists, st.lists(st.integers(1, 6), max_size=8), st.integers(1, 4))
def test_shares_are_shares_and_a_price_copies_no_more_than_it_reads(blocks, sizes, group_rows):
    view = table_from(*blocks).view()
    view = replace(view, table_options=replace(view.table_options, row_group_rows=group_rows))
    drafts = drafts_of(view, sizes)
    shares = copied_shares(view, drafts)
    assert ((shares >= 0) & (shares <= 1)).all()
    for price in prices(view, drafts, Rates(copied_factor=3.0), Budget()):
        assert 0 <= price.bytes_copied <= price.bytes_read


def test_money_is_paid_for_gibibytes_read_and_for_hours():
    assert cost_of(GIB, 3600, price_per_gib=2.0, price_per_hour=3.0) == 5.0
    assert cost_of(GIB, 3600, price_per_gib=None, price_per_hour=3.0) == 3.0
    assert cost_of(GIB, 3600, price_per_gib=None, price_per_hour=None) is None


def test_the_total_is_the_sum():
    view = view_of(range(32), range(16, 48), range(100, 132))
    drafts = [
        Draft(blocks=np.array([0, 1]), output_level=1, why=""),
        Draft(blocks=np.array([2]), output_level=1, why=""),
    ]
    found = prices(view, drafts, DEFAULT_RATES, Budget(price_per_gib=1.0))
    total = total_price(found)
    assert (total.blocks, total.rows) == (3, 96)
    assert total.seconds == pytest.approx(found[0].seconds + found[1].seconds)
    assert total.cost == pytest.approx(96 / GIB)
    assert total_price([]).cost is None


def test_a_price_that_cannot_be_is_refused():
    (price,) = prices(view_of(range(8)), [one_draft(view_of(range(8)))], DEFAULT_RATES, Budget())
    with pytest.raises(ValueError, match="bytes_copied"):
        replace(price, bytes_copied=price.bytes_read + 1)
    with pytest.raises(ValueError, match="seconds"):
        replace(price, seconds=-1.0)


# -- the bill of a plan --------------------------------------------------------------------------------------------


def test_a_plan_says_what_a_query_reads_and_when_it_has_paid_off():
    plan = SimTable(block_rows=8).append(*[range(n, 64 + n, 8) for n in range(8)]).plan()
    bill = plan.bill
    assert bill.point_query_bytes_before == round(plan.predicted.average_depth_before * 8)
    assert bill.point_query_bytes_after < bill.point_query_bytes_before
    saved = bill.point_query_bytes_before - bill.point_query_bytes_after
    assert bill.payback_queries == -(-(bill.total.bytes_read + bill.total.bytes_written) // saved)
    assert bill.total.blocks == sum(group.price.blocks for group in plan.groups)


def test_what_is_not_known_is_none():
    bill = SimTable(block_rows=4).append([3, 4], [5, 6], unclustered=True).plan("full").bill
    assert bill.point_query_bytes_before is None
    assert bill.payback_queries is None


# -- limits --------------------------------------------------------------------------------------------------------


def four_pairs() -> SimTable:
    """Return a table of pairs that overlap, each of other width: 4, 8, 16 and 32 rows a block."""
    table = SimTable(block_rows=64)
    for place, rows in enumerate((4, 8, 16, 32)):
        start = 1000 * place
        table.append(range(start, start + 2 * rows, 2), range(start + 1, start + 1 + 2 * rows, 2))
    return table


def in_pairs(view) -> list[Draft]:
    return [
        Draft(blocks=np.array(pair), output_level=1, why="pair") for pair in ([6, 7], [4, 5], [2, 3], [0, 1])
    ]


def chosen(found) -> list[list[int]]:
    return [draft.blocks.tolist() for draft in found.drafts]


def test_drafts_that_all_fit_stay_as_they_are():
    view = four_pairs().view()
    found = fitting(view, in_pairs(view), Budget(max_seconds=120.0), A_SECOND_A_BYTE)
    assert chosen(found) == [[6, 7], [4, 5], [2, 3], [0, 1]]
    assert not found.left


def test_where_seconds_do_not_suffice_the_best_gain_for_a_byte_comes_first():
    view = four_pairs().view()
    found = fitting(view, in_pairs(view), Budget(max_seconds=56.0), A_SECOND_A_BYTE)
    assert chosen(found) == [[0, 1], [2, 3], [4, 5]]
    assert {rule: blocks.tolist() for rule, blocks in found.left.items()} == {"max_seconds": [6, 7]}
    assert best_first(view, in_pairs(view))[0].blocks.tolist() == [0, 1]


def test_money_cuts_as_seconds_do():
    view = four_pairs().view()
    budget = Budget(max_cost=57.0 / 3600, price_per_hour=1.0)
    found = fitting(view, in_pairs(view), budget, A_SECOND_A_BYTE)
    assert chosen(found) == [[0, 1], [2, 3], [4, 5]]
    assert list(found.left) == ["max_cost"]


def test_a_draft_that_fits_in_part_is_cut():
    view = SimTable(block_rows=64).append(*[range(n, 64, 8) for n in range(6)]).view()
    found = fitting(view, [one_draft(view)], Budget(max_seconds=33.0), A_SECOND_A_BYTE)
    assert chosen(found) == [[0, 1, 2, 3]]
    assert found.drafts[0].why == "all; 4 of 6 blocks by max_seconds"
    assert {rule: blocks.tolist() for rule, blocks in found.left.items()} == {"max_seconds": [4, 5]}


limits = st.builds(
    Budget,
    max_bytes=st.none() | st.integers(1, 120),
    max_groups=st.none() | st.integers(1, 4),
    max_seconds=st.none() | st.floats(0.01, 150),
    max_cost=st.none() | st.floats(0.01, 150),
    price_per_gib=st.just(float(GIB)),
)


@settings(max_examples=cases(70), deadline=None)
@given(block_lists, st.lists(st.integers(1, 6), max_size=8), limits)
def test_no_limit_is_ever_exceeded_and_every_block_is_taken_or_left_by_a_rule(blocks, sizes, budget):
    view = table_from(*blocks).view()
    found = fitting(view, drafts_of(view, sizes), budget, A_SECOND_A_BYTE)
    taken = [number for draft in found.drafts for number in draft.blocks.tolist()]
    rest = [number for numbers in found.left.values() for number in numbers.tolist()]
    assert sorted(taken + rest) == np.flatnonzero(view.selectable).tolist()
    total = total_price(found.priced)
    assert len(found.priced) == len(found.drafts)
    assert budget.max_bytes is None or total.bytes_read <= budget.max_bytes
    assert budget.max_groups is None or len(found.drafts) <= budget.max_groups
    assert budget.max_seconds is None or total.seconds <= budget.max_seconds
    assert budget.max_cost is None or (total.cost or 0.0) <= budget.max_cost * (1 + 1e-9)


@settings(max_examples=cases(30), deadline=None)
@given(block_lists, st.sampled_from(["levels", "full", "spender"]), limits)
def test_a_plan_of_any_policy_keeps_to_its_limits(blocks, policy, budget):
    table = table_from(*blocks)
    asked = {name: value for name, value in vars(budget).items() if value is not None}
    planned = table.planned(
        Spender([3]) if policy == "spender" else policy, options=asked, rates=A_SECOND_A_BYTE
    )
    plan = planned.plan
    assert plan.bill.total.bytes_decoded <= (budget.max_bytes or 10**9)
    assert plan.bill.total.seconds <= (budget.max_seconds or 10**9)
    assert all(isinstance(group.price, Price) for group in plan.groups)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"max_cost": 1.0}, "max_cost needs price_per_gib or price_per_hour"),
        *(
            ({"price_per_hour": 1.0, name: value}, f"{name}: expected a number above 0")
            for name, value in itertools.product(("max_seconds", "max_cost", "price_per_gib"), (0, -1.5, "7"))
        ),
        ({"price_per_hour": 0}, "price_per_hour: expected a number above 0, got 0"),
        ({"target_depth": 0}, "target_depth: expected a number from 1 on"),
    ],
)
def test_limits_and_prices_that_are_not_positive_are_refused(asked, message):
    with pytest.raises(InvalidOptionError, match=message):
        Budget(**asked)
    with pytest.raises(InvalidOptionError, match=message):
        SimTable(block_rows=4).append([1]).plan(**asked)
