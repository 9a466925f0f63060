"""`tblctl info` of keys on a curve: box depth, and what ranges read."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application
from tblctl.cli.show.figures import depth_of_boxes, put_boxes
from tblctl.metrics.boxes import BoxDepth, BoxFigures, RangeShare


@pytest.fixture
def loc(tmp_path: Path) -> str:
    """Return a table of two by two tiles, and one block around all."""
    path = str(tmp_path / "t")
    table = tblctl.create(path, "ts: int64, customer: int64", cluster_by="ts, customer")
    for x, y in itertools.product((0, 10), repeat=2):
        table.append(pa.table({"ts": [x, x + 9], "customer": [y + 9, y]}))
    table.append(pa.table({"ts": [0, 19], "customer": [0, 19]}))
    table.set_cluster_key("hilbert(ts, customer)")
    return path


def run(*words: str) -> str:
    done = CliRunner().invoke(application, list(words))
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_info_prints_the_depth_of_boxes_and_what_ranges_read(loc: str) -> None:
    lines = cells(run("info", loc))
    texts = [" ".join(line) for line in lines]
    place = texts.index("boxes of ts, customer: depth 1.8000 on average, p99 2, max 2")
    assert texts[place + 2] == "a 1 % range of blocks read at best"
    share = (4 * 0.51 + 1) / 5
    both = (4 * 0.51**2 + 1) / 5
    best = 0.01 + 5**-0.5
    assert lines[place + 4 : place + 7] == [
        ["ts", f"{100 * share:.2f}", "%", f"{100 * best:.2f}", "%"],
        ["customer", f"{100 * share:.2f}", "%", f"{100 * best:.2f}", "%"],
        ["ts,", "customer", f"{100 * both:.2f}", "%", f"{100 * best**2:.2f}", "%"],
    ]


def test_json_has_the_boxes(loc: str) -> None:
    found = json.loads(run("info", loc, "--json"))["boxes"]
    assert found == tblctl.open(loc).info().boxes.to_dict()  # type: ignore[union-attr]
    assert (found["columns"], found["depth"]["mean"]) == (["ts", "customer"], 1.8)


@pytest.mark.parametrize("terms", ["zorder(ts, customer)", "ts, customer"])
def test_depth_prints_them_of_any_columns(loc: str, terms: str) -> None:
    assert "boxes of ts, customer: depth 1.8000" in run("depth", loc, terms)
    assert "boxes" not in run("depth", loc, "ts")


def test_versions_side_by_side_show_their_boxes(loc: str) -> None:
    lines = cells(run("info", loc, "--compare", "5:7"))
    assert ["box", "depth", "1.0000", "1.8000"] in lines
    assert ["box", "depth", "max", "1", "2"] in lines
    assert ["1", "%", "of", "ts", "reads", "51.00", "%", "60.80", "%"] in lines


def test_keys_of_one_order_show_no_boxes(tmp_path: Path) -> None:
    table = tblctl.create(str(tmp_path / "t"), "a: int64, b: int64", cluster_by="a, b")
    table.append(pa.table({"a": [1, 2], "b": [1, 2]}))
    shown = run("info", str(tmp_path / "t"), "--compare", "1:2")
    assert "box" not in shown


def test_the_error_of_samples_is_told() -> None:
    depth = BoxDepth(mean=3.2, p99=9, max=14, sampled=20_000, standard_error=0.0125)
    assert depth_of_boxes(depth) == (
        "depth 3.2000 on average, p99 9, max 14 (20,000 samples; standard error of the average 0.0125)"
    )


def test_unknown_boxes_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = BoxDepth(mean=None, p99=None, max=None)
    reads = tuple(RangeShare(columns=names, share=None, best=None) for names in (("a",), ("b",), ("a", "b")))
    put_boxes(
        BoxFigures(
            columns=("a", "b"),
            total_block_count=2,
            unknown_block_count=2,
            depth=unknown,
            selectivity=0.01,
            reads=reads,
        )
    )
    shown = capsys.readouterr().out
    assert (
        "boxes of a, b: depth unknown\n(statistics do not bound these columns of 2 blocks: no figure counts them)"
        in shown
    )
    assert ["a", "?", "?"] in cells(shown)
