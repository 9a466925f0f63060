"""A temporary folder on the local disk for what a merge task cannot hold; gone when the task ends."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Self

import pyarrow as pa

from tblctl.tableformat.errors import StorageError


class Scratch:
    """Made when first written to; a context manager. Threads may share one."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._making = Lock()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def write(self, tables: Iterable[pa.Table]) -> SpilledRows:
        """Write tables of one schema, each as one piece.

        Raises:
            StorageError: the disk is full, or the folder cannot be written.
        """
        try:
            path = self._opened() / f"{next(self._numbers)}.arrow"
            rows = SpilledRows(path)
            with pa.OSFile(str(path), "wb") as file:
                rows.fill(file, tables)
        except OSError as error:
            where = f"its temporary folder {self._folder}" if self._folder else "a temporary folder"
            msg = (
                f"the merge needs {where} for rows that exceed its memory budget: {error}; free space there, set "
                "TMPDIR to another place, or give more --memory"
            )
            raise StorageError(msg) from error
        return rows

    def _opened(self) -> Path:
        with self._making:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="tblctl-merge-"))
            return self._folder


class SpilledRows:
    """Pieces of rows in one file, each an Arrow IPC stream, read one at a time; holds no file open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts: list[int] = []

    @property
    def pieces(self) -> int:
        """How many there are."""
        return len(self._starts)

    def fill(self, file: pa.NativeFile, tables: Iterable[pa.Table]) -> None:
        """Write the pieces."""
        for table in tables:
            self._starts.append(file.tell())
            with pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table.combine_chunks())

    def read(self, piece: int) -> pa.Table:
        """Return one piece."""
        with pa.OSFile(str(self._path), "rb") as file:
            file.seek(self._starts[piece])
            return pa.ipc.open_stream(file).read_all()
