"""Spark starts only for a merge. A malformed address is refused before the table is read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the masters that Spark was started with; nothing starts."""
    masters: list[str] = []

    def start(master: str, _conf: object) -> None:
        masters.append(master)
        raise tblctl.errors.EngineError("no Spark here")

    monkeypatch.setattr("tblctl.merger.engines.spark.session._running_session", lambda: None)
    monkeypatch.setattr("tblctl.merger.engines.spark.session._start", start)
    return masters


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Return the location of a table with two blocks that overlap."""
    table = tblctl.create(str(tmp_path / "t"), "k: long", cluster_by=["k"])
    for keys in ([1, 3], [2, 4]):
        table.append(pa.table({"k": keys}))
    return table.location


def run(*words: str) -> int:
    return CliRunner().invoke(application, words).exit_code


def test_a_merge_starts_spark(started: list[str], place: str) -> None:
    assert run("recluster", place, "--master", "local[2]", "--include-unclustered") == 1
    assert started == ["local[2]"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--dry-run"], 0),
        (["--where", "missing = 1"], 2),
        (["--where", "k > 1000"], 0),
    ],
    ids=["dry run", "unknown column", "nothing to do"],
)
@pytest.mark.parametrize("engine", [["--engine", "spark"], ["--master", "local[2]"]], ids=" ".join)
def test_what_merges_nothing_starts_no_spark(
    started: list[str], place: str, words: list[str], code: int, engine: list[str]
) -> None:
    assert run("recluster", place, *words, *engine) == code
    assert started == []


def test_a_table_that_is_missing_or_in_memory_starts_no_spark(started: list[str], tmp_path: Path) -> None:
    assert run("recluster", str(tmp_path / "missing"), "--engine", "spark") == 1
    assert run("sql", f"ALTER TABLE '{tmp_path}/missing' RECLUSTER", "--engine", "spark") == 1
    tblctl.create("memory://engines/t", "k: long", cluster_by=["k"])
    assert run("recluster", "memory://engines/t", "--master", "local[2]") == 2
    assert started == []


@pytest.mark.parametrize("master", ["nonsense", "local[x]", "locals", "spark://", "http://h:7077", ""])
def test_a_master_that_is_none_is_refused_at_once(started: list[str], master: str, tmp_path: Path) -> None:
    assert run("recluster", str(tmp_path / "missing"), "--master", master) == 2
    assert started == []


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[*]",
        "local[2,3]",
        "local-cluster[2,1,1024]",
        "spark://a:7077,b:7077",
        "yarn",
        "k8s://https://h",
    ],
)
def test_a_master_of_every_kind_is_taken(master: str) -> None:
    assert tblctl.spark_session(master=master)
