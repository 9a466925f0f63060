"""Tables that Spark with Iceberg 1.12 wrote, against the rows in their files (oracle.py)."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tblctl

from .lake import append, version_of
from .oracle import assert_true
from .spark_process import SparkLake

pytestmark = pytest.mark.xdist_group("iceberg-spark")


def info_of(lake: SparkLake, name: str, columns: str | None = None, **more: Any) -> Any:
    return lake.open(name).info(columns=columns, **more)


def test_every_type_of_spark_is_bounded(spark_lake: SparkLake) -> None:
    spark_lake.sql(
        """CREATE TABLE db.types (flag BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, d9 DECIMAL(9,2), d18 DECIMAL(18,4),
           d38 DECIMAL(38,10), day DATE, at TIMESTAMP, at_ntz TIMESTAMP_NTZ, s STRING, bin BINARY,
           st STRUCT<x: INT, y: STRUCT<z: STRING>>, li ARRAY<INT>, ma MAP<STRING, DOUBLE>) USING iceberg""",
        """INSERT INTO db.types SELECT id % 2 = 0, id, id * 5000000000, id / 2, id / 3, id - 2.5, id * 1000000000.5,
           id * 1e20 - 3, date '1969-12-30' + int(id),
           timestamp '1969-12-31 23:59:59.999999' + make_interval(0, 0, 0, id),
           timestamp_ntz '0001-01-01 00:00:00' + make_interval(id), repeat(char(97 + id), 12 + id),
           unhex(repeat('ff', id)), struct(id, struct(repeat('é', 14 + id))), array(id), map('k', id / 7)
           FROM range(0, 5, 1, 2)""",
        f"INSERT INTO db.types VALUES ({', '.join(['NULL'] * 16)})",
        """INSERT INTO db.types SELECT true, 1, 1, float('nan'), double('nan'), 1, 1, 1, NULL, NULL, NULL,
           concat(repeat('\ud7ff', 20), '\U0001f600'), unhex(repeat('61', 20)), NULL, NULL, NULL""",
        """INSERT INTO db.types SELECT NULL, -2147483648, -9223372036854775808,
           IF(id = 0, float('-infinity'), float('nan')), -0.0D, -1, -1, -1, date '9999-12-31', NULL, NULL,
           '\U0010ffff', X'00', struct(1, NULL), NULL, NULL FROM range(0, 2, 1, 1)""",
    )
    table = spark_lake.load("types")
    columns = [
        "flag",
        "i",
        "l",
        "f",
        "d",
        "d9",
        "d18",
        "d38",
        "day",
        "at",
        "at_ntz",
        "s",
        "bin",
        "st.x",
        "st.y.z",
    ]
    assert_true(
        table,
        *columns,
        *(
            "f desc",
            "d nulls first",
            "year(day), i",
            "hour(at) desc",
            "truncate(3, s)",
            "bucket(4, l)",
            "s, i desc",
        ),
    )
    for column in columns:
        assert info_of(spark_lake, "types", column).unknown_block_count == 0, column
    opened = spark_lake.open("types")
    assert {candidate.terms[0] for candidate in opened.suggest().candidates} <= set(columns)
    assert opened.plan("full", cluster_by="s, i desc").groups
    assert opened.check().ok


def test_spark_counts_nan_so_bounds_of_floats_are_exact(spark_lake: SparkLake) -> None:
    spark_lake.sql(
        "CREATE TABLE db.floats (f DOUBLE) USING iceberg",
        "INSERT INTO db.floats SELECT id FROM range(1, 3, 1, 1)",
        "INSERT INTO db.floats SELECT IF(id = 4, double('nan'), id) FROM range(3, 5, 1, 1)",
        "INSERT INTO db.floats SELECT double('nan') FROM range(0, 2, 1, 1)",
        "INSERT INTO db.floats SELECT 4 FROM range(0, 2, 1, 1)",
    )
    assert_true(spark_lake.load("floats"), "f", "f desc")
    found = info_of(spark_lake, "floats", "f")
    assert (found.unknown_block_count, found.constant_block_count, found.average_depth) == (0, 2, 1.75)
    version = version_of(spark_lake.load("floats")).clustered_by("f")
    assert version.listing(version.sort, None).exact.all()


def test_merge_on_read_leaves_deleted_rows_in_their_files(spark_lake: SparkLake) -> None:
    spark_lake.sql(
        """CREATE TABLE db.mor (id BIGINT, s STRING) USING iceberg TBLPROPERTIES ('write.delete.mode'='merge-on-read',
           'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read')""",
        "INSERT INTO db.mor SELECT id, concat('a', id) FROM range(0, 10, 1, 1)",
        "INSERT INTO db.mor SELECT id, concat('b', id) FROM range(5, 15, 1, 1)",
        "DELETE FROM db.mor WHERE id = 7",
        "UPDATE db.mor SET s = 'new' WHERE id = 3",
        """MERGE INTO db.mor t USING (SELECT explode(array(4, 99)) AS id) u ON t.id = u.id
           WHEN MATCHED THEN UPDATE SET s = 'merged' WHEN NOT MATCHED THEN INSERT (id, s) VALUES (u.id, 'merged')""",
    )
    table = spark_lake.load("mor")
    assert any(manifest.content.value == 1 for manifest in table.current_snapshot().manifests(table.io))
    assert_true(table, "id", "s")
    found = info_of(spark_lake, "mor", "id")
    assert found.rows > spark_lake.sql("SELECT count(*) AS n FROM db.mor")[0]["n"]
    assert found.unknown_block_count == 0
    assert spark_lake.open("mor").history()[0].operation == "overwrite"
    spark_lake.sql("DELETE FROM db.mor")
    assert_true(table, "id")


def test_copy_on_write_and_rewrites_of_files_and_manifests(spark_lake: SparkLake) -> None:
    spark_lake.sql(
        "CREATE TABLE db.cow (id BIGINT, s STRING) USING iceberg "
        "TBLPROPERTIES ('commit.manifest.min-count-to-merge'='2')",
        *(f"INSERT INTO db.cow SELECT id, repeat('x', id) FROM range({n}, {n + 8}, 1, 1)" for n in (0, 4, 8)),
        "DELETE FROM db.cow WHERE id = 7",
        "UPDATE db.cow SET s = 'u' WHERE id = 1",
    )
    table = spark_lake.load("cow")
    assert_true(table, "id", "s")
    spark_lake.sql("CALL lake.system.rewrite_manifests('db.cow')")
    assert_true(table, "id", "s")
    spark_lake.sql(
        "CALL lake.system.rewrite_data_files(table => 'db.cow', options => map('rewrite-all', 'true'))"
    )
    assert_true(table, "id", "s")
    assert info_of(spark_lake, "cow", "id").total_block_count == 1
    assert {item.operation for item in spark_lake.open("cow").history()} == {"append", "overwrite", "replace"}
    old = version_of(table.refresh())
    for snapshot in old.metadata.snapshots:
        assert_true(table, "id", version=old.at(snapshot))


def test_partitions_and_columns_that_change_midway(spark_lake: SparkLake) -> None:
    spark_lake.sql(
        "CREATE TABLE db.evolved (id INT, region STRING, at TIMESTAMP, f FLOAT, st STRUCT<x: INT>) USING iceberg "
        "PARTITIONED BY (region)",
        """INSERT INTO db.evolved SELECT id, IF(id = 3, NULL, concat('r', id % 2)), timestamp '2024-01-01' +
           make_interval(0, 0, 0, id), id, struct(id) FROM range(0, 6, 1, 1)""",
        "ALTER TABLE db.evolved ADD PARTITION FIELD days(at)",
        "ALTER TABLE db.evolved ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE db.evolved ALTER COLUMN f TYPE DOUBLE",
        "ALTER TABLE db.evolved ADD COLUMN st.y DOUBLE",
        "INSERT INTO db.evolved SELECT 5000000000, 'r0', timestamp '2024-01-02', 1e300, struct(1, 2.5)",
        "ALTER TABLE db.evolved REPLACE PARTITION FIELD region WITH bucket(4, id)",
        "ALTER TABLE db.evolved RENAME COLUMN st.x TO renamed",
        "ALTER TABLE db.evolved RENAME COLUMN region TO land",
        "ALTER TABLE db.evolved ALTER COLUMN f FIRST",
        "INSERT INTO db.evolved SELECT 1.5, id, 'r1', timestamp '2024-01-03', struct(id, 1) FROM range(0, 4, 1, 1)",
    )
    table = spark_lake.load("evolved")
    assert_true(table, "id", "f desc", "st.renamed", "st.y", "land, id", "day(at)")
    partitions = version_of(table).partitions.texts
    assert any("spec" in text for text in partitions)


def test_the_written_order_is_the_cluster_key(spark_lake: SparkLake) -> None:
    spark_lake.sql(
        "CREATE TABLE db.ordered (id BIGINT, s STRING, at TIMESTAMP) USING iceberg",
        "ALTER TABLE db.ordered WRITE ORDERED BY days(at) DESC, truncate(4, s), id ASC NULLS LAST, bucket(8, id)",
        """INSERT INTO db.ordered SELECT id, repeat(char(97 + id % 3), 20),
           timestamp '2024-01-01' + make_interval(0, 0, 0, id) FROM range(0, 9, 1, 1)""",
    )
    opened = spark_lake.open("ordered")
    assert opened.cluster_by == (
        "day(at) desc",
        "truncate(4, s) nulls first",
        "id",
        "bucket(8, id) nulls first",
    )
    assert (opened.info().unknown_block_count, opened.info().inexact_block_count) == (0, 1), "any bucket"
    spark_lake.sql("ALTER TABLE db.ordered WRITE ORDERED BY at DESC NULLS FIRST, id")
    assert_true(spark_lake.load("ordered"))
    assert spark_lake.open("ordered").cluster_by == ("at desc nulls first", "id nulls first")
    assert opened.plan().groups == ()


def test_metrics_modes_of_spark(spark_lake: SparkLake) -> None:
    spark_lake.sql(
        """CREATE TABLE db.modes (n STRING, c STRING, t STRING, f STRING, b BINARY) USING iceberg TBLPROPERTIES (
           'write.metadata.metrics.column.n'='none', 'write.metadata.metrics.column.c'='counts',
           'write.metadata.metrics.column.t'='truncate(4)', 'write.metadata.metrics.column.f'='full',
           'write.metadata.metrics.column.b'='truncate(2)')""",
        """INSERT INTO db.modes SELECT repeat(char(97 + id), 8), repeat(char(97 + id), 8), repeat(char(97 + id), 8),
           repeat(char(97 + id), 40), unhex(repeat('ff', id)) FROM range(1, 3, 1, 1)""",
        "INSERT INTO db.modes SELECT NULL, NULL, NULL, NULL, NULL",
        "INSERT INTO db.modes SELECT 'a', 'a', 'abcd', 'a', X'6161' FROM range(0, 2, 1, 1)",
    )
    assert_true(spark_lake.load("modes"), "n", "c", "t", "f", "b")
    unknown = {name: info_of(spark_lake, "modes", name).unknown_block_count for name in "nctfb"}
    assert unknown == {"n": 3, "c": 2, "t": 0, "f": 0, "b": 0} | {"b": unknown["b"]}


def test_deletion_vectors_of_format_version_3_do_not_stop_info(spark_lake: SparkLake) -> None:
    spark_lake.sql(
        """CREATE TABLE db.v3 (id BIGINT, s STRING, at TIMESTAMP) USING iceberg TBLPROPERTIES ('format-version'='3',
           'write.delete.mode'='merge-on-read')""",
        "INSERT INTO db.v3 SELECT id, concat('a', id), timestamp '2024-01-01' FROM range(0, 10, 1, 1)",
        "INSERT INTO db.v3 SELECT id, concat('b', id), NULL FROM range(5, 15, 1, 1)",
        "DELETE FROM db.v3 WHERE id = 7",
    )
    table = spark_lake.load("v3")
    assert table.format_version == 3
    assert {row["file_format"] for row in spark_lake.sql("SELECT * FROM db.v3.delete_files")} == {"PUFFIN"}
    assert_true(table, "id", "s, id", "at")
    found = info_of(spark_lake, "v3", "id")
    assert (found.total_block_count, found.average_depth, found.rows) == (2, 2.0, 20)
    assert spark_lake.open("v3").check().ok
    assert spark_lake.open("v3").plan("full", cluster_by="id") is not None


def test_files_with_int96_have_no_bounds(spark_lake: SparkLake) -> None:
    folder = spark_lake.folder / "int96"
    folder.mkdir()
    for place in range(2):
        rows = pa.table(
            {
                "id": pa.array([place, place + 1], pa.int64()),
                "at": [datetime.datetime(2024, 1, 1 + place)] * 2,
            }
        )
        pq.write_table(rows, folder / f"{place}.parquet", use_deprecated_int96_timestamps=True)
    spark_lake.sql(
        "CREATE TABLE db.int96 (id BIGINT, at TIMESTAMP) USING iceberg",
        f"CALL lake.system.add_files(table => 'db.int96', source_table => '`parquet`.`{folder}`')",
    )
    table = spark_lake.load("int96")
    assert_true(table, "id", "at", "id, at", plans=True)
    assert info_of(spark_lake, "int96", "at").unknown_block_count == 2
    assert info_of(spark_lake, "int96", "id").average_depth == 2.0
    assert info_of(spark_lake, "int96", "id", where="at > '2030-01-01'").total_block_count == 2


def test_a_table_of_format_version_1_is_read_before_and_after_its_upgrade(spark_lake: SparkLake) -> None:
    spark_lake.sql(
        "CREATE TABLE db.v1 (id BIGINT, s STRING) USING iceberg PARTITIONED BY (s) "
        "TBLPROPERTIES ('format-version'='1')",
        "INSERT INTO db.v1 SELECT id, concat('p', id % 2) FROM range(0, 6, 1, 1)",
        "DELETE FROM db.v1 WHERE id = 3",
        "ALTER TABLE db.v1 DROP PARTITION FIELD s",
        "INSERT INTO db.v1 SELECT id, 'p0' FROM range(3, 9, 1, 1)",
    )
    table = spark_lake.load("v1")
    assert table.format_version == 1
    assert_true(table, "id", "s")
    spark_lake.sql(
        "ALTER TABLE db.v1 SET TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read')",
        "INSERT INTO db.v1 VALUES (100, 'p1')",
        "DELETE FROM db.v1 WHERE id = 4",
    )
    assert table.refresh().format_version == 2
    assert_true(table, "id", "s")


@pytest.mark.parametrize(("kind", "unknown"), [("orc", 0), ("avro", 2)])
def test_files_of_other_formats_are_measured_too(spark_lake: SparkLake, kind: str, unknown: int) -> None:
    spark_lake.sql(
        f"CREATE TABLE db.{kind} (id BIGINT, s STRING) USING iceberg TBLPROPERTIES ('write.format.default'='{kind}')",
        f"INSERT INTO db.{kind} SELECT id, concat('a', id) FROM range(0, 5, 1, 1)",
        f"INSERT INTO db.{kind} SELECT id, concat('a', id) FROM range(3, 9, 1, 1)",
    )
    found = info_of(spark_lake, kind, "id")
    assert (found.total_block_count, found.unknown_block_count, found.rows) == (2, unknown, 11)
    assert found.average_depth == (None if unknown else 2.0)
    assert info_of(spark_lake, kind, "id", where="id > 6").total_block_count == (2 if unknown else 1)


def test_both_writers_of_one_table_are_read(spark_lake: SparkLake) -> None:
    spark_lake.sql(
        "CREATE TABLE db.both (id BIGINT, s STRING) USING iceberg PARTITIONED BY (truncate(1, s))",
        "INSERT INTO db.both VALUES (1, 'a'), (2, 'b'), (3, NULL)",
    )
    table = spark_lake.load("both")
    append(table, id=[2, 3, None], s=["b" * 30, "c", None])
    spark_lake.sql("INSERT INTO db.both VALUES (4, 'a'), (9, 'c')")
    append(table.refresh(), id=[7], s=["a"])
    assert_true(table, "id", "s", "s desc nulls first, id")


def test_branches_tags_and_rollbacks_of_spark(spark_lake: SparkLake) -> None:
    spark_lake.sql(
        "CREATE TABLE db.refs (id BIGINT) USING iceberg",
        "INSERT INTO db.refs VALUES (1), (2)",
        "ALTER TABLE db.refs CREATE TAG first",
        "ALTER TABLE db.refs CREATE BRANCH side",
        "INSERT INTO db.refs.branch_side VALUES (3)",
        "INSERT INTO db.refs VALUES (9)",
        "INSERT INTO db.refs VALUES (10)",
    )
    table = spark_lake.load("refs")
    first = table.metadata.refs["first"].snapshot_id
    assert info_of(spark_lake, "refs", "id").rows == 4
    assert spark_lake.open("refs", branch="side").info(columns="id").rows == 3
    assert spark_lake.open("refs", as_of="first").info(columns="id").rows == 2
    assert_true(table, "id", version=version_of(table, branch="side"))
    before = table.history()[-1].timestamp_ms
    spark_lake.sql(f"CALL lake.system.rollback_to_snapshot('db.refs', {first})")
    assert info_of(spark_lake, "refs", "id").rows == 2
    at = datetime.datetime.fromtimestamp(before / 1000, datetime.UTC)
    assert tblctl.from_iceberg(table)._port.version_at(int(at.timestamp() * 1000)).id == str(
        table.history()[-1].snapshot_id
    )


def test_an_entry_of_equality_deletes_is_no_data(spark_lake: SparkLake) -> None:
    """No engine here writes equality deletes, so a manifest of position deletes is made one of them."""
    spark_lake.sql(
        """CREATE TABLE db.equality (id BIGINT) USING iceberg TBLPROPERTIES ('write.delete.mode'='merge-on-read',
           'write.metadata.delete-after-commit.enabled'='false')""",
        "INSERT INTO db.equality SELECT id FROM range(0, 10, 1, 1)",
        "DELETE FROM db.equality WHERE id = 7",
    )
    table = spark_lake.load("equality")
    assert spark_lake.open("equality").delete_files() == {"position": 1, "equality": 0}
    make_equality_deletes(table)
    with pytest.raises(ValueError, match="equality deletes"):
        table.scan().plan_files()
    assert_true(table, "id", plans=False)
    assert info_of(spark_lake, "equality", "id").total_block_count == 1


def make_equality_deletes(table: Any) -> None:
    """Write the manifest of position deletes again, its entries as equality deletes on column 1."""
    from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestWriterV2

    class DeleteWriter(ManifestWriterV2):
        def content(self) -> ManifestContent:
            return ManifestContent.DELETES

    (manifest,) = (
        found
        for found in table.current_snapshot().manifests(table.io)
        if found.content == ManifestContent.DELETES
    )
    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    path = Path(manifest.manifest_path.removeprefix("file:"))
    path.unlink()
    output = table.io.new_output(manifest.manifest_path)
    with DeleteWriter(table.spec(), table.schema(), output, entries[0].snapshot_id, "deflate") as writer:
        for entry in entries:
            entry.data_file[0] = DataFileContent.EQUALITY_DELETES
            writer.add_entry(entry)
