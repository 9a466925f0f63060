"""Find out who removed blocks since a snapshot: a recluster, which keeps the rows, or another writer."""

from __future__ import annotations

import itertools

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.model.snapshot import RECLUSTER, ROLLBACK, Snapshot, Tombstone
from tblctl.tableformat.native.log.head import load_version
from tblctl.tableformat.native.log.segment_reader import read_segment
from tblctl.tableformat.storage import Storage


def lost_to_a_writer(storage: Storage, base: Snapshot, head: Snapshot, paths: frozenset[str]) -> bool:
    """Return whether anything but a recluster removed one of `paths` after `base`, or there was a rollback.

    Versions that gc expired meanwhile count as a loss: one loss too many gives an early error, one too few an endless
    loop.
    """
    versions: list[Snapshot | Tombstone] = in_parallel(
        lambda sequence: head if sequence == head.sequence else load_version(storage, sequence),
        range(base.sequence + 1, head.sequence + 1),
        threads=IO_THREADS,
    )
    for before, after in itertools.pairwise([base, *versions]):
        summary = after.summary
        if summary.operation == ROLLBACK:
            return True
        if summary.blocks_removed and summary.operation != RECLUSTER:
            if isinstance(before, Tombstone) or isinstance(after, Tombstone):
                return True
            try:
                if paths & _paths_beyond(storage, before, after) - _paths_beyond(storage, after, before):
                    return True
            except CorruptTableError:
                return True
    return False


def _paths_beyond(storage: Storage, snapshot: Snapshot, other: Snapshot) -> set[str]:
    """Return the blocks in segments of `snapshot` that `other` does not have."""
    shared = {segment.path for segment in other.segments}
    tables = in_parallel(
        lambda ref: read_segment(storage, ref, ["path"]),
        [segment for segment in snapshot.segments if segment.path not in shared],
        threads=IO_THREADS,
    )
    return {path for table in tables for path in table["path"].to_pylist()}
