"""`tblctl info`: every figure, per level too, and the last runs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application


def done(*words: object) -> str:
    result = CliRunner().invoke(application, [str(word) for word in words])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


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


def test_info_prints_every_figure(loc: Path) -> None:
    lines = cells(done("info", loc))
    assert lines[:3] == [["cluster", "key", "id"], ["rows", "34"], ["blocks", "5"]]
    assert lines[3][0] == "size"
    assert lines[4] == ["overlaps", "2.8000", "on", "average"]
    assert " ".join(lines[5]) == "depth 3.0000 on average; p50 3, p95 3, p99 3, max 3"
    assert lines[7] == ["depth", "blocks"]
    assert lines[9][:2] == ["3", "5"]
    assert len(lines) == 10, "one level only, and no runs"


def test_info_json_has_the_figures_of_the_table_of_its_levels_and_the_runs(loc: Path) -> None:
    found = json.loads(done("info", loc, "--json"))
    figures = {
        "total_block_count", "constant_block_count", "unclustered_block_count", "average_overlaps", "average_depth",
        "block_depth_histogram", "depth", "rows", "bytes",
    }  # fmt: skip
    assert {*figures, "cluster_by_keys", "levels", "last_runs"} <= set(found)
    assert figures <= set(found["levels"]["0"])
    assert found["depth"] == {"p50": 3, "p95": 3, "p99": 3, "max": 3}
    assert found["last_runs"] == []
    assert done("info", loc, "--columns", "id", "--where", "id = 15").startswith("cluster key  id")
