"""Objects in fsspec's memory filesystem: gone with the process, for tests and small experiments.

fsspec keeps them in one dictionary of the class, so every Storage of a process sees the same ones.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tblctl.tableformat.storage.backend import Contents, Names, ObjectInfo, Times
from tblctl.tableformat.storage.names import name_problem
from tblctl.tableformat.storage.uploads import HeldUpload, Upload

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs

_lock = threading.Lock()  # "is the name free" and "take it" are one step


def _new_lock() -> None:
    global _lock  # noqa: PLW0603 (a lock that was held during a fork stays locked in the child for ever)
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)


class MemoryBackend:
    """See `Backend`; `root` starts with a slash."""

    time_step_seconds = 0.0

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")

    def read(self, name: str) -> bytes:
        return bytes(_filesystem().cat_file(self._path(name)))

    def read_many(self, names: Sequence[str]) -> Contents:
        return [self._read_or_none(name) for name in names]

    def _read_or_none(self, name: str) -> bytes | None:
        try:
            return self.read(name)
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        with _lock:
            _filesystem().pipe_file(self._path(name), bytes(memoryview(data)))

    def begin(self, name: str) -> Upload:
        return HeldUpload(lambda data: self.write(name, data))

    def create(self, name: str, data: bytes | pa.Buffer) -> bool:
        filesystem, path = _filesystem(), self._path(name)
        with _lock:
            if path in filesystem.store:
                return False
            filesystem.pipe_file(path, bytes(memoryview(data)))
            return True

    def delete(self, names: Sequence[str]) -> None:
        with _lock:
            for name in names:
                _filesystem().store.pop(self._path(name), None)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        start = f"{self._root}/"
        with _lock:
            files = sorted((p, f) for p, f in _filesystem().store.items() if p.startswith(start + prefix))
        for path, file in files:
            name = path[len(start) :]
            if name_problem(name) is None:
                size_bytes = file.getbuffer().nbytes
                modified_seconds = file.modified.timestamp()
                yield ObjectInfo(name=name, size_bytes=size_bytes, modified_seconds=modified_seconds)

    def folders(self, folder: str) -> Names:
        names = {item.name.removeprefix(folder) for item in self.list(folder)}
        return list(
            {f"{folder}{first}/" for first, slash, _ in (name.partition("/") for name in names) if slash}
        )

    def modified(self, names: Sequence[str]) -> Times:
        store = _filesystem().store
        found = [store.get(self._path(name)) for name in names]
        return [None if file is None else file.modified.timestamp() for file in found]

    def is_empty(self) -> bool:
        return not any(path.startswith(f"{self._root}/") for path in tuple(_filesystem().store))

    def delete_all(self) -> None:
        filesystem = _filesystem()
        with _lock:
            for path in sorted(filesystem.store):
                if path.startswith(f"{self._root}/"):
                    del filesystem.store[path]

    def open_input(self, name: str, size_bytes: int | None) -> pa.NativeFile:  # noqa: ARG002
        # Not the filesystem's own `open`: all readers of an object would share one position.
        import pyarrow as pa

        return pa.BufferReader(self.read(name))

    def arrow_filesystem(self) -> tuple[pyarrow.fs.FileSystem, str]:
        from tblctl.tableformat.storage.arrow import filesystem_over

        return filesystem_over(_filesystem(), self._root, self), self._root

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def _filesystem() -> Any:
    from fsspec.implementations.memory import MemoryFileSystem

    return MemoryFileSystem()
