"""A read-only file for pyarrow over something that returns any range of bytes."""

from __future__ import annotations

import io
from abc import abstractmethod

import pyarrow as pa


class RandomAccessFile(io.RawIOBase):
    """A file of `size_bytes` with its own position. Subclasses implement `read_at`. Calls must not overlap."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self._size_bytes = size_bytes
        self._position = 0

    @abstractmethod
    def read_at(self, start: int, stop: int) -> pa.Buffer:
        """Return the bytes from `start` up to `stop`; fewer if the object is shorter than it should be."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int | None = -1) -> pa.Buffer:
        """Return the next bytes; pyarrow prefers this to `read`."""
        stop = self._size_bytes if size is None or size < 0 else min(self._position + size, self._size_bytes)
        if stop <= self._position:
            return pa.py_buffer(b"")
        data = self.read_at(self._position, stop)
        self._position += data.size
        return data
