"""Where the pages of a Parquet file go while it is written: into memory, or on their way to the storage.

A file's end (page indexes if there are any, and the footer) is never passed on as Parquet's writer makes it: it is
edited first. The writer writes the end when it is closed, and all pages before.
"""

from __future__ import annotations

import io
from typing import Protocol

import pyarrow as pa

from tblctl.tableformat.parquet.footer import footer_start
from tblctl.tableformat.storage.uploads import Upload


class PageSink(Protocol):
    """Takes the bytes of one file, in order."""

    @property
    def target(self) -> pa.NativeFile:
        """What Parquet's writer writes to."""

    def tell(self) -> int:
        """Return how many bytes there are so far."""

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append pages that are copied."""

    def before_end(self) -> None:
        """Say that the writer's end comes next. Pages must be complete."""

    def end(self) -> tuple[int, pa.Buffer]:
        """Return where the writer's end begins, and its bytes."""


class HeldPages:
    """A `PageSink` in memory."""

    def __init__(self) -> None:
        self._stream = pa.BufferOutputStream()
        self._data: pa.Buffer | None = None

    @property
    def target(self) -> pa.NativeFile:
        """The stream."""
        return self._stream

    def tell(self) -> int:
        """Return how many bytes there are so far."""
        return int(self._stream.tell())

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append pages that are copied."""
        self._stream.write(data)

    def before_end(self) -> None:
        """Do nothing: the end is found in the bytes."""

    def end(self) -> tuple[int, pa.Buffer]:
        """Return where the writer's end begins, and its bytes."""
        data = self._whole()
        start = footer_start(data)
        return start, data[start:]

    def pages(self) -> pa.Buffer:
        """Return the bytes before the end."""
        data = self._whole()
        return data[: footer_start(data)]

    def _whole(self) -> pa.Buffer:
        if self._data is None:
            self._data = self._stream.getvalue()
        return self._data


_BUFFER_BYTES = 1 << 20


class StreamedPages:
    """A `PageSink` that passes pages on to an upload as they come. Only the end is held."""

    def __init__(self, upload: Upload) -> None:
        self._file = _Forwarding(upload)
        # Parquet's writer writes each page and each header by itself.
        self._target = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), _BUFFER_BYTES)

    @property
    def target(self) -> pa.NativeFile:
        """A file whose bytes are passed on."""
        return self._target

    def tell(self) -> int:
        """Return how many bytes there are so far."""
        return int(self._target.tell())

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append pages that are copied."""
        self._target.write(data)

    def before_end(self) -> None:
        """Hold what comes from now on."""
        self._target.flush()
        self._file.hold()

    def end(self) -> tuple[int, pa.Buffer]:
        """Return where the writer's end begins, and its bytes."""
        self._target.flush()
        return self._file.held_from, pa.py_buffer(bytes(self._file.held))

    def drop(self) -> None:
        """Drop what comes from now on. Parquet's writer writes an end even when it is thrown away.

        By then the upload is over, and its file handle may be that of another file.
        """
        self._file.drop()


class _Forwarding(io.RawIOBase):
    """A Python file that passes bytes on until it is told to hold them."""

    def __init__(self, upload: Upload) -> None:
        super().__init__()
        self._upload = upload
        self._size = 0
        self._holds = False
        self._drops = False
        self.held = bytearray()
        self.held_from = 0

    def writable(self) -> bool:
        """Return true."""
        return True

    def write(self, data: bytes | pa.Buffer) -> int:
        """Take bytes."""
        size = memoryview(data).nbytes
        if self._drops:
            return size
        if self._holds:
            self.held += memoryview(data).cast("B")
        else:
            self._upload.write(data)
        self._size += size
        return size

    def hold(self) -> None:
        """Hold what comes from now on."""
        self._holds = True
        self.held_from = self._size

    def drop(self) -> None:
        """Drop what comes from now on."""
        self._drops = True
