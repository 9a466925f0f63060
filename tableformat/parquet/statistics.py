"""Statistics of one block: measured on its rows, window by window, or taken from its Parquet file."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tblctl.tableformat.keys.linear import leaf_values
from tblctl.tableformat.keys.order import shorten
from tblctl.tableformat.model.record import ColumnRecord
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import (
    child_fields,
    is_any_binary,
    is_any_string,
    is_orderable,
    is_small_decimal,
    statistic_type,
)
from tblctl.tableformat.model.statistics import ColumnStatistics
from tblctl.tableformat.parquet.dictionaries import is_coded

FOOTER_BYTES = 4_000
"""Parquet's footer has the least and greatest text of a column if these have at most this many bytes (pyarrow 26)."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Figures of one column in some rows; `min` and `max` are null scalars if unknown.

    `in_footer`: bounds were left out, since the footer will have them. Measuring text twice takes a tenth of a write,
    and decimals take 20 times as long as integers.
    """

    min: pa.Scalar
    max: pa.Scalar
    null_count: int
    nan_count: int | None
    in_footer: bool = False


def measure(table: pa.Table, leaves: Iterable[Leaf], *, before_writing: bool = False) -> dict[int, Measured]:
    """Return the figures of some columns of `table` (read types) by column id.

    `before_writing`: the rows are about to become a file, whose footer `column_records` is given.
    """
    return {leaf.id: _measured(table, leaf, before_writing=before_writing) for leaf in leaves}


def stored_figures(leaf: Leaf, found: ColumnStatistics | None, rows: np.ndarray) -> Measured | None:
    """Return the figures of one column in some row groups, from the statistics of each; None if some are missing.

    Parquet does not count NaN, or rows in which a list is null. `rows`: of each row group.
    """
    if found is None or pa.types.is_floating(statistic_type(leaf.type)) or child_fields(leaf.type):
        return None
    no_bounds = np.asarray(pc.or_(pc.is_null(found.min), pc.is_null(found.max)))
    if (found.null_count < 0).any() or (is_orderable(leaf.type) and no_bounds[found.null_count < rows].any()):
        return None
    low, high = _ends(list(found.min))[0], _ends(list(found.max))[1]
    return Measured(min=low, max=high, null_count=int(found.null_count.sum()), nan_count=None)


def _measured(table: pa.Table, leaf: Leaf, *, before_writing: bool) -> Measured:
    column = table.column(leaf.path[0])
    if (
        before_writing
        and is_coded(column.type, leaf.type)
        and _is_short(chunk.dictionary for chunk in column.chunks)
    ):
        nothing = _null(statistic_type(leaf.type))
        return Measured(
            min=nothing, max=nothing, null_count=column.null_count, nan_count=None, in_footer=True
        )
    values = leaf_values(table, leaf.path)
    null_count = values.null_count
    nan_count = None
    if pa.types.is_floating(values.type):
        nans = pc.is_nan(values)
        nan_count = pc.sum(nans).as_py() or 0
        if nan_count:
            values = values.filter(pc.invert(nans))
    low = high = _null(values.type)
    in_footer = before_writing and _will_be_in_footer(values, leaf)
    if is_orderable(leaf.type) and null_count < table.num_rows and not in_footer:
        ends = pc.min_max(values)
        low, high = ends["min"], ends["max"]
    return Measured(min=low, max=high, null_count=null_count, nan_count=nan_count, in_footer=in_footer)


def _will_be_in_footer(values: pa.ChunkedArray, leaf: Leaf) -> bool:
    """Return whether Parquet's writer finds the bounds faster: of short text, and of decimals stored as integers."""
    if is_any_string(leaf.type) or is_any_binary(leaf.type):
        return _is_short(values.chunks)
    return is_small_decimal(leaf.type)


def _is_short(texts: Iterable[pa.Array]) -> bool:
    longest = (pc.max(pc.binary_length(values)).as_py() or 0 for values in texts)
    return max(longest, default=0) <= FOOTER_BYTES


def joined(one: Mapping[int, Measured], other: Mapping[int, Measured]) -> dict[int, Measured]:
    """Return the combined figures of two sets of rows. The first may be empty."""
    if not one:
        return dict(other)
    return {key: _joined(one[key], other[key]) for key in one}


def _joined(one: Measured, other: Measured) -> Measured:
    low, high = _ends([one.min, one.max, other.min, other.max])
    counted = one.nan_count is not None and other.nan_count is not None
    return Measured(
        min=low,
        max=high,
        null_count=one.null_count + other.null_count,
        nan_count=(one.nan_count or 0) + (other.nan_count or 0) if counted else None,
        in_footer=one.in_footer or other.in_footer,
    )


def _ends(values: list[pa.Scalar]) -> tuple[pa.Scalar, pa.Scalar]:
    """Return the least and greatest of some values, ignoring nulls; nulls without values or without an order."""
    kind = values[0].type
    if not is_orderable(kind):
        return _null(kind), _null(kind)
    ends = pc.min_max(pa.array(values, kind))
    return ends["min"], ends["max"]


def column_records(
    measured: Mapping[int, Measured], schema: Schema, footer: pq.FileMetaData
) -> dict[int, ColumnRecord]:
    """Return the statistics of every column by its id.

    Args:
        measured: of all of the block's rows.
        schema: the schema that the block was written with.
        footer: of its Parquet file.
    """
    return {leaf.id: _column_record(measured[leaf.id], chunks) for leaf, chunks in _chunks_of(schema, footer)}


def column_ends(
    measured: Mapping[int, Measured], schema: Schema, footer: pq.FileMetaData
) -> dict[int, tuple[pa.Scalar, pa.Scalar]]:
    """Return the least and greatest value of every column by its id, of any length; nulls if there is none.

    Arguments as in `column_records`.
    """
    return {leaf.id: _ends_in_file(measured[leaf.id], chunks) for leaf, chunks in _chunks_of(schema, footer)}


def _chunks_of(schema: Schema, footer: pq.FileMetaData) -> Iterator[tuple[Leaf, _Chunks]]:
    start = 0
    for leaf in schema.leaves:
        stop = start + parquet_columns(leaf.type)
        yield leaf, _Chunks(footer, range(start, stop))
        start = stop


def _ends_in_file(measured: Measured, chunks: _Chunks) -> tuple[pa.Scalar, pa.Scalar]:
    low, high = measured.min, measured.max
    if measured.in_footer:  # so the figures of some windows are there; long text of others may be missing
        low, high = _ends([low, high, *chunks.ends(low.type)])
    return low, high


def _column_record(measured: Measured, chunks: _Chunks) -> ColumnRecord:
    low, high = _ends_in_file(measured, chunks)
    bounds = shorten(low, up=False), shorten(high, up=True)
    return ColumnRecord(
        min=bounds[0].value,
        max=bounds[1].value,
        exact=bounds[0].exact and bounds[1].exact,
        null_count=measured.null_count,
        nan_count=measured.nan_count,
        compressed_bytes=chunks.total("total_compressed_size"),
        uncompressed_bytes=chunks.total("total_uncompressed_size"),
    )


@dataclass(frozen=True)
class _Chunks:
    """The column chunks of one leaf; Parquet's columns are depth first."""

    footer: pq.FileMetaData
    places: range

    def _all(self) -> Iterator[pq.ColumnChunkMetaData]:
        for group in range(self.footer.num_row_groups):
            chunks = self.footer.row_group(group)
            yield from (chunks.column(place) for place in self.places)

    def total(self, name: str) -> int:
        return sum(getattr(chunk, name) for chunk in self._all())

    def ends(self, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
        """Return the least and greatest text; nulls if there is none."""
        found = [chunk.statistics for chunk in self._all()]
        known = [item for item in found if item is not None and item.has_min_max]
        if not known:
            return _null(kind), _null(kind)
        # Text compares by bytes, which in UTF-8 is the order of code points, as Python's.
        return (
            pa.scalar(min(item.min for item in known), kind),
            pa.scalar(max(item.max for item in known), kind),
        )


def _null(kind: pa.DataType) -> pa.Scalar:
    return pa.nulls(1, kind)[0]  # (pa.scalar has no null of a dictionary)


def nan_places(measured: Mapping[int, Measured], schema: Schema) -> frozenset[int]:
    """Return the places of the Parquet columns that have NaN. The figures are by column id."""
    stops = itertools.accumulate(parquet_columns(leaf.type) for leaf in schema.leaves)
    return frozenset(
        stop - 1
        for leaf, stop in zip(schema.leaves, stops, strict=True)
        if leaf.id in measured and measured[leaf.id].nan_count
    )


def parquet_columns(kind: pa.DataType) -> int:
    """Return how many columns of a Parquet file an Arrow type takes."""
    children = child_fields(kind)
    return sum(parquet_columns(child.type) for child in children) if children else 1
