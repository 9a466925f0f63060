"""Key ranges of a snapshot's blocks, by the current cluster key or by another sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.keys.kinds import key_leaves, key_maker, key_width
from tblctl.tableformat.keys.order import keys_after
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.native.log.segment_columns import key_names, statistic_names
from tblctl.tableformat.native.read.metadata import BlockMetadata


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyRanges:
    """Bounds of the keys in n blocks.

    Attributes:
        low, high: one row for each block, columns "0", "1", .. one for each key column. A null may be a null key, see
            `known`.
        own: the block is in the sort's order, and its bounds are the keys of its first and last row.
        known: the bounds hold; if false, the values mean nothing.
        exact: the bounds are keys of rows: not truncated, and not combined from separate column bounds.
    """

    low: pa.Table
    high: pa.Table
    own: np.ndarray
    known: np.ndarray
    exact: np.ndarray


def range_columns(schema: Schema, sort: Sort, *, clustered: bool = True) -> list[str]:
    """Return the columns of the metadata that `fetch_key_ranges` needs."""
    lows, highs, exact_name = key_names(sort.id, key_width(sort))
    statistics = [
        name
        for leaf in key_leaves(sort, schema)
        for name in statistic_names(leaf)
        if not name.endswith("_bytes")
    ]
    return ["row_count", "cluster_key_id", *statistics, *((*lows, *highs, exact_name) if clustered else ())]


def fetch_key_ranges(metadata: BlockMetadata, sort: Sort, *, clustered: bool = True) -> KeyRanges:
    """Return the key ranges of all blocks of `metadata` by `sort`.

    Args:
        metadata: of the blocks; needed columns are fetched.
        sort: a sort of the table, or any other.
        clustered: use the keys of blocks in the sort's order; if false, use column statistics only.

    Raises:
        CorruptTableError: the bounds of a block contradict each other.
    """
    metadata.fetch(range_columns(metadata.schema, sort, clustered=clustered))
    own, exact_keys = _in_order(metadata, sort) if clustered else (None, None)
    bounds = key_maker(sort).bounds(metadata, metadata.schema)
    lows, highs, _ = key_names(sort.id, key_width(sort))
    low, high = bounds.low, bounds.high
    if own is not None and own.any():
        low = _with_keys(metadata, lows, own, low)
        high = _with_keys(metadata, highs, own, high)
    names = [str(place) for place in range(key_width(sort))]
    ranges = KeyRanges(
        low=pa.table(list(low), names=names),
        high=pa.table(list(high), names=names),
        own=np.zeros(len(metadata), dtype=bool) if own is None else own,
        known=bounds.known if own is None else bounds.known | own,
        exact=bounds.known & bounds.exact if exact_keys is None else exact_keys,
    )
    crossed = np.flatnonzero(ranges.known & keys_after(ranges.low, ranges.high, sort))
    if crossed.size:
        raise metadata.crossed(int(crossed[0]), "keys")
    return ranges


def _in_order(metadata: BlockMetadata, sort: Sort) -> tuple[np.ndarray, np.ndarray]:
    """Return which blocks are in the order of `sort`, and which of them have exact keys."""
    own = _mask(pc.equal(metadata.values("cluster_key_id"), pa.scalar(sort.id, pa.int32())))
    _, _, exact_name = key_names(sort.id, key_width(sort))
    return own, own & _mask(metadata.values(exact_name))


def _with_keys(
    metadata: BlockMetadata, names: Sequence[str], own: np.ndarray, bounds: Sequence[pa.Array]
) -> list[pa.Array]:
    """Return the bounds, replaced by keys for blocks in the sort's order."""
    mine = pa.array(own)
    return [
        pc.if_else(mine, metadata.values(name).cast(bound.type), bound)
        for name, bound in zip(names, bounds, strict=True)
    ]


def _mask(values: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(values.cast(pa.bool_()), False).to_numpy(zero_copy_only=False), dtype=bool)  # noqa: FBT003
