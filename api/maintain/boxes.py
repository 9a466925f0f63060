"""How well the blocks of a version separate several columns at once, from the statistics of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tblctl.metrics.boxes import Boxes, BoxFigures, box_figures
from tblctl.metrics.intervals import Integers
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.keys.order import key_ranks
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.port import Listing, Version

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

_ANY_ID = 1
"""The id of sorts that exist for measuring only."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BoxListing:
    """The blocks of a version with the bounds of several columns.

    Attributes:
        names: the columns.
        blocks: all blocks; `low` and `high` have the bounds of a column each.
        numbers: of the blocks that are measured: they may match the condition, and their bounds are known.
        unknown: how many others may match.
    """

    names: tuple[str, ...]
    blocks: Listing
    numbers: Integers
    unknown: int


def box_listing(
    version: Version, column_ids: Sequence[int], condition: BooleanExpression | None
) -> BoxListing:
    """List the blocks of a version; arguments are those of `boxes_of`."""
    sort = Sort(id=_ANY_ID, terms=tuple(Term(column_id=column_id) for column_id in column_ids))
    blocks = version.listing(sort, condition, clustered=False)
    matched = np.ones(len(blocks.known), dtype=bool) if blocks.matched is None else blocks.matched
    return BoxListing(
        names=key_maker(sort).texts(version.schema),
        blocks=blocks,
        numbers=np.flatnonzero(blocks.known & matched),
        unknown=int(np.count_nonzero(matched & ~blocks.known)),
    )


def boxes_of(
    version: Version, column_ids: Sequence[int], condition: BooleanExpression | None = None
) -> BoxFigures:
    """Return the figures of the blocks that may hold rows satisfying the condition.

    Args:
        version: has the columns. If it is pruned, partitions that were left out count as not there.
        column_ids: two to four columns, by id.
        condition: None for all blocks.
    """
    listed = box_listing(version, column_ids, condition)
    return box_figures(listed.names, _boxes(listed.blocks, listed.numbers), unknown=listed.unknown)


def boxes_of_blocks(version: Version, sort: Sort) -> Callable[[Integers], Boxes | None]:
    """Return what gives the boxes of some blocks of a version in the columns of a curve; see `TableView.boxes_of`.

    Statistics are read at the first call.
    """
    found = cache(partial(box_listing, version, key_maker(sort).column_ids, None))

    def boxes(numbers: Integers) -> Boxes | None:
        listing = found().blocks
        return _boxes(listing, numbers) if listing.known[numbers].all() else None

    return boxes


def _boxes(listing: Listing, numbers: Integers) -> Boxes:
    """Return the boxes of some blocks, whose bounds are known."""
    rows = pa.array(numbers)
    lows, highs = listing.low.take(rows), listing.high.take(rows)
    order = Sort(id=_ANY_ID, terms=(Term(column_id=_ANY_ID),))
    ranks = [
        key_ranks(pa.table({"0": low}), pa.table({"0": high}), order)
        for low, high in zip(lows.columns, highs.columns, strict=True)
    ]
    return Boxes(
        low=tuple(low for low, _ in ranks),
        high=tuple(high for _, high in ranks),
        row_count=listing.stored_rows[numbers],
        partition=listing.partition[numbers],
    )
