"""Byte ranges of one object: how they become requests, and a file for pyarrow that fetches them before it reads.

Near ranges are joined into one request. S3 sends 1 MiB in the time that one more request takes to answer, and Rust's
object_store joins over the same gap. A scan waits for the answers, so it joins over 1 MiB. Keys that a merge looks at
are joined over less: the rows between them are read later, or by other tasks, and a driver that looks for cuts would
read whole tables through one network card. There a request costs 1.4 ms of processor time, in which a card of 156 MB/s
carries 200 KiB. A merge of lineitem in blocks of 577,000 rows then takes 21 GETs a block and reads 1.01 times its
bytes; over 1 MiB it took 6 GETs and 1.96 times. AWS recommends 8 MiB for each of several concurrent requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Self

import pyarrow as pa

from tblctl.tableformat.storage.random_access import RandomAccessFile

GAP_BYTES = 1 << 20
KEY_GAP_BYTES = 128 << 10
REQUEST_BYTES = 8 << 20

Range = tuple[int, int]
"""The first byte, and the one after the last."""

Fetch = Callable[[int, int], Future[bytes]]
"""Begins to fetch a range."""


def joined(
    ranges: Iterable[Range], *, gap_bytes: int = GAP_BYTES, most_bytes: int = REQUEST_BYTES
) -> list[Range]:
    """Return ascending requests for ranges: near ranges share a request, long ones are cut. O(n log n)."""
    whole: list[Range] = []
    for start, stop in sorted(ranges):
        if whole and start - whole[-1][1] <= gap_bytes:
            whole[-1] = (whole[-1][0], max(stop, whole[-1][1]))
        else:
            whole.append((start, stop))
    return [piece for start, stop in whole for piece in _cut(start, stop, most_bytes)]


def _cut(start: int, stop: int, most_bytes: int) -> list[Range]:
    pieces = math.ceil((stop - start) / most_bytes)
    return list(pairwise(start + (stop - start) * piece // pieces for piece in range(pieces + 1)))


class Fetched:
    """Ranges that are in memory or being fetched; a context manager that frees them."""

    def __init__(self, file: RangeFile, parts: Sequence[tuple[Range, Future[bytes]]]) -> None:
        self._file = file
        self.parts = parts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return sum(stop - start for (start, stop), _ in self.parts)

    def close(self) -> None:
        """Free the memory, and cancel requests that are still running."""
        self._file.drop(self)
        for _, future in self.parts:
            future.cancel()


class RangeFile(RandomAccessFile):
    """A file for pyarrow. Ranges that `begin` fetched come from memory, without a copy. Other reads are requests.

    Calls must not overlap.
    """

    def __init__(self, size_bytes: int, fetch: Fetch) -> None:
        super().__init__(size_bytes)
        self._fetch = fetch
        self._fetched: list[Fetched] = []

    def begin(self, ranges: Iterable[Range], *, gap_bytes: int = GAP_BYTES) -> Fetched:
        """Begin to fetch ranges that are not in memory, all at once, in the requests that `joined` returns."""
        missing = [item for item in ranges if not self._has(*item)]
        return self._keep([(item, self._fetch(*item)) for item in joined(missing, gap_bytes=gap_bytes)])

    def fetch(self, start: int, stop: int) -> bytes:
        """Return a range from the storage without keeping it."""
        return self._fetch(start, stop).result()

    def keep(self, start: int, data: bytes) -> Fetched:
        """Add a range that was fetched before."""
        future: Future[bytes] = Future()
        future.set_result(data)
        return self._keep([((start, start + len(data)), future)])

    def _keep(self, parts: Sequence[tuple[Range, Future[bytes]]]) -> Fetched:
        self._fetched.append(Fetched(self, parts))
        return self._fetched[-1]

    def drop(self, fetched: Fetched) -> None:
        """Stop reading from these ranges."""
        self._fetched = [item for item in self._fetched if item is not fetched]

    def close(self) -> None:
        for item in self._fetched:
            item.close()
        super().close()

    def read_at(self, start: int, stop: int) -> pa.Buffer:
        pieces = []
        while start < stop:
            piece = self._piece(start, stop)
            pieces.append(piece)
            start += piece.size
            if not piece.size:
                break  # the object is shorter than it should be
        return pieces[0] if len(pieces) == 1 else pa.py_buffer(b"".join(pieces))

    def _piece(self, position: int, end: int) -> pa.Buffer:
        """Return bytes from a position up to `end`, or up to the end of the range in memory."""
        for (start, stop), future in self._parts():
            if start <= position < stop:
                return pa.py_buffer(future.result()).slice(position - start)[: end - position]
        known = [start for (start, _), _ in self._parts() if position < start < end]
        return pa.py_buffer(self.fetch(position, min([end, *known])))

    def _has(self, start: int, stop: int) -> bool:
        while start < stop:
            ends = [high for (low, high), _ in self._parts() if low <= start < high]
            if not ends:
                return False
            start = max(ends)
        return True

    def _parts(self) -> Iterable[tuple[Range, Future[bytes]]]:
        return (part for item in self._fetched for part in item.parts)


class RangedInput(pa.PythonFile):  # type: ignore[misc]
    """A `RangeFile` for pyarrow: an open object whose ranges can be fetched before they are read."""

    def __init__(self, ranges: RangeFile, mode: str = "r") -> None:
        del mode  # PythonFile took both when it was made
        super().__init__()
        self.ranges = ranges
