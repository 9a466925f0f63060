"""Streams into tables: every batch is in the table once, also if Spark replays it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tables import native_of

import tblctl

PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    tblctl.spark.register(spark.session)
    partitions = spark.session.conf.get(PARTITIONS)
    spark.session.conf.set(PARTITIONS, "2")  # of aggregations; a task each
    yield spark.session
    spark.session.conf.set(PARTITIONS, partitions)


class Stream:
    """A streaming query from a folder of Parquet files into a table; each `run` takes what is new and ends."""

    def __init__(self, session: Any, folder: Path) -> None:
        self._session = session
        self._source = folder / "source"
        self.checkpoint = folder / "checkpoint"
        self.table = tblctl.create(str(folder / "table"), "id: int64", cluster_by=["id"])

    def feed(self, *ids: int) -> None:
        rows = self._session.createDataFrame([(item,) for item in ids], "id bigint")
        rows.write.mode("append").parquet(str(self._source))

    def run(self, mode: str = "append", *, fails: str | None = None) -> None:
        rows = self._session.readStream.schema("id bigint").parquet(str(self._source))
        if mode == "complete":
            rows = rows.groupBy("id").count().select("id")
        writer = rows.writeStream.format("tblctl").outputMode(mode).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start(self.table.location)
        if fails is None:
            query.awaitTermination()
        else:
            with pytest.raises(Exception, match=fails):
                query.awaitTermination()

    @property
    def ids(self) -> list[int]:
        return sorted(self.table.scan().to_arrow()["id"].to_pylist())

    def forget_batch(self, number: int) -> None:
        """Undo what Spark noted last of a batch: that its commit is done."""
        for path in (self.checkpoint / "commits").glob(f"*{number}*"):
            path.unlink()


@pytest.fixture
def stream(session: Any, tmp_path: Path) -> Stream:
    return Stream(session, tmp_path)


def test_batches_of_a_query_are_committed_once_each_through_restarts_and_replays(stream: Stream) -> None:
    stream.feed(1, 2)
    stream.run()
    stream.run()  # restarted without news
    stream.feed(3)
    stream.run()
    assert stream.ids == [1, 2, 3]
    first, second = stream.table.history(2)[::-1]
    assert first.detail["stream"] == second.detail["stream"]
    assert (first.detail["batch"], second.detail["batch"]) == (0, 1)
    stream.forget_batch(1)
    stream.run()  # replays batch 1
    assert stream.ids == [1, 2, 3]
    assert stream.table.snapshot.sequence == 3
    assert (stream.checkpoint / "commits" / "1").exists()
    stream.feed(4)
    stream.run()
    assert stream.ids == [1, 2, 3, 4]
    assert stream.table.check(deep=True).ok


def test_a_query_that_dies_between_commit_and_checkpoint_goes_on_where_it_was(stream: Stream) -> None:
    stream.feed(1)
    stream.run()
    obstacle = stream.checkpoint / "commits" / "1"
    obstacle.mkdir()  # Spark cannot note that batch 1 is done
    stream.feed(2)
    stream.run(fails="terminated with exception")
    assert stream.ids == [1, 2]
    for path in sorted((stream.checkpoint / "commits").glob("*1*")):
        path.rmdir() if path.is_dir() else path.unlink()
    stream.feed(3)
    stream.run()
    assert stream.ids == [1, 2, 3]
    assert native_of(stream.table).head().streams.popitem()[1] == 2


def test_a_complete_answer_replaces_the_last_one(stream: Stream) -> None:
    stream.feed(1, 1, 2)
    stream.run("complete")
    stream.feed(2, 3)
    stream.run("complete")
    assert stream.ids == [1, 2, 3]
    assert [item.operation for item in stream.table.history(2)] == ["overwrite", "overwrite"]


def test_two_queries_do_not_take_each_others_batches(stream: Stream, tmp_path: Path) -> None:
    stream.feed(1)
    stream.run()
    stream.checkpoint = tmp_path / "other"
    stream.run()
    assert stream.ids == [1, 1]
    assert sorted(native_of(stream.table).head().streams.values()) == [0, 0]


def test_every_nth_batch_is_followed_by_the_recluster_that_the_table_asks_for(stream: Stream) -> None:
    stream.table.set_options({"recluster.mode": "inline", "recluster.every": 2})
    for _ in range(2):
        stream.feed(1, 2)
        stream.run()
    operations = [item.operation for item in reversed(stream.table.history())]
    assert operations == ["create", "alter", "append", "append", "recluster"]
    assert stream.ids == [1, 1, 2, 2]
