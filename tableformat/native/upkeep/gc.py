"""Remove objects that no retained snapshot names.

gc may run beside any writer. Objects that are written and not yet named look like garbage. So gc and writers agree on a
horizon, a time of the storage's clock: the time of a probe that gc has just written, minus the grace period.

1. gc looks for objects to remove. If there are none, it commits nothing.
2. It commits a fence: a snapshot with the new horizon, and with `retained_from`, the first sequence that stays. Every
   later commit keeps both, and neither ever decreases.
3. It reads the named objects from a head at or after the fence. Only then it deletes unnamed objects that were written
   before the horizon, and shrinks expired snapshots to tombstones.

A writer compares its objects with the horizon of the head that it commits on (`log/commit.py`), and the fence takes a
sequence like every commit. So a writer either comes before the fence, and gc sees the objects it named, or comes after
it, and names nothing that gc may delete. Likewise a rollback or tag that races with gc either comes first, and gc sees
it, or is tried again on the new head and refused.

The storage's own times decide all ages. The age of a snapshot counts from when its successor appeared. A snapshot that
only a tag kept for longer than the grace period expires as soon as the tag is deleted, and a scan that still reads it
fails.

No snapshot names pending plans and claims of their groups, and nothing waits for them. A plan dies when it expires, by
the time in its name and the storage's time of its object. A claim dies with its plan. Logs of queries go by age.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import AccessDeniedError, CorruptTableError
from tblctl.tableformat.model.snapshot import Snapshot, Tombstone
from tblctl.tableformat.native.log.alter import summarised
from tblctl.tableformat.native.log.clock import check_clock, microseconds, write_probe
from tblctl.tableformat.native.log.commit import StagedCommit, after_gc, dropped, publish, reload_head
from tblctl.tableformat.native.log.head import is_object_of, load_version
from tblctl.tableformat.native.log.names import (
    DATA,
    IMPORTS,
    METADATA,
    RECORDS,
    SEGMENTS,
    block_path,
    claim_of,
    is_leftover,
    plan_of,
    probe_path,
    record_of,
    snapshot_path,
)
from tblctl.tableformat.native.log.segment_reader import read_segment
from tblctl.tableformat.native.log.snapshot_file import check_writable, encode_tombstone
from tblctl.tableformat.port import Garbage
from tblctl.tableformat.storage import ObjectInfo, Storage
from tblctl.tableformat.workload import place
from tblctl.tableformat.workload.place import FOLDER, KEEP_SECONDS

RECORD_SECONDS = 90 * 86400.0
"""The record of a recluster is kept this long after its commit, even if the snapshot expires before."""

_DELETE_BATCH = 1000


def collect(
    storage: Storage, env: Environment, head: Snapshot, *, keep: int, older_than_seconds: float, dry_run: bool
) -> Garbage:
    """Expire snapshots older than the newest `keep`, and delete objects that nothing names any more.

    A snapshot stays while it is the head, tagged, one of the newest `keep` that changed the table, or was the head
    less than `older_than_seconds` ago. A dry run writes nothing, not even a probe: it uses this machine's clock.

    Raises:
        CorruptTableError: a retained snapshot, or a segment of one, cannot be read; nothing was changed.
        ClockError: this machine's clock differs too much from the storage's; nothing was changed.
        AccessDeniedError: the credentials may not delete; nothing was changed.
    """
    check_writable(head)
    now_seconds = env.now() if dry_run else _storage_seconds(storage, env, older_than_seconds)
    horizon_us = _horizon_us(now_seconds, older_than_seconds, 0 if dry_run else storage.time_step_seconds)
    retained_from = _retained_from(storage, head, keep, horizon_us)
    # Objects are listed before the named ones are read: an object published in between is then found named.
    old = _old_objects(storage, horizon_us, microseconds(now_seconds))
    named = _Named(storage)
    # Everything that will stay is read before anything is changed: a damaged table is left unchanged.
    trial = _add_retained(storage, named, dataclasses.replace(head, retained_from=retained_from))
    expired = _expired(storage, trial, named)
    young_us = microseconds(now_seconds - RECORD_SECONDS)
    objects = _unnamed(old, named, young_us)
    if dry_run or not (expired or objects):
        return _garbage(expired, objects)

    def fence(newest: Snapshot) -> StagedCommit | None:
        return _fence(newest, keep, retained_from, horizon_us)

    published = publish(storage, env, fence, head, clock_is_checked=True)
    # The named objects are those of a head at or after the fence. Later commits name nothing older than the horizon.
    head = _add_retained(storage, named, reload_head(storage, published.snapshot if published else head))
    expired = [version for version in expired if not head.is_retained(version.sequence)]
    in_parallel(lambda version: _bury(storage, version), expired, threads=IO_THREADS)
    objects = _unnamed(objects, named, young_us)
    for start in range(0, len(objects), _DELETE_BATCH):
        storage.delete([item.name for item in objects[start : start + _DELETE_BATCH]])
    return _garbage(expired, objects)


def _add_retained(storage: Storage, named: _Named, head: Snapshot) -> Snapshot:
    """Add the objects that `head` retains, or a newer head if another gc removed some meanwhile; return that head.

    Raises:
        CorruptTableError: an object that the newest head retains cannot be read.
    """
    while True:
        try:
            named.add_retained(head)
        except CorruptTableError:
            newer = after_gc(storage, head)
            head = dataclasses.replace(newer, retained_from=max(newer.retained_from, head.retained_from))
        else:
            return head


def _garbage(expired: list[Tombstone], objects: list[ObjectInfo]) -> Garbage:
    return Garbage(
        versions=tuple(version.sequence for version in expired),
        objects=tuple(item.name for item in objects),
        size_bytes=sum(item.size_bytes for item in objects),
    )


def _storage_seconds(storage: Storage, env: Environment, older_than_seconds: float) -> float:
    """Return the storage's time. With no grace period, it is later than that of everything written so far."""
    if older_than_seconds < storage.time_step_seconds:
        env.sleep(storage.time_step_seconds)
    written, modified_seconds = write_probe(storage, env)
    check_clock(storage, written, modified_seconds)
    _require_delete(storage)
    return modified_seconds


_NOBODY = "0" * 32
"""No object's id. Each gc tries to delete the same names: in a versioned bucket each new one would stay, marked."""


def _require_delete(storage: Storage) -> None:
    """Delete names that no object has: credentials may lack the permission, and expired snapshots never come back.

    Raises:
        AccessDeniedError: they do; nothing was changed.
    """
    try:
        storage.delete([probe_path(_NOBODY), block_path(_NOBODY)])
    except AccessDeniedError as error:
        msg = f"{error}; gc needs credentials that may delete. Nothing was changed"
        raise AccessDeniedError(msg, **error.details) from error


def _horizon_us(now_seconds: float, older_than_seconds: float, step_seconds: float) -> int:
    """Return the horizon in whole steps of the storage's clock, so that the resolution of shown times does not matter.

    A time rounded down to a step is before such a horizon exactly if the time itself is.
    """
    horizon_us = max(0, microseconds(now_seconds) - microseconds(older_than_seconds))
    return horizon_us - horizon_us % max(1, microseconds(step_seconds))


def _fence(head: Snapshot, keep: int, retained_from: int, horizon_us: int) -> StagedCommit | None:
    """Return the fence commit; None if the head already has the same values."""
    if retained_from <= head.retained_from and horizon_us <= head.horizon_us:
        return None
    snapshot = dataclasses.replace(
        head,
        retained_from=max(retained_from, head.retained_from),
        horizon_us=max(horizon_us, head.horizon_us),
    )
    detail = {"keep": keep, "retained_from": snapshot.retained_from}
    return StagedCommit(snapshot=summarised(snapshot, "gc", detail))


def _retained_from(storage: Storage, head: Snapshot, keep: int, horizon_us: int) -> int:
    """Return the lowest sequence to retain: the newest `keep` that are not gc's own, and those too young to expire.

    O(snapshots retained) requests.
    """
    kept = 0
    replaced_us: int | None = None  # when the head stopped being this version
    lowest = head.sequence
    for version, appeared_us in _backwards(storage, head):
        young = replaced_us is None or replaced_us >= horizon_us
        if kept >= keep and not young:
            break
        lowest = version.sequence
        kept += version.summary.operation != "gc"
        replaced_us = appeared_us
    return lowest


def _backwards(storage: Storage, head: Snapshot) -> Iterator[tuple[Tombstone, int]]:
    """Yield every retained version, newest first, and when it appeared; without older tagged ones."""
    for newest in range(head.sequence, head.retained_from - 1, -IO_THREADS):
        batch = range(newest, max(newest - IO_THREADS, head.retained_from - 1), -1)
        versions = in_parallel(
            lambda sequence: head if sequence == head.sequence else load_version(storage, sequence),
            batch,
            threads=IO_THREADS,
        )
        times = storage.modified([snapshot_path(sequence) for sequence in batch])
        for version, time in zip(versions, times, strict=True):
            if time is None:
                name = snapshot_path(version.sequence)
                msg = f"{storage.url}: {name} is gone, although snapshot {head.sequence} retains it"
                raise CorruptTableError(msg, name=name)
            tombstone = version if isinstance(version, Tombstone) else version.tombstone()
            yield tombstone, microseconds(time)


def _expired(storage: Storage, head: Snapshot, named: _Named) -> list[Tombstone]:
    """Return the tombstones of snapshots that expire and are still whole, oldest first. Add their records.

    Reads every version that is not retained, O(commits ever): only its object shows whether it is already a tombstone.
    """

    def tombstone(sequence: int) -> Tombstone | None:
        version = load_version(storage, sequence)
        named.add_expired(version)
        return version.tombstone() if isinstance(version, Snapshot) else None

    candidates = [sequence for sequence in range(1, head.sequence) if not head.is_retained(sequence)]
    found = in_parallel(tombstone, candidates, threads=IO_THREADS)
    return [version for version in found if version is not None]


def _bury(storage: Storage, version: Tombstone) -> None:
    """Replace a snapshot by its tombstone, so that its name is never free again.

    Raises:
        TableNotFoundError: the table was dropped, and perhaps another one has a snapshot of this name.
    """
    name = snapshot_path(version.sequence)
    if not is_object_of(storage.try_read(name), version):
        raise dropped(storage)
    storage.write(name, encode_tombstone(version))


class _Named:
    """Collects the objects that retained snapshots name, and the records of expired ones. Reads each object once.

    Attributes:
        names: named by retained snapshots.
        old_records: named by expired snapshots.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._sequences: set[int] = set()
        self._segments: set[str] = set()
        self.names: set[str] = set()
        self.old_records: set[str] = set()

    def add_retained(self, head: Snapshot) -> None:
        """Add the objects named by `head` and by the snapshots that it retains.

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
        for start in range(0, len(retained), IO_THREADS):  # holds only a few whole snapshots at a time
            batch = retained[start : start + IO_THREADS]
            for version in in_parallel(
                lambda sequence: load_version(self._storage, sequence), batch, threads=IO_THREADS
            ):
                if isinstance(version, Snapshot):
                    self._add(version)
        self._sequences.update(retained)

    def add_expired(self, version: Snapshot | Tombstone) -> None:
        """Add the record of a version that is not retained."""
        record = record_of(version.summary.detail)
        if record is not None:
            self.old_records.add(record)

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
        self.names.update(item.path for item in version.imports)
        for table in tables:
            self.names.update(table["path"].to_pylist())


def _unnamed(old: list[ObjectInfo], named: _Named, young_us: int) -> list[ObjectInfo]:
    """Return the objects of `old` to delete, oldest first; records of expired snapshots only if old enough."""
    found = [
        item
        for item in old
        if item.name not in named.names
        and not (item.name in named.old_records and microseconds(item.modified_seconds) > young_us)
    ]
    return sorted(found, key=lambda item: (item.modified_seconds, item.name))


def _old_objects(storage: Storage, horizon_us: int, now_us: int) -> list[ObjectInfo]:
    """Return the objects written before the horizon that go unless a snapshot names them.

    These are blocks, segments, records, lists of imported files, leftovers of killed writers, pending plans that
    expired, and their claims; and logs of queries that are old enough.
    """
    listed = (SEGMENTS, RECORDS, IMPORTS)
    found = [item for prefix in (DATA, *listed) for item in storage.list(prefix)]
    others = [item for item in storage.list(METADATA) if not item.name.startswith(listed)]
    found += [item for item in others if is_leftover(item.name)]
    found += _dead_plans(others, now_us)
    found += _old_logs(storage.list(FOLDER), now_us)
    return [item for item in found if microseconds(item.modified_seconds) < horizon_us]


def _old_logs(objects: Iterable[ObjectInfo], now_us: int) -> Iterator[ObjectInfo]:
    """Yield logs of queries that are too old, and leftovers of killed writers; other objects there stay."""
    for item in objects:
        is_old = microseconds(item.modified_seconds + KEEP_SECONDS) <= now_us
        if place.is_leftover(item.name, FOLDER) or (is_old and place.log_file(item.name, FOLDER)):
            yield item


def _dead_plans(objects: Sequence[ObjectInfo], now_us: int) -> list[ObjectInfo]:
    """Return the pending plans that expired, and the claims of plans that expired or are gone.

    Args:
        objects: as they were listed, by name: claims before plans. So the plan of a claim is seen, or was removed.
        now_us: the storage's time.
    """
    live, dead = set(), []
    for item in objects:
        if found := plan_of(item.name):
            plan_id, lifetime_seconds = found
            if microseconds(item.modified_seconds + lifetime_seconds) > now_us:
                live.add(plan_id)
            else:
                dead.append(item)
    return dead + [item for item in objects if (claim := claim_of(item.name)) and claim[0] not in live]
