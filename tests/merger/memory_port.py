"""The table port over Arrow tables in a dict: only what planning, merging and committing need of a table.

It has features that the native format lacks: partitions, opaque ids of versions, and deleted rows that blocks still
store.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from unpartitioned import Unpartitioned

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import CorruptTableError, SnapshotNotFoundError
from tblctl.tableformat.keys.order import KeyRange, SameKeys, key_range, key_table, sort_indices
from tblctl.tableformat.model.block import CONSTANT_LEVEL, Block, ClusterStatistics, is_full
from tblctl.tableformat.model.cluster_key import Sort, parse_terms, term_to_text
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.runs import run_number
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.model.snapshot import Summary
from tblctl.tableformat.model.values import python_value
from tblctl.tableformat.port import (
    BlocksReplacedError,
    Checked,
    Garbage,
    Listing,
    Replacement,
    SortConflictError,
    VersionEntry,
)
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.workload.place import LogPlace

from .memory_statistics import MemoryStatistics

GROUP_ROWS = 3  # rows of a row group: small, so that tiny blocks have several
IMPATIENT = Environment(sleep=lambda _seconds: None)


@dataclass(frozen=True, kw_only=True)
class MemoryVersion(Unpartitioned):
    """A version: the `records` of its blocks by path, and which rows of blocks are `deleted`, by their numbers.

    `known_sorts` are all that the table ever had, by id; those of `beside` are live beside the current one.
    """

    location: str
    table_id: str
    id: str
    parent: str | None
    timestamp_ms: int
    schema: Schema
    sort: Sort | None
    options: TableOptions
    records: Mapping[str, BlockRecord]
    files: Mapping[str, pa.Table]
    deleted: Mapping[str, frozenset[int]] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    known_sorts: Mapping[int, Sort]
    beside: frozenset[int] = frozenset()

    @property
    def public_id(self) -> str:
        return self.id

    @property
    def cluster_hint(self) -> str:
        return "the twin is given its key when it is made"

    @property
    def sorts(self) -> dict[int, Sort]:
        here = {} if self.sort is None else {self.sort.id: self.sort}
        return here | {number: self.known_sorts[number] for number in sorted(self.beside)}

    @property
    def next_sort_id(self) -> int:
        return max(self.known_sorts) + 1

    def listing(
        self,
        sort: Sort,
        condition: Any,
        *,
        clustered: bool = True,
        runs: bool = False,
        beside: Sort | None = None,
    ) -> Listing:
        ranges = [self._range(record, sort) for record in self.records.values()]
        kinds = key_table(self.schema.written.empty_table(), sort, self.schema).schema

        def bounds(side: str) -> pa.Table:
            ends = [getattr(item, side) for item in ranges]
            columns = [pa.array([end[place] for end in ends], item.type) for place, item in enumerate(kinds)]
            return pa.table(columns, schema=kinds)

        def figures(name: str) -> np.ndarray:
            found = [getattr(record, name) for record in self.records.values()]
            return np.array([-1 if figure is None else figure for figure in found], np.int64)

        partitions = sorted({record.partition for record in self.records.values()}, reverse=True) or [""]
        ids = figures("cluster_key_id")
        own = ids == sort.id
        return Listing(
            paths=pa.array(list(self.records), pa.string()),
            low=bounds("min"),
            high=bounds("max"),
            own=own & clustered,
            sort_id=np.where(np.isin(ids, list(self.sorts)), ids, -1),
            known=np.ones(len(ranges), np.bool_),
            exact=np.array([item.exact for item in ranges], np.bool_),
            same_key_rows=np.where(own & clustered, figures("same_key_rows"), -1),
            level=figures("level"),
            stored_rows=figures("row_count"),
            size_bytes=figures("size_bytes"),
            decoded_bytes=figures("decoded_bytes"),
            matched=None if condition is None else self._matched(condition),
            partition=np.array(
                [partitions.index(record.partition) for record in self.records.values()], np.int64
            ),
            partitions=tuple(partitions),
            run=np.array([run_number(record.run_id) for record in self.records.values()], np.int64),
        )

    def statistics(self, leaves: Sequence[Leaf]) -> MemoryStatistics:
        del leaves  # nothing needs to be fetched
        return MemoryStatistics(tables=tuple(self.files[path] for path in self.records))

    def blocks(self, paths: Sequence[str]) -> dict[str, Block]:
        return {path: block_of(self.records[path]) for path in paths if path in self.records}

    def is_ordered(self, block: Block, sort: Sort) -> bool:
        return block.cluster is not None and block.cluster.cluster_key_id == sort.id

    def _range(self, record: BlockRecord, sort: Sort) -> KeyRange:
        keys = key_table(self.files[record.path], sort, self.schema)
        return key_range(keys.take(sort_indices(keys, sort)), sort)

    def _matched(self, condition: Any) -> np.ndarray:
        from tblctl.tableformat.predicate.rows import filter_table

        answers = [filter_table(self.files[path], condition, self.schema) for path in self.records]
        return np.array([bool(pc.any(answer).as_py()) for answer in answers], np.bool_)


@dataclass(frozen=True, kw_only=True)
class MemoryReader:
    """A block cut into row groups of `GROUP_ROWS` stored rows, without those that are deleted."""

    table: pa.Table
    schema: Schema
    deleted: frozenset[int] = frozenset()

    @cached_property
    def groups(self) -> list[pa.Table]:
        live = np.array([row not in self.deleted for row in range(self.table.num_rows)], np.bool_)
        cuts = range(0, self.table.num_rows, GROUP_ROWS)
        found = [self.table.slice(at, GROUP_ROWS).filter(pa.array(live[at : at + GROUP_ROWS])) for at in cuts]
        return [group for group in found if group.num_rows]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    @property
    def group_rows(self) -> tuple[int, ...]:
        return tuple(group.num_rows for group in self.groups)

    @property
    def group_bytes(self) -> tuple[int, ...]:
        return tuple(rows * 16 for rows in self.group_rows)

    @property
    def stored_bytes(self) -> tuple[int, ...]:
        return self.group_bytes

    @property
    def codable(self) -> frozenset[int]:
        return frozenset()

    @property
    def copyable(self) -> frozenset[int]:
        return frozenset(range(len(self.group_rows)))

    def keys(self, groups: Sequence[int], sort: Sort) -> pa.Table:
        return key_table(self.rows(groups), sort, self.schema)

    def will_need(self, groups: Sequence[int]) -> int:
        del groups  # they are here
        return 0

    def rows(self, groups: Sequence[int]) -> pa.Table:
        parts = [self.groups[group] for group in groups]
        return pa.concat_tables(parts or [self.table.slice(0, 0)]).combine_chunks()

    def batches(self, group: int, most_rows: int) -> Iterator[pa.Table]:
        rows = self.rows([group])
        for start in range(0, rows.num_rows, most_rows):
            yield rows.slice(start, most_rows)


@dataclass
class MemoryBuilder:
    io: MemoryIO
    sort: Sort | None
    level: int
    run_id: str | None
    partition: str
    parts: list[pa.Table] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)
    stored_bytes = 0

    def adding(self, rows: pa.Table, groups: Sequence[int]) -> Callable[[], None]:
        assert sum(groups) == rows.num_rows
        return lambda: self.parts.append(rows)

    def copy(self, block: Block, groups: Sequence[int]) -> None:
        assert self.io.can_copy(block)
        with self.io.open(block) as reader:
            self.parts.append(reader.rows(groups))

    def finish(self) -> tuple[BlockRecord, ...]:
        table = pa.concat_tables(self.parts).combine_chunks()
        record = recorded(
            table,
            self.io.version,
            sort=self.sort,
            level=self.level,
            run_id=self.run_id,
            partition=self.partition,
        )
        self.io.files[record.path] = table
        self.stored.append(record.path)
        return (record,)

    def discard(self) -> None:
        self.io.discard(self.stored)


@dataclass(frozen=True, kw_only=True)
class MemoryIO:
    version: MemoryVersion
    files: dict[str, pa.Table]
    lost: set[str]
    env: Environment
    file_bytes = None

    @property
    def schema(self) -> Schema:
        return self.version.schema

    @property
    def options(self) -> TableOptions:
        return self.version.options

    @property
    def opens(self) -> int:
        return 1

    def renew(self) -> bool:
        return False

    def live(self, blocks: Sequence[Block]) -> tuple[Block, ...]:
        return tuple(block.without(len(self.version.deleted.get(block.path, ()))) for block in blocks)

    def can_copy(self, block: Block) -> bool:
        return not self.version.deleted.get(block.path)

    def open(self, block: Block, *, coded: Collection[int] = ()) -> MemoryReader:
        if block.path not in self.files or block.path in self.lost:
            raise CorruptTableError(f"block {block.path} is missing", name=block.path)
        deleted = self.version.deleted.get(block.path, frozenset())
        assert block.deleted_rows == len(deleted), "it was asked which rows are left"
        return MemoryReader(table=self.files[block.path], schema=self.schema, deleted=deleted)

    def build(
        self, *, sort: Sort | None, level: int, run_id: str | None, partition: str = ""
    ) -> MemoryBuilder:
        assert partition in {record.partition for record in self.version.records.values()}
        return MemoryBuilder(self, sort, level, run_id, partition)

    def discard(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.files.pop(path, None)


class MemoryPort:
    """A table in memory. Every change makes a version with an opaque id. All versions stay readable.

    `partition_of` names the partition of a row.
    """

    def __init__(
        self,
        schema: pa.Schema,
        cluster_by: str,
        *,
        partition_of: Callable[[Mapping[str, Any]], str] = lambda _row: "all",
        **options: Any,
    ) -> None:
        columns = Schema.create(schema)
        self._partition_of = partition_of
        self.env = IMPATIENT
        self.files: dict[str, pa.Table] = {}
        self.lost: set[str] = set()  # paths whose blocks cannot be opened any more
        self._lock = threading.Lock()
        sort = Sort(id=1, terms=parse_terms(cluster_by, columns))
        self._version = MemoryVersion(
            location="twin", table_id=uuid.uuid4().hex, id=uuid.uuid4().hex, parent=None,
            timestamp_ms=self.env.now_ms(), schema=columns,
            sort=sort, known_sorts={sort.id: sort}, options=TableOptions(**options), records={}, files=self.files,
        )  # fmt: skip
        self._versions = {self._version.id: self._version}

    @property
    def location(self) -> str:
        return self._version.location

    def newest(self) -> MemoryVersion:
        return self._version

    def version(self, id: str, *, newest: MemoryVersion | None = None) -> MemoryVersion:
        del newest
        if id not in self._versions:
            raise SnapshotNotFoundError(f"the twin has no version {id}")
        return self._versions[id]

    def version_at(self, timestamp_ms: int, *, newest: MemoryVersion | None = None) -> MemoryVersion:
        del newest
        found = [item for item in self._versions.values() if item.timestamp_ms <= timestamp_ms]
        if not found:
            raise SnapshotNotFoundError("the twin is younger")
        return found[-1]

    def parse_id(self, text: str) -> str | None:
        return text if text in self._versions else None

    def ever_had(self, id: str, *, newest: MemoryVersion) -> bool:
        del newest
        return id in self._versions

    def ever_had_sort(self, number: int, *, newest: MemoryVersion) -> bool:
        return number in newest.known_sorts

    def entry(self, version: MemoryVersion, *, newest: MemoryVersion | None = None) -> VersionEntry:
        records = version.records.values()
        summary = Summary(
            operation="recluster" if version.detail else "append",
            rows=_live_rows(version, version.records),
            blocks=len(records),
            data_bytes=sum(record.size_bytes for record in records),
            detail=version.detail,
        )
        tags = (newest or self.newest()).tags.items()
        return VersionEntry(
            id=version.id,
            parent=version.parent,
            public_id=version.public_id,
            timestamp_ms=version.timestamp_ms,
            summary=summary,
            is_readable=True,
            tags=tuple(name for name, id in tags if id == version.id),
            cluster_by=tuple(term_to_text(term, version.schema) for term in version.sort.terms),
            options=version.options,
        )

    def known_history(self, version: MemoryVersion) -> Iterator[VersionEntry]:
        yield self.entry(version)
        yield from self.known_history(self._versions[version.parent]) if version.parent else ()

    def history(
        self, limit: int | None = None, *, start: MemoryVersion | None = None
    ) -> Iterator[VersionEntry]:
        found = self.known_history(start or self.newest())
        return found if limit is None else itertools.islice(found, limit)

    def log_place(self) -> LogPlace:
        return LogPlace(storage=Storage(f"memory://{self._version.table_id}"))

    def collect_garbage(self, *, keep: int, older_than_seconds: float, dry_run: bool) -> Garbage:
        """Delete the blocks that no version names; all versions stay."""
        del keep, older_than_seconds
        named = {path for version in self._versions.values() for path in version.records}
        objects = sorted(self.files.keys() - named)
        size_bytes = sum(self.files[path].nbytes for path in objects)
        for path in () if dry_run else objects:
            del self.files[path]
        return Garbage(versions=(), objects=tuple(objects), size_bytes=size_bytes)

    def gone(self, base: MemoryVersion, newest: MemoryVersion, paths: Collection[str]) -> frozenset[str]:
        return frozenset(path for path in paths if path in base.records and path not in newest.records)

    def check(self, *, deep: bool, progress: Progress | None) -> Checked:
        del deep, progress
        records = self._version.records
        problems = [f"{path} is missing" for path in records if path not in self.files or path in self.lost]
        count, rows = len(self._versions), _live_rows(self._version, records)
        return Checked(snapshots=count, segments=0, blocks=len(records), rows=rows, problems=tuple(problems))

    def block_io(self, version: MemoryVersion) -> MemoryIO:
        return MemoryIO(version=version, files=self.files, lost=self.lost, env=self.env)

    def replace(self, base: MemoryVersion, replacement: Replacement) -> MemoryVersion:
        assert base.id in self._versions
        with self._lock:
            records = dict(self._version.records)
            deleted, known = self._version.deleted, base.deleted
            gone = {*replacement.removed, *replacement.relabelled} - records.keys()
            gone |= {path for path in replacement.removed if deleted.get(path) != known.get(path)}
            if gone:
                msg = f"{len(gone)} blocks were replaced"
                raise BlocksReplacedError(msg, paths=tuple(sorted(gone)))
            live = self._with_sorts(base, replacement.sorts)
            rows = _live_rows(self._version, replacement.removed)
            assert rows == sum(record.row_count for record in replacement.added)
            removed = [records.pop(path) for path in replacement.removed]
            places = {record.partition for record in removed}
            assert {record.partition for record in replacement.added} <= places
            for path, label in replacement.relabelled.items():
                records[path] = replace(records[path], level=label.level, run_id=label.run_id)
            records |= {record.path: record for record in replacement.added}
            return self._commit(records=records, detail=replacement.detail, **live)

    def _with_sorts(self, base: MemoryVersion, added: Sequence[Sort]) -> dict[str, Any]:
        """Return what changes once some sorts are live too, for blocks that were sorted in `base`."""
        newest = self._version
        known, fresh = newest.known_sorts, {sort.id: sort for sort in added}
        lost = [
            number
            for number, sort in fresh.items()
            if known.get(number, sort) != sort
            or (number not in newest.sorts and (number in known or newest.sort != base.sort))
        ]
        if lost:
            raise SortConflictError(f"sorts {lost} ended, or are others by now", sorts=tuple(lost))
        beside = (newest.beside | fresh.keys()) - ({newest.sort.id} if newest.sort else set())
        return {"known_sorts": {**known, **fresh}, "beside": beside}

    # -- what other writers do --------------------------------------------------------------------------------------

    def append(self, rows: pa.Table, *, also_stored: int = 0) -> None:
        """Add a block for each partition that rows are of; `also_stored` rows of one are about to be deleted."""
        with self._lock:
            names = pa.array([self._partition_of(row) for row in rows.to_pylist()], pa.string())
            chosen = [(name, rows.filter(pc.equal(names, name))) for name in names.unique().to_pylist()]
            records = [
                self._store(part, level=0, partition=name, also_stored=also_stored) for name, part in chosen
            ]
            added = {record.path: record for record in records}
            self._commit(records={**self._version.records, **added})

    def delete(self, column: str, value: Any) -> None:
        """Copy the blocks that hold `value`, without the rows that do."""
        with self._lock:
            records = {}
            for path, record in self._version.records.items():
                table = self.rows_of(path)
                rest = table.filter(pc.not_equal(table[column], value))
                if rest.num_rows == table.num_rows:
                    records[path] = record
                elif rest.num_rows:
                    copied = self._store(rest, level=record.level, partition=record.partition)
                    records[copied.path] = copied
            self._commit(records=records)

    def mark_deleted(self, column: str, value: Any) -> None:
        """Mark the rows with `value` as deleted; their blocks stay unchanged."""
        with self._lock:
            deleted = dict(self._version.deleted)
            for path in self._version.records:
                found = np.flatnonzero(pc.equal(self.files[path][column], value).to_numpy())
                if found.size:
                    deleted[path] = deleted.get(path, frozenset()) | frozenset(found.tolist())
            self._commit(deleted=deleted)

    def rows_of(self, path: str) -> pa.Table:
        """Return the rows of a block that are in the table."""
        deleted = self._version.deleted.get(path, frozenset())
        reader = MemoryReader(table=self.files[path], schema=self._version.schema, deleted=deleted)
        return reader.rows(range(len(reader.groups)))

    def set_key(self, terms: str) -> None:
        with self._lock:
            newest = self._version
            parsed = parse_terms(terms, newest.schema)
            same = [sort for sort in newest.known_sorts.values() if sort.terms == parsed]
            sort = same[0] if same else Sort(id=newest.next_sort_id, terms=parsed)
            known = {**newest.known_sorts, sort.id: sort}
            self._commit(sort=sort, known_sorts=known, beside=frozenset())

    def _store(self, rows: pa.Table, *, level: int, partition: str, also_stored: int = 0) -> BlockRecord:
        sort = self._version.sort
        assert sort is not None
        table = rows.take(sort_indices(key_table(rows, sort, self._version.schema), sort))
        run_id = self.env.new_run_id()
        record = recorded(
            table,
            self._version,
            sort=sort,
            level=level,
            run_id=run_id,
            partition=partition,
            also_stored=also_stored,
        )
        self.files[record.path] = table
        return record

    def tag(self, name: str) -> None:
        with self._lock:
            self._commit(tags={**self._version.tags, name: self._version.id})

    def _commit(self, **changed: Any) -> MemoryVersion:
        made = {"id": uuid.uuid4().hex, "parent": self._version.id, "timestamp_ms": self.env.now_ms()}
        self._version = replace(self._version, **{**made, "detail": {}, **changed})
        self._versions[self._version.id] = self._version
        return self._version


def _live_rows(version: MemoryVersion, paths: Iterable[str]) -> int:
    return sum(version.records[path].row_count - len(version.deleted.get(path, ())) for path in paths)


def recorded(
    table: pa.Table,
    version: MemoryVersion,
    *,
    sort: Sort | None,
    level: int,
    run_id: str | None,
    partition: str,
    also_stored: int = 0,
) -> BlockRecord:
    keys = key_range(key_table(table, sort, version.schema), sort) if sort else None
    same_keys = SameKeys() if sort else None
    if sort and same_keys:
        same_keys.add(key_table(table, sort, version.schema))
    options = version.options
    full = is_full(
        table.num_rows - also_stored,
        table.nbytes,
        block_rows=options.block_rows,
        block_bytes=options.block_bytes,
    )
    return BlockRecord(
        path=f"data/{uuid.uuid4().hex}.parquet",
        row_count=table.num_rows,
        size_bytes=max(table.nbytes, 1),
        uncompressed_bytes=table.nbytes,
        decoded_bytes=table.nbytes,
        schema_id=1,
        level=CONSTANT_LEVEL if keys and keys.constant and full else max(level, 0),
        run_id=run_id,
        cluster_key_id=sort.id if sort else None,
        key_min=keys.min if keys else (),
        key_max=keys.max if keys else (),
        key_exact=keys.exact if keys else True,
        same_key_rows=same_keys.most_rows if same_keys else None,
        partition=partition,
    )


def block_of(record: BlockRecord) -> Block:
    cluster = None
    if record.cluster_key_id is not None:
        cluster = ClusterStatistics(
            cluster_key_id=record.cluster_key_id,
            min=tuple(map(python_value, record.key_min)),
            max=tuple(map(python_value, record.key_max)),
            exact=record.key_exact,
            level=record.level,
        )
    return Block(
        path=record.path,
        row_count=record.row_count,
        size_bytes=record.size_bytes,
        uncompressed_bytes=record.uncompressed_bytes,
        decoded_bytes=record.decoded_bytes,
        schema_id=record.schema_id,
        run_id=record.run_id,
        cluster=cluster,
        seal=Seal.of(record.footer_bytes, record.footer_checksum),
        partition=record.partition,
    )
