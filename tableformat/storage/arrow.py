"""An fsspec filesystem for pyarrow's datasets, with files opened by the backend."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.fs

from tblctl.tableformat.storage.backend import Backend


class _Handler(pyarrow.fs.FSSpecHandler):  # type: ignore[misc]
    """Opens files through the backend.

    pyarrow's own handler calls `isfile` first (one more request, and it hides permission errors). It also shares one
    position between all readers of an object in memory.
    """

    def __init__(self, filesystem: Any, root: str, backend: Backend) -> None:
        super().__init__(filesystem)
        self._root = root
        self._backend = backend

    def open_input_file(self, path: str) -> pa.NativeFile:
        name = path.strip("/").removeprefix(self._root.strip("/")).lstrip("/")
        return self._backend.open_input(name, None)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)


def filesystem_over(filesystem: Any, root: str, backend: Backend) -> pyarrow.fs.FileSystem:
    """Return a pyarrow filesystem over `filesystem`; `root` is the backend's root as a path in it."""
    return pyarrow.fs.PyFileSystem(_Handler(filesystem, root, backend))
