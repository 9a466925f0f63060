"""Blocks of Avro records in memory, and cursors over them: a cursor has a place for each record.

Numbers end at the first byte below 128. A table of these bytes, made once, says where the n-th number after a place
ends. So a whole map of numbers is passed over in one step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

Integers = np.ndarray

_PADDING = 4_096
"""Zeros after a chunk: a damaged record may be read that far over its end before that is noticed."""

_MOST_NUMBER_BYTES = 10
"""Of a number with 64 bits. A longer one is damaged; the records that have it do not end where they should."""

_OF_ONE_BYTE = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(128)], np.int64)
"""The whole number that each byte below 128 encodes."""


_FROM = np.array([0xFF >> bit for bit in range(8)], np.uint8)
"""The bits of 8 places from one on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Slices:
    """Texts or encoded values of n records, by their places in a chunk. They ascend and do not overlap."""

    data: np.ndarray
    start: Integers
    length: Integers

    def __len__(self) -> int:
        return len(self.start)

    def to_arrow(self) -> pa.Array:
        """Return the values as large_binary. O(bytes)."""
        if not len(self):
            return pa.array([], pa.large_binary())
        offsets = np.empty(2 * len(self), np.int64)  # of values and of what lies between, in turn
        offsets[::2] = self.start
        offsets[1::2] = self.start + self.length
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        both = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
        return both.take(pa.array(np.arange(0, len(offsets), 2)))


class Chunk:
    """Blocks of records, one after the other, and where whole numbers in them end."""

    def __init__(self, data: bytes) -> None:
        self.bytes = data
        self.data = np.frombuffer(data + bytes(_PADDING), np.uint8)
        ends = self.data < 0x80  # noqa: PLR2004
        self._ends = np.flatnonzero(ends)
        self._bits = np.packbits(ends)
        self._rank = np.cumsum(np.bitwise_count(self._bits), dtype=np.int64)  # of the last place of each 8
        self._last = len(self.data) - 1

    def rank(self, at: Integers) -> Integers:
        """Return which number of all is the one that ends at or after a place."""
        at = np.minimum(at, self._last)
        eight = at >> 3
        rank: Integers = self._rank[eight] - np.bitwise_count(self._bits[eight] & _FROM[at & 7])
        return rank

    def number_at(self, rank: Integers) -> Integers:
        """Return the place where the number of a rank begins, if the one before it is a number too."""
        before: Integers = self._ends[np.minimum(np.maximum(rank - 1, 0), len(self._ends) - 1)]
        return before + 1

    def after_numbers(self, at: Integers, count: int | Integers) -> Integers:
        """Return the places after `count` whole numbers."""
        return np.where(np.equal(count, 0), at, self.number_at(self.rank(at) + count))

    def numbers(self, at: Integers) -> tuple[Integers, Integers]:
        """Return the whole numbers at places, and the places after them."""
        at = np.minimum(at, self._last)
        first = self.data[at]
        if first.max(initial=0) < 0x80:  # noqa: PLR2004
            return _OF_ONE_BYTE[first], at + 1
        end = self._ends[np.minimum(self.rank(at), len(self._ends) - 1)]
        value = (first & 0x7F).astype(np.uint64)
        length = end - at
        more = np.arange(len(at))
        for step in range(1, min(int(length.max(initial=0)) + 1, _MOST_NUMBER_BYTES)):
            more = more[length[more] >= step]
            part = (self.data[at[more] + step] & 0x7F).astype(np.uint64)
            value[more] |= part << np.uint64(7 * step)
        signed = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
        return signed, end + 1

    def fixed(self, at: Integers, width: int, kind: str) -> np.ndarray:
        """Return values of a fixed width."""
        at = np.minimum(at, self._last + 1 - width)
        return np.ascontiguousarray(self.data[at[:, None] + np.arange(width)]).view(kind)[:, 0]


class Cursor:
    """The places of records in a chunk, each at its next field, and where each record should end."""

    def __init__(self, chunk: Chunk, at: Integers, limit: Integers) -> None:
        self.chunk = chunk
        self.at = at
        self.limit = limit
        self.bad = np.zeros(len(at), bool)

    def __len__(self) -> int:
        return len(self.at)

    def long(self) -> Integers:
        """Read a whole number of each record."""
        found, self.at = self.chunk.numbers(self.at)
        return found

    def skip_numbers(self, count: int | Integers) -> None:
        """Pass over whole numbers."""
        self.at = self.chunk.after_numbers(self.at, count)

    def jump(self, lengths: int | Integers) -> None:
        """Pass over bytes. Records that would be left are marked, and stay at their end."""
        after = self.at + lengths
        wrong = (after > self.limit) | (after < self.at)
        if wrong.any():
            self.bad |= wrong
            after = np.where(wrong, self.limit, after)
        self.at = after

    def text_pair(self, held: int) -> tuple[Integers, Integers, Integers]:
        """Read a number and a text of each of the first `held` records: the numbers, and where the texts are."""
        at, limit = self.at[:held], self.limit[:held]
        key, after = self.chunk.numbers(at)
        length, start = self.chunk.numbers(after)
        after = start + length
        wrong = (after > limit) | (after < start)
        if wrong.any():
            self.bad[:held] |= wrong
            after = np.where(wrong, limit, after)
        self.at[:held] = after
        return key, start, length

    def counts(self, least_bytes: int) -> Integers:
        """Read how many items a block of a list has; its size in bytes is passed over.

        A count that the rest of the record cannot hold is marked and taken as 0, so that it costs no time and memory.
        """
        count = self.long()
        if (count < 0).any():
            sized = np.flatnonzero(count < 0)
            count[sized] = -count[sized]
            inner = self.take(sized)
            inner.skip_numbers(1)
            self.put(sized, inner)
        wrong = count < 0
        if least_bytes:
            wrong |= count > (self.limit - self.at) // least_bytes
        if wrong.any():
            self.bad |= wrong
            count[wrong] = 0
        return count

    def take(self, rows: Integers) -> Cursor:
        """Return a cursor of some records."""
        return Cursor(self.chunk, self.at[rows], self.limit[rows])

    def put(self, rows: Integers, inner: Cursor) -> None:
        """Go on where the cursor of some records stands."""
        self.at[rows] = inner.at
        self.bad[rows] |= inner.bad
