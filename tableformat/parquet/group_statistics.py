"""A Parquet footer's statistics of each row group, in the form that `predicate.match` takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.statistics import ColumnStatistics
from tblctl.tableformat.parquet.columns import FileColumns
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS, damaged


class RowGroupStatistics:
    """The statistics of some row groups of the file `name`, one entry for each."""

    def __init__(self, name: str, columns: FileColumns, groups: Sequence[int]) -> None:
        self._name = name
        self._leaves = columns.leaves
        self._groups = [columns.metadata.row_group(group) for group in groups]

    @cached_property
    def row_count(self) -> np.ndarray:
        """Rows of each row group, int64."""
        return np.array([group.num_rows for group in self._groups], dtype=np.int64)

    def column(self, leaf: Leaf) -> ColumnStatistics | None:
        """Return the statistics of one column; None if the footer has no usable ones.

        Raises:
            CorruptTableError: the footer contradicts itself.
        """
        try:
            if leaf.id not in self._leaves:
                return self._all_null(leaf)
            return self._stored(leaf)
        except ARROW_ERRORS as error:
            raise damaged(self._name, error) from error

    def _all_null(self, leaf: Leaf) -> ColumnStatistics:
        """Return the statistics of a column that was added after the block was written."""
        kind = statistic_type(leaf.type)
        return ColumnStatistics(
            min=pa.nulls(len(self._groups), kind),
            max=pa.nulls(len(self._groups), kind),
            null_count=self.row_count,
            nan_count=np.zeros(len(self._groups), dtype=np.int64) if pa.types.is_floating(kind) else None,
        )

    def _stored(self, leaf: Leaf) -> ColumnStatistics | None:
        kind = statistic_type(leaf.type)
        place, type_in_file = self._leaves[leaf.id]
        stored = statistic_type(type_in_file)
        if pa.types.is_nested(stored) or pa.types.is_float16(type_in_file):
            return None
        found = [group.column(place).statistics for group in self._groups]
        suffix = "_raw" if pa.types.is_temporal(stored) else ""
        low, high = (
            [None if item is None or not item.has_min_max else getattr(item, end + suffix) for item in found]
            for end in ("min", "max")
        )
        return ColumnStatistics(
            min=typed(low, stored, kind),
            max=typed(high, stored, kind),
            null_count=np.array(
                [-1 if item is None or not item.has_null_count else item.null_count for item in found],
                dtype=np.int64,
            ),
            nan_count=np.full(len(found), -1, dtype=np.int64) if pa.types.is_floating(kind) else None,
        )


def typed(values: list[Any], stored: pa.DataType, kind: pa.DataType) -> pa.Array:
    """Return bounds as pyarrow gives them (times as integers) in the type `kind`; `stored` is that of the file."""
    if pa.types.is_temporal(stored):
        width = pa.int32() if stored.bit_width == 32 else pa.int64()  # noqa: PLR2004
        return pa.array(values, width).cast(stored).cast(kind)
    return pa.array(values, stored).cast(kind)
