"""Decode records of one schema as columns: one step decodes a field of all records.

A cursor has a place for each record. Reading a field moves all of them. Numbers end at the first byte below 128, and
a table of these bytes, made once, says where the n-th number after a place ends. So a whole map of numbers is passed
over in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.tableformat.iceberg.avro.boundaries import Boundaries, type_name
from tblctl.tableformat.iceberg.avro.container import AvroError, Container

Integers = np.ndarray

_CHUNK_BYTES = 4 * 2**20
"""Bytes of blocks that are decoded at once. Tables of places take twelve times as much memory."""

_PADDING = 4_096
"""Zeros after a chunk: a damaged record may be read that far over its end before that is noticed."""

_OF_ONE_BYTE = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(128)], np.int64)
"""The whole number that each byte below 128 encodes."""

_WIDTHS = {"boolean": (1, "u1"), "float": (4, "<f4"), "double": (8, "<f8")}


@dataclass(frozen=True, kw_only=True, eq=False)
class Slices:
    """Texts or encoded values of n records, by their places in a chunk."""

    data: np.ndarray
    start: Integers
    length: Integers

    def __len__(self) -> int:
        return len(self.start)

    def to_arrow(self) -> pa.Array:
        """Return the values as large_binary. O(bytes)."""
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(self.length, out=offsets[1:])
        places = np.repeat(self.start - offsets[:-1], self.length) + np.arange(offsets[-1])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data[places])]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sparse:
    """Values that only some of n records have: `rows` are their numbers, ascending, `values` the values in order."""

    count: int
    rows: Integers
    values: Any

    def numbers(self, default: int) -> Integers:
        """Return whole numbers of all n records, with `default` where there is none."""
        found = np.full(self.count, default, np.int64)
        found[self.rows] = self.values
        return found

    def binary(self) -> pa.Array:
        """Return texts of all n records as large_binary, null where there is none."""
        if len(self.rows) == self.count:
            return self.values.to_arrow()
        take = np.full(self.count, -1, np.int64)
        take[self.rows] = np.arange(len(self.rows))
        return self.values.to_arrow().take(pa.array(take, mask=take < 0))


@dataclass(frozen=True, kw_only=True)
class Whole:
    """Selects a field as it is encoded, of any type."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """Selects a number, a text, or how many items a list has."""


@dataclass(frozen=True, kw_only=True)
class Entries:
    """Selects values of a list of pairs, a number and a value, by these numbers."""

    keys: frozenset[int]


Selection = "Mapping[int | str, Selection] | Whole | Value | Entries"
"""What to read. A record's fields are named by their `field-id`, or by name where they have none."""


class _Cursor:
    """The places of records in a chunk, each at its next field."""

    def __init__(self, chunk: _Chunk, at: Integers, limit: Integers) -> None:
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
        """Pass over bytes. Records that would leave their block are marked, and stay at its end."""
        after = self.at + lengths
        wrong = (after > self.limit) | (after < self.at)
        if wrong.any():
            self.bad |= wrong
            after = np.where(wrong, self.limit, after)
        self.at = after

    def counts(self) -> Integers:
        """Read how many items a block of a list has; its size in bytes is passed over."""
        count = self.long()
        if (count < 0).any():
            sized = np.flatnonzero(count < 0)
            count[sized] = -count[sized]
            inner = self.take(sized)
            inner.skip_numbers(1)
            self.put(sized, inner)
        wrong = (count > self.limit - self.at) | (count < 0)
        if wrong.any():
            self.bad |= wrong
            count[wrong] = 0
        return count

    def take(self, rows: Integers) -> _Cursor:
        """Return a cursor of some records."""
        return _Cursor(self.chunk, self.at[rows], self.limit[rows])

    def put(self, rows: Integers, inner: _Cursor) -> None:
        """Go on where the cursor of some records stands."""
        self.at[rows] = inner.at
        self.bad[rows] |= inner.bad


class _Chunk:
    """Blocks of records, one after the other, and where whole numbers in them end."""

    def __init__(self, data: bytes) -> None:
        padded = np.frombuffer(data + bytes(_PADDING), np.uint8)
        ends = padded < 0x80  # noqa: PLR2004
        self.data = padded
        self._ends = np.flatnonzero(ends)
        self._rank = np.empty(len(padded) + 1, np.int32)
        self._rank[0] = 0
        np.cumsum(ends, out=self._rank[1:])
        self._last = len(padded) - 1

    def after_numbers(self, at: Integers, count: int | Integers) -> Integers:
        """Return the places after `count` whole numbers."""
        place = np.minimum(self._rank[np.minimum(at, self._last)] + count, len(self._ends)) - 1
        return np.where(np.equal(count, 0), at, self._ends[place] + 1)

    def numbers(self, at: Integers) -> tuple[Integers, Integers]:
        """Return the whole numbers at places, and the places after them."""
        at = np.minimum(at, self._last)
        first = self.data[at]
        if first.max(initial=0) < 0x80:  # noqa: PLR2004
            return _OF_ONE_BYTE[first], at + 1
        end = self._ends[np.minimum(self._rank[at], len(self._ends) - 1)]
        value = (first & 0x7F).astype(np.uint64)
        length = end - at
        for step in range(1, int(length.max(initial=0)) + 1):
            if step > 9:  # noqa: PLR2004 (64 bits take 10 bytes; what is longer is damaged, and found to be later)
                break
            more = np.flatnonzero(length >= step)
            part = (self.data[at[more] + step] & 0x7F).astype(np.uint64)
            value[more] |= part << np.uint64(7 * step)
        signed = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
        return signed, end + 1

    def fixed(self, at: Integers, width: int, kind: str) -> np.ndarray:
        """Return values of a fixed width."""
        at = np.minimum(at, self._last + 1 - width)
        return np.ascontiguousarray(self.data[at[:, None] + np.arange(width)]).view(kind)[:, 0]


Reader = Callable[[_Cursor], Any]


class Decoder:
    """Decodes the selected fields of the records of one schema."""

    def __init__(self, schema: Any, selection: Any) -> None:
        self._boundaries = Boundaries(schema)
        self._read = _reader(schema, selection, {})

    def decode(self, containers: Sequence[Container]) -> Iterator[tuple[int, Any, Integers]]:
        """Yield records of files, in order, chunk by chunk: how many, the selected fields, and the file of each.

        Raises:
            AvroError: a file is damaged; `args[1]` is its number.
        """
        blocks = [
            (file, block, count)
            for file, container in enumerate(containers)
            for block, count in zip(container.blocks, container.counts, strict=True)
            if count
        ]
        begin = 0
        while begin < len(blocks):
            end, size = begin, 0
            while end < len(blocks) and (end == begin or size + len(blocks[end][1]) <= _CHUNK_BYTES):
                size += len(blocks[end][1])
                end += 1
            chosen = blocks[begin:end]
            files = np.repeat([file for file, _, _ in chosen], [count for _, _, count in chosen])
            yield len(files), self._decode(chosen), files
            begin = end

    def _decode(self, blocks: Sequence[tuple[int, bytes, int]]) -> Any:
        data = b"".join(block for _, block, _ in blocks)
        chunk = _Chunk(data)
        ends = np.cumsum([len(block) for _, block, _ in blocks])
        likely: list[list[int] | None] = []
        begin = 0
        for (_, _, count), end in zip(blocks, ends.tolist(), strict=True):
            likely.append(self._boundaries.likely(data, begin, end, count))
            begin = end
        guessed = [found is not None for found in likely]
        while True:
            wrong: set[int] = {number for number, found in enumerate(likely) if found is None}
            if not wrong:
                found, wrong = self._at(chunk, [starts or [] for starts in likely], ends)
            if not wrong:
                return found
            for number in wrong:
                if not guessed[number] and likely[number] is not None:
                    raise AvroError("a record does not end where its block or the next record does", blocks[number][0])
                likely[number] = self._certain(data, ends, number, blocks[number])
                guessed[number] = False

    def _certain(self, data: bytes, ends: Integers, number: int, block: tuple[int, bytes, int]) -> list[int]:
        begin = int(ends[number - 1]) if number else 0
        try:
            return self._boundaries.certain(data, begin, int(ends[number]), block[2])
        except AvroError as error:
            raise AvroError(str(error), block[0]) from error

    def _at(self, chunk: _Chunk, starts: Sequence[Sequence[int]], ends: Integers) -> tuple[Any, set[int]]:
        """Decode records at their places. Return the fields, and the blocks in which places do not fit together."""
        counts = [len(places) for places in starts]
        at = np.fromiter((place for places in starts for place in places), np.int64, sum(counts))
        block = np.repeat(np.arange(len(starts)), counts)
        cursor = _Cursor(chunk, at, ends[block])
        found = self._read(cursor)
        expected = np.append(at[1:], ends[-1])
        last = np.cumsum(counts) - 1
        expected[last] = ends
        wrong = (cursor.at != expected) | cursor.bad
        return found, set(block[wrong].tolist())


def _reader(schema: Any, selection: Any, names: dict[str, Any]) -> Reader:
    """Return a function that reads what is selected of a value, and passes over the rest; None selects nothing."""
    kind, full = type_name(schema, names)
    if isinstance(selection, Whole):
        return _whole(_reader(schema, None, names))
    if kind == "record":
        return _record(full, selection, names)
    if kind == "union":
        return _union([_reader(branch, selection, names) for branch in full], _null_of(full, names))
    if kind == "array":
        return _array(full, selection, names)
    if kind == "map":
        pairs = {"type": "record", "fields": [{"name": "k", "type": "string"}, {"name": "v", "type": full["values"]}]}
        return _list(_reader(pairs, None, names), counted=selection is not None)
    return _plain(kind, full, wanted=selection is not None)


def _plain(kind: str, full: Any, *, wanted: bool) -> Reader:
    """Return the reader of a value without parts."""
    if kind == "null":
        return lambda cursor: np.zeros(len(cursor), np.int64)
    if kind in ("int", "long", "enum"):
        return _Cursor.long if wanted else lambda cursor: cursor.skip_numbers(1)
    if kind in ("string", "bytes"):
        return _text
    if kind in _WIDTHS:
        return _fixed(*_WIDTHS[kind])
    if kind == "fixed":
        return lambda cursor: _slices(cursor, np.full(len(cursor), int(full["size"])))
    raise AvroError(f"{kind!r} is no type of Avro")


def _text(cursor: _Cursor) -> Slices:
    length = cursor.long()
    return _slices(cursor, length)


def _slices(cursor: _Cursor, length: Integers) -> Slices:
    start = cursor.at
    cursor.jump(length)
    return Slices(data=cursor.chunk.data, start=start, length=np.where(cursor.bad, 0, length))


def _fixed(width: int, kind: str) -> Reader:
    def read(cursor: _Cursor) -> np.ndarray:
        found = cursor.chunk.fixed(cursor.at, width, kind)
        cursor.jump(width)
        return found

    return read


def _whole(skip: Reader) -> Reader:
    def read(cursor: _Cursor) -> Slices:
        start = cursor.at.copy()
        skip(cursor)
        return Slices(data=cursor.chunk.data, start=start, length=np.maximum(cursor.at - start, 0))

    return read


def _record(full: Any, selection: Any, names: dict[str, Any]) -> Reader:
    chosen = selection if isinstance(selection, Mapping) else {}
    parts = []
    for field in full["fields"]:
        key = field.get("field-id", field["name"])
        parts.append((key, key in chosen, _reader(field["type"], chosen.get(key), names)))

    def read(cursor: _Cursor) -> dict[int | str, Any]:
        found = {}
        for key, wanted, part in parts:
            value = part(cursor)
            if wanted:
                found[key] = value
        return found

    return read


def _null_of(branches: Sequence[Any], names: dict[str, Any]) -> int | None:
    kinds = [type_name(branch, names)[0] for branch in branches]
    return kinds.index("null") if "null" in kinds else None


def _union(branches: Sequence[Reader], null: int | None) -> Reader:
    """Return the reader of a union with at most one branch beside null that has values."""

    def read(cursor: _Cursor) -> Sparse:
        branch = cursor.long()
        count = len(cursor)
        cursor.bad |= (branch < 0) | (branch >= len(branches))
        found = Sparse(count=count, rows=np.zeros(0, np.int64), values=None)
        for number, inside in enumerate(branches):
            rows = np.flatnonzero(branch == number)
            if number == null or not len(rows):
                continue
            if len(rows) == count:
                return Sparse(count=count, rows=rows, values=inside(cursor))
            inner = cursor.take(rows)
            found = Sparse(count=count, rows=rows, values=inside(inner))
            cursor.put(rows, inner)
        return found

    return read


def _array(full: Any, selection: Any, names: dict[str, Any]) -> Reader:
    kind, items = type_name(full["items"], names)
    pairs = [type_name(field["type"], names)[0] for field in items["fields"]] if kind == "record" else []
    if isinstance(selection, Entries):
        if pairs == ["int", "long"] or pairs == ["int", "int"]:
            return _number_pairs(selection.keys)
        if len(pairs) == 2 and pairs[0] == "int" and pairs[1] in ("bytes", "string"):  # noqa: PLR2004
            return _text_pairs(selection.keys)
        raise AvroError(f"a list of {kind} {pairs} is no map with numbers as keys")
    numbers = {"int": 1, "long": 1, "enum": 1}
    width = sum(numbers.get(pair, 99) for pair in pairs) if pairs else numbers.get(kind, 99)
    if width < 99:  # noqa: PLR2004
        return _skip_number_lists(width, counted=selection is not None)
    if selection is None and len(pairs) == 2 and pairs[0] == "int" and pairs[1] in ("bytes", "string"):  # noqa: PLR2004
        return _text_pairs(frozenset())
    return _list(_reader(full["items"], None, names), counted=selection is not None)


def _blocks_of(cursor: _Cursor) -> Iterator[tuple[Integers, _Cursor, Integers]]:
    """Yield the blocks of a list, which are nearly always one: the records that have it, a cursor there, the counts."""
    rows = np.arange(len(cursor))
    while True:
        inner = cursor.take(rows)
        count = inner.counts()
        if not count.any():
            cursor.put(rows, inner)
            return
        yield rows, inner, count
        cursor.put(rows, inner)
        rows = rows[count > 0]


def _skip_number_lists(width: int, *, counted: bool) -> Reader:
    def read(cursor: _Cursor) -> Integers | None:
        total = np.zeros(len(cursor), np.int64)
        for rows, inner, count in _blocks_of(cursor):
            total[rows] += count
            inner.skip_numbers(count * width)
        return total if counted else None

    return read


def _list(item: Reader, *, counted: bool) -> Reader:
    def read(cursor: _Cursor) -> Integers | None:
        total = np.zeros(len(cursor), np.int64)
        for rows, inner, count in _blocks_of(cursor):
            total[rows] += count
            for _, _, _ in _each_item(inner, count, item):
                pass
        return total if counted else None

    return read


def _each_item(cursor: _Cursor, count: Integers, item: Reader) -> Iterator[tuple[Integers, _Cursor, Any]]:
    """Read the first item of each record, then the second, and so on."""
    for number in range(int(count.max(initial=0))):
        rows = np.flatnonzero(count > number)
        if len(rows) == len(cursor):
            yield rows, cursor, item(cursor)
            continue
        inner = cursor.take(rows)
        found = item(inner)
        cursor.put(rows, inner)
        yield rows, inner, found


def _number_pairs(keys: frozenset[int]) -> Reader:
    wanted = np.array(sorted(keys), np.int64)

    def read(cursor: _Cursor) -> dict[int, Sparse]:
        parts: list[tuple[Integers, Integers, Integers]] = []
        chunk = cursor.chunk
        for rows, inner, count in _blocks_of(cursor):
            pairs = np.repeat(np.arange(len(rows)), count)
            number = np.arange(len(pairs)) - np.repeat(np.cumsum(count) - count, count)
            key_at = chunk.after_numbers(inner.at[pairs], 2 * number)
            key, value_at = chunk.numbers(key_at)
            chosen = np.isin(key, wanted)
            value, _ = chunk.numbers(value_at[chosen])
            parts.append((rows[pairs[chosen]], key[chosen], value))
            inner.skip_numbers(2 * count)
        return _by_key(parts, wanted, len(cursor))

    return read


def _by_key(
    parts: Sequence[tuple[Integers, Integers, Integers]], keys: Integers, count: int
) -> dict[int, Sparse]:
    found = {}
    for key in keys.tolist():
        rows = [rows[mine] for rows, held, _ in parts if len(mine := np.flatnonzero(held == key))]
        values = [values[mine] for _, held, values in parts if len(mine := np.flatnonzero(held == key))]
        if rows:
            found[key] = Sparse(count=count, rows=np.concatenate(rows), values=np.concatenate(values))
    return found


def _text_pairs(keys: frozenset[int]) -> Reader:
    wanted = np.array(sorted(keys), np.int64)

    def pair(cursor: _Cursor) -> tuple[Integers | None, Slices]:
        key = cursor.long() if len(wanted) else cursor.skip_numbers(1)
        return key, _text(cursor)

    def read(cursor: _Cursor) -> dict[int, Sparse]:
        parts: list[tuple[Integers, Integers, Integers, Integers]] = []
        for rows, inner, count in _blocks_of(cursor):
            for places, _, (key, text) in _each_item(inner, count, pair):
                if key is None:
                    continue
                chosen = np.flatnonzero(np.isin(key, wanted))
                if len(chosen):
                    parts.append((rows[places[chosen]], key[chosen], text.start[chosen], text.length[chosen]))
        if not parts:
            return {}
        row, key, start, length = (np.concatenate(column) for column in zip(*parts, strict=True))
        found = {}
        for name in wanted.tolist():
            mine = np.flatnonzero(key == name)
            mine = mine[np.argsort(row[mine], kind="stable")]
            if len(mine):
                slices = Slices(data=cursor.chunk.data, start=start[mine], length=length[mine])
                found[name] = Sparse(count=len(cursor), rows=row[mine], values=slices)
        return found

    return read
