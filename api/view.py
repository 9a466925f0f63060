"""A version of a table as what metrics and policies take: arrays of numbers, one entry a block."""

from __future__ import annotations

import numpy as np

from tblctl.selector.blocks import Candidates
from tblctl.tableformat.keys import key_ranks
from tblctl.tableformat.model.block import CONSTANT_LEVEL
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.port import Listing


def candidates(listing: Listing, sort: Sort, *, clustered: bool = True) -> Candidates:
    """Return the blocks of `listing`, whose bounds are by `sort`.

    Blocks that are not in the order of `sort` are unclustered; if not `clustered`, none is: the order of rows does not
    matter then.
    """
    low, high = key_ranks(listing.low, listing.high, sort)
    unclustered = ~listing.own if clustered else np.zeros(len(low), dtype=bool)
    # Where bounds were shortened, the level of a constant block still tells.
    constant = ((low == high) & listing.exact) | (clustered & (listing.level == CONSTANT_LEVEL))
    return Candidates(
        paths=listing.paths,
        low=low,
        high=high,
        level=listing.level,
        row_count=listing.row_count,
        size_bytes=listing.size_bytes,
        decoded_bytes=listing.decoded_bytes,
        constant=constant & ~unclustered,
        unclustered=unclustered,
        unknown=~listing.known,
    )
