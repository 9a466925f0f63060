"""A block that was just written, with every statistic that a table format keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class ColumnRecord:
    """Statistics of one column of one block; `min` and `max` are null scalars where there are none."""

    min: pa.Scalar
    max: pa.Scalar
    exact: bool
    null_count: int
    nan_count: int | None
    compressed_bytes: int
    uncompressed_bytes: int


@dataclass(frozen=True, kw_only=True)
class BlockRecord:
    """A block and its statistics, as the one who wrote it knows them; `columns` is keyed by column id."""

    path: str
    row_count: int
    size_bytes: int
    uncompressed_bytes: int
    decoded_bytes: int
    schema_id: int
    level: int
    run_id: str | None
    cluster_key_id: int | None
    key_min: tuple[pa.Scalar, ...] = ()
    key_max: tuple[pa.Scalar, ...] = ()
    key_exact: bool = True
    columns: Mapping[int, ColumnRecord] = field(default_factory=dict)
