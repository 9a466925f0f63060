"""No order: every row has the same key, so that a stable sort leaves rows as they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Leaf, Schema

if TYPE_CHECKING:
    from tblctl.tableformat.keys.kinds import SortingColumn, Statistics


@dataclass(frozen=True, kw_only=True)
class Ascending:
    """How a key column compares that is made for a sort: the least number comes first, and none is null."""

    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class _Bounds:
    low: list[pa.Array]
    high: list[pa.Array]
    known: np.ndarray
    exact: np.ndarray


class ListedKeys:
    """One key column that is 0 in every row; a `KeyMaker`. Bounds are unknown, so that nothing is measured by it."""

    def __init__(self, sort: Sort) -> None:
        del sort  # there is one only

    column_ids: tuple[int, ...] = ()
    orders: Sequence[Ascending] = (Ascending(),)

    def types(self, schema: Schema) -> list[pa.DataType | None]:
        """Return the type of the zeros."""
        del schema
        return [pa.int8()]

    def keys(self, rows: pa.Table, schema: Schema) -> pa.Table:
        """Return as many zeros as there are rows."""
        del schema
        return pa.table({"0": _zeros(rows.num_rows)})

    def bounds(self, statistics: Statistics, schema: Schema) -> _Bounds:
        """Return that nothing is known."""
        del schema
        count = len(statistics.row_count)
        ends, nowhere = [_zeros(count)], np.zeros(count, bool)
        return _Bounds(low=ends, high=ends, known=nowhere, exact=nowhere)

    def sorting_columns(self, schema: Schema) -> Sequence[SortingColumn]:
        """Return none."""
        del schema
        return ()

    def texts(self, schema: Schema) -> tuple[str, ...]:
        """Return none."""
        del schema
        return ()

    def widening_problem(self, before: Leaf, after: Leaf) -> str | None:
        """Return None: no column has a part in it."""
        del before, after
        return None


def _zeros(count: int) -> pa.Array:
    return pa.array(np.zeros(count, np.int8))
