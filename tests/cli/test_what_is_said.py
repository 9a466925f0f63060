"""What the command says where there is little to do, little room, or something that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import tblctl
from tblctl.cli.main import application
from tblctl.cli.show import render
from tblctl.cli.show.flags import located


def run(*words: object) -> Result:
    return CliRunner().invoke(application, [str(word) for word in words])


@pytest.fixture
def unclustered(tmp_path: Path) -> Path:
    table = tblctl.create(tmp_path / "my t", "k: int64", options={"block_rows": 2})
    for start in range(2):
        table.append(pa.table({"k": [9, start, 5]}))
    table.set_cluster_key("k")
    return tmp_path / "my t"


@pytest.mark.parametrize("words", [["plan"], ["recluster"], ["recluster", "--dry-run"]])
def test_nothing_to_do_ends_with_the_command_that_would_do_something(
    unclustered: Path, words: list[str]
) -> None:
    command, *flags = words
    told = " ".join(run(command, unclustered, *flags).stdout.split())
    assert told.startswith("nothing to do: ")
    assert told.endswith(f"`tblctl recluster '{unclustered}' --final` sorts them")
    assert run("recluster", unclustered, "--final").exit_code == 0
    assert json.loads(run("info", unclustered, "--json").stdout)["unclustered_share"] == 0


def test_in_json_a_note_keeps_its_place_for_a_table(unclustered: Path) -> None:
    assert "`tblctl recluster LOC --final`" in json.loads(run("plan", unclustered, "--json").stdout)["note"]


def test_an_error_names_the_table_in_the_command_to_type(tmp_path: Path) -> None:
    tblctl.create(tmp_path / "t", "k: int64")
    assert f"`tblctl alter {tmp_path / 't'} --cluster-by a,b`" in run("plan", tmp_path / "t").stderr


def test_a_text_without_a_running_command_or_with_several_tables_keeps_loc() -> None:
    import click

    text = "do `tblctl recluster LOC --final`"
    assert located(text) == text
    with click.Context(application.commands["info"]) as ctx:
        ctx.params["locations"] = ("a", "b")
        assert located(text) == text
        ctx.params["locations"] = ("s3://key:secret@bucket/a",)
        assert "secret" not in located(text)


def test_a_table_that_cannot_be_read_does_not_end_a_survey(tmp_path: Path) -> None:
    for name in ("bad", "good"):
        tblctl.create(tmp_path / name, "k: int64", cluster_by="k").append(pa.table({"k": [1]}))
    for path in (tmp_path / "bad" / "metadata" / "snapshots").iterdir():
        path.write_text("x")
    done = run("info", "--all", tmp_path)
    assert done.exit_code == 1
    assert f"{tmp_path / 'good'} " in done.stdout
    assert f"{tmp_path / 'bad'}: error: " in done.stdout


def test_explain_and_output_contradict_each_other(tmp_path: Path) -> None:
    done = run("scan", tmp_path, "--explain", "--output", tmp_path / "x.csv")
    assert done.exit_code == 2
    assert "--explain and --output exclude each other" in done.stderr


def shown(monkeypatch: pytest.MonkeyPatch, width: int, *words: object) -> list[str]:
    monkeypatch.setattr(render, "terminal_width", lambda: width)
    lines = run(*words).stdout.splitlines()
    assert [line for line in lines if len(line) > width] == []
    return lines


@pytest.mark.parametrize(
    ("width", "command", "needed"),
    [
        (60, "history", ["snapshot", "time", "operation", "added", "rows", "blocks"]),
        (80, "history", ["snapshot", "time", "operation", "added", "rows", "blocks", "size"]),
        (60, "files", ["path", "rows", "size", "min", "max"]),
        (80, "files", ["path", "rows", "size", "level", "run", "min", "max"]),
        (60, "suggest", ["rank", "key", "depth now"]),
        (80, "suggest", ["rank", "key", "depth now", "bounds", "nulls"]),
    ],
)
def test_a_narrow_terminal_keeps_what_matters(
    overlapping: str, width: int, command: str, needed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(monkeypatch, width, command, overlapping)
    header = next(line for line in lines if line.startswith(needed[0]) and needed[1] in line)
    assert [name for name in needed if name not in header] == []


def test_paths_and_runs_are_shortened_before_a_column_is_left_out() -> None:
    rows = [("data/0123456789abcdef.parquet", 5, "run-0123456789", "a")]
    names = ("path", "rows", "run", "min")
    wide = {"least": {0: 13, 2: 8}, "dropped": (2, 1)}
    text, left_out = render.table(names, rows, width=34, **wide)
    assert left_out == ()
    assert text.splitlines()[-1].split() == ["data/0123456…", "5", "run-012…", "a"]
    text, left_out = render.table(names, rows, width=34, **{**wide, "least": {0: 20}})
    assert left_out == ("run",)
    assert text.splitlines()[-1].endswith("a")


def test_a_column_without_values_makes_room_for_others() -> None:
    text, left_out = render.table(("aaaa", "bbbb", "cccc"), [("1", "", "3")], width=10, dropped=(2,))
    assert (text.splitlines()[0].split(), left_out) == (["aaaa", "cccc"], ())
