"""How well the blocks of a version separate several columns at once, from the statistics of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tblctl.advise.number_line import line_of
from tblctl.metrics.boxes import Boxes, BoxFigures, box_figures
from tblctl.metrics.cuts import Floats
from tblctl.metrics.intervals import Integers
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.keys.order import key_ranks
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.port import Listing, Version

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

BOX_KINDS = frozenset({"zorder", "hilbert"})
"""Kinds of sorts that order rows by several columns alike. Depth on their curve says little about what queries read."""

_ANY_ID = 1
"""The id of sorts that exist for measuring only."""

_BEHIND = 1e-6
"""How far nulls and NaN are behind the greatest of values that are no whole numbers, as a share of the line."""


def boxes_of(
    version: Version, column_ids: Sequence[int], condition: BooleanExpression | None = None
) -> BoxFigures:
    """Return the figures of the blocks that may hold rows satisfying the condition.

    Args:
        version: has the columns. If it is pruned, partitions that were left out count as not there.
        column_ids: two to four columns, by id.
        condition: None for all blocks.
    """
    sort = Sort(id=_ANY_ID, terms=tuple(Term(column_id=column_id) for column_id in column_ids))
    listing = version.listing(sort, condition, clustered=False)
    matched = np.ones(len(listing.known), dtype=bool) if listing.matched is None else listing.matched
    names = key_maker(sort).texts(version.schema)
    return box_figures(
        names,
        _boxes(listing, np.flatnonzero(listing.known & matched), len(column_ids)),
        unknown=int(np.count_nonzero(matched & ~listing.known)),
    )


def _boxes(listing: Listing, numbers: np.ndarray, columns: int) -> Boxes:
    """Return the boxes of some blocks, whose bounds are known."""
    rows = pa.array(numbers)
    lows, highs = listing.low.take(rows), listing.high.take(rows)
    order = Sort(id=_ANY_ID, terms=(Term(column_id=_ANY_ID),))
    ranks, points = [], []
    for place in range(columns):
        low, high = (side.column(place).combine_chunks() for side in (lows, highs))
        ranks.append(key_ranks(pa.table({"0": low}), pa.table({"0": high}), order))
        points.append(_points(low, high, *ranks[-1]))
    return Boxes(
        low=tuple(low for low, _ in ranks),
        high=tuple(high for _, high in ranks),
        begin=tuple(begin for begin, _ in points),
        end=tuple(end for _, end in points),
        row_count=listing.stored_rows[numbers],
        partition=listing.partition[numbers],
    )


def _points(
    low: pa.Array, high: pa.Array, low_ranks: Integers, high_ranks: Integers
) -> tuple[Floats, Floats]:
    """Return the bounds of blocks as points on a line. Nulls and NaN, the greatest keys, have a place behind it."""
    both, ranks = pa.concat_arrays([low, high]), np.concatenate((low_ranks, high_ranks))
    missing = both.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    if missing.all():
        nowhere = np.zeros(len(low))
        return nowhere, nowhere
    greatest = int(np.where(missing, -1, ranks).argmax())
    filled = both.take(pa.array(np.where(missing, greatest, np.arange(ranks.size))))
    line = line_of(filled.slice(0, len(low)), filled.slice(len(low)))
    points = np.concatenate((line.low, line.high))
    length = points.max() - points.min()
    points[missing] += 1 if line.discrete else _BEHIND * (length or 1)
    begin, end = points[: len(low)], points[len(low) :]
    return begin, end + 1 if line.discrete else end
