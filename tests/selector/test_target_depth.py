"""A plan has no more groups than a target for the average depth asks for."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tblctl.selector import target_depth
from tblctl.selector.budget import Budget
from tblctl.selector.options import SelectOptions
from tblctl.selector.predict.forecast import forecast
from tblctl.tableformat.errors import InvalidOptionError

from .tables import SimTable


def deep(*depths: int) -> SimTable:
    """Return a table with a range of as many blocks as each number says, which share no key and overlap."""
    table = SimTable(block_rows=4)
    for place, depth in enumerate(depths):
        low = 100 * place
        table.append(*[range(low + number, low + 4 * depth, depth) for number in range(depth)])
    return table


def blocks_of(plan) -> list[int]:
    return [len(group.blocks) for group in plan.groups]


def paths_of(plan) -> list[tuple[str, ...]]:
    return [group.blocks for group in plan.groups]


def in_small_groups(table: SimTable, **limits):
    """Plan groups of two blocks."""
    return table.plan("full", max_group_bytes=64, **limits)


def test_a_plan_ends_where_the_target_is_reached():
    table = deep(*[2] * 10)
    everything = in_small_groups(table)
    assert len(everything.groups) == 10
    some = in_small_groups(table, target_depth=1.5)
    assert 0 < len(some.groups) < 10
    assert paths_of(some) == paths_of(everything)[: len(some.groups)]
    assert some.predicted.average_depth_after <= 1.5
    fewer = in_small_groups(table, max_groups=len(some.groups) - 1)
    assert fewer.predicted.average_depth_after > 1.5, "one group less is not enough"
    (left,) = some.rejected
    assert (left.rule, left.blocks) == ("target_reached", 20 - 2 * len(some.groups))
    assert left.why == "not needed for the target depth 1.5"


def test_there_is_nothing_to_do_at_the_target():
    table = deep(3)
    plan = table.plan("full", target_depth=3)
    assert plan.groups == ()
    assert plan.note == "nothing to do: 3 blocks: the average depth is 3.00, the target 3"
    assert not plan.is_limited
    assert plan.advice == ()
    assert blocks_of(table.plan("full", target_depth=2.9)) == [3]


def test_a_target_that_is_reached_costs_one_forecast(monkeypatch):
    asked = []

    def counted(view, drafts):
        asked.append(len(drafts))
        return forecast(view, drafts)

    monkeypatch.setattr(target_depth, "forecast", counted)
    table = deep(3, 1, 4)
    plan = table.plan("full", target_depth=4)
    assert len(asked) == 1
    assert plan.predicted == forecast(table.view(), []).prediction


def test_a_target_out_of_reach_leaves_out_nothing():
    table = deep(3, 3)
    assert table.plan("full", target_depth=1).groups == table.plan("full").groups


def test_other_limits_hold_beside_a_target():
    table = deep(*[2] * 10)
    plan = in_small_groups(table, target_depth=1.1, max_groups=2)
    assert len(plan.groups) == 2
    assert {item.rule for item in plan.rejected} == {"max_groups"}


def test_a_depth_that_is_not_known_is_not_the_target():
    table = SimTable(block_rows=4).append([1, 2, 3, 4], [1, 2, 3, 4], unclustered=True)
    assert blocks_of(table.plan("full", target_depth=1)) == [2]


def test_rounds_until_the_end_stop_at_the_target():
    table = deep(*[4] * 8)
    table.final("levels", threshold=1, target_depth=2)
    assert 1 < table.depth <= 2.5, "expected figures are not exact"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=12), st.floats(1, 5), st.sampled_from([64, 96, 10**6])
)
def test_no_group_of_a_plan_could_be_left_out_at_its_end(depths, target, group_bytes):
    table = deep(*depths)
    everything = table.plan("full", max_group_bytes=group_bytes)
    plan = table.plan("full", max_group_bytes=group_bytes, target_depth=target)
    assert paths_of(plan) == paths_of(everything)[: len(plan.groups)]
    if plan.groups and plan.predicted.average_depth_after > target:
        assert plan.groups == everything.groups
    elif plan.groups:
        fewer = len(plan.groups) - 1
        if fewer:
            less = table.plan("full", max_group_bytes=group_bytes, max_groups=fewer)
            assert less.predicted.average_depth_after > target
        assert table.depth > target


@pytest.mark.parametrize("value", [0.99, 0, -1, float("nan"), float("inf"), "2", True])
def test_a_target_below_any_depth_is_refused(value):
    for kind in (Budget, SelectOptions):
        with pytest.raises(InvalidOptionError, match="target_depth: expected a number from 1 on"):
            kind(target_depth=value)
