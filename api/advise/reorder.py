"""The statistics that blocks would have if a table were sorted by other columns: estimated, no row is read.

The table is cut into as many blocks as it has now, of equal rows, but the first is half as large: values that count as
equally frequent would begin with blocks otherwise, which real ones do not. The first column's ranges come from its
distribution as the blocks' ranges tell it (see `tblctl.metrics.cuts`). Of every other column a new block may hold
whatever the old blocks held that share a value of the first column with it: so columns that run along with it stay
narrow, others become wide, and what a condition reads can be told by the very code that prunes a scan.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.advise.number_line import Line, line_of, ranked
from tblctl.metrics.cuts import Floats, even_cuts, least_in_ranges, touched
from tblctl.metrics.intervals import Integers
from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.statistics import BlockStatistics, ColumnStatistics

MOST_BLOCKS = 1_000
"""So many blocks are made up at most; each then stands for several."""

MOST_SAMPLED = 10_000
"""So many of the table's blocks are looked at, evenly spread over them."""

_UNKNOWN = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled:
    """Statistics of some of a table's blocks; columns that were asked for once are kept."""

    whole: BlockStatistics
    rows: Integers
    _columns: dict[int, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, statistics: BlockStatistics) -> Sampled:
        """Return all blocks, or evenly spread ones of very many."""
        count = len(statistics.row_count)
        places = np.linspace(0, count - 1, min(count, MOST_SAMPLED)).round().astype(np.int64)
        return cls(whole=statistics, rows=places)

    @property
    def row_count(self) -> Integers:
        """Rows of each block."""
        return np.asarray(self.whole.row_count, np.int64)[self.rows]

    def column(self, leaf: Leaf) -> Column:
        """Return what is known of one column."""
        if leaf.id not in self._columns:
            found = self.whole.column(leaf)
            if found is None:
                raise ValueError(f"there are no statistics of column {leaf.name}")
            taken = pa.array(self.rows)
            self._columns[leaf.id] = Column.of(
                low=_whole(found.min).take(taken),
                high=_whole(found.max).take(taken),
                null_count=found.null_count[self.rows],
                nan_count=None if found.nan_count is None else found.nan_count[self.rows],
                row_count=self.row_count,
            )
        return self._columns[leaf.id]


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """One column of n blocks.

    Attributes:
        low, high: its bounds as arrow has them; null where unknown or without values.
        known: both bounds are there.
        null_count: -1 where unknown.
        nan_count: None for types without NaN.
        value_count: rows that are not null, as far as known.
    """

    low: pa.Array
    high: pa.Array
    known: npt.NDArray[np.bool_]
    null_count: Integers
    nan_count: Integers | None
    value_count: Integers

    @classmethod
    def of(
        cls,
        *,
        low: pa.Array,
        high: pa.Array,
        null_count: Integers,
        nan_count: Integers | None,
        row_count: Integers,
    ) -> Column:
        """Return the column with what follows from its statistics."""
        known = pc.and_(low.is_valid(), high.is_valid()).to_numpy(zero_copy_only=False)
        return cls(
            low=low,
            high=high,
            known=known,
            null_count=null_count,
            nan_count=nan_count,
            value_count=row_count - np.maximum(null_count, 0),
        )

    def line(self) -> Line:
        """Return the known bounds as points; there is at least one."""
        low, high = self.low.filter(pa.array(self.known)), self.high.filter(pa.array(self.known))
        return line_of(low, high)

    def ranks(self) -> tuple[Integers, Integers, pa.Array]:
        """Return the bounds as numbers of an ascending array of values, and these values; -1 where not known."""
        lows, highs, values = ranked(
            self.low.filter(pa.array(self.known)), self.high.filter(pa.array(self.known))
        )
        low, high = np.full((2, self.known.size), _UNKNOWN, np.int64)
        low[self.known], high[self.known] = lows, highs
        return low, high, values


def distinct_bounds(statistics: ColumnStatistics) -> int:
    """Return how many values blocks begin or end with."""
    both = pa.concat_arrays([_whole(statistics.min), _whole(statistics.max)]).drop_null()
    return int(pc.count_distinct(both).as_py())


def _whole(values: Any) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


class Reordered:
    """The made-up blocks of a table sorted by one or two columns: what `match` takes.

    Nulls come last. Of the second column, only blocks that hold one value of the first are cut further.
    """

    def __init__(self, sampled: Sampled, leaves: Sequence[Leaf]) -> None:
        """Make up the blocks.

        Raises:
            ValueError: no bounds are known of the first column.
        """
        self._sampled = sampled
        first = sampled.column(leaves[0])
        total = int(sampled.row_count.sum())
        self._count = min(len(sampled.whole.row_count), MOST_BLOCKS)
        cuts = _cuts(total, self._count)
        self.row_count = np.maximum(1, np.diff(np.rint(cuts)).astype(np.int64))
        line, values = first.line(), first.value_count.astype(np.float64)
        whole = line.low.min(), line.high.max()
        low, high = np.full(values.size, whole[0]), np.full(values.size, whole[1])
        low[first.known], high[first.known] = line.low, line.high
        self._filled = max(1, int(np.count_nonzero(cuts[:-1] < values.sum())))
        begin, end = even_cuts(
            low, high, values, cuts=np.minimum(cuts[: self._filled + 1], values.sum()), discrete=line.discrete
        )
        null_rows = np.clip(cuts[1:] - values.sum(), 0, self.row_count).round().astype(np.int64)
        self._givers = self._ranges(first, touched(low, high, begin, end), null_rows)
        self._own = {leaves[0].id: self._sorted_column(line, begin, end, null_rows, first)}
        for leaf in leaves[1:]:
            self._own[leaf.id] = self._refined(leaf, low, high, begin, end)

    def column(self, leaf: Leaf) -> ColumnStatistics:
        """Return the statistics that one column would have."""
        if leaf.id not in self._own:
            self._own[leaf.id] = self._hull(self._sampled.column(leaf))
        return self._own[leaf.id]

    def _ranges(
        self, first: Column, ranges: tuple[Integers, Integers], null_rows: Integers
    ) -> tuple[Integers, Integers, Integers]:
        """Return old blocks, and the first and last new one that each may give rows to: of values, then of nulls."""
        filled = np.flatnonzero(first.value_count > 0)
        blocks, begin, end = filled, ranges[0][filled], ranges[1][filled]
        if null_rows.any():
            nulls = np.flatnonzero(first.null_count != 0)
            blocks = np.concatenate((blocks, nulls))
            begin = np.concatenate((begin, np.full(nulls.size, np.flatnonzero(null_rows)[0])))
            end = np.concatenate((end, np.full(nulls.size, self._count - 1)))
        return blocks, begin, end

    def _sorted_column(
        self, line: Line, begin: Floats, end: Floats, null_rows: Integers, column: Column
    ) -> ColumnStatistics:
        least, most = line.bounds(begin, end)
        empty = pa.nulls(self._count - self._filled, line.kind)
        has_nan = column.nan_count is not None and bool(np.any(column.nan_count != 0))
        return ColumnStatistics(
            min=pa.concat_arrays([least, empty]),
            max=pa.concat_arrays([most, empty]),
            null_count=null_rows,
            nan_count=None
            if column.nan_count is None
            else np.full(self._count, _UNKNOWN if has_nan else 0, np.int64),
        )

    def _hull(self, column: Column) -> ColumnStatistics:
        """Return bounds around what the old blocks hold that may give rows to each new one."""
        low, high, values = column.ranks()
        unsure = ~column.known & (column.value_count > 0)
        least = self._least(low, column.known, start=len(values))
        most = -self._least(-high, column.known, start=1)
        known = (least < len(values)) & (self._least(-unsure.astype(np.int64), unsure, start=0) == 0)
        some_null = self._least(-np.ones_like(low), column.null_count != 0, start=0) < 0
        nan_count = None
        if column.nan_count is not None:
            some_nan = self._least(-np.ones_like(low), column.nan_count != 0, start=0) < 0
            nan_count = np.where(some_nan, _UNKNOWN, 0)
        return ColumnStatistics(
            min=_taken(values, least, known),
            max=_taken(values, most, known),
            null_count=np.where(some_null, _UNKNOWN, 0),
            nan_count=nan_count,
        )

    def _least(self, values: Integers, chosen: npt.NDArray[np.bool_], *, start: int) -> Integers:
        """Return the least value of the old blocks `chosen` that may give rows to each new block."""
        blocks, first, last = self._givers
        giving = chosen[blocks]
        return least_in_ranges(values[blocks][giving], first[giving], last[giving], self._count, start=start)

    def _refined(self, leaf: Leaf, low: Floats, high: Floats, begin: Floats, end: Floats) -> ColumnStatistics:
        """Return the hull of a second column, cut finer where several new blocks hold one value of the first."""
        column = self._sampled.column(leaf)
        hull = self._hull(column)
        if not column.known.any():
            return hull
        line = column.line()
        least, most = list(_whole(hull.min)), list(_whole(hull.max))
        for value, members in itertools.groupby(np.flatnonzero(begin == end).tolist(), lambda at: begin[at]):
            places = list(members)
            holding = ((low <= value) & (high >= value))[column.known]
            if len(places) < 2 or not holding.any():  # noqa: PLR2004 - one block of the value stays as it is
                continue
            rows = column.value_count[column.known][holding].astype(np.float64)
            cuts = np.linspace(0, rows.sum(), len(places) + 1)
            ends = even_cuts(line.low[holding], line.high[holding], rows, cuts=cuts, discrete=line.discrete)
            for place, one, other in zip(places, *line.bounds(*ends), strict=True):
                least[place], most[place] = one, other
        return ColumnStatistics(
            min=pa.array(least, line.kind),
            max=pa.array(most, line.kind),
            null_count=hull.null_count,
            nan_count=hull.nan_count,
        )


def step_of(block_count: int) -> float:
    """Return how many of a table's blocks each made-up one stands for."""
    return max(1.0, block_count / MOST_BLOCKS)


def _cuts(row_count: int, block_count: int) -> Floats:
    """Return how many rows lie before each end of each block."""
    half = row_count / block_count / 2
    return np.array([0.0, *np.linspace(half if block_count > 1 else row_count, row_count, block_count)])


def _taken(values: pa.Array, ranks: Integers, known: npt.NDArray[np.bool_]) -> pa.Array:
    places = np.clip(ranks, 0, max(0, len(values) - 1))
    return values.take(pa.array(places, mask=~known))
