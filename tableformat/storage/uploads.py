"""Objects that are written piece by piece. Nobody sees one before it is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class Upload(Protocol):
    """One object on its way to the storage. Calls must not overlap. One of `finish` and `abandon` ends it."""

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append bytes."""

    def finish(self) -> None:
        """Make the object appear, durable, in place of an earlier one. After an error call `abandon`."""

    def abandon(self) -> None:
        """Remove what was written, as far as possible. Does nothing after `finish`."""


class HeldUpload:
    """An `Upload` that holds all bytes in memory, and writes them at the end."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._data = bytearray()

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append bytes."""
        self._data += memoryview(data)

    def finish(self) -> None:
        """Write the object."""
        self._write(bytes(self._data))

    def abandon(self) -> None:
        """Forget the bytes."""
        self._data.clear()
