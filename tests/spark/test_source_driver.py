"""The functions that Spark calls beside its driver and in tasks, called directly: no session, no Java."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import from_arrow_schema
from tables import SCHEMA, ids_of, native_of, objects_of, rows

import tblctl
from tblctl.errors import EngineError, InvalidOptionError, InvalidPredicateError, SchemaMismatchError
from tblctl.spark import reading
from tblctl.spark.options import SourceOptions
from tblctl.spark.probe import Probe
from tblctl.spark.source import TableSource, source_class
from tblctl.spark.writing import StreamWriter, WriteMessage
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.workload.reader import read_log

FRAME = from_arrow_schema(SCHEMA, prefer_timestamp_ntz=True)


def source(table: tblctl.Table, *, pushdown: bool = False, **options: str) -> TableSource:
    made = source_class("tblctl", Storage("/"), parallelism=2, pushdown=pushdown)
    return made(spark.CaseInsensitiveDict({"path": table.location, **options}))


def make(folder: Path) -> tblctl.Table:
    table = tblctl.create(str(folder), SCHEMA, cluster_by="id", options={"block_rows": 4})
    for first in (1, 10, 20):
        table.append(rows(*range(first, first + 4)))
    return table


def batches(*ids: int) -> Any:
    return iter(rows(*ids).to_batches(max_chunksize=2))


def task(writer: Any, *ids: int) -> WriteMessage:
    """Return the message of a task, which gets the writer pickled, and whose message is pickled."""
    return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(batches(*ids))))


def blocks(table: tblctl.Table) -> set[str]:
    return {name for name in objects_of(table.location) if name.startswith("data/")}


def test_tasks_are_sent_what_they_read_and_not_the_snapshot(tmp_path: Path) -> None:
    table = make(tmp_path)
    narrow = from_arrow_schema(pa.schema([SCHEMA.field("id")]))
    reader = source(table, pushdown=True, columns="id", where="id <> 22").reader(narrow)
    given: list[spark.Filter] = [spark.GreaterThan(("id",), 11), spark.StringContains(("v",), "x")]
    assert reader.pushFilters(given) == given[1:]
    partitions = pickle.loads(pickle.dumps(list(reader.partitions())))
    sent = pickle.loads(pickle.dumps(reader))
    assert vars(sent).keys() == {"_reader"}
    assert len(partitions) == 2
    found = [row["id"] for part in partitions for batch in sent.read(part) for row in batch.to_pylist()]
    assert sorted(found) == [12, 13, 20, 21, 23]
    assert list(sent.read(None)) == []


def test_a_query_is_recorded_once_as_it_is_planned(tmp_path: Path) -> None:
    table = make(tmp_path)
    narrow = from_arrow_schema(pa.schema([SCHEMA.field("v")]))
    reader = source(table, pushdown=True, columns="v", where="id <> 22", record="on").reader(narrow)
    reader.pushFilters([spark.GreaterThan(("id",), 11), spark.StringContains(("v",), "x")])
    partitions = list(reader.partitions())
    sent = pickle.loads(pickle.dumps(reader))
    assert sum(batch.num_rows for part in partitions for batch in sent.read(part)) == 5
    (query,) = read_log(native_of(table).log_place(), native_of(table).head().table_id).queries
    assert query.where == '(NOT ("id" = 22) AND "id" > 11)'
    assert (query.columns, query.source, query.snapshot) == (("v", "id"), "spark", "4")
    assert (query.blocks_read, query.blocks_total, query.rows_read, query.rows_matched) == (2, 3, 8, None)


def test_nothing_is_recorded_unless_the_table_or_the_reader_says_so(tmp_path: Path) -> None:
    table = make(tmp_path)
    list(source(table).reader(FRAME).partitions())
    table.set_options({"recluster.record": "on"})
    list(source(table, record="off").reader(FRAME).partitions())
    assert not any(name.startswith("workload/") for name in objects_of(table.location))
    list(source(table).reader(FRAME).partitions())
    assert any(name.startswith("workload/") for name in objects_of(table.location))
    with pytest.raises(InvalidOptionError, match="record: expected off, on or sample:"):
        source(table, record="never").reader(FRAME)


def test_a_reader_of_an_old_version_records_as_the_newest_one_says(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.set_options({"recluster.record": "on"})
    old = {"as_of": str(table.snapshot.sequence), "where": "id = 1234"}
    table.set_options({"recluster.record_literals": "rounded"})
    list(source(table, **old).reader(FRAME).partitions())
    table.set_options({"recluster.record": "off"})
    list(source(table, **old).reader(FRAME).partitions())
    (query,) = read_log(native_of(table).log_place(), native_of(table).head().table_id).queries
    assert query.where == '"id" = 1200'


def test_a_reader_that_spark_would_mix_up_with_others_takes_no_filters(tmp_path: Path) -> None:
    reader = source(make(tmp_path)).reader(FRAME)
    assert type(reader).pushFilters is spark.DataSourceReader.pushFilters


def test_a_probe_takes_filters_as_a_reader_does() -> None:
    reader = Probe({}).reader(None)
    given: list[spark.Filter] = [spark.IsNotNull(("number",)), spark.GreaterThanOrEqual(("number",), 1)]
    assert reader.pushFilters(given) == given[:1]
    (partition,) = reader.partitions()
    assert [batch.to_pydict() for batch in reader.read(partition)] == [{"number": [1, 2]}]
    assert [batch.num_rows for batch in Probe({}).reader(None).read(partition)] == [3]


def test_all_that_is_asked_of_one_load_is_asked_of_one_version(tmp_path: Path) -> None:
    table = make(tmp_path)
    loaded = source(table)
    promised = loaded.schema()
    table.append(rows(99))
    table.add_column("w", "int64")
    reader = pickle.loads(cloudpickle.dumps(loaded)).reader(promised)  # as Spark does
    assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 12


def test_a_condition_that_is_none_is_told_when_the_table_is_loaded(tmp_path: Path, monkeypatch: Any) -> None:
    table = make(tmp_path)
    with pytest.raises(InvalidPredicateError, match="nope"):
        source(table, where="nope > 1").schema()
    monkeypatch.setitem(sys.modules, "tblctl.tableformat.predicate.sql.conditions", None)
    with pytest.raises(EngineError, match="sqlglot and pyiceberg"):
        source(table, where="id > 1").schema()


def test_a_stream_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    reader = source(make(tmp_path)).streamReader(FRAME)
    for ask in (reader.initialOffset, reader.latestOffset, lambda: reader.read(spark.InputPartition(0))):
        with pytest.raises(InvalidOptionError, match=r"cannot be read as a stream .* spark\.read"):
            ask()
    reader.stop()


def test_batches_are_small_enough_for_the_jvm(tmp_path: Path) -> None:
    table = make(tmp_path).scan().to_arrow()
    assert [batch.num_rows for batch in reading.batches(table, most_rows=5)] == [5, 5, 2]
    assert [batch.num_rows for batch in reading.batches(table, most_bytes=table.nbytes // 4)] == [3] * 4
    assert [batch.num_rows for batch in reading.batches(table, most_bytes=1)] == [1] * 12
    assert list(reading.batches(table.slice(0, 0))) == []


def test_readers_give_batches_of_at_most_65_536_rows(tmp_path: Path) -> None:
    table = tblctl.create(str(tmp_path), "id: int64")
    table.append(pa.table({"id": range(70_000)}))
    reader = source(table).reader(from_arrow_schema(pa.schema([("id", pa.int64())])))
    found = [batch.num_rows for part in reader.partitions() for batch in reader.read(part)]
    assert (sum(found), max(found)) == (70_000, 65_536)


def test_a_reader_that_was_promised_other_types_says_so(tmp_path: Path) -> None:
    table = tblctl.create(str(tmp_path), "a: int32, b: string")
    promised = source(table).schema()
    table.widen_column("a", "int64")
    with pytest.raises(SchemaMismatchError, match="a: int, the table has bigint"):
        source(table).reader(promised)


def test_parts_of_all_tasks_are_committed_once_beside_a_recluster(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.append(rows(1, 2, 3, 4))
    writer = source(table).writer(FRAME, overwrite=False)
    messages = [task(writer, 31, 30), task(writer), task(writer, 5)]
    assert table.recluster().committed_groups == 1
    pickle.loads(pickle.dumps(writer)).commit(messages)
    assert ids_of(table)[-3:] == [23, 30, 31]
    assert table.snapshot.rows_added == 3
    assert table.check(deep=True).ok


def test_an_overwrite_without_rows_empties_the_table(tmp_path: Path) -> None:
    table = make(tmp_path)
    writer = source(table).writer(FRAME, overwrite=True)
    writer.commit([task(writer)])
    assert ids_of(table) == []


def test_an_abort_deletes_what_tasks_wrote_unless_there_may_have_been_a_commit(tmp_path: Path) -> None:
    table = make(tmp_path)
    before = blocks(table)
    writer = source(table).writer(FRAME, overwrite=False)
    writer.abort([task(writer, 7), None])
    assert blocks(table) == before
    messages: list[Any] = [task(writer, 8), task(writer, 9)]
    writer.commit(messages)
    writer.abort(messages)  # Spark calls it after commit raised, committed or not
    assert ids_of(table)[4:6] == [8, 9]
    assert table.check(deep=True).ok


def test_batches_of_a_stream_go_by_the_query_that_its_tasks_tell(tmp_path: Path) -> None:
    table = make(tmp_path)
    writer = source(table, checkpointLocation="x").streamWriter(FRAME, overwrite=False)
    assert isinstance(writer, StreamWriter)
    batch = source(table).writer(FRAME, overwrite=False)

    def messages(*ids: int) -> list[Any]:
        return [WriteMessage(staged=task(batch, *ids).staged, query="q")]

    writer.commit(messages(30), 0)
    before = blocks(table)
    writer.abort([*messages(31), None], 1)
    assert blocks(table) == before
    writer.commit(messages(30), 0)
    writer.commit(messages(31), 1)
    assert ids_of(table)[-2:] == [30, 31]
    assert native_of(table).head().streams == {"q": 1}
    assert table.snapshot.detail == {"stream": "q", "batch": 1}


def written(table: tblctl.Table, *, stream: bool, count: int) -> None:
    """Commit some writes as Spark's driver does: each in a process of its own, with the writer pickled."""
    batch = source(table).writer(FRAME, overwrite=False)
    for number in range(count):
        staged = task(batch, *range(4)).staged
        if stream:
            writer: Any = source(table).streamWriter(FRAME, overwrite=False)
            writer.commit([WriteMessage(staged=staged, query="q")], number)
        else:
            batch.commit([WriteMessage(staged=staged)])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("mode", "merged", "plans"), [("off", 0, 0), ("inline", 2, 0), ("schedule", 0, 2), ("async", 0, 2)]
)
def test_a_recluster_or_a_plan_follows_every_nth_commit_of_a_writer(
    tmp_path: Path, mode: str, merged: int, plans: int, stream: bool
) -> None:
    options = {"block_rows": 4, "recluster.mode": mode, "recluster.every": 2}
    table = tblctl.create(str(tmp_path / "t"), SCHEMA, cluster_by="id", options=options)
    written(table, stream=stream, count=4)
    operations = [item.operation for item in table.history()]
    assert (operations.count("append"), operations.count("recluster")) == (4, merged)
    assert len(table.pending_plans()) == plans
    assert ids_of(table) == sorted([*range(4)] * 4)


def test_a_batch_that_spark_replays_counts_once(tmp_path: Path) -> None:
    options = {"block_rows": 4, "recluster.mode": "inline", "recluster.every": 2}
    table = tblctl.create(str(tmp_path / "t"), SCHEMA, cluster_by="id", options=options)
    written(table, stream=True, count=1)
    written(table, stream=True, count=1)
    assert [item.operation for item in table.history()] == ["append", "create"]
    written(table, stream=True, count=2)
    assert [item.operation for item in table.history()] == ["recluster", "append", "append", "create"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_recluster_that_fails_beside_the_driver_is_a_warning(
    tmp_path: Path, stream: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = tblctl.create(str(tmp_path / "t"), SCHEMA, cluster_by="id", options={"recluster.mode": "inline"})
    monkeypatch.setitem(sys.modules, "sortedcontainers", None)
    for name in ("metrics.index", "maintain.averages", "maintain.loop", "maintain.recluster"):
        monkeypatch.delitem(sys.modules, f"tblctl.{name}", raising=False)
    written(table, stream=stream, count=1)
    assert ids_of(table) == [0, 1, 2, 3]
    assert f"snapshot 2 of {table.location} is written, but not reclustered: " in caplog.text
    assert "sortedcontainers" in caplog.text


def test_writing_refuses_options_of_reading_and_rows_that_do_not_fit(tmp_path: Path) -> None:
    table = make(tmp_path)
    with pytest.raises(InvalidOptionError, match="as_of, columns, where and record are about what is read"):
        source(table, as_of="2").writer(FRAME, overwrite=False)
    with pytest.raises(SchemaMismatchError, match="id: missing"):
        source(table).streamWriter(from_arrow_schema(pa.schema([SCHEMA.field("v")])), overwrite=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "there is no path"),
        ({"path": "memory://a/b"}, "put the table on a disk"),
        ({"path": "/t", "Columns": " , "}, "columns names none"),
        ({"path": "/t", "storage.client_kwargs.aws_secret_access_key": "hidden!"}, "may hold a secret"),
        (
            {"path": "/t", "storage.client_kwargs": '{"aws_secret_access_key": "hidden!"}'},
            "'storage.client_kwargs.aws_secret_access_key' may hold a secret",
        ),
        (
            {"path": "/t", "storage.a": '[[{"b": {"token": "hidden!"}}]]'},
            "'storage.a.b.token' may hold a secret",
        ),
        ({"path": "/t", "storage.s3_additional_kwargs.ServerSideEncryption": "AES256"}, "in lower case"),
        ({"path": "/t", "storage.a": "{hidden!", "storage.token": "hidden!"}, "'storage.token' may hold"),
        ({"path": "/t", "storage.a": "{hidden!"}, "the value of 'a' is not JSON"),
        ({"path": "/t", "memory_bytes": "much"}, "much"),
        ({"path": "/t", "colums": "a"}, "there is no option 'colums'"),
    ],
)
def test_wrong_options_are_told_without_their_secrets(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message) as caught:
        SourceOptions.of(spark.CaseInsensitiveDict(options))
    assert "hidden!" not in str(caught.value)


def test_options_are_read_as_they_are_meant() -> None:
    options = {
        "path": "file:/data/t",
        "columns": "a, b",
        "AS_OF": "v1",
        "where": "a > 0",
        "memory_bytes": "1MiB",
        "storage.anon": "true",
        "storage.client_kwargs.region_name": "x",
    }
    found = SourceOptions.of(spark.CaseInsensitiveDict(options))
    assert found == SourceOptions(
        location="/data/t",
        as_of="v1",
        columns=("a", "b"),
        where="a > 0",
        memory_bytes=1 << 20,
        storage={"anon": True, "client_kwargs": {"region_name": "x"}},
    )
    more = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "arn:aws:kms:x", "BucketKeyEnabled": True}
    cased = {"path": "s3://b/profile:/t", "storage.s3_additional_kwargs": json.dumps(more)}
    found = SourceOptions.of(spark.CaseInsensitiveDict(cased))
    assert found.location == "s3://b/profile:/t"
    assert found.storage == {"s3_additional_kwargs": more}
