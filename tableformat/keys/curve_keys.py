"""Curve sorts: rows are ordered along a curve through the ranges of several columns, so that each of them prunes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.keys.curves import Numbers, Places, hilbert_bound, hilbert_numbers, interleaved
from tblctl.tableformat.keys.linear import Bounds, leaf_values, needed_leaf
from tblctl.tableformat.keys.listed import Ascending
from tblctl.tableformat.keys.places import Axis
from tblctl.tableformat.model.cluster_key import Sort, curve_key_text
from tblctl.tableformat.model.curve import HILBERT, ranges_of
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.statistics import BlockStatistics, ColumnStatistics

if TYPE_CHECKING:
    from tblctl.tableformat.keys.kinds import SortingColumn, Statistics

_ROWS_AT_ONCE = 1 << 15
"""Rows whose numbers stay in the processor's cache while their keys are made."""


class CurveKeys:
    """One key column: the number of a row's cell on the curve, uint64; a `KeyMaker`.

    A column that was widened since the boundaries were made keeps its places: the boundaries are widened too.
    """

    orders: Sequence[Ascending] = (Ascending(),)

    def __init__(self, sort: Sort) -> None:
        self._sort = sort

    @property
    def column_ids(self) -> tuple[int, ...]:
        """The columns of the curve."""
        return tuple(term.column_id for term in self._sort.terms)

    def types(self, schema: Schema) -> list[pa.DataType | None]:
        """Return the type of the number; None if the schema lacks a column."""
        return [pa.uint64() if all(map(schema.leaf_by_id, self.column_ids)) else None]

    def keys(self, rows: pa.Table, schema: Schema) -> pa.Table:
        """Return the number of each row, from rows in read types."""
        columns = [leaf_values(rows, leaf.path) for leaf in self._leaves(schema)]
        axes = _axes(self._sort.parameters, tuple(column.type for column in columns))
        found = np.empty(rows.num_rows, np.uint64)
        start = 0
        for pieces in aligned(columns, rows.num_rows):
            cells = axes[0].images(pieces[0])
            for axis, piece in zip(axes[1:], pieces[1:], strict=True):
                cells |= axis.images(piece)
            found[start : start + len(cells)] = self._along(cells)
            start += len(cells)
        return pa.table({"0": pa.array(found)})

    def bounds(self, statistics: Statistics, schema: Schema) -> Bounds:
        """Return the first and last number in the box of each block's column bounds. They are exact for the box."""
        count = len(statistics.row_count)
        known = np.ones(count, bool)
        low: list[Places] = []
        high: list[Places] = []
        for number, leaf in enumerate(map(schema.leaf_by_id, self.column_ids)):
            column = statistics.column(leaf) if leaf else None
            if leaf is None or column is None:
                nowhere = np.zeros(count, bool)
                ends = [pa.array(np.zeros(count, np.uint64))] * 2
                return Bounds(low=ends[:1], high=ends[1:], known=nowhere, exact=nowhere)
            axis = self._plain_axis(number, statistic_type(leaf.type))
            (least, greatest), is_known = _places_of(axis, column, statistics.row_count, self._bits)
            low.append(least)
            high.append(greatest)
            known &= is_known
        first, last = self._ends_of(low, high)
        return Bounds(low=[pa.array(first)], high=[pa.array(last)], known=known, exact=first == last)

    def outside(self, statistics: BlockStatistics, schema: Schema) -> dict[str, npt.NDArray[np.bool_]]:
        """Return by column which blocks have all their values in its outer ranges. NULL and NaN are in none.

        Columns that had no values when boundaries were made are left out.
        """
        found = {}
        for number, leaf in enumerate(self._leaves(schema)):
            boundaries = ranges_of(self._sort.parameters).boundaries[number].cast(statistic_type(leaf.type))
            column = statistics.column(leaf)
            if column is None or not len(boundaries):
                continue
            below, above = pc.less(column.max, boundaries[0]), pc.greater_equal(column.min, boundaries[-1])
            beyond = pc.fill_null(pc.or_kleene(below, above), pa.scalar(value=False))
            found[leaf.name] = np.asarray(beyond.to_numpy(zero_copy_only=False), dtype=bool)
        return found

    def sorting_columns(self, schema: Schema) -> Sequence[SortingColumn]:
        """Return none: no column alone is in order."""
        del schema
        return ()

    def texts(self, schema: Schema) -> tuple[str, ...]:
        """Return the curve as people write it."""
        return (curve_key_text(self._sort.kind, self._sort.terms, schema),)

    def widening_problem(self, before: Leaf, after: Leaf) -> str | None:
        """Return whether a boundary does not fit the wider type."""
        kind = statistic_type(after.type)
        for column_id, values in zip(
            self.column_ids, ranges_of(self._sort.parameters).boundaries, strict=True
        ):
            if column_id != before.id:
                continue
            try:
                values.cast(statistic_type(before.type)).cast(kind)
            except pa.ArrowInvalid as error:
                return f"a boundary of the curve does not fit ({error})"
        return None

    @property
    def _bits(self) -> int:
        return ranges_of(self._sort.parameters).bits

    def _leaves(self, schema: Schema) -> list[Leaf]:
        return [needed_leaf(column_id, self._sort, schema) for column_id in self.column_ids]

    def _plain_axis(self, number: int, kind: pa.DataType) -> Axis:
        return _plain_axis(self._sort.parameters, number, kind)

    def _along(self, cells: Numbers) -> Numbers:
        """Return numbers on the curve for those in z-order."""
        if self._sort.kind != HILBERT:
            return cells
        return hilbert_numbers(cells, axes=len(self._sort.terms), bits=self._bits)

    def _ends_of(self, low: Sequence[Places], high: Sequence[Places]) -> tuple[Numbers, Numbers]:
        """Return the first and last numbers of boxes. The z-order only grows along each axis."""
        if self._sort.kind == HILBERT:
            first, last = (hilbert_bound(low, high, bits=self._bits, last=last) for last in (False, True))
            return first, last
        shares = [
            [interleaved(axis, len(low), places) for axis, places in enumerate(end)] for end in (low, high)
        ]
        return np.bitwise_or.reduce(shares[0]), np.bitwise_or.reduce(shares[1])


@functools.lru_cache(maxsize=32)
def _axes(parameters: tuple[tuple[str, Any], ...], kinds: tuple[pa.DataType, ...]) -> list[Axis]:
    """Return the axes whose images are shares of the z-order number. Cached: the tables take 4 MB."""
    ranges = ranges_of(parameters)
    places = np.arange(1 << ranges.bits)
    return [
        Axis(values.cast(kind), own, bits=ranges.bits, images=interleaved(number, len(kinds), places))
        for number, (values, own, kind) in enumerate(
            zip(ranges.boundaries, ranges.places, kinds, strict=True)
        )
    ]


@functools.lru_cache(maxsize=32)
def _plain_axis(parameters: tuple[tuple[str, Any], ...], number: int, kind: pa.DataType) -> Axis:
    """Return the axis of a column whose images are its places."""
    ranges = ranges_of(parameters)
    images = np.arange(1 << ranges.bits, dtype=np.uint64)
    boundaries, places = ranges.boundaries[number].cast(kind), ranges.places[number]
    return Axis(boundaries, places, bits=ranges.bits, images=images)


def aligned(columns: Sequence[pa.ChunkedArray], count: int) -> Iterator[list[pa.Array]]:
    """Yield the columns in pieces of some rows, each without a seam."""
    for start in range(0, count, _ROWS_AT_ONCE):
        yield [_whole(column.slice(start, _ROWS_AT_ONCE)) for column in columns]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _places_of(
    axis: Axis, column: ColumnStatistics, rows: npt.NDArray[np.int64], bits: int
) -> tuple[tuple[Places, Places], npt.NDArray[np.bool_]]:
    """Return the least and the greatest place of a column in each block, and where they are known.

    Statistics leave out NULL and NaN. A block that may have any reaches to their place.
    """
    low, high = (axis.images(_plain(end)).astype(np.int64) for end in (column.min, column.max))
    known = np.asarray(pc.and_(column.min.is_valid(), column.max.is_valid()).to_numpy(zero_copy_only=False))
    others = column.null_count.copy()
    if column.nan_count is not None:
        others = np.where((others < 0) | (column.nan_count < 0), -1, others + column.nan_count)
    is_bare = others == rows  # there are no values
    null = (1 << bits) - 1
    low[is_bare], high[is_bare] = null, 0
    for counts, place in ((column.nan_count, null - 1), (column.null_count, null)):
        if counts is not None:
            some = counts != 0
            low[some] = np.minimum(low[some], place)
            high[some] = np.maximum(high[some], place)
    return (low, high), known | is_bare


def _plain(values: Any) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
