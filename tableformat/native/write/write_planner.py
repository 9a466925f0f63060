"""Plan one operation on rows: which blocks leave the table and which replace them. Writes all new blocks.

After a lost race an operation is planned again on the new head, but only for segments that are new since. Findings in
the others, and rewritten blocks, are reused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tblctl.tableformat.concurrency import cpu_threads, in_parallel
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import ConflictError
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.snapshot import Batch, SegmentRef, Snapshot
from tblctl.tableformat.model.statistics import ALL
from tblctl.tableformat.native.blocks import layout_of
from tblctl.tableformat.native.log.alter import add_sorts, problems_of_adding
from tblctl.tableformat.native.log.edit import Edit
from tblctl.tableformat.native.log.segment_rows import segment_table
from tblctl.tableformat.native.read.scan import select_blocks
from tblctl.tableformat.native.write.rewrite import Assign, BlockRewriter, RewrittenBlock, null_counts
from tblctl.tableformat.native.write.staged_write import StagedWrite
from tblctl.tableformat.native.write.writer import BlockWriter, OrderOf
from tblctl.tableformat.parquet.block_writer import Layout
from tblctl.tableformat.predicate.nodes import Node
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.storage import Storage

_REWRITE_SHARE = 4
"""A block being rewritten takes up to four times its decoded size: read, changed, encoded."""

Rows = Callable[[Schema], Iterable[pa.Table]]
"""Returns the new rows in the read types of a schema; called once."""

OrderOn = Callable[[Snapshot], "OrderOf | None"]
"""Returns what chooses the order of rows that are written for a snapshot; None for the table's own order."""

Select = Callable[[Snapshot], "Node | None"]
"""Returns the condition on rows to remove or change in a snapshot, resolved for its schema; None for no rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Taken:
    """Files whose rows a commit adds, each only once.

    Attributes:
        files: as a list of imported files has them.
        base: the names of lists that have none of them. The commit is made on a head of which no list has one.
    """

    files: pa.Table
    base: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Write:
    """One operation on rows, before it is planned.

    Attributes:
        operation: the word that `history` shows.
        select: which rows it removes or changes; None if it only adds rows.
        everything: it removes or changes all rows, whatever `select` returns.
        assign: new values for those rows; None to remove them.
        rows: new rows to add; None for none.
        order_on: returns what chooses the order of new rows, given the head that they are written for; None for the
            table's own.
        copy: writes whole files undecoded; `rows` is asked for those of the others then. None for none.
        staged: a staged write with new rows to add; None for none. The operation publishes or deletes its blocks.
        batch: of a stream, committed only once; None for no stream.
        taken: files whose rows it adds; None if it adds none of files that are taken once.
        memory_bytes: budget; None for the table's own.
        detail: for the summary.
    """

    operation: str
    select: Select | None = None
    everything: bool = False
    assign: Assign | None = None
    rows: Rows | None = None
    order_on: OrderOn | None = None
    copy: Callable[[BlockWriter], Sequence[BlockRecord]] | None = None
    staged: StagedWrite | None = None
    batch: Batch | None = None
    taken: Taken | None = None
    memory_bytes: int | None = None
    detail: Mapping[str, object] = field(default_factory=dict)
    progress: Progress | None = None

    @property
    def reads_rows(self) -> bool:
        """Whether the plan depends on the rows in the table. An append's does not."""
        return self.everything or self.select is not None

    def is_superseded(self, head: Snapshot) -> bool:
        """Return whether its batch was committed."""
        return self.batch is not None and head.has_batch(self.batch)

    def condition(self, head: Snapshot) -> Node | None:
        """Return which rows of `head` it removes or changes; None for all."""
        return None if self.everything or self.select is None else self.select(head)


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A block and its replacement."""

    path: str
    replacement: RewrittenBlock


_SegmentKey = tuple[str, int, int | None]
"""A segment, the schema and the cluster key: the plan for the segment's blocks depends on nothing else."""


def _segment_key(segment: SegmentRef, head: Snapshot) -> _SegmentKey:
    return segment.path, head.schema_id, head.cluster_key_id


class Planner:
    """Plans one operation on one head after another. Keeps its findings and written blocks for the next plan."""

    def __init__(self, storage: Storage, env: Environment, write: Write) -> None:
        self._storage = storage
        self._env = env
        self._write = write
        staged = write.staged
        self._fresh: Sequence[BlockRecord] | None = None if staged is None else staged.records
        self.fresh_schema_id: int | None = None if staged is None else staged.schema_id
        self._base: Snapshot | None = None  # the head that new rows were written for
        self._other_sorts: Mapping[int, Sort] = {}  # of new rows, besides the table's own then
        self._writers: list[BlockWriter] = []
        self._changes_of: dict[_SegmentKey, tuple[_Change, ...]] = {}
        self._rewritten: dict[tuple[str, int, int | None], RewrittenBlock | None] = {}
        self._basis: tuple[_SegmentKey, ...] = ()
        self._edit: Edit | None = None

    @property
    def written(self) -> list[str]:
        """All written blocks, including those of the staged write."""
        staged = self._write.staged.paths if self._write.staged else []
        return [*staged, *(path for writer in self._writers for path in writer.paths)]

    def plan(self, head: Snapshot) -> Edit:
        """Return the edit of `head`, with all new blocks written; the same object as before if nothing is new.

        Reads the segments that no earlier plan has read, and the blocks in them that match in part.
        """
        layout = layout_of(head)
        self._write_fresh(head, layout)
        head = self.with_sorts(head)
        fresh = self._fresh or []
        if self._write.reads_rows:
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
                base_segments=frozenset(segment.path for segment in head.segments),
                removed={key[0]: frozenset(change.path for change in touched[key]) for key in touched},
                added=self._segment_rows(records, head) if records else None,
                copied_rows=sum(item.copied_rows for item in replacements),
                detail={**self._write.detail, **_sorted_by(head, self._other_sorts.values())},
                batch=self._write.batch,
                taken=self._write.taken and self._write.taken.files,
            )
        return self._edit

    def with_sorts(self, head: Snapshot) -> Snapshot:
        """Return the head with the sorts of the new rows live. Blocks of one that cannot be are in no order then."""
        if self._base is None or not self._other_sorts:
            return head
        ended = problems_of_adding(self._base, head, self._other_sorts.values())
        if ended:
            self._fresh = [
                _unordered(record) if record.cluster_key_id in ended else record
                for record in self._fresh or ()
            ]
            kept = sorted(self._other_sorts.keys() - ended.keys())
            self._other_sorts = {number: self._other_sorts[number] for number in kept}
            self._edit = None
        return add_sorts(self._base, head, tuple(self._other_sorts.values()))

    def _segment_rows(self, records: Sequence[BlockRecord], head: Snapshot) -> pa.Table:
        """Return the rows of a segment for the new blocks.

        Raises:
            ConflictError: a column was widened since the new rows were written, and cannot hold all of them.
        """
        try:
            return segment_table(records, head.schema, head.sorts.values())
        except pa.ArrowInvalid as error:
            msg = (
                f"{self._storage.url}: a column was widened while rows were written, and they have values that do not "
                f"fit its new type ({error}); nothing was committed: change the rows and write again"
            )
            raise ConflictError(msg) from error

    def _writer(self, layout: Layout, order_of: OrderOf | None = None) -> BlockWriter:
        writer = BlockWriter(self._storage, self._env, layout, order_of)
        self._writers.append(writer)
        return writer

    def _write_fresh(self, head: Snapshot, layout: Layout) -> None:
        """Write the new rows as blocks, once: a later schema or key can read them too."""
        write = self._write
        if self._fresh is None and write.rows is not None:
            budget = write.memory_bytes or layout.options.memory_bytes
            order_of = None if write.order_on is None else write.order_on(head)
            writer = self._writer(layout, order_of)
            whole = write.copy(writer) if write.copy else ()
            stream = write.rows(layout.schema)
            self.fresh_schema_id = layout.schema_id
            added = writer.write_stream(stream, memory_bytes=budget, progress=write.progress)
            self._fresh = [*whole, *added]
            self._base, self._other_sorts = head, writer.other_sorts

    def _look_at_new_segments(self, head: Snapshot, layout: Layout) -> None:
        """Find the changed blocks in segments that no plan has read, and write their replacements."""
        fresh = [item for item in head.segments if _segment_key(item, head) not in self._changes_of]
        if not fresh:
            return
        found: dict[_SegmentKey, list[_Change]] = {_segment_key(segment, head): [] for segment in fresh}
        condition = self._write.condition(head)
        selection = select_blocks(self._storage, dataclasses.replace(head, segments=tuple(fresh)), condition)
        metadata = selection.metadata
        dropped = (selection.outcome == ALL) & (self._write.assign is None)
        gone = selection.rows[dropped]
        paths = metadata.values("path").take(pa.array(gone)).to_pylist()
        for row, path in zip(gone.tolist(), paths, strict=True):
            change = _Change(path=path, replacement=RewrittenBlock())
            found[_segment_key(metadata.segment_of(row), head)].append(change)
        rewrite = selection.rows[~dropped]
        blocks = metadata.blocks(rewrite)
        nulls = null_counts(metadata.of_segments_with(rewrite), [block.path for block in blocks], head.schema)
        rewriter = BlockRewriter(
            storage=self._storage,
            writer=self._writer(layout),
            head=head,
            condition=condition,
            assign=self._write.assign,
        )
        results = self._rewrite_all(list(zip(blocks, nulls, strict=True)), rewriter)
        for row, block, replacement in zip(rewrite.tolist(), blocks, results, strict=True):
            if replacement is not None:
                change = _Change(path=block.path, replacement=replacement)
                found[_segment_key(metadata.segment_of(row), head)].append(change)
        self._changes_of |= {key: tuple(changes) for key, changes in found.items()}

    def _rewrite_all(
        self, blocks: Sequence[tuple[Block, Mapping[str, int]]], rewriter: BlockRewriter
    ) -> list[RewrittenBlock | None]:
        """Return the replacement of each block, given with its null counts; None if none of its rows match."""
        head, write = rewriter.head, self._write
        largest = max((block.decoded_bytes for block, _ in blocks), default=1)
        budget = write.memory_bytes or head.options.memory_bytes
        threads = max(1, min(cpu_threads(), budget // (_REWRITE_SHARE * largest)))
        done = 0

        def work(item: tuple[Block, Mapping[str, int]]) -> RewrittenBlock | None:
            nonlocal done
            block, nulls = item
            key = (block.path, head.schema_id, head.cluster_key_id)
            if key not in self._rewritten:
                self._rewritten[key] = rewriter.replacement(block, nulls)
            done += 1
            if write.progress:
                write.progress(done, len(blocks), "blocks")
            return self._rewritten[key]

        return in_parallel(work, blocks, threads=threads)


def _unordered(record: BlockRecord) -> BlockRecord:
    """Return a block's record as that of rows in no order."""
    return dataclasses.replace(
        record,
        cluster_key_id=None,
        key_min=(),
        key_max=(),
        key_exact=True,
        same_key_rows=None,
        run_id=None,
        level=0,
    )


def _sorted_by(head: Snapshot, sorts: Iterable[Sort]) -> dict[str, object]:
    """Return what a summary says of new rows in other orders than the table's."""
    texts = [text for sort in sorts for text in key_maker(sort).texts(head.schema)]
    return {"sorted_by": texts} if texts else {}
