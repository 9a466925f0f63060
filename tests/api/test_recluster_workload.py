"""`recluster --policy workload` on real tables: what queries read before and after, and what is not fatal."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from asked_tables import record

import tblctl
from tblctl import errors
from tblctl.maintain.request import _condition_boxes as boxes_of_condition
from tblctl.selector.policies.workload import Workload
from tblctl.tableformat.model.curve import is_bare
from tblctl.tableformat.native.read import layouts
from tblctl.workload import log

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
    monkeypatch.setattr("tblctl.selector.workload.compiled._MOST_CHARACTERS", 300)
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


def test_a_workload_that_is_handed_in_is_followed_and_the_log_is_not_read(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(memory_url)
    record(table, "b between 0.1 and 0.12", weight=100.0)
    assert table.plan("workload", options=SMALL).groups[0].why.startswith("by b: ")

    def read_log(*_: object, **__: object) -> None:
        pytest.fail("the log was read")

    monkeypatch.setattr(log, "read_log", read_log)
    how: dict[str, Any] = {"policy": "workload", "workload": asked(NARROW), "options": SMALL}
    assert table.plan(**how).groups[0].why.startswith("by a: ")
    assert table.schedule(**how).plan.groups[0].why.startswith("by a: ")
    table.cancel_plan(table.pending_plans()[0].id)
    assert table.recluster(**how).groups[0].why.startswith("by a: ")


def test_a_scheduled_plan_follows_the_log_or_the_workload_that_is_handed_in(memory_url: str) -> None:
    table = table_of(memory_url)
    assert not table.schedule("workload", options=SMALL, workload=asked("a >= 0")).plan.groups
    record(table, NARROW, weight=100.0)
    kept = table.schedule("workload", options=SMALL)
    assert kept.plan.groups[0].why.startswith("by a: ")
    assert table.recluster_pending().committed_groups == 1
    assert blocks_read(table, NARROW) <= 2


def deep_beside(table: tblctl.Table) -> set[str]:
    """Append 16 runs that overlap above all that is there; return the paths of their blocks."""
    before = {file.path for file in table.files()}
    first = ROWS * BLOCKS
    for place in range(16):
        ids = range(first + place, first + 320, 16)
        rows = {"t": ids, "a": [5000] * 20, "s": ["x"] * 20, "b": [7.0] * 20}
        table.append(pa.table(rows, schema=SCHEMA))
    return {file.path for file in table.files()} - before


def test_where_no_query_reads_runs_maintains_after_the_groups_of_queries(memory_url: str) -> None:
    table = table_of(memory_url)
    fresh = deep_beside(table)
    plan = table.plan("workload", workload=asked(NARROW), options=SMALL)
    by_queries, by_runs = plan.groups
    assert by_queries.why.startswith("by a: ")
    assert by_runs.why.startswith("no query of the window reads it, so as runs: 16 runs overlap, more than 5")
    assert set(by_runs.blocks) <= fresh
    assert not set(by_queries.blocks) & fresh
    assert by_runs.sort_id != by_queries.sort_id
    before = table.scan().to_arrow().sort_by("t")
    assert table.recluster(plan).committed_groups == 2
    assert table.scan().to_arrow().sort_by("t").equals(before)
    again = table.plan("workload", workload=asked(NARROW), options=SMALL)
    assert not again.groups
    assert sum(item.blocks for item in again.rejected) == len(table.files()), "each of them for one reason"


def test_no_maintain_leaves_alone_what_no_query_reads(memory_url: str) -> None:
    table = table_of(memory_url)
    deep_beside(table)
    how: dict[str, Any] = {"policy": "workload", "workload": asked("a > 9000")}
    assert len(table.plan(**how).groups) == 1
    assert not table.plan(**how, options={"maintain": False}).groups


def test_runs_does_not_maintain_what_a_query_reads(memory_url: str) -> None:
    table = table_of(memory_url)
    deep_beside(table)
    for where in ("a = 5000", f"t > {ROWS * BLOCKS - 1}"):
        assert not table.plan("workload", workload=asked(where, weight=1e-3)).groups
    assert table.plan("workload", workload=asked("t is not null", weight=1e-3)).groups, "it limits nothing"


def test_runs_does_not_undo_what_queries_that_are_gone_had_sorted(memory_url: str) -> None:
    table = table_of(memory_url)
    table.recluster(policy="workload", workload=asked(NARROW), options=SMALL)
    assert not table.plan("workload", workload=asked("a > 9000")).groups


def test_deciding_reads_no_rows_and_a_curve_of_the_plan_has_boundaries(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(memory_url)
    boxes = [
        f"a between {x} and {x + 200} and b between {y} and {y + 0.2}" for x in (0, 500) for y in (0.1, 0.7)
    ]
    workload = asked(*boxes, columns=("a", "b"))
    done: list[str] = []
    decide, make = Workload.decide, layouts.layout_of_table

    def decided(self: Any, *args: Any, **more: Any) -> Any:
        decision = decide(self, *args, **more)
        done.append("decided")
        return decision

    def read(*args: Any) -> Any:
        done.append("read rows")
        return make(*args)

    monkeypatch.setattr(Workload, "decide", decided)
    monkeypatch.setattr(layouts, "layout_of_table", read)
    (sort,) = table.plan("workload", workload=workload, options=SMALL).sorts
    assert done == ["decided", "read rows"]
    assert sort.kind == "hilbert"
    assert not is_bare(sort.parameters)


def test_rows_are_read_for_no_curve_that_the_plan_does_not_bring(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(memory_url)
    boxes = [
        f"a between {x} and {x + 200} and b between {y} and {y + 0.2}" for x in (0, 500) for y in (0.1, 0.7)
    ]
    monkeypatch.setattr(layouts, "layout_of_table", lambda *_: pytest.fail("rows were read"))
    plan = table.plan(
        "workload", workload=asked(*boxes, columns=("a", "b")), options={**SMALL, "max_bytes": 1}
    )
    assert [item.rule for item in plan.rejected if item.blocks] == ["max_bytes"]
    assert not plan.sorts
