"""Check a table's metadata for contradictions, also with the names and sizes of existing objects."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.model.block import CONSTANT_LEVEL
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.snapshot import ImportList, SegmentRef, Snapshot
from tblctl.tableformat.native.log.names import record_of
from tblctl.tableformat.native.log.segment_reader import read_segment
from tblctl.tableformat.native.log.segment_rows import segment_ref
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS, damaged
from tblctl.tableformat.port import MOST_PROBLEMS
from tblctl.tableformat.storage import Storage


class MetadataCheck:
    """Checks versions, and each of their segments once. Keeps which blocks each segment lists.

    Attributes:
        problems: found so far.
        segments: all checked segments, by name.
        paths: the names of the blocks in each, in the same order; none if it cannot be read.
        versions: by sequence, the places of its segments in `segments`.
        records: existing records, with the version that names each.
        import_lists: existing lists of imported files, by name.
    """

    def __init__(self, storage: Storage, sizes: Mapping[str, int]) -> None:
        self._storage = storage
        self._sizes = sizes  # of existing objects, by name
        self._places: dict[str, int] = {}
        self.problems: list[str] = []
        self.segments: dict[str, SegmentRef] = {}
        self.paths: dict[str, pa.Array] = {}
        self.versions: dict[int, np.ndarray] = {}
        self.records: dict[str, Snapshot] = {}
        self.import_lists: dict[str, ImportList] = {}

    def add(self, versions: Sequence[Snapshot]) -> None:
        """Check versions, given the newest first."""
        fresh: dict[str, tuple[SegmentRef, Snapshot]] = {}
        for version in versions:
            fresh |= self._new_segments(version)
            places = [self._places[segment.path] for segment in version.segments]
            self.versions[version.sequence] = np.array(places, dtype=np.int32)
            self.problems += summary_problems(version)
            self._add_record(version)
            self._add_import_lists(version)
        found = in_parallel(lambda item: self._segment(*item), fresh.values(), threads=IO_THREADS)
        for (segment, _), (paths, problems) in zip(fresh.values(), found, strict=True):
            self.segments[segment.path] = segment
            self.paths[segment.path] = paths
            self.problems += problems

    def _new_segments(self, version: Snapshot) -> dict[str, tuple[SegmentRef, Snapshot]]:
        """Give a place to segments that are new; return them by name."""
        fresh = {}
        for segment in version.segments:
            if segment.path not in self._places:
                self._places[segment.path] = len(self._places)
                fresh[segment.path] = segment, version
        return fresh

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

    def _add_import_lists(self, version: Snapshot) -> None:
        for item in version.imports:
            size = self._sizes.get(item.path)
            if size is None:
                self.problems.append(f"{item.path}: missing, although snapshot {version.sequence} names it")
            elif size != item.size_bytes:
                said = f"snapshot {version.sequence} says {item.size_bytes}"
                self.problems.append(f"{item.path}: {size} bytes, {said}")
            else:
                self.import_lists[item.path] = item

    def _segment(self, segment: SegmentRef, version: Snapshot) -> tuple[pa.Array, list[str]]:
        """Return the names of a segment's blocks, and its problems."""
        paths = pa.array([], pa.string())
        try:
            table = read_segment(self._storage, segment)
            paths = table["path"].combine_chunks()
            found = _segment_problems(segment, table, version, self._sizes)
            return paths, list(itertools.islice(found, MOST_PROBLEMS))
        except CorruptTableError as error:
            return paths, [str(error)]
        except ARROW_ERRORS as error:
            return paths, [str(damaged(segment.path, error))]


def _segment_problems(
    segment: SegmentRef, table: pa.Table, version: Snapshot, sizes: Mapping[str, int]
) -> Iterator[str]:
    """Yield the problems of a segment: of its summary, its blocks' files and their statistics."""
    yield from _summed_up_wrong(segment, table, version)
    yield from _missing_files(segment.path, table, sizes)
    yield from _unknown_ids(segment.path, table, version)
    yield from _bound_problems(segment.path, table, version.schema)


def _summed_up_wrong(segment: SegmentRef, table: pa.Table, version: Snapshot) -> Iterator[str]:
    again = segment_ref(
        table,
        segment.path,
        version.schema,
        version.sort,
        size_bytes=segment.size_bytes,
        seal=segment.seal,
    )
    for fact in ("row_count", "data_bytes", "block_count"):
        found, stated = getattr(again, fact), getattr(segment, fact)
        if found != stated:
            yield f"{segment.path}: {fact} is {found}, the snapshot says {stated}"


def _missing_files(name: str, table: pa.Table, sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield the blocks whose objects are missing or have another size."""
    found = pa.array(map(sizes.get, table["path"].to_pylist()), pa.int64())
    wrong = table.select(["path", "size_bytes"]).append_column("found", found)
    wrong = wrong.filter(pc.fill_null(pc.not_equal(wrong["found"], wrong["size_bytes"]), True))  # noqa: FBT003
    for path, stated, size in zip(*(column.to_pylist() for column in wrong.columns), strict=True):
        if size is None:
            yield f"{path}: missing, although {name} lists it"
        else:
            yield f"{path}: {size} bytes, {name} says {stated}"


def _unknown_ids(name: str, table: pa.Table, version: Snapshot) -> Iterator[str]:
    """Yield levels, cluster keys and schemas that no block can have."""
    if pc.any(pc.less(table["level"], CONSTANT_LEVEL)).as_py():
        yield f"{name}: a level below {CONSTANT_LEVEL}"
    for key_id in pc.unique(table["cluster_key_id"].drop_null()).to_pylist():
        if key_id not in version.sorts and key_id > version.last_sort_id:
            yield f"{name}: a block has cluster key {key_id}, which the snapshot does not define"
    for schema_id in pc.unique(table["schema_id"]).to_pylist():
        if schema_id not in version.schemas:
            yield f"{name}: a block has schema {schema_id}, which the snapshot does not define"


def _bound_problems(name: str, table: pa.Table, schema: Schema) -> Iterator[str]:
    """Yield the columns whose statistics contradict each other."""
    for leaf in schema.leaves:
        low, high, nulls = (f"column_{leaf.id}_{fact}" for fact in ("min", "max", "null_count"))
        if low in table.column_names and pc.any(pc.greater(table[low], table[high])).as_py():
            yield f"{name}: a block's min of {leaf.name} is above its max"
        if nulls in table.column_names and pc.any(pc.greater(table[nulls], table["row_count"])).as_py():
            yield f"{name}: a block has more nulls in {leaf.name} than rows"


def summary_problems(version: Snapshot) -> Iterator[str]:
    """Yield the contradictions between a snapshot and its summary and tags."""
    stated = version.summary.rows, version.summary.blocks, version.summary.data_bytes
    if stated != (version.row_count, version.block_count, version.data_bytes):
        yield f"snapshot {version.sequence}: its summary says {stated}, its segments add up to something else"
    for tag, sequence in version.tags.items():
        if sequence > version.sequence:
            yield f"snapshot {version.sequence}: tag {tag} names the later snapshot {sequence}"


@dataclass(frozen=True, kw_only=True)
class ListedBlocks:
    """Which blocks segments list, as numbers.

    Attributes:
        names: of all blocks, each once; a block's number is its place here.
        first: for every segment, the rows that list a block for the first time.
        shared: for every segment, the numbers of its blocks that are listed more than once in all segments.
    """

    names: pa.Array
    first: tuple[np.ndarray, ...]
    shared: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, paths: Sequence[pa.Array]) -> ListedBlocks:
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


def listed_twice(versions: Mapping[int, np.ndarray], listed: ListedBlocks) -> Iterator[str]:
    """Yield the versions that list a block twice. O(versions x blocks in several segments)."""
    for sequence, places in versions.items():
        shared = [listed.shared[place] for place in places.tolist()]
        numbers, counts = np.unique(
            np.concatenate([np.empty(0, dtype=np.int32), *shared]), return_counts=True
        )
        if (counts > 1).any():
            name = pc.min(listed.names.take(pa.array(numbers[counts > 1])))
            yield f"snapshot {sequence}: block {name} is listed twice"
