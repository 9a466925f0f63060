"""Change rows by copying the blocks that hold them: append, delete, update, overwrite.

Every operation is planned on the very head that it is committed on: it concerns the rows that the table has then,
whoever put them there meanwhile. So a race that is lost has the operation planned again, but only for the segments
that are new since: what was found in the others, and every block that was rewritten, is used again.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.concurrency import IO_THREADS, cpu_threads, in_parallel
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import ConflictError, CorruptTableError
from tblctl.tableformat.keys.kinds import has_key_columns, key_leaves, key_maker
from tblctl.tableformat.keys.linear import leaf_values
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.snapshot import (
    RECLUSTER,
    ROLLBACK,
    Batch,
    SegmentRef,
    Snapshot,
    Tombstone,
)
from tblctl.tableformat.model.statistics import ALL
from tblctl.tableformat.native.log.commit import Draft, Fate, Published, publish
from tblctl.tableformat.native.log.edit import Edit, EditApplier
from tblctl.tableformat.native.log.head import load_version, summaries_since
from tblctl.tableformat.native.log.segment_file import read_segment, segment_table
from tblctl.tableformat.native.read.metadata import BlockMetadata
from tblctl.tableformat.native.read.scan import condition_columns, rows_satisfying, select_blocks
from tblctl.tableformat.native.write.staged_write import Part, check_part
from tblctl.tableformat.native.write.writer import BlockWriter, discard
from tblctl.tableformat.parquet.block_writer import Layout
from tblctl.tableformat.parquet.reader import BlockAddress, BlockFile
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

MOST_REPLANS = 20
"""How often an edit is planned again because another writer replaced its blocks; losses to a recluster are free."""

_PLANNING_PATIENCE = 0.01
"""How long an operation that reads rows waits after a lost race, as a share of an append's wait: waiting makes its next
plan larger. Beside an appender that never pauses (an append every 43 ms on local disk, each with a block to rewrite) an
overwrite took up to 3 s so, and did not end in 38 s and 900 appends with the waits of an append (up to 1 s)."""

_REWRITE_SHARE = (
    4  # a block under rewriting takes up to so many times its decoded size: read, changed, encoded
)

Rows = Callable[[Schema], Iterable[pa.Table]]
"""Fresh rows in the read types of a schema; called once."""


@dataclass(frozen=True, kw_only=True)
class Write:
    """One operation on rows, before it is planned.

    Attributes:
        operation: the word that `history` shows.
        select: given a snapshot, the condition on rows that it removes or changes; None where it concerns none.
        everything: it removes all rows, whatever `select` says.
        assign: new values by column name, scalars of the read types, given a schema; None to remove the rows.
        rows: fresh rows to add; None for none.
        part: fresh rows to add that tasks elsewhere wrote; None for none. The operation decides what becomes of them.
        batch: of a stream, committed only once; None for no stream.
        memory_bytes: budget; None for the table's own.
        detail: for the summary.
    """

    operation: str
    select: Callable[[Snapshot], BooleanExpression] | None = None
    everything: bool = False
    assign: Callable[[Schema], Mapping[str, pa.Scalar]] | None = None
    rows: Rows | None = None
    part: Part | None = None
    batch: Batch | None = None
    memory_bytes: int | None = None
    detail: Mapping[str, object] = field(default_factory=dict)
    progress: Progress | None = None


def run_write(storage: Storage, env: Environment, write: Write, head: Snapshot) -> Published | None:
    """Carry out one operation; None if there was nothing to change, or its batch was committed before.

    Raises:
        ConflictError: other writers replaced its blocks more often than `MOST_REPLANS` times; its part no longer fits.
        TableNotFoundError: the table was dropped meanwhile.
    """
    if write.batch and head.has_batch(write.batch):
        return None  # perhaps with the very blocks of this part: they must stay
    planner = _Planner(storage, env, write)
    proposals = _Proposals(storage, env, planner, head)
    fate = Fate()
    try:
        if write.part is not None:
            check_part(storage, write.part, head)
        patience = _PLANNING_PATIENCE if planner.reads_rows else 1.0
        published = publish(storage, env, proposals.propose, head, fate, patience=patience)
    except Exception:
        if not fate.maybe_published:
            proposals.discard_all()
            planner.discard_unpublished()
        raise
    if published:
        planner.note_published()
    proposals.discard_unused()
    planner.discard_unpublished()
    return published


class _Proposals:
    """What one operation makes of one head after another, until one of them is the parent of its commit."""

    def __init__(self, storage: Storage, env: Environment, planner: _Planner, base: Snapshot) -> None:
        self._storage = storage
        self._env = env
        self._planner = planner
        self._head = base
        self._edit: Edit | None = None
        self._applier: EditApplier | None = None
        self._losses = 0

    def propose(self, head: Snapshot) -> Draft | None:
        """Return `head` after the operation; None if there is nothing to do.

        Raises:
            ConflictError: too many writers were faster, or the fresh rows no longer fit.
        """
        self._check_rollbacks(head)
        batch = self._planner.batch
        if batch and head.has_batch(batch):
            self._planner.keep_part()
            return None
        before, self._edit = self._edit, self._planner.plan(head)
        if before is not None:
            self._count_loss(before, self._edit, head)
        self._head = head
        if self._edit.is_empty:
            return None
        if self._applier is None:
            self._applier = EditApplier(self._storage, self._env, self._edit, head)
        elif self._edit is not before:
            self._applier.replan(self._edit, head)
        draft = self._applier.propose(head)
        return dataclasses.replace(draft, snapshot=draft.snapshot.with_batch(batch)) if batch else draft

    def discard_unused(self) -> None:
        """Delete the segments that were written for nothing. Only once the outcome is known."""
        if self._applier is not None:
            self._applier.discard_unused()

    def discard_all(self) -> None:
        """Delete every segment that was written. Only if nothing was published."""
        if self._applier is not None:
            self._applier.discard_all()

    def _check_rollbacks(self, head: Snapshot) -> None:
        """Refuse to commit fresh rows after a rollback to another schema: not every row can be read in an older one.

        Raises:
            ConflictError: there was one since the last head.
        """
        if self._planner.fresh_schema_id in {None, head.schema_id}:
            return
        summaries = summaries_since(self._storage, self._head.sequence, head)
        if any(summary.operation == ROLLBACK for summary in summaries):
            msg = (
                f"{self._storage.url} was rolled back to another schema while rows were written; nothing was "
                "committed: write again"
            )
            raise ConflictError(msg)

    def _count_loss(self, before: Edit, now: Edit, head: Snapshot) -> None:
        """Count a race that cost blocks of the plan. Who only adds blocks, and a recluster, are free.

        Raises:
            ConflictError: there were too many.
        """
        gone = before.removed_paths - now.removed_paths
        self._losses += bool(gone) and _lost_to_a_writer(self._storage, self._head, head, gone)
        if self._losses > MOST_REPLANS:
            msg = (
                f"{self._storage.url}: other writers replaced the blocks of this {now.operation} "
                f"{self._losses} times in a row; nothing was changed: try again when they are done"
            )
            raise ConflictError(msg)


def _lost_to_a_writer(storage: Storage, base: Snapshot, head: Snapshot, paths: frozenset[str]) -> bool:
    """Tell whether anything but a recluster removed one of `paths` after `base`, or there was a rollback.

    What gc made unreadable meanwhile counts: a bound too low is an error too early, one too high a loop without end.
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
    """Return the blocks in those segments of `snapshot` that `other` does not have."""
    shared = {segment.path for segment in other.segments}
    tables = in_parallel(
        lambda ref: read_segment(storage, ref, ["path"]),
        [segment for segment in snapshot.segments if segment.path not in shared],
        threads=IO_THREADS,
    )
    return {path for table in tables for path in table["path"].to_pylist()}


@dataclass(frozen=True, kw_only=True)
class _Replacement:
    """The blocks that take a block's place; `copied_rows` of their rows are as they were."""

    records: tuple[BlockRecord, ...] = ()
    copied_rows: int = 0


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A block, and what takes its place."""

    path: str
    replacement: _Replacement


_SegmentKey = tuple[str, int, int | None]
"""A segment, the schema and the cluster key: all that the plan for the segment's blocks depends on."""


def _segment_key(segment: SegmentRef, head: Snapshot) -> _SegmentKey:
    return segment.path, head.schema_id, head.cluster_key_id


class _Planner:
    """Plans one operation on one head after another; keeps what it found and wrote for the next plan."""

    def __init__(self, storage: Storage, env: Environment, write: Write) -> None:
        self._storage = storage
        self._env = env
        self._write = write
        part = write.part
        self._fresh: list[BlockRecord] | None = None if part is None else [*part.records]
        self.fresh_schema_id: int | None = None if part is None else part.schema_id
        self._writers: list[BlockWriter] = []
        self._part_paths = [] if part is None else part.paths
        self._changes_of: dict[_SegmentKey, tuple[_Change, ...]] = {}
        self._rewritten: dict[tuple[str, int, int | None], _Replacement | None] = {}
        self._conditions: dict[int, BooleanExpression | None] = {}
        self._basis: tuple[_SegmentKey, ...] = ()
        self._edit: Edit | None = None
        self._published: frozenset[str] = frozenset()

    def plan(self, head: Snapshot) -> Edit:
        """Return what has to change in `head`, with all new blocks written; the same object if nothing is new.

        Reads the segments that no earlier plan has seen, and of their blocks those that only partly match.
        """
        layout = Layout.of(head)
        fresh = self._fresh_records(layout)
        if self.reads_rows:
            self._look_at_new_segments(head, layout)
        keys = [_segment_key(segment, head) for segment in head.segments]
        touched = {key: self._changes_of[key] for key in keys if self._changes_of.get(key)}
        basis = ("", head.schema_id, head.cluster_key_id), *touched
        if self._edit is None or basis != self._basis:
            replacements = [change.replacement for changes in touched.values() for change in changes]
            records = [*fresh, *(record for item in replacements for record in item.records)]
            self._basis = basis
            self._edit = Edit(
                operation=self._write.operation,
                removed={key[0]: frozenset(change.path for change in touched[key]) for key in touched},
                added=self._segment_rows(records, head) if records else None,
                copied_rows=sum(item.copied_rows for item in replacements),
                detail=dict(self._write.detail),
            )
        return self._edit

    def _segment_rows(self, records: Sequence[BlockRecord], head: Snapshot) -> pa.Table:
        """Return the rows of a segment for the new blocks.

        Raises:
            ConflictError: a column was widened since the fresh rows were written, and cannot hold all of them.
        """
        try:
            return segment_table(records, head.schema, head.sorts.values())
        except pa.ArrowInvalid as error:
            msg = (
                f"{self._storage.url}: a column was widened while rows were written, and they have values beyond its "
                f"type now ({error}); nothing was committed: change the rows and write again"
            )
            raise ConflictError(msg) from error

    @property
    def batch(self) -> Batch | None:
        """The batch of a stream that is to be committed once."""
        return self._write.batch

    @property
    def reads_rows(self) -> bool:
        """Whether the plan depends on the rows in the table, as an append's does not."""
        return self._write.everything or self._write.select is not None

    def note_published(self) -> None:
        """Remember that the blocks of the last plan belong to the table now."""
        if self._edit is not None and self._edit.added is not None:
            self._published = frozenset(self._edit.added["path"].to_pylist())

    def keep_part(self) -> None:
        """Remember that the blocks of the part may belong to the table: its batch was committed before."""
        self._published = frozenset(self._part_paths)

    def discard_unpublished(self) -> None:
        """Delete the blocks that were written for nothing. Only once the outcome is known."""
        written = [*self._part_paths, *(path for writer in self._writers for path in writer.paths)]
        discard(self._storage, [path for path in written if path not in self._published])

    def _writer(self, layout: Layout) -> BlockWriter:
        writer = BlockWriter(self._storage, self._env, layout)
        self._writers.append(writer)
        return writer

    def _fresh_records(self, layout: Layout) -> list[BlockRecord]:
        """Return the fresh rows as blocks, written once: a later schema or key reads them as well."""
        write = self._write
        if self._fresh is None:
            if write.rows is None:
                return []
            budget = write.memory_bytes or layout.options.memory_bytes
            stream = write.rows(layout.schema)
            self.fresh_schema_id = layout.schema_id
            self._fresh = self._writer(layout).write_stream(
                stream, memory_bytes=budget, progress=write.progress
            )
        return self._fresh

    def _look_at_new_segments(self, head: Snapshot, layout: Layout) -> None:
        """Find what the operation does to the blocks of the segments that no plan has seen, and write it."""
        fresh = [item for item in head.segments if _segment_key(item, head) not in self._changes_of]
        if not fresh:
            return
        found: dict[_SegmentKey, list[_Change]] = {_segment_key(segment, head): [] for segment in fresh}
        condition = self._condition(head)
        selection = select_blocks(self._storage, dataclasses.replace(head, segments=tuple(fresh)), condition)
        metadata = selection.metadata
        dropped = (selection.outcome == ALL) & (self._write.assign is None)
        gone = selection.rows[dropped]
        paths = metadata.values("path").take(pa.array(gone)).to_pylist()
        for row, path in zip(gone.tolist(), paths, strict=True):
            change = _Change(path=path, replacement=_Replacement())
            found[_segment_key(metadata.segment_of(row), head)].append(change)
        rewrite = selection.rows[~dropped]
        blocks = metadata.blocks(rewrite)
        nulls = null_counts(metadata.of_segments_with(rewrite), [block.path for block in blocks], head.schema)
        results = self._rewrite_all(list(zip(blocks, nulls, strict=True)), head, layout, condition)
        for row, block, replacement in zip(rewrite.tolist(), blocks, results, strict=True):
            if replacement is not None:
                change = _Change(path=block.path, replacement=replacement)
                found[_segment_key(metadata.segment_of(row), head)].append(change)
        self._changes_of |= {key: tuple(changes) for key, changes in found.items()}

    def _condition(self, head: Snapshot) -> BooleanExpression | None:
        """Return what is selected; None for everything. A long text takes a second to read: once for each schema."""
        write = self._write
        if write.everything or write.select is None:
            return None
        if head.schema_id not in self._conditions:
            self._conditions[head.schema_id] = write.select(head)
        return self._conditions[head.schema_id]

    def _rewrite_all(
        self,
        blocks: Sequence[tuple[Block, Mapping[str, int]]],
        head: Snapshot,
        layout: Layout,
        condition: BooleanExpression | None,
    ) -> list[_Replacement | None]:
        """Return for each block, given with its null counts, what replaces it; None if no row of it is concerned."""
        largest = max((block.decoded_bytes for block, _ in blocks), default=1)
        budget = self._write.memory_bytes or layout.options.memory_bytes
        threads = max(1, min(cpu_threads(), budget // (_REWRITE_SHARE * largest)))
        writer = self._writer(layout)
        done = 0

        def work(item: tuple[Block, Mapping[str, int]]) -> _Replacement | None:
            nonlocal done
            block, nulls = item
            key = (block.path, head.schema_id, head.cluster_key_id)
            if key not in self._rewritten:
                self._rewritten[key] = self._rewrite(block, nulls, head, writer, condition)
            done += 1
            if self._write.progress:
                self._write.progress(done, len(blocks), "blocks")
            return self._rewritten[key]

        return in_parallel(work, blocks, threads=threads)

    def _rewrite(
        self,
        block: Block,
        nulls: Mapping[str, int],
        head: Snapshot,
        writer: BlockWriter,
        condition: BooleanExpression | None,
    ) -> _Replacement | None:
        rows, mask = _rows_and_mask(self._storage, block, head, condition)
        require_nulls(block.path, rows, nulls, head.schema)
        concerned = int(mask.sum())
        if concerned == 0:
            return None
        copied = rows.num_rows - concerned
        sort = block_sort(block, head)
        level = block.cluster.level if block.cluster else 0
        if self._write.assign is None:
            if copied == 0:
                return _Replacement()
            rows = rows.filter(pa.array(~mask))
            kept = writer.write_block(rows, sort=sort, level=level, run_id=block.run_id if sort else None)
            return _Replacement(records=(kept,), copied_rows=copied)
        values = self._write.assign(head.schema)
        rows = _assigned(rows, mask, values)
        if sort is None or _touches_key(sort, values, head.schema):
            return _Replacement(records=tuple(writer.write_rows(rows)), copied_rows=copied)
        records = writer.write_ordered(rows, sort=sort, level=level, run_id=block.run_id)
        return _Replacement(records=tuple(records), copied_rows=copied)


def null_counts(metadata: BlockMetadata, paths: Sequence[str], schema: Schema) -> list[dict[str, int]]:
    """Return what the metadata of some blocks says of nulls, by the name of the leaf; -1 where that is not known."""
    if not paths:
        return []
    counts = metadata.null_counts(schema.leaves, paths)
    return [
        {leaf.name: int(values[place]) for leaf, values in zip(schema.leaves, counts, strict=True)}
        for place in range(len(paths))
    ]


def require_nulls(path: str, rows: pa.Table, told: Mapping[str, int], schema: Schema) -> None:
    """Refuse rows of a block with other numbers of nulls than its metadata told: the block is not to be replaced.

    Raises:
        CorruptTableError: they have; names the first such column.
    """
    for leaf in schema.leaves:
        expected, found = told[leaf.name], leaf_values(rows, leaf.path).null_count
        if expected not in {-1, found}:
            msg = (
                f"block {path} has {found} nulls in column {leaf.name!r}, its segment says {expected}: one of them is "
                "damaged. Nothing was changed: see `tblctl check --deep`"
            )
            raise CorruptTableError(msg, name=path, column=leaf.name)


def _touches_key(sort: Sort, values: Mapping[str, object], schema: Schema) -> bool:
    if not has_key_columns(sort, schema):
        return True
    return any(leaf.path[0] in values for leaf in key_leaves(sort, schema))


def block_sort(block: Block, snapshot: Snapshot) -> Sort | None:
    """Return the sort whose order the rows of `block` are in; None if it has none.

    Nor if a column of it was dropped since; or widened, unless it is the current key: widening keeps the order of that,
    but transforms of a former key may order wider values otherwise.
    """
    sort = snapshot.sorts.get(block.cluster.cluster_key_id) if block.cluster else None
    written = snapshot.schemas.get(block.schema_id)
    if sort is None or written is None:
        return None
    for column_id in key_maker(sort).column_ids:
        then = written.leaf_by_id(column_id)
        now = snapshot.schema.leaf_by_id(column_id)
        if then is None or now is None:
            return None
        if then.type != now.type and sort.id != snapshot.cluster_key_id:
            return None
    return sort


def read_block(
    storage: Storage, block: Block, snapshot: Snapshot, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return all rows of a block of a snapshot, in one chunk a column."""
    with BlockFile(storage, BlockAddress.of(block, snapshot.column_ids), ahead=True) as file:
        projection = file.projection(snapshot.schema, columns)
        return file.read(range(file.metadata.num_row_groups), projection, use_threads=True).combine_chunks()


def _rows_and_mask(
    storage: Storage, block: Block, snapshot: Snapshot, condition: BooleanExpression | None
) -> tuple[pa.Table, np.ndarray]:
    """Return all rows of a block, and which satisfy the condition; not those for which it is NULL."""
    if condition is None:
        rows = read_block(storage, block, snapshot)
        return rows, np.ones(rows.num_rows, dtype=bool)

    schema = snapshot.schema
    names = list(schema.names)
    nested = [name for name in condition_columns(condition, schema) if name not in names]
    rows = read_block(storage, block, snapshot, [*names, *nested])
    mask = pc.fill_null(rows_satisfying(rows, condition, schema), False)  # noqa: FBT003
    return rows.select(names), np.asarray(mask.to_numpy(zero_copy_only=False), dtype=bool)


def _assigned(rows: pa.Table, mask: np.ndarray, values: Mapping[str, pa.Scalar]) -> pa.Table:
    """Return `rows` with new values in the columns of `values` where `mask` is true."""
    chosen = pa.array(mask)
    for name, value in values.items():
        place = rows.schema.get_field_index(name)
        column = pc.if_else(chosen, value, rows.column(place))
        rows = rows.set_column(place, rows.schema.field(place), column)
    return rows
