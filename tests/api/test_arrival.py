"""Rows that are appended to a table of policy `workload`: the order that they are written in, and what fails none."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from asked_tables import BLOCKS, NARROW, record, rows_from, table_of

import tblctl
from tblctl.maintain import arrival
from tblctl.tableformat.model.cluster_key import AS_LISTED
from tblctl.workload import log


def keys_of(table: tblctl.Table) -> set[int]:
    """Return the sorts of the blocks that were written last, by id; 0 for none."""
    snapshot = table._native.head()
    found = table._port.newest().listing(AS_LISTED, None)
    added = {file.path for file in table.files()[-snapshot.summary.blocks_added :]}
    paths = found.paths.to_pylist()
    return {number for path, number in zip(paths, found.sort_id.tolist(), strict=True) if path in added}


def blocks_read(table: tblctl.Table, where: str, first: int) -> int:
    return table.scan(where=f"{where} and t >= {first}").explain().blocks_read


def test_an_append_is_sorted_by_what_queries_ask_for(memory_url: str) -> None:
    table = table_of(memory_url)
    record(table, NARROW)
    table.append(rows_from(5000))
    assert keys_of(table) == {2}
    assert blocks_read(table, NARROW, 5000) <= 2
    assert table.history()[0].detail["sorted_by"] == ["a"]
    assert table.scan(where="t >= 5000").to_arrow().sort_by("t").equals(rows_from(5000))
    assert not table.check(deep=True).problems
    table.append(rows_from(9000))
    assert keys_of(table) == {2}, "the sort is live now, and there is no second one"
    assert blocks_read(table, NARROW, 9000) <= 2
    for policy in ("levels", "runs"):
        assert "other_sort" in {item.rule for item in table.plan(policy).rejected}


def test_without_a_log_or_a_gain_or_with_another_policy_the_cluster_key_holds(memory_url: str) -> None:
    table = table_of(memory_url)
    table.append(rows_from(5000))
    assert keys_of(table) == {1}
    for where, weight in (("t between 5100 and 5200", 1e6), (NARROW, 1e-6), ("a >= 0", 1e6)):
        record(table, where, weight)
        table.append(rows_from(6000))
        assert keys_of(table) == {1}, where
    other = table_of(memory_url + "2", "levels")
    record(other, NARROW)
    other.append(rows_from(5000))
    assert keys_of(other) == {1}


def test_rows_of_one_block_read_no_log(memory_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(memory_url)
    record(table, NARROW)
    monkeypatch.setattr(log, "read_log", lambda *_, **__: pytest.fail("the log was read"))
    table.append(rows_from(5000, blocks=1))
    assert keys_of(table) == {1}


def test_a_table_without_a_key_is_sorted_too_and_so_are_texts(memory_url: str) -> None:
    table = table_of(memory_url, cluster_by=None)
    record(table, "s >= 'user-0300' and s < 'user-0340'")
    table.append(rows_from(5000))
    assert blocks_read(table, "s >= 'user-0300' and s < 'user-0340'", 5000) <= 2
    assert table.history()[0].detail["sorted_by"] == ["s"]


def test_each_run_of_a_large_append_is_asked_about(memory_url: str) -> None:
    table = table_of(memory_url)
    record(table, NARROW)
    rows = rows_from(5000, blocks=4 * BLOCKS)
    table.append(rows, memory_bytes=rows.nbytes)
    assert keys_of(table) == {2}
    assert 2 <= blocks_read(table, NARROW, 5000) <= 10
    assert table.scan(where="t >= 5000").to_arrow().sort_by("t").equals(rows)


def test_an_order_that_fails_fails_no_append(
    memory_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_of(memory_url)
    record(table, NARROW)
    monkeypatch.setattr(arrival, "rates_at_hand", lambda *_: 1 / 0)
    table.append(rows_from(5000))
    assert keys_of(table) == {1}
    assert "rows are written in the table's own order: division by zero" in caplog.text


def test_rows_whose_sort_another_commit_ended_or_took_are_in_no_order(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile_bringing_another(other: tblctl.Table) -> None:
        asked = tblctl.Query(time=0.0, where="s = 'user-0300'", columns=("s",), weight=1e9)
        how: dict[str, Any] = {"policy": "workload", "workload": tblctl.Workload(queries=(asked,))}
        assert other.recluster(**how, options={"alpha": 1e-3}).committed_groups

    def meanwhile_altering(other: tblctl.Table) -> None:
        other.set_cluster_key("s")

    choose = arrival.best_order
    for number, meanwhile in enumerate((meanwhile_bringing_another, meanwhile_altering)):
        table = table_of(f"{memory_url}{number}")
        record(table, NARROW)

        def chosen(*args: Any, table: Any = table, meanwhile: Any = meanwhile, **more: Any) -> Any:
            meanwhile(tblctl.open(table.location))
            return choose(*args, **more)

        monkeypatch.setattr(arrival, "best_order", chosen)
        table.append(rows_from(5000))
        assert keys_of(table) == {0}
        assert "sorted_by" not in table.history()[0].detail
        assert table.scan(where="t >= 5000").to_arrow().sort_by("t").equals(rows_from(5000))
        assert not table.check(deep=True).problems


def test_nulls_are_asked_for_by_no_range(memory_url: str) -> None:
    table = table_of(memory_url)
    record(table, NARROW)
    rows = rows_from(5000)
    values = [None if place % 5 == 0 else value for place, value in enumerate(rows["a"].to_pylist())]
    table.append(rows.set_column(1, "a", pa.array(values, pa.int64())))
    assert keys_of(table) == {2}
    assert blocks_read(table, NARROW, 5000) <= 2


def test_a_live_curve_is_followed_and_no_new_one_is_made(memory_url: str) -> None:
    table = table_of(memory_url)
    where = "a between 130 and 430 and s between 'user-0200' and 'user-0500'"
    record(table, where)
    table.append(rows_from(5000, blocks=64))
    assert table.history()[0].detail["sorted_by"] in (["a"], ["s"])
    for first in (3000, 4000):
        table.append(rows_from(first, blocks=1).slice(0, 10))
    table.recluster(policy="size", options={"sort_columns": "hilbert(a, s)"})
    assert "hilbert" in {sort.kind for sort in table._native.head().live_sorts.values()}
    table.append(rows_from(19000, blocks=64))
    assert table.history()[0].detail["sorted_by"][0].startswith("hilbert(")
