"""Remove what no retained snapshot names.

Expiring snapshots is a commit like any other: the new head states from which sequence on snapshots are retained
(`retained_from`), and only then are older ones shrunk to tombstones and objects deleted. A rollback or a tag that
races with gc therefore either comes first, and gc sees it, or is asked again on the new head and refused.

The age of a snapshot counts from when the head stopped naming it: from its successor's timestamp. An object is deleted
only if no retained snapshot names it and it was written longer ago than the grace period. Objects that only expired
snapshots named stopped being named longer ago than that; the others were never named, and their age is the time since
they were created.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.model.snapshot import SegmentRef, Snapshot, Tombstone
from tblctl.tableformat.native.alter import summarised
from tblctl.tableformat.native.commit import Draft, publish, reload_head
from tblctl.tableformat.native.head import load_version
from tblctl.tableformat.native.names import DATA, METADATA, SEGMENTS, is_leftover, snapshot_path
from tblctl.tableformat.native.segment_file import read_segment
from tblctl.tableformat.native.snapshot_file import check_writable, encode_tombstone
from tblctl.tableformat.storage import ObjectInfo, Storage

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
    named = _Named(storage)
    # All that will stay is read before anything is changed: a damaged table is left as it is.
    trial = dataclasses.replace(head, retained_from=_retained_from(storage, head, keep, horizon))
    named.add_retained(trial)
    expired = _expired(storage, trial)
    if not dry_run:
        published = publish(storage, env, lambda newest: _expiry(storage, newest, keep, horizon), head)
        head = published.snapshot if published else reload_head(storage, head)
        expired = [version for version in expired if not head.is_retained(version.sequence)]
    # What exists is listed before what is named is read: an object published in between is then found named.
    old = _old_objects(storage, horizon)
    if not dry_run:
        named.add_retained(reload_head(storage, head))
        for (
            version
        ) in expired:  # oldest first; a name is never free again, so the tombstone takes the same one
            storage.write(snapshot_path(version.sequence), encode_tombstone(version.tombstone()))
    objects = sorted(
        (item for item in old if item.name not in named.names),
        key=lambda item: (item.modified_seconds, item.name),
    )
    if not dry_run:
        for start in range(0, len(objects), _DELETE_BATCH):
            storage.delete([item.name for item in objects[start : start + _DELETE_BATCH]])
    return Garbage(sequences=tuple(version.sequence for version in expired), objects=tuple(objects))


def _expiry(storage: Storage, head: Snapshot, keep: int, horizon: float) -> Draft | None:
    """Return the commit that says which snapshots may go; None if no more may."""
    retained_from = _retained_from(storage, head, keep, horizon)
    if retained_from <= head.retained_from:
        return None
    snapshot = dataclasses.replace(head, retained_from=retained_from)
    return Draft(snapshot=summarised(snapshot, "gc", {"keep": keep, "retained_from": retained_from}))


def _retained_from(storage: Storage, head: Snapshot, keep: int, horizon: float) -> int:
    """Return the lowest sequence to retain: the newest `keep` that are not gc's own, and those younger than allowed.

    Walks back from the head, O(snapshots retained) reads.
    """
    kept = 0
    sequence = head.sequence
    replaced_ms: int | None = None  # when the head stopped being `sequence`
    lowest = head.sequence
    while sequence >= head.retained_from:
        version: Snapshot | Tombstone = head if sequence == head.sequence else load_version(storage, sequence)
        young = replaced_ms is None or replaced_ms / 1000 > horizon
        if kept >= keep and not young:
            break
        lowest = sequence
        kept += version.summary.operation != "gc"
        replaced_ms = version.timestamp_ms
        sequence -= 1
    return lowest


def _expired(storage: Storage, head: Snapshot) -> list[Snapshot]:
    """Return the snapshots that may go and are still whole, oldest first."""
    candidates = [sequence for sequence in range(1, head.sequence) if not head.is_retained(sequence)]
    versions = in_parallel(lambda sequence: load_version(storage, sequence), candidates, threads=IO_THREADS)
    return [version for version in versions if isinstance(version, Snapshot)]


class _Named:
    """Collects the segments and blocks that retained snapshots name; every segment is read once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._segments: set[str] = set()
        self.names: set[str] = set()

    def add_retained(self, head: Snapshot) -> None:
        """Add what `head`, and the snapshots that it retains, name.

        Raises:
            CorruptTableError: one of them, or a segment, cannot be read.
        """
        retained = [sequence for sequence in range(1, head.sequence) if head.is_retained(sequence)]
        versions = in_parallel(
            lambda sequence: load_version(self._storage, sequence), retained, threads=IO_THREADS
        )
        found: dict[str, SegmentRef] = {segment.path: segment for segment in head.segments}
        for version in versions:
            if isinstance(version, Snapshot):
                found |= {segment.path: segment for segment in version.segments}
        fresh = [segment for path, segment in found.items() if path not in self._segments]
        tables = in_parallel(
            lambda ref: read_segment(self._storage, ref, ["path"]), fresh, threads=IO_THREADS
        )
        self._segments |= found.keys()
        self.names |= found.keys()
        for table in tables:
            self.names.update(table["path"].to_pylist())


def _old_objects(storage: Storage, horizon: float) -> list[ObjectInfo]:
    """Return the blocks, segments and leftovers of killed writers that were written before the horizon."""
    found = [item for prefix in (DATA, SEGMENTS) for item in storage.list(prefix)]
    found += [
        item
        for item in storage.list(METADATA)
        if is_leftover(item.name) and not item.name.startswith(SEGMENTS)
    ]
    return [item for item in found if item.modified_seconds <= horizon]
