"""Bounds of the keys of files: from the bounds of columns, and from partitions.

All rows of a file have one value of a transform that the file is partitioned by. A key's term that is this transform
needs no bounds of the column. A bucket of a column has none from the column's bounds, but is one of n numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.iceberg.files import DataFiles
from tblctl.tableformat.iceberg.partitions import Partitions, values_of
from tblctl.tableformat.keys.kinds import KeyBounds, key_maker
from tblctl.tableformat.keys.linear import Bounds
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.term_values import monotonic, term_type, transform_array

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec


def key_bounds(
    sort: Sort, files: DataFiles, schema: Schema, partitions: Partitions, specs: Mapping[int, PartitionSpec]
) -> KeyBounds:
    """Return the bounds of the keys of files. O(n) for n files and each term.

    Args:
        sort: makes the keys.
        files: have the statistics of its columns.
        schema: the table's columns.
        partitions: of the files.
        specs: the table's specs by id.
    """
    if sort.kind != "linear":
        return key_maker(sort).bounds(files, schema)
    terms = []
    for term in sort.terms:
        found = _term_bounds(replace(sort, terms=(term,)), files, schema)
        if schema.leaf_by_id(term.column_id) is not None:
            kind = term_type(term, schema)
            one = values_of(term.column_id, term.transform, kind, partitions, specs)
            found = found if one is None else _with_values(found, *one)
        terms.append(found)
    return Bounds(
        low=[found.low[0] for found in terms],
        high=[found.high[0] for found in terms],
        known=np.logical_and.reduce([found.known for found in terms]),
        exact=np.logical_and.reduce([found.exact for found in terms]),
    )


def _term_bounds(sort: Sort, files: DataFiles, schema: Schema) -> KeyBounds:
    """Return the bounds of a sort of one term, as the bounds of its column give them."""
    (term,) = sort.terms
    if monotonic(term) or schema.leaf_by_id(term.column_id) is None:
        return key_maker(sort).bounds(files, schema)
    return _bucket_bounds(term, files, schema)


def _with_values(found: KeyBounds, values: pa.Array, held: np.ndarray) -> Bounds:
    """Return the bounds of one term, in some files its only value."""
    mask = pa.array(held)
    return Bounds(
        low=[pc.if_else(mask, values, found.low[0])],
        high=[pc.if_else(mask, values, found.high[0])],
        known=found.known | held,
        exact=found.exact | held,
    )


def _bucket_bounds(term: Term, files: DataFiles, schema: Schema) -> Bounds:
    """Return the bounds of a bucket: that of the one value that a file has of the column, else those of all buckets."""
    leaf = schema.leaf_by_id(term.column_id)
    column = None if leaf is None else files.column(leaf)
    rows, kind = files.row_count, term_type(term, schema)
    ends = [pa.repeat(pa.scalar(end, kind), len(rows)) for end in (0, (term.width or 1) - 1)]
    nulls, exact = np.full(len(rows), -1), np.zeros(len(rows), bool)
    if leaf is not None and column is not None:
        nulls = column.null_count
        single = np.asarray(pc.fill_null(pc.equal(column.min, column.max), fill_value=False), bool)
        single &= files.is_exact(leaf) & (nulls == 0)
        exact = single | (nulls == rows)
        one = transform_array(term, column.min, leaf.type)
        ends = [pc.if_else(pa.array(single), one, end) for end in ends]
    if term.descending:
        ends.reverse()
    null = pa.scalar(None, kind)
    side = 0 if term.nulls_first else 1
    ends[side] = pc.if_else(pa.array(nulls != 0), null, ends[side])
    ends[1 - side] = pc.if_else(pa.array(nulls == rows), null, ends[1 - side])
    return Bounds(low=[ends[0]], high=[ends[1]], known=np.ones(len(rows), bool), exact=exact)
