"""Parquet footers as trees, to copy row groups from one file to another undecoded. pyarrow 26 cannot do that.

A row group is the bytes of its column chunks, one after the other, and its entry in the footer. Its page index and
bloom filters lie elsewhere in the file and are copied too. Offsets are rewritten. Everything else stays, also unknown
fields. Nothing here does I/O. Source: parquet.thrift of parquet-format 2.12.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tblctl.tableformat.parquet.encodings import NUMBERS, TEXT, Encodings, batch_values
from tblctl.tableformat.parquet.thrift import (
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Struct,
    ThriftError,
    read_struct,
    write_struct,
)

MAGIC = b"PAR1"
TAIL_BYTES = 8  # the footer's length, and the magic

Fetch = Callable[[int, int], bytes | pa.Buffer]
"""Returns bytes of a file, by offset and number."""

# Field ids. FileMetaData:
_SCHEMA, _NUM_ROWS, _ROW_GROUPS = 2, 3, 4
# SchemaElement, and the member of LogicalType that is a UUID:
_FIELD_ID, _LOGICAL_TYPE, _UUID = 9, 10, 14
# RowGroup:
_COLUMNS, _GROUP_ROWS, _SORTING_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 3, 4, 5, 7
# ColumnChunk:
_CHUNK_OFFSET, _META_DATA = 2, 3
_OFFSET_INDEX, _COLUMN_INDEX = (4, 5), (6, 7)  # offset and length
# ColumnMetaData:
_ENCODINGS, _PATH, _VALUES, _UNCOMPRESSED, _COMPRESSED = 2, 3, 5, 6, 7
_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE = 9, 10, 11
_STATISTICS, _BLOOM = 12, (14, 15)
# Fields of Statistics: the greatest and the least value, and whether they are exact.
_IS_EXACT = 7, 8
_BOUNDS = {1, 2, 5, 6, *_IS_EXACT}
# OffsetIndex and PageLocation:
_PAGE_LOCATIONS, _PAGE_OFFSET = 1, 1
# PageHeader, and its number of values: in the header of a data page of version 1 or 2.
_PAGE_COMPRESSED, _CRC, _DATA_PAGES, _PAGE_VALUES = 3, 4, (5, 8), 1

_NAMED = {5: NUMBERS, 6: TEXT}
"""Encodings by their numbers in the format."""

_MOST_ORDINAL = 32_767


class PageError(ValueError):
    """The pages of a row group differ from its footer or from their own checksums."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RawGroup:
    """A row group as it is stored, without its pages.

    Attributes:
        entry: its entry in the footer.
        start: where its pages begin in the file.
        extras: for each column chunk its column index, offset index and bloom filter; None for none.
    """

    entry: Struct
    start: int
    extras: tuple[tuple[bytes | None, bytes | None, bytes | None], ...]

    def encodings(self) -> Encodings:
        """Return how its columns are encoded."""
        dictionaries: list[str] = []
        named: dict[str, str] = {}
        value_bytes = 0.0
        for _, meta in chunks_of(self.entry):
            value_bytes = max(value_bytes, meta[_UNCOMPRESSED][1] / max(meta[_VALUES][1], 1))
            path = b".".join(meta[_PATH][1][1]).decode()
            if meta.get(_DICTIONARY_PAGE, (I64, 0))[1] > 0:
                dictionaries.append(path)
                continue
            for number in set(meta[_ENCODINGS][1][1]) & _NAMED.keys():
                named[path] = _NAMED[number]
        return Encodings(dictionaries=dictionaries, named=named, batch_values=batch_values(value_bytes))


def footer_start(data: pa.Buffer) -> int:
    """Return where the footer begins in a Parquet file, or in the end of one. O(1)."""
    length = int.from_bytes(data[-TAIL_BYTES:-4].to_pybytes(), "little")
    if data.size < TAIL_BYTES or data[-4:].to_pybytes() != MAGIC or length > data.size - TAIL_BYTES:
        msg = f"{data.size} bytes that do not end with a Parquet footer"
        raise ValueError(msg)
    return int(data.size) - TAIL_BYTES - length


def read_footer(data: bytes) -> Struct:
    """Return the footer at the end of `data`, the bytes between a file's pages and its last 8.

    Raises:
        ThriftError: there is none.
    """
    footer, stop = read_struct(data)
    if stop != len(data) or any(field not in footer for field in (_NUM_ROWS, _ROW_GROUPS)):
        msg = f"no Parquet footer, or {len(data) - stop} bytes after it"
        raise ThriftError(msg)
    return footer


def footer_of(fetch: Callable[[int, int], pa.Buffer], size_bytes: int) -> tuple[Struct, int]:
    """Return the footer of a file, and where it begins. `fetch` returns the bytes between two offsets.

    Raises:
        ThriftError: there is none.
    """
    data, start = stored_footer(fetch, size_bytes)
    return read_footer(data), start


def stored_footer(fetch: Callable[[int, int], pa.Buffer], size_bytes: int) -> tuple[bytes, int]:
    """Return the bytes of the footer of a file, for `read_footer`, and where they begin. Arguments as in `footer_of`.

    Raises:
        ThriftError: there is none.
    """
    stop = size_bytes - TAIL_BYTES
    if stop < 0:
        msg = f"{size_bytes} bytes are not a Parquet file"
        raise ThriftError(msg)
    tail = bytes(fetch(stop, size_bytes))
    start = stop - int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or start < len(MAGIC):
        msg = "it does not end with a Parquet footer"
        raise ThriftError(msg)
    return bytes(fetch(start, stop)), start


def raw_group(
    footer: Struct, number: int, fetch: Fetch, *, verified: bool = False
) -> tuple[RawGroup, pa.Buffer]:
    """Return a row group whose column chunks lie one after the other, and its pages.

    `verified`: bytes from `fetch` are verified, so the pages need not be checked.

    Raises:
        PageError: the chunks do not follow each other, or the pages are damaged.
    """
    entry: Struct = footer[_ROW_GROUPS][1][1][number]
    chunks = list(chunks_of(entry))
    ends = [chunk_extent(meta) for _, meta in chunks]
    if any(stop != start for (_, stop), (start, _) in itertools.pairwise(ends)):
        msg = f"the column chunks of row group {number} do not follow each other"
        raise PageError(msg)
    start, stop = ends[0][0], ends[-1][1]
    found = fetch(start, stop - start)
    pages = found if isinstance(found, pa.Buffer) else pa.py_buffer(found)
    if pages.size != stop - start:
        msg = f"row group {number} has {stop - start} bytes, the file {pages.size} of them"
        raise PageError(msg)
    data = memoryview(pages).cast("B")  # (the memoryview of an Arrow buffer has signed bytes)
    for (_, meta), (first, last) in zip(chunks, ends, strict=True) if not verified else ():
        _check_pages(data[first - start : last - start], meta)
    extras = tuple(
        (
            _fetched(fetch, chunk, _COLUMN_INDEX),
            _fetched(fetch, chunk, _OFFSET_INDEX),
            _fetched(fetch, meta, _BLOOM),
        )
        for chunk, meta in chunks
    )
    return RawGroup(entry=entry, start=start, extras=extras), pages


def schema_elements(footer: Struct) -> list[Struct]:
    """Return the elements of a file's schema, the root first, without field ids."""
    elements: list[Struct] = footer[_SCHEMA][1][1]
    return [{key: value for key, value in item.items() if key != _FIELD_ID} for item in elements]


def has_exact_bounds(footer: Struct, number: int, place: int) -> bool:
    """Return whether the bounds of a column chunk are not truncated, according to its writer."""
    meta: Struct = footer[_ROW_GROUPS][1][1][number][_COLUMNS][1][1][place][_META_DATA][1]
    statistics: Struct = meta.get(_STATISTICS, (STRUCT, {}))[1]
    return all(statistics.get(field, (TRUE, True))[1] for field in _IS_EXACT)


def chunks_of(entry: Struct) -> Iterator[tuple[Struct, Struct]]:
    """Yield the column chunks of a row group, each with its metadata."""
    for chunk in entry[_COLUMNS][1][1]:
        yield chunk, chunk[_META_DATA][1]


def chunk_extent(meta: Struct) -> tuple[int, int]:
    """Return where the pages of a column chunk begin and end. An offset of 0 means that there is no such page."""
    offsets = [meta[field][1] for field in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE) if field in meta]
    start = min(offset for offset in offsets if offset > 0)
    return start, start + meta[_COMPRESSED][1]


def _fetched(fetch: Fetch, struct: Struct, fields: tuple[int, int]) -> bytes | None:
    """Return the bytes whose offset and length two fields of `struct` give; None without these, or without bytes."""
    if any(field not in struct for field in fields):
        return None
    start, size = (struct[field][1] for field in fields)
    return bytes(fetch(start, size))


def _check_pages(data: memoryview, meta: Struct) -> None:
    """Refuse pages that do not fill their chunk, lack values, or differ from their checksums (if they have any)."""
    place = values = 0
    while place < len(data):
        header, start = read_struct(data, place)
        place = start + header[_PAGE_COMPRESSED][1]
        if place > len(data):
            msg = f"a page ends {place - len(data)} bytes after its column chunk"
            raise PageError(msg)
        if _CRC in header and zlib.crc32(data[start:place]) != header[_CRC][1] & 0xFFFF_FFFF:
            msg = "a page differs from its checksum"
            raise PageError(msg)
        values += sum(header[field][1][_PAGE_VALUES][1] for field in _DATA_PAGES if field in header)
    if values != meta[_VALUES][1]:
        msg = f"the pages of a column chunk have {values} values, its metadata says {meta[_VALUES][1]}"
        raise PageError(msg)


@dataclass(frozen=True, kw_only=True)
class SortColumn:
    """A column that rows are sorted by; `place` counts the file's column chunks."""

    place: int
    descending: bool
    nulls_first: bool


def end_with_copies(
    end: pa.Buffer, start: int, groups: Sequence[tuple[RawGroup, int] | None], sorting: Sequence[SortColumn]
) -> pa.Buffer:
    """Return the end of a file, with a footer that also has the row groups copied in between.

    Args:
        end: the file's end from its writer: bloom filters if there are any, and a footer of its own row groups alone.
        start: where the end begins in the file.
        groups: all row groups in order: None for the writer's next one, else a copied one and its new start.
        sorting: the columns that rows are sorted by.
    """
    begin = footer_start(end)
    footer = read_footer(bytes(end[begin : end.size - TAIL_BYTES]))
    own = iter(footer[_ROW_GROUPS][1][1])
    extras = _Extras(start + begin)
    entries: list[Struct] = []
    for number, item in enumerate(groups):
        entry = dict(next(own)) if item is None else _moved(*item, extras)
        entry.pop(_ORDINAL, None)
        if number <= _MOST_ORDINAL:
            entry[_ORDINAL] = I16, number
        if sorting:
            entry[_SORTING_COLUMNS] = LIST, (STRUCT, [_sorting_column(column) for column in sorting])
        entries.append(_in_order(entry))
    rows = sum(entry[_GROUP_ROWS][1] for entry in entries)
    footer = {**footer, _NUM_ROWS: (I64, rows), _ROW_GROUPS: (LIST, (STRUCT, entries))}
    return pa.py_buffer(bytes(end[:begin]) + bytes(extras.data) + _ended(footer))


def without_bounds(end: pa.Buffer, places: Sequence[Collection[int]]) -> pa.Buffer:
    """Return the end of a file without the least and greatest values of some column chunks.

    Args:
        end: the file's end. Bytes before the footer stay where they are.
        places: for each row group the chunks, counted from 0.
    """
    start = footer_start(end)
    footer = read_footer(bytes(end[start : end.size - TAIL_BYTES]))
    for entry, chosen in zip(footer[_ROW_GROUPS][1][1], places, strict=True):
        for number, (_, meta) in enumerate(chunks_of(entry)):
            if number in chosen and _STATISTICS in meta:
                kept = {key: value for key, value in meta[_STATISTICS][1].items() if key not in _BOUNDS}
                meta[_STATISTICS] = STRUCT, kept
    return pa.py_buffer(bytes(end[:start]) + _ended(footer))


def with_uuids(end: pa.Buffer, ids: Collection[int]) -> pa.Buffer:
    """Return the end of a file in whose schema the 16-byte columns with these field ids are UUIDs."""
    start = footer_start(end)
    footer = read_footer(bytes(end[start : end.size - TAIL_BYTES]))
    for element in footer[_SCHEMA][1][1]:
        if element.get(_FIELD_ID, (I32, None))[1] in ids:
            element[_LOGICAL_TYPE] = STRUCT, {_UUID: (STRUCT, {})}
    return pa.py_buffer(bytes(end[:start]) + _ended(footer))


def _ended(footer: Struct) -> bytes:
    """Return a footer followed by its length and the magic."""
    data = write_struct(footer)
    return data + len(data).to_bytes(4, "little") + MAGIC


class _Extras:
    """The indexes and bloom filters of copied row groups. They lie after all row groups, from `start` on."""

    def __init__(self, start: int) -> None:
        self._start = start
        self.data = bytearray()

    def put(self, struct: Struct, fields: tuple[int, int], data: bytes | None) -> None:
        """Append data, and set two fields of `struct` to its place; for None, remove the fields."""
        for field in fields:
            struct.pop(field, None)
        if data is not None:
            offset, length = fields
            struct[offset] = I64, self._start + len(self.data)
            struct[length] = I32, len(data)
            self.data += data


def _moved(group: RawGroup, start: int, extras: _Extras) -> Struct:
    """Return the entry of a row group after its pages moved to `start`."""
    shift = start - group.start
    chunks = []
    for (chunk, meta), (columns, offsets, bloom) in zip(chunks_of(group.entry), group.extras, strict=True):
        moved = _shifted(meta, (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE), shift)
        extras.put(moved, _BLOOM, bloom)
        outer = _shifted({**chunk, _META_DATA: (STRUCT, _in_order(moved))}, (_CHUNK_OFFSET,), shift)
        extras.put(outer, _COLUMN_INDEX, columns)
        extras.put(outer, _OFFSET_INDEX, None if offsets is None else _shifted_index(offsets, shift))
        chunks.append(_in_order(outer))
    entry = {**group.entry, _COLUMNS: (LIST, (STRUCT, chunks))}
    return _shifted(entry, (_GROUP_OFFSET,), shift)


def _shifted(struct: Struct, fields: Sequence[int], shift: int) -> Struct:
    """Return a copy with shifted offsets. An offset of 0 means nothing, and stays."""
    changed = {
        field: (I64, struct[field][1] + shift) for field in fields if field in struct and struct[field][1] > 0
    }
    return {**struct, **changed}


def _shifted_index(data: bytes, shift: int) -> bytes:
    index, _ = read_struct(data)
    kind, pages = index[_PAGE_LOCATIONS][1]
    moved = [_shifted(page, (_PAGE_OFFSET,), shift) for page in pages]
    return write_struct({**index, _PAGE_LOCATIONS: (LIST, (kind, moved))})


def _sorting_column(column: SortColumn) -> Struct:
    return {
        1: (I32, column.place),
        2: _boolean(column.descending),
        3: _boolean(column.nulls_first),
    }


def _boolean(value: bool) -> tuple[int, Any]:
    return TRUE if value else FALSE, value


def _in_order(struct: Struct) -> Struct:
    return dict(sorted(struct.items()))
