"""The commands info, suggest and depth on plain Parquet, and what others say there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application

from .files import interleaved, write


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def run(*words, code=0):
    done = CliRunner().invoke(application, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


def test_info_without_columns_shows_sizes_and_how_to_measure(tmp_path):
    write(tmp_path, "year=2024/a.parquet", {"x": [1, 2]})
    shown = run("info", tmp_path)
    for text in ("files", "rows", "x, year", "of folders  year", "--columns a,b", "tblctl suggest"):
        assert text in shown
    found = json.loads(run("info", tmp_path, "--json"))
    size = (tmp_path / "year=2024" / "a.parquet").stat().st_size
    assert found == {
        "files": 1,
        "rows": 2,
        "bytes": size,
        "columns": ["x", "year"],
        "folder_columns": ["year"],
    }


def test_info_by_columns_ends_with_the_gain_and_a_command(tmp_path):
    folder = interleaved(tmp_path / "in")
    shown = run("info", folder, "--columns", "at")
    assert "8.0000 on average" in shown
    assert f"tblctl import {folder} NEW --cluster-by at" in shown
    found = json.loads(run("info", folder, "--columns", "at", "--json"))
    assert found["average_depth"] == 8.0
    assert found["gain"] == {
        "cluster_by": ["at"],
        "files": 8,
        "key_reads_now": 8.0,
        "key_reads_clustered": 1.0,
        "range_reads_now": 8.0,
        "range_reads_clustered": 1.08,
        "bytes_to_rewrite": sum(path.stat().st_size for path in folder.iterdir()),
    }
    assert found["next"].startswith("tblctl import ")


def test_a_key_that_files_are_in_order_of_brings_little(tmp_path):
    folder = interleaved(tmp_path)
    shown = run("info", folder, "--columns", "id")
    assert "would bring little" in shown
    assert f"tblctl suggest {folder}" in shown
    assert json.loads(run("info", folder, "--columns", "id", "--json"))["next"] is None


def test_files_of_unknown_range_are_always_read(tmp_path):
    write(tmp_path, "a.parquet", {"x": [1]}, write_statistics=False)
    assert tblctl.open(tmp_path).gain("x").key_reads_now == 1
    for name in ("b", "c"):
        write(tmp_path, f"{name}.parquet", {"x": [1, 9]})
    found = tblctl.open(tmp_path).gain("x")
    assert (found.key_reads_now, found.key_reads_clustered, found.is_worth_it) == (3, 1, True)


def test_suggest_ranks_and_ends_with_the_gain_of_the_best(tmp_path):
    folder = interleaved(tmp_path / "in")
    (tmp_path / "q.sql").write_text("at = 5\nat between 10 and 12\n")
    shown = run("suggest", folder, "--predicates", tmp_path / "q.sql")
    assert f"tblctl import {folder} NEW" in shown
    found = json.loads(run("suggest", folder, "--predicates", tmp_path / "q.sql", "--json"))
    assert found["candidates"][0]["terms"] == ["at"]
    assert found["gain"]["cluster_by"] == ["at"]
    by_depth = run("suggest", folder)
    assert f"tblctl suggest {folder} --predicates FILE" in by_depth


def test_depth_measures_any_columns(tmp_path):
    assert json.loads(run("depth", interleaved(tmp_path), "id", "--json"))["average_depth"] == 1.0


def test_several_folders_get_a_line_each(tmp_path):
    one, two = interleaved(tmp_path / "one"), interleaved(tmp_path / "two")
    found = json.loads(run("info", one, two, "--json"))
    assert [(item["rows"], item["info"], item["error"]) for item in found] == [(160, None, None)] * 2


def test_a_glob_without_quotes_is_told_from_one_with_them(tmp_path):
    files = sorted(interleaved(tmp_path).iterdir())
    shown = run("info", *files, "--columns", "at", code=2)
    assert "a glob in quotes" in " ".join(shown.split())
    assert "these are 8 files" in " ".join(shown.split())


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    run("info", interleaved(tmp_path / "in"), "--columns", "at", "--picture", tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size > 1_000


@pytest.mark.parametrize(
    "words",
    [
        ("append", "LOC", "x.parquet"),
        ("alter", "LOC", "--cluster-by", "at"),
        ("recluster", "LOC", "--cluster-by", "at"),
        ("recluster", "LOC", "--final"),
        ("plan", "LOC"),
        ("gc", "LOC"),
        ("check", "LOC"),
        ("scan", "LOC"),
        ("delete", "LOC", "--where", "at = 1"),
        ("estimate", "LOC"),
        ("files", "LOC"),
    ],
    ids=" ".join,
)
def test_other_commands_say_what_is_possible(tmp_path, words):
    folder = interleaved(tmp_path)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    shown = run(*(folder if word == "LOC" else word for word in words), code=2)
    assert "is a folder of plain Parquet files, which tblctl only measures" in " ".join(shown.split())
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_history_and_comparisons_are_refused(tmp_path):
    folder = interleaved(tmp_path)
    assert "--history is for tables" in run("info", folder, "--columns", "at", "--history", code=2)
    assert "compare is for tables" in run("info", folder, "--columns", "at", "--compare", "1:2", code=2)


def shell(command, folder):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return tblctl.open(folder / "NEW")


def test_the_next_command_makes_a_table_of_all_rows(tmp_path):
    folder = interleaved(tmp_path / 'it\'s a "$x" folder')
    table = shell(tblctl.open(folder).first_steps("at"), tmp_path)
    assert table.cluster_by == ("at",)
    assert table.snapshot.rows == 160


@pytest.mark.parametrize("name", ["in", 'it\'s a "$x" folder'])
def test_the_next_command_keeps_columns_of_folders(tmp_path, name):
    for year in (2023, 2024):
        write(tmp_path / name, f"year={year}/a.parquet", {"at": [year, 1]})
    table = shell(tblctl.open(tmp_path / name).first_steps(["at", "year"]), tmp_path)
    rows = table.scan().to_arrow()
    assert sorted(zip(rows["at"].to_pylist(), rows["year"].to_pylist(), strict=True)) == [
        (1, 2023),
        (1, 2024),
        (2023, 2023),
        (2024, 2024),
    ]


def test_the_next_command_takes_files_of_any_depth_that_differ_and_globs(tmp_path):
    write(tmp_path / "in", "a.parquet", {"x": [1]})
    write(tmp_path / "in", "d/e/a.parquet", {"x": [1], "y": [2]})
    assert shell(tblctl.open(tmp_path / "in").first_steps("x"), tmp_path).snapshot.rows == 2
    write(tmp_path / "hive", "y=1/a.parquet", {"x": [1]})
    glob = tblctl.open(tmp_path / "hive/y=*/*.parquet").first_steps("x")
    assert glob == f"tblctl import '{tmp_path}/hive/y=*/*.parquet' NEW --hive --cluster-by x"
    assert " --hive " in tblctl.open(tmp_path / "hive" / "y=1").first_steps("x")


def test_a_warning_names_the_file_that_lacks_a_column(tmp_path):
    write(tmp_path, "a.parquet", {"x": [1]})
    write(tmp_path, "b.parquet", pa.table({"x": [1], "y": [2]}))
    script = f"from tblctl.cli.main import run; import sys; sys.argv = ['tblctl', 'info', {str(tmp_path)!r}]; run()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "a.parquet and perhaps other files" in done.stderr
    assert "no column y" in done.stderr


def test_import_says_what_it_took_what_it_knew_and_what_changed(tmp_path):
    folder = interleaved(tmp_path / "in", count=3)
    shown = run("import", folder, tmp_path / "t", "--cluster-by", "at", "--commit-every", "1KiB")
    assert shown.startswith("imported 3 files (")
    assert f"into a new table, {tmp_path}/t: 60 rows in 3 blocks" in shown
    assert "3 commits, snapshot 4" in shown
    os.utime(folder / "part-1.parquet", (1, 1))
    again = " ".join(run("import", folder, tmp_path / "t").split())
    assert again.startswith(
        "2 files taken before 1 file was taken before and written again since, and not taken again"
    )
    assert "part-1.parquet" in again
    assert again.endswith("there is no new file: nothing was committed")
    write(folder, "new.parquet", {"at": [1], "id": [1]})
    found = json.loads(run("import", folder, tmp_path / "t", "--recluster", "--json"))
    assert (found["files_taken"], found["files_known"], found["rows_added"]) == (1, 2, 1)
    assert found["files_changed"] == [str(folder / "part-1.parquet")]
    assert found["recluster"]["rounds"] is not None
    run("import", folder, tmp_path / "t", "--cluster-by", "id", code=2)
    write(tmp_path / "hive", "y=1/a.parquet", {"x": [1]})
    assert "--hive" in run("import", tmp_path / "hive", tmp_path / "u", code=2)
    assert "into a new table" in run("import", tmp_path / "hive", tmp_path / "u", "--hive")


def test_export_writes_files_and_says_how_many(tmp_path):
    run("import", interleaved(tmp_path / "in"), tmp_path / "t")
    shown = run("export", tmp_path / "t", tmp_path / "out", "--where", "id < 5", "--columns", "id")
    assert shown.startswith(f"exported 5 rows of snapshot 2 to {tmp_path}/out: 1 file (")
    assert "not empty" in run("export", tmp_path / "t", tmp_path / "out", code=2)
    assert json.loads(run("export", tmp_path / "t", tmp_path / "out", "--overwrite", "--json"))["rows"] == 160


def test_progress_tells_files_while_footers_are_read(tmp_path):
    folder = interleaved(tmp_path, count=20, rows=1)
    seen = []
    table = tblctl.open(folder)
    table.load(progress=lambda *told: seen.append(told))
    assert seen == [(16, 20, "files"), (20, 20, "files")]
    table.load(progress=lambda *told: seen.append(told))
    assert len(seen) == 2
