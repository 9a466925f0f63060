"""Statistics of one block: from its rows, and from the footer of the Parquet file that they became."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tblctl.tableformat.keys import leaf_values, shorten
from tblctl.tableformat.model.record import ColumnRecord
from tblctl.tableformat.model.schema import Leaf, Schema
from tblctl.tableformat.model.types import child_fields, is_orderable


def column_records(table: pa.Table, schema: Schema, footer: pq.FileMetaData) -> dict[int, ColumnRecord]:
    """Return the statistics of every column by its id.

    Args:
        table: the block's rows in read types, columns as `schema` has them.
        schema: the schema that the block was written with.
        footer: of the Parquet file that holds `table`.
    """
    sizes = dict(zip((leaf.id for leaf in schema.leaves), _column_bytes(schema, footer), strict=True))
    return {leaf.id: _column_record(table, leaf, *sizes[leaf.id]) for leaf in schema.leaves}


def _column_record(
    table: pa.Table, leaf: Leaf, compressed_bytes: int, uncompressed_bytes: int
) -> ColumnRecord:
    values = leaf_values(table, leaf.path)
    null_count = values.null_count
    nan_count = None
    if pa.types.is_floating(values.type):
        nans = pc.is_nan(values)
        nan_count = pc.sum(nans).as_py() or 0
        if nan_count:
            values = values.filter(pc.invert(nans))
    low = high = pa.nulls(1, values.type)[0]
    exact = True
    if is_orderable(leaf.type) and null_count < table.num_rows:
        ends = pc.min_max(values)
        bounds = shorten(ends["min"], up=False), shorten(ends["max"], up=True)
        low, high = bounds[0].value, bounds[1].value
        exact = bounds[0].exact and bounds[1].exact
    return ColumnRecord(
        min=low,
        max=high,
        exact=exact,
        null_count=null_count,
        nan_count=nan_count,
        compressed_bytes=compressed_bytes,
        uncompressed_bytes=uncompressed_bytes,
    )


def _column_bytes(schema: Schema, footer: pq.FileMetaData) -> Iterator[tuple[int, int]]:
    """Yield for every leaf the bytes of its column chunks, compressed and not; Parquet's columns are depth first."""
    count = footer.num_columns
    compressed, uncompressed = [0] * count, [0] * count
    for group in range(footer.num_row_groups):
        chunks = footer.row_group(group)
        for place in range(count):
            chunk = chunks.column(place)
            compressed[place] += chunk.total_compressed_size
            uncompressed[place] += chunk.total_uncompressed_size
    start = 0
    for leaf in schema.leaves:
        stop = start + parquet_columns(leaf.type)
        yield sum(compressed[start:stop]), sum(uncompressed[start:stop])
        start = stop


def parquet_columns(kind: pa.DataType) -> int:
    """Return how many columns of a Parquet file an Arrow type takes."""
    children = child_fields(kind)
    return sum(parquet_columns(child.type) for child in children) if children else 1
