"""Decode records of one schema as columns: one step decodes a field of all records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.tableformat.iceberg.avro.boundaries import Boundaries
from tblctl.tableformat.iceberg.avro.chunk import Chunk, Cursor, Integers, Slices
from tblctl.tableformat.iceberg.avro.container import AvroError, Container
from tblctl.tableformat.iceberg.avro.runs import MOST_RECORDS, Runs
from tblctl.tableformat.iceberg.avro.types import (
    NUMBERS,
    TEXTS,
    WIDTHS,
    is_empty,
    is_number_pair,
    is_text_pair,
    type_name,
    width_of,
)

CHUNK_BYTES = 4 * 2**20
"""Bytes of blocks that are decoded at once. Tables of places take nine times as much memory. In smaller chunks, each
step costs more for a record.
"""


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


Reader = Callable[[Cursor], Any]


class Decoder:
    """Decodes the selected fields of the records of one schema.

    Raises:
        AvroError: the schema is none, or a selected field has no values of the kind selected.
    """

    def __init__(self, schema: Any, selection: Any) -> None:
        try:
            self._boundaries = Boundaries(schema, lambda prefix, names: _reader(prefix, None, names))
            self._read = _reader(schema, selection, {})
        except (KeyError, TypeError, AttributeError) as error:
            raise AvroError(f"its schema is damaged ({type(error).__name__}: {error})") from error
        except RecursionError as error:
            raise AvroError("its schema has a type within itself, which tblctl does not read") from error

    def decode(self, containers: Sequence[Container]) -> Iterator[tuple[int, Any, Integers]]:
        """Yield records of files, in order, chunk by chunk: how many, the selected fields, and the file of each.

        Raises:
            AvroError: a file is damaged.
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
            while end < len(blocks) and (end == begin or size + len(blocks[end][1]) <= CHUNK_BYTES):
                size += len(blocks[end][1])
                end += 1
            chosen = blocks[begin:end]
            files = np.repeat([file for file, _, _ in chosen], [count for _, _, count in chosen])
            yield len(files), self._decode(chosen), files
            begin = end

    def _decode(self, blocks: Sequence[tuple[int, bytes, int]]) -> Any:
        chunk = Chunk(b"".join([block for _, block, _ in blocks]))
        lengths = np.array([len(block) for _, block, _ in blocks], np.int64)
        ends = np.cumsum(lengths)
        counts = np.array([count for _, _, count in blocks], np.int64)
        at, block = self._boundaries.likely(chunk, ends - lengths, ends, counts)
        wrong = np.setdiff1d(np.arange(len(blocks)), block)
        passed: set[int] = set()
        while True:
            places, owners = [at[~np.isin(block, wrong)]], [block[~np.isin(block, wrong)]]
            for number in wrong.tolist():
                begin = int(ends[number] - lengths[number])
                _, block_bytes, count = blocks[number]
                places.append(begin + np.array(self._boundaries.certain(block_bytes, count), np.int64))
                owners.append(np.full(count, number))
            at, block = np.concatenate(places), np.concatenate(owners)
            order = np.argsort(at)
            at, block = at[order], block[order]
            passed.update(wrong.tolist())
            found, wrong = self._at(chunk, at, block, ends)
            if not len(wrong):
                return found
            if not passed.isdisjoint(wrong.tolist()):
                raise AvroError("a record does not end where its block or the next record does")

    def _at(self, chunk: Chunk, at: Integers, block: Integers, ends: Integers) -> tuple[Any, Integers]:
        """Decode records at their places. Return the fields, and the blocks in which places do not fit together."""
        limit = np.append(at[1:], ends[-1])
        last = np.flatnonzero(np.diff(block, append=len(ends)))
        limit[last] = ends[block[last]]
        cursor = Cursor(chunk, at.copy(), limit)
        found = self._read(cursor)
        return found, np.unique(block[(cursor.at != limit) | cursor.bad])


def _reader(schema: Any, selection: Any, names: dict[str, Any]) -> Reader:
    """Return a function that reads what is selected of a value, and passes over the rest; None selects nothing."""
    kind, full = type_name(schema, names)
    if isinstance(selection, Whole):
        return _whole(_reader(schema, None, names))
    if kind == "record":
        return _record(full, selection, names)
    if kind == "union":
        return _union(full, selection, names)
    if selection is not None and isinstance(selection, Entries) != (kind == "array"):
        raise AvroError(f"a selected field is a {kind}")
    if kind == "array":
        return _array(full, selection, names)
    if kind == "map":
        pair = {
            "type": "record",
            "fields": [{"name": "k", "type": "string"}, {"name": "v", "type": full["values"]}],
        }
        return _list(_reader(pair, None, names), least_bytes=1)
    return _plain(kind, full, wanted=selection is not None)


def _plain(kind: str, full: Any, *, wanted: bool) -> Reader:
    """Return the reader of a value without parts."""
    if kind == "null":
        return lambda cursor: np.zeros(len(cursor), np.int64)
    if kind in NUMBERS:
        return Cursor.long if wanted else lambda cursor: cursor.skip_numbers(1)
    if kind in TEXTS:
        return _text
    if kind in WIDTHS:
        return _fixed(*WIDTHS[kind])
    if kind == "fixed":
        width = width_of(full)
        return lambda cursor: _slices(cursor, np.full(len(cursor), width))
    raise AvroError(f"{kind!r} is no type of Avro")


def _text(cursor: Cursor) -> Slices:
    length = cursor.long()
    return _slices(cursor, length)


def _slices(cursor: Cursor, length: Integers) -> Slices:
    start = cursor.at
    cursor.jump(length)
    return Slices(data=cursor.chunk.data, start=start, length=length)


def _fixed(width: int, kind: str) -> Reader:
    def read(cursor: Cursor) -> np.ndarray:
        found = cursor.chunk.fixed(cursor.at, width, kind)
        cursor.jump(width)
        return found

    return read


def _whole(skip: Reader) -> Reader:
    def read(cursor: Cursor) -> Slices:
        start = cursor.at.copy()
        skip(cursor)
        return Slices(data=cursor.chunk.data, start=start, length=cursor.at - start)

    return read


def _record(full: Any, selection: Any, names: dict[str, Any]) -> Reader:
    chosen = selection if isinstance(selection, Mapping) else {}
    parts = []
    for field in full["fields"]:
        key = field.get("field-id", field["name"])
        parts.append((key, key in chosen, _reader(field["type"], chosen.get(key), names)))

    def read(cursor: Cursor) -> dict[int | str, Any]:
        found = {}
        for key, wanted, part in parts:
            value = part(cursor)
            if wanted:
                found[key] = value
        return found

    return read


def _union(branches: Sequence[Any], selection: Any, names: dict[str, Any]) -> Reader:
    """Return the reader of a union. If it is selected, it has at most one branch beside null."""
    kinds = [type_name(branch, names)[0] for branch in branches]
    if selection is not None and len(kinds) - kinds.count("null") > 1 and not isinstance(selection, Whole):
        raise AvroError(f"a selected field may be any of {kinds}")
    readers = [
        None if kind == "null" else _reader(branch, selection, names)
        for kind, branch in zip(kinds, branches, strict=True)
    ]

    def read(cursor: Cursor) -> Sparse:
        branch = cursor.long()
        count = len(cursor)
        wrong = (branch < 0) | (branch >= len(readers))
        if wrong.any():
            cursor.bad |= wrong
        found = Sparse(count=count, rows=np.zeros(0, np.int64), values=None)
        for number, inside in enumerate(readers):
            rows = np.flatnonzero(branch == number)
            if inside is None or not len(rows):
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
    pair = [type_name(field["type"], names)[0] for field in items["fields"]] if kind == "record" else []
    keys = selection.keys if isinstance(selection, Entries) else frozenset()
    if keys and is_number_pair(pair):
        return _number_pairs(keys)
    if is_text_pair(pair):
        return _text_pairs(keys)
    if keys:
        raise AvroError(f"a list of {kind} {pair} is no map with numbers as keys")
    if pair and all(part in NUMBERS for part in pair):
        return _skip_number_lists(len(pair))
    if kind in NUMBERS:
        return _skip_number_lists(1)
    empty = is_empty(full["items"], names)
    return _list(_reader(full["items"], None, names), least_bytes=0 if empty else 1)


def _blocks_of(cursor: Cursor, least_bytes: int) -> Iterator[tuple[Integers, Cursor, Integers]]:
    """Yield the blocks of a list, which are nearly always one: the records that have it, a cursor there, the counts."""
    rows = np.arange(len(cursor))
    while True:
        inner = cursor.take(rows)
        count = inner.counts(least_bytes)
        if not count.any():
            cursor.put(rows, inner)
            return
        yield rows, inner, count
        cursor.put(rows, inner)
        rows = rows[count > 0]


def _skip_number_lists(width: int) -> Reader:
    def read(cursor: Cursor) -> None:
        for _, inner, count in _blocks_of(cursor, width):
            inner.skip_numbers(count * width)

    return read


def _list(item: Reader, *, least_bytes: int) -> Reader:
    """Return a function that passes over a list of anything."""

    def read(cursor: Cursor) -> None:
        for _, inner, count in _blocks_of(cursor, least_bytes):
            for number in range(int(count.max()) if least_bytes else 0):
                rows = np.flatnonzero((count > number) & (inner.at < inner.limit))
                each = inner.take(rows)
                item(each)
                inner.put(rows, each)
                if not len(rows):
                    break

    return read


def _falling(count: Integers) -> tuple[Integers | None, Integers]:
    """Return the order of records from the one with the most items, None for any; and for each item who has it."""
    most = int(count.max())
    if most == count.min():
        return None, np.full(most, len(count))
    held = np.bincount(count, minlength=most + 1)
    return np.argsort(-count, kind="stable"), len(count) - np.cumsum(held)[:-1]


Chosen = dict[int, list[tuple[Integers, ...]]]
"""By key: rows that have it, and other columns of them, in parts."""


def _choose(found: Chosen, keys: frozenset[int], rows: Integers, key: Integers, *others: Integers) -> None:
    """Add the rows whose key is one of `keys`. Nearly always, all have the same."""
    if (key == key[0]).all():
        if int(key[0]) in keys:
            found.setdefault(int(key[0]), []).append((rows, *others))
        return
    for name in keys.intersection(np.unique(key).tolist()):
        places = np.flatnonzero(key == name)
        found.setdefault(name, []).append((rows[places], *(column[places] for column in others)))


def _by_key(found: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield each key, its rows, ascending, and other columns of them."""
    for key, parts in found.items():
        row, *others = (
            parts[0] if len(parts) == 1 else (np.concatenate(column) for column in zip(*parts, strict=True))
        )
        if not (row[1:] > row[:-1]).all():
            row, last = np.unique(
                row[::-1], return_index=True
            )  # a key that is there twice has the last value
            others = [column[::-1][last] for column in others]
        yield key, row, *others


def _choose_numbers(
    found: Chosen, keys: frozenset[int], rows: Integers, cursor: Cursor, count: Integers
) -> None:
    """Add the places of chosen values of all pairs at once, and pass over the pairs: for few records with many."""
    chunk = cursor.chunk
    owner = np.repeat(np.arange(len(rows)), count)
    item = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    at = np.where(item, chunk.number_at(chunk.rank(cursor.at)[owner] + 2 * item), cursor.at[owner])
    key, value_at = chunk.numbers(at)
    for name in keys:
        places = np.flatnonzero(key == name)
        if len(places):
            found.setdefault(name, []).append((rows[owner[places]], value_at[places]))
    cursor.skip_numbers(2 * count)


def _number_pairs(keys: frozenset[int]) -> Reader:
    def read(cursor: Cursor) -> dict[int, Sparse]:
        chosen: Chosen = {}
        chunk = cursor.chunk
        for rows, inner, count in _blocks_of(cursor, 2):
            if len(rows) <= MOST_RECORDS:
                _choose_numbers(chosen, keys, rows, inner, count)
                continue
            order, holders = _falling(count)
            place = inner.at if order is None else inner.at[order]
            first = chunk.rank(place)
            holding = rows if order is None else rows[order]
            for number, held in enumerate(holders.tolist()):
                at = place[:held] if number == 0 else chunk.number_at(first[:held] + 2 * number)
                key, value_at = chunk.numbers(at)
                _choose(chosen, keys, holding[:held], key, value_at)
            inner.skip_numbers(2 * count)
        return {
            key: Sparse(count=len(cursor), rows=row, values=chunk.numbers(at)[0])
            for key, row, at in _by_key(chosen)
        }

    return read


def _pass_text_pairs(
    found: Chosen, keys: frozenset[int], rows: Integers, cursor: Cursor, holders: Integers
) -> None:
    """Pass over pairs, and add the chosen. `holders` says for each pair how many records have it, the first ones."""
    runs, done = Runs(), 0
    while done < len(holders):
        held = int(holders[done])
        same = int(np.searchsorted(-holders, -held, side="right")) - done
        at = cursor.at[:held].copy()
        run = runs.next(cursor, held, same) if held <= MOST_RECORDS and same > 1 else None
        if run is None:
            key, start, length = cursor.text_pair(held)
            if keys:
                _choose(found, keys, rows[:held], key, start, length)
        else:
            for one, begin, size in run:
                if one in keys:
                    found.setdefault(one, []).append((rows[:held], at + begin, np.full(held, size)))
        done += 1 if run is None else len(run.keys)
        if cursor.bad[:held].all():
            return


def _text_pairs(keys: frozenset[int]) -> Reader:
    def read(cursor: Cursor) -> dict[int, Sparse]:
        chosen: Chosen = {}
        for rows, inner, count in _blocks_of(cursor, 2):
            order, holders = _falling(count)
            holding = rows if order is None else rows[order]
            ordered = inner if order is None else inner.take(order)
            _pass_text_pairs(chosen, keys, holding, ordered, holders)
            if order is not None:
                inner.put(order, ordered)
        return {
            key: Sparse(
                count=len(cursor),
                rows=row,
                values=Slices(data=cursor.chunk.data, start=start, length=length),
            )
            for key, row, start, length in _by_key(chosen)
        }

    return read
