"""Write rows of a table as plain Parquet files, which any engine reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.results import ExportOutcome
from tblctl.scan import Scan
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import InvalidOptionError, TblctlError
from tblctl.tableformat.folder.listing import refuse_tables
from tblctl.tableformat.folder.names import Chosen
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.storage import Storage

FILE_BYTES = 128 << 20
"""About the size of one file."""

_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 64 << 20


def export_rows(
    scan: Scan,
    target: Storage,
    env: Environment,
    *,
    overwrite: bool,
    file_bytes: int,
    progress: Progress | None,
) -> ExportOutcome:
    """Write the rows of a scan as files of a folder; at least one, so that the columns are known.

    Old files go once all new ones are there. After an error, those of this call are removed.

    Raises:
        InvalidOptionError: the folder has objects, and `overwrite` is not given; or has others than Parquet files.
        UnsupportedFormatError: it is a table, or a part of one.
    """
    started = env.elapsed()
    old = _old_files(target, overwrite=overwrite)
    names: list[str] = []
    rows = size = 0
    try:
        for number, (data, count) in enumerate(_files(scan.to_reader(), file_bytes)):
            names.append(f"part-{env.new_id()[:8]}-{number:05}.parquet")
            target.write(names[-1], data)
            rows, size = rows + count, size + data.size
            if progress:
                progress(rows, None, "rows")
    except BaseException:
        _discard(target, names)
        raise
    target.delete(old)
    return ExportOutcome(
        location=target.url,
        snapshot=scan.snapshot,
        files=len(names),
        rows=rows,
        bytes=size,
        seconds=env.elapsed() - started,
    )


def _old_files(target: Storage, *, overwrite: bool) -> list[str]:
    """Return the files to replace."""
    if target.is_empty():
        return []
    refuse_tables(target, Chosen(pattern="**"))
    if not overwrite:
        msg = (
            f"{target.url} is not empty: export to another place, or replace its Parquet files with overwrite"
        )
        raise InvalidOptionError(msg)
    chosen = Chosen()
    old = [item.name for item in target.list()]
    others = [name for name in old if not chosen.takes(name)]
    if others:
        msg = f"{target.url} has other things than Parquet files, such as {others[0]!r:.200}: nothing was changed"
        raise InvalidOptionError(msg)
    return old


def _discard(target: Storage, names: list[str]) -> None:
    with suppress(TblctlError):  # the error that led here says more
        target.delete(names)


def _files(reader: pa.RecordBatchReader, file_bytes: int) -> Iterator[tuple[pa.Buffer, int]]:
    """Yield files and their rows."""
    sink = pa.BufferOutputStream()
    writer = pq.ParquetWriter(sink, reader.schema, compression="zstd")
    rows = 0
    for group in _groups(reader):
        if sink.tell() >= file_bytes:
            writer.close()
            yield sink.getvalue(), rows
            rows, sink = 0, pa.BufferOutputStream()
            writer = pq.ParquetWriter(sink, reader.schema, compression="zstd")
        writer.write_table(group)
        rows += group.num_rows
    writer.close()
    yield sink.getvalue(), rows


def _groups(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield the rows of each row group."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)
