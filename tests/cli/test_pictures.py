"""`tblctl info --picture --compare`: how the arguments are parsed, and which are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application


@pytest.fixture
def loc(tmp_path: Path) -> str:
    path = str(tmp_path / "orders")
    table = tblctl.create(path, "id: int64", cluster_by="id")
    table.append(pa.table({"id": [1, 50]}))
    table.append(pa.table({"id": [20, 60]}))
    table.tag("before")
    table.recluster()
    return path


def invoke(*words: object):
    return CliRunner().invoke(application, [str(word) for word in words])


def test_a_picture_is_written_and_named_below_the_figures(loc: str, tmp_path: Path) -> None:
    file = tmp_path / "out.svg"
    shown = invoke("info", loc, "--picture", file)
    assert shown.exit_code == 0
    assert shown.stdout.startswith("cluster key")
    assert shown.stdout.splitlines()[-1].startswith(f"picture: {file} (")
    assert "snapshot 5: 1 block, depth 1.00" in file.read_text()


def test_with_json_the_picture_is_written_and_only_json_printed(loc: str, tmp_path: Path) -> None:
    shown = invoke("info", loc, "--picture", tmp_path / "out.html", "--json")
    assert json.loads(shown.stdout)["total_block_count"] == 1
    assert (tmp_path / "out.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("versions", ["3:5", "before:5", " before : 5 "])
def test_versions_are_compared_by_sequence_or_tag(loc: str, tmp_path: Path, versions: str) -> None:
    assert invoke("info", loc, "--picture", tmp_path / "out.svg", "--compare", versions).exit_code == 0
    svg = (tmp_path / "out.svg").read_text()
    assert "snapshot 3: 2 blocks" in svg
    assert "snapshot 5: 1 block" in svg


def test_versions_are_compared_in_figures_without_a_picture_too(loc: str) -> None:
    shown = invoke("info", loc, "--compare", "before:5")
    assert shown.exit_code == 0
    lines = [line.split() for line in shown.stdout.splitlines()]
    at = lines.index(["compared", "snapshot", "3", "snapshot", "5"])
    assert lines[at + 2 : at + 4] == [["rows", "4", "4"], ["blocks", "2", "1"]]
    assert lines[at + 4][0] == "size", "there are no constant, unclustered or unknown blocks"
    assert lines[at + 5 : at + 8] == [
        ["overlaps", "1.0000", "0.0000"],
        ["depth", "2.0000", "1.0000"],
        ["depth", "p50", "2", "1"],
    ]
    [before, after] = json.loads(invoke("info", loc, "--compare", "3:5", "--json").stdout)["compared"]
    assert (before["snapshot"], before["average_depth"], before["total_block_count"]) == (3, 2.0, 2)
    whole = json.loads(invoke("info", loc, "--worst", "1", "--json").stdout)
    assert {**whole, **after, "last_runs": 0, "worst": 0} == {
        **whole,
        "snapshot": 5,
        "last_runs": 0,
        "worst": 0,
    }
    assert "compared" not in whole


def test_both_versions_are_measured_by_the_key_of_the_second(loc: str) -> None:
    table = tblctl.open(loc)
    table.set_cluster_key("truncate(10, id) desc")
    table.append(pa.table({"id": [5, 7]}))
    before, after = table.compare(3, 7)
    assert [version.info.unclustered_block_count for version in (before, after)] == [2, 1]
    assert before.info.cluster_by_keys == after.info.cluster_by_keys == ("truncate(10, id) desc",)
    before, after = table.compare("before", 7, columns="id", where="id < 10")
    assert [version.info.total_block_count for version in (before, after)] == [1, 2]
    with pytest.raises(tblctl.errors.SnapshotNotFoundError, match="99"):
        table.compare(3, 99)


def test_columns_and_where_hold_for_the_picture_too(loc: str, tmp_path: Path) -> None:
    words = ("--columns", "truncate(10, id)", "--where", "id < 10")
    assert invoke("info", loc, "--picture", tmp_path / "out.svg", *words).exit_code == 0
    svg = (tmp_path / "out.svg").read_text()
    assert "orders, snapshot 5, by truncate(10, id)" in svg
    assert "rows with id &lt; 10" in svg


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (
            ("--picture", "out.gif"),
            2,
            "'out.gif': expected a file's name that ends with one of .svg, .png, .html",
        ),
        (("--picture", "no/where/out.svg"), 2, "there is no folder 'no/where'"),
        (
            ("--picture", "out.svg", "--compare", "3"),
            2,
            "'3' is not two versions such as 3:9 or before:after",
        ),
        (("--picture", "out.svg", "--compare", "3:"), 2, "is not two versions"),
        (("--picture", "out.svg", "--compare", "3:99"), 1, "no snapshot 99"),
        (("--picture", "out.svg", "--columns", "nosuch"), 2, "nosuch"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    loc: str, tmp_path: Path, monkeypatch, words: tuple[str, ...], code: int, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = invoke("info", loc, *words)
    assert (shown.exit_code, shown.stdout) == (code, "")
    assert expected in shown.stderr
    assert not (tmp_path / "out.svg").exists()


def test_several_tables_are_one_page_with_those_that_cannot_be_drawn(loc: str, tmp_path: Path) -> None:
    tblctl.create(tmp_path / "<plain>", "k: int64").append(pa.table({"k": [1]}))
    file = tmp_path / "all.html"
    shown = invoke("info", "--all", tmp_path, "--picture", file)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[-1].startswith(f"picture: {file} (")
    page = file.read_text()
    assert page.count("<svg") == 1
    assert "orders, snapshot 5, by id" in page
    assert "2 tables</h1>" in page
    assert "&lt;plain&gt;</a>: " in page
    assert "<plain>" not in page
    assert "has no cluster key" in page
    assert "<script" not in page
