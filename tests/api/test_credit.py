"""The budget of realised savings: reclusters take what earlier ones saved, less what they took, and an allowance."""

from __future__ import annotations

from typing import Any

import pytest
from asked_tables import NARROW, rows_from, table_of

import tblctl
from tblctl import errors
from tblctl.maintain.credit import credit_of
from tblctl.maintain.recluster import recluster
from tblctl.maintain.request import Request
from tblctl.merger.engines.local import LocalEngine
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.native.port import NativePort
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.storage import Storage
from tblctl.workload.savings import RealisedSaving

SMALL = {"alpha": 1e-3}


def saving(saved: float | None, spent: float | None) -> RealisedSaving:
    return RealisedSaving(
        snapshot=1,
        timestamp="",
        policy="workload",
        queries=1,
        unused=0,
        spent_seconds=spent,
        before_seconds=saved,
        after_seconds=0.0,
        saved_seconds=saved,
        paid_back=None,
    )


def asked(table: tblctl.Table, where: str = NARROW, weight: float = 1e6) -> tblctl.Workload:
    query = tblctl.Query(time=table._port.env.now(), where=where, columns=("a",), weight=weight)
    return tblctl.Workload(queries=(query,))


def how(table: tblctl.Table, allowance: float, **more: Any) -> dict[str, Any]:
    return {
        "policy": "workload",
        "workload": asked(table),
        "options": {**SMALL, "allowance": allowance, **more},
    }


def test_the_credit_is_what_was_saved_less_what_it_took_and_an_allowance_for_each_query() -> None:
    queries = [tblctl.Query(time=0.0, where="", weight=weight) for weight in (1.0, 10.0)]
    credit = credit_of(queries, [saving(5.0, 3.0), saving(None, 1.0), saving(-0.5, None)], 0.5)
    assert (credit.allowed, credit.saved, credit.spent, credit.seconds) == (5.5, 4.5, 4.0, 6.0)
    assert credit_of([], [saving(1.0, 9.0)], 0.5).seconds == 0.0
    assert credit.text.startswith("the budget of savings is 6 s: 5.5 s allowed to queries, and 4.5 s saved")


def test_no_plan_is_expected_to_take_more_than_the_credit(memory_url: str) -> None:
    table = table_of(memory_url)
    table.append(rows_from(5000, blocks=56))
    whole = table.plan("workload", workload=asked(table), options=SMALL)
    price = sum(group.price.seconds for group in whole.groups if group.price)
    for share in (0.0, 0.3, 0.9, 1.1):
        plan = table.plan(**how(table, share * price / 1e6))
        taken = sum(group.price.seconds for group in plan.groups if group.price)
        assert taken <= share * price
        assert (share > 1) == (len(plan.groups) == len(whole.groups) and not plan.is_limited)
    nothing = table.plan(**how(table, 0.0))
    assert not nothing.groups
    assert "the budget of savings is 0 s" in nothing.note


def test_what_a_recluster_took_is_missing_afterwards_until_queries_have_paid_it_back(memory_url: str) -> None:
    table = table_of(memory_url)
    first = asked(table, weight=1.0)
    assert table.recluster(
        policy="workload", workload=asked(table), options={**SMALL, "allowance": 1.0}
    ).commits
    (done,) = table.savings(workload=tblctl.Workload(queries=()))
    assert done.spent_seconds is not None
    table.append(rows_from(5000))
    table.recluster(policy="runs", final=True)

    def plan(*queries: tblctl.Query, allowance: float) -> tblctl.Plan:
        workload = tblctl.Workload(queries=(*first.queries, *queries))
        return table.plan("workload", workload=workload, options={**SMALL, "allowance": allowance})

    by_s = tblctl.Query(time=table._port.env.now(), where="s = 'user-0300'", columns=("s",), weight=1e9)
    assert plan(by_s, allowance=1.0).groups
    assert "which took" in plan(by_s, allowance=1e-15).note
    later = [tblctl.Query(time=table._port.env.now(), where=NARROW, columns=("a",), weight=1e9)]
    paid = plan(*later, by_s, allowance=0.0)
    assert paid.groups, "the first recluster saves so many queries seconds enough"


@pytest.mark.parametrize(("allowance", "rounds"), [(900.0, 1), (2500.0, 2), (None, 4)])
def test_rounds_of_one_run_keep_to_it_together(memory_url: str, allowance: float | None, rounds: int) -> None:
    """The clock stands still but for a thousand seconds at the end of each group."""
    passed = [0.0]

    def progress(_done: int, _total: int | None, unit: str) -> None:
        passed[0] += 1000.0 * (unit == "groups")

    table = table_of(memory_url)
    table.append(rows_from(5000, blocks=16))
    more = {} if allowance is None else {"allowance": allowance / 1e6}
    request = Request.of(
        policy="workload",
        condition=lambda _schema: None,
        options={**SMALL, **more, "max_blocks": 8, "maintain": False},
        final=True,
        progress=progress,
        workload=asked(table),
    )
    environment = Environment(elapsed=lambda: passed[0])
    port = NativePort(NativeTable(Storage(table.location), environment))
    outcome = recluster(port, request, lambda _plan: LocalEngine())
    assert (outcome.rounds, outcome.committed_groups) == (rounds, rounds)


def test_an_allowance_below_0_is_refused(memory_url: str) -> None:
    table = table_of(memory_url)
    with pytest.raises(errors.InvalidOptionError, match="allowance"):
        table.plan("workload", options={"allowance": -1.0})
