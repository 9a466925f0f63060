"""If `recluster` has nothing to do in a table that `info` finds deep, both say so, and name commands that help."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application
from tblctl.selector.plan import Plan


def done(*words: object) -> str:
    result = CliRunner().invoke(application, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(*words: object) -> Any:
    return json.loads(done(*words, "--json"))


def _append(table: tblctl.Table, first: int, step: int) -> None:
    table.append(pa.table({"k": range(first, 300, step)}))


def _levels_apart(url: str) -> None:
    """Make three levels over the same keys, each one block deep: `levels` is done with every one."""
    table = tblctl.create(url, "k: int64", cluster_by="k", options={"block_rows": 10})
    for first in range(4):
        _append(table, first, 6)
        if first % 2:
            assert table.recluster().committed_groups  # two runs of level 0 become one of level 1
    assert table.recluster().committed_groups  # and two of level 1 one of level 2
    for first in (4, 5):
        _append(table, first, 6)
    assert table.recluster().committed_groups
    _append(table, 0, 2)


def _below_the_threshold(url: str) -> None:
    """Make one level three blocks deep."""
    table = tblctl.create(url, "k: int64", cluster_by="k", options={"block_rows": 10})
    for first in range(3):
        _append(table, first, 3)


def _commands(note: str) -> list[list[str]]:
    """Return the arguments of `recluster` in the commands that a note names."""
    return [shlex.split(text)[3:] for text in re.findall(r"`(tblctl recluster LOC [^`]*)`", note)]


@pytest.mark.parametrize(
    ("build", "asked", "rejected", "helps"),
    [
        (_levels_apart, [], [(0, 1.0, 1.0), (1, 1.0, 1.0), (2, 1.0, 1.0)], [["--policy", "full"]]),
        (
            _below_the_threshold,
            ["--threshold", "4"],
            [(0, 3.0, 4.0)],
            [["--threshold", "1"], ["--policy", "full"]],
        ),
    ],
    ids=["levels apart", "below the threshold"],
)
def test_a_recluster_with_nothing_to_do_in_a_deep_table_says_why_and_its_commands_help(
    build: Callable[[str], None],
    asked: list[str],
    rejected: list[tuple],
    helps: list[list[str]],
    tmp_path: Path,
) -> None:
    for number, command in enumerate(helps):
        loc = tmp_path / str(number)
        build(str(loc))
        depth = as_json("info", loc)["average_depth"]
        assert depth > 2.9
        found = as_json("recluster", loc, "--final", *asked)
        assert (found["rounds"], found["snapshot"]) == (0, None)
        told = [
            (item["level"], item["average_selection_depth"], item["threshold"]) for item in found["rejected"]
        ]
        assert told == rejected
        assert {item["rule"] for item in found["rejected"]} == {"well_clustered"}
        assert f"All levels together are {depth:.4f} deep on average, as info counts" in found["note"]
        assert _commands(found["note"]) == helps
        assert [item["policy"] for item in found["advice"]] == [
            "full" if "full" in item else "levels" for item in helps
        ]
        done("recluster", loc, "--final", *command)
        assert as_json("info", loc)["average_depth"] < 0.6 * depth


def test_info_says_that_a_recluster_would_leave_its_worst_ranges(tmp_path: Path) -> None:
    _levels_apart(str(tmp_path / "t"))
    told = as_json("info", tmp_path / "t")
    assert told["worst"]
    assert _commands(told["recluster"]["note"]) == [["--policy", "full"]]
    assert [item["rule"] for item in told["recluster"]["rejected"]] == ["well_clustered"] * 3
    text = done("info", tmp_path / "t")
    note = told["recluster"]["note"].replace(" LOC ", f" {tmp_path / 't'} ")
    assert f"(a recluster would leave these: {note})" in text
    assert "recluster" not in as_json("info", tmp_path / "t", "--where", "k < 9")
    assert "recluster" not in as_json("info", tmp_path / "t", "--columns", "k")


def test_info_says_nothing_where_a_recluster_takes_its_worst_ranges(tmp_path: Path) -> None:
    _below_the_threshold(str(tmp_path / "t"))
    told = as_json("info", tmp_path / "t")
    assert told["worst"]
    assert "recluster" not in told
    assert "a recluster would leave" not in done("info", tmp_path / "t")


def test_a_well_clustered_table_is_given_no_advice(tmp_path: Path) -> None:
    _below_the_threshold(str(tmp_path / "t"))
    done("recluster", tmp_path / "t", "--final")
    found = as_json("recluster", tmp_path / "t", "--final")
    assert (found["rounds"], found["advice"]) == (0, [])
    assert "tblctl recluster" not in found["note"]


def test_a_plan_keeps_its_advice_as_json(tmp_path: Path) -> None:
    _levels_apart(str(tmp_path / "t"))
    plan = tblctl.open(str(tmp_path / "t")).plan()
    [advice] = plan.advice
    assert (advice.policy, advice.threshold, advice.arguments) == ("full", None, "--policy full")
    assert Plan.from_json(plan.to_json()) == plan
