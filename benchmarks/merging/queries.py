"""A grid of range queries on two columns, and which files of a layout they read, by the footers alone.

A query has a range on one of the columns, or one on each. A range holds a share of the rows, from some place in the
order of the column; where values repeat it holds all rows of its first and last value, so `shares` are counted.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SELECTIVITIES = (0.0001, 0.001, 0.01, 0.1)
_EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Query:
    """Ranges of some of the columns.

    Attributes:
        selectivity: the share of the rows that each range was to hold.
        ranges: by column: the first and last value.
        shares: by column: the share of the rows that its range holds.
    """

    selectivity: float
    ranges: Mapping[str, tuple[int, int]]
    shares: Mapping[str, float]

    def bound(self, files: int, columns: int) -> float:
        """Return how many of `files` a grid of as many slices in each column reads.

        The product over the columns of min(n, s n + 1), n = files^(1 / columns); s is 1 where there is no range.
        """
        slices = files ** (1 / columns)
        met = [min(slices, share * slices + 1) for share in self.shares.values()]
        return float(np.prod(met)) * slices ** (columns - len(met))


def make_queries(columns: Mapping[str, np.ndarray], count: int) -> list[Query]:
    """Return `count` queries: as many on one column as on all, as many of each selectivity; always the same.

    Args:
        columns: the values of each column, in any order.
        count: a multiple of eight.
    """
    rng = np.random.default_rng(11)
    ordered = {name: np.sort(values) for name, values in columns.items()}
    names = list(ordered)
    found = []
    for number in range(count // 8):
        for selectivity in SELECTIVITIES:
            one = names[number % len(names)]
            found += [_query(ordered, ranged, selectivity, rng) for ranged in ([one], names)]
    return found


def _query(
    ordered: Mapping[str, np.ndarray], names: Sequence[str], selectivity: float, rng: np.random.Generator
) -> Query:
    ranges, shares = {}, {}
    for name in names:
        values = ordered[name]
        wanted = max(1, round(selectivity * values.size))
        first = int(rng.integers(0, values.size - wanted + 1))
        low, high = int(values[first]), int(values[first + wanted - 1])
        held = np.searchsorted(values, high, side="right") - np.searchsorted(values, low)
        ranges[name], shares[name] = (low, high), float(held / values.size)
    return Query(selectivity=selectivity, ranges=ranges, shares=shares)


def as_numbers(values: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return a column of whole numbers or dates as int64."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    return np.asarray(values.cast(pa.int64()))


class Layout:
    """The files of a layout, with the bounds of some columns as their footers have them.

    Raises:
        AssertionError: a footer has no bounds of a column: nothing could be skipped by it.
    """

    def __init__(self, files: Sequence[str], columns: Sequence[str]) -> None:
        self.bytes = np.array([Path(file).stat().st_size for file in files])
        ends = [_ends(file, columns) for file in files]
        self._low = {name: np.array([end[name][0] for end in ends]) for name in columns}
        self._high = {name: np.array([end[name][1] for end in ends]) for name in columns}

    def __len__(self) -> int:
        return len(self.bytes)

    def read_by(self, query: Query) -> np.ndarray:
        """Return which files a query reads."""
        found = np.ones(len(self), bool)
        for name, (low, high) in query.ranges.items():
            found &= (self._low[name] <= high) & (self._high[name] >= low)
        return found


def _ends(file: str, columns: Sequence[str]) -> dict[str, tuple[int, int]]:
    footer = pq.read_metadata(file)
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    ends = {}
    for name in columns:
        groups = [footer.row_group(at).column(places[name]).statistics for at in range(footer.num_row_groups)]
        assert groups, file
        assert all(item is not None and item.has_min_max for item in groups), f"{file}: {name}"
        ends[name] = (
            min(_number(item.min) for item in groups),
            max(_number(item.max) for item in groups),
        )
    return ends


def _number(value: Any) -> int:
    return (value - _EPOCH).days if isinstance(value, datetime.date) else int(value)
