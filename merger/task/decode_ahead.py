"""Decode the next rows of inputs while earlier ones are merged, in one thread beside those of the task.

Inputs that overlap all the way run out of rows at about the same time. Without this thread all their next row groups
are decoded in one burst, while nothing is written, and the writer works alone until the next burst.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock

import pyarrow as pa

Decode = Callable[[], pa.Table]
"""Returns the next rows of one input."""

Begin = Callable[[Decode], "Future[pa.Table]"]
"""Begins to decode in another thread."""


class DecodeAhead:
    """Rows decoded ahead, within a budget for all inputs together. Which rows are changes no result.

    Args:
        room_bytes: of rows that may be decoded ahead at a time, beside those that are being merged.
        begin: see `Begin`; None to decode nothing ahead.
    """

    def __init__(self, room_bytes: int, begin: Begin | None) -> None:
        self._free_bytes = room_bytes
        self._begin = begin
        self._lock = Lock()

    def begin(self, decode: Decode, size_bytes: int) -> DecodedAhead | None:
        """Begin to decode rows that take about `size_bytes`; None if there is no room for them."""
        if self._begin is None:
            return None
        with self._lock:
            if size_bytes > self._free_bytes:
                return None
            self._free_bytes -= size_bytes
        return DecodedAhead(decode, self._begin(decode), lambda: self._end(size_bytes))

    def _end(self, size_bytes: int) -> None:
        with self._lock:
            self._free_bytes += size_bytes


class DecodedAhead:
    """The next rows of one input. Either `take` or `stop` is called, once."""

    def __init__(self, decode: Decode, future: Future[pa.Table], end: Callable[[], None]) -> None:
        self._decode = decode
        self._future = future
        self._end = end

    def take(self) -> pa.Table:
        """Return the rows. If nobody has begun to decode them, do it here."""
        try:
            return self._decode() if self._future.cancel() else self._future.result()
        finally:
            self._end()

    def stop(self) -> None:
        """Wait until no thread decodes the rows."""
        if not self._future.cancel():
            self._future.exception()
        self._end()
