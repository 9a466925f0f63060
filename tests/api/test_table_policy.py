"""The option `recluster.policy`: the policy of plans and reclusters that name none."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application
from tblctl.errors import InvalidOptionError

POLICY = "recluster.policy"


@pytest.fixture
def table(memory_url: str) -> tblctl.Table:
    """Four appends that overlap."""
    made = tblctl.create(memory_url, "k: int64", cluster_by="k", options={"block_rows": 10, POLICY: "full"})
    for start in range(4):
        made.append(pa.table({"k": list(range(start, 40, 4))}))
    return made


def test_a_plan_that_names_no_policy_is_made_by_the_tables(table: tblctl.Table) -> None:
    assert table.plan().policy == "full"
    assert table.plan("levels").policy == "levels"
    table.set_options({POLICY: "none"})
    assert table.plan().policy == "levels"


def test_a_recluster_says_which_policy_the_table_named(table: tblctl.Table) -> None:
    outcome = table.recluster(final=True)
    assert (outcome.policy, outcome.committed_groups) == ("full", 1)
    assert table.recluster().policy == "full"
    assert table.recluster(policy="levels").policy == "levels"


def test_scheduled_plans_and_what_follows_a_write_are_the_tables_too(table: tblctl.Table) -> None:
    assert table.schedule().plan.policy == "full"
    table.set_options({POLICY: "size", "recluster.mode": "inline"})
    assert table.append(pa.table({"k": [1]})).recluster.policy == "size"


def test_small_blocks_of_a_table_without_a_key_are_stitched_after_writes(memory_url: str) -> None:
    made = tblctl.create(
        memory_url, "k: int64", options={"block_rows": 10, POLICY: "size", "recluster.mode": "inline"}
    )
    for start in range(12):
        made.append(pa.table({"k": [start]}))
    assert len(made.files()) < 5
    assert sorted(made.scan().to_arrow()["k"].to_pylist()) == list(range(12))


def test_an_estimate_simulates_the_tables_policy(table: tblctl.Table) -> None:
    assert table.estimate().policy == "full"
    assert table.estimate(policy="runs").policy == "runs"


def test_options_are_those_of_the_tables_policy(table: tblctl.Table) -> None:
    table.set_options({POLICY: "depth"})
    assert table.plan(options={"clustering_depth": 2}).policy == "depth"
    with pytest.raises(
        InvalidOptionError,
        match=r"^policy depth \(by the table's recluster.policy\) does not take cube_bytes: leave cube_bytes out, "
        r"or choose policy newdata$",
    ):
        table.plan(options={"cube_bytes": 5})
    with pytest.raises(InvalidOptionError, match="unknown option 'clustring_depth'; did you mean"):
        table.plan(options={"clustring_depth": 2})


@pytest.mark.parametrize("value", ["ful", "no such", "a\nb", 5, ""])
def test_a_name_of_no_policy_is_refused_and_nothing_changes(table: tblctl.Table, value: object) -> None:
    before = table.snapshot
    if value == "":
        table.set_options({POLICY: value})
        assert table.plan().policy == "levels"
        return
    with pytest.raises(InvalidOptionError, match=r"full|expected the name of a policy"):
        table.set_options({POLICY: value})
    assert tblctl.open(table.location).snapshot == before


def test_a_table_whose_policy_is_not_installed_here_says_so(table: tblctl.Table, monkeypatch) -> None:
    monkeypatch.setattr("tblctl.policies.require_policy_of", lambda _options: None)
    table.set_options({POLICY: "elsewhere"})
    with pytest.raises(InvalidOptionError, match=r"has recluster.policy=elsewhere: .*elsewhere"):
        table.plan()
    assert table.plan("levels").policy == "levels"


def test_the_command_follows_the_table(table: tblctl.Table) -> None:
    done = CliRunner().invoke(application, ["recluster", table.location, "--json"])
    assert (done.exit_code, json.loads(done.stdout)["policy"]) == (0, "full")
    done = CliRunner().invoke(application, ["plan", table.location, "--cube-bytes", "5GiB"])
    assert done.exit_code == 2
    assert "policy full (by the table's recluster.policy) does not take --cube-bytes" in done.stderr


def test_writers_that_do_not_know_it_may_not_commit(tmp_path: Path) -> None:
    def least(name: str, options: dict[str, str]) -> int:
        tblctl.create(tmp_path / name, "k: int64", options=options)
        (snapshot,) = (tmp_path / name / "metadata" / "snapshots").iterdir()
        return json.loads(snapshot.read_text())["min_writer_version"]

    assert (least("with", {POLICY: "runs"}), least("without", {})) == (4, 2)
    assert least("async", {"recluster.mode": "async"}) == 4
