"""The command with keys along a curve: what a user types and reads."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tblctl.cli.main import application
from tblctl.cli.show import figures

KEY = "hilbert(ts, customer)"


def run(*words: object) -> Result:
    return CliRunner().invoke(application, [str(word) for word in words])


def done(*words: object) -> str:
    result = run(*words)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def write(path: Path, start: int, count: int) -> Path:
    rng = np.random.default_rng(start)
    times = pa.array(range(start, start + count)).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"ts": times, "customer": rng.integers(0, 50, count)}), path)
    return path


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A table along a curve that overlaps, created like a file."""
    location, like = tmp_path / "events", write(tmp_path / "like.parquet", 0, 400)
    said = done("create", location, "--like", like, "--cluster-by", KEY, "--set", "block_rows=20")
    assert f"clustered by {KEY}" in said
    for start in range(0, 400, 100):
        done("append", location, write(tmp_path / "more.parquet", start, 100))
    return location


def test_a_table_like_a_file_is_reclustered_along_the_curve(events: Path) -> None:
    dry = done("recluster", events, "--final", "--dry-run")
    assert "depth" in dry
    done("recluster", events, "--final", "--policy", "full")
    figures = json.loads(done("info", events, "--json"))
    assert figures["cluster_by_keys"] == [KEY]
    assert figures["average_depth"] == 1.0
    assert figures["outside"] == {"ts": 0.0, "customer": 0.0}
    assert "nothing to do" in done("recluster", events, "--final")
    done("check", events, "--deep")


def test_the_key_is_altered_to_a_curve_and_printed_as_typed(events: Path) -> None:
    assert "cluster key is now zorder(customer, ts)" in done(
        "alter", events, "--cluster-by", "zorder(customer, ts)"
    )
    assert "zorder(customer, ts)" in done("info", events)
    newest, *_ = json.loads(done("history", events, "--json"))
    assert newest["cluster_by"] == newest["detail"]["cluster_by"] == ["zorder(customer, ts)"]


def test_info_says_that_rows_lie_beyond_the_boundaries_and_what_to_do(events: Path, tmp_path: Path) -> None:
    assert "beyond" not in done("info", events)
    done("append", events, write(tmp_path / "later.parquet", 10_000, 400))
    assert "rows beyond the boundaries of the curve: 50% in ts" in " ".join(done("info", events).split())
    assert f"New boundaries: `tblctl alter {events} --cluster-by same`)" in done("info", events)
    said = done("alter", events, "--cluster-by", "same")
    assert f"cluster key is now {KEY}, with new boundaries" in said
    assert "beyond" not in done("info", events)


def test_on_an_iceberg_table_other_words_make_new_boundaries() -> None:
    recluster = application.commands["recluster"]
    with click.Context(recluster) as ctx:
        ctx.params["locations"] = ("iceberg://prod/a.b",)
        (note,) = figures.drift((("ts", 0.5), ("k", 0.01)), is_iceberg=True)
    assert "`tblctl recluster iceberg://prod/a.b --cluster-by same --policy full`" in note
    assert "50% in ts;" in note


def test_info_measures_a_curve_that_the_table_does_not_have(events: Path) -> None:
    figures = json.loads(done("info", events, "--columns", "zorder(ts, customer)", "--json"))
    assert figures["cluster_by_keys"] == ["zorder(ts, customer)"]
    assert figures["average_depth"] > 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--schema", "a: int64, b: int64", "--cluster-by", "hilbert(a, b)"], "--like"),
        (["--schema", "a: int64, b: int64", "--cluster-by", "hilbert(a)"], "2 to 4 columns"),
        (["--schema", "a: int64, b: int64", "--cluster-by", "same"], "no column 'same'"),
    ],
)
def test_a_curve_that_cannot_be_made_is_refused(tmp_path: Path, words: list[str], says: str) -> None:
    result = run("create", tmp_path / "t", *words)
    assert result.exit_code == 2
    assert says in result.stderr
    assert not (tmp_path / "t").exists()


def test_same_for_a_key_without_boundaries_is_refused(tmp_path: Path) -> None:
    done("create", tmp_path / "t", "--schema", "a: int64, b: int64", "--cluster-by", "a")
    result = run("alter", tmp_path / "t", "--cluster-by", "same")
    assert result.exit_code == 2
    assert "but the cluster key is a" in result.stderr
