"""Estimate the statistics that blocks would have if a table were sorted by other columns. Reads no row.

*Old blocks* are the table's own, or a sample of them. *New blocks* are those of the sorted table: as many as the table
has, of equal rows. Only the first is half as large. Values count as equally frequent. So without the half block, every
value would begin a new block, which does not happen in a real table.

The first column's values count as spread evenly over the range of their old block (see `tblctl.metrics.cuts`). That
says which new blocks an old block may give rows to. Any other column of a new block is bounded by everything that these
old blocks hold. So columns that rise and fall with the first one stay narrow, others become wide. The code that prunes
scans then counts the blocks that a condition would read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
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

Flags = npt.NDArray[np.bool_]

_UNKNOWN = -1


@dataclass(frozen=True, kw_only=True)
class EstimateLimits:
    """How fine an estimate is.

    Attributes:
        most_sampled: old blocks that are looked at. Of more, an evenly spread sample is taken.
        most_blocks: new blocks. Each stands for several blocks of a larger table.
    """

    most_sampled: int = 10_000
    most_blocks: int = 1_000

    def step(self, block_count: int) -> float:
        """Return how many blocks of the table one new block stands for."""
        return max(1.0, block_count / self.most_blocks)


DEFAULT_LIMITS = EstimateLimits()


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled:
    """Statistics of the old blocks. Each column is prepared once."""

    whole: BlockStatistics
    rows: Integers
    _columns: dict[int, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, statistics: BlockStatistics, limits: EstimateLimits = DEFAULT_LIMITS) -> Sampled:
        """Return all blocks, or an evenly spread sample if there are too many."""
        count = len(statistics.row_count)
        places = np.linspace(0, count - 1, min(count, limits.most_sampled)).round().astype(np.int64)
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
    """One column of the m old blocks; every array has m items.

    Attributes:
        low, high: its bounds as Arrow values; null if unknown or if the block has no values.
        known: whether both bounds are there.
        null_count: -1 if unknown.
        nan_count: None for types without NaN.
        value_count: rows that are not null, as far as known.
    """

    low: pa.Array
    high: pa.Array
    known: Flags
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
        """Return the known bounds as points. At least one must be known."""
        return line_of(*self._known_bounds())

    def ranks(self) -> tuple[Integers, Integers, pa.Array]:
        """Return the bounds as ranks, and the ascending values that the ranks stand for. An unknown bound is -1."""
        known_lows, known_highs, values = ranked(*self._known_bounds())
        low, high = np.full((2, self.known.size), _UNKNOWN, np.int64)
        low[self.known], high[self.known] = known_lows, known_highs
        return low, high, values

    def _known_bounds(self) -> tuple[pa.Array, pa.Array]:
        known = pa.array(self.known)
        return self.low.filter(known), self.high.filter(known)


def distinct_bounds(statistics: ColumnStatistics) -> int:
    """Return how many different values the blocks begin or end with."""
    both = pa.concat_arrays([_whole(statistics.min), _whole(statistics.max)]).drop_null()
    return int(pc.count_distinct(both).as_py())


def _whole(values: Any) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


class Reordered:
    """The new blocks of a table sorted by one or two columns, as statistics that `match` takes.

    Nulls come last. The second column orders only new blocks that hold the same single value of the first.
    """

    def __init__(
        self, sampled: Sampled, leaves: Sequence[Leaf], limits: EstimateLimits = DEFAULT_LIMITS
    ) -> None:
        """Cut the table into new blocks.

        Raises:
            ValueError: no bounds of the first column are known.
        """
        first = sampled.column(leaves[0])
        count = min(len(sampled.whole.row_count), limits.most_blocks)
        cut = _cut_by(first, row_count=int(sampled.row_count.sum()), block_count=count)
        self.row_count = cut.row_count
        self._sampled = sampled
        self._moves = _moves(first, cut)
        self._columns = {leaves[0].id: _first_statistics(first, cut)}
        for leaf in leaves[1:]:
            second = sampled.column(leaf)
            self._columns[leaf.id] = _refined(_covering(second, self._moves), second, cut)

    def column(self, leaf: Leaf) -> ColumnStatistics:
        """Return the statistics that one column would have."""
        if leaf.id not in self._columns:
            self._columns[leaf.id] = _covering(self._sampled.column(leaf), self._moves)
        return self._columns[leaf.id]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cut:
    """How the first column cuts m old blocks into n new ones. The first v new blocks hold values, v >= 1.

    Attributes:
        line: the column's known bounds as points.
        low, high: [m] the range of each old block on the line; the whole line if its bounds are unknown.
        begin, end: [v] the range of each new block that holds values, ascending.
        row_count: [n] rows of each new block.
        null_count: [n] how many of them are null in the column.
    """

    line: Line
    low: Floats
    high: Floats
    begin: Floats
    end: Floats
    row_count: Integers
    null_count: Integers


def _cut_by(first: Column, *, row_count: int, block_count: int) -> _Cut:
    """Return the cut into `block_count` new blocks that hold the `row_count` rows in the order of `first`."""
    line = first.line()
    low = np.full(first.known.size, line.low.min())
    high = np.full(first.known.size, line.high.max())
    low[first.known], high[first.known] = line.low, line.high
    rows_before = _rows_before(row_count, block_count)
    rows_of_block = np.maximum(1, np.diff(np.rint(rows_before)).astype(np.int64))
    values = first.value_count.astype(np.float64)
    value_rows = values.sum()
    filled = max(1, int(np.count_nonzero(rows_before[:-1] < value_rows)))
    begin, end = even_cuts(
        low, high, values, cuts=np.minimum(rows_before[: filled + 1], value_rows), discrete=line.discrete
    )
    null_count = np.clip(rows_before[1:] - value_rows, 0, rows_of_block).round().astype(np.int64)
    return _Cut(
        line=line, low=low, high=high, begin=begin, end=end, row_count=rows_of_block, null_count=null_count
    )


def _rows_before(row_count: int, block_count: int) -> Floats:
    """Return how many rows lie before each new block, and at the end of the last: `block_count` + 1 numbers."""
    first_rows = row_count / block_count / 2 if block_count > 1 else row_count
    return np.array([0.0, *np.linspace(first_rows, row_count, block_count)])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Moves:
    """Which new blocks each old block may give rows to: k pairs of an old block and a closed range of new blocks.

    An old block that has both values and nulls may be in two pairs.

    Attributes:
        old: [k] numbers of old blocks.
        first, last: [k] the first and the last new block that may get rows of it.
        new_count: how many new blocks there are.
    """

    old: Integers
    first: Integers
    last: Integers
    new_count: int

    def least(self, values: Integers, of: Flags, *, otherwise: int) -> Integers:
        """Return for each new block the least value of its givers.

        Args:
            values: [m] one for each old block, none above `otherwise`.
            of: [m] whether the old block counts.
            otherwise: for new blocks without such a giver.
        """
        counts = of[self.old]
        return least_in_ranges(
            values[self.old][counts], self.first[counts], self.last[counts], self.new_count, start=otherwise
        )

    def greatest(self, values: Integers, of: Flags, *, otherwise: int) -> Integers:
        """Return for each new block the greatest value of its givers; none may be below `otherwise`."""
        return -self.least(-values, of, otherwise=-otherwise)

    def from_any(self, of: Flags) -> Flags:
        """Return for each new block whether any of the old blocks `of` may give rows to it."""
        return self.greatest(of.astype(np.int64), of, otherwise=0) > 0


def _moves(first: Column, cut: _Cut) -> _Moves:
    """Return which old block may give rows to which new ones.

    Rows with a value of the first column go where the block's range lies. Rows that are null in it go to the last
    blocks.
    """
    new_count = cut.row_count.size
    first_new, last_new = touched(cut.low, cut.high, cut.begin, cut.end)
    with_values = np.flatnonzero(first.value_count > 0)
    old, begin, end = with_values, first_new[with_values], last_new[with_values]
    holds_nulls = np.flatnonzero(cut.null_count)
    if holds_nulls.size:
        with_nulls = np.flatnonzero(first.null_count != 0)
        old = np.concatenate((old, with_nulls))
        begin = np.concatenate((begin, np.full(with_nulls.size, holds_nulls[0])))
        end = np.concatenate((end, np.full(with_nulls.size, new_count - 1)))
    return _Moves(old=old, first=begin, last=end, new_count=new_count)


def _first_statistics(first: Column, cut: _Cut) -> ColumnStatistics:
    """Return the statistics of the first column: the ranges of the cut. Blocks of nulls alone have no bounds."""
    least, greatest = cut.line.bounds(cut.begin, cut.end)
    without_values = pa.nulls(cut.row_count.size - cut.begin.size, cut.line.kind)
    nan_count = None
    if first.nan_count is not None:
        may_have_nan = np.full(cut.row_count.size, bool(np.any(first.nan_count != 0)))
        nan_count = _none_or_unknown(may_have_nan)
    return ColumnStatistics(
        min=pa.concat_arrays([least, without_values]),
        max=pa.concat_arrays([greatest, without_values]),
        null_count=cut.null_count,
        nan_count=nan_count,
    )


def _covering(column: Column, moves: _Moves) -> ColumnStatistics:
    """Return statistics of one column that hold whatever rows each new block gets of its givers.

    A new block has no bounds if no giver has any, or if a giver has values but no bounds.
    """
    low, high, values = column.ranks()
    no_giver = len(values)
    least = moves.least(low, column.known, otherwise=no_giver)
    greatest = moves.greatest(high, column.known, otherwise=0)
    has_values_without_bounds = ~column.known & (column.value_count > 0)
    bounded = (least < no_giver) & ~moves.from_any(has_values_without_bounds)
    nan_count = None
    if column.nan_count is not None:
        nan_count = _none_or_unknown(moves.from_any(column.nan_count != 0))
    return ColumnStatistics(
        min=values.take(pa.array(least, mask=~bounded)),
        max=values.take(pa.array(greatest, mask=~bounded)),
        null_count=_none_or_unknown(moves.from_any(column.null_count != 0)),
        nan_count=nan_count,
    )


def _none_or_unknown(may_be: Flags) -> Integers:
    """Return counts: unknown where there may be some, 0 elsewhere."""
    return np.where(may_be, _UNKNOWN, 0)


def _refined(wide: ColumnStatistics, second: Column, cut: _Cut) -> ColumnStatistics:
    """Return the second column's statistics `wide`, narrower where new blocks hold the same single first value.

    These blocks are in the order of the second column: each gets an equal share of the rows that hold this value.
    """
    if not second.known.any():
        return wide
    line = second.line()
    value_count = second.value_count[second.known].astype(np.float64)
    least, greatest = list(wide.min), list(wide.max)
    for point, new_blocks in _single_valued(cut):
        givers = ((cut.low <= point) & (cut.high >= point))[second.known]
        if len(new_blocks) == 1 or not givers.any():
            continue
        rows = value_count[givers]
        shares = np.linspace(0, rows.sum(), len(new_blocks) + 1)
        begin, end = even_cuts(line.low[givers], line.high[givers], rows, cuts=shares, discrete=line.discrete)
        for block, low, high in zip(new_blocks, *line.bounds(begin, end), strict=True):
            least[block], greatest[block] = low, high
    return ColumnStatistics(
        min=pa.array(least, line.kind),
        max=pa.array(greatest, line.kind),
        null_count=wide.null_count,
        nan_count=wide.nan_count,
    )


def _single_valued(cut: _Cut) -> Iterator[tuple[float, list[int]]]:
    """Yield each point that is the whole range of new blocks, with the numbers of these blocks."""
    places = np.flatnonzero(cut.begin == cut.end).tolist()
    for point, members in itertools.groupby(places, lambda place: float(cut.begin[place])):
        yield point, list(members)
