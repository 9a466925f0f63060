"""Bounds of the keys of files whose rows are in no known order, as the columns of a listing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tblctl.tableformat.keys.kinds import KeyBounds
from tblctl.tableformat.keys.order import keys_after
from tblctl.tableformat.model.cluster_key import Sort


@dataclass(kw_only=True)
class KeyColumns:
    """The columns of a listing that keys of tblctl's own files change."""

    low: pa.Table
    high: pa.Table
    known: np.ndarray
    exact: np.ndarray
    inexact: np.ndarray
    own: np.ndarray
    level: np.ndarray
    same_key_rows: np.ndarray
    truncated_run: np.ndarray | None = None

    @classmethod
    def of(cls, bounds: KeyBounds, sort: Sort) -> KeyColumns:
        """Return the columns as bounds of columns and partitions give them: no file is tblctl's own yet."""
        names = [str(place) for place in range(len(bounds.low))]
        low, high = pa.table(list(bounds.low), names=names), pa.table(list(bounds.high), names=names)
        known = bounds.known & ~keys_after(low, high, sort)
        exact = bounds.exact & known
        inexact = known & ~exact
        if low.num_columns > 1:  # the least values of two columns need not be in one row
            exact &= ~(keys_after(low, high, sort) | keys_after(high, low, sort))
        count = len(known)
        return cls(
            low=low,
            high=high,
            known=known,
            exact=exact,
            inexact=inexact,
            own=np.zeros(count, bool),
            level=np.zeros(count, np.int64),
            same_key_rows=np.full(count, -1, np.int64),
        )
