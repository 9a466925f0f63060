"""The cluster key that queries call for: which one, at what price, and what history says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asked_tables import NARROW, SCHEMA, record, rows_from, table_of
from click.testing import CliRunner

import tblctl
from tblctl import errors
from tblctl.cli.main import application


def invoke(*words: str, code: int = 0) -> Any:
    done = CliRunner().invoke(application, [*words], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def asked(where: str, weight: float = 1e6) -> tblctl.Workload:
    query = tblctl.Query(time=0.0, where=where, columns=(where.partition(" ")[0],), weight=weight)
    return tblctl.Workload(queries=(query,) * 20)


def test_the_key_is_what_queries_ask_by_if_that_pays(memory_url: str) -> None:
    table = table_of(memory_url)
    choice = table.choose_key(workload=asked(NARROW))
    assert (choice.cluster_by, choice.present, choice.changes) == (("a",), ("t",), True)
    assert choice.after_seconds < choice.before_seconds / 3
    assert choice.why.startswith("the 20 queries of the window would read the table in ")
    for where, weight in ((NARROW, 1e-6), ("t between 100 and 200", 1e6), ("a >= 0", 1e6)):
        choice = table.choose_key(workload=asked(where, weight))
        assert (choice.cluster_by, choice.changes) == (("t",), False), where
        assert choice.why.startswith("no other key would save ")


def test_blocks_that_are_in_the_order_already_cost_nothing_more(memory_url: str) -> None:
    table = table_of(memory_url)
    before = table.choose_key(workload=asked(NARROW))
    table.recluster(policy="workload", workload=asked(NARROW))
    after = table.choose_key(workload=asked(NARROW))
    assert before.rewrite_seconds > after.rewrite_seconds == 0


def test_a_table_that_only_has_to_be_merged_keeps_its_key(memory_url: str) -> None:
    """Every append is in the order of `t` and spans all of it; more queries ask by `t` than by `a`."""
    table = tblctl.create(memory_url, SCHEMA, cluster_by=["t"], options={"block_rows": 100})
    rows = rows_from(0, blocks=16)
    for first in range(16):
        table.append(rows.take(list(range(first, rows.num_rows, 16))))
    by_t = tblctl.Query(time=0.0, where="t between 300 and 340", columns=("t", "a", "s"))
    by_a = tblctl.Query(time=0.0, where=NARROW, columns=("t", "a", "s"))
    choice = table.choose_key(workload=tblctl.Workload(queries=(*(by_t,) * 9, by_a) * 60))
    assert (choice.cluster_by, choice.changes) == (("t",), False)
    choice = table.choose_key(workload=tblctl.Workload(queries=(by_t, *(by_a,) * 9) * 60))
    assert choice.cluster_by == ("a",)
    assert choice.after_seconds < choice.before_seconds


def test_two_columns_that_are_asked_for_together_get_a_curve(memory_url: str) -> None:
    table = table_of(memory_url)
    table.append(rows_from(5000, blocks=56))
    where = "a between 130 and 430 and s between 'user-0200' and 'user-0500'"
    assert table.choose_key(workload=asked(where)).cluster_by == ("hilbert(a, s)",)


def test_a_table_without_a_key_gets_one_and_one_without_queries_none(memory_url: str) -> None:
    table = table_of(memory_url, cluster_by=None)
    choice = table.choose_key(workload=asked(NARROW))
    assert (choice.cluster_by, choice.present) == (("a",), ())
    with pytest.raises(errors.InvalidOptionError, match=r"recluster\.record=on"):
        table.choose_key()


def test_recluster_changes_the_key_and_history_says_why(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    table = table_of(location, "levels")
    record(table, NARROW)
    done = invoke("recluster", location, "--cluster-by", "auto", "--dry-run")
    assert "the cluster key would be a instead of t: the 20 queries" in done.stderr
    assert table.cluster_by == ("t",)
    done = invoke("recluster", location, "--cluster-by", "AUTO", "--json")
    assert "the cluster key is now a instead of t: " in done.stderr
    assert json.loads(done.stdout)["policy"] == "levels"
    assert table.cluster_by == ("a",)
    shown = invoke("history", location).stdout
    assert "by a: the 20 queries" in " ".join(shown.split())
    (entry,) = [item for item in table.history() if "why" in item.detail]
    assert entry.detail["cluster_by"] == ["a"]
    again = invoke("recluster", location, "--cluster-by", "auto")
    assert "the cluster key stays a: no other key" in again.stderr


def test_auto_does_not_go_with_a_plan(tmp_path: Path) -> None:
    location, file = str(tmp_path / "t"), tmp_path / "plan.json"
    record(table_of(location), NARROW)
    invoke("plan", location, "--json", "--output", str(file))
    done = invoke("recluster", location, "--plan", str(file), "--cluster-by", "auto", code=2)
    assert "leave out --cluster-by auto" in done.stderr
