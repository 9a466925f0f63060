"""Change rows by copying the blocks that hold them: append, delete, update, overwrite.

Every operation is planned against the head and committed on whatever the head is by then. If another writer replaced
a block of the plan meanwhile, the operation is planned again from the new head; blocks rewritten for the first plan
that still fit are used again.
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
from tblctl.tableformat.keys import leaf_values
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema import Schema
from tblctl.tableformat.model.snapshot import RECLUSTER, ROLLBACK, Batch, Snapshot, Tombstone
from tblctl.tableformat.model.statistics import ALL
from tblctl.tableformat.native.block_file import BlockAddress, BlockFile
from tblctl.tableformat.native.commit import Draft, Fate, Propose, Published, publish, reload_head, wait
from tblctl.tableformat.native.edit import Edit, EditApplier
from tblctl.tableformat.native.encode import Layout
from tblctl.tableformat.native.head import load_version, summaries_since
from tblctl.tableformat.native.metadata import BlockMetadata
from tblctl.tableformat.native.parts import Part, check_part
from tblctl.tableformat.native.scan import condition_columns, rows_satisfying, select_blocks
from tblctl.tableformat.native.segment_file import read_segment, segment_table
from tblctl.tableformat.native.write import BlockWriter, discard
from tblctl.tableformat.port import BlocksReplacedError
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

MOST_REPLANS = 20
"""How often an edit is planned again because another writer replaced its blocks; losses to a recluster are free."""

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
    planner = _Planner(storage, env, write)
    fate = Fate()
    try:
        if write.part is not None:
            check_part(storage, write.part, head)
        published = _plan_and_publish(storage, env, planner, head, fate)
    except Exception:
        if not fate.maybe_published:
            planner.discard_unpublished()
        raise
    planner.discard_unpublished()
    return published


def _plan_and_publish(
    storage: Storage, env: Environment, planner: _Planner, head: Snapshot, fate: Fate
) -> Published | None:
    """Plan and commit, again and again while other writers replace the blocks of the plan."""
    replans = 0
    rollbacks = _Rollbacks(storage, planner, head)
    while True:
        edit = planner.plan(head)
        if edit.is_empty:
            return None
        applier = EditApplier(storage, env, edit, head)
        try:
            propose = _once(rollbacks.guard(applier.propose), planner.batch)
            published = publish(storage, env, propose, head, fate)
        except BlocksReplacedError as lost:
            newest = reload_head(storage, head)
            rollbacks.happened(newest)
            replans += _lost_to_a_writer(storage, head, newest, frozenset(lost.details["paths"]))
            if replans > MOST_REPLANS:
                msg = (
                    f"{storage.url}: other writers replaced the blocks of this {edit.operation} "
                    f"{replans} times in a row; nothing was changed: try again when they are done"
                )
                raise ConflictError(msg) from lost
            applier.discard_unused()
            wait(env, replans)
            head = newest
            continue
        planner.note_published(edit)  # of a batch that was committed before too: perhaps by these very blocks
        applier.discard_unused()
        return published


def _once(propose: Propose, batch: Batch | None) -> Propose:
    """Return `propose` for a batch: it wants nothing of a head that has the batch."""

    def proposed(head: Snapshot) -> Draft | None:
        draft = None if batch and head.has_batch(batch) else propose(head)
        if draft is None or batch is None:
            return draft
        return dataclasses.replace(draft, snapshot=draft.snapshot.with_batch(batch))

    return proposed


class _Rollbacks:
    """Notices rollbacks by others while one operation is planned and committed.

    Rows that others append count as added after this operation, but those that a rollback brings back were there
    before it. And rows written in one schema cannot always be read in an older one.
    """

    def __init__(self, storage: Storage, planner: _Planner, base: Snapshot) -> None:
        self._storage = storage
        self._planner = planner
        self._seen = base.sequence

    def happened(self, head: Snapshot) -> bool:
        """Tell whether there was one since the last call (at first: since the base).

        Raises:
            ConflictError: it changed the schema, and fresh rows are written already.
        """
        if head.sequence == self._seen:
            return False
        summaries = summaries_since(self._storage, self._seen, head)
        self._seen = head.sequence
        if not any(summary.operation == ROLLBACK for summary in summaries):
            return False
        if self._planner.fresh_schema_id not in {None, head.schema_id}:
            msg = (
                f"{self._storage.url} was rolled back to another schema while rows were written; nothing was "
                "committed: write again"
            )
            raise ConflictError(msg)
        return True

    def guard(self, propose: Propose) -> Propose:
        """Return `propose` for one plan: after a rollback it asks for another plan, if rows mattered to this one."""

        def guarded(head: Snapshot) -> Draft | None:
            if self.happened(head) and self._planner.reads_rows:
                msg = f"{self._storage.url} was rolled back meanwhile"
                raise BlocksReplacedError(msg, paths=())
            return propose(head)

        return guarded


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
    """A block, by the segment that lists it, and what takes its place."""

    segment: str
    path: str
    replacement: _Replacement


class _Planner:
    """Plans one operation against one head after another; keeps what it wrote for the next plan."""

    def __init__(self, storage: Storage, env: Environment, write: Write) -> None:
        self._storage = storage
        self._env = env
        self._write = write
        part = write.part
        self._fresh: list[BlockRecord] | None = None if part is None else [*part.records]
        self.fresh_schema_id: int | None = None if part is None else part.schema_id
        self._writers: list[BlockWriter] = []
        self._part_paths = [] if part is None else part.paths
        self._rewritten: dict[tuple[str, int, int | None], _Replacement | None] = {}
        self._published: frozenset[str] = frozenset()

    def plan(self, head: Snapshot) -> Edit:
        """Return what has to change in `head`, with all new blocks written."""
        layout = Layout.of(head)
        records = self._fresh_records(layout)
        removed: dict[str, set[str]] = {}
        copied_rows = 0
        if self.reads_rows:
            for change in self._changes(head, layout):
                removed.setdefault(change.segment, set()).add(change.path)
                records = [*records, *change.replacement.records]
                copied_rows += change.replacement.copied_rows
        return Edit(
            operation=self._write.operation,
            removed={segment: frozenset(paths) for segment, paths in removed.items()},
            added=segment_table(records, layout.schema) if records else None,
            copied_rows=copied_rows,
            detail=dict(self._write.detail),
        )

    @property
    def batch(self) -> Batch | None:
        """The batch of a stream that is to be committed once."""
        return self._write.batch

    @property
    def reads_rows(self) -> bool:
        """Whether the plan depends on the rows in the table, as an append's does not."""
        return self._write.everything or self._write.select is not None

    def note_published(self, edit: Edit) -> None:
        """Remember that the blocks of `edit` belong to the table now."""
        if edit.added is not None:
            self._published = frozenset(edit.added["path"].to_pylist())

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

    def _changes(self, head: Snapshot, layout: Layout) -> list[_Change]:
        """Return what the operation does to the blocks of `head`, with their replacements written."""
        condition = None if self._write.everything or self._write.select is None else self._write.select(head)
        selection = select_blocks(self._storage, head, condition)
        metadata = selection.metadata
        dropped = (selection.outcome == ALL) & (self._write.assign is None)
        gone = selection.rows[dropped]
        paths = metadata.values("path").take(pa.array(gone)).to_pylist()
        changes = [
            _Change(segment=metadata.segment_of(row).path, path=path, replacement=_Replacement())
            for row, path in zip(gone.tolist(), paths, strict=True)
        ]
        rewrite = selection.rows[~dropped]
        blocks = metadata.blocks(rewrite)
        nulls = null_counts(metadata, rewrite, head.schema)
        results = self._rewrite_all(list(zip(blocks, nulls, strict=True)), head, layout, condition)
        for row, block, replacement in zip(rewrite.tolist(), blocks, results, strict=True):
            if replacement is not None:
                changes.append(
                    _Change(segment=metadata.segment_of(row).path, path=block.path, replacement=replacement)
                )
        return changes

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


def null_counts(metadata: BlockMetadata, rows: np.ndarray, schema: Schema) -> list[dict[str, int]]:
    """Return what the metadata of some blocks says of nulls, by the name of the leaf; -1 where that is not known."""
    if not len(rows):
        return []
    metadata.fetch(f"column_{leaf.id}_null_count" for leaf in schema.leaves)
    counts = {leaf.name: metadata.null_counts(leaf, rows).tolist() for leaf in schema.leaves}
    return [{name: values[place] for name, values in counts.items()} for place in range(len(rows))]


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
    leaves = (schema.leaf_by_id(term.column_id) for term in sort.terms)
    return any(leaf is None or leaf.path[0] in values for leaf in leaves)


def block_sort(block: Block, snapshot: Snapshot) -> Sort | None:
    """Return the sort whose order the rows of `block` are in; None if it has none.

    Nor if a column of it was dropped since, or widened: keys of both types cannot stand in one column of a segment.
    """
    sort = snapshot.sorts.get(block.cluster.cluster_key_id) if block.cluster else None
    written = snapshot.schemas.get(block.schema_id)
    if sort is None or written is None:
        return None
    for term in sort.terms:
        then = written.leaf_by_id(term.column_id)
        now = snapshot.schema.leaf_by_id(term.column_id)
        if then is None or now is None or then.type != now.type:
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
