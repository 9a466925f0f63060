"""Lists of the files whose rows a table took: an import takes each file once. docs/FORMAT.md describes the object.

A snapshot names them, so that a list is committed together with the rows. They last as long as the snapshot: a head
keeps those of the one before, also when that expires, and a rollback brings back those of its target.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tblctl.tableformat.errors import CorruptTableError, ObjectNotFoundError
from tblctl.tableformat.model.snapshot import ImportList
from tblctl.tableformat.parquet.checksum import checksum
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS, damaged
from tblctl.tableformat.storage import Storage

COLUMNS = pa.schema(
    [
        pa.field("path", pa.large_string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("modified_us", pa.int64(), nullable=False),
    ]
)
"""A file's identity (`storage.identity`), and the storage's time of it in microseconds since 1970-01-01 UTC."""


def encode_import_list(files: pa.Table, path: str) -> tuple[ImportList, pa.Buffer]:
    """Return the reference to a list named `path`, and its object: an Arrow IPC stream, about 120 bytes a file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, COLUMNS) as writer:
        writer.write_table(files.cast(COLUMNS).combine_chunks())
    data = sink.getvalue()
    made = ImportList(path=path, size_bytes=data.size, checksum=checksum(data), file_count=files.num_rows)
    return made, data


def read_import_list(storage: Storage, ref: ImportList) -> pa.Table:
    """Return the files of a list, with the columns `COLUMNS`.

    Raises:
        CorruptTableError: the object is missing, or differs from its checksum, or from what a list is.
    """
    try:
        data = storage.read(ref.path)
    except ObjectNotFoundError as error:
        msg = f"{ref.path} is missing; the files that the table took are not known"
        raise CorruptTableError(msg, name=ref.path) from error
    if len(data) != ref.size_bytes or checksum(data) != ref.checksum:
        msg = f"{ref.path} is damaged: its bytes differ from the checksum in the snapshot"
        raise CorruptTableError(msg, name=ref.path)
    try:
        found = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
        found.validate(full=True)
        if not found.schema.equals(COLUMNS) or found.num_rows != ref.file_count:
            msg = f"{found.num_rows} files with {found.schema.names}, expected {ref.file_count}"
            raise ValueError(msg)
        if any(column.null_count for column in found.columns):
            msg = "a value is null"
            raise ValueError(msg)
    except ARROW_ERRORS as error:
        raise damaged(ref.path, error) from error
    return found


def read_import_lists(storage: Storage, refs: Sequence[ImportList]) -> pa.Table:
    """Return the files of all lists, each once."""
    return pa.concat_tables([COLUMNS.empty_table(), *(read_import_list(storage, ref) for ref in refs)])


def lists_to_fold(
    lists: Sequence[ImportList], file_count: int
) -> tuple[tuple[ImportList, ...], tuple[ImportList, ...]]:
    """Return which lists stay, and which become a part of a new one of `file_count` files. Pure.

    Of the lists that stay each has more than twice as many files as the next: there are O(log files) of them, and a
    file is written O(log files) times.
    """
    stay = list(lists)
    folded: list[ImportList] = []
    while stay and stay[-1].file_count <= 2 * file_count:
        folded.insert(0, stay.pop())
        file_count += folded[0].file_count
    return tuple(stay), tuple(folded)
