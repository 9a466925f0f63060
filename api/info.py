"""How well a table is clustered: from a version's metadata to figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tblctl.metrics.information import BlockArrays, ClusteringInfo, clustering_info
from tblctl.selector.blocks import Candidates
from tblctl.tableformat.errors import InvalidKeyError
from tblctl.tableformat.model.cluster_key import Sort, parse_terms, term_to_text
from tblctl.tableformat.port import Version
from tblctl.view import candidates

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

_ANY_ID = 1
"""Of a sort that is made up for measuring: by column statistics alone, whose keys no block has."""


def table_info(
    version: Version, columns: str | Sequence[str] | None, condition: BooleanExpression | None
) -> ClusteringInfo:
    """Return the figures of the blocks that may hold rows satisfying the condition.

    Args:
        version: what to measure.
        columns: terms to measure by, as if the table were clustered by them; None for its cluster key.
        condition: None for all blocks.

    Raises:
        InvalidKeyError: no `columns`, and the table has no cluster key.
    """
    sort = version.sort
    if columns is not None:
        sort = Sort(id=_ANY_ID, terms=parse_terms(columns, version.schema))
    elif sort is None:
        msg = (
            f"{version.location} has no cluster key to measure by; name columns (`--columns a,b`), or give it one: "
            "`tblctl alter LOC --cluster-by ...`"
        )
        raise InvalidKeyError(msg)
    listing = version.listing(sort, condition, clustered=columns is None)
    measured = block_arrays(candidates(listing, sort, clustered=columns is None))
    terms = [term_to_text(term, version.schema) for term in sort.terms]
    return clustering_info(terms, measured if listing.matched is None else measured.pick(listing.matched))


def block_arrays(blocks: Candidates) -> BlockArrays:
    """Return what figures are made of."""
    return BlockArrays(
        low=blocks.low,
        high=blocks.high,
        level=blocks.level,
        row_count=blocks.row_count,
        size_bytes=blocks.size_bytes,
        constant=blocks.constant,
        unclustered=blocks.unclustered,
        unknown=blocks.unknown,
    )
