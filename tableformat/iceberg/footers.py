"""Bounds of columns from Parquet footers, for files whose manifest has none, or truncated ones."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.iceberg.own_keys import keys_in_footer
from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.statistics import ColumnStatistics, CrossedBoundsError
from tblctl.tableformat.parquet.checked_footer import checked_footer
from tblctl.tableformat.parquet.columns import FileColumns
from tblctl.tableformat.parquet.footer import has_exact_bounds
from tblctl.tableformat.parquet.group_statistics import RowGroupStatistics
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS
from tblctl.tableformat.parquet.thrift import Struct

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

LOG = logging.getLogger("tblctl")


@dataclass(frozen=True, kw_only=True)
class FooterBounds:
    """What a file's footer says of one column: bounds of its values, and whether they are values."""

    low: pa.Scalar
    high: pa.Scalar
    null_count: int
    exact: bool


@dataclass(frozen=True, kw_only=True)
class ParquetFile:
    """A data file, as its manifest describes it."""

    path: str
    size_bytes: int
    rows: int


def read_footers(
    io: FileIO, files: Sequence[ParquetFile], leaves: Sequence[Leaf], *, null_if_absent: Collection[int] = ()
) -> list[dict[int, FooterBounds]]:
    """Return for each file the bounds of columns by id, as far as its footer has them; many files at a time.

    A file that is missing, damaged or without column ids has none. That is logged, not raised: bounds may be unknown.

    Args:
        io: of the table.
        files: what to read.
        leaves: the columns.
        null_if_absent: ids of columns that are all null in files without them.
    """

    def read(file: ParquetFile) -> dict[int, FooterBounds]:
        try:
            return _bounds(io, file, leaves, null_if_absent)
        except (*ARROW_ERRORS, OSError, CorruptTableError, KeyError) as error:
            LOG.warning("the footer of %s gives no bounds: %s", file.path, error)
            return {}

    return in_parallel(read, files, threads=IO_THREADS)


def read_own_keys(io: FileIO, files: Sequence[ParquetFile]) -> list[pa.Table | None]:
    """Return the row of keys in the footer of each of tblctl's files; None where there is none, which is logged."""

    def read(file: ParquetFile) -> pa.Table | None:
        try:
            return keys_in_footer(_footer(io, file)[1].metadata)
        except (*ARROW_ERRORS, OSError, CorruptTableError, KeyError) as error:
            LOG.warning("the footer of %s gives no keys: %s", file.path, error)
            return None

    return in_parallel(read, files, threads=IO_THREADS)


def _footer(io: FileIO, file: ParquetFile) -> tuple[Struct, pq.FileMetaData]:
    """Return a file's footer, checked, and as pyarrow parses it."""
    with io.new_input(file.path).open() as source:
        data = source.read  # a whole footer is one request

        def fetch(start: int, stop: int) -> pa.Buffer:
            source.seek(start)
            return pa.py_buffer(data(stop - start))

        return checked_footer(fetch, file.size_bytes, row_count=file.rows)


def _bounds(
    io: FileIO, file: ParquetFile, leaves: Sequence[Leaf], null_if_absent: Collection[int]
) -> dict[int, FooterBounds]:
    footer, metadata = _footer(io, file)
    columns = FileColumns(metadata, metadata.schema.to_arrow_schema())
    if not columns.leaves:
        LOG.info("%s has no column ids", file.path)
        return {}
    groups = range(metadata.num_row_groups)
    statistics = RowGroupStatistics(file.path, columns, groups)
    found = {}
    for leaf in leaves:
        if leaf.id not in columns.leaves:  # added later
            if leaf.id in null_if_absent and columns.has_all_ids:
                found[leaf.id] = _nulls(statistic_type(leaf.type), file.rows)
            continue
        exact = all(has_exact_bounds(footer, group, columns.leaves[leaf.id][0]) for group in groups)
        bounds = _joined(_column(statistics, leaf), statistics.row_count, exact=exact)
        if bounds is not None:
            found[leaf.id] = bounds
    return found


def _column(statistics: RowGroupStatistics, leaf: Leaf) -> ColumnStatistics | None:
    try:
        return statistics.column(leaf)
    except CrossedBoundsError:
        return None


def _joined(found: ColumnStatistics | None, rows: np.ndarray, *, exact: bool) -> FooterBounds | None:
    """Return the bounds of all row groups together; None if those of one are unknown."""
    if found is None or (found.null_count < 0).any():
        return None
    nulls = int(found.null_count.sum())
    some = found.null_count < rows
    if not some.any():
        return _nulls(found.min.type, nulls)
    chosen = pa.array(np.flatnonzero(some))
    low, high = found.min.take(chosen), found.max.take(chosen)
    if low.null_count or high.null_count or _has_nan(low) or _has_nan(high):
        return None
    return FooterBounds(low=_extreme(low, 0), high=_extreme(high, 1), null_count=nulls, exact=exact)


def _nulls(kind: pa.DataType, count: int) -> FooterBounds:
    return FooterBounds(low=pa.scalar(None, kind), high=pa.scalar(None, kind), null_count=count, exact=True)


def _has_nan(values: pa.Array) -> bool:
    return bool(pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py())


def _extreme(values: pa.Array, side: int) -> pa.Scalar:
    """Return the least value, or (for 1) the greatest."""
    order: Any = ("ascending", "descending")[side]
    return values[pc.array_sort_indices(values, order=order)[0].as_py()]
