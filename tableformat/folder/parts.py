"""What the footers of files say, as columns: a part holds files of one layout. A million files are no objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.folder.layout import Layout, StoredLeaf
from tblctl.tableformat.parquet.group_statistics import typed

_FILE_COLUMNS = {
    "name": pa.large_string(),
    "size_bytes": pa.int64(),
    "modified_seconds": pa.float64(),
    "rows": pa.int64(),
    "decoded_bytes": pa.int64(),
}


@dataclass(frozen=True, kw_only=True)
class Part:
    """Files of one layout.

    `rows` has a row for each, with the columns `columns_of` the layout. Null bounds are unknown, or there is no value.
    A null count of -1 is unknown.
    """

    layout: Layout
    rows: pa.Table


def columns_of(layout: Layout) -> pa.Schema:
    """Return the columns of a part: of the file; and `low n`, `high n`, `null_count n` and `exact n` of its leaf n."""
    fields = list(_FILE_COLUMNS.items())
    for number, leaf in enumerate(layout.leaves):
        fields += [(f"low {number}", leaf.kind), (f"high {number}", leaf.kind)]
        fields += [(f"null_count {number}", pa.int64()), (f"exact {number}", pa.bool_())]
    return pa.schema(fields)


def joined(parts: Sequence[Part]) -> list[Part]:
    """Return parts with those of one layout put together, in the order of their first files' names."""
    groups: list[list[Part]] = []
    for part in parts:
        like = next((group for group in groups if group[0].layout.stored.equals(part.layout.stored)), None)
        if like is None:
            groups.append([part])
        else:
            like.append(part)
    found = []
    for group in groups:
        rows = pa.concat_tables([part.rows for part in group]).combine_chunks()
        layout = Layout(stored=group[0].layout.stored, first=pc.min(rows["name"]).as_py())
        found.append(Part(layout=layout, rows=rows))
    return sorted(found, key=lambda part: part.layout.first)


@dataclass(kw_only=True)
class Cells:
    """The statistics of one leaf in the row groups of some files, as they are read."""

    owner: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    low: list[Any] = field(default_factory=list)
    high: list[Any] = field(default_factory=list)
    nulls: list[int] = field(default_factory=list)

    def add(self, owner: int, rows: Sequence[int], found: Sequence[tuple[Any, Any, int]]) -> None:
        """Add the row groups of one file: least and greatest value (None if unknown), and nulls (-1 if unknown)."""
        self.owner += [owner] * len(found)
        self.rows += rows
        for low, high, nulls in found:
            self.low.append(low)
            self.high.append(high)
            self.nulls.append(nulls)

    def bounds(self, leaf: StoredLeaf, count: int) -> tuple[pa.Array, pa.Array, np.ndarray]:
        """Return least and greatest value and nulls of each of `count` files, from those of its row groups.

        A file has no bounds if a row group that may have values has none, or has NaN for one.
        """
        owner, rows, nulls = (np.array(item, np.int64) for item in (self.owner, self.rows, self.nulls))
        low, high = (typed(item, leaf.kind, leaf.kind) for item in (self.low, self.high))
        bounded = _is_number(low) & _is_number(high)
        unknown = np.zeros(count, bool)
        unknown[owner[~bounded & (nulls != rows)]] = True
        uncounted = np.zeros(count, bool)
        uncounted[owner[nulls < 0]] = True
        totals = np.bincount(owner, weights=np.maximum(nulls, 0), minlength=count).astype(np.int64)
        keep = np.flatnonzero(bounded & ~unknown[owner])
        ends = (_extreme(values, owner, keep, count, side) for side, values in enumerate((low, high)))
        return *ends, np.where(uncounted, -1, totals)


def _is_number(values: pa.Array) -> np.ndarray:
    """Return where there is a value other than NaN."""
    found = np.asarray(values.is_valid())
    if pa.types.is_floating(values.type):
        found &= ~np.asarray(pc.fill_null(pc.is_nan(values), fill_value=True))
    return found


def _extreme(values: pa.Array, owner: np.ndarray, keep: np.ndarray, count: int, side: int) -> pa.Array:
    """Return the least value of each owner, or (for side 1) the greatest, of the places `keep`; null without any."""
    places = np.full(count, -1, np.int64)
    kinds: tuple[Any, Any] = ("ascending", "descending")
    if len(keep) > np.count_nonzero(
        np.bincount(owner[keep], minlength=count)
    ):  # several row groups in a file
        order = np.asarray(pc.array_sort_indices(values.take(pa.array(keep)), order=kinds[side]))
        keep = keep[order]
        keep = keep[np.unique(owner[keep], return_index=True)[1]]
    places[owner[keep]] = keep
    return values.take(pa.array(np.maximum(places, 0), mask=places < 0))
