"""Remove what no retained snapshot names.

Expiring snapshots is a commit like any other: the new head states from which sequence on snapshots are retained
(`retained_from`), and only then are older ones shrunk to tombstones and objects deleted. A rollback or a tag that
races with gc therefore either comes first, and gc sees it, or is asked again on the new head and refused.

The age of a snapshot counts from when the head stopped naming it: from its successor's timestamp. A snapshot that only
a tag kept for longer than the grace period expires as soon as the tag is deleted, and a scan that still reads it fails.

An object is deleted only if no retained snapshot names it and it was written longer ago than the grace period: it may
be part of a write under way. That compares this machine's clock with the storage's, so a clock that is ahead shortens
the grace period by as much; a write that loses objects to that is refused (`ConflictError`), not published broken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.model.snapshot import Snapshot, Tombstone
from tblctl.tableformat.native.alter import summarised
from tblctl.tableformat.native.commit import Draft, dropped, publish, reload_head
from tblctl.tableformat.native.head import is_object_of, load_version
from tblctl.tableformat.native.names import (
    DATA,
    METADATA,
    RECORDS,
    SEGMENTS,
    is_leftover,
    record_of,
    snapshot_path,
)
from tblctl.tableformat.native.segment_file import read_segment
from tblctl.tableformat.native.snapshot_file import check_writable, encode_tombstone
from tblctl.tableformat.storage import ObjectInfo, Storage

RECORD_SECONDS = 90 * 86400.0
"""The record of a recluster is kept so long after its commit, even if the snapshot expires before."""

_DELETE_BATCH = 1000


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """What gc removed, or would remove: expired sequences, and objects, oldest first."""

    sequences: tuple[int, ...]
    objects: tuple[ObjectInfo, ...]


def collect(
    storage: Storage, env: Environment, head: Snapshot, *, keep: int, older_than_seconds: float, dry_run: bool
) -> Garbage:
    """Expire snapshots beyond the newest `keep`, and delete what nothing names any more.

    A snapshot stays while it is the head, tagged, one of the newest `keep` that changed the table, or was the head
    less than `older_than_seconds` ago.
    """
    check_writable(head)
    horizon = env.now() - older_than_seconds
    named = _Named(storage, env.now() - RECORD_SECONDS)
    # Decided once: on a later head it retains more than it must, never less.
    retained_from = _retained_from(storage, head, keep, horizon)
    # All that will stay is read before anything is changed: a damaged table is left as it is.
    trial = dataclasses.replace(head, retained_from=retained_from)
    named.add_retained(trial)
    expired = _expired(storage, trial, named)
    if not dry_run:
        published = publish(storage, env, lambda newest: _expiry(newest, keep, retained_from), head)
        head = published.snapshot if published else reload_head(storage, head)
        expired = [version for version in expired if not head.is_retained(version.sequence)]
    # What exists is listed before what is named is read: an object published in between is then found named.
    old = _old_objects(storage, horizon)
    if not dry_run:
        named.add_retained(reload_head(storage, head))
        in_parallel(lambda version: _bury(storage, version), expired, threads=IO_THREADS)
    objects = sorted(
        (item for item in old if item.name not in named.names),
        key=lambda item: (item.modified_seconds, item.name),
    )
    if not dry_run:
        for start in range(0, len(objects), _DELETE_BATCH):
            storage.delete([item.name for item in objects[start : start + _DELETE_BATCH]])
    return Garbage(sequences=tuple(version.sequence for version in expired), objects=tuple(objects))


def _expiry(head: Snapshot, keep: int, retained_from: int) -> Draft | None:
    """Return the commit that says which snapshots may go; None if no more may."""
    if retained_from <= head.retained_from:
        return None
    snapshot = dataclasses.replace(head, retained_from=retained_from)
    return Draft(snapshot=summarised(snapshot, "gc", {"keep": keep, "retained_from": retained_from}))


def _retained_from(storage: Storage, head: Snapshot, keep: int, horizon: float) -> int:
    """Return the lowest sequence to retain: the newest `keep` that are not gc's own, and those younger than allowed.

    O(snapshots retained) reads.
    """
    kept = 0
    replaced_ms: int | None = None  # when the head stopped being this version
    lowest = head.sequence
    for version in _backwards(storage, head):
        young = replaced_ms is None or replaced_ms / 1000 > horizon
        if kept >= keep and not young:
            break
        lowest = version.sequence
        kept += version.summary.operation != "gc"
        replaced_ms = version.timestamp_ms
    return lowest


def _backwards(storage: Storage, head: Snapshot) -> Iterator[Tombstone]:
    """Yield what a tombstone says of every retained version, newest first; tagged older ones do not count."""
    yield head.tombstone()
    for newest in range(head.sequence - 1, head.retained_from - 1, -IO_THREADS):
        batch = range(newest, max(newest - IO_THREADS, head.retained_from - 1), -1)
        for version in in_parallel(
            lambda sequence: load_version(storage, sequence), batch, threads=IO_THREADS
        ):
            yield version if isinstance(version, Tombstone) else version.tombstone()


def _expired(storage: Storage, head: Snapshot, named: _Named) -> list[Tombstone]:
    """Return what will stay of the snapshots that may go and are still whole, oldest first; note records to keep.

    Reads every version that is not retained, O(commits ever): only its object tells whether it is a tombstone by now.
    """

    def tombstone(sequence: int) -> Tombstone | None:
        version = load_version(storage, sequence)
        named.add_record(version)
        return version.tombstone() if isinstance(version, Snapshot) else None

    candidates = [sequence for sequence in range(1, head.sequence) if not head.is_retained(sequence)]
    found = in_parallel(tombstone, candidates, threads=IO_THREADS)
    return [version for version in found if version is not None]


def _bury(storage: Storage, version: Tombstone) -> None:
    """Put the tombstone in the place of its snapshot, whose name is never free again.

    Raises:
        TableNotFoundError: the table was dropped, and perhaps another one has a snapshot of this name.
    """
    name = snapshot_path(version.sequence)
    if not is_object_of(storage.try_read(name), version):
        raise dropped(storage)
    storage.write(name, encode_tombstone(version))


class _Named:
    """Collects what retained snapshots name, and young records of others; every snapshot and segment is read once."""

    def __init__(self, storage: Storage, records_since: float) -> None:
        self._storage = storage
        self._records_since = records_since
        self._sequences: set[int] = set()
        self._segments: set[str] = set()
        self.names: set[str] = set()

    def add_retained(self, head: Snapshot) -> None:
        """Add what `head`, and the snapshots that it retains, name.

        Raises:
            CorruptTableError: one of them, or a segment, cannot be read.
        """
        self._add(head)
        self._sequences.add(head.sequence)
        retained = [
            sequence
            for sequence in range(1, head.sequence)
            if sequence not in self._sequences and head.is_retained(sequence)
        ]
        for start in range(0, len(retained), IO_THREADS):  # few whole snapshots are held at a time
            batch = retained[start : start + IO_THREADS]
            for version in in_parallel(
                lambda sequence: load_version(self._storage, sequence), batch, threads=IO_THREADS
            ):
                if isinstance(version, Snapshot):
                    self._add(version)
        self._sequences.update(retained)

    def add_record(self, expired: Snapshot | Tombstone) -> None:
        """Add the record of a version that is not retained, while that is young enough."""
        record = record_of(expired.summary.detail)
        if record is not None and expired.timestamp_ms / 1000 > self._records_since:
            self.names.add(record)

    def _add(self, version: Snapshot) -> None:
        record = record_of(version.summary.detail)
        if record is not None:
            self.names.add(record)
        fresh = [segment for segment in version.segments if segment.path not in self._segments]
        tables = in_parallel(
            lambda ref: read_segment(self._storage, ref, ["path"]), fresh, threads=IO_THREADS
        )
        self._segments.update(segment.path for segment in fresh)
        self.names.update(segment.path for segment in fresh)
        for table in tables:
            self.names.update(table["path"].to_pylist())


def _old_objects(storage: Storage, horizon: float) -> list[ObjectInfo]:
    """Return the blocks, segments, records and leftovers of killed writers that were written before the horizon."""
    found = [item for prefix in (DATA, SEGMENTS, RECORDS) for item in storage.list(prefix)]
    found += [
        item
        for item in storage.list(METADATA)
        if is_leftover(item.name) and not item.name.startswith((SEGMENTS, RECORDS))
    ]
    return [item for item in found if item.modified_seconds <= horizon]
