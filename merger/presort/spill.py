"""Spill rows of a merge task to a temporary folder on the local disk.

A process that is killed cannot delete its folder: Spark kills the workers of cancelled jobs. So a folder has a file
that its process keeps locked as long as it lives. The next process that spills deletes folders with an unlocked file.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Self

import pyarrow as pa

from tblctl.tableformat.errors import StorageError

_PREFIX = "tblctl-merge-"
SESSION_PREFIX = "tblctl-spark-"
"""Of the temporary folders that sessions of Spark give their workers. They delete them, unless they are killed."""
_LOCK = "owner"


@dataclass(frozen=True, kw_only=True, eq=False)
class Pieces:
    """Tables, each an Arrow IPC stream, one after the other in a file or in memory. Holds no file open.

    Attributes:
        content: the file, or the bytes.
        starts: where each piece begins in it.
    """

    content: Path | pa.Buffer
    starts: tuple[int, ...]

    @classmethod
    def packed(cls, tables: Iterable[pa.Table], *, compression: str | None) -> Pieces:
        """Return tables in memory, each as one piece. `compression` is a codec of Arrow IPC."""
        sink = pa.BufferOutputStream()
        starts = _write(sink, tables, compression)
        return cls(content=sink.getvalue(), starts=starts)

    def __len__(self) -> int:
        return len(self.starts)

    def read(self, piece: int) -> pa.Table:
        """Return one piece. A file is mapped: only used parts come into memory, without a copy."""
        source = (
            pa.memory_map(str(self.content))
            if isinstance(self.content, Path)
            else pa.BufferReader(self.content)
        )
        options = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)
        with source:
            source.seek(self.starts[piece])
            return pa.ipc.open_stream(source, options=options).read_all()


class SpillFolder:
    """A temporary folder, made at the first write and deleted at the end; a context manager. Threads may share one."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock: int | None = None  # a file descriptor
        self._making = Lock()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        lock, self._lock = self._lock, None  # a unit may end early, and once more at its end
        if lock is not None:
            os.close(lock)

    def write(self, tables: Iterable[pa.Table]) -> Pieces:
        """Write tables, each as one piece.

        Raises:
            StorageError: the disk is full, or the folder cannot be written.
        """
        with self._new_file() as (path, file):
            starts = _write(file, tables, None)
        return Pieces(content=path, starts=starts)

    def keep(self, pieces: Pieces) -> Pieces:
        """Move pieces in memory unchanged to the folder.

        Raises:
            StorageError: the disk is full, or the folder cannot be written.
        """
        with self._new_file() as (path, file):
            file.write(pieces.content)
        return replace(pieces, content=path)

    def remove(self, some: Iterable[Pieces]) -> None:
        """Delete pieces that are not needed any more, as far as possible."""
        for pieces in some:
            if isinstance(pieces.content, Path):
                with suppress(OSError):
                    pieces.content.unlink()

    @contextmanager
    def _new_file(self) -> Iterator[tuple[Path, pa.NativeFile]]:
        try:
            path = self._opened() / f"{next(self._numbers)}.arrow"
            with pa.OSFile(str(path), "wb") as file:
                yield path, file
        except OSError as error:
            where = f"its temporary folder {self._folder}" if self._folder else "a temporary folder"
            msg = (
                f"the merge needs {where} for rows that exceed its memory budget: {error}; free space there, set "
                "TMPDIR to another place, or give more --memory"
            )
            raise StorageError(msg) from error

    def _opened(self) -> Path:
        with self._making:
            if self._folder is None:
                remove_abandoned()
                self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
                self._lock = _locked(self._folder)
            return self._folder


def remove_abandoned() -> None:
    """Delete the folders whose processes were killed, as far as they are of this user and on this host."""
    folder = Path(tempfile.gettempdir())
    for path in (*folder.glob(f"{_PREFIX}*/{_LOCK}"), *folder.glob(f"{SESSION_PREFIX}*/{_PREFIX}*/{_LOCK}")):
        with suppress(OSError):  # its process lives, it is another user's, or just gone
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)


def _locked(folder: Path) -> int | None:
    """Return the descriptor of the folder's file, locked before it has its name; None if the disk has no locks."""
    new = folder / f"{_LOCK}.new"
    lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(folder / _LOCK)
    except OSError:
        os.close(lock)
        return None
    return lock


def _write(file: pa.NativeFile, tables: Iterable[pa.Table], compression: str | None) -> tuple[int, ...]:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    starts = []
    for table in tables:
        starts.append(file.tell())
        with pa.ipc.new_stream(file, table.schema, options=options) as writer:
            writer.write_table(table.combine_chunks())
    return tuple(starts)
