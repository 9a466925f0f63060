"""No group of a round begins that is expected to exceed the plan's seconds or money."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.round.budget_clock import BudgetClock
from tblctl.merger.round.round import merge_round
from tblctl.selector.budget import Budget
from tblctl.selector.plan import Group, PlanOptions
from tblctl.selector.pricing.price import GIB, HOUR_SECONDS, Price

from .subjects import KINDS, Subject, blocks_of, making, plan_of


def group(number: int, seconds: float, size_bytes: int = 0) -> Group:
    price = Price(
        blocks=2,
        rows=8,
        bytes_read=size_bytes,
        bytes_copied=0,
        bytes_written=0,
        memory_bytes=0,
        requests=0,
        seconds=seconds,
        cost=None,
        suggested_bytes=0,
    )
    return Group(
        number=number, blocks=("a", "b"), sort_id=1, output_level=1, why="a test", rows=8, size_bytes=size_bytes,
        decoded_bytes=64, same_key_rows=None, depth_before=2.0, depth_after=1.0, price=price,
    )  # fmt: skip


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def clock(time: Time, **limits: float) -> BudgetClock:
    return BudgetClock(PlanOptions(policy={}, budget=Budget(**limits), memory_bytes=1), time)


def test_groups_begin_as_long_as_all_that_began_are_expected_to_end_in_time() -> None:
    found = clock(Time(), max_seconds=10.0)
    for number in (0, 1):
        assert found.refusal(group(number, 4.0)) == ""
        found.begin(group(number, 4.0))
    assert found.refusal(group(2, 2.0)) == ""
    assert found.refusal(group(2, 2.5)).startswith(
        "max_seconds: it was expected to end after 10.5 s of the 10.0 s"
    )


def test_what_a_group_took_counts_once_it_ended() -> None:
    time = Time()
    found = clock(time, max_seconds=10.0)
    found.begin(group(0, 1.0))
    time.now += 7.0
    assert found.refusal(group(1, 4.0)) == "", "it is not known yet that the first one is late"
    found.end(0)
    assert found.refusal(group(1, 4.0)) != ""
    assert found.refusal(group(1, 3.0)) == ""


def test_the_end_of_a_group_that_never_began_changes_nothing() -> None:
    time = Time()
    found = clock(time, max_seconds=10.0)
    time.now += 9.0
    found.end(5)
    assert found.refusal(group(0, 10.0)) == ""


def test_money_counts_the_bytes_of_all_groups_that_began_and_the_time() -> None:
    time = Time()
    found = clock(time, max_cost=5.0, price_per_gib=1.0, price_per_hour=1.0)
    found.begin(group(0, 0.0, size_bytes=2 * GIB))
    time.now += HOUR_SECONDS
    found.end(0)
    assert found.refusal(group(1, 0.0, size_bytes=2 * GIB)) == ""
    assert found.refusal(group(1, 1.0, size_bytes=2 * GIB)).startswith(
        "max_cost: with it the round was expected"
    )


def test_a_group_without_a_price_always_begins() -> None:
    assert clock(Time(), max_seconds=0.001).refusal(replace(group(0, 9.0), price=None)) == ""


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Callable[..., Subject]:
    return making(request.param, request)


def test_a_round_leaves_groups_that_it_has_no_time_for_and_commits_the_others(
    make: Callable[..., Subject],
) -> None:
    subject = make(block_rows=4)
    for start in (0.0, 1.0, 100.0, 101.0):
        subject.append(*(start + 2 * step for step in range(4)))
    rows, before = subject.rows(), blocks_of(subject)
    plan = plan_of(subject)
    late: Any = [replace(item, price=group(0, 40.0 * item.number + 1).price) for item in plan.groups]
    limited = replace(plan.options, budget=Budget(max_seconds=30.0))
    outcome = merge_round(
        subject.port,
        subject.port.newest(),
        replace(plan, groups=tuple(late), options=limited),
        LocalEngine(),
    )
    assert [item.status for item in outcome.groups] == ["committed", "left"]
    assert "max_seconds" in str(outcome.groups[1].error)
    assert subject.rows() == rows
    assert blocks_of(subject)[2:] == before[2:], "what was left is as it was"
    assert subject.detail()["recluster"]["committed_groups"] == 1


def test_a_group_that_goes_on_without_a_lost_block_has_the_price_of_all_of_them(
    make: Callable[..., Subject],
) -> None:
    subject = make(block_rows=4)
    for start in (0.0, 1.0, 2.0):
        subject.append(*(start + 3 * step for step in range(4)))
    plan = plan_of(subject)
    whole: Any = replace(plan.groups[0], price=group(0, 20.0).price)
    subject.delete(0)

    def run(seconds: float) -> Any:
        limited = replace(plan.options, budget=Budget(max_seconds=seconds))
        part = replace(plan, groups=(whole,), options=limited)
        return merge_round(subject.port, subject.port.newest(), part, LocalEngine()).groups[0]

    assert (run(10.0).status, run(30.0).status) == ("left", "committed")
    assert subject.detail()["recluster"]["predicted"] is None, "nothing is to be learned from it"


def test_what_a_group_that_lost_a_block_was_expected_to_take_is_told(make: Callable[..., Subject]) -> None:
    subject = make(block_rows=4)
    for start in (0.0, 1.0, 2.0):
        subject.append(*(start + 3 * step for step in range(4)))
    plan = plan_of(subject)
    price = group(0, 20.0).price
    subject.delete(0)
    priced = replace(plan, groups=(replace(plan.groups[0], price=price),))
    outcome = merge_round(subject.port, subject.port.newest(), priced, LocalEngine()).groups[0]
    assert (outcome.status, outcome.blocks_in, outcome.predicted) == ("committed", 2, price)
