"""`tblctl.tableformat.port` over tables of the native format.

The id of a version is its sequence, as text. What reads segments and Parquet is imported when it is first needed: a
command that shows the history needs none of it, and would take a quarter longer.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import InvalidKeyError, InvalidOptionError, SnapshotNotFoundError
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import NO_SORT, Key, Sort, parse_key
from tblctl.tableformat.model.curve import bare_parameters
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.runs import run_numbers, runs_of_some
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.snapshot import Snapshot, Tombstone
from tblctl.tableformat.model.statistics import NONE, BlockStatistics
from tblctl.tableformat.model.version_numbers import is_version_number
from tblctl.tableformat.native.log.alter import key_terms
from tblctl.tableformat.native.log.head import load_readable, sequence_at
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.once import once
from tblctl.tableformat.port import Checked, Garbage, Listing, Replacement, VersionEntry
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

    from tblctl.tableformat.native.block_io import NativeBlockIO
    from tblctl.tableformat.native.read.metadata import BlockMetadata
    from tblctl.tableformat.workload.place import LogPlace

_FIGURES = ("level", "row_count", "size_bytes", "decoded_bytes")
"""Columns of segments that `Listing` has as numbers. No row of a block is deleted, so it stores `row_count` rows."""


class NativeVersion:
    """`tblctl.tableformat.port.Version` of a snapshot. Keeps metadata that was read."""

    def __init__(self, storage: Storage, snapshot: Snapshot) -> None:
        self._storage = storage
        self.snapshot = snapshot

    @property
    def location(self) -> str:
        """The table, for people; without secrets."""
        return self._storage.url

    @property
    def table_id(self) -> str:
        """The table's id. It differs from that of an earlier table at the same location."""
        return self.snapshot.table_id

    @property
    def id(self) -> str:
        """The sequence as text."""
        return str(self.snapshot.sequence)

    @property
    def parent(self) -> str | None:
        """The sequence before, as text; None for the first."""
        return _parent(self.snapshot.sequence)

    @property
    def public_id(self) -> int:
        """The sequence."""
        return self.snapshot.sequence

    @property
    def tags(self) -> Mapping[str, str]:
        """The ids of versions by their tags."""
        return {tag: str(sequence) for tag, sequence in self.snapshot.tags.items()}

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.snapshot.schema

    @property
    def sort(self) -> Sort | None:
        """The cluster key; None without one."""
        return self.snapshot.sort

    @property
    def cluster_hint(self) -> str:
        """The command that sets the key."""
        return "give it one: `tblctl alter LOC --cluster-by a,b` or `table.set_cluster_key(...)`"

    @property
    def sorts(self) -> Mapping[int, Sort]:
        """The live sorts by id."""
        return self.snapshot.live_sorts

    @property
    def next_sort_id(self) -> int:
        """An id that no sort of the table ever had."""
        return self.snapshot.next_sort_id

    def sort_by(self, terms: str, *, reads_rows: bool = True) -> Sort:
        """Return the live sort by some terms, or else a new one. For a new curve or tree rows are read."""
        key = parse_key(terms, self.schema)
        alike = (sort for sort in self.sorts.values() if key.is_of(sort))
        return next(alike, None) or self._new_sort(key, reads_rows=reads_rows)

    @once
    def _new_sorts(self) -> dict[Key, Sort]:
        return {}

    def _new_sort(self, key: Key, *, reads_rows: bool) -> Sort:
        """Return a sort that the table does not have yet, the same one each time."""
        made = self._new_sorts
        if key not in made and key.is_layout and not reads_rows:
            return self._bare_curve(key)
        if key not in made:
            terms = key.terms
            parameters: tuple[tuple[str, Any], ...] = ()
            if key.is_layout:
                from tblctl.tableformat.native.read.layouts import layout_of_table

                terms, parameters = layout_of_table(self._storage, self.snapshot, key)
            made[key] = Sort(id=self.next_sort_id, kind=key.kind, terms=terms, parameters=parameters)
        return made[key]

    def _bare_curve(self, key: Key) -> Sort:
        if key.tree is not None:
            msg = f"{key.tree.text:.300}: a new tree is grown from rows, and none may be read here"
            raise InvalidKeyError(msg)
        leaves = (self.schema.leaf_by_id(term.column_id) for term in key.terms)
        parameters = bare_parameters([leaf.type for leaf in leaves if leaf is not None])
        return Sort(id=self.next_sort_id, kind=key.kind, terms=key.terms, parameters=parameters)

    def may_add(self, sort: Sort) -> bool:
        """Return whether the table never had a sort of that id."""
        return sort.id >= self.next_sort_id

    def deletions(self) -> None:
        """Return None: deletes rewrite blocks."""
        return

    @property
    def options(self) -> TableOptions:
        """How blocks are written."""
        return self.snapshot.options

    is_pruned = False

    def pruned(self, condition: BooleanExpression | None) -> Self:  # noqa: ARG002 (its tables have no partitions)
        """Return the version as it is."""
        return self

    @once
    def _metadata(self) -> BlockMetadata:
        from tblctl.tableformat.native.read.metadata import block_metadata

        return block_metadata(self._storage, self.snapshot)

    def listing(
        self,
        sort: Sort,
        condition: BooleanExpression | None,
        *,
        clustered: bool = True,
        runs: bool = False,
        beside: Sort | None = None,
    ) -> Listing:
        """Return the blocks with their bounds by `sort`. Reads each segment once; twice for runs of truncated keys."""
        del beside  # only live sorts have blocks
        from tblctl.tableformat.native.read.key_ranges import fetch_key_ranges, range_columns
        from tblctl.tableformat.native.read.scan import condition_columns

        metadata = self._metadata
        clustered = clustered and sort.is_order
        node = None
        if condition is not None:
            from tblctl.tableformat.predicate.nodes import node_of

            node = node_of(condition, self.schema)  # imports PyIceberg, which takes 0.3 s
        leaves = [self.schema.leaf(name) for name in condition_columns(node, self.schema)]
        others = ["path", "same_key_rows", *_FIGURES, *range_columns(self.schema, sort, clustered=clustered)]
        others += ["run_id"] if runs else []
        matched = None
        if node is None:
            metadata.fetch_statistics(leaves, others)
        else:
            from tblctl.tableformat.predicate.match import match

            metadata.fetch_for(node, leaves, others)
            matched = np.asarray(match(node, metadata, self.schema).outcome != NONE)
        ranges = fetch_key_ranges(metadata, sort, clustered=clustered)
        figures = {name: np.asarray(metadata.values(name), dtype=np.int64) for name in _FIGURES}
        same_key_rows = metadata.values("same_key_rows").cast(pa.int64()).fill_null(-1)
        cut, run = np.flatnonzero(ranges.own & ~ranges.exact), None
        if runs and cut.size:
            metadata.fetch_statistics([], ["run_id"])
            run = runs_of_some(metadata.values("run_id").take(pa.array(cut)), cut, len(ranges.own))
        sort_ids = self._sort_ids()
        if not sort.is_order:
            sort_ids = np.where(sort_ids == -1, sort.id, sort_ids)
        return Listing(
            paths=metadata.values("path"),
            low=ranges.low,
            high=ranges.high,
            own=ranges.own if sort.is_order else sort_ids == sort.id,
            sort_id=sort_ids,
            known=ranges.known,
            exact=ranges.exact,
            same_key_rows=np.where(ranges.own, np.asarray(same_key_rows), -1),
            matched=matched,
            level=figures["level"],
            stored_rows=figures["row_count"],
            size_bytes=figures["size_bytes"],
            decoded_bytes=figures["decoded_bytes"],
            run=run_numbers(metadata.values("run_id")) if runs else None,
            truncated_run=run,
        )

    def statistics(self, leaves: Sequence[Leaf]) -> BlockStatistics:
        """Return statistics of columns in each block. Reads each segment once, also for listings by these columns."""
        from tblctl.tableformat.native.log.segment_columns import statistic_names

        names = [name for leaf in leaves for name in statistic_names(leaf) if name.endswith("_exact")]
        self._metadata.fetch_statistics(leaves, ["path", "cluster_key_id", *_FIGURES, *names])
        return self._metadata

    def blocks(self, paths: Sequence[str]) -> dict[str, Block]:
        """Return the blocks at `paths` that are in this version, by path."""
        return {block.path: block for block in self._metadata.blocks(self._rows_of(paths))}

    def is_ordered(self, block: Block, sort: Sort) -> bool:
        """Return whether the block's rows are in the order of `sort`."""
        return block.cluster is not None and block.cluster.cluster_key_id == sort.id

    def _sort_ids(self) -> np.ndarray:
        ids = np.asarray(self._metadata.values("cluster_key_id").cast(pa.int64()).fill_null(NO_SORT))
        return np.where(np.isin(ids, list(self.sorts)), ids, NO_SORT)

    def segments_of(self, paths: Sequence[str]) -> dict[str, str]:
        """Return the segments that list the blocks at `paths` that are in this version, by path."""
        rows = self._rows_of(paths)
        names = self._metadata.values("path").take(pa.array(rows)).to_pylist()
        return {
            name: self._metadata.segment_of(row).path for name, row in zip(names, rows.tolist(), strict=True)
        }

    def blocks_since(self, base: NativeVersion, paths: Collection[str]) -> frozenset[str]:
        """Return which of `paths` segments list that are new since `base`."""
        from tblctl.tableformat.native.log.segment_reader import read_segment

        known = {segment.path for segment in base.snapshot.segments}
        fresh = [segment for segment in self.snapshot.segments if segment.path not in known]
        tables = in_parallel(
            lambda ref: read_segment(self._storage, ref, ["path"]), fresh, threads=IO_THREADS
        )
        return frozenset(paths).intersection(
            itertools.chain.from_iterable(table["path"].to_pylist() for table in tables)
        )

    def row_count(self, paths: Sequence[str]) -> int:
        """Return the number of rows in the blocks at `paths` that are in this version."""
        return int(self._metadata.row_count[self._rows_of(paths)].sum())

    def null_counts(self, paths: Sequence[str]) -> dict[int, np.ndarray]:
        """Return for each column, by id, how many nulls each of the blocks has; -1 if unknown."""
        rows = self._rows_of(paths)
        leaves = self.schema.leaves
        if not len(rows):
            return {}
        counts = self._metadata.of_segments_with(rows).null_counts(leaves, paths)
        return {leaf.id: count for leaf, count in zip(leaves, counts, strict=True)}

    def _rows_of(self, paths: Sequence[str]) -> np.ndarray:
        known = self._metadata.values("path").cast(pa.string())  # of an empty table it has no type
        wanted = pc.is_in(known, pa.array(paths, pa.string()))
        return np.flatnonzero(wanted.to_numpy(zero_copy_only=False))


class NativePort:
    """`tblctl.tableformat.port.TablePort` of a native table."""

    def __init__(self, table: NativeTable) -> None:
        self._table = table
        self.env: Environment = table.env

    @property
    def location(self) -> str:
        """The table, for people; without secrets."""
        return self._table.storage.url

    def newest(self) -> NativeVersion:
        """Return the newest version."""
        return NativeVersion(self._table.storage, self._table.head())

    def version(self, id: str, *, newest: NativeVersion | None = None) -> NativeVersion:
        """Return the version of an id."""
        storage, head = self._table.storage, self._head(newest)
        try:
            sequence = int(id)
        except ValueError as error:
            msg = f"{storage.url} has no snapshot {id!r:.140}; `tblctl history` lists all"
            raise SnapshotNotFoundError(msg) from error
        return NativeVersion(storage, load_readable(storage, head, sequence))

    def version_at(self, timestamp_ms: int, *, newest: NativeVersion | None = None) -> NativeVersion:
        """Return the version that was the newest one at a time."""
        storage, head = self._table.storage, self._head(newest)
        return NativeVersion(storage, load_readable(storage, head, sequence_at(storage, head, timestamp_ms)))

    def parse_id(self, text: str) -> str | None:
        """Return a whole number as an id; None for other texts."""
        return str(int(text)) if is_version_number(text) else None

    def ever_had(self, id: str, *, newest: NativeVersion) -> bool:
        """Return whether there is a snapshot of that sequence, or was: sequences have no gaps."""
        return 0 < int(id) <= newest.snapshot.sequence

    def ever_had_sort(self, number: int, *, newest: NativeVersion) -> bool:
        """Return whether a sort of that id is live, or was: snapshots keep all of them."""
        return number in newest.snapshot.sorts

    def entry(self, version: NativeVersion, *, newest: NativeVersion | None = None) -> VersionEntry:
        """Return a version's entry in the history."""
        return _entry(version.snapshot, self._head(newest))

    def history(
        self, limit: int | None = None, *, start: NativeVersion | None = None
    ) -> Iterator[VersionEntry]:
        """Yield versions, newest first, from `start` on."""
        first = None if start is None else start.snapshot.sequence
        for version, head in self._table.history(limit, start=first):
            yield _entry(version, head)

    def known_history(self, version: NativeVersion) -> Iterator[VersionEntry]:
        """Yield the version alone: a snapshot says nothing of those before it. Its tags may be others by now."""
        yield _entry(version.snapshot, version.snapshot)

    def _head(self, newest: NativeVersion | None) -> Snapshot:
        return self._table.head() if newest is None else newest.snapshot

    def block_io(self, version: NativeVersion) -> NativeBlockIO:
        """Return the `BlockIO` of merge tasks for this version.

        Raises:
            AccessDeniedError, StorageError: a small object cannot be written there: credentials may only read.
        """
        from tblctl.tableformat.native.block_io import NativeBlockIO
        from tblctl.tableformat.native.blocks import layout_of
        from tblctl.tableformat.native.log.clock import write_probe

        snapshot, storage = version.snapshot, self._table.storage
        if not storage.is_local:
            write_probe(storage, self.env)
        return NativeBlockIO(
            storage=storage,
            env=self.env,
            layout=layout_of(snapshot),
            column_ids=snapshot.column_ids,
        )

    def replace(self, base: NativeVersion, replacement: Replacement) -> NativeVersion:
        """Commit on top of the newest version."""
        from tblctl.tableformat.native.replace import replace_blocks

        storage = self._table.storage
        return NativeVersion(storage, replace_blocks(storage, self.env, base, replacement))

    def gone(self, base: NativeVersion, newest: NativeVersion, paths: Collection[str]) -> frozenset[str]:
        """Return which blocks of `base` at `paths` are not in `newest`."""
        kept = {segment.path for segment in newest.snapshot.segments}
        segments = base.segments_of(list(paths))
        moved = frozenset(path for path in paths if segments.get(path) not in kept)
        return moved - newest.blocks_since(base, moved) if moved else moved

    def plan_storage(self, place: str | None) -> Storage:
        """Return where pending plans are kept: with the table.

        Raises:
            InvalidOptionError: somebody names another place, where this table's gc would not find them.
        """
        if place is not None:
            msg = f"{self.location} keeps pending plans with the table: leave out plans_at"
            raise InvalidOptionError(msg)
        return self._table.storage

    def log_place(self) -> LogPlace:
        """Return where the table's queries are recorded: with the table."""
        return self._table.log_place()

    def collect_garbage(self, *, keep: int, older_than_seconds: float, dry_run: bool) -> Garbage:
        """Expire versions, and delete objects that nothing names any more."""
        return self._table.collect_garbage(keep=keep, older_than_seconds=older_than_seconds, dry_run=dry_run)

    def check(self, *, deep: bool, progress: Progress | None) -> Checked:
        """Verify every invariant of the format."""
        return self._table.check(deep=deep, progress=progress)


def _parent(sequence: int) -> str | None:
    return str(sequence - 1) if sequence > 1 else None


def _entry(version: Snapshot | Tombstone, head: Snapshot) -> VersionEntry:
    whole = version if isinstance(version, Snapshot) else None
    return VersionEntry(
        id=str(version.sequence),
        parent=_parent(version.sequence),
        public_id=version.sequence,
        timestamp_ms=version.timestamp_ms,
        summary=version.summary,
        is_readable=whole is not None and head.is_retained(version.sequence),
        tags=tuple(sorted(tag for tag, sequence in head.tags.items() if sequence == version.sequence)),
        cluster_by=key_terms(whole) if whole else None,
        options=whole.options if whole else None,
    )
