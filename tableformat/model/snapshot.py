"""Snapshots: immutable versions of a table, and what remains of them after they expire."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tblctl.tableformat.errors import InternalError
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.options import OFF, TableOptions
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.seal import Seal

RECLUSTER = "recluster"
"""The operation that rewrites blocks but changes no rows. Losing a race to it does not count against a writer."""

ROLLBACK = "rollback"
"""The operation that may restore rows of old snapshots."""


WRITES = frozenset({"append", "delete", "update", "overwrite"})
"""The operations that `recluster.every` counts."""


@dataclass(frozen=True, kw_only=True)
class ColumnBounds:
    """A segment's summary of one column: closed bounds as JSON values, null if unknown.

    `null_count` is -1 if unknown. The bounds may be wider than the values, never narrower.
    """

    min: Any
    max: Any
    null_count: int


@dataclass(frozen=True, kw_only=True)
class SegmentRef:
    """A snapshot's reference to a segment: its path and its summary.

    Attributes:
        path: the object's name.
        size_bytes: the object's size.
        block_count: blocks it lists, at least 1.
        row_count: rows in them.
        data_bytes: the size of their files.
        bounds: by column id, for the cluster key's columns and the first others.
        seal: verifies its end; None if it was written by a tblctl version without checksums.
    """

    path: str
    size_bytes: int
    block_count: int
    row_count: int
    data_bytes: int
    bounds: Mapping[int, ColumnBounds] = field(default_factory=dict)
    seal: Seal | None = None


@dataclass(frozen=True, kw_only=True)
class ImportList:
    """A snapshot's reference to a list of files whose rows the table took.

    Attributes:
        path: the object's name.
        size_bytes: the object's size.
        checksum: XXH3-64 of the object.
        file_count: files it lists, at least 1.
    """

    path: str
    size_bytes: int
    checksum: int
    file_count: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a commit did, kept for `history` even after the snapshot expires.

    The first three numbers count the whole table after the commit; None if the commit of another writer did not say.
    The others count what the commit changed. `detail` has JSON specific to the operation.
    """

    operation: str
    rows: int | None
    blocks: int | None
    data_bytes: int | None
    rows_added: int = 0
    rows_removed: int = 0
    blocks_added: int = 0
    blocks_removed: int = 0
    bytes_added: int = 0
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch of a stream. It is committed only once; `number` rises within the stream."""

    stream: str
    number: int


@dataclass(frozen=True, kw_only=True)
class Tombstone:
    """The remainder of an expired snapshot. It keeps the same name, so that the name is never free again."""

    sequence: int
    commit_id: str
    table_id: str
    timestamp_ms: int
    summary: Summary


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One version of a table.

    Attributes:
        sequence: 1 for the table's creation, then one more for each commit, without gaps.
        commit_id: a unique id that the writer gives to this commit, to recognise it after a lost reply.
        table_id: a unique id from creation. It differs from that of an earlier table at the same location.
        timestamp_ms: milliseconds since 1970-01-01 UTC, by the writer's clock; never less than the parent's, unless
            the snapshot is among `clock_resets`.
        schema_id: the key in `schemas` of the table's current schema.
        schemas: every schema that the table had; blocks name the one they were written with.
        sorts: every definition of a cluster key that the table had, by id; of curves and trees only those that are
            live.
        cluster_key_id: the current one; None when the table has no cluster key.
        live_beside: ids of the sorts that are live beside the current one, ascending: blocks in their order are as good
            as clustered. A new cluster key ends them, and so does an edit that removes the last block of one; a commit
            under way when one ends does not bring it back.
        options: how data is written.
        segments: the blocks, in no particular order.
        tags: sequences by name.
        retained_from: gc may have removed snapshots below this, except tagged ones.
        summary: what the commit did.
        min_writer_version: a writer of a lower format version must not commit: it would drop fields that it does not
            know.
        streams: by stream, the number of its last committed batch.
        horizon_us: gc may have deleted objects written before this that no retained snapshot named; microseconds since
            1970-01-01 UTC by the storage's clock. Never decreases; 0 until gc deleted something.
        clock_resets: ascending sequences of the snapshots that corrected a clock that was ahead.
        last_sort_id: at least the ids of the curves and trees that left `sorts`; 0 if none did.
        imports: lists of the files whose rows the table took, the longest first: an import takes each file once.
        writes_since_recluster: how many commits wrote rows since the last recluster; 0 where `recluster.mode` does not
            need to know.
    """

    sequence: int
    commit_id: str
    table_id: str
    timestamp_ms: int
    schema_id: int
    schemas: Mapping[int, Schema]
    sorts: Mapping[int, Sort]
    cluster_key_id: int | None
    options: TableOptions
    segments: tuple[SegmentRef, ...]
    tags: Mapping[str, int]
    retained_from: int
    summary: Summary
    min_writer_version: int = 1
    streams: Mapping[str, int] = field(default_factory=dict)
    horizon_us: int = 0
    clock_resets: tuple[int, ...] = ()
    live_beside: tuple[int, ...] = ()
    writes_since_recluster: int = 0
    last_sort_id: int = 0
    imports: tuple[ImportList, ...] = ()

    def __post_init__(self) -> None:
        if self.schema_id not in self.schemas:
            msg = f"snapshot {self.sequence}: schema {self.schema_id} is not among its schemas"
            raise InternalError(msg)
        if self.cluster_key_id is not None and self.cluster_key_id not in self.sorts:
            msg = f"snapshot {self.sequence}: cluster key {self.cluster_key_id} is not among its sorts"
            raise InternalError(msg)
        beside = self.live_beside
        if sorted({*beside} - {self.cluster_key_id}) != list(beside) or not self.sorts.keys() >= {*beside}:
            msg = f"snapshot {self.sequence}: expected ascending ids of sorts besides the current one, got {beside}"
            raise InternalError(msg)

    @property
    def schema(self) -> Schema:
        """The table's schema."""
        return self.schemas[self.schema_id]

    @property
    def sort(self) -> Sort | None:
        """The current cluster key's definition; None without one."""
        return None if self.cluster_key_id is None else self.sorts[self.cluster_key_id]

    @cached_property
    def live_sorts(self) -> Mapping[int, Sort]:
        """The current sort and the other live sorts, by id."""
        current = () if self.cluster_key_id is None else (self.cluster_key_id,)
        return {sort_id: self.sorts[sort_id] for sort_id in (*current, *self.live_beside)}

    @property
    def next_sort_id(self) -> int:
        """An id that no sort of the table ever had."""
        return max(self.last_sort_id, *self.sorts, 0) + 1

    @property
    def has_layouts(self) -> bool:
        """Whether a sort is a curve or a tree, or one was and left."""
        return self.last_sort_id > 0 or any(sort.is_layout for sort in self.sorts.values())

    def without_live(self, ids: Collection[int]) -> Snapshot:
        """Return the snapshot with sorts that no block names any more ended; the current one stays."""
        if not ids:
            return self
        beside = tuple(sort_id for sort_id in self.live_beside if sort_id not in ids)
        return dataclasses.replace(self, live_beside=beside).without_ended_layouts()

    def without_ended_layouts(self) -> Snapshot:
        """Return the snapshot without curves and trees that are not live: their parameters are large.

        Blocks in their order are then in no known one. Their ids stay taken.
        """
        live = self.live_sorts
        sorts = {key: sort for key, sort in self.sorts.items() if not sort.is_layout or key in live}
        if len(sorts) == len(self.sorts):
            return self
        return dataclasses.replace(self, sorts=sorts, last_sort_id=self.next_sort_id - 1)

    @cached_property
    def column_ids(self) -> Mapping[int, frozenset[int]]:
        """The column ids of every schema, by the schema's id."""
        return {key: schema.ids for key, schema in self.schemas.items()}

    @cached_property
    def row_count(self) -> int:
        """Rows in the table."""
        return sum(segment.row_count for segment in self.segments)

    @cached_property
    def block_count(self) -> int:
        """Blocks in the table."""
        return sum(segment.block_count for segment in self.segments)

    @cached_property
    def data_bytes(self) -> int:
        """Bytes of the table's blocks."""
        return sum(segment.data_bytes for segment in self.segments)

    @property
    def due_mode(self) -> str:
        """What is to follow this commit, which wrote rows: a mode of `recluster.mode`.

        Each number is that of one commit only, so of several writers one finds that something is due.
        """
        every = self.options.recluster_every
        # Without a key, some policies have something to do: those of the default need one.
        may_recluster = self.cluster_key_id is not None or self.options.recluster_policy is not None
        is_due = may_recluster and self.writes_since_recluster % every == 0
        return self.options.recluster_mode if is_due else OFF

    def writes_after(self, parent: Snapshot) -> int:
        """Return what `writes_since_recluster` of this commit on top of `parent` is."""
        options, operation = self.options, self.summary.operation
        if options.recluster_mode == OFF or options.recluster_every == 1 or operation == RECLUSTER:
            return 0
        return parent.writes_since_recluster + (operation in WRITES)

    def has_batch(self, batch: Batch) -> bool:
        """Return whether the batch, or a later one of its stream, was committed."""
        return batch.number <= self.streams.get(batch.stream, -1)

    def with_batch(self, batch: Batch) -> Snapshot:
        """Return the snapshot as the commit of the batch."""
        return dataclasses.replace(self, streams={**self.streams, batch.stream: batch.number})

    def is_retained(self, sequence: int) -> bool:
        """Return whether gc must leave the snapshot `sequence` readable, as of this head."""
        return self.retained_from <= sequence <= self.sequence or sequence in self.tags.values()

    def tombstone(self) -> Tombstone:
        """Return what remains of this snapshot after it expires."""
        return Tombstone(
            sequence=self.sequence,
            commit_id=self.commit_id,
            table_id=self.table_id,
            timestamp_ms=self.timestamp_ms,
            summary=self.summary,
        )


def iso_timestamp(timestamp_ms: int) -> str:
    """Return milliseconds since 1970 as `2026-01-31T12:00:00.123Z`."""
    moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
