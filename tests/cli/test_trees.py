"""The command with keys by the leaves of a tree: what a user types and reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tblctl.cli.main import application


def run(*words: object) -> Result:
    return CliRunner().invoke(application, [str(word) for word in words])


def done(*words: object) -> str:
    result = run(*words)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    rng = np.random.default_rng(1)
    pq.write_table(pa.table({"a": rng.integers(0, 1000, 400), "c": rng.integers(0, 50, 400)}), path)
    (tmp_path / "cuts.sql").write_text("c = 3\nc IN (7, 8)\na < 100 AND c > 40\n")
    return path


@pytest.fixture
def key(tmp_path: Path) -> str:
    return f"qdtree(file:{tmp_path / 'cuts.sql'}, min_rows=5)"


def test_a_table_like_a_file_is_reclustered_by_leaf(tmp_path: Path, rows: Path, key: str) -> None:
    location = tmp_path / "t"
    said = done("create", location, "--like", rows, "--cluster-by", key, "--set", "block_rows=20")
    assert key in said
    for _ in range(3):
        done("append", location, rows)
    done("recluster", location, "--final")
    assert json.loads(done("info", location, "--json"))["cluster_by_keys"] == [key]
    assert "nothing to do" in done("recluster", location, "--final")
    done("check", location, "--deep")


def test_the_key_is_altered_to_a_tree_and_printed_as_typed(tmp_path: Path, rows: Path, key: str) -> None:
    location = tmp_path / "t"
    done("create", location, "--like", rows, "--cluster-by", "a")
    done("append", location, rows)
    assert f"cluster key is now {key}" in done("alter", location, "--cluster-by", key)
    assert "qdtree(file:" in done("info", location)
    newest, *_ = json.loads(done("history", location, "--json"))
    assert newest["cluster_by"] == newest["detail"]["cluster_by"] == [key]
    result = run("alter", location, "--cluster-by", "same")
    assert result.exit_code == 2
    assert "type it again" in " ".join(result.stderr.split())


def test_a_wrong_file_is_refused(tmp_path: Path, rows: Path, key: str) -> None:
    location = tmp_path / "t"
    (tmp_path / "cuts.sql").write_text("a = 1\na === 2")
    result = run("create", location, "--like", rows, "--cluster-by", key)
    assert result.exit_code == 2
    assert "cuts.sql: cannot read the condition at line 2" in result.stderr
    result = run("create", location, "--like", rows, "--cluster-by", "qdtree(workload)")
    assert result.exit_code == 2
    assert "qdtree(file:cuts.sql)" in result.stderr
    assert not location.exists()
