"""A data file that tblctl wrote, with everything that a manifest says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tblctl.tableformat.model.record import BlockRecord


@dataclass(frozen=True, kw_only=True)
class DataFileRecord(BlockRecord):
    """A data file that a merge task stored (Apache Iceberg specification, "Manifests", fields of `data_file`).

    Attributes (the others are those of `BlockRecord`; `path` is the file's absolute URI):
        spec_id: the partition spec of its rows.
        partition_values: the values of the spec's fields, as PyIceberg has them.
        sort_order_id: the table's sort order that its rows are truly in; None for none.
        column_sizes, value_counts, null_counts, nan_counts: of columns by id, those inside lists and maps too.
        lower_bounds, upper_bounds: of columns by id, encoded as Iceberg's single values.
        split_offsets: where its row groups begin.
    """

    spec_id: int
    partition_values: tuple[Any, ...] = ()
    sort_order_id: int | None = None
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_counts: Mapping[int, int] = field(default_factory=dict)
    nan_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)
    split_offsets: tuple[int, ...] = ()
