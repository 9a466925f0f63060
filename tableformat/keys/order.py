"""Key order: the one place that defines which row comes before which.

A key is a tuple of values (`kinds.py`). They compare left to right, each with its own direction and place of nulls.
Values compare as their type does: strings and binary by bytes; floats in the total order -inf .. -0.0 = 0.0 .. inf <
NaN, which a descending order reverses. Nulls come first or last as the order says, in either direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat import older_arrow
from tblctl.tableformat.keys.kinds import KeyOrder, key_maker
from tblctl.tableformat.keys.numbers import ordered_floats
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Schema

BOUND_LENGTH = 128
"""Strings and binary in statistics are truncated to this many characters or bytes."""

KEY_LENGTH = 1_024
"""The same limit in the keys of a block's first and last row. It is larger, because paths and addresses share long
prefixes: blocks whose truncated keys are equal cannot be recognised as disjoint."""

_FIRST_LOOK = 1000
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def key_table(table: pa.Table, sort: Sort, schema: Schema) -> pa.Table:
    """Return the key of every row of `table` (read types): columns "0", "1", .. one for each key column."""
    return key_maker(sort).keys(table, schema)


def sort_indices(keys: pa.Table, sort: Sort) -> pa.Array:
    """Return the row numbers of `keys` (from `key_table`) in key order, equal keys in their given order.

    O(n log n) time; 8 bytes a row, and 8 more for float terms.
    """
    ordered = [_ordered(column) for column in keys.columns]
    return older_arrow.sort_indices(
        pa.table(ordered, names=keys.column_names),
        [
            (
                str(index),
                "descending" if order.descending else "ascending",
                "at_start" if order.nulls_first else "at_end",
            )
            for index, order in enumerate(key_maker(sort).orders)
        ],
    )


def is_sorted(keys: pa.Table, sort: Sort) -> bool:
    """Return whether the rows of `keys` are in key order already. O(n), but usually less for unsorted rows."""
    if keys.num_rows < 2:  # noqa: PLR2004
        return True
    if keys.num_rows > 2 * _FIRST_LOOK and not is_sorted(keys.slice(0, _FIRST_LOOK), sort):
        return False
    undecided: np.ndarray | None = None  # all
    orders = key_maker(sort).orders
    for number, (order, column) in enumerate(zip(orders, keys.columns, strict=True), 1):
        whole = _ordered(column).combine_chunks()
        left, right = whole.slice(0, len(whole) - 1), whole.slice(1)
        if undecided is None and number == len(orders) and not whole.null_count:
            wrong = pc.less(left, right) if order.descending else pc.less(right, left)
            return not pc.any(wrong).as_py()  # the usual key has one column: one comparison tells
        before, after = _compare(left, right, order)
        undecided = np.ones(len(after), dtype=bool) if undecided is None else undecided
        if bool(np.any(undecided & after)):
            return False
        undecided &= ~before
    return True


def key_ranks(low: pa.Table, high: pa.Table, sort: Sort) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of n least and n greatest keys in the order of all 2n, from 0; equal keys share a place.

    Args:
        low: one row for each block, columns "0", "1", .. as from `key_table`.
        high: the same.
        sort: the order.

    O(n log n); about 60 bytes a block.
    """
    both = pa.concat_tables([low, high]).combine_chunks()
    if both.num_rows == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    order = sort_indices(both, sort)
    fresh = key_changes(both.take(order))
    ranks = np.empty(both.num_rows, dtype=np.int64)
    ranks[order.to_numpy()] = np.concatenate(([0], np.cumsum(fresh)))
    return ranks[: low.num_rows], ranks[low.num_rows :]


def key_changes(keys: pa.Table) -> np.ndarray:
    """Return for each row of `keys` but the first whether its key differs from the row before. O(n)."""
    changes = np.zeros(max(keys.num_rows - 1, 0), dtype=bool)
    for column in keys.columns:
        whole = _ordered(column).combine_chunks()
        before, after = whole.slice(0, len(whole) - 1), whole.slice(1)
        changes |= _mask(pc.not_equal(before, after))
        if whole.null_count:
            changes |= _mask(pc.xor(before.is_null(), after.is_null()))
    return changes


class SameKeys:
    """Counts the most rows that have one key, over several tables of keys in key order."""

    def __init__(self) -> None:
        self._most = 0
        self._shortened = False
        self._last: pa.Table | None = None
        self._open = 0  # rows so far that have the last key

    @property
    def most_rows(self) -> int | None:
        """The count; None if bounds do not distinguish all keys, since one of them would be truncated."""
        return None if self._shortened else self._most

    def add(self, keys: pa.Table) -> None:
        """Add the next rows, at least one. O(n)."""
        starts = np.flatnonzero(key_changes(keys)) + 1
        counts = np.diff(starts, prepend=0, append=keys.num_rows)
        first = keys.slice(0, 1)
        if self._last is not None and not key_changes(pa.concat_tables([self._last, first])).any():
            counts[0] += self._open
        self._most = max(self._most, int(counts.max()))
        self._open = int(counts[-1])
        self._last = keys.slice(keys.num_rows - 1).combine_chunks()
        self._shortened = self._shortened or any(_may_be_shortened(column) for column in keys.columns)


def key_places(keys: pa.Table, ordered: pa.Table, sort: Sort) -> tuple[np.ndarray, np.ndarray]:
    """Return for each of `keys` how many keys of `ordered` come before it, and whether one of them equals it.

    Args:
        keys: in any order, columns as from `key_table`.
        ordered: distinct keys in key order.
        sort: the order.

    O(keys x log(ordered)): a binary search of all keys at once.
    """
    low = np.zeros(keys.num_rows, dtype=np.int64)
    high = np.full(keys.num_rows, ordered.num_rows, dtype=np.int64)
    equal = np.zeros(keys.num_rows, dtype=bool)
    while (unsettled := np.flatnonzero(low < high)).size:
        middle = (low[unsettled] + high[unsettled]) // 2
        before, after = _compare_keys(ordered.take(middle), keys.take(unsettled), sort)
        low[unsettled[before]] = middle[before] + 1
        high[unsettled[~before]] = middle[~before]
        equal[unsettled[~before & ~after]] = True
    return low, equal


def keys_after(left: pa.Table, right: pa.Table, sort: Sort) -> np.ndarray:
    """Return for each row whether the left key comes after the right one. O(n)."""
    return _compare_keys(left, right, sort)[1]


def _compare_keys(left: pa.Table, right: pa.Table, sort: Sort) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row whether the left key comes before, and whether it comes after, the right one."""
    before, after = (np.zeros(left.num_rows, dtype=bool) for _ in range(2))
    for order, *columns in zip(key_maker(sort).orders, left.columns, right.columns, strict=True):
        pair = [_ordered(column).combine_chunks() for column in columns]
        less, greater = _compare(pair[0], pair[1], order)
        undecided = ~(before | after)
        before |= undecided & less
        after |= undecided & greater
    return before, after


def _compare(left: pa.Array, right: pa.Array, order: KeyOrder) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row whether the left value comes before, and whether it comes after, the right one."""
    less, greater = (pc.greater, pc.less) if order.descending else (pc.less, pc.greater)
    before, after = _mask(less(left, right)), _mask(greater(left, right))
    if not (left.null_count or right.null_count):
        return before, after
    left_null, right_null = _mask(left.is_null()), _mask(right.is_null())
    first_before = left_null & ~right_null
    first_after = right_null & ~left_null
    if not order.nulls_first:
        first_before, first_after = first_after, first_before
    return before | first_before, after | first_after


def _mask(values: pa.Array) -> np.ndarray:
    known = pc.fill_null(values, False) if values.null_count else values  # noqa: FBT003
    return np.asarray(known.to_numpy(zero_copy_only=False), dtype=bool)


def _ordered(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floats as integers of the same order (so NaN is greatest in either direction), others as they are."""
    if not pa.types.is_floating(column.type):
        return column
    return pa.chunked_array([ordered_floats(chunk) for chunk in column.chunks] or [pa.array([], pa.int64())])


@dataclass(frozen=True, kw_only=True)
class KeyRange:
    """The keys of the first and last row of a sorted block, as scalars, one for each key column.

    `exact` is false if long strings were truncated; the range then only bounds the keys. `constant`: all rows have one
    key.
    """

    min: tuple[pa.Scalar, ...]
    max: tuple[pa.Scalar, ...]
    exact: bool
    constant: bool


def key_range(keys: pa.Table, sort: Sort) -> KeyRange:
    """Return the range of `keys`, which has at least one row and is in key order."""
    orders = key_maker(sort).orders
    ends = keys.slice(0, 1), keys.slice(keys.num_rows - 1)
    constant = all(
        _ordered(low).combine_chunks().equals(_ordered(high).combine_chunks())
        for low, high in zip(ends[0].columns, ends[1].columns, strict=True)
    )
    low = [
        shorten(column[0], up=order.descending, length=KEY_LENGTH)
        for order, column in zip(orders, ends[0].columns, strict=True)
    ]
    high = [
        shorten(column[0], up=not order.descending, length=KEY_LENGTH)
        for order, column in zip(orders, ends[1].columns, strict=True)
    ]
    return KeyRange(
        min=tuple(bound.value for bound in low),
        max=tuple(bound.value for bound in high),
        exact=all(bound.exact for bound in low + high),
        constant=constant,
    )


@dataclass(frozen=True)
class Bound:
    """A value for statistics. `exact` is false if it was truncated and only bounds the original value."""

    value: pa.Scalar
    exact: bool


def shorten(value: pa.Scalar, *, up: bool, length: int = BOUND_LENGTH) -> Bound:
    """Return a bound of at most `length` characters or bytes: not below `value` if `up`, else not above it.

    If no short upper bound exists (U+10FFFF or 0xFF throughout), the value itself is returned.
    """
    content: Any = value.as_py() if _has_length(value.type) else None
    if content is None or len(content) <= length:
        return Bound(value, exact=True)
    short = content[:length]
    if up:
        short = _next_string(short) if isinstance(short, str) else _next_bytes(short)
        if short is None:
            return Bound(value, exact=True)
    return Bound(pa.scalar(short, value.type), exact=False)


def _may_be_shortened(keys: pa.ChunkedArray) -> bool:
    """Return whether a key may be too long for the bounds of a block. Counts bytes, so some text may still fit."""
    if not _has_length(keys.type):
        return False
    longest = pc.max(pc.binary_length(keys)).as_py()
    return longest is not None and longest > KEY_LENGTH


def _has_length(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _next_string(text: str) -> str | None:
    """Return the least string that is above every string starting with `text`; None if there is none."""
    for index in range(len(text) - 1, -1, -1):
        point = ord(text[index]) + 1
        if point in _SURROGATES:
            point = _SURROGATES.stop
        if point <= _LAST_CODE_POINT:
            return text[:index] + chr(point)
    return None


def _next_bytes(content: bytes) -> bytes | None:
    for index in range(len(content) - 1, -1, -1):
        if content[index] < 0xFF:  # noqa: PLR2004
            return content[:index] + bytes([content[index] + 1])
    return None
