"""Boundaries for a curve from a bounded sample of a table's rows, and from the statistics of other blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tblctl.tableformat.keys.boundaries import Weights, divided, with_bounds
from tblctl.tableformat.model.curve import BITS, Ranges
from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.statistics import BlockStatistics

SAMPLED_PLACES = 64
"""Row groups that rows are read of, at even distances in the table."""

SAMPLED_ROWS = 1 << 17
"""Rows that are kept of them: 128 for each range of a column of two."""

MOST_BOUNDS = 1 << 16
"""Blocks that are not read, whose bounds count; of more, evenly many."""


def sampled_offsets(rows: npt.NDArray[np.int64], places: int | None = None) -> dict[int, list[int]]:
    """Return for some blocks, by number, the rows whose row groups are read: at even distances in the table.

    `rows` are those of each block, one at least in all. `places` are `SAMPLED_PLACES` without a number.
    """
    through = np.cumsum(rows)
    total = int(through[-1])
    count = min(SAMPLED_PLACES if places is None else places, total)
    marks = (2 * np.arange(count) + 1) * total // (2 * count)
    blocks = np.searchsorted(through, marks, side="right")
    found: dict[int, list[int]] = {}
    for block, mark in zip(blocks.tolist(), marks.tolist(), strict=True):
        found.setdefault(block, []).append(mark - int(through[block]) + int(rows[block]))
    return found


def groups_at(offsets: Sequence[int], group_rows: Sequence[int]) -> list[int]:
    """Return the row groups, by number, that have the rows at `offsets` of a block."""
    through = np.cumsum(group_rows)
    return [int(group) for group in np.unique(np.searchsorted(through, offsets, side="right"))]


def sample_of(rows: pa.Table, places: int) -> pa.Table:
    """Return those of the rows around so many places that are kept."""
    return every(rows, places * SAMPLED_ROWS // SAMPLED_PLACES)


def every(rows: pa.Table, most: int) -> pa.Table:
    """Return at most so many of the rows, at even distances."""
    step = -(-len(rows) // max(most, 1))
    return rows.take(pa.array(np.arange(step // 2, len(rows), step))) if step > 1 else rows


def ranges_of_blocks(
    samples: Mapping[int, pa.Table], statistics: BlockStatistics, leaves: Sequence[Leaf]
) -> Ranges:
    """Return boundaries of columns.

    Args:
        samples: rows of some blocks, by number: columns "0", "1", .. in their statistic types.
        statistics: of all blocks.
        leaves: the columns.
    """
    empty = pa.table(
        {str(place): pa.array([], statistic_type(leaf.type)) for place, leaf in enumerate(leaves)}
    )
    rows = pa.concat_tables([empty, *samples.values()])
    weights = np.concatenate(
        [
            np.zeros(0),
            *(
                np.full(len(sample), statistics.row_count[block] / max(len(sample), 1))
                for block, sample in samples.items()
            ),
        ]
    )
    others = np.setdiff1d(np.arange(len(statistics.row_count)), np.array(list(samples), np.int64))
    return ranges_of_columns(
        _with_others(rows.column(place).combine_chunks(), weights, statistics, leaf, others)
        for place, leaf in enumerate(leaves)
    )


def ranges_of_columns(columns: Iterable[tuple[pa.Array, Weights]]) -> Ranges:
    """Return boundaries of columns of weighted values."""
    given = list(columns)
    bits = BITS[len(given)]
    boundaries, places = zip(*(divided(*column, bits=bits) for column in given), strict=True)
    return Ranges(bits=bits, boundaries=boundaries, places=places)


def _with_others(
    values: pa.Array, weights: Weights, statistics: BlockStatistics, leaf: Leaf, others: npt.NDArray[np.int64]
) -> tuple[pa.Array, Weights]:
    """Return a column's sample, and the bounds of blocks that were not read."""
    column = statistics.column(leaf)
    if column is None or not len(others):
        return values, weights
    some = others[:: -(-len(others) // MOST_BOUNDS)]
    at, scale = pa.array(some), len(others) / len(some)
    nulls = np.clip(column.null_count[some], 0, None)
    rows = np.asarray((statistics.row_count[some] - nulls) * scale, np.float64)
    return with_bounds(values, weights, column.min.take(at), column.max.take(at), rows)
