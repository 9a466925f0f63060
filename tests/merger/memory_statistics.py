"""Statistics of blocks in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.keys.linear import leaf_values
from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.statistics import ColumnStatistics


@dataclass(frozen=True, kw_only=True)
class MemoryStatistics:
    """Statistics of blocks, worked out when asked for; no column holds NaN."""

    tables: tuple[pa.Table, ...]

    @property
    def row_count(self) -> np.ndarray:
        return np.array([table.num_rows for table in self.tables], np.int64)

    def column(self, leaf: Leaf) -> ColumnStatistics:
        columns = [leaf_values(table, leaf.path) for table in self.tables]
        ends = [pc.min_max(column) for column in columns]
        kind = statistic_type(leaf.type)
        return ColumnStatistics(
            min=pa.array([end["min"].as_py() for end in ends], kind),
            max=pa.array([end["max"].as_py() for end in ends], kind),
            null_count=np.array([column.null_count for column in columns], np.int64),
        )
