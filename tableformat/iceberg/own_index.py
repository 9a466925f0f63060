"""The files of one snapshot that tblctl wrote: the sort of each, its level, and the keys of its first and last row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.iceberg.entries import FileEntries
from tblctl.tableformat.iceberg.options import EXPANSION
from tblctl.tableformat.iceberg.own_files import NAME, UNORDERED
from tblctl.tableformat.iceberg.own_keys import Keys, OwnFiles, keys_of
from tblctl.tableformat.keys.columns import KeyColumns
from tblctl.tableformat.keys.order import key_ranks
from tblctl.tableformat.model.block import CONSTANT_LEVEL, FULL_SHARE, ClusterStatistics
from tblctl.tableformat.model.cluster_key import NO_SORT, Sort
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.runs import NO_RUN, run_numbers, runs_of_some
from tblctl.tableformat.model.schema.schema import Schema


class OwnIndex:
    """Finds tblctl's own files among those of a snapshot. Keys are read when they are first needed.

    Args:
        entries: the snapshot's data files.
        table: the table's UUID, as hexadecimal digits.
        schema: the table's columns.
        side_rows: returns the rows of side files of keys by a sort, the newest first.
        footers: returns the row of keys in the footers of some of the files, by their places.
    """

    def __init__(
        self,
        entries: FileEntries,
        table: str,
        schema: Schema,
        *,
        side_rows: Callable[[Sort], list[pa.Table]],
        footers: Callable[[np.ndarray], list[pa.Table | None]],
    ) -> None:
        self._entries = entries
        self._schema = schema
        self._side_rows = side_rows
        self._footers = footers
        self._files = OwnFiles.among(entries.path, table)
        self._keys: dict[int, tuple[OwnFiles, Keys]] = {}

    def sort_ids(self, live: Collection[int]) -> np.ndarray:
        """Return the live sort in whose order each file is, by its name; -1 for none."""
        found = np.full(len(self._entries), -1, np.int64)
        chosen = np.isin(self._files.sort_id, list(live))
        found[self._files.rows[chosen]] = self._files.sort_id[chosen]
        return found

    def orders(self, found: KeyColumns, sort: Sort, claimed: np.ndarray, sorts: Iterable[Sort]) -> np.ndarray:
        """Return the sort in whose order each file is, of some; where its name says none, the `claimed` one.

        By `AS_LISTED`, files in no order are its own.
        """
        named = self.sort_ids([item.id for item in sorts])
        ids: np.ndarray = np.where(named == NO_SORT, claimed, named)
        if not sort.is_order:
            ids = np.where(ids == NO_SORT, sort.id, ids)
            found.own |= ids == sort.id
        return ids

    def runs(self, sort_id: int) -> np.ndarray:
        """Return the number of the run of each file in the order of a sort, by its name; -1 for others."""
        found = np.full(len(self._entries), NO_RUN, np.int64)
        ordered = self._files.of_sort(sort_id).rows if sort_id != UNORDERED else self._files.rows[:0]
        names = pc.extract_regex(self._entries.path.take(pa.array(ordered)), NAME)
        found[ordered] = run_numbers(pc.struct_field(names, "run"))
        return found

    def put(
        self, found: KeyColumns, sort: Sort, options: TableOptions, *, beside: Sort | None = None
    ) -> None:
        """Put what names and keys of tblctl's own files say, by a sort, and the levels of those in the order `beside`.

        By `AS_LISTED` these are the levels of all: it has no keys.
        """
        files = self._files
        if sort.is_order and beside is not None:
            files = files.of_sort(beside.id)
        if beside is not None or not sort.is_order:
            found.level[files.rows] = files.level
        if sort.is_order:
            self.put_keys(found, sort, options)

    def _of_sort(self, sort: Sort) -> tuple[OwnFiles, Keys]:
        """Return tblctl's files that are in the order of a sort, and their keys."""
        if sort.id not in self._keys:
            own = self._files.of_sort(sort.id)
            paths = self._entries.path.take(pa.array(own.rows))

            def footers(places: Sequence[int]) -> dict[int, pa.Table]:
                found = zip(places, self._footers(own.rows[list(places)]), strict=True)
                return {place: row for place, row in found if row is not None}

            side = self._side_rows(sort) if len(own.rows) else []
            self._keys[sort.id] = own, keys_of(paths, sort, self._schema, side, footers)
        return self._keys[sort.id]

    def put_keys(self, found: KeyColumns, sort: Sort, options: TableOptions) -> None:
        """Put the keys of tblctl's own files in the place of bounds of their columns."""
        own, keys = self._of_sort(sort)
        chosen = np.flatnonzero(keys.known)
        rows = own.rows[chosen]
        if not len(rows):
            return
        take = np.full(len(found.own), -1)
        take[rows] = chosen
        found.low, found.high = (
            _replaced(table, keys_table, take)
            for table, keys_table in ((found.low, keys.low), (found.high, keys.high))
        )
        found.known[rows] = found.own[rows] = True
        found.inexact[rows] = False
        found.exact[rows] = keys.exact[chosen]
        found.same_key_rows[rows] = keys.same_key_rows[chosen]
        low, high = key_ranks(keys.low.take(chosen), keys.high.take(chosen), sort)
        full = _are_full(self._entries.rows[rows], self._entries.size_bytes[rows] * EXPANSION, options)
        constant = (low == high) & keys.exact[chosen]
        cut = rows[~keys.exact[chosen]]
        if len(cut):
            names = pc.extract_regex(self._entries.path.take(pa.array(cut)), NAME)
            found.truncated_run = runs_of_some(pc.struct_field(names, "run"), cut, len(found.own))
        found.level[rows] = np.where(constant & full, CONSTANT_LEVEL, own.level[chosen])

    def clusters(self, rows: Sequence[int], sorts: Iterable[Sort]) -> dict[int, ClusterStatistics]:
        """Return the places in key order of those of some files whose keys are known, by their places in the list."""
        found = {}
        for sort in sorts:
            own, keys = self._of_sort(sort)
            places = {int(row): place for place, row in enumerate(own.rows)}
            for row in rows:
                place = places.get(row)
                if place is None or not keys.known[place]:
                    continue
                ends = [
                    tuple(column[place].as_py() for column in table.columns)
                    for table in (keys.low, keys.high)
                ]
                found[row] = ClusterStatistics(
                    cluster_key_id=sort.id,
                    min=ends[0],
                    max=ends[1],
                    exact=bool(keys.exact[place]),
                    level=int(own.level[place]),
                )
        return found


def _replaced(table: pa.Table, other: pa.Table, take: np.ndarray) -> pa.Table:
    """Return a table with rows of another one where `take` is their place there, and not -1."""
    chosen = take >= 0
    places, mask = pa.array(np.where(chosen, take, 0), mask=~chosen), pa.array(chosen)
    columns = [
        pc.if_else(mask, new.take(places).cast(old.type), old)
        for new, old in zip(other.columns, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _are_full(rows: np.ndarray, decoded_bytes: np.ndarray, options: TableOptions) -> np.ndarray:
    """Return which blocks of some rows and bytes in memory count as full."""
    found: np.ndarray = (rows >= np.floor(FULL_SHARE * options.block_rows)) | (
        decoded_bytes >= FULL_SHARE * options.block_bytes
    )
    return found
