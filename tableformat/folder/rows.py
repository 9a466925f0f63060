"""The rows of plain Parquet files, for those who write them elsewhere: batch by batch, with the folders' columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.concurrency import IO_THREADS, cpu_threads, in_parallel
from tblctl.tableformat.errors import CorruptTableError, InvalidDataError, InvalidSchemaError, TblctlError
from tblctl.tableformat.folder.listing import Files
from tblctl.tableformat.folder.partitions import Partitions
from tblctl.tableformat.folder.port import FolderPort
from tblctl.tableformat.folder.version import FolderVersion
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.schema.types import read_type, strip_extension, type_problems
from tblctl.tableformat.once import once
from tblctl.tableformat.parquet.input_files import batches_of, evenly, skimmed
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS, read_error
from tblctl.tableformat.parquet.whole_files import WholeFile, may_be_block
from tblctl.tableformat.progress import Progress

Taken = TypeVar("Taken")

_TOGETHER_BYTES = 32 << 20
"""Bytes of small files that are fetched from remote storage at once: one after the other, each costs round trips."""


class FolderRows:
    """The rows of some files.

    Args:
        port: where they are.
        files: which. Their footers are read at once.
        partitions: what their folders say; None if that does not count.
        types: the types of columns that folders give, where the rows go; others are whole numbers or text.
        progress: called while footers are read.

    Raises:
        InvalidDataError: files are empty, cut short, encrypted or no Parquet.
        SchemaMismatchError: a folder's value is none of the column's type.
    """

    def __init__(
        self,
        port: FolderPort,
        files: Files,
        partitions: Partitions | None,
        *,
        types: Mapping[str, pa.DataType],
        progress: Progress | None = None,
    ) -> None:
        self.files = files
        self.location = port.location
        self._storage = port.storage
        self._version: FolderVersion = port.only(files, progress)
        self._codes = np.zeros(len(files), np.int64) if partitions is None else partitions.codes
        self._given: dict[str, pa.Array] = {}
        if partitions is not None:
            for key in partitions.keys:
                kind = read_type(types.get(key, partitions.type_of(key)))
                kind = kind.value_type if pa.types.is_dictionary(kind) else kind
                self._given[key] = partitions.values(key, kind)
        self.schemas = self._schemas()

    @property
    def given(self) -> dict[str, pa.DataType]:
        """The columns that only folders give, and their types."""
        own = {name for layout in self._version.layouts for name in layout.stored.names}
        return {name: values.type for name, values in self._given.items() if name not in own}

    def _schemas(self) -> tuple[tuple[str, pa.Schema], ...]:
        """Return the schemas that rows have, each with the name of a file that has it."""
        found = []
        for layout in self._version.layouts:
            more = [
                pa.field(name, values.type)
                for name, values in self._given.items()
                if name not in layout.stored.names
            ]
            name = f"{self._storage.url}/{layout.first}"
            found.append((name, pa.schema([*layout.stored, *more])))
        return tuple(found)

    def united(self) -> pa.Schema:
        """Return the columns of all files, each with the type that holds the values of all, then those of folders.

        Raises:
            SchemaMismatchError: files have types of a column of which none holds the other's values; names them.
            InvalidSchemaError: a column has a type that tables do not have; names file and column.
        """
        for layout in self._version.layouts:
            for item in layout.stored:
                problems = type_problems(strip_extension(item.type), item.name)
                if problems:
                    raise InvalidSchemaError(f"{self._storage.url}/{layout.first}: {'; '.join(problems)}")
        columns = self._version.own_columns()
        return pa.schema([*columns, *(pa.field(name, kind) for name, kind in self.given.items())])

    def read(self, numbers: Sequence[int], progress: Progress | None = None) -> Iterator[pa.Table]:
        """Yield all rows of some files, file by file.

        Args:
            numbers: the files' places in `files`.
            progress: called with the bytes of the files that were read.

        Raises:
            InvalidDataError: a file is damaged, or was written meanwhile.
        """
        done = 0
        for together in self._fetched_together(numbers):
            names = [self.files.names[number].as_py() for number in together]
            small = len(together) > 1
            contents = self._storage.read_many(names) if small else [None] * len(names)
            for number, data in zip(together, contents, strict=True):
                yield from self._rows(number, data)
                done += int(self.files.size_bytes[number])
                if progress:
                    progress(done, None, "bytes")
        self.require_unchanged(numbers)

    def require_unchanged(self, numbers: Sequence[int]) -> None:
        """Refuse files that were written since they were listed.

        Raises:
            InvalidDataError: one was, or is gone.
        """
        names = [self.files.names[number].as_py() for number in numbers]
        for number, name, time in zip(numbers, names, self._storage.modified(names), strict=True):
            if time is None or self._shown(time) != self._shown(float(self.files.modified_seconds[number])):
                msg = f"{self._storage.url}/{name} was written or deleted while it was read: try again"
                raise InvalidDataError(msg, name=name)

    def take_whole(
        self,
        numbers: Sequence[int],
        options: TableOptions,
        take: Callable[[WholeFile], Taken | None],
        progress: Progress | None = None,
    ) -> dict[int, Taken]:
        """Offer files that may become blocks as they are to `take`, and return what it made of those that it took.

        Args:
            numbers: the files' places in `files`.
            options: of the table.
            take: returns None for a file that it does not take. Threads call it.
            progress: called with the bytes of the files that were taken.

        Raises:
            InvalidDataError: a file is damaged, or was written meanwhile.
        """
        if self.given:
            return {}  # its blocks have more columns than its files
        may_be = may_be_block(*self._figures, options)
        chosen = [number for number in numbers if may_be[number]]

        def taken(number: int) -> Taken | None:
            name = self.files.names[number].as_py()
            try:
                return take(
                    WholeFile(storage=self._storage, name=name, size_bytes=int(self.files.size_bytes[number]))
                )
            except (*ARROW_ERRORS, CorruptTableError) as error:
                raise self._problem(name, error) from error

        threads = cpu_threads() if self._storage.is_local else IO_THREADS // 4
        # Each holds the pages of a file twice, and of one row group text and keys.
        threads = max(1, min(threads, options.memory_bytes // (4 * options.block_bytes)))
        made = in_parallel(taken, chosen, threads=threads)
        found = {number: item for number, item in zip(chosen, made, strict=True) if item is not None}
        self.require_unchanged(list(found))
        if progress and found:
            progress(int(self.files.size_bytes[list(found)].sum()), None, "bytes")
        return found

    @once
    def _figures(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows and the uncompressed bytes of each file."""
        parts = [part.rows.select(["name", "rows", "decoded_bytes"]) for part in self._version.parts]
        known = pa.concat_tables(parts)
        places = pc.index_in(self.files.names, known["name"].combine_chunks()).to_numpy()
        return known["rows"].to_numpy()[places], known["decoded_bytes"].to_numpy()[places]

    def _shown(self, seconds: float) -> float:
        """Return a time as all requests show it: HEAD of S3 rounds down to seconds, a listing may not."""
        return math.floor(seconds) if self._storage.time_step_seconds >= 1 else seconds

    def skim(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of rows from all over the files, null where a file has none."""
        for number in evenly(range(len(self.files))):
            name = self.files.names[number].as_py()
            try:
                with self._storage.open_input(name, size_bytes=int(self.files.size_bytes[number])) as source:
                    for rows in skimmed(source, columns):
                        yield self._with_given(rows, number, columns)
            except ARROW_ERRORS as error:
                raise self._problem(name, error) from error

    def _fetched_together(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Yield the files in order: small ones of remote storage several at a time, others alone."""
        waiting: list[int] = []
        size = 0
        for number in numbers:
            own = int(self.files.size_bytes[number])
            if waiting and (size + own > _TOGETHER_BYTES or len(waiting) == IO_THREADS):
                yield waiting
                waiting, size = [], 0
            waiting, size = [*waiting, number], size + own
            if self._storage.is_local:
                size = _TOGETHER_BYTES
        if waiting:
            yield waiting

    def _rows(self, number: int, data: bytes | None) -> Iterator[pa.Table]:
        """Yield the rows of a file, from its content if that was fetched."""
        name, size = self.files.names[number].as_py(), int(self.files.size_bytes[number])
        try:
            with pa.BufferReader(data) if data else self._storage.open_input(name, size_bytes=size) as source:
                for batch in batches_of(source):
                    yield self._with_given(pa.Table.from_batches([batch]), number)
        except ARROW_ERRORS as error:
            raise self._problem(name, error) from error

    def _with_given(self, rows: pa.Table, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows of a file with the folder's columns; only `columns`, if any are named."""
        for name, values in self._given.items():
            if name not in rows.column_names and (columns is None or name in columns):
                value = values[int(self._codes[number])]
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        for name in columns or ():
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(rows.num_rows))
        return rows if columns is None else rows.select(columns)

    def _problem(self, name: str, error: Exception) -> TblctlError:
        other = read_error(self._storage, name, error)
        if not isinstance(other, CorruptTableError):
            return other
        return InvalidDataError(f"{self._storage.url}/{name} is damaged: {str(error)[:300]}", name=name)
