"""Bounds are exact only where nothing that was not counted can lie beyond them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tblctl.tableformat.iceberg.bounds import _completed
from tblctl.tableformat.model.statistics import ColumnStatistics


def test_bounds_beside_uncounted_nulls_or_nan_are_not_exact() -> None:
    ends = pa.array([1.0] * 4)
    counts = ColumnStatistics(
        min=ends, max=ends, null_count=np.array([0, -1, 0, 1]), nan_count=np.array([0, 0, -1, 1])
    )
    found = _completed(counts, np.ones(4, bool), np.full(4, 5), 16)
    assert found.exact.tolist() == [True, False, False, True]
