"""Find and read snapshots. The hint may be old or missing; the names of the snapshots themselves decide.

Sequences are contiguous and no name is ever free again (gc leaves tombstones). So sequences only come into existence,
in order. The newest one is found by doubling steps forward from any existing one.
"""

from __future__ import annotations

import json
import logging

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import (
    CorruptTableError,
    SnapshotNotFoundError,
    TableNotFoundError,
    TblctlError,
)
from tblctl.tableformat.model.snapshot import Snapshot, Summary, Tombstone
from tblctl.tableformat.native.log.names import LATEST, SNAPSHOTS, sequence_of, snapshot_path
from tblctl.tableformat.native.log.snapshot_file import decode
from tblctl.tableformat.storage import Storage

LOG = logging.getLogger("tblctl")


def load_head(storage: Storage, known: Snapshot | None = None) -> Snapshot:
    """Return the newest snapshot. `known`, a snapshot read earlier from the same location, saves most of the work.

    O(log k) requests for k commits since the hint or `known`.

    Raises:
        TableNotFoundError: there is no snapshot at the location.
        CorruptTableError: the newest snapshot cannot be read.
    """
    if known is not None:
        head = _newest_from(storage, known.sequence)
        if head is not None:
            sequence, data = head
            if sequence == known.sequence and is_object_of(data, known):
                return known
            return _readable_head(storage, data, sequence)
    start = _hinted(storage)
    head = _newest_from(storage, start) if start is not None else None
    if head is None:
        listed = newest_listed(storage)
        head = _newest_from(storage, listed) if listed is not None else None
    if head is None:
        msg = f"there is no table at {storage.url}: `tblctl create` makes one"
        raise TableNotFoundError(msg)
    return _readable_head(storage, head[1], head[0])


def is_object_of(data: bytes | None, version: Snapshot | Tombstone) -> bool:
    """Return whether `data` is the object of `version`, or its tombstone; None stands for a missing object."""
    if data is None:
        return False
    if f'"commit_id":"{version.commit_id}"'.encode() in data[:1000]:  # as we write it: spares parsing
        return True
    try:
        return bool(json.loads(data)["commit_id"] == version.commit_id)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _readable_head(storage: Storage, data: bytes, sequence: int) -> Snapshot:
    """Return what was found as the newest snapshot. If it expired while it was looked for, there are newer ones."""
    found = decode(data, sequence)
    while isinstance(found, Tombstone):
        newer = _newest_from(storage, sequence)
        if newer is None or newer[0] == sequence:
            msg = (
                f"{snapshot_path(sequence)} is the newest snapshot but a tombstone: gc never expires the head"
            )
            raise CorruptTableError(msg, name=snapshot_path(sequence))
        sequence, data = newer
        found = decode(data, sequence)
    return found


def _newest_from(storage: Storage, start: int) -> tuple[int, bytes] | None:
    """Return the newest sequence and its object, searching from `start`; None if `start` does not exist."""
    first, second = storage.read_many([snapshot_path(start), snapshot_path(start + 1)])
    if first is None:
        return None
    if second is None:
        return start, first
    found, data, step = start + 1, second, 2
    missing: int | None = None
    while missing is None or missing - found > 1:
        probe = found + step if missing is None else (found + missing) // 2
        content = storage.try_read(snapshot_path(probe))
        if content is None:
            missing = probe
        else:
            found, data = probe, content
            step *= 2
    return found, data


def _hinted(storage: Storage) -> int | None:
    """Return the sequence in the hint; None if the hint is missing or malformed."""
    data = storage.try_read(LATEST)
    if data is None:
        return None
    try:
        sequence = json.loads(data)["sequence"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    valid = isinstance(sequence, int) and not isinstance(sequence, bool) and 0 < sequence < 10**18
    return sequence if valid else None


def write_hint(storage: Storage, sequence: int) -> None:
    """Write a hint of the newest sequence. Without it a listing is needed, so a failure does not fail the commit."""
    try:
        storage.write(LATEST, json.dumps({"sequence": sequence}).encode())
    except TblctlError as error:
        LOG.warning(
            "the hint %s could not be written; opening the table may take a listing: %s", LATEST, error
        )


def newest_listed(storage: Storage) -> int | None:
    """Return the highest sequence among the snapshots' names; None if there are none. Lists the folder."""
    sequences = [sequence_of(item.name) for item in storage.list(SNAPSHOTS)]
    return max((sequence for sequence in sequences if sequence is not None), default=None)


def load_version(storage: Storage, sequence: int) -> Snapshot | Tombstone:
    """Return the snapshot `sequence`, or its tombstone.

    Raises:
        SnapshotNotFoundError: the table never had such a snapshot.
    """
    data = storage.try_read(snapshot_path(sequence))
    if data is None:
        msg = f"{storage.url} has no snapshot {sequence}; `tblctl history` lists all"
        raise SnapshotNotFoundError(msg, sequence=sequence)
    return decode(data, sequence)


def summaries_since(storage: Storage, sequence: int, head: Snapshot) -> list[Summary]:
    """Return the summaries of the commits after `sequence` up to `head`, oldest first."""
    between = in_parallel(
        lambda number: load_version(storage, number).summary,
        range(sequence + 1, head.sequence),
        threads=IO_THREADS,
    )
    return [*between, head.summary] if head.sequence > sequence else []


def load_readable(storage: Storage, head: Snapshot, sequence: int) -> Snapshot:
    """Return the snapshot `sequence`, which must be readable.

    Raises:
        SnapshotNotFoundError: it never existed, or gc expired it.
    """
    if sequence == head.sequence:
        return head
    found = load_version(storage, sequence) if 1 <= sequence <= head.sequence else None
    if found is None:
        msg = f"{storage.url} has no snapshot {sequence}; the newest is {head.sequence}, `tblctl history` lists all"
        raise SnapshotNotFoundError(msg, sequence=sequence)
    if isinstance(found, Tombstone) or not head.is_retained(sequence):
        msg = f"snapshot {sequence} of {storage.url} expired and is no longer readable; see `tblctl history`"
        raise SnapshotNotFoundError(msg, sequence=sequence)
    return found


def sequence_at(storage: Storage, head: Snapshot, timestamp_ms: int) -> int:
    """Return the newest sequence whose timestamp is not after `timestamp_ms`. O(log n) reads.

    Timestamps ascend between resets of the clock. Timestamps before a reset may be in the future, so snapshots after a
    reset are searched first.

    Raises:
        SnapshotNotFoundError: the table is younger.
    """
    stop = head.sequence + 1
    for start in [*reversed(head.clock_resets), 1]:
        if _timestamp_ms(storage, head, start) <= timestamp_ms:
            return _newest_until(storage, head, timestamp_ms, start, stop)
        stop = start
    msg = f"{storage.url} did not exist yet at that time; its first snapshot is younger"
    raise SnapshotNotFoundError(msg)


def _newest_until(storage: Storage, head: Snapshot, timestamp_ms: int, start: int, stop: int) -> int:
    """Return the newest sequence of start..stop-1 that is not after `timestamp_ms`. `start` is not; times ascend."""
    low, high = start, stop
    if _timestamp_ms(storage, head, stop - 1) <= timestamp_ms:
        return stop - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _timestamp_ms(storage, head, middle) <= timestamp_ms:
            low = middle
        else:
            high = middle
    return low


def _timestamp_ms(storage: Storage, head: Snapshot, sequence: int) -> int:
    return head.timestamp_ms if sequence == head.sequence else load_version(storage, sequence).timestamp_ms
