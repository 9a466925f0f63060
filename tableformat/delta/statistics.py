"""The statistics of the files of a Delta table, as its log has them. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tblctl.tableformat.delta.log import DeltaLog
from tblctl.tableformat.errors import UnsupportedFormatError
from tblctl.tableformat.folder.statistics import ColumnsOnce, without_crossed
from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.statistics import ColumnStatistics

_SURE_DIGITS = 15
"""Decimals of more digits are not exact in the log: its JSON numbers are read as doubles."""

_TRUNCATED_US = 999
"""The log may have moments in whole milliseconds, rounded down (Delta's protocol, per-file statistics)."""


class DeltaStatistics(ColumnsOnce):
    """Statistics of the files with rows, in the log's order; a `BlockStatistics`.

    Raises:
        UnsupportedFormatError: at construction: the log does not say how many rows files have.
    """

    def __init__(self, log: DeltaLog) -> None:
        unknown = log.files["num_records"].null_count if log.files.num_rows else 0
        if unknown:
            msg = (
                f"{log.url} is a Delta table without statistics of {unknown:,} of {log.files.num_rows:,} files: "
                "`ANALYZE TABLE .. COMPUTE DELTA STATISTICS` adds them"
            )
            raise UnsupportedFormatError(msg)
        super().__init__(self._looked_up)
        self._log = log
        self._files = log.files.filter(pc.greater(log.files["num_records"], 0)).combine_chunks()
        self.row_count = np.asarray(self._files["num_records"])
        self.size_bytes = np.asarray(self._files["size_bytes"])
        self.names = self._files["path"].combine_chunks().cast(pa.large_string())

    @property
    def decoded_bytes(self) -> np.ndarray:
        """The files' sizes: the log does not say how large their rows are."""
        return self.size_bytes

    def _looked_up(self, leaf: Leaf) -> tuple[ColumnStatistics | None, np.ndarray]:
        name, kind, count = ".".join(leaf.path), statistic_type(leaf.type), len(self.row_count)
        if leaf.path[0] in self._log.partition_columns:
            values = self._values(f"partition.{name}", kind)
            nulls = np.where(np.asarray(values.is_valid()), 0, self.row_count)
            return ColumnStatistics(min=values, max=values, null_count=nulls), np.ones(count, bool)
        if (
            self._files.column_names.count(f"min.{name}") != 1
        ):  # "a.b" may be a column, and a field of another
            return None, np.zeros(count, bool)
        low, high = self._values(f"min.{name}", kind), self._values(f"max.{name}", kind)
        nulls = self._nulls(name)
        low, high, sure = _bounds(low, high, kind)
        nans = np.where(nulls == self.row_count, 0, -1) if pt.is_floating(kind) else None
        exact = (nulls >= 0) & sure
        if nans is not None:
            exact &= nans >= 0
        low, high = without_crossed(low, high)
        return ColumnStatistics(min=low, max=high, null_count=nulls, nan_count=nans), exact

    def _values(self, name: str, kind: pa.DataType) -> pa.Array:
        if name not in self._files.column_names:
            return pa.nulls(len(self.row_count), kind)
        return self._files[name].combine_chunks().cast(kind)

    def _nulls(self, name: str) -> np.ndarray:
        found = self._files.column_names.count(f"null_count.{name}") == 1
        if not found:
            return np.full(len(self.row_count), -1, np.int64)
        return np.asarray(self._files[f"null_count.{name}"].fill_null(-1))


def _bounds(low: pa.Array, high: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array, bool]:
    """Return bounds that hold all values, and whether they are values themselves."""
    if pt.is_timestamp(kind):
        # In whole microseconds: Delta has no finer ones.
        later = pc.add(high.cast(pa.int64()), _TRUNCATED_US).cast(kind)
        return low, later, False
    if pt.is_decimal(kind) and kind.precision > _SURE_DIGITS:
        return pa.nulls(len(low), kind), pa.nulls(len(low), kind), False
    return (
        low,
        high,
        not (pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind)),
    )  # these may be cut
