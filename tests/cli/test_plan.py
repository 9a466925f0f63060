"""`tblctl plan` on real tables: what it shows, what it writes, and that a recluster takes it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tables import SCHEMA, rows

import tblctl
from tblctl.cli.main import application
from tblctl.cli.show import plans


def invoke(*words: str) -> Any:
    return CliRunner().invoke(application, [*words], catch_exceptions=False)


def test_a_plan_is_what_a_dry_run_shows(overlapping: str) -> None:
    limited = ["--threshold", "1", "--max-groups", "1"]
    for more in ([], ["--json"], ["--policy", "full"], limited, ["--where", "id < 5"]):
        planned, dry = (
            invoke("plan", overlapping, *more),
            invoke("recluster", overlapping, "--dry-run", *more),
        )
        assert planned.exit_code == dry.exit_code == 0
        assert planned.stdout == dry.stdout


def test_final_plans_the_first_round(tmp_path: Path) -> None:
    table = tblctl.create(tmp_path / "t", SCHEMA, cluster_by="v", options={"block_rows": 4})
    table.append(rows(1, 2, 3, 4, 5, 6, 7, 8))
    table.set_cluster_key("id")
    one_round = json.loads(invoke("plan", str(tmp_path / "t"), "--policy", "levels", "--json").stdout)
    to_the_end = json.loads(
        invoke("plan", str(tmp_path / "t"), "--policy", "levels", "--final", "--json").stdout
    )
    assert one_round["groups"] == []
    assert len(to_the_end["groups"]) == 1


def test_a_plan_in_a_file_is_carried_out_by_a_recluster(overlapping: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    done = invoke("plan", overlapping, "--threshold", "1", "--output", str(file))
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == (
        f"The plan is in {file}: `tblctl recluster {overlapping} --plan {file}` carries it out."
    )
    assert tblctl.open(overlapping).info().average_depth == 3.0
    assert invoke("recluster", overlapping, "--plan", str(file)).exit_code == 0
    assert tblctl.open(overlapping).info().average_depth == 1.0


def test_the_file_and_json_have_the_same_plan(overlapping: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    done = invoke("plan", overlapping, "--json", "--output", str(file))
    assert json.loads(done.stdout) == json.loads(file.read_text())


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (["--policy", "levles"], "did you mean levels", 2),
        (["--threshold", "2", "--ratio", "0.5"], "", 2),
        (["--target-depth", "0.5"], "--target-depth: expected a number from 1 on, got 0.5", 2),
        (["--cluster-by", "id"], "--cluster-by is for Iceberg tables", 2),
        (["--output", "/nowhere/plan.json"], "/nowhere/plan.json", 1),
        (["--where", "nothing = 1"], "nothing", 2),
    ],
)
def test_wrong_words(overlapping: str, words: list[str], message: str, code: int) -> None:
    before = sorted(Path(overlapping).rglob("*"))
    done = invoke("plan", overlapping, *words)
    assert (done.exit_code, message in done.stderr) == (code, True), done.stderr
    assert sorted(Path(overlapping).rglob("*")) == before


def test_no_table(tmp_path: Path) -> None:
    done = invoke("plan", str(tmp_path))
    assert done.exit_code == 1
    assert "there is no table" in done.stderr


def test_a_plan_of_very_many_groups_is_shown_by_the_first_and_each_reason_once(
    overlapping: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tblctl.open(overlapping).plan(policy="full")
    first = plan.groups[0]
    groups = tuple(replace(first, number=number, blocks=(f"data/{number}",)) for number in range(10_000))
    plans.print_plan(replace(plan, groups=groups), final=False, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 150
    assert "... and 9,900 groups more: --json lists them all" in lines
    assert f"groups 0 to 99: {first.why}" in lines
    assert any(line.startswith("(10,000 groups: 10,000 blocks") for line in lines)
