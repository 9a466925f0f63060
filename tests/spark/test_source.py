"""Tables read and written by Spark, on every kind of session."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from servers import S3Server
from tables import named_objects, objects_of

import tblctl
from tblctl.errors import InvalidOptionError, SchemaMismatchError
from tblctl.spark.sessions import PUSHDOWN, can_push_filters

from .conftest import python

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("x", pa.list_(pa.float64()))])
OPTIONS = {"block_rows": 500, "row_group_rows": 100}
FRAME = ("id * 7919 % 1000 as k", "cast(id as string) as s", "array(cast(id as double), null) as x")


@pytest.fixture
def session(spark: Any) -> Any:
    tblctl.spark.register(spark.session)
    return spark.session


def create(url: str, **more: Any) -> tblctl.Table:
    return tblctl.create(url, SCHEMA, cluster_by=["k"], options=OPTIONS, **more)


def frame(session: Any, rows: int, start: int = 0) -> Any:
    return session.range(start, start + rows, 1, 3).selectExpr(*FRAME)


def ids(table: tblctl.Table) -> list[int]:
    return sorted(int(text) for text in table.scan(columns=["s"]).to_arrow()["s"].to_pylist())


def seen(read: Any) -> list[int]:
    return sorted(int(row.s) for row in read.select("s").collect())


def no_orphans(table: tblctl.Table) -> bool:
    return set(objects_of(table.location)) - {"metadata/latest"} == named_objects(table)


def test_rows_go_out_as_sorted_blocks_and_come_back(session: Any, tmp_path: Path) -> None:
    table = create(str(tmp_path))
    frame(session, 4000).write.format("tblctl").mode("append").save(str(tmp_path))
    assert table.snapshot.operation == "append"
    assert table.snapshot.rows_added == 4000
    assert table.check(deep=True).ok
    blocks = table.files()
    assert len({block.run for block in blocks}) == 3  # one a task
    assert all(block.level == 0 and block.min is not None for block in blocks)
    read = session.read.format("tblctl").load(str(tmp_path))
    assert read.schema.simpleString() == "struct<k:bigint,s:string,x:array<double>>"
    assert sorted(read.collect()) == sorted(frame(session, 4000).collect())
    assert seen(read.where("k < 100 and s like '1%'")) == seen(
        frame(session, 4000).where("k < 100 and s like '1%'")
    )
    assert read.where("k < 0").collect() == []
    assert no_orphans(table)


def test_rows_of_a_frame_go_out_along_the_curve(session: Any, tmp_path: Path) -> None:
    sample = pa.table({"k": range(4000), "s": [str(number) for number in range(4000)]})
    table = tblctl.create(str(tmp_path), SCHEMA, cluster_by="hilbert(k, s)", options=OPTIONS, sample=sample)
    frame(session, 4000).write.format("tblctl").mode("append").save(str(tmp_path))
    assert table.info().unclustered_block_count == 0
    assert len(table.files()) > 3
    assert table.check(deep=True).ok
    assert sorted(session.read.format("tblctl").load(str(tmp_path)).collect()) == sorted(
        frame(session, 4000).collect()
    )


def test_conditions_skip_blocks_and_queries_of_one_frame_do_not_disturb_each_other(
    session: Any, tmp_path: Path
) -> None:
    table = create(str(tmp_path))
    frame(session, 2000).write.format("tblctl").mode("append").save(str(tmp_path))
    read = session.read.format("tblctl").load(str(tmp_path))
    assert read.where("k < 100").count() == 200
    assert read.count() == 2000
    assert read.where("k < 100").union(read.where("k >= 800")).count() == 600
    for block in table.files():
        if block.min and block.min[0] >= 500:
            (tmp_path / block.path).unlink()  # who skips it does not miss it
    told = session.read.format("tblctl").option("where", "k < 100 and s is not null").load(str(tmp_path))
    assert told.count() == 200
    assert told.where("k < 50").count() == 100
    with pytest.raises(Exception, match=r"is missing"):
        read.where("k % 1000 < 100").count()


def test_spark_that_mixes_up_filters_is_recognised_and_its_setting_left_alone(session: Any) -> None:
    assert can_push_filters(session) is not session.version.startswith("4.1.")
    assert session.conf.get(PUSHDOWN) == str(can_push_filters(session)).lower()


def test_overwrite_replaces_all_rows_in_one_commit(session: Any, tmp_path: Path) -> None:
    table = create(str(tmp_path))
    for start in (0, 100):
        frame(session, 100, start).write.format("tblctl").mode("overwrite").save(str(tmp_path))
    assert ids(table) == list(range(100, 200))
    assert [item.operation for item in table.history()] == ["overwrite", "overwrite", "create"]


def test_a_written_or_appended_frame_is_followed_by_what_the_table_asks_for(
    session: Any, tmp_path: Path
) -> None:
    table = create(str(tmp_path))
    table.set_options({"recluster.mode": "inline", "recluster.every": 2})
    for start in (0, 100):
        frame(session, 100, start).write.format("tblctl").mode("append").save(str(tmp_path))
    table.set_options({"recluster.mode": "async", "recluster.every": 1})
    with table:
        assert table.append(frame(session, 100, 200)).note == "a recluster goes on in the background"
    operations = [item.operation for item in reversed(table.history())]
    assert operations == ["create", "alter", "append", "append", "recluster", "alter", "append", "recluster"]
    assert ids(table) == list(range(300))


def test_modes_that_spark_does_not_pass_on_change_nothing(session: Any, tmp_path: Path) -> None:
    table = create(str(tmp_path))
    for mode in ("error", "ignore"):
        with pytest.raises(Exception, match=r'"?Append"? or "?Overwrite"?'):
            frame(session, 5).write.format("tblctl").mode(mode).save(str(tmp_path))
    assert table.snapshot.sequence == 1


def test_a_version_and_columns_are_chosen_by_options(session: Any, tmp_path: Path) -> None:
    table = create(str(tmp_path))
    for start in (0, 10):
        frame(session, 10, start).write.format("tblctl").mode("append").save(str(tmp_path))
    table.tag("first", at=2)
    read = session.read.format("tblctl")
    for as_of in ("2", "first", table.history()[2].timestamp):
        assert seen(read.option("as_of", as_of).load(str(tmp_path))) == list(range(10))
    narrow = session.read.format("tblctl").option("columns", "s, k").load(str(tmp_path))
    assert narrow.columns == ["s", "k"]
    assert seen(narrow.where("k >= 0")) == list(range(20))
    said = session.read.format("tblctl").schema("s string").load(str(tmp_path))
    assert seen(said) == list(range(20))


def test_an_empty_table_and_an_empty_frame(session: Any, tmp_path: Path) -> None:
    table = create(str(tmp_path))
    assert session.read.format("tblctl").load(str(tmp_path)).collect() == []
    frame(session, 5).where("k < 0").write.format("tblctl").mode("append").save(str(tmp_path))
    assert table.snapshot.sequence == 1


def test_sql_reads_and_inserts_through_a_view(session: Any, tmp_path: Path) -> None:
    table = create(str(tmp_path))
    frame(session, 100).write.format("tblctl").mode("append").save(str(tmp_path))
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING tblctl OPTIONS (path '{tmp_path}')")
    session.sql("INSERT INTO v SELECT k, cast(cast(s AS int) + 100 AS string), x FROM v").collect()
    assert ids(table) == list(range(200))
    assert session.sql("SELECT count(*) AS n FROM v").collect()[0].n == 100  # the version that was loaded
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING tblctl OPTIONS (path '{tmp_path}')")
    (row,) = session.sql("SELECT count(*) AS n, min(k) AS k FROM v WHERE s IN ('3', '103')").collect()
    assert (row.n, row.k) == (2, 3 * 7919 % 1000)
    session.sql("INSERT OVERWRITE v SELECT * FROM v WHERE s < '102' AND length(s) = 3").collect()
    assert ids(table) == [100, 101]


def test_a_handle_appends_overwrites_and_reads_frames(session: Any, tmp_path: Path) -> None:
    table = create(str(tmp_path))
    outcome = table.append(frame(session, 100))
    assert (outcome.operation, outcome.snapshot, outcome.rows_added) == ("append", 2, 100)
    assert table.overwrite(frame(session, 10, 500), where="s >= '5'").rows_added == 10
    assert ids(table) == [item for item in range(100) if str(item) < "5"] + list(range(500, 510))
    assert seen(table.to_spark(session)) == ids(table)
    assert seen(tblctl.open(str(tmp_path), as_of=2).to_spark(session)) == list(range(100))
    assert table.append(frame(session, 5).where("k < 0")).snapshot is None
    assert no_orphans(table)


def test_rows_that_do_not_fit_are_refused_before_and_after_they_are_seen(
    session: Any, tmp_path: Path
) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    table = tblctl.create(str(tmp_path), schema, cluster_by=["k"])
    wrong = session.range(3).selectExpr("cast(id as string) as k", "id as other")
    with pytest.raises(SchemaMismatchError, match=r"k: expected int64.*other: not a column"):
        table.append(wrong)
    with pytest.raises(Exception, match=r"k: expected int64.*other: not a column"):
        wrong.write.format("tblctl").mode("append").save(str(tmp_path))
    # One task: what another still writes while the job is given up stays for gc.
    nulls = session.range(0, 30, 1, 1).selectExpr("if(id = 25, null, id) as k")
    with pytest.raises(tblctl.errors.InvalidDataError, match="k"):
        table.append(nulls)
    with pytest.raises(Exception, match="InvalidDataError"):
        nulls.write.format("tblctl").mode("append").save(str(tmp_path))
    assert table.snapshot.sequence == 1
    assert no_orphans(table)


def test_a_job_that_fails_midway_commits_nothing(session: Any, tmp_path: Path) -> None:
    table = create(str(tmp_path))
    bad = session.range(0, 3000, 1, 3).selectExpr(
        *FRAME[:2], "if(id = 2500, cast(raise_error('broken row') as array<double>), array(1.0D)) as x"
    )
    with pytest.raises(Exception, match="broken row"):
        bad.write.format("tblctl").mode("append").save(str(tmp_path))
    with pytest.raises(tblctl.errors.EngineError, match="nothing was committed"):
        table.append(bad)
    assert table.snapshot.sequence == 1
    # Spark fails the job at once, while tasks that it cancels may still write: gc finds theirs when they have ended.
    deadline = time.monotonic() + 60
    while not no_orphans(table) and time.monotonic() < deadline:
        table.gc(keep=1, older_than=0)
    assert no_orphans(table)


@pytest.mark.parametrize("spark", ["local-cluster[2,1,1024]"], indirect=True)
def test_of_a_task_that_is_tried_again_only_the_attempt_that_spark_took_counts(
    spark: Any, tmp_path: Path
) -> None:
    tblctl.spark.register(spark.session)
    table = create(str(tmp_path))

    def flaky(batches: Any) -> Any:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        if context.attemptNumber() == 0 and context.partitionId() == 1:
            msg = "the first attempt fails when all its rows are written"
            raise RuntimeError(msg)

    rows = frame(spark.session, 3000)
    rows.mapInArrow(flaky, rows.schema).write.format("tblctl").mode("append").save(str(tmp_path))
    assert ids(table) == list(range(3000))
    assert table.check(deep=True).ok


def test_memory_and_unknown_options_are_refused(session: Any, tmp_path: Path) -> None:
    table = create("memory://spark-source/t")
    for refused in (lambda: table.to_spark(session), lambda: table.append(frame(session, 1))):
        with pytest.raises(InvalidOptionError, match="put the table on a disk"):
            refused()
    tblctl.drop("memory://spark-source/t")
    cases = [
        ({}, "memory://x/t", "put the table on a disk"),
        ({"asof": "1"}, str(tmp_path), "there is no option 'asof'"),
        ({"storage.secret": "x"}, str(tmp_path), "may hold a secret"),
        ({}, str(tmp_path / "none"), "TableNotFoundError"),
        ({"as_of": "x"}, str(tmp_path), "there is no tag 'x'"),
        ({"columns": "s,t"}, str(tmp_path), "there is no column 't'"),
    ]
    create(str(tmp_path))
    for options, location, message in cases:
        with pytest.raises(Exception, match=message):
            session.read.format("tblctl").options(**options).load(location).collect()
    with pytest.raises(Exception, match="there is no path"):
        frame(session, 1).write.format("tblctl").mode("append").save()


def test_a_table_of_sparks_catalog_says_that_its_path_is_not_passed_on(session: Any, tmp_path: Path) -> None:
    create(str(tmp_path / "t"))
    session.sql(f"CREATE TABLE passed_on (k bigint) USING tblctl OPTIONS (path '{tmp_path / 't'}')")
    try:
        with pytest.raises(Exception, match="Spark passes none on from CREATE TABLE"):
            session.sql("SELECT count(*) FROM passed_on").collect()
    finally:
        session.sql("DROP TABLE passed_on")


def test_tables_on_s3_and_their_secrets(spark: Any, minio: S3Server) -> None:
    where = minio.location()
    session = spark.session
    tblctl.spark.register(session, storage_options=where.storage_options)
    table = create(where.url, storage_options=where.storage_options)
    frame(session, 2000).write.format("tblctl").mode("append").save(where.url)
    read = session.read.format("tblctl").load(where.url)
    assert read.where("k < 100").count() == 200
    read.where("k > 3").explain()
    tblctl.spark.register(session)
    assert table.append(frame(session, 10, 2000)).rows_added == 10
    assert seen(table.to_spark(session)) == list(range(2010))
    assert table.check(deep=True).ok
    assert minio.secret.encode() not in spark.traces()


def test_an_older_spark_is_refused() -> None:
    from types import SimpleNamespace

    with pytest.raises(tblctl.errors.EngineError, match=r"this is Spark 4\.0\.1; .* needs 4\.1"):
        tblctl.spark.register(SimpleNamespace(version="4.0.1"))


def test_a_driver_that_dies_before_the_commit_leaves_the_table_as_it_was(java: None, tmp_path: Path) -> None:
    table = create(str(tmp_path))
    program = (
        "import os, signal, sys, tblctl\n"
        "from tblctl.merger.engines.spark.session import open_session\n"
        "def last_words(batches):\n"
        "    import glob, time\n"
        "    from pyspark import TaskContext\n"
        "    if TaskContext.get().partitionId() == 1:\n"
        "        while not glob.glob(sys_argv + '/data/*.parquet'):\n"
        "            time.sleep(0.05)\n"
        "        os.kill(driver, signal.SIGKILL)\n"
        "    yield from batches\n"
        "sys_argv = sys.argv[1]\n"
        "with open_session(master='local[2]') as session:\n"
        "    tblctl.spark.register(session)\n"
        "    driver = int(session._jvm.java.lang.ProcessHandle.current().pid())\n"
        "    rows = session.range(0, 2000, 1, 2).selectExpr(*eval(sys.argv[2]))\n"
        "    rows.mapInArrow(last_words, rows.schema).write.format('tblctl').mode('append').save(sys.argv[1])\n"
    )
    done = python(program, words=(str(tmp_path), repr(FRAME)))
    assert done.returncode != 0
    assert list((tmp_path / "data").iterdir())
    assert table.snapshot.sequence == 1
    # Spark fails the job at once, while tasks that it cancels may still write: gc finds theirs when they have ended.
    deadline = time.monotonic() + 60
    while not no_orphans(table) and time.monotonic() < deadline:
        table.gc(keep=1, older_than=0)
    assert no_orphans(table)
