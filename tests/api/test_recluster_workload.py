"""`recluster --policy workload` on real tables: what queries read before and after, and what is not fatal."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import tblctl
from tblctl import errors
from tblctl.maintain.request import Request, planned, selectable
from tblctl.maintain.request import _condition_boxes as boxes_of_condition

SCHEMA = pa.schema([("t", pa.int64()), ("a", pa.int64()), ("s", pa.string()), ("b", pa.float64())])
ROWS, BLOCKS = 100, 16


def table_of(url: str, **how: Any) -> tblctl.Table:
    """Make a table in the order of `t`; every block has values of `a`, `s` and `b` from everywhere."""
    chance = random.Random(3)
    table = tblctl.create(url, SCHEMA, options={"block_rows": ROWS}, **{"cluster_by": ["t"], **how})
    count = ROWS * BLOCKS
    values = [chance.randrange(1000) for _ in range(count)]
    data = {
        "t": range(count),
        "a": values,
        "s": [f"user-{chance.randrange(1000):04d}" for _ in range(count)],
        "b": [chance.random() for _ in range(count)],
    }
    table.append(pa.table(data, schema=SCHEMA))
    return table


def asked(*conditions: str, weight: float = 50_000.0, columns: tuple[str, ...] = ("a",)) -> tblctl.Workload:
    queries = [
        tblctl.Query(time=0.0, where=where, columns=columns, weight=weight / 1000)
        for where in conditions * 20
    ]
    return tblctl.Workload(queries=tuple(queries))


SMALL: dict[str, Any] = {"alpha": 1e-3}
"""These tables are so small that what a group costs besides its blocks would decide."""


def blocks_read(table: tblctl.Table, where: str) -> int:
    return table.scan(where=where).explain().blocks_read


NARROW = "a between 100 and 140"


def test_blocks_are_sorted_by_what_queries_ask_for_and_rows_stay(memory_url: str) -> None:
    table = table_of(memory_url)
    before = table.scan().to_arrow().sort_by("t")
    assert blocks_read(table, NARROW) == BLOCKS
    outcome = table.recluster(policy="workload", workload=asked(NARROW), final=True, options=SMALL)
    assert outcome.committed_groups == 1
    assert blocks_read(table, NARROW) <= 2
    assert table.scan().to_arrow().sort_by("t").equals(before)
    again = table.plan("workload", workload=asked(NARROW), options=SMALL)
    assert not again.groups
    assert {item.rule for item in again.rejected} == {"no_gain"}


def test_a_plan_tells_which_queries_gain_and_how_much(memory_url: str) -> None:
    table = table_of(memory_url)
    plan = table.plan("workload", workload=asked(NARROW, "a\n=\x1b[31m 7"), options=SMALL)
    (group,) = plan.groups
    assert group.why.startswith("by a: queries of the window read it in ")
    assert f"{NARROW} gains" in group.why
    assert group.price is not None
    assert group.price.seconds > 0


def test_of_very_many_conditions_some_are_read_for_all(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    whole = boxes_of_condition

    def counted(version: Any, where: str, place: Any) -> Any:
        read.append(where)
        return whole(version, where, place)

    monkeypatch.setattr("tblctl.maintain.request._condition_boxes", counted)
    monkeypatch.setattr("tblctl.selector.policies.workload._MOST_CHARACTERS", 300)
    table = table_of(memory_url)
    conditions = tuple(f"a between {least} and {least + 9}" for least in range(0, 900, 10))
    (group,) = table.plan("workload", workload=asked(*conditions), options=SMALL).groups
    assert len(group.blocks) == BLOCKS
    assert 5 <= len(read) <= 20


def test_text_columns_and_curves_through_two_columns_are_keys_too(memory_url: str) -> None:
    table = table_of(memory_url)
    by_text = asked("s >= 'user-0300' and s < 'user-0340'")
    (sort,) = table.plan("workload", workload=by_text, options=SMALL).sorts
    assert sort.kind == "linear"
    boxes = [
        f"a between {x} and {x + 200} and b between {y} and {y + 0.2}" for x in (0, 500) for y in (0.1, 0.7)
    ]
    workload = asked(*boxes, columns=("a", "b"))
    plan = table.plan("workload", workload=workload, options=SMALL)
    assert {sort.kind for sort in plan.sorts} == {"hilbert"}
    before = [blocks_read(table, where) for where in boxes]
    table.recluster(plan)
    assert sum(blocks_read(table, where) for where in boxes) < sum(before) / 2


def test_other_policies_leave_what_it_sorted(memory_url: str) -> None:
    table = table_of(memory_url)
    table.recluster(policy="workload", workload=asked(NARROW), options=SMALL)
    for policy in ("levels", "runs", "full"):
        plan = table.plan(policy)
        assert not plan.groups
        assert {item.rule for item in plan.rejected} == {"other_sort"}


def test_without_a_workload_it_is_said_how_to_get_one(memory_url: str) -> None:
    table = table_of(memory_url)
    with pytest.raises(errors.InvalidOptionError, match=r"recluster\.record=on.*import.*workload=Workload"):
        table.plan("workload")


def test_conditions_that_do_not_fit_the_table_are_counted_and_said(memory_url: str) -> None:
    table = table_of(memory_url)
    plan = table.plan(
        "workload", workload=asked(NARROW, "nowhere = \x1b[31m3", "a <", "", "a is null"), options=SMALL
    )
    assert len(plan.groups) == 1
    (said,) = [item for item in plan.rejected if item.rule == "queries"]
    assert said.why.startswith("conditions of the window that do not fit the table: 2; ")
    assert said.why.isprintable()


def test_queries_that_match_nothing_or_everything_rewrite_nothing(memory_url: str) -> None:
    table = table_of(memory_url)
    for where in ("a > 5000", "a >= 0", "a < 3 and a > 5", "not (a = 3)"):
        assert not table.plan("workload", workload=asked(where), options=SMALL).groups
    assert not table.plan("workload", workload=tblctl.Workload(queries=())).groups


def test_a_table_without_a_cluster_key_follows_its_queries(memory_url: str) -> None:
    table = table_of(memory_url, cluster_by=None)
    outcome = table.recluster(policy="workload", workload=asked(NARROW), options=SMALL)
    assert outcome.committed_groups == 1
    assert blocks_read(table, NARROW) <= 2


def test_options_narrow_the_window_and_ask_for_more_gain(memory_url: str) -> None:
    table = table_of(memory_url)
    workload = tblctl.Workload(queries=(*asked(NARROW).queries, *asked("a >= 0").queries))
    assert table.plan("workload", workload=workload, options=SMALL).groups
    assert not table.plan("workload", workload=workload, options={**SMALL, "window": 20}).groups
    assert not table.plan("workload", workload=workload, options={"alpha": 10.0}).groups


def test_no_budget_is_exceeded(memory_url: str) -> None:
    table = table_of(memory_url)
    plan = table.plan("workload", workload=asked(NARROW), options={**SMALL, "max_blocks": 8})
    assert sum(len(group.blocks) for group in plan.groups) <= 8
    assert "max_blocks" in {item.rule for item in plan.rejected}


def test_a_plan_fixes_the_workload_too(memory_url: str) -> None:
    table = table_of(memory_url)
    plan = table.plan("workload", workload=asked(NARROW), options=SMALL)
    with pytest.raises(
        errors.InvalidOptionError, match=r"leave out either the plan, or .* workload and final"
    ):
        table.recluster(plan, workload=asked(NARROW))


def test_a_workload_that_is_handed_in_counts_before_the_log_of_the_table(memory_url: str) -> None:
    table = table_of(memory_url)
    request = Request.of(policy="workload", condition=lambda _: None, options=SMALL, workload=asked(NARROW))
    version, view = selectable(table._port.newest(), request)
    found = planned(version, view, request, workload=tblctl.Workload(queries=()))
    assert found.plan.groups
