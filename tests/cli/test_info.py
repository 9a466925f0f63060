"""`tblctl info` and `tblctl depth`: every figure, per level too, the worst ranges, runs, history, many tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from terminal import on_terminal

import tblctl
from tblctl.cli.main import application
from tblctl.cli.show import page


def run(*words: object) -> Result:
    return CliRunner().invoke(application, [str(word) for word in words])


def done(*words: object) -> str:
    result = run(*words)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def as_json(*words: object) -> Any:
    return json.loads(done(*words, "--json"))


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


@pytest.fixture
def loc(tmp_path: Path) -> Path:
    """A table of three blocks of one run, 0 to 29, and two that hold all of it."""
    path = tmp_path / "table"
    table = tblctl.create(str(path), "id: int64", cluster_by="id", options={"block_rows": 10})
    table.append(pa.table({"id": range(30)}))
    table.append(pa.table({"id": [0, 29]}))
    table.append(pa.table({"id": [0, 29]}))
    return path


@pytest.fixture
def many(tmp_path: Path, loc: Path) -> Path:
    """A folder with `table`, and in `lake` four more: well clustered, empty, without key, and broken."""
    for name, key, rows in (("good", "id", range(5)), ("empty", "id", ()), ("no_key", "", range(3))):
        table = tblctl.create(str(tmp_path / "lake" / name), "id: int64", cluster_by=key)
        if rows:
            table.append(pa.table({"id": pa.array(rows, pa.int64())}))
    broken = tmp_path / "lake" / "deep" / "broken"
    tblctl.create(str(broken), "id: int64", cluster_by="id")
    (broken / "metadata" / "snapshots" / f"{1:020d}.json").write_text("{")
    (tmp_path / "lake" / "not_a_table").mkdir()
    return tmp_path


def test_info_prints_every_figure(loc: Path) -> None:
    lines = cells(done("info", loc))
    assert lines[:3] == [["cluster", "key", "id"], ["rows", "34"], ["blocks", "5"]]
    assert lines[3][0] == "size"
    assert lines[4] == ["overlaps", "2.8000", "on", "average"]
    assert " ".join(lines[5]) == "depth 3.0000 on average; p50 3, p95 3, p99 3, max 3"
    assert lines[7] == ["depth", "blocks"]
    assert lines[9][:2] == ["3", "5"]
    assert lines[11] == ["worst", "from", "key", "to", "key", "depth", "blocks", "rows", "to", "rewrite"]
    assert lines[13][:6] == ["1", "0", "29", "3", "5", "34"]
    assert len(lines) == 14, "one level only, one range, and no runs"


def test_info_prints_the_depth_of_each_live_sort_beside_the_key(tmp_path: Path) -> None:
    loc = tmp_path / "t"
    table = tblctl.create(str(loc), "id: int64, b: int64", cluster_by="id", options={"block_rows": 8})
    for start in (0, 4, 8):
        table.append(pa.table({"id": range(start, start + 4), "b": [3, 2, 1, 0]}))
    assert "live sort" not in done("info", loc)
    assert "live_sorts" not in as_json("info", loc)
    table.recluster(policy="size", options={"sort_columns": "b"})
    assert "1 of 2 blocks is in the order of a live sort beside the key" in done("info", loc)
    assert "--final" not in done("info", loc), "it would leave them as they are"
    lines = cells(done("info", loc))
    place = lines.index(["live", "sort", "beside", "the", "key", "blocks", "overlaps", "depth"])
    (shown,) = as_json("info", loc)["live_sorts"]
    assert shown["cluster_by_keys"] == ["b"]
    figures = shown["total_block_count"], shown["average_overlaps"], shown["average_depth"]
    assert lines[place + 2] == ["b", str(figures[0]), f"{figures[1]:.4f}", f"{figures[2]:.4f}"]
    assert "live_sorts" not in as_json("depth", loc, "id")


def test_info_shows_figures_where_the_tables_own_policy_cannot_plan(tmp_path: Path) -> None:
    loc = tmp_path / "t"
    options = {"block_rows": 8, "recluster.policy": "workload"}
    table = tblctl.create(str(loc), "id: int64", cluster_by="id", options=options)
    for _ in range(3):
        table.append(pa.table({"id": range(8)}))
    assert as_json("info", loc)["average_depth"] == 3
    assert "3.0000 on average" in done("info", loc)


def test_depths_above_16_share_a_bar_that_tells_from_where_to_where(tmp_path: Path) -> None:
    table = tblctl.create(str(tmp_path / "t"), "id: int64", cluster_by="id")
    for _ in range(18):
        table.append(pa.table({"id": [1, 2]}))
    assert "\n17-32      18  ████" in done("info", tmp_path / "t")
    assert as_json("info", tmp_path / "t")["block_depth_histogram"] == {"00032": 18}


def test_info_json_has_the_figures_of_the_table_of_its_levels_and_the_runs(loc: Path) -> None:
    found = as_json("info", loc)
    figures = {
        "total_block_count", "constant_block_count", "unclustered_block_count", "average_overlaps", "average_depth",
        "block_depth_histogram", "depth", "rows", "bytes",
    }  # fmt: skip
    assert {*figures, "cluster_by_keys", "levels", "worst", "last_runs", "options"} == set(found) - {
        "unknown_block_count",
        "inexact_block_count",
        "unclustered_share",
    }
    assert figures <= set(found["levels"]["0"])
    assert found["depth"] == {"p50": 3, "p95": 3, "p99": 3, "max": 3}
    assert found["worst"] == [
        {"min": [0], "max": [29], "depth": 3, "blocks": 5, "rows": 34, "bytes": found["bytes"]}
    ]
    assert found["last_runs"] == []
    assert done("info", loc, "--columns", "id", "--where", "id = 15").startswith("cluster key  id")


def test_worst_says_how_many_ranges_are_told(tmp_path: Path) -> None:
    table = tblctl.create(str(tmp_path / "t"), "day: date32", cluster_by="day")
    for day in range(8):
        for _ in range(2):
            table.append(pa.table({"day": pa.array([day, day], pa.int32()).cast(pa.date32())}))
    assert len(as_json("info", tmp_path / "t")["worst"]) == 5
    found = as_json("info", tmp_path / "t", "--worst", 7)["worst"]
    assert [(item["min"], item["max"], item["depth"], item["blocks"]) for item in found] == [
        ([f"1970-01-0{day}"], [f"1970-01-0{day}"], 2, 2) for day in range(1, 8)
    ]
    assert "1970-01-01  1970-01-01" in done("info", tmp_path / "t", "--worst", 1)


def test_worst_ranges_are_those_of_the_blocks_that_the_condition_leaves(loc: Path) -> None:
    tblctl.open(str(loc)).append(pa.table({"id": [100, 200]}))
    tblctl.open(str(loc)).append(pa.table({"id": [150, 250]}))
    [found] = as_json("info", loc, "--where", "id > 90")["worst"]
    assert (found["min"], found["max"], found["blocks"]) == ([150], [200], 2)


def test_depth_measures_by_any_columns_of_a_table_without_key(tmp_path: Path) -> None:
    table = tblctl.create(str(tmp_path / "t"), "a: int64, b: timestamp[us], c: string")
    for year in range(3):
        moments = pa.array([year * 10**6 * 86_400 * 366, (year + 1) * 10**6 * 86_400 * 366], pa.int64())
        table.append(pa.table({"a": [0, 9], "b": moments.cast(pa.timestamp("us")), "c": ["x", None]}))
    assert as_json("depth", tmp_path / "t", "a")["average_depth"] == 3
    by_year = as_json("depth", tmp_path / "t", "year(b) desc")
    assert (by_year["cluster_by_keys"], by_year["average_depth"]) == (["year(b) desc"], 2)
    assert by_year["worst"][0]["min"] == [2]
    assert as_json("depth", tmp_path / "t", "b, a", "--where", "b < '1970-06-01'")["total_block_count"] == 1
    assert as_json("depth", tmp_path / "t", "c")["worst"][0]["max"] == [None]
    shown = done("depth", tmp_path / "t", "bucket(4, a)")
    assert "(3 of unknown range)" in shown
    assert "(statistics do not bound the key of 3 blocks: no depth counts them)" in shown


def test_an_empty_table_has_zeros_and_no_worst_range(tmp_path: Path) -> None:
    tblctl.create(str(tmp_path / "t"), "a: int64", cluster_by="a")
    for words in (["info", tmp_path / "t"], ["depth", tmp_path / "t", "a"]):
        found = as_json(*words)
        assert (found["total_block_count"], found["average_depth"], found["worst"]) == (0, 0, [])
        assert "worst" not in done(*words)


def test_history_tells_the_depth_after_each_snapshot(loc: Path) -> None:
    done("recluster", loc, "--final")
    done("tag", loc, "v1")
    points = as_json("info", loc, "--history")["history"]
    assert [
        (point["snapshot"], point["operation"], point["average_depth"], point["source"]) for point in points
    ] == [
        (6, "tag", 1, "summary"),
        (5, "recluster", 1, "summary"),
        (4, "append", 3, "summary"),
        (3, "append", 2, "metadata"),
        (2, "append", 1, "metadata"),
        (1, "create", 0, "metadata"),
    ]
    lines = done("info", loc, "--history").splitlines()
    assert "depth ▁▃▆█▃▃  0.00 to 1.00 (highest 3.00)" in lines
    assert lines[-1].split()[0] == "1"
    assert "history" not in as_json("info", loc)


def test_history_shows_gaps_where_nothing_is_known(loc: Path) -> None:
    done("gc", loc, "--keep", 1, "--older-than", 0)
    points = as_json("info", loc, "--history")["history"]
    assert [(point["average_depth"], point["source"]) for point in points] == [
        (3, "metadata"), (3, "metadata"), (None, None), (None, None), (None, None),
    ]  # fmt: skip
    assert "depth ···██  " in done("info", loc, "--history")
    assert re.search(r"-\s+-\s+unknown$", done("info", loc, "--history"))


def test_several_tables_are_a_line_each_worst_first(many: Path) -> None:
    lake = many / "lake"
    lines = done("info", lake / "good", many / "table", lake / "no_key", lake / "empty").splitlines()
    assert lines[0].split() == ["table", "depth", "max", "blocks", "rows", "size", "cluster", "key"]
    names = [Path(line.split()[0]).name for line in lines[2:]]
    assert names == ["table", "good", "empty", "no_key"]
    assert lines[2].split()[1:5] == ["3.00", "3", "5", "34"]
    assert done("info", "--all", lake / "good", lake / "good").count("good") == 1, "each table once"
    assert lines[5].split()[1:4] == ["-", "-", "1"]
    assert lines[5].endswith("(none)")


def test_all_finds_tables_below_a_folder_and_a_broken_one_is_a_line_and_exit_code_1(many: Path) -> None:
    result = run("info", "--all", many)
    assert (result.exit_code, result.stderr) == (1, "")
    lines = result.stdout.splitlines()
    assert [Path(line.split()[0]).name for line in lines[2:-1]] == ["table", "good", "empty", "no_key"]
    assert lines[-1].startswith(f"{many}/lake/deep/broken: error: ")
    found = json.loads(run("info", "--all", many, "--json").stdout)
    assert [Path(item["location"]).name for item in found] == ["table", "good", "empty", "no_key", "broken"]
    assert set(found[0]) == {"location", "error", "rows", "blocks", "bytes", "info"}
    assert found[0]["info"] == {
        name: value
        for name, value in as_json("info", many / "table").items()
        if name not in {"last_runs", "options"}
    }
    assert (found[3]["info"], found[3]["error"], found[3]["rows"]) == (None, None, 3)
    assert found[4]["error"]
    assert found[4]["info"] is None


def test_all_of_a_table_is_that_table_and_a_missing_one_among_several_is_named(many: Path) -> None:
    [found] = as_json("info", "--all", many / "table")
    assert found["location"] == str(many / "table")
    result = run("info", many / "table", many / "nothing")
    assert result.exit_code == 1
    assert f"{many}/nothing: error: there is no table at" in result.stdout


def test_an_unknown_depth_is_a_question_mark_first_in_the_list_and_null(tmp_path: Path) -> None:
    url = tmp_path / "lake" / "altered"
    table = tblctl.create(str(url), "a: int64, b: int64", cluster_by="a")
    for number in range(3):
        table.append(pa.table({"a": [number, 9], "b": [9, number]}))
    tblctl.create(str(tmp_path / "lake" / "good"), "a: int64", cluster_by="a").append(pa.table({"a": [1]}))
    table.set_cluster_key("b")
    lines = done("info", url).splitlines()
    assert [line.split() for line in lines if line.startswith(("overlaps", "depth"))] == [
        ["overlaps", "?"],
        ["depth", "?"],
    ]
    told = as_json("info", url)
    note = "(3 of 3 blocks are not in the key's order, so no depth counts them: run `tblctl recluster "
    assert f"{note}{url} --final`)" in lines
    assert told["unclustered_share"] == 1.0
    assert (told["average_depth"], told["average_overlaps"], told["depth"]["max"]) == (None, None, None)
    assert page.depth_style(told["average_depth"]) == "red"
    rows = done("info", "--all", tmp_path / "lake").splitlines()[2:]
    assert rows[0].split()[:3] == [str(url), "?", "?"]
    assert "  ?  " in done("info", url, "--history")
    done("recluster", url, "--final")
    assert "depth ? to 1.00" in done("info", url)


def _altered_then_appended_to(loc: Path, *, before: int, after: int) -> None:
    """Make a table with blocks in the order of an earlier key, and with others that do not overlap."""
    table = tblctl.create(str(loc), "a: int64, b: int64", cluster_by="a")
    for number in range(before):
        table.append(pa.table({"a": [number, 99], "b": [99, number]}))
    table.set_cluster_key("b")
    for number in range(after):
        table.append(pa.table({"a": [0], "b": [number]}))


def test_the_depth_of_a_few_clustered_blocks_among_many_that_are_not_is_marked_and_bad(
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    _altered_then_appended_to(lake / "altered", before=3, after=1)
    deep = tblctl.create(str(lake / "deep"), "a: int64", cluster_by="a")
    for _ in range(3):
        deep.append(pa.table({"a": [1, 2]}))
    lines = done("info", lake / "altered").splitlines()
    assert "depth        1.0000 on average (3 unclustered); p50 1, p95 1, p99 1, max 1" in lines
    assert as_json("info", lake / "altered")["average_depth"] == 1
    shown = on_terminal("info", lake / "altered", columns=120)
    assert "\x1b[31m1.0000 on average (3 unclustered); p50 1" in shown
    first, second = done("info", "--all", lake).splitlines()[2:]
    assert first.startswith(f"{lake / 'altered'}  1.00 (3 unclustered)    1 ")
    assert second.split()[:3] == [str(lake / "deep"), "3.00", "3"]


def test_the_depth_of_as_many_clustered_blocks_as_are_not_is_marked_and_judged_as_it_is(
    tmp_path: Path,
) -> None:
    _altered_then_appended_to(tmp_path / "t", before=2, after=2)
    assert "\x1b[32m1.0000 on average (2 unclustered); " in on_terminal("info", tmp_path / "t", columns=120)


def test_columns_apply_to_each_of_several_tables(many: Path) -> None:
    found = as_json("info", many / "table", many / "lake" / "no_key", "--columns", "id")
    assert [item["info"]["average_depth"] for item in found] == [3, 1]
    result = run("info", many / "table", many / "lake" / "good", "--columns", "x")
    assert result.exit_code == 1
    assert result.stdout.count("error: ") == 2


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (["info"], 2, ["name a table (LOC), several of them, or --all DIR"]),
        (["info", "{loc}", "--worst", "0"], 2, ["--worst", "0"]),
        (["info", "{loc}", "--worst", "-3"], 2, ["--worst", "-3"]),
        (["info", "{loc}", "{loc}", "--history"], 2, ["are for one table"]),
        (["info", "--all", "{tmp}", "--picture", "x.svg"], 2, ["whose name ends with .html"]),
        (["info", "--all", "{tmp}/none"], 1, ["there is no table at or below", "none"]),
        (["info", "{tmp}/plain", "--history"], 2, ["has no cluster key", "--columns"]),
        (["info", "{loc}", "--columns", "idd"], 2, ["idd", "id"]),
        (["depth", "{loc}"], 2, ["TERMS"]),
        (["depth", "{loc}", "idd"], 2, ["idd", "id"]),
        (["depth", "{loc}", "year(id)"], 2, ["year", "int64"]),
        (["depth", "{tmp}/plain", "tags"], 2, ["tags", "has no order"]),
        (["depth", "{loc}", "id", "--where", "id ="], 2, ["condition"]),
        (["depth", "{loc}", "id", "--worst", "0"], 2, ["--worst"]),
        (["depth", "{tmp}/none", "id"], 1, ["there is no table"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_clear_message(
    loc: Path, tmp_path: Path, words: list[str], code: int, parts: list[str]
) -> None:
    tblctl.create(str(tmp_path / "plain"), "id: int64, tags: list<string>")
    result = run(*[word.format(loc=loc, tmp=tmp_path) for word in words])
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("tblctl: error: ")
    assert "bug in tblctl" not in result.stderr
    assert all(part in result.stderr for part in parts), result.stderr


def test_help_names_every_key_of_the_json(loc: Path) -> None:
    for name, found in (
        ("info", as_json("info", loc, "--history")),
        ("info", as_json("info", loc, loc)[0]),
        ("info", as_json("info", loc, "--history")["history"][0]),
        ("info", as_json("info", loc, "--compare", "2:3")),
        ("info", as_json("info", loc, "--compare", "2:3")["compared"][0]),
        ("depth", as_json("depth", loc, "id")),
        ("depth", as_json("depth", loc, "id")["worst"][0]),
    ):
        assert set(found) <= set(re.findall(r"\w+", application.commands[name].json_shape)), name


def test_a_terminal_gets_colour_and_the_same_text_a_pipe_none(loc: Path) -> None:
    plain = done("info", loc)
    assert "\x1b" not in plain
    shown = on_terminal("info", loc, columns=120)
    assert "\x1b[31m" not in shown
    assert "\x1b[33m" in shown, "a depth of 3 is yellow"
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == plain
    quiet = on_terminal("info", loc, columns=120, NO_COLOR="1")
    assert not re.search(r"\x1b\[(\d+;)*3\d", quiet)


def test_keys_are_cut_to_fit_a_narrow_terminal(tmp_path: Path) -> None:
    table = tblctl.create(str(tmp_path / "t"), "name: string", cluster_by="name")
    for _ in range(2):
        table.append(pa.table({"name": ["a" * 100, "b" * 100]}))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal("info", tmp_path / "t", columns=80))
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "aaa…" in shown
    assert "not shown" not in shown
    assert "a" * 100 in done("info", tmp_path / "t")


def test_a_table_without_a_key_shows_what_is_known_and_how_to_measure_it(tmp_path):
    location = str(tmp_path / "t")
    tblctl.create(location, "id: int64").append(pa.table({"id": [1, 2]}))
    said = CliRunner().invoke(application, ["info", location])
    assert said.exit_code == 0
    text = " ".join(said.stdout.split())
    assert text.startswith("cluster key (none) rows 2 blocks 1 size ")
    for command in ("info {} --columns a,b", "suggest {}", "alter {} --cluster-by a,b"):
        assert f"`tblctl {command.format(location)}`" in text
    found = json.loads(CliRunner().invoke(application, ["info", location, "--json"]).stdout)
    assert (found["cluster_by_keys"], found["total_block_count"], found["rows"]) == ([], 1, 2)
    assert CliRunner().invoke(application, ["info", location, "--history"]).exit_code == 2
