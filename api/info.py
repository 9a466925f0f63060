"""How well a table is clustered: from a snapshot's metadata to figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tblctl.metrics.information import BlockArrays, ClusteringInfo, clustering_info
from tblctl.tableformat.errors import InvalidKeyError
from tblctl.tableformat.keys import key_ranks
from tblctl.tableformat.model.block import CONSTANT_LEVEL
from tblctl.tableformat.model.cluster_key import Sort, parse_terms, term_to_text
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.key_ranges import KeyRanges, fetch_key_ranges
from tblctl.tableformat.native.scan import select_blocks
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression


def table_info(
    storage: Storage,
    snapshot: Snapshot,
    columns: str | Sequence[str] | None,
    condition: BooleanExpression | None,
) -> ClusteringInfo:
    """Return the figures of the blocks that may hold rows satisfying the condition.

    Args:
        storage: of the table.
        snapshot: the version to measure.
        columns: terms to measure by, as if the table were clustered by them; None for its cluster key.
        condition: None for all blocks.

    Raises:
        InvalidKeyError: no `columns`, and the table has no cluster key.
    """
    if columns is None and snapshot.sort is None:
        msg = (
            f"{storage.url} has no cluster key to measure by; name columns (`--columns a,b`), or give it one: "
            "`tblctl alter LOC --cluster-by ...`"
        )
        raise InvalidKeyError(msg)
    sort = snapshot.sort
    if columns is not None or sort is None:
        sort = Sort(id=max(snapshot.sorts, default=0) + 1, terms=parse_terms(columns or (), snapshot.schema))
    metadata = select_blocks(storage, snapshot, condition)
    figures = ["level", "row_count", "size_bytes"]
    metadata.metadata.fetch(figures)
    ranges = fetch_key_ranges(metadata.metadata, sort, clustered=columns is None)
    unclustered = ~ranges.own if columns is None else np.zeros(len(ranges.own), dtype=bool)
    low, high = key_ranks(ranges.low, ranges.high, sort)
    level, row_count, size_bytes = (
        np.asarray(metadata.metadata.values(name), dtype=np.int64) for name in figures
    )
    blocks = BlockArrays(
        low=low,
        high=high,
        level=level,
        row_count=row_count,
        size_bytes=size_bytes,
        constant=_constant(low, high, level, ranges, by_key=columns is None) & ~unclustered,
        unclustered=unclustered,
        unknown=~ranges.known,
    )
    terms = [term_to_text(term, snapshot.schema) for term in sort.terms]
    return clustering_info(terms, blocks.pick(metadata.rows))


def _constant(
    low: np.ndarray, high: np.ndarray, level: np.ndarray, ranges: KeyRanges, *, by_key: bool
) -> np.ndarray:
    """Return which blocks hold one key only; where bounds were shortened, the level of a constant block still tells."""
    equal: np.ndarray = (low == high) & ranges.exact
    return np.asarray(equal | (level == CONSTANT_LEVEL)) if by_key else equal
