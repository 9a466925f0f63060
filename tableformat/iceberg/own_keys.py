"""The keys of tblctl's own files: from side files that commits leave, or else from the files' footers.

A side file is a Parquet table of `own_files.key_rows`. A REPLACE's summary names those with the keys of the table's
files, newest first. They may be lost without harm.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tblctl.tableformat.iceberg.own_files import KEYS, NAME, decode_keys
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Schema

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

LOG = logging.getLogger("tblctl")

SIDE_FILES = "tblctl.keys-files"
"""The key of a summary with the paths of side files, as a JSON list."""

SORT = "tblctl.keys-sort"
"""The key of a summary with the id of the sort of the side files, in hexadecimal."""

MOST_SIDE_FILES = 16
"""A commit that finds this many makes one of them. So each key is written again once in as many commits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnFiles:
    """Which of some files tblctl wrote for a table, by their names.

    Attributes:
        rows: their places, ascending.
        level, sort_id: of each.
    """

    rows: np.ndarray
    level: np.ndarray
    sort_id: np.ndarray

    @classmethod
    def among(cls, paths: pa.Array, table: str) -> OwnFiles:
        """Return tblctl's files of a table (its UUID as hexadecimal digits) among paths. O(n)."""
        likely = np.flatnonzero(pc.match_substring(paths, f"tblctl-{table}-l").to_numpy(zero_copy_only=False))
        parts = pc.extract_regex(paths.take(pa.array(likely)), NAME)
        mine = pc.fill_null(pc.equal(pc.struct_field(parts, "table"), table), fill_value=False)
        chosen = np.flatnonzero(mine.to_numpy(zero_copy_only=False))
        found = parts.take(pa.array(chosen))
        sorts = [int(text, 16) for text in pc.struct_field(found, "sort").to_pylist()]
        return cls(
            rows=likely[chosen],
            level=np.asarray(pc.struct_field(found, "level").cast(pa.int64())),
            sort_id=np.array(sorts, np.int64),
        )

    def of_sort(self, sort_id: int) -> OwnFiles:
        """Return those that are in the order of a sort."""
        chosen = np.flatnonzero(self.sort_id == sort_id)
        return OwnFiles(rows=self.rows[chosen], level=self.level[chosen], sort_id=self.sort_id[chosen])


@dataclass(frozen=True, kw_only=True, eq=False)
class Keys:
    """The keys of the first and last rows of n files.

    Attributes:
        known: whether the keys of a file were found. Without them nothing is said of it.
        low, high: columns "0", "1", .. one a key column.
        exact, same_key_rows: see `BlockRecord`.
    """

    known: np.ndarray
    low: pa.Table
    high: pa.Table
    exact: np.ndarray
    same_key_rows: np.ndarray


def side_files_of(metadata: TableMetadata, snapshot: Snapshot | None, sort: Sort) -> tuple[str, ...]:
    """Return the side files that the newest ancestor of a snapshot names for a sort; none if no summary does."""
    by_id = {found.snapshot_id: found for found in metadata.snapshots}
    while snapshot is not None:
        found = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if found.get(SORT) == f"{sort.id:012x}":
            return _paths(found.get(SIDE_FILES, "[]"))
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else by_id.get(parent)
    return ()


def side_files_named(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the side files that a snapshot's own summary names."""
    found = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return _paths(found.get(SIDE_FILES, "[]"))


def _paths(text: str) -> tuple[str, ...]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    return tuple(found) if isinstance(found, list) and all(isinstance(item, str) for item in found) else ()


def read_side_file(data: bytes) -> pa.Table | None:
    """Return the rows of a side file; None if it cannot be read."""
    try:
        rows = pq.read_table(pa.BufferReader(data))
        names = set(rows.column_names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        LOG.warning("a file of keys cannot be read, footers are: %s", error)
        return None
    return rows if {"path", "exact", "same_key_rows"} <= names else None


def write_side_file(rows: pa.Table) -> bytes:
    """Return the bytes of a side file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    return bytes(sink.getvalue())


def keys_of(
    paths: pa.Array,
    sort: Sort,
    schema: Schema,
    side: Sequence[pa.Table],
    footers: Callable[[Sequence[int]], Mapping[int, pa.Table]],
) -> Keys:
    """Return the keys of some files, all in the order of a sort.

    Args:
        paths: of the files.
        sort: the sort.
        schema: the table's columns.
        side: rows of side files, the newest first.
        footers: returns rows that were in the footers of some of the files, given and keyed by their places.
    """
    kinds = key_maker(sort).types(schema)
    typed = _typed(kinds)
    tables = [found for rows in side if (found := _as_typed(rows, typed)) is not None]
    held = pa.concat_tables([*tables, typed.empty_table()])
    places = pc.index_in(paths.cast(pa.string()), held["path"].combine_chunks())
    missing = np.flatnonzero(places.is_null().to_numpy(zero_copy_only=False)).tolist()
    found = {} if None in kinds or not missing else footers(missing)
    added = {place: row for place, rows in found.items() if (row := _as_typed(rows, typed)) is not None}
    positions = np.asarray(pc.fill_null(places, -1), np.int64).copy()
    for offset, place in enumerate(added):
        positions[place] = len(held) + offset
    held = pa.concat_tables([held, *added.values()])
    known = positions >= 0
    taken = held.take(pa.array(positions, mask=~known))
    return Keys(
        known=known,
        low=_ends(taken, "low", len(kinds)),
        high=_ends(taken, "high", len(kinds)),
        exact=np.asarray(pc.fill_null(taken["exact"], fill_value=False)),
        same_key_rows=np.asarray(pc.fill_null(taken["same_key_rows"], -1)),
    )


def _typed(kinds: Sequence[pa.DataType | None]) -> pa.Schema:
    ends = [
        (f"{end}.{place}", kind or pa.null()) for end in ("low", "high") for place, kind in enumerate(kinds)
    ]
    return pa.schema([("path", pa.string()), *ends, ("exact", pa.bool_()), ("same_key_rows", pa.int64())])


def _as_typed(rows: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """Return rows in the types that keys have now, wider ones maybe; None if they have none of these."""
    try:
        return rows.select(schema.names).cast(schema)
    except (KeyError, pa.ArrowException, ValueError):
        return None


def _ends(rows: pa.Table, name: str, count: int) -> pa.Table:
    names = [f"{name}.{place}" for place in range(count)]
    return rows.select(names).rename_columns([str(place) for place in range(count)])


def keys_in_footer(metadata: Mapping[bytes, bytes] | None) -> pa.Table | None:
    """Return the row of keys in a footer's key-value metadata; None if there is none."""
    text = None if metadata is None else metadata.get(KEYS.encode())
    return None if text is None else decode_keys(text)
