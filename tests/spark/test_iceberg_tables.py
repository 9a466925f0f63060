"""Iceberg tables reclustered on Spark: the same as in this process, secrets in none of Spark's records."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, StringType
from servers import S3Server

import tblctl
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.engines.spark.engine import SparkEngine
from tblctl.spark.code import CODE
from tblctl.tableformat.iceberg.block_io import IcebergBlockIO

from ..iceberg.lake import Lake, append, fields
from ..iceberg.position_deletes import delete_rows

SMALL_FILES = {"write.target-file-size-bytes": "1000"}
"""With these, a group of 100 rows becomes several files, and may be several tasks."""


def fill(catalog: Any, name: str, **properties: str) -> Table:
    """Make a table of two partitions, each of four overlapping files, two with deleted rows."""
    table = catalog.create_table(
        f"db.{name}",
        fields(id=LongType(), part=IntegerType(), s=StringType()),
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part")),
        properties=properties,
    )
    for first in range(4):
        ids = list(range(first, 200, 4))
        append(table, id=ids, part=[id_ // 100 for id_ in ids], s=[f"row {id_}" for id_ in ids])
    for task in list(table.scan().plan_files())[:2]:
        table = delete_rows(table, {task.file.file_path: [1, 5]}, like=task.file)
    return table


def rows(table: Table) -> list[Any]:
    return sorted(repr(row) for row in table.refresh().scan().to_arrow().to_pylist())


def shape(table: Table) -> list[Any]:
    files = [task.file for task in table.refresh().scan().plan_files()]
    found = [
        (repr(file.partition), file.record_count, file.lower_bounds, file.upper_bounds) for file in files
    ]
    return sorted(found, key=repr)


@pytest.mark.parametrize("key", ["id", "hilbert(id, s)"])
def test_both_engines_give_the_same_table(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    lake = Lake(tmp_path)
    here, there = (fill(lake.catalog, name) for name in ("here", "there"))
    before = rows(here)
    assert rows(there) == before
    assert len(before) == 196
    monkeypatch.setattr(LocalEngine, "parallelism", SparkEngine(spark.session, CODE).parallelism)
    outcomes = (
        lake.open("here").recluster(cluster_by=key, engine="local", final=True),
        lake.open("there").recluster(cluster_by=key, engine="spark", spark=spark.session, final=True),
    )
    assert [outcome.engine for outcome in outcomes] == ["local", "spark"]
    figures = [
        (
            found.commits,
            found.committed_groups,
            found.failed_groups,
            found.blocks_in,
            found.blocks_out,
            found.depth_after,
        )
        for found in outcomes
    ]
    assert figures[0] == figures[1]
    assert figures[0][1] > 0
    assert rows(here) == rows(there) == before
    assert shape(here) == shape(there)


def test_workers_find_the_cuts_of_groups_with_deletes_and_the_driver_opens_no_file(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = IcebergBlockIO.open

    def recorded(self: Any, block: Any, **more: Any) -> Any:
        opened.append(block.path)
        return real(self, block, **more)

    monkeypatch.setattr(IcebergBlockIO, "open", recorded)
    for engine in (LocalEngine, SparkEngine):
        monkeypatch.setattr(engine, "parallelism", 8)
    lake = Lake(tmp_path)
    tables = {name: fill(lake.catalog, name, **SMALL_FILES) for name in ("local", "spark")}
    before = rows(tables["local"])
    outcomes = {}
    for name in tables:
        opened.clear()
        session = {"spark": spark.session} if name == "spark" else {}
        outcomes[name] = lake.open(name).recluster(cluster_by="id", policy="full", engine=name, **session)
        assert bool(opened) == (name == "local")
    assert outcomes["spark"].committed_groups == outcomes["local"].committed_groups == 2
    assert outcomes["spark"].blocks_out == outcomes["local"].blocks_out > 2
    assert rows(tables["spark"]) == rows(tables["local"]) == before
    assert shape(tables["spark"]) == shape(tables["local"])


def test_secrets_are_in_no_plan_event_or_message(spark: Any, minio: S3Server, tmp_path: Path) -> None:
    options = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{minio.bucket}/{uuid.uuid4().hex}",
        **minio.catalog_options,
    }
    catalog = load_catalog("lake", **options)
    catalog.create_namespace("db")
    table = fill(catalog, "t")
    before = rows(table)
    opened = tblctl.open("iceberg://lake/db.t", catalog_options=options)
    outcome = opened.recluster(cluster_by="id", engine="spark", spark=spark.session)
    assert (outcome.committed_groups > 0, outcome.failed_groups) == (True, 0), outcome.groups
    assert rows(table) == before
    traces = spark.traces()
    assert b": group" in traces, "the log is not where the test looks"
    for form in (minio.secret, minio.secret.encode().hex()):
        assert form.encode() not in traces
