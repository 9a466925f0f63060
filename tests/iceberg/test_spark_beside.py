"""Spark with Iceberg 1.12 and tblctl change the same tables in turn: every reader sees the same rows after each step.

`Story` compares Spark, PyIceberg and, where it is at hand, DuckDB with a model of the rows in Python.
"""

from __future__ import annotations

import datetime
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from .duck import Duck
from .spark_process import SparkLake

pytestmark = pytest.mark.xdist_group("iceberg-spark")

Row = dict[str, Any]

MERGE_ON_READ = ", ".join(f"'write.{name}.mode'='merge-on-read'" for name in ("delete", "update", "merge"))
START = datetime.datetime(2024, 1, 1)
DEFINED = "id BIGINT, region STRING, at TIMESTAMP, s STRING, n INT"
ROWS = """SELECT id, IF(id % 7 = 0, NULL, concat('r', id % 3)) AS region,
    timestamp '2024-01-01' + make_interval(0, 0, 0, int(id div 2 % 4)) AS at, concat(char(97 + id % 5), id) AS s,
    int(id * 13 % 101) AS n FROM range({first}, {last}, {step}, 1)"""


def row_of(id_: int) -> Row:
    """Return the row that Spark makes of an id."""
    return {
        "id": id_,
        "region": None if id_ % 7 == 0 else f"r{id_ % 3}",
        "at": START + datetime.timedelta(days=id_ // 2 % 4),
        "s": f"{chr(97 + id_ % 5)}{id_}",
        "n": id_ * 13 % 101,
    }


def text_of(value: Any) -> str:
    """Return a value's text as Spark's CAST gives it."""
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    return "-" if value is None else str(value)


def sums(rows: Iterable[Iterable[Any]]) -> tuple[int, int]:
    """Return the number of rows, and the sum of their hashes."""
    hashes = [zlib.crc32("|".join(map(text_of, row)).encode()) for row in rows]
    return len(hashes), sum(hashes)


class Story:
    """A table that Spark made, and its rows as they should be. `names` are its columns."""

    def __init__(self, lake: SparkLake, name: str, duck: Duck | None, *, partitioned: str = "") -> None:
        self.lake, self.name, self.duck = lake, f"db.{name}", duck
        self.names = ["id", "region", "at", "s", "n"]
        self.rows: dict[int, Row] = {}
        self.seen: dict[int, tuple[int, int]] = {}
        by = f"PARTITIONED BY ({partitioned})" if partitioned else ""
        lake.sql(f"CREATE TABLE {self.name} ({DEFINED}) USING iceberg {by} TBLPROPERTIES ({MERGE_ON_READ})")
        self.table = lake.load(name)
        self.opened = lake.open(name)

    def spark(self, statement: str) -> None:
        self.lake.sql(statement.replace("TABLE_NAME", self.name))

    def call(self, procedure: str, **words: str) -> None:
        given = "".join(f", {name} => {value}" for name, value in words.items())
        self.lake.sql(f"CALL lake.system.{procedure}(table => '{self.name}'{given})")

    def insert(self, first: int, last: int, step: int = 1) -> None:
        self.spark("INSERT INTO TABLE_NAME " + ROWS.format(first=first, last=last, step=step))
        self.rows |= {id_: row_of(id_) for id_ in range(first, last, step)}
        self.check()

    def delete(self, condition: str, deleted: Callable[[Row], bool]) -> None:
        self.spark(f"DELETE FROM TABLE_NAME WHERE {condition}")
        self.rows = {id_: row for id_, row in self.rows.items() if not deleted(row)}
        self.check()

    def update(self, condition: str, updated: Callable[[Row], bool], **values: Any) -> None:
        changes = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        self.spark(f"UPDATE TABLE_NAME SET {changes} WHERE {condition}")
        self.rows = {id_: row | values if updated(row) else row for id_, row in self.rows.items()}
        self.check()

    def merge(self, first: int, last: int) -> None:
        """Change one column of the rows with some ids; insert those that are not there."""
        source = ROWS.format(first=first, last=last, step=1)
        self.spark(
            f"MERGE INTO TABLE_NAME t USING ({source}) u ON t.id = u.id "
            "WHEN MATCHED THEN UPDATE SET region = 'merged' WHEN NOT MATCHED THEN INSERT *"
        )
        for id_ in range(first, last):
            self.rows[id_] = self.rows[id_] | {"region": "merged"} if id_ in self.rows else row_of(id_)
        self.check()

    def recluster(self, cluster_by: str = "id", *, merges: bool = False) -> None:
        """Recluster until nothing is left to do. Deletes alone are no reason to rewrite files.

        `merges`: something must be there to do.
        """
        outcome = self.opened.recluster(cluster_by=cluster_by, policy="full", final=True)
        assert (outcome.failed_groups, outcome.conflicted_groups) == (0, 0), outcome.groups
        assert not merges or outcome.commits > 0
        found = self.opened.info()
        assert found.average_depth == outcome.depth_after == 1.0
        assert self.opened.recluster(policy="full", final=True).commits == 0
        self.check()

    def check(self) -> None:
        """Compare what all readers see now."""
        expected = sums([row.get(name) for name in self.names] for row in self.rows.values())
        self.table = self.table.refresh()
        rows = self.table.scan().to_arrow().select(self.names).to_pylist()
        assert sums(row.values() for row in rows) == expected, "PyIceberg"
        assert self.by_spark() == expected
        if self.duck is not None:
            columns = ", ".join(f'CAST("{name}" AS VARCHAR)' for name in self.names).replace(
                'CAST("at" AS VARCHAR)', "strftime(\"at\", '%Y-%m-%d %H:%M:%S')"
            )
            asked = f"SELECT {columns} FROM iceberg_scan('{self.table.metadata_location}')"
            assert sums(self.duck.sql(asked)) == expected, "DuckDB"
        snapshot = self.table.current_snapshot()
        if snapshot is not None:
            self.seen[snapshot.snapshot_id] = expected

    def by_spark(self, version: int | None = None, names: list[str] | None = None) -> tuple[int, int]:
        columns = ", ".join(f"coalesce(CAST({name} AS STRING), '-')" for name in names or self.names)
        of = "" if version is None else f" VERSION AS OF {version}"
        (found,) = self.lake.sql(
            f"SELECT count(*) AS n, coalesce(sum(crc32(encode(concat_ws('|', {columns}), 'utf-8'))), 0) AS h "
            f"FROM {self.name}{of}"
        )
        return found["n"], found["h"]

    def operations(self) -> list[str]:
        return [snapshot.summary.operation.value for snapshot in self.table.refresh().snapshots()]


@pytest.mark.parametrize("partitioned", ["days(at)", "bucket(4, id)", "truncate(1, s)", "region"])
def test_rows_stay_the_same_beside_merge_on_read(
    spark_lake: SparkLake, duck_too: Duck | None, partitioned: str
) -> None:
    story = Story(spark_lake, "beside_" + partitioned.partition("(")[0], duck_too, partitioned=partitioned)
    story.insert(0, 60, 2)
    story.insert(1, 60, 2)
    story.recluster(merges=True)
    story.delete("id % 5 = 3", lambda row: row["id"] % 5 == 3)
    story.merge(50, 70)
    story.recluster()
    story.update("n > 80", lambda row: row["n"] > 80, s="updated")
    story.recluster()
    for snapshot, expected in story.seen.items():
        assert story.by_spark(snapshot) == expected


def test_columns_and_partition_specs_may_change_in_between(
    spark_lake: SparkLake, duck_too: Duck | None
) -> None:
    story = Story(spark_lake, "evolving", duck_too, partitioned="days(at)")
    story.insert(0, 40, 2)
    story.insert(1, 40, 2)
    story.spark("ALTER TABLE TABLE_NAME ADD COLUMN late STRING")
    story.names.append("late")
    story.recluster(merges=True)
    story.update("id < 5", lambda row: row["id"] < 5, late="new")
    story.spark("ALTER TABLE TABLE_NAME RENAME COLUMN n TO number")
    story.spark("ALTER TABLE TABLE_NAME DROP COLUMN s")
    story.names = ["id", "region", "at", "number", "late"]
    story.rows = {id_: row | {"number": row["n"]} for id_, row in story.rows.items()}
    story.recluster()
    story.spark("ALTER TABLE TABLE_NAME ADD PARTITION FIELD bucket(2, id)")
    story.update("region = 'r1'", lambda row: row["region"] == "r1", late="spec")
    story.recluster("region, id")
    story.spark("ALTER TABLE TABLE_NAME DROP PARTITION FIELD days(at)")
    story.update("number > 50", lambda row: row["number"] > 50, late="again")
    story.delete("id = 6", lambda row: row["id"] == 6)
    story.recluster("id desc")
    assert len({task.file.spec_id for task in story.table.scan().plan_files()}) > 1


def test_upkeep_of_spark_and_of_tblctl_take_turns(spark_lake: SparkLake, duck_too: Duck | None) -> None:
    story = Story(spark_lake, "upkeep", duck_too, partitioned="region")
    story.insert(0, 40, 2)
    story.insert(1, 40, 2)
    story.recluster(merges=True)
    story.delete("id % 6 = 1", lambda row: row["id"] % 6 == 1)
    story.call("rewrite_position_delete_files", options="map('rewrite-all', 'true')")
    story.check()
    story.recluster()
    story.insert(40, 60)
    story.delete("id = 41", lambda row: row["id"] == 41)
    story.call("rewrite_data_files", options="map('rewrite-all', 'true')")
    story.check()
    story.recluster("n, id")
    story.call("rewrite_manifests")
    story.check()
    story.insert(60, 80)
    story.recluster("n, id")
    assert story.opened.gc().objects_deleted == ()
    aged(story)
    story.opened.gc()  # what is of tblctl and needed by nobody, of which there should be nothing
    story.check()
    story.call("expire_snapshots", older_than="timestamp '2100-01-01'", retain_last="1")
    assert len(story.operations()) == 1
    story.check()
    story.insert(80, 90)
    story.opened.recluster(final=True)
    aged(story)
    story.call("remove_orphan_files")
    story.check()
    story.recluster("n, id")
    story.opened.gc(keep=1, expire_older_than="1s")
    story.check()
    assert story.opened.check().ok


def aged(story: Story) -> None:
    """Let all files of a table be four days old."""
    then = datetime.datetime.now().timestamp() - 4 * 86_400
    for path in Path(story.table.location().removeprefix("file:")).rglob("*"):
        os.utime(path, (then, then))


def test_readers_of_changes_skip_reclusters(
    spark_lake: SparkLake, tmp_path: Path, duck_too: Duck | None
) -> None:
    story = Story(spark_lake, "changes", duck_too)
    story.insert(0, 10, 2)
    first = story.table.current_snapshot().snapshot_id
    story.insert(1, 10, 2)
    story.recluster(merges=True)
    story.insert(10, 15)
    last = story.table.current_snapshot().snapshot_id
    assert story.operations() == ["append", "append", "replace", "append"]
    reader = f".option('start-snapshot-id', {first}).option('end-snapshot-id', {last})"
    found = spark_lake.program(
        f"found = spark.read.format('iceberg'){reader}.load('{story.name}').select('id')"
    )
    assert sorted(row["id"] for row in found) == [1, 3, 5, 7, 9, *range(10, 15)]
    assert streamed(story, tmp_path) == list(range(15))
    story.insert(15, 20)
    story.recluster()
    assert streamed(story, tmp_path) == list(range(20))


def streamed(story: Story, folder: Path) -> list[int]:
    """Run a stream from where it ended until nothing is new; return all ids that it ever gave."""
    text = f"""
reader = spark.readStream.format("iceberg").option("stream-from-timestamp", "0").load("{story.name}").select("id")
writer = reader.writeStream.format("parquet").option("path", "{folder}/ids").option("checkpointLocation", "{folder}/at")
writer.trigger(availableNow=True).start().awaitTermination()
found = spark.read.parquet("{folder}/ids")
"""
    return sorted(row["id"] for row in story.lake.program(text))
