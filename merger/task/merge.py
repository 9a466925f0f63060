"""The one task function, the same in every engine: rows of some blocks in, merged blocks out.

First only the keys are read and put in order (`order.py`), so that it is known where every row goes. Then the rows are
read once, in windows, gathered, verified and written. A budget of B bytes is divided as follows:

- keys and order take a quarter at first (`cutting/cuts.py` cuts tasks accordingly); later the order and a size for each
  row stay;
- rows that were read take a quarter, and pages read ahead at most an eighth;
- windows take 0.6 B: three times one window, for the window that is gathered while the one before it is prepared, and
  1.25 times each window that is written or waits for it (its rows, and its file).
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.merger.presort.decide import THRESHOLDS, Thresholds
from tblctl.merger.presort.portions import Portion
from tblctl.merger.presort.presorter import presort
from tblctl.merger.presort.spill import SpillFolder
from tblctl.merger.task.block_input import BlockInput
from tblctl.merger.task.columns import Columns
from tblctl.merger.task.copying import Copy, between
from tblctl.merger.task.file_sizes import FileSizes, Span, Weights
from tblctl.merger.task.inputs import RowStream, open_streams
from tblctl.merger.task.memory import ProcessMemory
from tblctl.merger.task.order import MergeOrder, order_rows
from tblctl.merger.task.spec import MergeTask, TaskResult
from tblctl.merger.task.threads import WRITING, Clock, SerialQueue, Threads, raise_failures
from tblctl.merger.task.verify import (
    Fingerprint,
    VerificationError,
    require_equal,
    require_null_counts,
    require_sorted,
)
from tblctl.tableformat.errors import InternalError
from tblctl.tableformat.keys.order import key_table
from tblctl.tableformat.model.cut import cut_rows
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.port import BlockBuilder, BlockIO

THREADS = 2
"""Threads of a task in every engine: one reads or writes while the other computes."""

_MOST_WINDOW_BYTES = 1 << 30
"""Arrow's text and lists have offsets of 32 bits."""

_T = TypeVar("_T")


def window_bytes(memory_bytes: int) -> int:
    """Return the size of a window. It does not depend on what else a machine has, so that neither do blocks."""
    return max(1, min(int(0.6 * memory_bytes / (3 + 1.25 * WRITING)), _MOST_WINDOW_BYTES))


class Cancelled(Exception):  # noqa: N818 (no error: somebody asked for it)
    """The engine asked the task to stop. The task's blocks are deleted."""


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """How an engine follows a task while it runs. Both are called from any thread.

    Attributes:
        advance: called with the number of rows after some were merged.
        cancelled: returns whether to stop.
    """

    advance: Callable[[int], None]
    cancelled: Callable[[], bool]


_NO_HOOKS = Hooks(advance=lambda _: None, cancelled=lambda: False)


def run_task(
    io: BlockIO,
    task: MergeTask,
    *,
    threads: int = 1,
    hooks: Hooks = _NO_HOOKS,
    portions: Sequence[Portion] | None = None,
    memory: ProcessMemory | None = None,
    thresholds: Thresholds = THRESHOLDS,
    most_window_bytes: int | None = None,
) -> TaskResult:
    """Merge the task's rows and store them as blocks; nothing is committed. A failed task's blocks are deleted.

    Args:
        io: of the version that the task was planned for.
        task: what to do.
        threads: how many to use, at most `THREADS` if the budget is to hold; with several, one more writes.
        hooks: of the engine.
        portions: the task's presorted rows, if its unit sorted them; None if the task sorts them itself.
        memory: the process's, if tasks share it.
        thresholds: to compare sizes with.
        most_window_bytes: of a window; None for the most that the task's budget allows.

    Raises:
        VerificationError: merged rows differ from the rows read.
        CorruptTableError: a block is missing, damaged or not in order; named.
        StorageError: of the table, or of the local disk.
        Cancelled: the engine asked for it.
    """
    clock = Clock(io)
    memory = memory or ProcessMemory(io.env)
    with (
        memory.task(task.memory_bytes),
        SpillFolder() as folder,
        ExitStack() as opened,
        Threads(threads, clock, min(io.opens, task.memory_bytes // thresholds.reader_bytes)) as pool,
    ):
        if portions is None:
            portions = presort(
                io, [task], folder, pool.map, give_back=memory.give_back, thresholds=thresholds
            )[task.number]
        order = order_rows(io, task, portions, pool, memory.give_back)
        streams = open_streams(
            io,
            order.inputs,
            folder,
            budget_bytes=task.memory_bytes // thresholds.read_divisor,
            at_once=order.at_once,
            most_open=thresholds.open_blocks,
            begin=pool.begin_ahead,
        )
        for stream in streams:
            opened.callback(stream.close)
        most_window_bytes = most_window_bytes or window_bytes(task.memory_bytes)
        records = _Merge(_Job(io, task, hooks, memory, most_window_bytes), order, streams, pool).run()
    return _result(task, order, records, clock)


def _result(task: MergeTask, order: MergeOrder, records: tuple[BlockRecord, ...], clock: Clock) -> TaskResult:
    return TaskResult(
        group=task.group,
        number=task.number,
        records=records,
        rows=task.rows,
        rows_copied=sum(copy.rows for copy in order.copies),
        bytes_read=sum(item.bytes_read for item in order.inputs),
        bytes_written=sum(record.size_bytes for record in records),
        wall_seconds=clock.wall(),
        cpu_seconds=clock.cpu(),
        bytes_copied=sum(item.bytes_copied for item in order.inputs if isinstance(item, BlockInput)),
    )


@dataclass(frozen=True)
class _Job:
    io: BlockIO
    task: MergeTask
    hooks: Hooks
    memory: ProcessMemory
    most_window_bytes: int


@dataclass
class _Block:
    """A block being written: its builder, the queue that keeps its rows in order, and the bytes that were measured."""

    builder: BlockBuilder
    writes: SerialQueue
    measured_bytes: int = 0

    def more_bytes(self) -> int:
        """Return the bytes that it takes beyond those of the last call. Called on the queue."""
        before, self.measured_bytes = self.measured_bytes, self.builder.stored_bytes
        return self.measured_bytes - before


@dataclass(frozen=True, kw_only=True)
class Window:
    """Rows that follow each other in a block.

    Attributes:
        numbers: the rows, counted over all inputs, in key order.
        groups: the number of rows of each row group.
    """

    numbers: np.ndarray
    groups: tuple[int, ...]


def windows(
    numbers: np.ndarray, row_bytes: np.ndarray, *, most_bytes: int, group_rows: int
) -> Iterator[Window]:
    """Yield consecutive rows of a block as windows of at most `most_bytes`, or of one row.

    If a window can hold a whole row group, it ends where one ends: then the file does not depend on the budget. Windows
    have about the same number of row groups, so that none waits long for another.

    Args:
        numbers: the rows, counted over all inputs, in key order.
        row_bytes: approximate memory of each row, by its number.
        most_bytes: of a window.
        group_rows: the most rows of a row group to write.
    """
    sizes = np.cumsum(row_bytes[numbers], dtype=np.float64)
    groups = deque(cut_rows(len(numbers), group_rows))
    even = math.ceil(len(groups) / math.ceil(sizes[-1] / most_bytes))
    first = 0
    while first < len(numbers):
        done = sizes[first - 1] if first else 0.0
        room = max(1, int(np.searchsorted(sizes, done + most_bytes, side="right")) - first)
        taken: list[int] = []
        while groups and len(taken) < even and sum(taken) + groups[0] <= room:
            taken.append(groups.popleft())
        if not taken:  # a part of a row group, which is divided into several
            groups[0] -= room
            taken.append(room)
        yield Window(numbers=numbers[first : first + sum(taken)], groups=tuple(taken))
        first += sum(taken)


class _Merge:
    """The windows of one task, from its inputs to its blocks."""

    def __init__(self, job: _Job, order: MergeOrder, streams: Sequence[RowStream], pool: Threads) -> None:
        self._io = job.io
        self._task = job.task
        self._hooks = job.hooks
        self._memory = job.memory
        self._most_window_bytes = job.most_window_bytes
        self._order = order
        self._streams = streams
        self._pool = pool
        self._copied_starts = [copy.start for copy in order.copies]
        self._cuts = iter(order.cuts)
        self._spans_begun = self._spans_known = 0
        self._measured: deque[Future[int]] = deque()  # the bytes of spans, not known yet
        self._starts = np.cumsum([0] + [stream.rows for stream in streams])
        self._row_bytes = np.concatenate([stream.row_bytes for stream in streams])
        self._weights = Weights(self._row_bytes, order.order) if order.ends else None
        self._sizes = _sizes_of(job, float(self._row_bytes.sum())) if order.ends else None
        self._taken = np.zeros(len(streams), dtype=np.int64)  # rows of each input
        self._merged: list[Fingerprint] = []
        self._last: list[pa.Table] = []  # the key of the last row so far
        self._builders: list[BlockBuilder] = []
        self._finished: list[Future[tuple[BlockRecord, ...]]] = []  # of those that are complete

    def run(self) -> tuple[BlockRecord, ...]:
        """Merge all rows; return what was stored."""
        try:
            for finish in _one_later(self._begun()):
                finish()
                self._memory.give_back()
                raise_failures(self._finished)
            self._require_all_taken()
            return self._verified(tuple(record for future in self._finished for record in future.result()))
        except BaseException:
            self._pool.settle()
            for future in self._finished:
                future.exception()
            for builder in self._builders:
                builder.discard()
            raise

    def _begun(self) -> Iterator[Callable[[], None]]:
        """Begin one piece of work after the other. Yield functions that finish each; call them in this order."""
        block: _Block | None = None
        place = start = 0
        while place < self._task.rows:
            if self._sizes is not None and self._sizes.must_know:
                yield _nothing  # now the work before it is finished, so that its bytes become known
            stop, ends_block = self._next_stop(place, start)
            block = block or self._new_block()
            yield from self._parts(range(place, stop), block)
            if self._sizes is not None:
                yield functools.partial(self._measure, block)
            place = stop
            if ends_block:
                yield functools.partial(self._complete, block)
                block, start = None, stop

    def _next_stop(self, place: int, start: int) -> tuple[int, bool]:
        """Return up to which place rows are written next, and whether the block that began at `start` ends there."""
        ends, sizes, weights = self._order.ends, self._sizes, self._weights
        if ends is None or sizes is None or weights is None:
            return place + next(self._cuts), True
        # Bytes of the last two spans are mostly not waited for, so that reading, gathering and writing go on side by
        # side. What is known does not depend on how fast threads are, so neither do the files.
        newest = 1 if sizes.must_know else 3
        while self._spans_known <= self._spans_begun - newest:
            sizes.wrote(self._measured.popleft().result())
            self._spans_known += 1
        self._spans_begun += 1
        before = weights.before(place)
        group_rows = self._io.options.row_group_rows
        span = sizes.next()
        stop = max(place + 1, weights.place(before + span.weight))
        if span.ends_file:
            stop = ends.nearest(stop, file_rows=stop - start, after=place)
        else:
            whole = (stop - place + group_rows // 4) // group_rows * group_rows
            stop = ends.outside_copies(place + whole if whole else stop, place)
        ends_file = span.ends_file or stop == self._task.rows
        sizes.took(Span(weights.before(stop) - before, ends_file))
        return stop, ends_file

    def _new_block(self) -> _Block:
        task = self._task
        sorted_ = task.sort.is_order
        builder = self._io.build(
            sort=task.sort if sorted_ else None,
            level=task.level,
            run_id=task.run_id if sorted_ else None,
            partition=task.partition,
        )
        self._builders.append(builder)
        return _Block(builder, SerialQueue(self._pool))

    def _parts(self, places: range, block: _Block) -> Iterator[Callable[[], None]]:
        """Begin to write the rows of some places to a block."""
        group_rows = self._io.options.row_group_rows
        for part in between(self._order.copies, places):
            if isinstance(part, Copy):
                yield self._copied(part, block)
                continue
            numbers = self._order.order[part.start : part.stop]
            for window in windows(
                numbers, self._row_bytes, most_bytes=self._most_window_bytes, group_rows=group_rows
            ):
                yield self._gathered(window, block)

    def _measure(self, block: _Block) -> None:
        self._measured.append(block.writes.submit(block.more_bytes))

    def _complete(self, block: _Block) -> None:
        self._finished.append(block.writes.submit(block.builder.finish))

    def _copied(self, copy: Copy, block: _Block) -> Callable[[], None]:
        """Begin to copy row groups."""
        self._require_not_cancelled()
        self._taken[copy.input] += copy.rows

        def finish() -> None:
            first, last = (
                bisect.bisect_left(self._copied_starts, place) for place in (copy.start, copy.stop)
            )
            for keys in self._order.copied_ends[first:last]:
                self._check_order(keys)
            self._hooks.advance(copy.rows)
            self._pool.write(block.writes, functools.partial(block.builder.copy, copy.block, copy.groups))

        return finish

    def _gathered(self, window: Window, block: _Block) -> Callable[[], None]:
        """Begin to gather a window's rows, column by column; finish by checking and writing them."""
        self._require_not_cancelled()
        rows, order = self._rows_of(window)
        gathering = self._pool.begin(functools.partial(_gather, rows, order), range(len(rows)))
        del rows

        def finish() -> None:
            gathered = [column.result() for column in gathering]
            gathering.clear()
            self._merged += [fingerprint for _, fingerprint in gathered]
            rows = pa.table({column.column_names[0]: column.column(0) for column, _ in gathered})
            del gathered
            self._check_order(key_table(rows, self._task.sort, self._io.schema))
            self._hooks.advance(rows.num_rows)
            self._pool.write(block.writes, block.builder.adding(rows, window.groups))
            block.writes.submit(self._memory.give_back)

        return finish

    def _rows_of(self, window: Window) -> tuple[Columns, pa.Array | None]:
        """Take the window's rows from the inputs.

        Returns:
            The rows, input by input, and the order to put them in; None if they are in order.
        """
        source = np.searchsorted(self._starts, window.numbers, side="right") - 1
        counts = np.bincount(source, minlength=len(self._streams))
        # Rows taken from an input come after those of earlier inputs, and begin with its next row.
        first_place = np.cumsum(counts) - counts
        first_number = self._starts[:-1] + self._taken
        places = window.numbers + (first_place - first_number)[source]
        if places.min() < 0 or places.max() >= len(places):
            raise InternalError(f"{self._task.title}: a window has no rows")
        active = np.flatnonzero(counts).tolist()
        taken = self._pool.read(lambda number: self._streams[number].take(int(counts[number])), active)
        self._taken += counts
        is_in_order = bool((places == np.arange(len(places))).all())
        order = None if is_in_order else pa.array(places.astype(np.uint32))
        return Columns(pa.concat_tables(itertools.chain.from_iterable(taken))), order

    def _require_not_cancelled(self) -> None:
        if self._hooks.cancelled():
            raise Cancelled

    def _require_all_taken(self) -> None:
        """Refuse a merge that did not take every row of its inputs: fingerprints do not show rows that were never read.

        Raises:
            VerificationError: rows are left.
        """
        rows = np.diff(self._starts)
        if (self._taken != rows).any():
            msg = (
                f"{self._task.title}: its inputs have {rows.tolist()} rows, {self._taken.tolist()} were merged. "
                "Nothing is committed. A bug of tblctl: please report it"
            )
            raise VerificationError(msg)

    def _verified(self, records: tuple[BlockRecord, ...]) -> tuple[BlockRecord, ...]:
        """Return the stored blocks, if their rows are the rows read.

        Raises:
            VerificationError: they are not.
        """
        where = self._task.title
        merged = Fingerprint.total(self._merged)
        decoded = Fingerprint.total(part for stream in self._streams for part in stream.decoded)
        require_equal(decoded, merged, where)
        copied = sum(copy.rows for copy in self._order.copies)
        require_null_counts(records, merged, self._io.schema, rows_copied=copied, where=where)
        return records

    def _check_order(self, keys: pa.Table) -> None:
        """Refuse rows that are not in order, or not after the earlier rows."""
        require_sorted([*self._last, keys], self._task.sort, self._task.title)
        self._last = [keys.slice(keys.num_rows - 1).combine_chunks()]


def _sizes_of(job: _Job, weight: float) -> FileSizes | None:
    if job.io.file_bytes is None:
        return None
    return FileSizes(
        weight=weight,
        target_bytes=job.io.file_bytes,
        guess=max(job.task.size_bytes, 1) / max(weight, 1.0),
    )


def _nothing() -> None:
    """Do nothing."""


def _gather(rows: Columns, order: pa.Array | None, place: int) -> tuple[pa.Table, Fingerprint]:
    """Return a column of some rows in an order, with its fingerprint. `rows` frees the column."""
    column = rows.take(place)
    if order is not None:
        column = pc.take(column, order, boundscheck=False)  # 2.2 times as fast
    gathered = pa.table({rows.schema.names[place]: column})
    return gathered, Fingerprint.of(gathered)


def _one_later(items: Iterable[_T]) -> Iterator[_T]:
    """Yield each item after the next one has been made."""
    made: deque[_T] = deque()
    for item in items:
        made.append(item)
        if len(made) > 1:
            yield made.popleft()
    yield from made
