"""Snapshots: immutable versions of a table, and what is left of them after they expire."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tblctl.tableformat.errors import InternalError
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.seal import Seal

RECLUSTER = "recluster"
"""Operation that rewrites blocks but no rows: losing a race to it does not count against a writer."""

ROLLBACK = "rollback"
"""Operation that may bring back rows of long ago."""


@dataclass(frozen=True, kw_only=True)
class ColumnBounds:
    """What a segment's summary says of one column: closed bounds as JSON values, null where unknown.

    `null_count` is -1 where unknown. The bounds may be wider than the values, never narrower.
    """

    min: Any
    max: Any
    null_count: int


@dataclass(frozen=True, kw_only=True)
class SegmentRef:
    """A segment as a snapshot names it: where it is, and its summary.

    Attributes:
        path: the object's name.
        size_bytes: the object's size.
        block_count: blocks it lists, at least 1.
        row_count: rows in them.
        data_bytes: the size of their files.
        bounds: by column id, for the cluster key's columns and the first others.
        seal: what its end must agree with; None if it was written by a tblctl that kept no checksums.
    """

    path: str
    size_bytes: int
    block_count: int
    row_count: int
    data_bytes: int
    bounds: Mapping[int, ColumnBounds] = field(default_factory=dict)
    seal: Seal | None = None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a commit did, kept for `history` even after the snapshot expires.

    The first three count the whole table after the commit, the others what the commit changed. `detail` holds what
    one operation alone has to say, as JSON.
    """

    operation: str
    rows: int
    blocks: int
    data_bytes: int
    rows_added: int = 0
    rows_removed: int = 0
    blocks_added: int = 0
    blocks_removed: int = 0
    bytes_added: int = 0
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch of a stream, which is committed once only: `number` rises within the stream."""

    stream: str
    number: int


@dataclass(frozen=True, kw_only=True)
class Tombstone:
    """What gc leaves of an expired snapshot, under the same name, so that the name is never free again."""

    sequence: int
    commit_id: str
    table_id: str
    timestamp_ms: int
    summary: Summary


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One version of a table.

    Attributes:
        sequence: 1 for the table's creation, then one more a commit, without gaps.
        commit_id: drawn by the writer for this commit alone, so that it recognises it when a reply is lost.
        table_id: drawn at creation; tells tables apart that had the same location one after the other.
        timestamp_ms: milliseconds since 1970-01-01 UTC, by the writer's clock; never less than the parent's, unless
            the snapshot is among `clock_resets`.
        schema_id: the key in `schemas` of the table's schema now.
        schemas: every schema that the table had; blocks name the one they were written with.
        sorts: every definition of a cluster key that the table had, by id.
        cluster_key_id: the current one; None when the table has no cluster key.
        live_beside: ids of the sorts that are live beside the current one, ascending: blocks in their order are as good
            as clustered. A new cluster key ends them; a commit under way when one ends does not bring it back.
        options: how data is written.
        segments: the blocks, in no particular order.
        tags: names of sequences.
        retained_from: gc may have removed snapshots below it, but for tagged ones.
        summary: what the commit did.
        min_writer_version: a writer of a lower format version must not commit: it would drop what it does not know.
        streams: by stream, the number of its batch that was committed last.
        horizon_us: gc may have deleted what was written before and no retained snapshot named; microseconds since
            1970-01-01 UTC by the storage's clock. Never decreases; 0 until gc deleted something.
        clock_resets: sequences of the snapshots that set right a clock which was ahead, ascending.
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

    def __post_init__(self) -> None:
        if self.schema_id not in self.schemas:
            msg = f"snapshot {self.sequence}: schema {self.schema_id} is not among its schemas"
            raise InternalError(msg)
        if self.cluster_key_id is not None and self.cluster_key_id not in self.sorts:
            msg = f"snapshot {self.sequence}: cluster key {self.cluster_key_id} is not among its sorts"
            raise InternalError(msg)
        beside = self.live_beside
        if sorted({*beside} - {self.cluster_key_id}) != list(beside) or not self.sorts.keys() >= {*beside}:
            msg = f"snapshot {self.sequence}: {beside} are no ids of sorts beside the current one, ascending"
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
        """The current sort, and those that are live beside it, by id."""
        current = () if self.cluster_key_id is None else (self.cluster_key_id,)
        return {sort_id: self.sorts[sort_id] for sort_id in (*current, *self.live_beside)}

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

    def has_batch(self, batch: Batch) -> bool:
        """Tell whether the batch, or a later one of its stream, was committed."""
        return batch.number <= self.streams.get(batch.stream, -1)

    def with_batch(self, batch: Batch) -> Snapshot:
        """Return the snapshot as the commit of the batch."""
        return dataclasses.replace(self, streams={**self.streams, batch.stream: batch.number})

    def is_retained(self, sequence: int) -> bool:
        """Tell whether gc must leave the snapshot `sequence` readable, as of this head."""
        return self.retained_from <= sequence <= self.sequence or sequence in self.tags.values()

    def tombstone(self) -> Tombstone:
        """Return what stays of this snapshot once it expires."""
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
