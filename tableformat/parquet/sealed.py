"""Parquet files whose every byte is verified before it is parsed: blocks and segments.

Between the pages and the footer, where Parquet's readers read nothing, is a table with 16 bytes for each column chunk:
where the chunk ends, and the checksum of all bytes since the end of the chunk before (for the first chunk: since the
file's begin, so the magic is covered too). The `Seal`, stored outside the file, covers the file's end: all bytes after
the last chunk, including the table. So the end is read and verified first, then parsed. A column can still be read
alone.

Verifying costs less than the CRC-32 of pages that pyarrow offers, and also covers page headers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.tableformat.errors import CorruptTableError, InternalError
from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.parquet.checksum import checksum
from tblctl.tableformat.parquet.footer import MAGIC, TAIL_BYTES, footer_start, read_footer
from tblctl.tableformat.parquet.footer_check import check_footer
from tblctl.tableformat.storage.random_access import RandomAccessFile

_ENTRY = np.dtype([("end", "<u8"), ("checksum", "<u8")])

Fetch = Callable[[int, int], pa.Buffer]
"""Returns the bytes of a file between two offsets."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """An object's name in its table, and its name in messages."""

    name: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Sealed:
    """A file's content and its seal. The seal is stored in the metadata that names the file."""

    data: pa.Buffer
    seal: Seal
    metadata: pq.FileMetaData


def seal(pages: pa.Buffer, end: pa.Buffer) -> Sealed:
    """Return a file with its table of checksums.

    Args:
        pages: the bytes before the footer: the column chunks, one after the other.
        end: the bytes after them: page indexes if the writer makes any, then the footer.
    """
    metadata = pq.read_metadata(pa.BufferReader(end))
    ends = _ends(metadata, pages.size)
    data = memoryview(pages).cast("B")
    table = np.empty(len(ends), _ENTRY)
    table["end"] = ends
    table["checksum"] = [checksum(data[start:stop]) for start, stop in pairwise([0, *ends])]
    place = footer_start(end)
    tail = b"".join((end[:place], table.tobytes(), end[place:]))
    return Sealed(
        data=pa.py_buffer(b"".join((pages, tail))),
        seal=Seal(footer_bytes=len(tail), footer_checksum=checksum(tail)),
        metadata=metadata,
    )


def _ends(metadata: pq.FileMetaData, size: int) -> list[int]:
    """Return where each column chunk ends; they must follow each other and fill the file."""
    place = len(MAGIC)
    ends: list[int] = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in range(metadata.num_columns):
            chunk = group.column(column)
            start = chunk.data_page_offset
            if chunk.dictionary_page_offset is not None:
                start = min(start, chunk.dictionary_page_offset)
            if start != place:
                msg = f"column chunk {len(ends)} of a new file begins at byte {start}, expected {place}"
                raise InternalError(msg)
            place += chunk.total_compressed_size
            ends.append(place)
    if ends and place != size:
        msg = f"the column chunks of a new file end at byte {place}, expected {size}"
        raise InternalError(msg)
    return ends


def verified_end(place: Place, seal: Seal, size_bytes: int, data: pa.Buffer) -> pa.Buffer:
    """Return the verified end of a file from `data`, its last bytes: at least as many as the seal covers.

    Raises:
        CorruptTableError: the end is damaged.
    """
    if seal.footer_bytes > size_bytes:
        msg = f"{place.title}: a footer of {seal.footer_bytes} bytes in a file of {size_bytes}"
        raise CorruptTableError(msg, name=place.name)
    end = data if data.size <= seal.footer_bytes else data[-seal.footer_bytes :]
    if end.size != seal.footer_bytes or checksum(end) != seal.footer_checksum:
        msg = f"{place.title} is damaged: its footer differs from its checksum"
        raise CorruptTableError(msg, name=place.name)
    return end


class VerifiedFile(RandomAccessFile):
    """A sealed file for pyarrow. No byte is returned before its checksum is compared.

    Reads are widened to whole column chunks, which pyarrow reads anyway. Calls must not overlap.

    Raises, from every read:
        CorruptTableError: the bytes are damaged.
    """

    def __init__(
        self, place: Place, end: pa.Buffer, metadata: pq.FileMetaData, size_bytes: int, fetch: Fetch
    ) -> None:
        super().__init__(size_bytes)
        self._place = place
        self._end = end
        self._pages_bytes = size_bytes - end.size
        self._fetch = fetch
        stop = footer_start(end)
        count = metadata.num_row_groups * metadata.num_columns
        table = np.frombuffer(end[max(0, stop - count * _ENTRY.itemsize) : stop], _ENTRY)
        self._stops: list[int] = table["end"].tolist()
        self._checksums: list[int] = table["checksum"].tolist()
        if len(self._stops) != count or (count and self._stops[-1] != self._pages_bytes):
            self._refuse(f"its table of checksums is not for {count} column chunks")

    def read_at(self, start: int, stop: int) -> pa.Buffer:
        """Return verified bytes, without a copy unless they reach from the pages into the end."""
        if start >= self._pages_bytes:
            return self._end[start - self._pages_bytes : stop - self._pages_bytes]
        low, high = self.widened(start, stop)
        data = self._fetch(low, high)
        self.verify(low, high, memoryview(data).cast("B"))
        if stop <= self._pages_bytes:
            return data[start - low : stop - low]
        return pa.py_buffer(b"".join((data[start - low :], self._end[: stop - self._pages_bytes])))

    def whole(self) -> pa.Buffer:
        """Return all bytes, verified, without a copy."""
        data = self._fetch(0, self._size_bytes)
        self.verify(0, self._pages_bytes, memoryview(data).cast("B")[: self._pages_bytes])
        return data

    def widened(self, start: int, stop: int) -> tuple[int, int]:
        """Return the byte range that is verified together with some bytes of the pages."""
        first = bisect_right(self._stops, start)
        last = bisect_left(self._stops, min(stop, self._pages_bytes))
        return self._stops[first - 1] if first else 0, self._stops[last]

    def verify(self, low: int, high: int, data: memoryview) -> None:
        """Refuse `data`, the bytes read of whole column chunks, if they differ from their checksums.

        Raises:
            CorruptTableError: they differ.
        """
        if len(data) != high - low:
            self._refuse(f"it ends at byte {low + len(data)}")
        begin = low
        while begin < high:
            number = bisect_right(self._stops, begin)
            stop = self._stops[number]
            if checksum(data[begin - low : stop - low]) != self._checksums[number]:
                self._refuse(f"bytes {begin} to {stop} differ from their checksum")
            begin = stop

    def _refuse(self, why: str) -> None:
        msg = f"{self._place.title} is damaged: {why}"
        raise CorruptTableError(msg, name=self._place.name)


def open_verified(
    place: Place, seal: Seal, size_bytes: int, end: pa.Buffer, fetch: Fetch
) -> tuple[VerifiedFile, pq.FileMetaData]:
    """Return a sealed file whose last bytes are `end`, and its footer.

    Raises:
        CorruptTableError: the end is damaged.
    """
    verified = verified_end(place, seal, size_bytes, end)
    metadata = pq.read_metadata(pa.BufferReader(verified))
    return VerifiedFile(place, verified, metadata, size_bytes, fetch), metadata


def checked_footer(
    end: pa.Buffer, size_bytes: int, *, row_count: int, most_chunk_bytes: int
) -> pq.FileMetaData:
    """Return the footer in the verified end of a file, checked before pyarrow parses it.

    A checksum says that the bytes are those that somebody wrote, not that tblctl did: with some footers pyarrow ends
    the process. It takes 10 us for each column chunk. Scans of few columns would take twice as long, so blocks are
    looked at by `check --deep` only, segments always.

    Args:
        end: from `verified_end`.
        size_bytes: of the file.
        row_count: see `check_footer`.
        most_chunk_bytes: see there.

    Raises:
        ValueError: the footer contradicts itself, its file, or the arguments.
    """
    footer = read_footer(end[footer_start(end) : end.size - TAIL_BYTES].to_pybytes())
    check_footer(
        footer, pages_stop=size_bytes - end.size, row_count=row_count, most_chunk_bytes=most_chunk_bytes
    )
    return pq.read_metadata(pa.BufferReader(end))


def reader(source: Any) -> Fetch:
    """Return a function that reads bytes of an open file with `seek` and `read_buffer`. Calls must not overlap."""

    def fetch(start: int, stop: int) -> pa.Buffer:
        source.seek(start)
        return source.read_buffer(stop - start)

    return fetch
