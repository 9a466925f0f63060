"""Writers of the Spark data source: tasks write sorted blocks, and the driver commits them once.

Only blocks of the task attempts that Spark accepted are committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tblctl.spark.types import cast_columns, returned_schema
from tblctl.tableformat.errors import InternalError
from tblctl.tableformat.model.options import ASYNC, OFF, SCHEDULE
from tblctl.tableformat.model.snapshot import Batch, Snapshot
from tblctl.tableformat.native.port import NativePort
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.native.write.staged_write import StagedWrite, StagedWriter, joined
from tblctl.tableformat.native.write.writer import discard

_ROWS_AT_ONCE = 65_536
_BYTES_AT_ONCE = 16 << 20
_QUERY = "sql.streaming.queryId"  # Spark's property of the tasks of a streaming query; lives as long as its checkpoint


@dataclass(frozen=True, kw_only=True)
class WriteMessage(WriterCommitMessage):
    """What a writing task returns to the driver: metadata of its blocks.

    `query` is the id of the streaming query; None for a batch write.
    """

    staged: StagedWrite
    query: str | None = None


class TableWriter(DataSourceArrowWriter):
    """Writes a frame. With `everything` the frame's rows replace all rows that the table has at the commit."""

    def __init__(self, writer: StagedWriter, *, everything: bool) -> None:
        self._writer = writer
        self._everything = everything

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMessage:
        return WriteMessage(staged=write_batches(self._writer, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = joined([self._writer.nothing(), *(message.staged for message in _of_tasks(messages))])
        publish(self._writer, staged, everything=self._everything)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        discard_staged(self._writer, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query. A batch is committed once, even if Spark replays it."""

    def __init__(self, writer: StagedWriter, *, everything: bool) -> None:
        self._writer = writer
        self._everything = everything

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context and context.getLocalProperty(_QUERY)
        if not query:
            raise InternalError(f"a task of a streaming query has no property {_QUERY}: is this Spark 4.1?")
        return WriteMessage(staged=write_batches(self._writer, iterator), query=query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        found = _of_tasks(messages)
        batch = Batch(stream=str(found[0].query), number=batchId)
        staged = joined([message.staged for message in found])
        publish(self._writer, staged, everything=self._everything, batch=batch)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        discard_staged(self._writer, messages)


def write_batches(writer: StagedWriter, batches: Iterator[pa.RecordBatch]) -> StagedWrite:
    """Write the rows of one task as a staged write."""
    first = next(batches, None)
    if first is None:
        return writer.nothing()
    target = returned_schema(writer.layout.schema.logical, first.schema)
    return writer.write(target, (cast_columns(table, target) for table in _gathered(first, batches)))


def _gathered(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in larger tables. Spark's batches have 10,000 rows, and each costs a fixed overhead."""
    waiting, rows, size = [first], first.num_rows, first.nbytes
    for batch in batches:
        if rows >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    yield pa.Table.from_batches(waiting)


def publish(
    writer: StagedWriter, staged: StagedWrite, *, everything: bool, batch: Batch | None = None
) -> None:
    """Commit a staged write, and do what the table's `recluster.mode` calls for, as far as that works.

    If the commit fails, blocks that are certainly not published are deleted.
    """
    native = NativeTable(writer.storage, writer.env)
    published = native.write(
        "overwrite" if everything else "append",
        staged=staged,
        everything=everything,
        batch=batch,
        detail={} if batch is None else {"stream": batch.stream, "batch": batch.number},
    )
    if published and published.snapshot.due_mode != OFF:
        _follow(native, published.snapshot)


def _follow(native: NativeTable, head: Snapshot) -> None:
    """Do what is to follow a commit. This process ends with it and has no background: async leaves a plan, too."""
    from tblctl.maintain.after_write import follow_up

    port = NativePort(native)
    follow_up(
        port,
        SCHEDULE if head.due_mode == ASYNC else head.due_mode,
        table_id=head.table_id,
        written=f"snapshot {head.sequence} of {port.location} is written",
    )


def discard_staged(writer: StagedWriter, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete what the tasks of a failed job wrote.

    If every task has sent a message, a commit may have been tried. Its outcome is unknown here, and it has deleted what
    it could, so nothing is deleted.
    """
    if None in messages:
        paths = [path for message in _of_tasks(messages) for path in message.staged.paths]
        discard(writer.storage, paths)


def _of_tasks(messages: Sequence[WriterCommitMessage | None]) -> list[WriteMessage]:
    return [message for message in messages if isinstance(message, WriteMessage)]
