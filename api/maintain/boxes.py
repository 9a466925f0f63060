"""How well the blocks of a version separate several columns at once, from the statistics of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tblctl.metrics.boxes import Boxes, BoxFigures, box_figures
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
    ranks = []
    for place in range(columns):
        ends = (pa.table({"0": side.column(place)}) for side in (lows, highs))
        ranks.append(key_ranks(*ends, order))
    return Boxes(
        low=tuple(low for low, _ in ranks),
        high=tuple(high for _, high in ranks),
        row_count=listing.stored_rows[numbers],
        partition=listing.partition[numbers],
    )
