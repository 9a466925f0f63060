"""Where the keys of a snapshot's blocks lie, by the current cluster key or as if clustered by another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.keys.order import keys_after
from tblctl.tableformat.model.cluster_key import Sort, Term, monotonic, term_type, transform_array
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.native.log.segment_columns import key_names, statistic_names
from tblctl.tableformat.native.read.metadata import BlockMetadata


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyRanges:
    """Bounds of the keys in n blocks.

    Attributes:
        low, high: one row a block, columns "0", "1", .. one a term; a null may be a null key, see `known`.
        own: the block is in the sort's order, and its bounds are the keys of its first and last row.
        known: the bounds hold; where false nothing is known and the values mean nothing.
        exact: the bounds are keys of rows, not shortened and not of columns apart.
    """

    low: pa.Table
    high: pa.Table
    own: np.ndarray
    known: np.ndarray
    exact: np.ndarray


def range_columns(schema: Schema, sort: Sort, *, clustered: bool = True) -> list[str]:
    """Return the columns of the metadata that `fetch_key_ranges` needs."""
    lows, highs, exact_name = key_names(sort.id, len(sort.terms))
    leaves = [schema.leaf_by_id(term.column_id) for term in sort.terms]
    statistics = [
        name for leaf in leaves if leaf for name in statistic_names(leaf) if not name.endswith("_bytes")
    ]
    return ["row_count", "cluster_key_id", *statistics, *((*lows, *highs, exact_name) if clustered else ())]


def fetch_key_ranges(metadata: BlockMetadata, sort: Sort, *, clustered: bool = True) -> KeyRanges:
    """Return the key ranges of all blocks of `metadata` by `sort`.

    Args:
        metadata: columns that are needed are fetched.
        sort: a definition of the table's, or one made up.
        clustered: take the keys of blocks in the sort's order; otherwise only column statistics, as for any columns.

    Raises:
        CorruptTableError: the bounds of a block contradict each other.
    """
    terms = range(len(sort.terms))
    lows, highs, exact_name = key_names(sort.id, len(sort.terms))
    metadata.fetch(range_columns(metadata.schema, sort, clustered=clustered))
    own = np.zeros(len(metadata), dtype=bool)
    exact = np.zeros(len(metadata), dtype=bool)
    if clustered:
        own = _mask(pc.equal(metadata.values("cluster_key_id"), pa.scalar(sort.id, pa.int32())))
        exact = own & _mask(metadata.values(exact_name))
    known = np.ones(len(metadata), dtype=bool)
    whole = np.ones(len(metadata), dtype=bool)  # no statistic is shortened
    columns: tuple[list[pa.Array], list[pa.Array]] = ([], [])
    for place in terms:
        bounds, sure, unshortened = _column_bounds(metadata, sort.terms[place])
        known &= sure
        whole &= unshortened
        for side, name in enumerate((lows[place], highs[place])):
            if own.any():
                keys = metadata.values(name).cast(bounds[side].type)
                columns[side].append(pc.if_else(pa.array(own), keys, bounds[side]))
            else:
                columns[side].append(bounds[side])
    if not clustered:
        exact = known & whole
    names = [str(place) for place in terms]
    low, high = (pa.table(side, names=names) for side in columns)
    known = known | own
    crossed = np.flatnonzero(known & keys_after(low, high, sort))
    if crossed.size:
        raise metadata.crossed(int(crossed[0]), "keys")
    return KeyRanges(low=low, high=high, own=own, known=known, exact=exact)


def _column_bounds(metadata: BlockMetadata, term: Term) -> tuple[list[pa.Array], np.ndarray, np.ndarray]:
    """Return what column statistics say of a term, and where that holds and where it is not shortened.

    That is its least and greatest value in key order. A transform that keeps order turns bounds into bounds; a bucket
    does not. Column statistics leave out nulls and NaN, which have their place in key order: where there may be any,
    they are the bound on their side.
    """
    leaf = metadata.schema.leaf_by_id(term.column_id)
    statistics = metadata.column(leaf) if leaf and monotonic(term) else None
    if leaf is None or statistics is None:
        kind = term_type(term, metadata.schema) if leaf else pa.null()
        nowhere = np.zeros(len(metadata), dtype=bool)
        return [pa.nulls(len(metadata), kind)] * 2, nowhere, nowhere
    ends = [statistics.min, statistics.max]
    empty = statistics.null_count == metadata.row_count
    exact = empty | _mask(metadata.values(f"column_{term.column_id}_exact"))  # no mark: older than the column
    known = empty | (_mask(ends[0].is_valid()) & _mask(ends[1].is_valid()))
    if term.transform != "identity":
        ends = [transform_array(term, bound, leaf.type) for bound in ends]
    if statistics.nan_count is not None:
        some_nan = statistics.nan_count != 0
        nan = pa.scalar(math.nan, ends[1].type)
        ends[1] = pc.if_else(pa.array(some_nan), nan, ends[1])
        only_nan = some_nan & (statistics.nan_count + statistics.null_count == metadata.row_count)
        ends[0] = pc.if_else(pa.array(only_nan), nan, ends[0])
        known |= only_nan
    if term.descending:
        ends.reverse()
    side = 0 if term.nulls_first else 1
    ends[side] = pc.if_else(
        pa.array(statistics.null_count != 0), pa.scalar(None, ends[side].type), ends[side]
    )
    return ends, known, exact


def _mask(values: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(values.cast(pa.bool_()), False).to_numpy(zero_copy_only=False), dtype=bool)  # noqa: FBT003
