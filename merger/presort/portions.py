"""Presorted rows: blocks are read, sorted, and cut into portions, one for each merge task that takes rows of them.

A merge task reads a portion like a block in key order. Fingerprints are compared at each step: decoded rows with
portions here, and portions with merged rows in `task/verify.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.merger.presort.decide import THRESHOLDS, Thresholds
from tblctl.merger.presort.sort_tasks import SortTask
from tblctl.merger.presort.spill import Pieces
from tblctl.merger.task.columns import Columns
from tblctl.merger.task.row_ranges import overlapping, own, within
from tblctl.merger.task.spec import ORDER_BYTES, InputSplit
from tblctl.merger.task.verify import Fingerprint, require_equal
from tblctl.tableformat.concurrency import in_parallel
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.keys.order import key_table, sort_indices
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.port import BlockIO, BlockReader

_RANKED_AT_ONCE = 1 << 20
_RANKING_BYTES = 24
"""What ranking takes for a row whose key is a number."""

_SORTING = Lock()
"""One thread of the process at a time puts all keys of a large block in order: this takes more memory than the rest."""

_READS = 8
"""Rows that are sorted at once are read in at least this many parts: the next part may be in memory too."""


class GiveBack(Protocol):
    """Called after much memory was freed, or before much is taken (`ProcessMemory.give_back`)."""

    def __call__(self, coming_bytes: int = 0, /) -> None:
        """Return free pages if the process would exceed its limit with so many bytes more."""


def keep_free_pages(coming_bytes: int = 0, /) -> None:
    """Return no free pages: a `GiveBack` where nobody limits the process."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Portion:
    """The rows that one merge task takes from rows sorted together, in key order.

    Attributes:
        place: of the sort task.
        number: of the run of rows that the sort task sorted at once, in reading order.
        rows: how many.
        row_bytes: approximate memory of a decoded row.
        bytes_read: bytes of files read for them.
        decoded: the fingerprint of the decoded rows.
        codable: text columns, by id, whose values are Arrow dictionaries.
        content: the rows, or pieces of them; the first piece has the keys.
    """

    place: int
    number: int
    rows: int
    row_bytes: float
    bytes_read: int
    decoded: Fingerprint
    codable: frozenset[int]
    content: pa.Table | Pieces

    @property
    def order(self) -> tuple[int, int]:
        """Its place among the inputs of a merge task."""
        return self.place, self.number

    @property
    def each_row_bytes(self) -> np.ndarray:
        """Approximate memory of each row, float32."""
        return np.full(self.rows, self.row_bytes, dtype=np.float32)

    def tables(self, schema: Schema, coded: Collection[int]) -> Iterator[pa.Table]:
        """Yield the rows, piece by piece; text of columns that are not `coded` is decoded."""
        plain = [leaf.name for leaf in schema.leaves if leaf.id in self.codable and leaf.id not in coded]
        if isinstance(self.content, pa.Table):
            yield _with_plain(self.content, plain)
            return
        for piece in range(1, len(self.content)):
            yield _with_plain(self.content.read(piece), plain)

    def keys(self, sort: Sort, schema: Schema) -> pa.Table:
        """Return their keys."""
        if isinstance(self.content, pa.Table):
            return key_table(self.content, sort, schema)
        return self.content.read(0)


def pieces(portion: Portion, task: SortTask, schema: Schema) -> Iterator[pa.Table]:
    """Yield the keys of a portion that is in memory, and then its rows piece by piece."""
    (rows,) = portion.tables(schema, portion.codable)
    yield key_table(rows, task.sort, schema)
    most_rows = max(1, int(task.piece_bytes / portion.row_bytes))
    for start in range(0, portion.rows, most_rows):
        yield rows.slice(start, most_rows)


def sorted_portions(
    io: BlockIO, task: SortTask, give_back: GiveBack = keep_free_pages, thresholds: Thresholds = THRESHOLDS
) -> Iterator[tuple[int, Portion]]:
    """Yield the portions of a sort task, each with the number of the merge task that takes it.

    Raises:
        CorruptTableError: a block is missing or damaged; named.
        VerificationError: the portions differ from the rows read.
    """
    opens = max(1, min(io.opens, task.sort_bytes * thresholds.sort_divisor // thresholds.reader_bytes))
    fits = task.sorting_bytes <= task.sort_bytes
    most_dictionary_bytes = task.piece_bytes // thresholds.dictionary_divisor
    for run in _all_at_once(io, task, opens) if fits else _little_by_little(io, task, give_back):
        yield from _portions_of(io, task, run, most_dictionary_bytes, give_back)


@dataclass(frozen=True, kw_only=True, eq=False)
class _SortedRun:
    """Rows that are sorted at once.

    Attributes:
        number: of the run in its sort task.
        rows: as read.
        order: the places of the rows, in key order.
        ranks: of the rows in key order, among all that the sort task sorts.
    """

    number: int
    rows: Columns
    order: np.ndarray
    ranks: np.ndarray


def _all_at_once(io: BlockIO, task: SortTask, opens: int) -> Iterator[_SortedRun]:
    """Yield all rows of the task's blocks as one run; `opens` blocks are read at the same time."""
    read = partial(_rows, io, _text_columns(io.schema, task.sort), task.sort_bytes)
    rows = _alike(in_parallel(read, task.splits, threads=opens))
    order = sort_indices(key_table(rows, task.sort, io.schema), task.sort).to_numpy()
    columns = Columns(rows)
    del rows
    yield _SortedRun(number=0, rows=columns, order=order, ranks=np.arange(len(order)))


def _little_by_little(io: BlockIO, task: SortTask, give_back: GiveBack) -> Iterator[_SortedRun]:
    """Yield the rows of the task's one block in runs of about the size that may be sorted at once."""
    (split,) = task.splits
    with io.open(split.block, coded=_text_columns(io.schema, task.sort)) as reader:
        ranks = None if split.is_ordered else _ranks(reader, task.sort, give_back)
        start = 0
        for number, rows in enumerate(_parts(reader, split, task.sort_bytes)):
            stop = start + rows.num_rows
            own_ranks = np.arange(start, stop) if ranks is None else ranks[start:stop]
            order = np.argsort(own_ranks)
            yield _SortedRun(number=number, rows=rows, order=order, ranks=own_ranks[order])
            start = stop


def _text_columns(schema: Schema, sort: Sort) -> frozenset[int]:
    """Return the columns, by id, that may be read as Arrow dictionaries: top-level ones outside of the key."""
    keys = frozenset(key_maker(sort).column_ids)
    return frozenset(leaf.id for leaf in schema.leaves if len(leaf.path) == 1 and leaf.id not in keys)


def _ranks(reader: BlockReader, sort: Sort, give_back: GiveBack) -> np.ndarray:
    """Return the place of each row of a block in key order: 4 bytes a row, and temporarily 8 and its key, twice."""
    with _SORTING:
        give_back(_RANKING_BYTES * sum(reader.group_rows))
        keys = reader.keys(range(len(reader.group_rows)), sort).combine_chunks()
        give_back(_RANKING_BYTES * keys.num_rows)
        order = sort_indices(keys, sort).to_numpy()
        del keys
        ranks = np.empty(len(order), dtype=np.uint32 if len(order) < 1 << 32 else np.int64)
        for start in range(0, len(order), _RANKED_AT_ONCE):
            places = order[start : start + _RANKED_AT_ONCE]
            ranks[places] = np.arange(start, start + len(places), dtype=ranks.dtype)
    return ranks


def _rows(io: BlockIO, coded: Collection[int], most_bytes: int, split: InputSplit) -> pa.Table:
    """Return the rows of a split; those of a large row group are decoded in parts."""
    with io.open(split.block, coded=coded) as reader:
        if split.rows == split.block.row_count:
            return reader.rows(range(len(reader.group_rows)))
        return pa.concat_tables(
            table
            for group, low, high in overlapping(reader.group_rows, split.start, split.stop)
            for table in _row_group(reader, group, low, high, most_bytes)
        )


def _parts(reader: BlockReader, split: InputSplit, most_bytes: int) -> Iterator[Columns]:
    """Yield the rows of a split, as many at a time as take about `most_bytes`."""
    waiting = _Waiting()
    for group, low, high in overlapping(reader.group_rows, split.start, split.stop):
        row_bytes = _row_bytes_of(reader, group)
        for table in _row_group(reader, group, low, high, most_bytes):
            if waiting.size_bytes and waiting.size_bytes + row_bytes * table.num_rows > most_bytes:
                yield waiting.handed_over()
            waiting.add(table, row_bytes * table.num_rows)
            del table
    yield waiting.handed_over()


class _Waiting:
    """Tables that wait to be sorted together."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self.size_bytes = 0.0

    def add(self, table: pa.Table, size_bytes: float) -> None:
        self._tables.append(table)
        self.size_bytes += size_bytes

    def handed_over(self) -> Columns:
        """Return all rows, and keep no reference to them."""
        tables, self._tables, self.size_bytes = self._tables, [], 0.0
        return Columns(pa.concat_tables(tables))


def _row_bytes_of(reader: BlockReader, group: int) -> float:
    return max(1.0, reader.group_bytes[group] / reader.group_rows[group] + ORDER_BYTES)


def _row_group(reader: BlockReader, group: int, low: int, high: int, most_bytes: int) -> Iterator[pa.Table]:
    """Yield some rows of a row group, each time a small part of what may be sorted at once."""
    most_rows = max(1, int(most_bytes / _READS / _row_bytes_of(reader, group)))
    if reader.group_rows[group] <= most_rows:
        yield own(reader.rows([group]), low, high)
        return
    yield from within(reader.batches(group, most_rows), low, high)


def _portions_of(
    io: BlockIO, task: SortTask, run: _SortedRun, most_dictionary_bytes: int, give_back: GiveBack
) -> Iterator[tuple[int, Portion]]:
    """Sort a run, and yield the portions that merge tasks take of it."""
    bounds = np.searchsorted(run.ranks, [(item.start, item.stop) for item in task.ranges])
    low, high = int(bounds.min()), int(bounds.max())
    if low == high:
        return
    rows, decoded = _in_order(
        run.rows, pa.array(run.order[low:high]), io.schema, most_dictionary_bytes, give_back
    )
    taken = [
        (item.task, rows.slice(start - low, stop - start))
        for item, (start, stop) in zip(task.ranges, bounds.tolist(), strict=True)
        if start < stop
    ]
    coded = _coded(rows.schema, io.schema)
    del rows
    fingerprints = [Fingerprint.of(table) for _, table in taken]
    if decoded is not None:
        require_equal(decoded, Fingerprint.total(fingerprints), task.title)
    size_bytes = sum(item.size_bytes for item in task.splits)
    all_rows = sum(item.rows for item in task.splits)
    for (number, table), fingerprint in zip(taken, fingerprints, strict=True):
        portion = Portion(
            place=task.place,
            number=run.number,
            rows=table.num_rows,
            row_bytes=_row_bytes(table, coded),
            bytes_read=size_bytes * table.num_rows // all_rows,
            decoded=fingerprint,
            codable=frozenset(coded.values()),
            content=table,
        )
        yield number, portion


def _in_order(
    rows: Columns, order: pa.Array, schema: Schema, most_dictionary_bytes: int, give_back: GiveBack
) -> tuple[pa.Table, Fingerprint | None]:
    """Return rows in an order, and the fingerprint of the decoded rows if the order has all of them.

    Columns are taken one after the other, and each is freed before the next. A dictionary is decoded if all kept
    dictionaries together would take more than `most_dictionary_bytes`.
    """
    is_whole = len(order) == rows.num_rows
    coded = _coded(rows.schema, schema)
    left_bytes = most_dictionary_bytes
    fields: list[pa.Field] = []
    columns: list[pa.Array | pa.ChunkedArray] = []
    fingerprints: dict[str, tuple[int, int, int]] = {}
    for place, item in enumerate(rows.schema):
        column = rows.take(place)
        if is_whole:
            fingerprints |= Fingerprint.of(pa.table({item.name: column})).columns
        dictionary_bytes = column.dictionary.nbytes if item.name in coded else 0
        if dictionary_bytes > left_bytes:
            column = column.cast(item.type.value_type)
        else:
            left_bytes -= dictionary_bytes
        give_back()
        fields.append(item.with_type(column.type))
        columns.append(_taken(column, order))
    return pa.table(columns, schema=pa.schema(fields)), Fingerprint(fingerprints) if is_whole else None


def _taken(column: pa.Array, order: pa.Array) -> pa.Array | pa.ChunkedArray:
    """Return values in an order. Nested values are taken in parts, since Arrow makes indices of all their values."""
    if not pa.types.is_nested(column.type):
        return pc.take(column, order, boundscheck=False)
    rows = max(1, -(-len(order) // _READS))
    parts = [
        pc.take(column, order.slice(start, rows), boundscheck=False) for start in range(0, len(order), rows)
    ]
    return pa.chunked_array(parts, column.type)


def _alike(tables: Sequence[pa.Table]) -> pa.Table:
    """Combine tables into one. Text that is not coded in all of them is decoded."""
    kinds = [set(types) for types in zip(*(table.schema.types for table in tables), strict=True)]
    names = [name for name, found in zip(tables[0].column_names, kinds, strict=True) if len(found) > 1]
    return pa.concat_tables([_with_plain(table, names) for table in tables])


def _with_plain(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return a table with plain values in some columns."""
    for name in names:
        column = table[name]
        if pa.types.is_dictionary(column.type):
            place = table.schema.get_field_index(name)
            item = table.schema.field(place).with_type(column.type.value_type)
            table = table.set_column(place, item, column.cast(item.type))
    return table


def _coded(rows: pa.Schema, schema: Schema) -> Mapping[str, int]:
    """Return the text columns, with their ids, whose values are Arrow dictionaries although the schema's are plain."""
    return {
        leaf.name: leaf.id
        for leaf in schema.leaves
        if len(leaf.path) == 1
        and pa.types.is_dictionary(rows.field(leaf.name).type)
        and not pa.types.is_dictionary(leaf.type)
    }


def _row_bytes(rows: pa.Table, coded: Collection[str]) -> float:
    """Return about what a row takes in memory, decoded."""
    size = rows.nbytes
    for name in coded:
        for chunk in rows[name].chunks:
            lengths = pc.binary_length(chunk.dictionary)
            size += pc.sum(pc.take(lengths, chunk.indices, boundscheck=False)).as_py() or 0
    return float(max(1.0, size / rows.num_rows))
