"""Read input for appends: Arrow data in memory or streams, and Parquet or Arrow IPC files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tblctl.tableformat.errors import (
    InputError,
    InvalidDataError,
    ObjectNotFoundError,
    SchemaMismatchError,
)
from tblctl.tableformat.model.frames import with_index
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import child_fields
from tblctl.tableformat.parquet.input_files import batches_of, evenly, skimmed
from tblctl.tableformat.projection import Conformer
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.location import shown_path

if TYPE_CHECKING:
    from tblctl.tableformat.model.record import BlockRecord
    from tblctl.tableformat.native.write.writer import BlockWriter

_BATCH_ROWS = 65_536
_ARROW_ENDINGS = (".arrow", ".ipc", ".feather", ".arrows")


@dataclass(frozen=True, kw_only=True)
class InputRows:
    """Rows that can be read once.

    Attributes:
        schema: of all rows, or of the first file.
        read: yields the rows, in order.
        name: for messages.
        skim: yields some columns of rows from all over the files, without reading all; None if there are no files.
        others: further schemas of rows, each with the name of a file that has it.
        copy: makes blocks of whole files with what it is given, and returns these; `read` yields the others' rows then.
            None if no file may be copied.
    """

    schema: pa.Schema
    read: Callable[[], Iterator[pa.Table]]
    name: str
    skim: Callable[[Sequence[str]], Iterator[pa.Table]] | None = None
    others: tuple[tuple[str, pa.Schema], ...] = ()
    copy: Callable[[BlockWriter], Sequence[BlockRecord]] | None = None

    def require_fit(self, schema: Schema, *, names_file: bool = False) -> None:
        """Refuse rows that cannot be converted to a table's schema. Nothing is read.

        Args:
            schema: the table's.
            names_file: whether the error names the file, even if all rows have one schema.

        Raises:
            SchemaMismatchError: lists every difference of one file.
        """
        for name, given in ((None, self.schema), *self.others):
            try:
                Conformer.plan(given, schema)
            except SchemaMismatchError as error:
                if not (self.others or names_file):
                    raise
                raise SchemaMismatchError(f"{name or self.name}: {error}", **error.details) from error

    def sample(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of all rows, or of some if there are many.

        Raises:
            SchemaMismatchError: files have different schemas.
        """
        for name, _ in self.others:
            msg = f"{name} has another schema than {self.name}; a sample is of files of one schema"
            raise SchemaMismatchError(msg, differences=(name,))
        if self.skim is None:
            return (rows.select(columns) for rows in self.read())
        return self.skim(columns)


def are_paths(data: Any) -> bool:
    """Return whether data is a path, or several."""
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(item, str | os.PathLike) for item in data)
    return isinstance(data, str | os.PathLike)


def open_source(data: Any, reach: Callable[[str], Storage]) -> InputRows:
    """Return the rows of `data`.

    Args:
        data: a pyarrow Table, RecordBatch, RecordBatchReader or Dataset; anything with `__arrow_c_stream__`, pandas
            frames with the named parts of their index; a path or URL of a Parquet or Arrow IPC file, or several.
        reach: returns the storage at a folder's path or URL, for files.

    Raises:
        InvalidDataError: a file is missing or in another format, or `data` is none of these.
    """
    if isinstance(data, InputRows):
        return data
    if are_paths(data):
        return _files(
            [os.fspath(item) for item in (data if isinstance(data, list | tuple) else [data])], reach
        )
    if isinstance(data, pa.Table):
        return _reader(data.to_reader(max_chunksize=_BATCH_ROWS), "the table given")
    if isinstance(data, pa.RecordBatch):
        return InputRows(
            schema=data.schema, read=lambda: iter([pa.Table.from_batches([data])]), name="the batch given"
        )
    if isinstance(data, pa.RecordBatchReader):
        return _reader(data, "the reader given")
    if hasattr(data, "scanner") and hasattr(data, "schema"):
        return _reader(data.scanner(batch_size=_BATCH_ROWS).to_reader(), "the dataset given")
    if hasattr(data, "__arrow_c_stream__"):
        return _reader(pa.RecordBatchReader.from_stream(with_index(data)), f"the {type(data).__name__} given")
    if hasattr(data, "__arrow_c_array__"):
        return open_source(pa.record_batch(data), reach)
    msg = (
        f"cannot read rows from {type(data).__name__}: expected Arrow data (a pyarrow Table, RecordBatchReader or "
        "Dataset, a Polars or pandas DataFrame, a DuckDB relation) or paths of Parquet or Arrow files"
    )
    raise InvalidDataError(msg)


def _reader(reader: pa.RecordBatchReader, name: str) -> InputRows:
    def read() -> Iterator[pa.Table]:
        try:
            for batch in reader:
                yield pa.Table.from_batches([batch])
        except (pa.ArrowException, OSError) as error:
            msg = f"{name} ended early: {str(error)[:300]}; nothing was changed"
            raise InvalidDataError(msg) from error

    return InputRows(schema=reader.schema, read=read, name=name)


def _files(paths: Sequence[str], reach: Callable[[str], Storage]) -> InputRows:
    files = [_File.open(path, reach) for path in paths]
    first = files[0]
    others: list[tuple[str, pa.Schema]] = []
    for file in files[1:]:
        if not any(known.equals(file.schema) for known in (first.schema, *(item for _, item in others))):
            others.append((file.path, file.schema))

    def read() -> Iterator[pa.Table]:
        for file in files:
            yield from file.read()

    def skim(columns: Sequence[str]) -> Iterator[pa.Table]:
        for file in evenly(files):
            yield from file.skim(columns)

    return InputRows(
        schema=first.schema,
        read=read,
        name=first.path,
        skim=skim,
        others=tuple(others),
    )


@dataclass(frozen=True, kw_only=True)
class _File:
    """One input file. It is opened again for reading, so that a thousand files are not open at once."""

    path: str
    schema: pa.Schema
    storage: Storage
    name: str

    @classmethod
    def open(cls, path: str, reach: Callable[[str], Storage]) -> _File:
        here = path if "://" in path or not Path(path).is_symlink() else str(Path(path).resolve())
        if "://" not in here and Path(here).is_dir():
            raise InvalidDataError(f"{path} is a folder: name one of its files")
        folder, _, name = here.replace(os.sep, "/").rpartition("/")
        if not folder and here.startswith("/"):
            folder = "/"
        storage, shown = reach(folder or "."), shown_path(path)
        try:
            with storage.open_input(name) as source:
                schema = _schema_of(source, name)
        except (InputError, ObjectNotFoundError) as error:
            raise InvalidDataError(f"{shown}: {error}") from error
        except (OSError, ValueError, pa.ArrowException) as error:
            expected = "an Arrow IPC file" if name.endswith(_ARROW_ENDINGS) else "a Parquet file"
            msg = f"{shown} is not {expected}, or it is cut short: {str(error)[:200]}; nothing was changed"
            raise InvalidDataError(msg) from error
        return cls(path=shown, schema=schema, storage=storage, name=name)

    def read(self) -> Iterator[pa.Table]:
        """Yield the file's rows in batches."""
        try:
            with self.storage.open_input(self.name) as source:
                for batch in _batches_of(source, self.name):
                    yield pa.Table.from_batches([batch])
        except (OSError, ValueError, pa.ArrowException) as error:
            msg = f"{self.path} is damaged: {str(error)[:300]}; nothing was changed"
            raise InvalidDataError(msg) from error

    def skim(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of the rows of some row groups; of an Arrow file, of all its rows."""
        if self.name.endswith(_ARROW_ENDINGS):
            yield from (rows.select(columns) for rows in self.read())
            return
        try:
            with self.storage.open_input(self.name) as source:
                yield from skimmed(source, columns)
        except (OSError, ValueError, pa.ArrowException) as error:
            msg = f"{self.path} is damaged: {str(error)[:300]}; nothing was changed"
            raise InvalidDataError(msg) from error


def _schema_of(source: pa.NativeFile, name: str) -> pa.Schema:
    if name.endswith(_ARROW_ENDINGS):
        schema = _ipc(source).schema
        _read_names(schema)
        return schema
    import pyarrow.parquet as pq

    return pq.read_schema(source)


def _read_names(fields: Iterable[pa.Field]) -> None:
    """Read all names, those inside of types too: Arrow keeps bytes, and raises ValueError if a name is no text."""
    for field in fields:
        assert isinstance(field.name, str)
        _read_names(child_fields(field.type))


def _batches_of(source: pa.NativeFile, name: str) -> Iterator[pa.RecordBatch]:
    if name.endswith(_ARROW_ENDINGS):
        for batch in _ipc_batches(_ipc(source)):
            batch.validate(full=True)  # Arrow itself reads wherever offsets and indices of a file lead
            yield batch
        return
    yield from batches_of(source)


def _ipc_batches(reader: Any) -> Iterator[pa.RecordBatch]:
    if not isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from reader
        return
    for place in range(reader.num_record_batches):
        yield reader.get_batch(place)


def _ipc(source: pa.NativeFile) -> Any:
    """Return a reader of an Arrow IPC file, or of a stream, which files often are."""
    import pyarrow.ipc

    try:
        return pyarrow.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pyarrow.ipc.open_stream(source)
