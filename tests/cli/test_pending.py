"""`plan --schedule`, `--list` and `--cancel`, and `recluster --pending`, as people use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application


def invoke(*words: str) -> Any:
    return CliRunner().invoke(application, [*words], catch_exceptions=False)


def scheduled(location: str, *more: str) -> Any:
    done = invoke("plan", location, "--schedule", "--threshold", "1", "--json", *more)
    assert done.exit_code == 0
    return json.loads(done.stdout)


def test_a_plan_is_kept_listed_and_carried_out(overlapping: str) -> None:
    done = invoke("plan", overlapping, "--schedule", "--threshold", "1", "--expires", "2h")
    (plan,) = tblctl.open(overlapping).pending_plans()
    carries_out = f"`tblctl recluster {overlapping} --pending {plan.id}` carries it out."
    assert "Nothing was changed" not in done.stdout
    assert (
        done.stdout.splitlines()[-1] == f"The plan is kept as {plan.id} until {plan.expires}: {carries_out}"
    )
    listed = invoke("plan", overlapping, "--list").stdout.splitlines()
    names = ("pending", "plan", "expires", "policy", "created", "blocks", "size", "groups", "begun")
    assert listed[0].split() == [*names]
    found = listed[2].split()
    assert [*found[:5], *found[-2:]] == [plan.id, plan.expires, "levels", plan.created, "3", "1", "0"]
    done = invoke("recluster", overlapping, "--pending", plan.id)
    assert (done.exit_code, done.stdout.splitlines()[0][:43]) == (
        0,
        "reclustered 12 rows in 1 round, 1 group on ",
    )
    assert (
        invoke("plan", overlapping, "--list").stdout
        == f"no pending plan: `tblctl plan {overlapping} --schedule` keeps one\n"
    )


def test_without_an_id_the_oldest_is_carried_out_and_json_has_it_all(overlapping: str) -> None:
    kept = scheduled(overlapping, "--max-blocks", "2")
    assert kept["id"] == json.loads(invoke("plan", overlapping, "--list", "--json").stdout)[0]["id"]
    done = json.loads(invoke("recluster", overlapping, "--json", "--pending").stdout)
    assert (done["committed_groups"], done["blocks_in"]) == (1, 2)
    nothing = invoke("recluster", overlapping, "--pending")
    assert (nothing.exit_code, nothing.stdout) == (0, f"there is no pending plan of {overlapping}\n")


def test_plans_none_of_which_can_be_carried_out_are_an_error(overlapping: str) -> None:
    scheduled(overlapping)
    (path,) = Path(overlapping).glob("metadata/plans/*")
    path.write_bytes(path.read_bytes().replace(b'"levels"', b'"lovels"'))
    done = invoke("recluster", overlapping, "--pending")
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"none of the pending plans of {overlapping} can be executed: " in done.stderr
    assert "do not match the checksum" in done.stderr


def test_a_plan_is_cancelled(overlapping: str) -> None:
    kept = scheduled(overlapping)
    done = invoke("plan", overlapping, "--cancel", kept["id"])
    assert done.stdout == f"cancelled the pending plan {kept['id']} of 1 group\n"
    assert not list(Path(overlapping).glob("metadata/plans/*"))
    again = scheduled(overlapping)
    assert json.loads(invoke("plan", overlapping, "--cancel", again["id"], "--json").stdout)["groups"] == 1


def test_what_cannot_be_carried_out_is_listed_with_the_reason(overlapping: str) -> None:
    scheduled(overlapping)
    (path,) = Path(overlapping).glob("metadata/plans/*")
    path.write_bytes(path.read_bytes().replace(b'"levels"', b'"lovels"'))
    done = invoke("plan", overlapping, "--list")
    assert (done.exit_code, "do not match the checksum" in done.stdout) == (0, True)


def test_a_plan_without_groups_is_not_kept(overlapping: str) -> None:
    scheduled(overlapping)
    kept = scheduled(overlapping)
    assert (kept["id"], kept["expires"], kept["plan"]["groups"]) == (None, None, [])
    done = invoke("plan", overlapping, "--schedule", "--threshold", "1")
    assert "in groups of pending plans" in done.stdout
    assert "The plan is kept" not in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", "--schedule", "--list"], "--schedule and --list exclude each other"),
        (["plan", "--list", "--cancel", "0" * 32], "--list and --cancel exclude each other"),
        (["plan", "--list", "--threshold", "2"], "--list and --threshold exclude each other"),
        (["plan", "--list", "--final"], "--list and --final exclude each other"),
        (["plan", "--schedule", "--output", "x.json"], "--schedule and --output exclude each other"),
        (["plan", "--schedule", "--expires", "soon"], "--expires is wrong: 'soon' is not a duration"),
        (["plan", "--schedule", "--expires", "5"], "--expires is wrong: '5' has no unit; write 5s, 5m or 5h"),
        (["plan", "--schedule", "--expires", "0"], "--expires is '0', expected a time from 1s to 31 years"),
        (["plan", "--schedule", "--plans-at", "/p"], "keeps pending plans with the table"),
        (["plan", "--schedule", "--cluster-by", "v"], "is its property tblctl.cluster-by"),
        (["recluster", "--pending", "--cluster-by", "v"], "is its property tblctl.cluster-by"),
        (["plan", "--expires", "1d"], "--expires goes with --schedule"),
        (["plan", "--plans-at", "/p"], "--plans-at goes with --schedule, --list or --cancel"),
        (["plan", "--cancel", "x"], "'x' is not the id of a pending plan"),
        (["recluster", "--pending", "0" * 32], f"has no pending plan {'0' * 32}"),
        (["recluster", "--pending", "x"], "'x' is not the id of a pending plan"),
        (["recluster", "--pending", "--final"], "--pending and --final exclude each other"),
        (["recluster", "--pending", "--dry-run"], "--pending and --dry-run exclude each other"),
        (["recluster", "--pending", "--where", "id = 1"], "--pending and --where exclude each other"),
        (["recluster", "--pending", "--max-blocks", "2"], "--pending and --max-blocks exclude each other"),
        (
            ["recluster", "--pending", "--commit-every", "2"],
            "--pending and --commit-every exclude each other",
        ),
        (["recluster", "--plans-at", "/p"], "--plans-at goes with --pending"),
        (["recluster", "--watch", "5m", "--pending"], "--watch and --pending exclude each other"),
    ],
)
def test_words_that_contradict_each_other_change_nothing(
    overlapping: str, words: list[str], message: str
) -> None:
    before = sorted(Path(overlapping).rglob("*"))
    done = invoke(words[0], overlapping, *words[1:])
    assert done.exit_code == 2, done.stderr
    assert message in done.stderr
    assert [path for path in sorted(Path(overlapping).rglob("*")) if path.is_file()] == [
        path for path in before if path.is_file()
    ]
