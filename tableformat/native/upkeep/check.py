"""Verify every invariant of the format. Report all problems, change nothing.

Shallow: names, the chain of snapshots, the checksums of segments, summaries against statistics, and the existence and
size of every object. Deep: every block is also read, its checksums are verified, and its statistics, order and levels
are computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock

import numpy as np
import pyarrow as pa

from tblctl.tableformat.concurrency import IO_THREADS, cpu_threads, in_parallel
from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.import_lists import read_import_list
from tblctl.tableformat.model.snapshot import ImportList, SegmentRef, Snapshot, Tombstone, iso_timestamp
from tblctl.tableformat.native.log.checked_json import has_checksum
from tblctl.tableformat.native.log.clock import is_ahead
from tblctl.tableformat.native.log.fold import SEGMENT_BLOCKS
from tblctl.tableformat.native.log.head import load_version
from tblctl.tableformat.native.log.names import DATA, IMPORTS, RECORDS, SEGMENTS, snapshot_path
from tblctl.tableformat.native.log.segment_reader import read_segment
from tblctl.tableformat.native.log.snapshot_file import CHECKSUMS_FROM
from tblctl.tableformat.native.upkeep.check_block import BlockCheck
from tblctl.tableformat.native.upkeep.check_metadata import ListedBlocks, MetadataCheck, listed_twice
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS, damaged
from tblctl.tableformat.port import MOST_PROBLEMS, Checked
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.storage import Storage

_VERSIONS_AT_ONCE = 64


def check_table(
    storage: Storage,
    head: Snapshot,
    *,
    deep: bool,
    now_seconds: float,
    progress: Progress | None = None,
) -> Checked:
    """Verify the head and every retained snapshot.

    Takes about 300 bytes for each block, and 4 for each segment of each version. Only blocks' names are kept.
    """
    problems: list[str] = []
    sizes = {
        item.name: item.size_bytes
        for prefix in (DATA, SEGMENTS, RECORDS, IMPORTS)
        for item in storage.list(prefix)
    }
    metadata = MetadataCheck(storage, sizes)
    for versions in _retained(storage, head, problems):
        metadata.add(versions)
    listed = ListedBlocks.of(list(metadata.paths.values()))
    problems += [*metadata.problems, *listed_twice(metadata.versions, listed)]
    problems += _clock_problems(storage, head, now_seconds)
    if deep:
        problems += _damaged_records(storage, metadata.records)
        problems += _damaged_lists(storage, metadata.import_lists.values())
        problems += _deep_problems(storage, head, list(metadata.segments.values()), listed, progress)
    return Checked(
        snapshots=len(metadata.versions),
        segments=len(metadata.segments),
        blocks=len(listed.names),
        rows=head.row_count,
        problems=tuple(problems[:MOST_PROBLEMS]),
    )


def _clock_problems(storage: Storage, head: Snapshot, now_seconds: float) -> Iterator[str]:
    """Yield the problem that a writer's clock was ahead."""
    (modified_seconds,) = storage.modified([snapshot_path(head.sequence)])
    if is_ahead(head, max(now_seconds, modified_seconds or 0)):
        latest_ms = max(head.timestamp_ms, head.horizon_us // 1000)
        yield (
            f"snapshot {head.sequence}, or its horizon, has the time {iso_timestamp(latest_ms)}: a writer's clock "
            "was ahead; `tblctl check LOC --fix-clock` corrects it"
        )


def _retained(storage: Storage, head: Snapshot, problems: list[str]) -> Iterator[list[Snapshot]]:
    """Yield the retained snapshots, the newest first; every sequence must exist, times must not go back."""

    def load(sequence: int) -> Snapshot | Tombstone | None:
        try:
            return load_version(storage, sequence)
        except TblctlError as error:
            problems.append(str(error))
            return None

    yield [head]
    later: Snapshot | Tombstone = head
    sequences = range(head.sequence - 1, 0, -1)
    for start in range(0, len(sequences), _VERSIONS_AT_ONCE):
        part = sequences[start : start + _VERSIONS_AT_ONCE]
        versions = [item for item in in_parallel(load, part, threads=IO_THREADS) if item is not None]
        for version in versions:
            problems += _order_of_versions(version, later, head)
            later = version
        yield [item for item in versions if isinstance(item, Snapshot) and head.is_retained(item.sequence)]


def _order_of_versions(
    version: Snapshot | Tombstone, later: Snapshot | Tombstone, head: Snapshot
) -> Iterator[str]:
    if version.timestamp_ms > later.timestamp_ms and later.sequence not in head.clock_resets:
        yield f"snapshot {version.sequence} is younger than snapshot {later.sequence}"
    if version.table_id != head.table_id:
        yield f"snapshot {version.sequence} is of another table ({version.table_id})"
    if isinstance(version, Tombstone) and head.is_retained(version.sequence):
        yield f"snapshot {version.sequence} is retained, but only its tombstone is left"


def _damaged_records(storage: Storage, records: Mapping[str, Snapshot]) -> Iterator[str]:
    """Yield the records whose bytes do not match the checksum at their end. Reads them one by one."""
    for name, version in records.items():
        try:
            sound = has_checksum(storage.read(name)) or version.min_writer_version < CHECKSUMS_FROM
        except ValueError:
            sound = False
        except TblctlError as error:
            yield str(error)
            continue
        if not sound:
            yield f"{name} is damaged: its bytes do not match the checksum at its end"


def _damaged_lists(storage: Storage, lists: Iterable[ImportList]) -> Iterator[str]:
    """Yield the lists of imported files that cannot be read."""
    for item in lists:
        try:
            read_import_list(storage, item)
        except TblctlError as error:
            yield str(error)


def _deep_problems(
    storage: Storage,
    head: Snapshot,
    segments: Sequence[SegmentRef],
    listed: ListedBlocks,
    progress: Progress | None,
) -> list[str]:
    """Return the problems of the blocks themselves. Each is read once. Segments are read again, a few at a time."""
    done, lock = 0, Lock()
    current = {segment.path for segment in head.segments}

    def work(item: tuple[pa.Table, int, bool]) -> list[str]:
        nonlocal done
        table, place, is_current = item
        path = table["path"][place].as_py()
        try:
            found = list(BlockCheck(head, table.slice(place, 1), is_current).problems(storage))
        except TblctlError as error:
            found = [str(error)]
        except ARROW_ERRORS as error:  # the segment's row lacks a compared value
            found = [str(damaged(f"the segment's row of {path}", error))]
        with lock:
            done += 1
            if progress:
                progress(done, len(listed.names), "blocks")
        return found

    problems: list[str] = []
    for group in _groups(list(zip(segments, listed.first, strict=True))):
        tables = in_parallel(lambda item: read_segment(storage, item[0]), group, threads=IO_THREADS)
        rows = [
            (table, row, segment.path in current)
            for table, (segment, places) in zip(tables, group, strict=True)
            for row in places.tolist()
        ]
        problems += [line for lines in in_parallel(work, rows, threads=cpu_threads()) for line in lines]
    return problems


def _groups(
    segments: Sequence[tuple[SegmentRef, np.ndarray]],
) -> Iterator[list[tuple[SegmentRef, np.ndarray]]]:
    """Yield groups of segments with blocks to check; each group has about as many blocks as a full segment."""
    group: list[tuple[SegmentRef, np.ndarray]] = []
    for segment, rows in segments:
        if not len(rows):
            continue
        if group and sum(len(mine) for _, mine in group) + len(rows) > SEGMENT_BLOCKS:
            yield group
            group = []
        group.append((segment, rows))
    if group:
        yield group
