"""Hudi's filters of partitions, over the values of a column: which blocks hold rows of what is asked for alone.

A block is of a partition if all its rows are: the bounds of the column say so. In an Iceberg table that is partitioned
by the column that is every file, in others the blocks that were written so. A block with nulls there, or of unknown
bounds, is of none. Days count in UTC; a column of moments has the partitions of its days.

The modes are those of `hoodie.clustering.plan.partition.filter.mode` (RECENT_DAYS, SELECTED_PARTITIONS, DAY_ROLLING),
and `partition.selected` and `partition.regex.pattern`. Several together must all hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tblctl.metrics.intervals import Integers, Mask
from tblctl.selector.table_view import TableView
from tblctl.tableformat.errors import InvalidOptionError

_DAY_SECONDS = 86_400
_HOUR_SECONDS = 3_600
_PER_DAY = {
    unit: _DAY_SECONDS * scale for unit, scale in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))
}
_ROLLING_HOURS = 24
_RECENT = re.compile(r"(\d{1,6}):(\d{1,6})")


class Filters(Protocol):
    """The options that filter partitions; see `policies/size.py`."""

    @property
    def recent_days(self) -> str | None: ...
    @property
    def day_column(self) -> str | None: ...
    @property
    def day_rolling(self) -> bool: ...
    @property
    def partitions(self) -> str | None: ...
    @property
    def partition_regex(self) -> str | None: ...
    @property
    def partition_column(self) -> str | None: ...


def filter_problems(filters: Filters) -> list[str]:
    """Return what is wrong with the filters, by themselves and together."""
    problems = []
    recent, regex, partitions = filters.recent_days, filters.partition_regex, filters.partitions
    if isinstance(recent, str):
        found = _RECENT.fullmatch(recent)
        if not found or int(found[1]) < int(found[2]):
            problems.append(
                f"recent_days: expected K:N, from K days ago to N days ago with K >= N, got {recent!r}"
            )
    if isinstance(partitions, str) and not all(
        _ends(item)[0] and _ends(item)[1] for item in partitions.split(",")
    ):
        problems.append(f"partitions: expected values and ranges such as a,b,m..p, got {partitions!r}")
    if isinstance(regex, str):
        try:
            re.compile(regex)
        except re.error as error:
            problems.append(f"partition_regex: {regex!r} is no regular expression: {error}")
    named = {
        "day_column": ("recent_days", recent is not None, filters.day_column, "days"),
        "partition_column": (
            "partitions, partition_regex or day_rolling",
            partitions is not None or regex is not None or filters.day_rolling,
            filters.partition_column,
            "values that blocks are told apart by",
        ),
    }
    for name, (asking, is_asked, column, meant) in named.items():
        if is_asked and column is None:
            problems.append(f"{name} is missing: add {name} COLUMN, where COLUMN has the {meant}")
        if column is not None and not is_asked:
            problems.append(f"{name} is of no use without {asking}")
    return problems


def of_wanted_partitions(view: TableView, filters: Filters, now: float) -> Mask | None:
    """Return the blocks of the partitions that are asked for; None if all are. O(n log n) for n blocks.

    Raises:
        InvalidOptionError: the view does not know columns, a value does not fit the column's type, or it has no days.
        UnknownColumnError: the table has no such column.
    """
    found: list[Mask] = []
    if filters.recent_days is not None and filters.day_column is not None:
        before, after = (int(part) for part in filters.recent_days.split(":"))
        today = int(now // _DAY_SECONDS)
        found.append(_Values(view, filters.day_column).between_days(today - before, today - after))
    if filters.partition_column is not None:
        values = _Values(view, filters.partition_column)
        if filters.partitions is not None:
            found.append(values.in_any(filters.partitions.split(",")))
        if filters.partition_regex is not None:
            found.append(values.like(re.compile(filters.partition_regex)))
        if filters.day_rolling:
            found.append(values.of_hour(int(now // _HOUR_SECONDS) % _ROLLING_HOURS))
    wanted: Mask | None = np.logical_and.reduce(found) if found else None
    return wanted


class _Values:
    """The least and the greatest value of a column in each block; days in place of moments."""

    def __init__(self, view: TableView, column: str) -> None:
        if view.bounds_of is None:
            raise InvalidOptionError(f"column {column!r}: the values of columns are not known of this table")
        self._column = column
        least, greatest, null_count = view.bounds_of(column)
        self._low, self._high = _days(least), _days(greatest)
        self._type: pa.DataType = self._low.type
        known = pc.and_(pc.is_valid(self._low), pc.is_valid(self._high))
        self._known: Mask = _mask(known) & (null_count <= 0)

    def between_days(self, first: int, last: int) -> Mask:
        """Return the blocks whose rows are all of days from the `first` to the `last` one since 1970."""
        try:
            low, high = (_day_numbers(bound) for bound in (self._low, self._high))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            expected = "expected days: dates, moments, or text such as 2026-11-24"
            raise InvalidOptionError(
                f"column {self._column!r} is {self._type}, {expected}: {error}"
            ) from error
        inside = pc.and_(pc.greater_equal(low, first), pc.less_equal(high, last))
        return self._known & _mask(inside)

    def in_any(self, items: Sequence[str]) -> Mask:
        """Return the blocks whose rows are all in one of some values `a` or closed ranges `a..b`."""
        found = np.zeros(self._known.size, np.bool_)
        for item in items:
            first, last = (self._parsed(text) for text in _ends(item))
            if pc.greater(first, last).as_py():
                begin, end = _ends(item)
                raise InvalidOptionError(f"partitions: {item!r} ends before it begins; write {end}..{begin}")
            inside = pc.and_(pc.greater_equal(self._low, first), pc.less_equal(self._high, last))
            found |= _mask(inside)
        return self._known & found

    def like(self, pattern: re.Pattern[str]) -> Mask:
        """Return the blocks of a single value whose whole text is matched."""
        codes, texts = self._single()
        matched = np.array([pattern.fullmatch(text) is not None for text in texts] + [False], np.bool_)
        found: Mask = matched[codes]
        return found

    def of_hour(self, hour: int) -> Mask:
        """Return the blocks of a single value whose place among all such values, ascending, is `hour` modulo 24."""
        codes, texts = self._single()
        found: Mask = (codes < len(texts)) & (codes % _ROLLING_HOURS == hour)
        return found

    def _single(self) -> tuple[Integers, list[str]]:
        """Return the place of each block's only value among all such values, as texts, ascending.

        Blocks of several values have the place behind the last.
        """
        single = self._known & _mask(pc.equal(self._low, self._high))
        values = self._low.filter(pa.array(single))
        distinct = pc.unique(values)
        try:
            distinct = distinct.take(pc.sort_indices(distinct))
            texts = distinct.cast(pa.string()).to_pylist()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidOptionError(
                f"column {self._column!r} is {self._type}, expected one whose values have an order and a text: {error}"
            ) from error
        codes = np.full(single.size, len(distinct), np.int64)
        codes[single] = pc.index_in(values, distinct).to_numpy(zero_copy_only=False)
        return codes, texts

    def _parsed(self, text: str) -> pa.Scalar:
        try:
            return pa.array([text]).cast(self._type)[0]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidOptionError(
                f"partitions: {text!r} is no value of column {self._column!r}, which is {self._type}"
            ) from error


def _ends(item: str) -> tuple[str, str]:
    """Return the ends of a range `a..b`; those of a value are the value itself."""
    first, dots, last = (part.strip() for part in item.partition(".."))
    return first, last if dots else first


def _days(bound: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return an array of one piece, moments as days (UTC)."""
    whole = bound.combine_chunks() if isinstance(bound, pa.ChunkedArray) else bound
    if isinstance(whole, pa.ChunkedArray):  # of no chunks
        whole = pa.array([], whole.type)
    if not pt.is_timestamp(whole.type):
        return (
            whole.cast(pa.string())
            if pt.is_large_string(whole.type) or pt.is_string_view(whole.type)
            else whole
        )
    counts = whole.cast(pa.int64())
    days = np.floor_divide(pc.fill_null(counts, 0).to_numpy(zero_copy_only=False), _PER_DAY[whole.type.unit])
    return pa.array(days.astype(np.int32), mask=_mask(pc.is_null(counts))).cast(pa.date32())


def _day_numbers(bound: pa.Array) -> pa.Array:
    """Return days since 1970; raises what Arrow raises where values are no days."""
    if pt.is_string(bound.type):
        bound = bound.cast(pa.date32())
    if not pt.is_date(bound.type):
        raise pa.ArrowInvalid("no days")
    return bound.cast(pa.date32()).cast(pa.int32())


def _mask(values: pa.Array) -> Mask:
    found: Mask = pc.fill_null(values, fill_value=pa.scalar(value=False)).to_numpy(zero_copy_only=False)
    return found
