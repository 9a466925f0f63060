"""The columns of a segment: one row for each block, one column for each fact. docs/FORMAT.md describes them.

If a row has no value in a statistics column (`column_<id>_null_count` is null), the block is older than the table's
column: all its rows read as null. Unknown is -1 for counts and null for bounds.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import is_orderable, statistic_type

BASE_COLUMNS = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("row_count", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("uncompressed_bytes", pa.int64(), nullable=False),
        pa.field("decoded_bytes", pa.int64(), nullable=False),
        pa.field("schema_id", pa.int32(), nullable=False),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("run_id", pa.string()),
        pa.field("cluster_key_id", pa.int32()),
        pa.field("same_key_rows", pa.int64()),
        pa.field("footer_bytes", pa.int64()),
        pa.field("footer_checksum", pa.uint64()),
    ]
)

ADDED_LATER = frozenset({"same_key_rows", "footer_bytes", "footer_checksum"})
"""Those columns that older segments lack. They are then null in every row."""

SEAL_COLUMNS = ("footer_bytes", "footer_checksum")

COUNTS = frozenset({"null_count", "nan_count", "compressed_bytes", "uncompressed_bytes"})
"""Statistics of a column that are counts, not bounds."""


def statistic_names(leaf: Leaf) -> dict[str, pa.DataType]:
    """Return the names and types of a column's statistics in a segment."""
    kind = statistic_type(leaf.type)
    prefix = f"column_{leaf.id}_"
    names: dict[str, pa.DataType] = {}
    if is_orderable(leaf.type):
        names |= {f"{prefix}min": kind, f"{prefix}max": kind, f"{prefix}exact": pa.bool_()}
    names[f"{prefix}null_count"] = pa.int64()
    if pa.types.is_floating(kind):
        names[f"{prefix}nan_count"] = pa.int64()
    return names | {f"{prefix}compressed_bytes": pa.int64(), f"{prefix}uncompressed_bytes": pa.int64()}


def key_names(sort_id: int, term_count: int) -> tuple[list[str], list[str], str]:
    """Return the names of the columns for the least and greatest keys of a sort, and for whether they are exact."""
    terms = range(term_count)
    return (
        [f"key_{sort_id}_min_{term}" for term in terms],
        [f"key_{sort_id}_max_{term}" for term in terms],
        f"key_{sort_id}_exact",
    )


def key_kinds(sorts: Iterable[Sort], schema: Schema) -> dict[str, pa.DataType]:
    """Return the types of the keys of blocks by sorts, if the schema has their columns.

    Blocks from before the widening of a column have keys of a narrower type.
    """
    kinds: dict[str, pa.DataType] = {}
    for sort in sorts:
        types = key_maker(sort).types(schema)
        lows, highs, _ = key_names(sort.id, len(types))
        for low, high, kind in zip(lows, highs, types, strict=True):
            if kind is not None:
                kinds[low] = kinds[high] = kind
    return kinds
