"""Write-audit-publish beside reclusters: staged snapshots and branches to be published later lose nothing."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from .lake import Lake
from .replacing import sorted_ids
from .spark_process import SparkLake

pytestmark = pytest.mark.xdist_group("iceberg-spark")


@pytest.fixture
def table(spark_lake: SparkLake) -> Table:
    """Return a table of two overlapping files, for which staged writes are enabled."""
    name = f"wap{os.urandom(6).hex()}"
    spark_lake.sql(
        f"CREATE TABLE db.{name} (id BIGINT) USING iceberg TBLPROPERTIES ('write.wap.enabled'='true')",
        f"INSERT INTO db.{name} VALUES (1), (4), (7)",
        f"INSERT INTO db.{name} VALUES (2), (5), (8)",
    )
    return spark_lake.load(name)


def name_of(table: Table) -> str:
    return ".".join(table.name()[-2:])


def with_setting(lake: SparkLake, setting: str, value: str, statement: str) -> None:
    lake.sql(f"SET {setting}={value}")
    try:
        lake.sql(statement)
    finally:
        lake.sql(f"RESET {setting}")


def staged_by(table: Table, id_: str) -> Snapshot:
    (found,) = [
        snapshot
        for snapshot in table.refresh().snapshots()
        if snapshot.summary and snapshot.summary.additional_properties.get("wap.id") == id_
    ]
    return found


def recluster(lake: Lake, table: Table, **more: Any) -> Any:
    outcome = lake.open(table.name()[-1], **more).recluster(cluster_by="id", policy="full")
    assert (outcome.commits, outcome.failed_groups) == (1, 0)
    return outcome


def test_a_staged_snapshot_is_published_after_a_recluster_and_gc(spark_lake: SparkLake, table: Table) -> None:
    name = name_of(table)
    with_setting(spark_lake, "spark.wap.id", "w1", f"INSERT INTO {name} VALUES (3), (6)")
    staged = staged_by(table, "w1")
    assert sorted_ids(table) == [1, 2, 4, 5, 7, 8]
    recluster(spark_lake, table)
    opened = spark_lake.open(table.name()[-1])
    assert opened.gc(expire_older_than=0, keep=1).snapshots_expired
    assert staged_by(table, "w1").snapshot_id == staged.snapshot_id
    assert sorted(table.scan(snapshot_id=staged.snapshot_id).to_arrow()["id"].to_pylist()) == list(
        range(1, 9)
    )
    assert sorted_ids(table) == [1, 2, 4, 5, 7, 8]
    spark_lake.sql(f"CALL lake.system.publish_changes('{name}', 'w1')")
    assert sorted_ids(table) == list(range(1, 9))
    assert [row["id"] for row in spark_lake.sql(f"SELECT id FROM {name} ORDER BY id")] == list(range(1, 9))
    recluster(spark_lake, table)
    assert sorted_ids(table) == list(range(1, 9))


def test_a_branch_to_be_published_is_reclustered_or_left_and_published(
    spark_lake: SparkLake, table: Table
) -> None:
    name = name_of(table)
    spark_lake.sql(f"ALTER TABLE {name} CREATE BRANCH audit")
    with_setting(spark_lake, "spark.wap.branch", "audit", f"INSERT INTO {name} VALUES (3), (6)")
    main = table.refresh().metadata.current_snapshot_id
    assert sorted_ids(table) == [1, 2, 4, 5, 7, 8]
    recluster(spark_lake, table, branch="audit")
    spark_lake.open(table.name()[-1]).gc(expire_older_than=0, keep=2)
    assert table.refresh().metadata.current_snapshot_id == main
    spark_lake.sql(f"CALL lake.system.fast_forward('{name}', 'main', 'audit')")
    assert sorted_ids(table) == list(range(1, 9))
    assert [row["id"] for row in spark_lake.sql(f"SELECT id FROM {name} ORDER BY id")] == list(range(1, 9))
