"""Tables reclustered on Spark: the same as in this process, up to object names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from servers import S3Server

import tblctl
from tblctl.merger.engines.engine import Engine
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.engines.spark.engine import SparkEngine
from tblctl.spark.code import CODE

from .conftest import python

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.list_(pa.float64()))])
BLOCK_ROWS = 500


def make_table(url: str, *key: str, **more: Any) -> tblctl.Table:
    """Make two ranges of keys, far from each other, of overlapping blocks: two groups a round."""
    options = {"block_rows": BLOCK_ROWS, "row_group_rows": 100}
    table = tblctl.create(url, SCHEMA, cluster_by=key or ["k", "n"], options=options, **more)
    rng = np.random.default_rng(7)
    for number in range(10):
        keys = rng.integers(0, 300, BLOCK_ROWS) + (number % 2) * 1000
        rows = {
            "k": [None if key == 1005 else f"{key:05d}" for key in keys],
            "n": rng.permutation(BLOCK_ROWS),
            "x": [[float(key)] * (key % 3) for key in keys],
        }
        table.append(pa.table(rows, schema=SCHEMA))
    return table


def shape(table: tblctl.Table) -> list[tuple[Any, ...]]:
    blocks = [(block.rows, block.level, block.min, block.max, block.decoded_bytes) for block in table.files()]
    return sorted(blocks, key=repr)


def rows(table: tblctl.Table) -> list[str]:
    return sorted(repr(row) for row in table.scan().to_arrow().to_pylist())


@pytest.mark.parametrize("final", [False, True])
def test_both_engines_give_the_same_table(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, final: bool
) -> None:
    here, there = (make_table(str(tmp_path / name)) for name in ("here", "there"))
    before = rows(here)
    monkeypatch.setattr(LocalEngine, "parallelism", SparkEngine(spark.session, CODE).parallelism)
    progress: list[tuple[int, int | None, str]] = []
    outcomes = (
        here.recluster(engine="local", final=final),
        there.recluster(spark=spark.session, final=final, progress=lambda *news: progress.append(news)),
    )
    assert [outcome.engine for outcome in outcomes] == ["local", "spark"]
    assert outcomes[0].committed_groups == outcomes[1].committed_groups > 1
    assert shape(here) == shape(there)
    assert rows(here) == rows(there) == before
    assert there.check(deep=True).problems == ()
    assert {unit for _, _, unit in progress} == {"rows", "groups"}
    assert spark.session.range(10).count() == 10


def test_both_engines_give_the_same_table_along_a_curve(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = pa.table({"k": [f"{key:05d}" for key in range(1300)], "n": [key % 500 for key in range(1300)]})
    here, there = (
        make_table(str(tmp_path / name), "hilbert(n, k)", sample=sample) for name in ("here", "there")
    )
    before, depth = rows(here), here.info().average_depth
    monkeypatch.setattr(LocalEngine, "parallelism", SparkEngine(spark.session, CODE).parallelism)
    here.recluster(engine="local", final=True)
    outcome = there.recluster(spark=spark.session, final=True)
    assert (outcome.engine, outcome.failed_groups, outcome.committed_groups > 0) == ("spark", 0, True)
    assert there.info().average_depth < depth / 2
    assert shape(here) == shape(there)
    assert rows(here) == rows(there) == before
    assert there.check(deep=True).problems == ()


def test_a_missing_block_fails_its_group_alone(spark: Any, tmp_path: Path) -> None:
    table = make_table(str(tmp_path))
    lost = table.plan().groups[0].blocks[0]
    (tmp_path / lost).unlink()
    outcome = table.recluster(engine="spark", spark=spark.session)
    assert (outcome.committed_groups, outcome.failed_groups) == (1, 1)
    (error,) = [group.error for group in outcome.groups if group.status == "failed"]
    assert lost in error


def test_storage_options_reach_workers_and_are_not_printed(spark: Any, minio: S3Server) -> None:
    where = minio.location()
    table = make_table(where.url, storage_options=where.storage_options)
    outcome = table.recluster(engine="spark", spark=spark.session)
    assert (outcome.committed_groups, outcome.failed_groups) == (2, 0)
    assert table.check(deep=True).problems == ()
    assert minio.secret.encode() not in spark.traces()


def test_a_session_that_was_stopped_is_an_error_that_changes_nothing(java: None, tmp_path: Path) -> None:
    table = make_table(str(tmp_path / "table"))
    program = (
        "import sys, tblctl\n"
        "from tblctl.merger.engines.spark.session import open_session\n"
        "with open_session(master='local[1]') as session:\n    pass\n"
        "try:\n    tblctl.open(sys.argv[1]).recluster(spark=session)\n"
        "except tblctl.errors.EngineError as error:\n    print(error)"
    )
    done = python(program, words=(str(tmp_path / "table"),))
    assert "the Spark session does not work" in done.stdout, done.stderr
    assert tblctl.open(str(tmp_path / "table")).snapshot.sequence == table.snapshot.sequence


def test_both_engines_keep_one_contract() -> None:
    engines: list[Engine] = [LocalEngine(), SparkEngine(None, CODE)]
    assert [engine.name for engine in engines] == ["local", "spark"]
