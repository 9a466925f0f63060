"""Verify every invariant of the format; report all that is broken, change nothing.

Shallow: names, the chain of snapshots, summaries and statistics against each other, every object there with the size
that is stated. Deep: every block is read as well, and its statistics, order and levels are worked out anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tblctl.tableformat.concurrency import IO_THREADS, cpu_threads, in_parallel
from tblctl.tableformat.errors import CorruptTableError, TblctlError
from tblctl.tableformat.keys import is_sorted, key_range, key_table
from tblctl.tableformat.model.block import CONSTANT_LEVEL
from tblctl.tableformat.model.schema import Schema
from tblctl.tableformat.model.snapshot import SegmentRef, Snapshot, Tombstone
from tblctl.tableformat.model.values import python_value
from tblctl.tableformat.native.block_file import BlockAddress, BlockFile
from tblctl.tableformat.native.damage import ARROW_ERRORS, damaged
from tblctl.tableformat.native.head import load_version
from tblctl.tableformat.native.names import DATA, SEGMENTS, checked_block_path
from tblctl.tableformat.native.segment_file import (
    BASE_COLUMNS,
    key_names,
    read_segment,
    segment_ref,
    statistic_names,
)
from tblctl.tableformat.native.statistics import column_records
from tblctl.tableformat.projection import Projection
from tblctl.tableformat.storage import Storage

_MOST_PROBLEMS = 1000


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What was looked at, and what is wrong; each problem names its object."""

    snapshots: int
    segments: int
    blocks: int
    rows: int
    problems: tuple[str, ...]


def check_table(
    storage: Storage,
    head: Snapshot,
    *,
    deep: bool,
    progress: Callable[[int, int | None, str], None] | None = None,
) -> Checked:
    """Verify the head and every retained snapshot."""
    problems: list[str] = []
    versions = [head, *_older_versions(storage, head, problems)]
    sizes = {item.name: item.size_bytes for prefix in (DATA, SEGMENTS) for item in storage.list(prefix)}
    segments = {
        segment.path: (segment, version) for version in reversed(versions) for segment in version.segments
    }
    tables: dict[str, pa.Table] = {}
    read = in_parallel(lambda item: _try_read(storage, item[0]), segments.values(), threads=IO_THREADS)
    for (segment, version), table in zip(segments.values(), read, strict=True):
        if isinstance(table, str):
            problems.append(table)
        else:
            tables[segment.path] = table
            try:
                problems += _segment_problems(segment, table, version, sizes)
            except ARROW_ERRORS as error:
                problems.append(str(damaged(segment.path, error)))
    for version in versions:
        problems += _snapshot_problems(version, tables)
    blocks = {path: row for table in tables.values() for path, row in _rows_by_path(table)}
    if deep:
        problems += _deep_problems(storage, head, blocks, progress)
    return Checked(
        snapshots=len(versions),
        segments=len(segments),
        blocks=len(blocks),
        rows=head.row_count,
        problems=tuple(problems[:_MOST_PROBLEMS]),
    )


def _older_versions(storage: Storage, head: Snapshot, problems: list[str]) -> list[Snapshot]:
    """Return the retained snapshots below the head; every sequence must exist, times must not go back."""

    def load(sequence: int) -> Snapshot | Tombstone | None:
        try:
            return load_version(storage, sequence)
        except TblctlError as error:
            problems.append(str(error))
            return None

    versions = in_parallel(load, range(head.sequence - 1, 0, -1), threads=IO_THREADS)
    later: Snapshot | Tombstone = head
    for version in versions:
        if version is None:
            continue
        if version.timestamp_ms > later.timestamp_ms:
            problems.append(f"snapshot {version.sequence} is younger than snapshot {later.sequence}")
        if version.table_id != head.table_id:
            problems.append(f"snapshot {version.sequence} is of another table ({version.table_id})")
        if isinstance(version, Tombstone) and head.is_retained(version.sequence):
            problems.append(f"snapshot {version.sequence} is retained, yet only a tombstone is left of it")
        later = version
    return [item for item in versions if isinstance(item, Snapshot) and head.is_retained(item.sequence)]


def _try_read(storage: Storage, segment: SegmentRef) -> pa.Table | str:
    """Return a segment's rows, or what is wrong with it."""
    try:
        return read_segment(storage, segment)
    except CorruptTableError as error:
        return str(error)


def _segment_problems(
    segment: SegmentRef, table: pa.Table, version: Snapshot, sizes: dict[str, int]
) -> Iterator[str]:
    """Yield what is wrong with a segment: its summary, its names, its blocks' files and their statistics."""
    name = segment.path
    again = segment_ref(table, segment.path, segment.size_bytes, version.schema, version.sort)
    for fact in ("row_count", "data_bytes", "block_count"):
        if getattr(again, fact) != getattr(segment, fact):
            yield f"{name}: {fact} is {getattr(again, fact)}, the snapshot says {getattr(segment, fact)}"
    for path, size in zip(table["path"].to_pylist(), table["size_bytes"].to_pylist(), strict=True):
        try:
            checked_block_path(path)
        except CorruptTableError as error:
            yield f"{name}: {error}"
            continue
        if path not in sizes:
            yield f"{path}: missing, although {name} lists it"
        elif sizes[path] != size:
            yield f"{path}: {sizes[path]} bytes, {name} says {size}"
    if pc.any(pc.less(table["level"], CONSTANT_LEVEL)).as_py():
        yield f"{name}: a level below {CONSTANT_LEVEL}"
    for key_id in set(table["cluster_key_id"].to_pylist()) - {None}:
        if key_id not in version.sorts:
            yield f"{name}: a block is of cluster key {key_id}, which the snapshot does not define"
    for schema_id in set(table["schema_id"].to_pylist()):
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


def _snapshot_problems(version: Snapshot, tables: dict[str, pa.Table]) -> Iterator[str]:
    """Yield what is wrong between a snapshot's segments: a block listed twice, a summary that does not add up."""
    seen: set[str] = set()
    for segment in version.segments:
        paths = tables[segment.path]["path"].to_pylist() if segment.path in tables else []
        twice = seen.intersection(paths) | {path for path, count in Counter(paths).items() if count > 1}
        if twice:
            yield f"snapshot {version.sequence}: block {min(twice)} is listed twice"
        seen.update(paths)
    stated = version.summary.rows, version.summary.blocks, version.summary.data_bytes
    if stated != (version.row_count, version.block_count, version.data_bytes):
        yield f"snapshot {version.sequence}: its summary says {stated}, its segments add up to something else"
    for tag, sequence in version.tags.items():
        if sequence > version.sequence:
            yield f"snapshot {version.sequence}: tag {tag} names the later snapshot {sequence}"


def _rows_by_path(table: pa.Table) -> Iterable[tuple[str, pa.Table]]:
    for place, path in enumerate(table["path"].to_pylist()):
        yield path, table.slice(place, 1)


def _deep_problems(
    storage: Storage,
    head: Snapshot,
    blocks: dict[str, pa.Table],
    progress: Callable[[int, int | None, str], None] | None,
) -> list[str]:
    done = 0

    def work(item: tuple[str, pa.Table]) -> list[str]:
        nonlocal done
        try:
            found = list(_BlockCheck(head, *item).problems(storage))
        except TblctlError as error:
            found = [str(error)]
        except ARROW_ERRORS as error:  # the segment's row does not even have what is compared
            found = [str(damaged(f"what a segment says of {item[0]}", error))]
        done += 1
        if progress:
            progress(done, len(blocks), "blocks")
        return found

    return [line for lines in in_parallel(work, blocks.items(), threads=cpu_threads()) for line in lines]


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
        address = BlockAddress(path=self._path, size_bytes=base["size_bytes"], row_count=base["row_count"])
        with BlockFile(storage, address) as file:
            groups = range(file.metadata.num_row_groups)
            projection = Projection.plan(file.schema, schema, None)
            rows = file.read(groups, projection, use_threads=True).combine_chunks()
            footer = file.metadata
        for item in schema.arrow:
            if not item.nullable and rows.column(item.name).null_count:
                yield f"{self._path}: null in the non-nullable column {item.name}"
        yield from self._statistics_problems(rows, schema, footer)
        yield from self._order_problems(rows, schema)

    def _statistics_problems(self, rows: pa.Table, schema: Schema, footer: pq.FileMetaData) -> Iterator[str]:
        records = column_records(rows, schema, footer)
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
        if sort is None or any(schema.leaf_by_id(term.column_id) is None for term in sort.terms):
            return
        keys = key_table(rows, sort, schema)
        if not is_sorted(keys, sort):
            yield f"{self._path}: its rows are not in the order of cluster key {sort.id}"
            return
        found = key_range(keys, sort)
        lows, highs, exact = key_names(sort.id, len(sort.terms))
        for name, value in zip([*lows, *highs], [*found.min, *found.max], strict=True):
            yield from self._difference(name, value, "")
        yield from self._difference(exact, pa.scalar(found.exact), "")
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
