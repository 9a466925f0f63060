"""Write a Spark frame to a table, and read a table as a Spark frame; `Table` calls these functions."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

from tblctl.merger.engines.spark import workers
from tblctl.spark.code import CODE
from tblctl.spark.options import require_shared
from tblctl.spark.sessions import name_for
from tblctl.tableformat.errors import EngineError, InputError
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.native.write.staged_write import StagedWrite, joined
from tblctl.tableformat.native.write.writer import discard


def write_frame(frame: Any, table: NativeTable, memory_bytes: int | None) -> StagedWrite:
    """Write a frame's rows as blocks, in the frame's own session. Nothing is committed.

    Raises:
        SchemaMismatchError, InvalidDataError: the rows do not fit the table. Blocks that tasks wrote are deleted.
        InvalidOptionError: the table is in memory.
        EngineError: the session does not work, or gave up the job. Blocks of the job may be left for gc.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from tblctl.spark.source import staged_writer

    require_shared(table.storage.url)
    writer = staged_writer(table, to_arrow_schema(frame.schema), memory_bytes)
    workers.prepare(frame.sparkSession, CODE)
    try:
        rows = frame.mapInArrow(_mapper(pickle.dumps(writer)), "outcome binary").collect()
    except Exception as error:
        reason = workers.reason(error)
        raise EngineError(f"Spark did not write the rows ({reason}); nothing was committed") from error
    outcomes = [pickle.loads(row.outcome) for row in rows]  # noqa: S301 (made by our own function)
    writes = [outcome for outcome in outcomes if isinstance(outcome, StagedWrite)]
    for outcome in outcomes:
        if isinstance(outcome, InputError):
            discard(table.storage, [path for staged in writes for path in staged.paths])
            raise outcome
    return joined([writer.nothing(), *writes])


def read_frame(session: Any, table: NativeTable, as_of: int | None) -> Any:
    """Return the table as a frame of a session. Nothing is read yet.

    Raises:
        InvalidOptionError: the table is in memory.
        EngineError: see `tblctl.spark.register`.
    """
    require_shared(table.storage.url)
    reader = session.read.format(name_for(session, table.storage))
    if as_of is not None:
        reader = reader.option("as_of", as_of)
    return reader.load(table.storage.url)


def _mapper(writer: bytes) -> Callable[[Any], Any]:
    """Return the function that Spark applies to a partition: batches of rows in, one pickled outcome out."""

    def tblctl_append(
        batches: Iterator[Any],
    ) -> Iterator[Any]:  # nested: pickled whole, and importable nowhere
        import pickle

        import pyarrow as pa

        from tblctl.spark.writing import write_batches
        from tblctl.tableformat.errors import InputError

        try:
            outcome: Any = write_batches(pickle.loads(writer), batches)  # noqa: S301
        except InputError as error:  # another attempt would fail the same way
            outcome = error
        yield pa.record_batch({"outcome": pa.array([pickle.dumps(outcome)], pa.binary())})

    return tblctl_append
