"""Ranges of rows: the row groups that they lie in, and copies that keep no other rows in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa


def overlapping(group_rows: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield each row group that has some of the rows `start` to `stop` of a block, with their range in it."""
    first = 0
    for group, rows in enumerate(group_rows):
        low, high = max(start - first, 0), min(stop - first, rows)
        if low < high:
            yield group, low, high
        first += rows


def within(tables: Iterable[pa.Table], start: int, stop: int) -> Iterator[pa.Table]:
    """Yield the rows `start` to `stop` of consecutive tables, without references to other rows."""
    first = 0
    for table in tables:
        low, high = max(start - first, 0), min(stop - first, table.num_rows)
        if low < high:
            yield own(table, low, high)
        first += table.num_rows


def own(rows: pa.Table, start: int, stop: int) -> pa.Table:
    """Return some rows without references to other rows, or to dictionaries with more values than there are rows."""
    if stop - start == rows.num_rows:
        return rows
    taken = rows.take(pa.array(np.arange(start, stop)))
    for place, item in enumerate(taken.schema):
        column = taken.column(place)
        if item.type in _CODED and any(len(chunk.dictionary) > len(chunk) for chunk in column.chunks):
            taken = taken.set_column(place, item, column.cast(item.type.value_type).dictionary_encode())
    return taken


_CODED = (pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.binary()))
