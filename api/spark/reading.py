"""Readers of the Spark data source: a partition is an input split of blocks, rows are Arrow record batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tblctl.spark.filters import condition_of
from tblctl.spark.types import cast_columns, spark_schema
from tblctl.tableformat.errors import InvalidOptionError, SchemaMismatchError, UnknownColumnError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.read.input_splits import SplitReader, cut_into_splits
from tblctl.tableformat.native.read.scan import Selection, condition_columns, select_blocks, sql_of
from tblctl.tableformat.predicate.nodes import AllOf, Node
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.location import shown_url
from tblctl.tableformat.workload.queries import Query
from tblctl.tableformat.workload.recorder import Recorder

_SPLIT_BYTES = 512 << 20
"""Limit of a partition's decoded bytes; one block may exceed it. About as much as 128 MiB of a Parquet file hold."""

_MOST_WAIT_SECONDS = 2.0
"""So long a plan waits for the record of its query to be written, if the storage is slow."""

_BATCH_ROWS = 65_536
_BATCH_BYTES = 16 << 20


class TableReader(DataSourceReader):
    """Reads one snapshot.

    Args:
        storage: storage of the table.
        snapshot: the snapshot to read.
        names: names of the columns to read.
        condition: rows for which it does not hold may be left out; None for all rows.
        parallelism: how many tasks run at once.
        recorder: records each query, as it is planned; None if nothing does.
    """

    def __init__(
        self,
        storage: Storage,
        snapshot: Snapshot,
        names: Sequence[str],
        condition: Node | None = None,
        *,
        parallelism: int,
        recorder: Recorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._snapshot = snapshot
        self._parallelism = parallelism
        self._reader = SplitReader(
            storage=storage,
            sequence=snapshot.sequence,
            schema=snapshot.schema,
            columns=tuple(names),
            condition=condition,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"_reader": self._reader}  # tasks need nothing else

    def partitions(self) -> Sequence[InputPartition]:
        selection = select_blocks(self._reader.storage, self._snapshot, self._reader.condition)
        if self._recorder is not None:
            self._record(self._recorder, selection)
        splits = cut_into_splits(selection, least=self._parallelism, most_bytes=_SPLIT_BYTES)
        return [InputPartition(split) for split in splits]

    def _record(self, recorder: Recorder, selection: Selection) -> None:
        """Record the query, of which only what planning knows. The process may end at once, so the file is awaited."""
        if recorder.tally() is None:
            return
        reader, schema = self._reader, self._snapshot.schema
        tested = condition_columns(reader.condition, schema)
        recorder.add(
            lambda: Query(
                time=recorder.env.now(),
                where=sql_of(None, reader.condition),
                columns=tuple(dict.fromkeys((*reader.columns, *tested))),
                blocks_read=len(selection.rows),
                blocks_total=selection.blocks_total,
                rows_read=int(selection.metadata.row_count[selection.rows].sum()),
                snapshot=str(self._snapshot.sequence),
                source="spark",
            )
        )
        recorder.flush(_MOST_WAIT_SECONDS)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Spark passes None if there is no partition, for an empty result."""
        if partition is None:
            return
        target = column_schema(self._reader.schema, self._reader.columns)
        for table in self._reader.tables(partition.value):
            yield from batches(cast_columns(table, target))


class FilteringReader(TableReader):
    """A reader to which Spark offers the filters of its query before it asks for partitions."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 (Spark's name)
        """Accept the filters that can be conditions of the table; return the others."""
        found = [condition_of(item, self._snapshot.schema) for item in filters]
        nodes = [node for node in (self._reader.condition, *found) if node is not None]
        if nodes:
            condition = AllOf(children=tuple(nodes)) if len(nodes) > 1 else nodes[0]
            self._reader = dataclasses.replace(self._reader, condition=condition)
        return [item for item, node in zip(filters, found, strict=True) if node is None]


class NoStreamReader(DataSourceStreamReader):
    """Refuses to read a table as a stream, at the first thing that Spark asks of it.

    Spark stops the reader in any case, and calls a source's `streamReader` where an error in it is hidden by another.
    """

    def __init__(self, location: str) -> None:
        self._location = location

    def initialOffset(self) -> NoReturn:  # noqa: N802 (Spark's name)
        """Refuse.

        Raises:
            InvalidOptionError: always.
        """
        raise InvalidOptionError(self._problem())

    def latestOffset(self) -> NoReturn:  # noqa: N802 (Spark's name)
        """Refuse, where Spark goes on with a query that it began otherwise."""
        raise InvalidOptionError(self._problem())

    def read(self, partition: InputPartition) -> NoReturn:
        """Refuse; Spark asks for offsets first."""
        del partition
        raise InvalidOptionError(self._problem())

    def _problem(self) -> str:
        return (
            f"{shown_url(self._location)} cannot be read as a stream (spark.readStream): read the newest version again "
            "and again with spark.read.format(...).load(...), each time with a condition on what is new, such as "
            ".option('where', \"at > '2026-01-01'\"); writeStream is supported"
        )


def column_schema(schema: Schema, names: Sequence[str] | None) -> pa.Schema:
    """Return the Arrow schema in which Spark gets the named columns of a table; None stands for all columns.

    Raises:
        UnknownColumnError: the table has no such column.
        UnsupportedTypeError: Spark lacks the type of a column; the message lists every such column.
    """
    unknown = [name for name in names or () if name not in schema.names]
    if unknown:
        msg = f"there is no column {unknown[0]!r}: expected some of {', '.join(schema.names)}"
        raise UnknownColumnError(msg, column=unknown[0])
    known = schema.read_schema
    wanted = schema.names if names is None else names
    return spark_schema(pa.schema([known.field(name) for name in wanted]))


def frame_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of an Arrow schema made by `column_schema`."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def require_same(wanted: StructType, schema: Schema) -> None:
    """Raise unless the table has the columns and types that a reader is to return.

    Raises:
        SchemaMismatchError: the user gave another schema, or the table was altered since. The message lists every
            difference.
    """
    found = frame_schema(column_schema(schema, wanted.names))
    differences = tuple(
        f"{mine.name}: {mine.dataType.simpleString()}, the table has {theirs.dataType.simpleString()}"
        for mine, theirs in zip(wanted, found, strict=True)
        if mine.dataType.simpleString() != theirs.dataType.simpleString()
    )
    if differences:
        msg = "the table has other types than the schema to read it with: " + "; ".join(differences)
        raise SchemaMismatchError(msg, differences=differences)


def batches(
    table: pa.Table, *, most_rows: int = _BATCH_ROWS, most_bytes: int = _BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches that Spark's JVM takes well: of at most `most_rows`, and about `most_bytes`."""
    if table.num_rows:
        rows = max(1, min(most_rows, most_bytes * table.num_rows // max(1, table.nbytes)))
        yield from table.combine_chunks().to_batches(max_chunksize=rows)
