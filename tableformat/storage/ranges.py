"""Byte ranges of one object: which requests they become, and a file for pyarrow that has fetched them before it reads.

A gap of 1 MiB is what S3 sends in the time that one more request takes to answer; Rust's object_store joins over as
much. A scan that reads a column waits for its answers, so it joins over that. Keys that a merge looks at are not joined
so far: between them lie the rows, which are read later, once, or by other tasks, and a driver that looks for cuts would
read whole tables through one network card. There a request counts for its processor time, 1.4 ms, in which a card of
156 MB/s carries 200 KiB. A merge of lineitem in blocks of 577,000 rows takes 21 GETs a block so, and 1.01 times its
bytes; over 1 MiB it took 6 and 1.96. 8 MiB is what AWS recommends for each of several requests at once.
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
"""The first byte and the one behind the last."""

Fetch = Callable[[int, int], Future[bytes]]
"""Begins to fetch a range."""


def joined(
    ranges: Iterable[Range], *, gap_bytes: int = GAP_BYTES, most_bytes: int = REQUEST_BYTES
) -> list[Range]:
    """Return the requests for some ranges, ascending: what is near shares one, what is long is cut. O(n log n)."""
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
    """Ranges that are on their way into memory or there; a context manager that lets go of them."""

    def __init__(self, file: RangeFile, parts: Sequence[tuple[Range, Future[bytes]]]) -> None:
        self._file = file
        self.parts = parts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return sum(stop - start for (start, stop), _ in self.parts)

    def close(self) -> None:
        """Free the memory; what is still on its way is called off."""
        self._file.drop(self)
        for _, future in self.parts:
            future.cancel()


class RangeFile(RandomAccessFile):
    """A file for pyarrow: ranges that `begin` announced come from memory, without a copy; other reads are requests.

    Calls must not overlap.
    """

    def __init__(self, size_bytes: int, fetch: Fetch) -> None:
        super().__init__(size_bytes)
        self._fetch = fetch
        self._fetched: list[Fetched] = []

    def begin(self, ranges: Iterable[Range], *, gap_bytes: int = GAP_BYTES) -> Fetched:
        """Begin to fetch some ranges, in as few requests as `joined` says, all at once; those in memory are not."""
        missing = [item for item in ranges if not self._has(*item)]
        return self._keep([(item, self._fetch(*item)) for item in joined(missing, gap_bytes=gap_bytes)])

    def fetch(self, start: int, stop: int) -> bytes:
        """Return a range from the storage, keeping nothing of it."""
        return self._fetch(start, stop).result()

    def keep(self, start: int, data: bytes) -> Fetched:
        """Take a range that was fetched before."""
        future: Future[bytes] = Future()
        future.set_result(data)
        return self._keep([((start, start + len(data)), future)])

    def _keep(self, parts: Sequence[tuple[Range, Future[bytes]]]) -> Fetched:
        self._fetched.append(Fetched(self, parts))
        return self._fetched[-1]

    def drop(self, fetched: Fetched) -> None:
        """Read from these ranges no more."""
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
        """Return bytes from a position on: up to `end`, or as far as what is in memory goes."""
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
    """A `RangeFile` as pyarrow wants it: an open object for which ranges can be fetched before they are read."""

    def __init__(self, ranges: RangeFile, mode: str = "r") -> None:
        del mode  # PythonFile took both when it was made
        super().__init__()
        self.ranges = ranges
