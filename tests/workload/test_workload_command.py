"""`tblctl workload`, `tblctl suggest` from the log, and policies that want it."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import tblctl
from tblctl.cli.main import application
from tblctl.maintain.recluster import Idle, ReclusterJob, step
from tblctl.maintain.request import Request
from tblctl.merger.engines.local import LocalEngine
from tblctl.selector.policy import Decision
from tblctl.tableformat.errors import StorageError
from tblctl.tableformat.workload.writer import flush

ROWS = pa.table({"id": list(range(40)), "name": [f"n{item % 7}" for item in range(40)]})


@dataclasses.dataclass(frozen=True)
class NoOptions:
    pass


class Curious:
    """A policy that keeps the workloads that it gets."""

    name, summary, options, wants_workload = "curious", "keeps what it gets", NoOptions, True

    def __init__(self) -> None:
        self.got: list[Any] = []

    def decide(self, view: Any, budget: Any, options: Any, *, workload: Any, **_: Any) -> Decision:
        del view, budget, options
        self.got.append(workload)
        return Decision()


@pytest.fixture
def table(tmp_path: Path) -> tblctl.Table:
    found = tblctl.create(
        tmp_path / "t", ROWS.schema, cluster_by="id", options={"block_rows": 5, "recluster.record": "on"}
    )
    found.append(ROWS)
    return found


def run(*words: object) -> Result:
    return CliRunner().invoke(application, list(map(str, words)))


def scan(table: tblctl.Table, *wheres: str) -> None:
    for where in wheres:
        table.scan(where).to_arrow()
    flush(table.location, 120.0)


def test_a_table_without_a_log_says_how_to_get_one(table: tblctl.Table) -> None:
    done = run("workload", table.location)
    assert done.exit_code == 0
    assert "no query is recorded: set recluster.record=on, or import a log" in done.stdout


def test_columns_and_hot_ranges_are_shown(table: tblctl.Table) -> None:
    scan(table, "id BETWEEN 10 AND 19", "id = 12", "id = 12 AND name = 'n5'", "name = 'n\x1b[31m'")
    done = run("workload", table.location)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert any(line.split() == ["queries", "4"] for line in lines)
    assert any(line.startswith("blocks read") and "of 8.0 on average" in line for line in lines)
    (row,) = (line for line in lines if line.startswith("id "))
    assert row.split()[1:4] == ["75%", "50%", "25%"]
    assert "12 75%" in row
    assert "\x1b" not in done.stdout
    found = json.loads(run("workload", table.location, "--json").stdout)
    assert (found["query_count"], found["columns"][0]["column"]) == (4, "id")
    assert json.loads(run("workload", table.location, "--json", "--limit", "1").stdout)["query_count"] == 1
    assert json.loads(run("workload", table.location, "--json", "--since", "1h").stdout)["query_count"] == 4


def test_a_time_without_queries_is_not_a_table_without_a_log(table: tblctl.Table, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(
        '{"sql": "SELECT id FROM t WHERE id = 5", "at": "2020-01-01"}\n{"sql": "SELECT id FROM t", "at": 0.5}'
    )
    done = run("workload", table.location, "import", path, "--text-column", "sql", "--time-column", "at")
    assert "dated by the file" not in done.stdout
    path.write_text('{"sql": "SELECT id FROM t", "at": "2020-01-01"}\n{"sql": "SELECT id FROM t", "at": "x"}')
    os.utime(path, (1e9, 1e9))
    done = run("workload", table.location, "import", path, "--text-column", "sql", "--time-column", "at")
    assert "dated by the file 1: a time is missing, or cannot be read" in done.stdout
    assert (
        "no query is recorded of the time since 1h: leave --since out"
        in run("workload", table.location, "--since", "1h").stdout
    )


def test_files_are_imported_and_what_was_not_used_is_said(table: tblctl.Table, tmp_path: Path) -> None:
    path = tmp_path / "q\x1b.sql"
    path.write_text("SELECT id FROM t WHERE id = 5 AND upper(name) = 'X'; SELECT 1 FROM other")
    done = run("workload", table.location, "import", path)
    assert done.exit_code == 0, done.output
    assert "(sql): 1 query" in done.stdout
    assert "not used 1: it is of another table" in done.stdout
    assert "left out of conditions 1:" in done.stdout
    assert "\x1b" not in done.stdout
    again = run("workload", table.location, "import", path, "--json")
    assert json.loads(again.stdout)["files"][0]["was_known"]
    assert "was imported before" in run("workload", table.location, "import", path).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["improt", "x"], "'improt' is no word of this command"),
        (["import"], "name the files to import"),
        (["--kind", "spark"], "--kind is for an import"),
        (["import", "x", "--since", "7d"], "--since is for what is shown"),
        (["--since", "soon"], "since is wrong"),
        (["import", "x", "--kind", "oracle"], "kind is 'oracle', expected one of spark, duckdb"),
    ],
)
def test_wrong_words_are_refused(table: tblctl.Table, tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "x").write_text("")
    done = run("workload", table.location, *words)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_log_of_another_table_and_lost_queries_are_said(table: tblctl.Table) -> None:
    scan(table, "id = 1")
    folder = Path(table.location.removeprefix("file://")) / "workload"
    (file,) = folder.iterdir()
    text = file.read_text()
    head, _, rest = text.partition("\n")
    changed = {**json.loads(head), "dropped": 3}
    file.write_text(json.dumps(changed) + "\n" + rest + rest.replace("id = 1", "gone = 1") + "{half")
    other = {**changed, "table_id": "0" * 32}
    (folder / f"{'0' * 14}-{'a' * 32}.jsonl").write_text(json.dumps(other) + "\n")
    done = run("workload", table.location)
    for text in (
        "(1 query with a condition that does not fit the table",
        "(3 queries dropped by writers",
        "(1 query in damaged lines)",
        "(1 file of another table or version left alone)",
    ):
        assert text in done.stdout


def test_suggest_ranks_by_the_log_and_says_so(table: tblctl.Table) -> None:
    assert table.suggest().queries == 0
    scan(table, "name = 'n3'", "name = 'n4'", "name = 'n4'")
    found = table.suggest()
    assert found.queries == 3
    assert found.candidates[0].terms == ("name",)
    assert sum(item.text == "name = 'n4'" for item in found.predicates) == 16
    assert "(drawn from 3 queries of the table's log" in run("suggest", table.location).stdout
    assert table.suggest("id = 1").queries == 0


def test_suggest_goes_without_a_log_that_cannot_be_read(
    table: tblctl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan(table, "name = 'n3'")

    def fail(*_: object, **__: object) -> None:
        raise StorageError("no list")

    monkeypatch.setattr("tblctl.workload.log.read_log", fail)
    assert table.suggest().queries == 0


def test_a_policy_that_wants_the_log_gets_it(table: tblctl.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Curious()
    table.plan(policy)
    scan(table, "id = 1")
    table.plan(policy)
    table.recluster(policy=policy)
    table.schedule(policy=policy)
    assert policy.got[0] is None
    assert [[query.where for query in item.queries] for item in policy.got[1:]] == [["id = 1"]] * 3

    def fail(*_: object, **__: object) -> None:
        raise StorageError("no list")

    monkeypatch.setattr("tblctl.workload.log.read_log", fail)
    table.plan(policy)
    assert policy.got[-1] is None


def test_other_policies_cost_no_request_for_the_log(
    table: tblctl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("tblctl.workload.log.read_log", fail)
    table.plan("levels")


def test_an_idle_service_plans_again_for_a_policy_that_wants_the_log(table: tblctl.Table) -> None:
    policy = Curious()
    request = Request.of(policy=policy, condition=lambda _schema: None, options=None)
    job = ReclusterJob(port=table._port, request=request, engine=lambda _plan: LocalEngine(), endless=True)
    first = step(job, job.start())
    assert isinstance(first, Idle)
    scan(table, "id = 1")
    step(job, first.state)
    assert [item and len(item.queries) for item in policy.got] == [None, 1]
