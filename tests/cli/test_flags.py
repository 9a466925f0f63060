"""What the library calls by names of Python, the command calls by its flags; in JSON names stay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application
from tblctl.cli.show.flags import in_flags


def invoke(*words: str) -> Any:
    return CliRunner().invoke(application, [*words], catch_exceptions=False)


@pytest.fixture
def _recluster() -> Iterator[None]:
    with click.Context(application.commands["recluster"]):
        yield


@pytest.mark.usefixtures("_recluster")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("max_cost needs price_per_gib: without ..", "--max-cost needs --price-per-gib: without .."),
        ("Raise max_bytes, now 5. Raise max_blocks.", "Raise --max-bytes, now 5. Raise --max-blocks."),
        ("give tasks less memory (memory_bytes)", "give tasks less memory (--memory)"),
        ("every is 0, expected a time above 0", "--watch is 0, expected a time above 0"),
        ("x: no; threshold: expected a number from 1 on", "x: no; --threshold: expected a number from 1 on"),
        ("level 1 is well clustered: threshold 1", "level 1 is well clustered: threshold 1"),
        ("all partitions of every policy are final", "all partitions of every policy are final"),
        ("no column 'max_bytes' in /data/max_bytes/t", "no column 'max_bytes' in /data/max_bytes/t"),
        (
            "s3://max_bytes.example, my_max_bytes, max_bytes_2",
            "s3://max_bytes.example, my_max_bytes, max_bytes_2",
        ),
    ],
)
def test_names_of_options_become_flags_and_data_stays(text: str, shown: str) -> None:
    assert in_flags(text) == shown


def test_a_program_that_prints_without_a_command_gets_the_text_as_it_is() -> None:
    assert in_flags("Raise max_bytes") == "Raise max_bytes"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["recluster", "LOC", "--max-cost", "5"], "--max-cost needs --price-per-gib or --price-per-hour"),
        (["plan", "LOC", "--max-seconds", "-1"], "--max-seconds: expected a number above 0, got -1.0"),
        (["recluster", "LOC", "--watch", "0s"], "--watch is '0s', expected a time above 0"),
        (["estimate", "LOC", "--days", "0"], "--days is 0.0, expected a number above 0"),
        (["estimate", "LOC", "--target-depth", "0"], "--target-depth: expected a number from 1 on"),
        (["plan", "LOC", "--list", "--plans-at", "/p"], "leave out --plans-at"),
    ],
)
def test_errors_name_what_was_typed(overlapping: str, words: list[str], message: str) -> None:
    done = invoke(*(overlapping if word == "LOC" else word for word in words))
    assert done.exit_code == 2, done.output
    assert message in done.stderr


def test_notes_reasons_and_rules_of_plans_and_outcomes_name_flags(overlapping: str) -> None:
    short = [overlapping, "--threshold", "1", "--max-seconds", "0.000001"]
    for command in ("plan", "recluster"):
        text = invoke(command, *short).stdout
        assert "left for later by --max-seconds. Raise --max-seconds, now 1e-06, to " in text
        assert re.search(r"\b[a-z]+_[a-z_]+\b", text) is None
    assert "left for later by max_seconds" in json.loads(invoke("plan", *short, "--json").stdout)["note"]
    cut = invoke("plan", overlapping, "--threshold", "1", "--max-blocks", "2").stdout
    assert "--max-blocks" in {line.split()[0] for line in cut.splitlines() if line}
    assert "max_blocks" not in cut


def test_a_limit_of_seconds_that_holds_nothing_says_what_would_hold_a_group(overlapping: str) -> None:
    short = [overlapping, "--threshold", "1", "--json"]
    note = json.loads(invoke("plan", *short, "--max-seconds", "1e-6").stdout)["note"]
    enough = re.search(
        r"Raise max_seconds, now 1e-06, to ([0-9.e-]+): the cheapest group is expected to", note
    )
    assert enough is not None
    assert len(json.loads(invoke("plan", *short, "--max-seconds", enough.group(1)).stdout)["groups"]) == 1
    priced = [*short, "--price-per-gib", "2"]
    note = json.loads(invoke("plan", *priced, "--max-cost", "1e-12").stdout)["note"]
    enough = re.search(r"Raise max_cost, now 1e-12, to ([0-9.e-]+): the cheapest group is expected to", note)
    assert enough is not None
    assert len(json.loads(invoke("plan", *priced, "--max-cost", enough.group(1)).stdout)["groups"]) == 1


@pytest.mark.parametrize("command", ["plan", "recluster", "estimate", "gc"])
def test_help_names_no_argument_of_python(command: str) -> None:
    text = invoke(command, "--help").stdout.partition("With --json")[0]
    found = set(re.findall(r"(?<![\w=.-])[a-z]+_[a-z_]+\b", text))
    assert not found & {str(param.name) for param in application.commands[command].params}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--partitions", "a"],
            "--partition-column is missing: add --partition-column COLUMN, where COLUMN has the",
        ),
        (
            ["--recent-days", "3:1"],
            "--day-column is missing: add --day-column COLUMN, where COLUMN has the days",
        ),
        (["--sort-columns", "nope"], "--sort-columns 'nope': no column 'nope'; columns are id, v"),
        (["--sort-columns", "idd"], "--sort-columns 'idd': no column 'idd'; did you mean 'id'?"),
    ],
)
def test_wrong_columns_are_told_by_the_flag_with_what_to_type(
    overlapping: str, words: list[str], message: str
) -> None:
    done = invoke("recluster", overlapping, "--policy", "size", *words)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


# -- a plan in a file that somebody edited


def edited(location: str, file: Path, **change: Any) -> Any:
    """Write a plan to a file, with other values, or others in its first group, and carry it out."""
    plan = json.loads(invoke("plan", location, "--threshold", "1", "--json").stdout)
    group = plan["groups"][0]
    if "blocks" in change:
        group["blocks"] = change.pop("blocks")(group["blocks"])
    group.update(change.pop("group", {}))
    file.write_text(json.dumps({**plan, **change}))
    before = sorted(path for path in Path(location).rglob("*") if path.is_file())
    done = invoke("recluster", location, "--plan", str(file))
    after = sorted(path for path in Path(location).rglob("*") if path.is_file())
    return done, before == after


@pytest.mark.parametrize(
    ("name", "hint"),
    [("levls", "did you mean levels?"), ("", "policies are levels, full"), ("mine", "policies are levels")],
)
def test_a_policy_that_nobody_knows_is_refused_with_the_nearest_name(
    overlapping: str, tmp_path: Path, name: str, hint: str
) -> None:
    done, unchanged = edited(overlapping, tmp_path / "plan.json", policy=name)
    assert (done.exit_code, unchanged) == (1, True)
    assert f"plan.json names an unknown policy {name!r}; {hint}" in done.stderr
    assert done.stderr.endswith("nothing was changed\n")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda plan: plan["groups"][0]["price"].update(seconds=float("nan")),
            "price.seconds: expected a number, got nan",
        ),
        (
            lambda plan: plan["predicted"].update(average_depth_after=1e999),
            "average_depth_after: expected a number, got inf",
        ),
        (lambda plan: plan["bill"].update(measured_runs=-1), "measured_runs is -1, expected at least 0"),
        (
            lambda plan: plan["options"]["budget"].update(max_seconds=-5),
            "max_seconds: expected a number above 0",
        ),
    ],
)
def test_figures_that_cannot_be_are_refused(overlapping: str, tmp_path: Path, change: Any, why: str) -> None:
    plan = json.loads(invoke("plan", overlapping, "--threshold", "1", "--json").stdout)
    change(plan)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    done = invoke("recluster", overlapping, "--plan", str(file))
    assert (done.exit_code, tblctl.open(overlapping).snapshot.sequence) == (1, 4)
    assert why in done.stderr


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("rows", 13, "12"),
        ("size_bytes", 1, r"\d+"),
        ("decoded_bytes", 2**60, r"\d+"),
        ("partition", "region=eu", "''"),
        ("sort_id", 7, "one of 0, 1"),
    ],
)
def test_a_group_that_says_other_things_than_its_blocks_is_refused_before_spark_starts(
    overlapping: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, value: Any, expected: str
) -> None:
    monkeypatch.setattr("tblctl.maintain.choose_engine._spark", lambda *_args, **_words: pytest.fail("Spark"))
    file = tmp_path / "plan.json"
    done, unchanged = edited(overlapping, file, group={field: value})
    assert (done.exit_code, unchanged) == (1, True)
    said = rf"--plan: {file}: group 0 of the plan: {field} is {value!r}, expected {expected}"
    assert re.search(said, done.stderr), done.stderr


@pytest.mark.parametrize("snapshot", [5, 0, -1, "x"])
def test_a_snapshot_that_the_table_never_had_is_refused(
    overlapping: str, tmp_path: Path, snapshot: Any
) -> None:
    file = tmp_path / "plan.json"
    done, unchanged = edited(overlapping, file, snapshot=snapshot)
    assert (done.exit_code, unchanged) == (1, True)
    said = f"--plan: {file}: the plan says that it was made on snapshot {snapshot!r}, which {overlapping} never had"
    assert said in done.stderr


def test_what_a_plan_says_of_prices_and_depths_is_not_believed(overlapping: str, tmp_path: Path) -> None:
    plan = json.loads(invoke("plan", overlapping, "--threshold", "1", "--json").stdout)
    price, depth = {**plan["groups"][0]["price"]}, plan["predicted"]["average_depth_after"]
    plan["groups"][0]["price"].update(requests=10**9, suggested_bytes=10**9)
    plan["groups"][0].update(depth_before=99.0, same_key_rows=1)
    plan["predicted"].update(average_depth_after=98.0)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    done = invoke("recluster", overlapping, "--plan", str(file), "--json")
    assert (done.exit_code, json.loads(done.stdout)["predicted_depth_after"]) == (0, depth)
    recorded = tblctl.open(overlapping).history(1)[0].detail["recluster"]
    assert (recorded["predicted"], recorded["predicted_depth_after"]) == (price, depth)


def test_a_budget_in_a_plan_holds_whatever_its_prices_say(overlapping: str, tmp_path: Path) -> None:
    plan = json.loads(invoke("plan", overlapping, "--threshold", "1", "--json").stdout)
    plan["groups"][0]["price"].update(seconds=0.0)
    plan["options"]["budget"].update(max_seconds=1e-9)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    done = invoke("recluster", overlapping, "--plan", str(file), "--json")
    assert (json.loads(done.stdout)["committed_groups"], json.loads(done.stdout)["left_groups"]) == (0, 1)


def test_a_policy_without_the_options_of_the_plan_is_refused(overlapping: str, tmp_path: Path) -> None:
    done, unchanged = edited(overlapping, tmp_path / "plan.json", policy="depth")
    assert (done.exit_code, unchanged) == (1, True)
    assert "plan.json names policy depth, which does not have the plan's option '" in done.stderr


def test_every_error_on_a_plan_names_its_file(overlapping: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for change in ({"table_id": "0" * 32}, {"version": 3}, {"group": {"depth_before": 0.5}}, {"more": 1}):
        done, unchanged = edited(overlapping, file, **change)
        assert (done.exit_code in (1, 2), unchanged, f"--plan: {file}: " in done.stderr) == (True, True, True)


def test_blocks_that_were_never_in_the_table_are_an_error_and_no_conflict(
    overlapping: str, tmp_path: Path
) -> None:
    strange = f"data/{'0' * 32}.parquet"
    done, unchanged = edited(
        overlapping, tmp_path / "plan.json", blocks=lambda blocks: [strange, *blocks[1:]]
    )
    assert (done.exit_code, unchanged) == (1, True)
    assert f"group 0 of the plan names '{strange}', which was not in snapshot 4 of " in done.stderr
    assert "it is of another table, or was edited; nothing was changed: plan again" in done.stderr


def test_blocks_that_left_the_table_since_the_plan_are_a_conflict_and_no_error(
    overlapping: str, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    assert invoke("plan", overlapping, "--threshold", "1", "--output", str(file)).exit_code == 0
    tblctl.open(overlapping).delete("true")
    done = invoke("recluster", overlapping, "--plan", str(file))
    assert done.exit_code == 0
    assert "1 group (1 conflicted)" in done.stdout


def test_the_flags_of_a_command_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    command = application.commands["recluster"]
    monkeypatch.setattr(command, "get_params", lambda ctx: found.append(ctx) or [])
    with click.Context(command):
        for text in ("max_bytes is 0", "max_rows is 0", "why"):
            in_flags(text)
    assert len(found) == 1
