"""Blocks without a table around them, and merges of them.

with lake("k: int64", "k desc", block_rows=4) as here:
    here.add(rows)                     # a block in key order; `unordered(rows)` one as the rows come
    tasks = here.cut(tasks=2)
    here.rows_of(here.run(tasks))      # what the tasks wrote, in their order
    here.expected()                    # what a stable sort in plain Python says
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa

from tblctl.merger.cutting.cuts import Output, cut_into_tasks
from tblctl.merger.presort.decide import Thresholds
from tblctl.merger.task.merge import run_task
from tblctl.merger.task.spec import InputSplit
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.keys.order import is_sorted, key_table, sort_indices
from tblctl.tableformat.model.cluster_key import Sort, parse_terms
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.native.block_io import NativeBlockIO
from tblctl.tableformat.native.log.segment_rows import segment_table
from tblctl.tableformat.native.upkeep.check_block import BlockCheck
from tblctl.tableformat.native.write.writer import BlockWriter
from tblctl.tableformat.parquet.block_writer import Layout
from tblctl.tableformat.projection import conform
from tblctl.tableformat.storage import Storage

from ..native.test_keys import model_order, model_values
from .memory_port import MemoryPort, block_of, recorded

LARGE_BYTES = 1 << 30
LEVEL, RUN = 3, "run"


@contextlib.contextmanager
def lake(schema, terms, *, url=None, **options):
    """Yield a `Lake`, in memory if no `url` is given; `terms` is the key's text, or the terms."""
    from fsspec.implementations.memory import MemoryFileSystem

    name = uuid.uuid4().hex
    try:
        yield Lake(Storage(url or f"memory://{name}/table"), _schema(schema), terms, options)
    finally:
        for path in [path for path in MemoryFileSystem.store if path.startswith(f"/{name}/")]:
            del MemoryFileSystem.store[path]


def _schema(schema):
    if isinstance(schema, str):
        from tblctl.tableformat.model.schema.type_text import fields_from_text

        schema = pa.schema(fields_from_text(schema))
    return schema if isinstance(schema, Schema) else Schema.create(schema)


class Lake:
    def __init__(self, storage, schema, terms, options):
        self.storage = storage
        self.schema = schema
        terms = parse_terms(terms, schema) if isinstance(terms, str) else terms
        self.sort = Sort(id=1, terms=terms) if terms else None
        layout = Layout(schema_id=1, schema=schema, sort=None, options=TableOptions.from_mapping(options))
        self.io = NativeBlockIO(storage=storage, env=SYSTEM, layout=layout, column_ids={1: schema.ids})
        self.splits: list[InputSplit] = []

    def set_options(self, **options):
        """Change options of the table."""
        layout = replace(self.io.layout, options=self.io.options.updated(options))
        self.io = replace(self.io, layout=layout)

    def set_schema(self, schema):
        """Change the schema; blocks keep theirs."""
        self.schema = schema
        layout = replace(self.io.layout, schema=schema, schema_id=2)
        self.io = replace(self.io, layout=layout, column_ids={**self.io.column_ids, 2: schema.ids})

    # -- blocks to merge

    def add(self, rows) -> InputSplit:
        """Write rows as one block in key order."""
        rows = self.conformed(rows)
        return self._add(rows.take(sort_indices(self.keys(rows), self.sort)), ordered=True)

    def unordered(self, rows, *, is_said_to_be_ordered=False) -> InputSplit:
        """Write rows as one block as they are."""
        return self._add(self.conformed(rows), ordered=is_said_to_be_ordered)

    def conformed(self, rows):
        return conform(rows, self.schema) if rows.schema != self.schema.read_schema else rows

    def _add(self, rows, *, ordered) -> InputSplit:
        writer = BlockWriter(self.storage, SYSTEM, self.io.layout)
        record = writer.write_block(rows, sort=None, level=0, run_id=None)
        slice_ = InputSplit(
            block=block_of(record),
            place=len(self.splits),
            start=0,
            stop=record.row_count,
            is_ordered=ordered,
        )
        self.splits.append(slice_)
        return slice_

    @property
    def rows(self) -> int:
        return sum(item.block.row_count for item in self.splits)

    # -- merging

    def cut(self, tasks=1, *, memory_bytes=LARGE_BYTES, level=LEVEL, **limits):
        """Return merge tasks; `limits` are values of `Thresholds`."""
        output = Output(sort=self.sort, level=level, run_id=RUN, memory_bytes=memory_bytes)
        limits = Thresholds(**limits)
        return cut_into_tasks(self.io, 7, self.splits, output, tasks=tasks, thresholds=limits)

    def run(self, tasks, *, threads=1, **more):
        """Run tasks one after the other, and return the records of what they wrote."""
        results = [run_task(self.io, task, threads=threads, **more) for task in tasks]
        return [record for result in results for record in result.records]

    # -- what came of it

    def keys(self, rows):
        return key_table(rows, self.sort, self.schema)

    def block_rows(self, block) -> pa.Table:
        with self.io.open(block) as reader:
            return reader.rows(range(len(reader.group_rows)))

    def rows_of(self, records) -> pa.Table:
        return pa.concat_tables([self.block_rows(block_of(record)) for record in records])

    def row_groups(self, record) -> tuple[int, ...]:
        with self.io.open(block_of(record)) as reader:
            return reader.group_rows

    def expected(self) -> pa.Table:
        """Return all rows by (key, place of their block, row), sorted in plain Python."""
        rows = pa.concat_tables([self.block_rows(item.block) for item in self.splits])
        columns = [model_values(column.combine_chunks()) for column in self.keys(rows).columns]
        return rows.take(pa.array(model_order(self.sort.terms, columns), pa.int64()))

    def problems(self, records) -> list[str]:
        """Return what `check --deep` finds wrong with blocks."""
        sorts = {1: self.sort} if self.sort else {}
        head = SimpleNamespace(schema=self.schema, schemas={1: self.schema}, sorts=sorts, live_sorts=sorts)
        table = segment_table(records, self.schema, [self.sort] if self.sort else [])
        return [
            problem
            for place, record in enumerate(records)
            for problem in BlockCheck(head, table.slice(place, 1)).problems(self.storage)
        ]

    def stored(self) -> set[str]:
        """Return every object beside the blocks to merge."""
        return {item.name for item in self.storage.list()} - {item.block.path for item in self.splits}


class TwinLake(Lake):
    """The same over blocks of the in-memory twin. Some stored rows of each block are deleted."""

    def __init__(self, schema, terms, **options):
        self.port = MemoryPort(_schema(schema).logical, terms, **options)
        self.version = self.port.newest()
        self.schema, self.sort = self.version.schema, self.version.sort
        self.io = self.port.block_io(self.version)
        self.splits: list[InputSplit] = []

    def add(self, rows, deleted=()) -> InputSplit:
        """Write rows as one block in key order; then delete the rows with these numbers."""
        rows = self.conformed(rows)
        return self._store(rows.take(sort_indices(self.keys(rows), self.sort)), deleted, ordered=True)

    def unordered(self, rows, deleted=()) -> InputSplit:
        """Write rows as one block in their given order; then delete the rows with these numbers."""
        return self._store(self.conformed(rows), deleted, ordered=False)

    def _store(self, rows, deleted, *, ordered) -> InputSplit:
        sort = self.sort if ordered else None
        record = recorded(rows, self.version, sort=sort, level=0, run_id=None, partition="all")
        self.port.files[record.path] = rows
        self.version = replace(
            self.version,
            records={**self.version.records, record.path: record},
            deleted={**self.version.deleted, record.path: frozenset(deleted)},
        )
        self.io = self.port.block_io(self.version)
        (block,) = self.io.live([block_of(record)])
        stop = block.row_count
        item = InputSplit(block=block, place=len(self.splits), start=0, stop=stop, is_ordered=ordered)
        if stop:
            self.splits.append(item)
        return item

    def problems(self, records) -> list[str]:
        """Return the blocks whose rows are not in key order."""
        return [
            record.path
            for record in records
            if not is_sorted(self.keys(self.port.files[record.path]), self.sort)
        ]


def merge_threads() -> list[str]:
    """Return the names of tblctl's threads that live, but for those that write logs of queries: other tests' may."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("tblctl") and name != "tblctl-workload"]
