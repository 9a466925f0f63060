"""Verify every invariant of the format; report all that is broken, change nothing.

Shallow: names, the chain of snapshots, the checksums of segments, summaries and statistics against each other, every
object there with the size that is stated. Deep: every block is read as well, its checksums are verified, and its
statistics, order and levels are worked out anew.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tblctl.tableformat.concurrency import IO_THREADS, cpu_threads, in_parallel
from tblctl.tableformat.errors import CorruptTableError, TblctlError
from tblctl.tableformat.keys.kinds import has_key_columns, key_width
from tblctl.tableformat.keys.order import SameKeys, is_sorted, key_range, key_table
from tblctl.tableformat.model.block import CONSTANT_LEVEL
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.model.snapshot import SegmentRef, Snapshot, Tombstone, iso_timestamp
from tblctl.tableformat.model.values import python_value
from tblctl.tableformat.native.log.checked_json import has_checksum
from tblctl.tableformat.native.log.clock import is_ahead
from tblctl.tableformat.native.log.fold import SEGMENT_BLOCKS
from tblctl.tableformat.native.log.head import load_version
from tblctl.tableformat.native.log.names import DATA, RECORDS, SEGMENTS, record_of, snapshot_path
from tblctl.tableformat.native.log.segment_file import (
    BASE_COLUMNS,
    key_names,
    read_segment,
    segment_ref,
    statistic_names,
)
from tblctl.tableformat.native.log.snapshot_file import CHECKSUMS_FROM
from tblctl.tableformat.parquet.damage import ARROW_ERRORS, damaged
from tblctl.tableformat.parquet.reader import BlockAddress, BlockFile
from tblctl.tableformat.parquet.statistics import column_records, measure
from tblctl.tableformat.port import Checked
from tblctl.tableformat.storage import Storage

_MOST_PROBLEMS = 1000
_VERSIONS_AT_ONCE = 64


def check_table(
    storage: Storage,
    head: Snapshot,
    *,
    deep: bool,
    now_seconds: float,
    progress: Callable[[int, int | None, str], None] | None = None,
) -> Checked:
    """Verify the head and every retained snapshot.

    Takes about 300 bytes a block and 4 a segment of each version; of a segment only its blocks' names are kept.
    """
    problems: list[str] = []
    sizes = {
        item.name: item.size_bytes for prefix in (DATA, SEGMENTS, RECORDS) for item in storage.list(prefix)
    }
    shallow = _Shallow(storage, sizes)
    for versions in _retained(storage, head, problems):
        shallow.add(versions)
    listed = _Listed.of(list(shallow.paths.values()))
    problems += [*shallow.problems, *_repeated(shallow.versions, listed)]
    (modified_seconds,) = storage.modified([snapshot_path(head.sequence)])
    if is_ahead(head, max(now_seconds, modified_seconds or 0)):
        latest_ms = max(head.timestamp_ms, head.horizon_us // 1000)
        problems.append(
            f"snapshot {head.sequence}, or its horizon, is said to be of {iso_timestamp(latest_ms)}: a writer's clock "
            "was ahead; `tblctl check LOC --fix-clock` sets it right"
        )
    if deep:
        problems += _damaged_records(storage, shallow.records)
        problems += _deep_problems(storage, head, list(shallow.segments.values()), listed, progress)
    return Checked(
        snapshots=len(shallow.versions),
        segments=len(shallow.segments),
        blocks=len(listed.names),
        rows=head.row_count,
        problems=tuple(problems[:_MOST_PROBLEMS]),
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
        yield f"snapshot {version.sequence} is retained, yet only a tombstone is left of it"


class _Shallow:
    """Looks at versions, each segment once, and remembers which blocks each segment lists.

    Attributes:
        problems: found so far.
        segments: all that were looked at, by name.
        paths: the names of the blocks in each, in the same order; none where it cannot be read.
        versions: by sequence, the places of its segments in `segments`.
        records: those that are there, with the version that names each.
    """

    def __init__(self, storage: Storage, sizes: Mapping[str, int]) -> None:
        self._storage = storage
        self._sizes = sizes
        self._places: dict[str, int] = {}
        self.problems: list[str] = []
        self.segments: dict[str, SegmentRef] = {}
        self.paths: dict[str, pa.Array] = {}
        self.versions: dict[int, np.ndarray] = {}
        self.records: dict[str, Snapshot] = {}

    def add(self, versions: Sequence[Snapshot]) -> None:
        """Look at some versions, given the newest first."""
        fresh: dict[str, tuple[SegmentRef, Snapshot]] = {}
        for version in versions:
            for segment in version.segments:
                if segment.path not in self._places:
                    self._places[segment.path] = len(self._places)
                    fresh[segment.path] = segment, version
            places = [self._places[segment.path] for segment in version.segments]
            self.versions[version.sequence] = np.array(places, dtype=np.int32)
            self.problems += _summary_problems(version)
            self._add_record(version)
        found = in_parallel(lambda item: self._segment(*item), fresh.values(), threads=IO_THREADS)
        for (segment, _), (paths, problems) in zip(fresh.values(), found, strict=True):
            self.segments[segment.path] = segment
            self.paths[segment.path] = paths
            self.problems += problems

    def _add_record(self, version: Snapshot) -> None:
        try:
            name = record_of(version.summary.detail)
        except CorruptTableError as error:
            self.problems.append(f"snapshot {version.sequence}: {error}")
            return
        if name is None:
            return
        if name in self._sizes:
            self.records[name] = version
        else:
            self.problems.append(f"{name}: missing, although snapshot {version.sequence} names it")

    def _segment(self, segment: SegmentRef, version: Snapshot) -> tuple[pa.Array, list[str]]:
        """Return the names of a segment's blocks, and what is wrong with it."""
        paths = pa.array([], pa.string())
        try:
            table = read_segment(self._storage, segment)
            paths = table["path"].combine_chunks()
            found = _segment_problems(segment, table, version, self._sizes)
            return paths, list(itertools.islice(found, _MOST_PROBLEMS))
        except CorruptTableError as error:
            return paths, [str(error)]
        except ARROW_ERRORS as error:
            return paths, [str(damaged(segment.path, error))]


def _segment_problems(
    segment: SegmentRef, table: pa.Table, version: Snapshot, sizes: Mapping[str, int]
) -> Iterator[str]:
    """Yield what is wrong with a segment: its summary, its blocks' files and their statistics."""
    name = segment.path
    again = segment_ref(
        table,
        segment.path,
        version.schema,
        version.sort,
        size_bytes=segment.size_bytes,
        seal=segment.seal,
    )
    for fact in ("row_count", "data_bytes", "block_count"):
        if getattr(again, fact) != getattr(segment, fact):
            yield f"{name}: {fact} is {getattr(again, fact)}, the snapshot says {getattr(segment, fact)}"
    found = pa.array(map(sizes.get, table["path"].to_pylist()), pa.int64())
    wrong = table.select(["path", "size_bytes"]).append_column("found", found)
    wrong = wrong.filter(pc.fill_null(pc.not_equal(wrong["found"], wrong["size_bytes"]), True))  # noqa: FBT003
    for path, stated, size in zip(*(column.to_pylist() for column in wrong.columns), strict=True):
        if size is None:
            yield f"{path}: missing, although {name} lists it"
        else:
            yield f"{path}: {size} bytes, {name} says {stated}"
    if pc.any(pc.less(table["level"], CONSTANT_LEVEL)).as_py():
        yield f"{name}: a level below {CONSTANT_LEVEL}"
    for key_id in pc.unique(table["cluster_key_id"].drop_null()).to_pylist():
        if key_id not in version.sorts:
            yield f"{name}: a block is of cluster key {key_id}, which the snapshot does not define"
    for schema_id in pc.unique(table["schema_id"]).to_pylist():
        if schema_id not in version.schemas:
            yield f"{name}: a block has schema {schema_id}, which the snapshot does not define"
    yield from _bound_problems(name, table, version.schema)


def _bound_problems(name: str, table: pa.Table, schema: Schema) -> Iterator[str]:
    for leaf in schema.leaves:
        low, high, nulls = (f"column_{leaf.id}_{fact}" for fact in ("min", "max", "null_count"))
        if low in table.column_names and pc.any(pc.greater(table[low], table[high])).as_py():
            yield f"{name}: a block's min of {leaf.name} is above its max"
        if nulls in table.column_names and pc.any(pc.greater(table[nulls], table["row_count"])).as_py():
            yield f"{name}: a block has more nulls in {leaf.name} than rows"


def _summary_problems(version: Snapshot) -> Iterator[str]:
    stated = version.summary.rows, version.summary.blocks, version.summary.data_bytes
    if stated != (version.row_count, version.block_count, version.data_bytes):
        yield f"snapshot {version.sequence}: its summary says {stated}, its segments add up to something else"
    for tag, sequence in version.tags.items():
        if sequence > version.sequence:
            yield f"snapshot {version.sequence}: tag {tag} names the later snapshot {sequence}"


def _damaged_records(storage: Storage, records: Mapping[str, Snapshot]) -> Iterator[str]:
    """Yield the records whose bytes do not have the checksum that they end with; they are read one by one."""
    for name, version in records.items():
        try:
            sound = has_checksum(storage.read(name)) or version.min_writer_version < CHECKSUMS_FROM
        except ValueError:
            sound = False
        except TblctlError as error:
            yield str(error)
            continue
        if not sound:
            yield f"{name} is damaged: its bytes do not have the checksum that they should end with"


@dataclass(frozen=True, kw_only=True)
class _Listed:
    """Which blocks segments list, as numbers.

    Attributes:
        names: of all blocks, each once; a block's number is its place here.
        first: for every segment, the rows that list a block which no segment before it, nor a row before, lists.
        shared: for every segment, the numbers of its blocks that are listed more than once in all.
    """

    names: pa.Array
    first: tuple[np.ndarray, ...]
    shared: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, paths: Sequence[pa.Array]) -> _Listed:
        """Return the blocks of segments from the names in each. O(all names)."""
        every = pa.chunked_array(paths, pa.string()).combine_chunks().dictionary_encode()
        numbers = every.indices.to_numpy()
        is_shared = np.bincount(numbers)[numbers] > 1
        is_first = np.zeros(len(numbers), dtype=bool)
        is_first[np.unique(numbers, return_index=True)[1]] = True
        cuts = itertools.pairwise(np.cumsum([0, *map(len, paths)]).tolist())
        segments = [slice(*cut) for cut in cuts]
        return cls(
            names=every.dictionary,
            first=tuple(np.flatnonzero(is_first[segment]) for segment in segments),
            shared=tuple(numbers[segment][is_shared[segment]] for segment in segments),
        )


def _repeated(versions: Mapping[int, np.ndarray], listed: _Listed) -> Iterator[str]:
    """Yield the versions that list a block twice. O(versions x blocks that several segments list)."""
    for sequence, places in versions.items():
        shared = [listed.shared[place] for place in places.tolist()]
        numbers, counts = np.unique(
            np.concatenate([np.empty(0, dtype=np.int32), *shared]), return_counts=True
        )
        if (counts > 1).any():
            name = pc.min(listed.names.take(pa.array(numbers[counts > 1])))
            yield f"snapshot {sequence}: block {name} is listed twice"


def _deep_problems(
    storage: Storage,
    head: Snapshot,
    segments: Sequence[SegmentRef],
    listed: _Listed,
    progress: Callable[[int, int | None, str], None] | None,
) -> list[str]:
    """Return what is wrong with the blocks themselves, read once each; the segments are read again, a few at once."""
    done = 0

    def work(item: tuple[pa.Table, int]) -> list[str]:
        nonlocal done
        table, place = item
        path = table["path"][place].as_py()
        try:
            found = list(_BlockCheck(head, path, table.slice(place, 1)).problems(storage))
        except TblctlError as error:
            found = [str(error)]
        except ARROW_ERRORS as error:  # the segment's row does not even have what is compared
            found = [str(damaged(f"what a segment says of {path}", error))]
        done += 1
        if progress:
            progress(done, len(listed.names), "blocks")
        return found

    problems: list[str] = []
    for group in _groups(list(zip(segments, listed.first, strict=True))):
        tables = in_parallel(lambda item: read_segment(storage, item[0]), group, threads=IO_THREADS)
        rows = [
            (table, row) for table, (_, places) in zip(tables, group, strict=True) for row in places.tolist()
        ]
        problems += [line for lines in in_parallel(work, rows, threads=cpu_threads()) for line in lines]
    return problems


def _groups(
    segments: Sequence[tuple[SegmentRef, np.ndarray]],
) -> Iterator[list[tuple[SegmentRef, np.ndarray]]]:
    """Yield segments that have blocks to check, together about as many blocks as a full segment."""
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


class _BlockCheck:
    """Compares one block's file, read whole, with its row of a segment."""

    def __init__(self, head: Snapshot, path: str, row: pa.Table) -> None:
        self._head = head
        self._path = path
        self._row = row
        self._base = row.select(BASE_COLUMNS.names).to_pylist()[0]

    def problems(self, storage: Storage) -> Iterator[str]:
        """Yield where the file does not say what the metadata says."""
        base = self._base
        schema = self._head.schemas.get(base["schema_id"])
        if schema is None:
            return
        address = BlockAddress(
            path=self._path,
            size_bytes=base["size_bytes"],
            row_count=base["row_count"],
            uncompressed_bytes=base["uncompressed_bytes"],
            column_ids=schema.ids,
            seal=Seal.of(base["footer_bytes"], base["footer_checksum"]),
        )
        with BlockFile(storage, address) as file:
            groups = range(file.metadata.num_row_groups)
            projection = file.projection(schema)
            rows = file.read(groups, projection, use_threads=True).combine_chunks()
            footer = file.metadata
        for item in schema.arrow:
            if not item.nullable and rows.column(item.name).null_count:
                yield f"{self._path}: null in the non-nullable column {item.name}"
        yield from self._statistics_problems(rows, schema, footer)
        yield from self._order_problems(rows, schema)

    def _statistics_problems(self, rows: pa.Table, schema: Schema, footer: pq.FileMetaData) -> Iterator[str]:
        records = column_records(measure(rows, schema.leaves), schema, footer)
        for leaf in schema.leaves:
            for name, kind in statistic_names(leaf).items():
                if name not in self._row.column_names or self._row[name].null_count > _is_bound(name):
                    continue  # the column was dropped since, or is younger than the block
                worked_out = getattr(records[leaf.id], name.removeprefix(f"column_{leaf.id}_"))
                if not isinstance(worked_out, pa.Scalar):
                    worked_out = pa.scalar(worked_out, kind)
                yield from self._difference(name, worked_out, f" (column {leaf.name})")

    def _order_problems(self, rows: pa.Table, schema: Schema) -> Iterator[str]:
        key_id = self._base["cluster_key_id"]
        sort = None if key_id is None else self._head.sorts.get(key_id)
        if sort is None or not has_key_columns(sort, schema):
            return
        keys = key_table(rows, sort, schema)
        if not is_sorted(keys, sort):
            yield f"{self._path}: its rows are not in the order of cluster key {sort.id}"
            return
        found = key_range(keys, sort)
        lows, highs, exact = key_names(sort.id, key_width(sort))
        for name, value in zip([*lows, *highs], [*found.min, *found.max], strict=True):
            yield from self._difference(name, value, "")
        yield from self._difference(exact, pa.scalar(found.exact), "")
        if self._base["same_key_rows"] is not None:
            same_keys = SameKeys()
            same_keys.add(keys)
            yield from self._difference("same_key_rows", pa.scalar(same_keys.most_rows, pa.int64()), "")
        if self._base["level"] == CONSTANT_LEVEL and not found.constant:
            yield f"{self._path}: level {CONSTANT_LEVEL}, but its rows have several keys"

    def _difference(self, name: str, worked_out: pa.Scalar, where: str) -> Iterator[str]:
        stated = self._row[name][0].cast(worked_out.type)
        found, said = python_value(worked_out), python_value(stated)
        floats = isinstance(found, float) and isinstance(said, float)
        alike = floats and (found == said or (math.isnan(found) and math.isnan(said)))  # 0.0 and -0.0; NaN
        if not worked_out.equals(stated) and not alike:
            yield f"{self._path}: {name}{where} is {found}, metadata says {said}"


def _is_bound(name: str) -> bool:
    return name.endswith(("_min", "_max"))
