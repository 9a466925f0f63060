"""`--metrics-file`: what Prometheus reads of tables and reclusters."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import tblctl
from tblctl import errors
from tblctl.cli.main import application
from tblctl.cli.show import prometheus


def run(*words: object) -> Result:
    return CliRunner().invoke(application, [str(word) for word in words])


LINE = re.compile(r'(tblctl_[a-z_]+)\{table="((?:[^"\\]|\\.)*)"(?:,outcome="([a-z]+)")?\} (\S+)')


def read(path: Path) -> dict[tuple[str, ...], float]:
    """Return the values by name, table and outcome. Each name is explained once, before its values."""
    found: dict[tuple[str, ...], float] = {}
    explained: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            explained.append(" ".join(line.split()[1:3]))
            continue
        match = LINE.fullmatch(line)
        assert match, line
        name, table, outcome, value = match.groups()
        assert explained[-2:] == [f"HELP {name}", f"TYPE {name}"]
        found[name, table, *([outcome] if outcome else [])] = float(value)
    assert len(set(explained)) == len(explained)
    return found


def test_info_writes_the_figures_that_it_shows(overlapping: str, tmp_path: Path) -> None:
    file = tmp_path / "t.prom"
    assert run("info", overlapping, "--metrics-file", file).exit_code == 0
    info, found = tblctl.open(overlapping).info(), read(file)
    for name, value in (
        ("readable", 1),
        ("depth_average", info.average_depth),
        ("depth_max", info.depth.max),
        ("overlaps_average", info.average_overlaps),
        ("unclustered_ratio", 0),
        ("blocks", info.total_block_count),
        ("rows", info.rows),
        ("bytes", info.bytes),
    ):
        assert found[f"tblctl_table_{name}", overlapping] == value
    assert not any(name.startswith("tblctl_recluster") for name, *_ in found), "there was none"


def test_recluster_writes_the_table_afterwards_and_what_was_done(overlapping: str, tmp_path: Path) -> None:
    file = tmp_path / "t.prom"
    words = ("recluster", overlapping, "--threshold", "1", "--metrics-file", file)
    assert run(*words).exit_code == 0
    found = read(file)
    assert found["tblctl_table_depth_average", overlapping] == 1
    outcome = {key[2]: value for key, value in found.items() if key[0] == "tblctl_recluster_last_outcome"}
    assert {word for word, value in outcome.items() if value} == {"committed"}
    assert set(outcome) == set(prometheus.OUTCOMES)
    assert found["tblctl_recluster_last_bytes_written", overlapping] > 0
    assert found["tblctl_recluster_last_timestamp_seconds", overlapping] > 1.7e9
    run(*words)
    assert read(file)["tblctl_recluster_last_outcome", overlapping, "nothing"] == 1
    run("info", overlapping, "--metrics-file", file)
    assert read(file)["tblctl_recluster_last_outcome", overlapping, "committed"] == 1


def test_a_recluster_that_fails_writes_that_down_and_fails(
    overlapping: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise errors.StorageError("the disk is broken")

    monkeypatch.setattr(tblctl.Table, "recluster", fail)
    done = run("recluster", overlapping, "--metrics-file", tmp_path / "t.prom")
    assert (done.exit_code, done.stderr) == (1, "tblctl: error: the disk is broken\n")
    found = read(tmp_path / "t.prom")
    assert found["tblctl_recluster_last_outcome", overlapping, "error"] == 1
    assert found["tblctl_table_readable", overlapping] == 1


def test_a_survey_writes_all_tables_also_those_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("bad", "good", "plain"):
        table = tblctl.create(tmp_path / "lake" / name, "k: int64", cluster_by="k" if name != "plain" else ())
        table.append(pa.table({"k": [1]}))
    for path in (tmp_path / "lake" / "bad" / "metadata" / "snapshots").iterdir():
        path.write_text("x")
    assert run("info", "--all", tmp_path / "lake", "--metrics-file", tmp_path / "t.prom").exit_code == 1
    found = read(tmp_path / "t.prom")
    assert {
        Path(key[1]).name: value for key, value in found.items() if key[0] == "tblctl_table_readable"
    } == {
        "bad": 0,
        "good": 1,
        "plain": 1,
    }
    assert not [key for key in found if key[1].endswith("plain") and "depth" in key[0]]
    assert found["tblctl_table_rows", str(tmp_path / "lake" / "plain")] == 1


def outcome(**counts: int) -> Any:
    empty = {"committed_groups": 0, "failed_groups": 0, "conflicted_groups": 0}
    return type("Outcome", (), {**empty, **counts})


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        ({}, "nothing"),
        ({"committed_groups": 2}, "committed"),
        ({"committed_groups": 2, "failed_groups": 1}, "partly"),
        ({"committed_groups": 2, "conflicted_groups": 1}, "partly"),
        ({"failed_groups": 1, "conflicted_groups": 1}, "failed"),
        ({"conflicted_groups": 1}, "conflicted"),
    ],
)
def test_an_outcome_is_one_word(counts: dict[str, int], word: str) -> None:
    assert prometheus.outcome_word(outcome(**counts)) == word


def test_names_of_tables_are_escaped(tmp_path: Path) -> None:
    figures = prometheus.TableFigures(location='a\\b"c\nd')
    prometheus.write_metrics(str(tmp_path / "t"), [figures, replace(figures, location="e")])
    assert set(read(tmp_path / "t")) == {
        ("tblctl_table_readable", 'a\\\\b\\"c\\nd'),
        ("tblctl_table_readable", "e"),
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["recluster", "t", "--watch", "5m"], "run `tblctl info --all DIR --metrics-file FILE` beside it"),
        (["info", "t"], "there is no folder"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_work(words: list[str], message: str) -> None:
    done = run(*words, "--metrics-file", "/nowhere/t.prom")
    assert done.exit_code in {1, 2}
    assert message in done.stderr
