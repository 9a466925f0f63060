"""The data source that Spark calls. Each call runs in a fresh Python process beside Spark's driver."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tblctl.as_of import version_as_of
from tblctl.spark.options import SourceOptions
from tblctl.spark.reading import (
    FilteringReader,
    NoStreamReader,
    TableReader,
    column_schema,
    frame_schema,
    require_same,
)
from tblctl.spark.types import returned_schema
from tblctl.spark.writing import StreamWriter, TableWriter
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.errors import EngineError, InvalidOptionError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.port import NativePort
from tblctl.tableformat.native.record import recorder_of
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.native.write.staged_write import StagedWriter
from tblctl.tableformat.predicate.nodes import Node, node_of
from tblctl.tableformat.projection import Conformer
from tblctl.tableformat.storage import Storage


class TableSource(DataSource):
    """The table that the options of a reader or writer name. `source_class` adds a name and a storage."""

    storage: Storage
    parallelism: int
    pushdown: bool
    _sequence: int | None = None

    def schema(self) -> StructType:
        """Return the table's columns. Remember its version, so that all calls of one `load` see the same one."""
        options = self._options()
        snapshot, _ = self._snapshots(options)
        condition_in(options.where, snapshot.schema)
        self._sequence = snapshot.sequence
        return frame_schema(column_schema(snapshot.schema, options.columns))

    def reader(self, schema: StructType) -> TableReader:
        options = self._options()
        snapshot, head = self._snapshots(options)
        require_same(schema, snapshot.schema)
        kind = FilteringReader if self.pushdown else TableReader
        return kind(
            self._table(options).storage,
            snapshot,
            schema.names,
            condition_in(options.where, snapshot.schema),
            parallelism=self.parallelism,
            recorder=recorder_of(self._table(options), snapshot, head, options.record),
        )

    def streamReader(self, schema: StructType) -> NoStreamReader:  # noqa: N802 (Spark's name)
        del schema
        return NoStreamReader(self._options().location)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        return TableWriter(self._staged_writer(schema), everything=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 (Spark's name)
        return StreamWriter(self._staged_writer(schema), everything=overwrite)

    def _staged_writer(self, schema: StructType) -> StagedWriter:
        options = self._options()
        if any(item is not None for item in (options.as_of, options.columns, options.where, options.record)):
            raise InvalidOptionError(
                "options as_of, columns, where and record are about what is read: leave them out to write"
            )
        table = self._table(options)
        return staged_writer(table, to_arrow_schema(schema), options.memory_bytes)

    def _options(self) -> SourceOptions:
        return SourceOptions.of(self.options)

    def _table(self, options: SourceOptions) -> NativeTable:
        return NativeTable(self.storage.elsewhere(options.location, options.storage), SYSTEM)

    def _snapshots(self, options: SourceOptions) -> tuple[Snapshot, Snapshot]:
        """Return the snapshot that is read, and the newest one."""
        port = NativePort(self._table(options))
        newest = port.newest()
        if self._sequence is not None:
            read = port.version(str(self._sequence), newest=newest)
        else:
            read = newest if options.as_of is None else version_as_of(port, options.as_of, newest)
        return read.snapshot, newest.snapshot


def condition_in(where: str | None, schema: Schema) -> Node | None:
    """Parse a SQL condition and resolve it against `schema`; None for None.

    Raises:
        InvalidPredicateError: the condition does not fit the table.
        EngineError: the Python beside Spark's driver lacks the libraries that parse SQL.
    """
    if where is None:
        return None
    try:
        from tblctl.tableformat.predicate.sql.conditions import parse_where
    except ImportError as error:
        msg = (
            f"option where needs sqlglot and pyiceberg in the Python beside Spark's driver ({error}): install them "
            "there, or leave the condition to Spark"
        )
        raise EngineError(msg) from error
    return node_of(parse_where(where, schema), schema)


def staged_writer(table: NativeTable, data: pa.Schema, memory_bytes: int | None) -> StagedWriter:
    """Return the writer with which tasks write rows of the schema `data`.

    Raises:
        SchemaMismatchError: the rows do not fit the table. The message lists every difference.
    """
    head = table.head()
    require_fit(head.schema, data)
    return StagedWriter.of(table.storage, table.env, head, memory_bytes=memory_bytes)


def require_fit(schema: Schema, data: pa.Schema) -> None:
    """Raise if the types of Spark's rows show that they cannot be appended.

    Raises:
        SchemaMismatchError: the message lists every difference.
    """
    Conformer.plan(returned_schema(schema.logical, data), schema)


def source_class(name: str, storage: Storage, *, parallelism: int, pushdown: bool) -> type[TableSource]:
    """Return the class that a session registers under a name. With `pushdown` it accepts the filters of queries.

    The class is created here and is not importable, so Spark pickles it by value. The storage's options travel inside
    of it, and Spark shows none of them.
    """

    def own_name(_cls: Any) -> str:
        return name

    members = {
        "name": classmethod(own_name),
        "storage": storage,
        "parallelism": parallelism,
        "pushdown": pushdown,
    }
    made = type("RegisteredSource", (TableSource,), members)
    made.__module__ = "__main__"  # not importable, so pickled by value
    return made
