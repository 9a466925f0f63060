"""`recluster`, `sql`, `append --recluster`, `info` and `history` on real tables, as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import tblctl
from tblctl.cli.main import application

ROWS = 60
BATCHES = 6


def run(*words: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(application, [str(word) for word in words], input=stdin)


def done(*words: object) -> str:
    result = run(*words)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def as_json(*words: object) -> Any:
    return json.loads(done(*words, "--json"))


def ids(loc: Path) -> list[int]:
    return sorted(tblctl.open(str(loc)).scan(columns=["id"]).to_arrow()["id"].to_pylist())


def batch(number: int) -> pa.Table:
    """Every batch holds ids from all over."""
    return pa.table({"id": range(number, ROWS, BATCHES), "name": [f"n{number}"] * (ROWS // BATCHES)})


@pytest.fixture
def loc(tmp_path: Path) -> Path:
    """A table of 6 blocks of 10 rows, each over all keys."""
    path = tmp_path / "table"
    table = tblctl.create(str(path), "id: int64, name: string", cluster_by="id", options={"block_rows": 10})
    for number in range(BATCHES):
        table.append(batch(number))
    return path


def test_a_recluster_makes_the_table_well_clustered_and_says_so(loc: Path) -> None:
    lines = [line.split() for line in done("recluster", loc, "--final").splitlines()]
    assert lines[0][:3] == ["reclustered", "60", "rows"]
    assert ["depth", "6.0000", "1.0000"] in lines
    assert ["overlaps", "5.0000", "0.0000"] in lines
    assert ids(loc) == list(range(ROWS))
    assert as_json("info", loc)["average_depth"] == 1
    assert done("recluster", loc).startswith("nothing to do: level 1 is well clustered")
    assert as_json("recluster", loc)["rounds"] == 0


@pytest.mark.parametrize("policy", ["levels", "full"])
def test_only_what_overlaps_is_rewritten(tmp_path: Path, policy: str) -> None:
    loc = tmp_path / "table"
    table = tblctl.create(str(loc), "id: int64", cluster_by="id", options={"block_rows": 10})
    for ids_of_block in [
        *(range(start, start + 10) for start in (0, 10, 20, 60)),
        range(30, 50, 2),
        range(31, 51, 2),
    ]:
        table.append(pa.table({"id": ids_of_block}))
    before = {block.path for block in table.files()}
    planned = as_json("recluster", loc, "--policy", policy, "--dry-run")
    assert [len(group["blocks"]) for group in planned["groups"]] == [2]
    found = as_json("recluster", loc, "--policy", policy, "--final")
    assert (found["rounds"], found["blocks_in"], found["blocks_out"], found["rows"]) == (1, 2, 2, 20)
    assert found["depth_after"] == 1
    assert len(before & {block.path for block in table.files()}) == 4
    assert ids(loc) == [*range(50), *range(60, 70)]
    [last] = [entry for entry in as_json("history", loc) if entry["sequence"] == found["snapshot"]]
    assert (last["blocks_added"], last["blocks_removed"], last["blocks"]) == (2, 2, 6)


def test_json_has_every_figure(loc: Path) -> None:
    found = as_json("recluster", loc)
    assert {
        "rounds", "committed_groups", "conflicted_groups", "failed_groups", "blocks_in", "blocks_out", "rows",
        "bytes_read", "bytes_written", "depth_before", "depth_after", "overlaps_before", "overlaps_after", "seconds",
        "snapshot", "policy", "engine", "note", "groups",
    } <= set(found)  # fmt: skip
    assert (found["committed_groups"], found["blocks_in"], found["rows"]) == (1, 6, 60)
    assert found["snapshot"] == tblctl.open(str(loc)).snapshot.sequence
    [group] = found["groups"]
    assert {"round", "number", "status", "blocks_in", "rows", "why", "error"} <= set(group)
    assert (group["status"], group["blocks_in"]) == ("committed", 6)


def test_a_plan_is_shown_kept_and_carried_out(loc: Path, tmp_path: Path) -> None:
    before = tblctl.open(str(loc)).snapshot.sequence
    text = done("recluster", loc, "--dry-run")
    assert "(1 group: 6 blocks, 60 rows, " in text
    assert text.endswith("Nothing was changed.\n")
    file = tmp_path / "plan.json"
    file.write_text(done("recluster", loc, "--dry-run", "--json"))
    assert tblctl.open(str(loc)).snapshot.sequence == before
    assert as_json("recluster", loc, "--plan", file)["committed_groups"] == 1
    assert as_json("info", loc)["average_depth"] == 1
    stale = as_json("recluster", loc, "--plan", file)
    assert (stale["conflicted_groups"], stale["snapshot"]) == (1, None)
    assert "left the table" in done("recluster", loc, "--plan", file)
    result = run("recluster", loc, "--plan", file, "--on-conflict", "fail")
    assert (result.exit_code, result.stdout) == (1, "")


def test_a_plan_of_another_table_is_refused(loc: Path, tmp_path: Path) -> None:
    plan = done("recluster", loc, "--dry-run", "--json")
    other = tmp_path / "other"
    tblctl.create(str(other), "id: int64", cluster_by="id")
    result = run("recluster", other, "--plan", "-", stdin=plan)
    assert result.exit_code != 0
    assert "another table" in result.stderr


@pytest.mark.parametrize(
    ("statement", "depth"),
    [
        ("ALTER TABLE '{loc}' RECLUSTER", 1),
        ("OPTIMIZE TABLE IF EXISTS '{loc}' RECLUSTER WHERE id >= 0;", 1),
        ("alter table '{loc}' recluster final where id > 1000 and name <> 'RECLUSTER; FINAL'", 6),
    ],
)
def test_the_statement_does_what_the_command_does(loc: Path, statement: str, depth: int) -> None:
    done("sql", statement.format(loc=loc))
    assert as_json("info", loc)["average_depth"] == depth
    assert ids(loc) == list(range(ROWS))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["recluster", "{loc}", "--where", "nope = 1"], 2, "nope"),
        (["recluster", "{loc}", "--where", "id = = 1"], 2, "cannot read the condition"),
        (["sql", "ALTER TABLE '{loc}' RECLUSTER WHERE nope = 1"], 2, "nope"),
        (["recluster", "{loc}", "--policy", "level"], 2, "did you mean levels?"),
        (["recluster", "{loc}", "--threshold", "0.5"], 2, "threshold: expected a number from 1 on"),
        (["recluster", "{loc}", "--threshold", "nan"], 2, "threshold: expected a number"),
        (["recluster", "{loc}", "--ratio", "-1"], 2, "ratio: expected a share"),
        (["recluster", "{loc}-none"], 1, "no table"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_message_and_changes_nothing(
    loc: Path, words: list[str], code: int, message: str
) -> None:
    before = tblctl.open(str(loc)).snapshot.sequence
    result = run(*(word.format(loc=loc) for word in words))
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert "a bug" not in result.stderr
    assert tblctl.open(str(loc)).snapshot.sequence == before


def test_a_table_without_a_cluster_key_says_how_to_give_it_one(tmp_path: Path) -> None:
    tblctl.create(str(tmp_path / "t"), "id: int64")
    result = run("recluster", tmp_path / "t")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--cluster-by" in result.stderr


def test_a_missing_block_is_named_its_group_dropped_and_the_exit_code_1(loc: Path) -> None:
    [path, *_] = sorted((loc / "data").iterdir())
    path.unlink()
    result = run("recluster", loc)
    assert (result.exit_code, result.stderr) == (1, "")
    assert "1 failed" in result.stdout
    assert path.name in result.stdout


def test_append_recluster_and_history_and_info_show_the_run(loc: Path, tmp_path: Path) -> None:
    assert "note" not in done("history", loc).splitlines()[0]
    pq.write_table(batch(0), tmp_path / "more.parquet")
    found = as_json("append", loc, tmp_path / "more.parquet", "--recluster")
    assert found["rows_added"] == 10
    assert found["recluster"]["committed_groups"] == 1
    newest = done("history", loc, "--limit", "1").splitlines()[2]
    assert newest.split()[2] == "recluster"
    assert (
        newest.endswith("levels: 1 group, depth 7.00 to 1.86") or "levels: 1 group, depth 7.00 to " in newest
    )
    text = done("info", loc)
    assert "run  time (UTC)" in text
    assert "levels: 1 group, depth 7.00 to " in text
    [run_found] = as_json("info", loc)["last_runs"]
    assert run_found["snapshot"] == found["recluster"]["snapshot"]
    assert run_found["detail"]["recluster"]["committed_groups"] == 1


def test_recluster_auto_does_a_round_after_an_append(loc: Path, tmp_path: Path) -> None:
    assert "recluster.auto" in run("alter", "--help").stdout
    done("alter", loc, "--set", "recluster.auto=true")
    pq.write_table(batch(0), tmp_path / "more.parquet")
    done("append", loc, tmp_path / "more.parquet")
    assert done("history", loc, "--limit", "1").splitlines()[2].split()[2] == "recluster"


def test_a_mode_is_set_shown_and_followed(loc: Path, tmp_path: Path) -> None:
    assert "recluster.mode" in run("create", "--help").stdout
    wrong = run("alter", loc, "--set", "recluster.mode=schedul")
    assert (wrong.exit_code, "did you mean schedule?" in wrong.stderr) == (2, True)
    assert "recluster.mode" not in done("info", loc)
    done("alter", loc, "--set", "recluster.mode=schedule", "--set", "recluster.every=2")
    assert "(recluster.mode=schedule after every 2 commits of rows)" in done("info", loc)
    assert as_json("info", loc)["options"]["recluster.every"] == 2
    pq.write_table(batch(0), tmp_path / "more.parquet")
    done("append", loc, tmp_path / "more.parquet")
    left = as_json("append", loc, tmp_path / "more.parquet")["note"]
    [plan] = as_json("plan", loc, "--list")
    assert left.startswith(f"left the pending plan {plan['id']} of ")


def test_an_append_waits_for_the_recluster_that_it_began_in_the_background(loc: Path, tmp_path: Path) -> None:
    done("alter", loc, "--set", "recluster.mode=async")
    pq.write_table(batch(0), tmp_path / "more.parquet")
    assert "(a recluster goes on in the background)" in done("append", loc, tmp_path / "more.parquet")
    assert done("history", loc, "--limit", "1").splitlines()[2].split()[2] == "recluster"


@pytest.mark.parametrize("words", [["alter"], ["create", "--schema", "k: int64"]])
def test_a_mode_for_an_iceberg_table_is_refused_with_what_serves_it(words: list[str]) -> None:
    command, *more = words
    found = run(command, "iceberg://prod/a.b", *more, "--set", "recluster.mode=inline")
    assert found.exit_code == 2
    assert (
        "since tblctl does not make them: `tblctl recluster LOC --watch 5m` keeps it clustered"
        in found.stderr
    )


def test_an_interrupt_of_the_round_after_an_append_says_that_the_rows_are_in(tmp_path: Path) -> None:
    program = (
        "import sys, pyarrow as pa, pyarrow.parquet as pq, tblctl, tblctl.maintain.recluster\n"
        "from tblctl.cli.main import application\n"
        "table = tblctl.create('t', 'k: int64', cluster_by='k', options={'block_rows': 2})\n"
        "table.append(pa.table({'k': [1, 3]}))\n"
        "pq.write_table(pa.table({'k': [2, 4]}), 'f.parquet')\n"
        "def interrupt(*_, **__): raise KeyboardInterrupt\n"
        "tblctl.maintain.recluster.merge_round = interrupt\n"
        "application.main(['append', 't', 'f.parquet', '--recluster'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert f"snapshot 3 of {tmp_path / 't'} is written; " in done.stderr
    assert done.stderr.count("interrupted") == 2, "tblctl was, and the note says what was not"
