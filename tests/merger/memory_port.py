"""The table port over Arrow tables in a dict: what planning, merging and committing need of a table, and no more."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.keys.linear import leaf_values
from tblctl.tableformat.keys.order import KeyRange, SameKeys, key_range, key_table, sort_indices
from tblctl.tableformat.model.block import CONSTANT_LEVEL, Block, ClusterStatistics, is_full
from tblctl.tableformat.model.cluster_key import Sort, parse_terms
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.model.statistics import ColumnStatistics
from tblctl.tableformat.model.values import python_value
from tblctl.tableformat.port import BlocksReplacedError, Listing, Replacement

GROUP_ROWS = 3  # rows of a row group: small, so that tiny blocks have several
IMPATIENT = Environment(sleep=lambda _seconds: None)


@dataclass(frozen=True, kw_only=True)
class MemoryVersion:
    """A version; `records` are its blocks by path."""

    location: str
    table_id: str
    sequence: int
    schema: Schema
    sort: Sort | None
    options: TableOptions
    records: Mapping[str, BlockRecord]
    files: Mapping[str, pa.Table]
    detail: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[Sort, ...] = ()

    @property
    def sorts(self) -> dict[int, Sort]:
        here = {} if self.sort is None else {self.sort.id: self.sort}
        return here | {sort.id: sort for sort in self.beside}

    @property
    def next_sort_id(self) -> int:
        return 1_000 + len(self.beside)

    def listing(self, sort: Sort, condition: Any, *, clustered: bool = True) -> Listing:
        ranges = [self._range(record, sort) for record in self.records.values()]
        kinds = key_table(self.schema.written.empty_table(), sort, self.schema).schema

        def bounds(side: str) -> pa.Table:
            ends = [getattr(item, side) for item in ranges]
            columns = [pa.array([end[place] for end in ends], item.type) for place, item in enumerate(kinds)]
            return pa.table(columns, schema=kinds)

        def figures(name: str) -> np.ndarray:
            found = [getattr(record, name) for record in self.records.values()]
            return np.array([-1 if figure is None else figure for figure in found], np.int64)

        every = np.ones(len(ranges), np.bool_)
        own = np.array([record.cluster_key_id == sort.id for record in self.records.values()], np.bool_)
        return Listing(
            paths=pa.array(list(self.records), pa.string()),
            low=bounds("min"),
            high=bounds("max"),
            own=own & clustered,
            sort_id=np.where(
                np.isin(figures("cluster_key_id"), list(self.sorts)), figures("cluster_key_id"), -1
            ),
            known=every,
            exact=np.array([item.exact for item in ranges], np.bool_),
            same_key_rows=np.where(own & clustered, figures("same_key_rows"), -1),
            level=figures("level"),
            row_count=figures("row_count"),
            size_bytes=figures("size_bytes"),
            decoded_bytes=figures("decoded_bytes"),
            matched=None if condition is None else self._matched(condition),
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
class MemoryStatistics:
    """Statistics of blocks, worked out when asked for; no column holds NaN."""

    tables: tuple[pa.Table, ...]

    @property
    def row_count(self) -> np.ndarray:
        return np.array([table.num_rows for table in self.tables], np.int64)

    def column(self, leaf: Leaf) -> ColumnStatistics:
        columns = [leaf_values(table, leaf.path) for table in self.tables]
        ends = [pc.min_max(column) for column in columns]
        kind = statistic_type(leaf.type)
        return ColumnStatistics(
            min=pa.array([end["min"].as_py() for end in ends], kind),
            max=pa.array([end["max"].as_py() for end in ends], kind),
            null_count=np.array([column.null_count for column in columns], np.int64),
        )


@dataclass(frozen=True, kw_only=True)
class MemoryReader:
    """A block cut into row groups of `GROUP_ROWS`."""

    table: pa.Table
    schema: Schema

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    @property
    def group_rows(self) -> tuple[int, ...]:
        whole, rest = divmod(self.table.num_rows, GROUP_ROWS)
        return (GROUP_ROWS,) * whole + ((rest,) if rest else ())

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
        parts = [self.table.slice(group * GROUP_ROWS, GROUP_ROWS) for group in groups]
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
    parts: list[pa.Table] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)

    def adding(self, rows: pa.Table, groups: Sequence[int]) -> Callable[[], None]:
        assert sum(groups) == rows.num_rows
        return lambda: self.parts.append(rows)

    def copy(self, block: Block, groups: Sequence[int]) -> None:
        with self.io.open(block) as reader:
            self.parts.append(reader.rows(groups))

    def finish(self) -> tuple[BlockRecord, ...]:
        table = pa.concat_tables(self.parts).combine_chunks()
        record = recorded(table, self.io.version, sort=self.sort, level=self.level, run_id=self.run_id)
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

    @property
    def schema(self) -> Schema:
        return self.version.schema

    @property
    def options(self) -> TableOptions:
        return self.version.options

    @property
    def opens(self) -> int:
        return 1

    def open(self, block: Block, *, coded: Collection[int] = ()) -> MemoryReader:
        if block.path not in self.files or block.path in self.lost:
            raise CorruptTableError(f"block {block.path} is missing", name=block.path)
        return MemoryReader(table=self.files[block.path], schema=self.schema)

    def build(self, *, sort: Sort | None, level: int, run_id: str | None) -> MemoryBuilder:
        return MemoryBuilder(self, sort, level, run_id)

    def discard(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.files.pop(path, None)


class MemoryPort:
    """A table in memory; every change makes a version, and only the newest counts."""

    def __init__(self, schema: pa.Schema, cluster_by: str, **options: Any) -> None:
        columns = Schema.create(schema)
        self.env = IMPATIENT
        self.files: dict[str, pa.Table] = {}
        self.lost: set[str] = set()  # paths whose blocks cannot be opened any more
        self._lock = threading.Lock()
        self._sort_ids = itertools.count(1)
        self._version = MemoryVersion(
            location="twin", table_id=uuid.uuid4().hex, sequence=1, schema=columns,
            sort=Sort(id=next(self._sort_ids), terms=parse_terms(cluster_by, columns)),
            options=TableOptions(**options), records={}, files=self.files,
        )  # fmt: skip

    def newest(self) -> MemoryVersion:
        return self._version

    def version(self, sequence: int) -> MemoryVersion:
        assert sequence == self._version.sequence, "older ones are not kept"
        return self._version

    def block_io(self, version: MemoryVersion) -> MemoryIO:
        return MemoryIO(version=version, files=self.files, lost=self.lost, env=self.env)

    def replace(self, base: MemoryVersion, replacement: Replacement) -> MemoryVersion:
        assert base.sequence <= self._version.sequence
        with self._lock:
            records = dict(self._version.records)
            gone = {*replacement.removed, *replacement.relabelled} - records.keys()
            if gone:
                msg = f"{len(gone)} blocks were replaced"
                raise BlocksReplacedError(msg, paths=tuple(sorted(gone)))
            rows = sum(records.pop(path).row_count for path in replacement.removed)
            assert rows == sum(record.row_count for record in replacement.added)
            for path, label in replacement.relabelled.items():
                records[path] = replace(records[path], level=label.level, run_id=label.run_id)
            records |= {record.path: record for record in replacement.added}
            return self._commit(records=records, detail=replacement.detail)

    # -- what other writers do --------------------------------------------------------------------------------------

    def append(self, rows: pa.Table) -> None:
        with self._lock:
            record = self._store(rows, level=0)
            self._commit(records={**self._version.records, record.path: record})

    def delete(self, column: str, value: Any) -> None:
        """Copy the blocks that hold `value`, without the rows that do."""
        with self._lock:
            records = {}
            for path, record in self._version.records.items():
                table = self.files[path]
                rest = table.filter(pc.not_equal(table[column], value))
                if rest.num_rows == table.num_rows:
                    records[path] = record
                elif rest.num_rows:
                    copied = self._store(rest, level=record.level)
                    records[copied.path] = copied
            self._commit(records=records)

    def set_key(self, terms: str) -> None:
        with self._lock:
            schema = self._version.schema
            self._commit(sort=Sort(id=next(self._sort_ids), terms=parse_terms(terms, schema)))

    def _store(self, rows: pa.Table, *, level: int) -> BlockRecord:
        sort = self._version.sort
        assert sort is not None
        table = rows.take(sort_indices(key_table(rows, sort, self._version.schema), sort))
        record = recorded(table, self._version, sort=sort, level=level, run_id=self.env.new_run_id())
        self.files[record.path] = table
        return record

    def _commit(self, **changed: Any) -> MemoryVersion:
        self._version = replace(
            self._version, **{"sequence": self._version.sequence + 1, "detail": {}, **changed}
        )
        return self._version


def recorded(
    table: pa.Table, version: MemoryVersion, *, sort: Sort | None, level: int, run_id: str | None
) -> BlockRecord:
    keys = key_range(key_table(table, sort, version.schema), sort) if sort else None
    same_keys = SameKeys() if sort else None
    if sort and same_keys:
        same_keys.add(key_table(table, sort, version.schema))
    options = version.options
    full = is_full(
        table.num_rows, table.nbytes, block_rows=options.block_rows, block_bytes=options.block_bytes
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
    )
