"""Rows that are read once and sorted, and portioned out to the merge tasks that take them, as `decide.py` decides.

A portion is merged as a block in key order would be. What was decoded is compared with the portions here, and the
portions with what is merged there (`task/verify.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.merger.presort.decide import ORDER_BYTES, SORT_SHARE, SortTask, portioned_bytes, sort_tasks
from tblctl.merger.presort.spill import Pieces, Scratch
from tblctl.merger.task.row_ranges import overlapping, own, within
from tblctl.merger.task.spec import MergeTask, Slice
from tblctl.merger.task.verify import Fingerprint, require_equal
from tblctl.tableformat.concurrency import in_parallel
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.keys.order import key_table, sort_indices
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.port import BlockIO, BlockReader

_PARTS = 8
"""What is sorted at once comes in so many parts at least, as the next one may be in memory too."""

_WORDS_SHARE = 16
"""Text stays in the dictionaries that it is stored in while these together take less of a piece: each has them."""

READER_BYTES = 64 << 20
"""Of memory, for each block that is opened at once where that waits for a network."""

HELD_SHARE = 4
"""Portions that take more of a task's memory go to the scratch folder."""


Bound = Callable[[], None]
"""Is called where much memory was let go of (`task/memory.py`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Portion:
    """The rows that one merge task takes of what was sorted together, in key order.

    Attributes:
        place: of the sort task.
        number: of what it sorted at once, in the order of the blocks' rows.
        rows: how many.
        row_bytes: about what one takes in memory, decoded.
        bytes_read: of files, for them.
        read: their fingerprint, as they were decoded.
        codable: columns of text, by id, whose values are Arrow dictionaries.
        content: the rows; or as pieces, the first of which has the keys.
    """

    place: int
    number: int
    rows: int
    row_bytes: float
    bytes_read: int
    read: Fingerprint
    codable: frozenset[int]
    content: pa.Table | Pieces

    @property
    def order(self) -> tuple[int, int]:
        """Its place among the parts of a merge task."""
        return self.place, self.number

    def tables(self, schema: Schema, coded: Collection[int]) -> Iterator[pa.Table]:
        """Yield the rows, piece by piece; text of columns that are not `coded` is decoded."""
        decoded = [leaf.name for leaf in schema.leaves if leaf.id in self.codable and leaf.id not in coded]
        if isinstance(self.content, pa.Table):
            yield _with_plain(self.content, decoded)
            return
        for piece in range(1, len(self.content)):
            yield _with_plain(self.content.read(piece), decoded)

    def keys(self, sort: Sort, schema: Schema) -> pa.Table:
        """Return their keys."""
        if isinstance(self.content, pa.Table):
            return key_table(self.content, sort, schema)
        return self.content.read(0)


def portions(io: BlockIO, task: SortTask, bound: Bound = lambda: None) -> Iterator[tuple[int, Portion]]:
    """Yield the portions of a sort task, each with the number of the merge task that takes it.

    Raises:
        CorruptTableError: a block is missing or damaged; named.
        VerificationError: the portions are not what was read.
    """
    coded = _text(io.schema, task.sort)
    if task.decoded_bytes <= task.sort_bytes:
        opens = max(1, min(io.opens, task.sort_bytes * SORT_SHARE // READER_BYTES))
        read = partial(_rows, io, coded, task.sort_bytes)
        given = [_alike(in_parallel(read, task.slices, threads=opens))]
        order = sort_indices(key_table(given[0], task.sort, io.schema), task.sort).to_numpy()
        yield from _portioned(io, task, given, _Order(0, order, np.arange(len(order))), bound)
        return
    (part,) = task.slices
    with io.open(part.block, coded=coded) as reader:
        ranks = None if part.is_ordered else _ranks(reader, task.sort)
        first = 0
        for number, given in enumerate(_stretches(reader, part, task.sort_bytes)):
            stop = first + given[0].num_rows
            mine = np.arange(first, stop) if ranks is None else ranks[first:stop]
            first = stop
            order = np.argsort(mine)
            yield from _portioned(io, task, given, _Order(number, order, mine[order]), bound)


def _text(schema: Schema, sort: Sort) -> frozenset[int]:
    """Return the columns that are not of the key, by id, whose values may be Arrow dictionaries if blocks have them."""
    keys = frozenset(key_maker(sort).column_ids)
    return frozenset(leaf.id for leaf in schema.leaves if len(leaf.path) == 1 and leaf.id not in keys)


def _ranks(reader: BlockReader, sort: Sort) -> np.ndarray:
    """Return the place of each row of a block in key order."""
    keys = reader.keys(range(len(reader.group_rows)), sort).combine_chunks()
    ranks = np.empty(keys.num_rows, dtype=np.int64)
    ranks[sort_indices(keys, sort).to_numpy()] = np.arange(keys.num_rows)
    return ranks


def _rows(io: BlockIO, coded: Collection[int], most_bytes: int, part: Slice) -> pa.Table:
    """Return what is to be read of a block; of larger row groups so much at a time."""
    with io.open(part.block, coded=coded) as reader:
        if part.stop - part.start == part.block.row_count:
            return reader.rows(range(len(reader.group_rows)))
        return pa.concat_tables(
            table
            for group, low, high in overlapping(reader.group_rows, part.start, part.stop)
            for table in _group(reader, group, low, high, most_bytes)
        )


def _alike(tables: Sequence[pa.Table]) -> pa.Table:
    """Return tables as one; text that is not coded in each of them is decoded."""
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
    """Return the columns of text, with their ids, whose values are Arrow dictionaries, which the schema has not."""
    return {
        leaf.name: leaf.id
        for leaf in schema.leaves
        if len(leaf.path) == 1
        and pa.types.is_dictionary(rows.field(leaf.name).type)
        and not pa.types.is_dictionary(leaf.type)
    }


def _in_order(
    given: list[pa.Table], order: pa.Array, coded: Collection[str], most_words: int, bound: Bound
) -> tuple[pa.Table, Fingerprint | None]:
    """Return rows in an order, and if that has all of them their fingerprint as they are `given`.

    `given` is a list that they are taken out of; they are let go of column by column. Dictionaries of `coded` columns
    are decoded if they together would take more than `most_words` bytes.
    """
    rows = given.pop()
    is_whole = len(order) == rows.num_rows
    fields, columns = list(rows.schema), rows.columns[::-1]
    del rows
    taken: list[pa.Array | pa.ChunkedArray] = []
    found: dict[str, tuple[int, int, int]] = {}
    for place, item in enumerate(fields):
        column = columns.pop()
        if is_whole:
            found |= Fingerprint.of(pa.table({item.name: column})).columns
        column = column.combine_chunks()
        words = column.dictionary.nbytes if item.name in coded else 0
        if words > most_words:
            fields[place] = item.with_type(item.type.value_type)
            column = column.cast(item.type.value_type)
        else:
            most_words -= words
        bound()
        taken.append(_take(column, order))
    return pa.table(taken, schema=pa.schema(fields)), Fingerprint(found) if is_whole else None


def _take(column: pa.Array, order: pa.Array) -> pa.Array | pa.ChunkedArray:
    """Return values in an order; nested ones in parts, since Arrow makes indices of all values in them meanwhile."""
    if not pa.types.is_nested(column.type):
        return pc.take(column, order, boundscheck=False)
    rows = max(1, -(-len(order) // _PARTS))
    parts = [
        pc.take(column, order.slice(start, rows), boundscheck=False) for start in range(0, len(order), rows)
    ]
    return pa.chunked_array(parts, column.type)


def _row_bytes(rows: pa.Table, coded: Collection[str]) -> float:
    """Return about what a row takes in memory, decoded."""
    size = rows.nbytes
    for name in coded:
        for chunk in rows[name].chunks:
            lengths = pc.binary_length(chunk.dictionary)
            size += pc.sum(pc.take(lengths, chunk.indices, boundscheck=False)).as_py() or 0
    return float(max(1.0, size / rows.num_rows))


def _stretches(reader: BlockReader, part: Slice, most_bytes: int) -> Iterator[list[pa.Table]]:
    """Yield what is to be read of a block, as many rows at once as take about `most_bytes`, each in a list of one."""
    some: list[pa.Table] = []
    table: pa.Table | None = None
    size = 0.0
    for group, low, high in overlapping(reader.group_rows, part.start, part.stop):
        for table in _group(reader, group, low, high, most_bytes):
            table_bytes = _row_bytes_of(reader, group) * table.num_rows
            if some and size + table_bytes > most_bytes:
                given, some, size = [pa.concat_tables(some)], [], 0.0
                yield given
            some.append(table)
            size += table_bytes
    given = [pa.concat_tables(some)]
    del some, table
    yield given


def _row_bytes_of(reader: BlockReader, group: int) -> float:
    return max(1.0, reader.group_bytes[group] / reader.group_rows[group] + ORDER_BYTES)


def _group(reader: BlockReader, group: int, low: int, high: int, most_bytes: int) -> Iterator[pa.Table]:
    """Yield some rows of a row group, at once a small part of so many bytes, of which they are a part."""
    most_rows = max(1, int(most_bytes / _PARTS / _row_bytes_of(reader, group)))
    if reader.group_rows[group] <= most_rows:
        yield own(reader.rows([group]), low, high)
        return
    yield from within(reader.batches(group, most_rows), low, high)


class _Order(NamedTuple):
    """Of what a sort task sorts at once.

    Attributes:
        number: in the order of what is read.
        order: the places of the rows, in key order.
        ranks: of the rows in key order, among all that the task sorts.
    """

    number: int
    order: np.ndarray
    ranks: np.ndarray


def _portioned(
    io: BlockIO, task: SortTask, given: list[pa.Table], order: _Order, bound: Bound
) -> Iterator[tuple[int, Portion]]:
    """Yield the portions of the rows in `given`, a list that they are taken out of."""
    bounds = np.searchsorted(order.ranks, [(taker.start, taker.stop) for taker in task.takers])
    low, high = int(bounds.min()), int(bounds.max())
    if low == high:
        return
    coded = _coded(given[0].schema, io.schema)
    most_words = task.piece_bytes // _WORDS_SHARE
    rows, read = _in_order(given, pa.array(order.order[low:high]), coded, most_words, bound)
    coded = _coded(rows.schema, io.schema)
    taken = [
        (taker.number, rows.slice(start - low, stop - start))
        for taker, (start, stop) in zip(task.takers, bounds.tolist(), strict=True)
        if start < stop
    ]
    del rows
    found = [Fingerprint.of(table) for _, table in taken]
    if read is not None:
        require_equal(read, Fingerprint.total(found), task.title)
    size_bytes = sum(
        part.block.size_bytes * (part.stop - part.start) // part.block.row_count for part in task.slices
    )
    all_rows = sum(part.stop - part.start for part in task.slices)
    for (taker, table), fingerprint in zip(taken, found, strict=True):
        yield (
            taker,
            Portion(
                place=task.place,
                number=order.number,
                rows=table.num_rows,
                row_bytes=_row_bytes(table, coded),
                bytes_read=size_bytes * table.num_rows // all_rows,
                read=fingerprint,
                codable=frozenset(coded.values()),
                content=table,
            ),
        )


def pieces(portion: Portion, task: SortTask, schema: Schema) -> Iterator[pa.Table]:
    """Yield the keys of a portion that is in memory, and then its rows piece by piece."""
    (rows,) = portion.tables(schema, portion.codable)
    yield key_table(rows, task.sort, schema)
    most_rows = max(1, int(task.piece_bytes / portion.row_bytes))
    for start in range(0, portion.rows, most_rows):
        yield rows.slice(start, most_rows)


Portions = list[tuple[int, Portion]]
"""Of a sort task, each with the number of the merge task that takes it."""


def sort_work(
    io: BlockIO, tasks: Sequence[MergeTask], scratch: Scratch, bound: Bound
) -> tuple[Callable[[SortTask], Portions], tuple[SortTask, ...]]:
    """Return what sorts the rows that neighbouring tasks of a group are portioned out, and the sort tasks for it.

    Portions stay in memory if they are small, or go to the scratch folder.
    """
    is_large = portioned_bytes(tasks) > tasks[0].memory_bytes // HELD_SHARE

    def stored(task: SortTask, portion: Portion) -> Portion:
        return (
            replace(portion, content=scratch.write(pieces(portion, task, io.schema))) if is_large else portion
        )

    def work(task: SortTask) -> Portions:
        found = []
        for taker, portion in portions(io, task, bound):
            found.append((taker, stored(task, portion)))
            del portion  # which has all rows that were sorted with its own
            bound()
        return found

    return work, sort_tasks(tasks)


def by_task(tasks: Iterable[MergeTask], found: Iterable[Portions]) -> dict[int, list[Portion]]:
    """Return the portions of each merge task, by its number."""
    portions_of: dict[int, list[Portion]] = {task.number: [] for task in tasks}
    for some in found:
        for taker, portion in some:
            portions_of[taker].append(portion)
    return portions_of


SortAll = Callable[[Callable[[SortTask], Portions], Iterable[SortTask]], Iterable[Portions]]
"""Calls a function with every sort task, several at once."""


def sort_blocks(
    io: BlockIO,
    tasks: Sequence[MergeTask],
    scratch: Scratch,
    sort_all: SortAll,
    bound: Bound = lambda: None,
) -> dict[int, list[Portion]]:
    """Do that work; return the portions of each merge task, by its number."""
    return by_task(tasks, sort_all(*sort_work(io, tasks, scratch, bound)))
