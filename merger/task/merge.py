"""The one task function, the same in every engine: rows of some blocks in, merged blocks out.

First the keys alone are read and put in order, so that it is known where every row goes; then the rows are read once,
in windows, gathered, verified and written. Of a budget of B bytes, keys and order take a quarter at first (so
`round/cuts.py` cuts tasks), and then the order and a size for each row stay; a quarter is for rows that were read, and
at most an eighth for pages read ahead; and 0.6 B for windows: three times one, for that which is gathered while the one
before it is made ready, and 1.25 times each that is written or waits for it (its rows, and its file).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.merger.presort.portions import READER_BYTES, Portion, sort_blocks
from tblctl.merger.presort.spill import Scratch
from tblctl.merger.task.copying import Copy, between, plan_copies, without_copied
from tblctl.merger.task.inputs import READ_SHARE, Input, Part, look_at, open_inputs
from tblctl.merger.task.memory import Resident
from tblctl.merger.task.spec import MergeTask, TaskResult
from tblctl.merger.task.threads import WRITING, Clock, Line, Threads, raise_failures
from tblctl.merger.task.verify import (
    Fingerprint,
    VerificationError,
    require_equal,
    require_sorted,
    require_told,
)
from tblctl.tableformat.errors import InternalError
from tblctl.tableformat.keys.order import key_changes, key_table, sort_indices
from tblctl.tableformat.model.cut import cut_rows, rows_back
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.port import BlockBuilder, BlockIO

THREADS = 2
"""Of a task, in every engine: one reads or writes while the other computes."""

_COPY_SHARE = 16  # of the budget, what a row group has at most that is copied: as a whole, by each thread


def _window_bytes(memory_bytes: int) -> int:
    """Return the size of a window. It does not depend on what else a machine has, so that neither do blocks."""
    return max(1, int(0.6 * memory_bytes / (3 + 1.25 * WRITING)))


_T = TypeVar("_T")


class Cancelled(Exception):  # noqa: N818 (no error: somebody asked for it)
    """The task was told to stop; what it wrote is deleted."""


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What an engine wants to be asked and told while a task runs, from whatever thread.

    Attributes:
        advance: is told numbers of rows as they are merged.
        cancelled: is asked whether to stop.
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
    resident: Resident | None = None,
) -> TaskResult:
    """Merge the task's rows and store them as blocks; nothing is committed. What a failed task stored is deleted.

    Args:
        io: of the version that the task was planned for.
        task: what to do.
        threads: how many to use for reading and writing, at most `THREADS` if the budget is to hold.
        hooks: of the engine.
        portions: its rows that are portioned out, if that was done for all tasks of the group beforehand.
        resident: the process's memory, where tasks share it.

    Raises:
        VerificationError: what would be written is not what was read.
        CorruptTableError: a block is missing, damaged or not in order; named.
        StorageError: of the table, or of the local disk.
        Cancelled: as asked.
    """
    clock = Clock(io)
    opens = min(io.opens, task.memory_bytes // READER_BYTES)
    resident = resident or Resident(io.env)
    with (
        resident.task(task.memory_bytes),
        Scratch() as scratch,
        ExitStack() as opened,
        Threads(threads, clock, opens) as pool,
    ):
        if portions is None:
            portions = sort_blocks(io, [task], scratch, pool.map, resident.bound)[task.number]
        plan = _planned(io, task, portions, pool)
        inputs = open_inputs(
            io, plan.parts, scratch, budget_bytes=task.memory_bytes // READ_SHARE, at_once=plan.at_once
        )
        for one in inputs:
            opened.callback(one.close)
        records = _Merge(_Job(io, task, hooks, resident), plan, inputs, pool).run()
    return TaskResult(
        group=task.group,
        number=task.number,
        records=records,
        rows=task.rows,
        rows_copied=sum(copy.rows for copy in plan.copies),
        bytes_read=sum(part.bytes_read for part in plan.parts),
        bytes_written=sum(record.size_bytes for record in records),
        wall_seconds=clock.wall(),
        cpu_seconds=clock.cpu(),
    )


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """Where the rows of a task go.

    Attributes:
        parts: to merge.
        order: the places of all rows, counted through the parts one after the other, in key order; equal keys keep
            their order. 4 bytes a row, and 8 more while keys are sorted.
        cuts: the rows of each block to write.
        copies: the row groups that are copied undecoded.
        copied_ends: the keys of the first and the last row of each copy.
        at_once: at most so many parts have rows before a place in the order and behind it.
    """

    parts: tuple[Part | Portion, ...]
    order: np.ndarray
    cuts: tuple[int, ...]
    copies: tuple[Copy, ...]
    copied_ends: tuple[pa.Table, ...]
    at_once: int


def _planned(io: BlockIO, task: MergeTask, portions: Sequence[Portion], pool: Threads) -> _Plan:
    """Read the keys, and find out where every row goes."""
    streamed = [item for item in task.slices if item.is_streamed]
    found: list[tuple[pa.Table, Part | Portion]] = [
        *pool.read(lambda item: look_at(io, item, task.sort), streamed),
        *((portion.keys(task.sort, io.schema), portion) for portion in portions),
    ]
    found.sort(key=lambda pair: pair[1].order)
    keys = pa.concat_tables([keys for keys, _ in found]).combine_chunks()
    places = sort_indices(keys, task.sort).to_numpy()
    if len(places) != task.rows:
        msg = f"task {task.group}.{task.number} has slices of {len(places)} rows for cuts of {task.rows}"
        raise InternalError(msg)
    order = places.astype(np.uint32) if len(places) < 1 << 32 else places
    cuts = _clean_cuts(task, keys, places)
    del places
    parts = [part for _, part in found]
    most_bytes = task.memory_bytes // _COPY_SHARE
    copies = plan_copies(order, parts, cuts, group_rows=io.options.row_group_rows, most_bytes=most_bytes)
    return _Plan(
        parts=without_copied(parts, copies),
        order=order,
        cuts=cuts,
        copies=copies,
        copied_ends=tuple(keys.take(pa.array(order[[copy.start, copy.stop - 1]])) for copy in copies),
        at_once=_at_once(order, [part.rows for part in parts]),
    )


def _at_once(order: np.ndarray, rows: Sequence[int]) -> int:
    """Return how many inputs of so many rows have a row at or before a place and one at or behind it, at most."""
    stops = np.cumsum(rows)
    first, last = np.zeros((2, len(order)), dtype=bool)
    first[stops - rows] = last[stops - 1] = True
    begun, ended = np.flatnonzero(first[order]), np.flatnonzero(last[order])
    return int((np.arange(1, len(begun) + 1) - np.searchsorted(ended, begun)).max())


def _clean_cuts(task: MergeTask, keys: pa.Table, places: np.ndarray) -> tuple[int, ...]:
    """Return the rows of each block, every cut moved back to where a key ends if its slack allows."""
    ends = np.cumsum(task.cuts)
    for number, slack in enumerate(task.slack):
        if slack:
            around = keys.take(pa.array(places[ends[number] - slack - 1 : ends[number] + 1]))
            ends[number] -= rows_back(key_changes(around))
    return tuple(np.diff(ends, prepend=0).tolist())


@dataclass(frozen=True)
class _Job:
    io: BlockIO
    task: MergeTask
    hooks: Hooks
    resident: Resident


class _Merge:
    """The windows of one task, from inputs to builders."""

    def __init__(self, job: _Job, plan: _Plan, inputs: Sequence[Input], pool: Threads) -> None:
        self._io = job.io
        self._task = job.task
        self._hooks = job.hooks
        self._resident = job.resident
        self._plan = plan
        self._inputs = inputs
        self._pool = pool
        self._ends = dict(zip((copy.start for copy in plan.copies), plan.copied_ends, strict=True))
        self._starts = np.cumsum([0] + [one.rows for one in inputs])
        self._row_bytes = np.concatenate([one.row_bytes for one in inputs])
        self._taken = np.zeros(len(inputs), dtype=np.int64)
        self._merged: list[Fingerprint] = []
        self._last: list[pa.Table] = []  # the key of the last row so far
        self._builders: list[BlockBuilder] = []
        self._finished: list[Future[tuple[BlockRecord, ...]]] = []  # of those that are complete

    def run(self) -> tuple[BlockRecord, ...]:
        """Merge all rows; return what was stored."""
        try:
            for finish in _one_later(self._begun()):
                finish()
                self._resident.bound()
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
        """Begin one piece of work after the other, and yield what finishes each; that is to be done in this order."""
        task = self._task
        start = 0
        for count in self._plan.cuts:
            builder = self._io.build(
                sort=task.sort, level=task.level, run_id=task.run_id, partition=task.partition
            )
            self._builders.append(builder)
            block = _Block(builder, Line(self._pool))
            for piece in between(self._plan.copies, range(start, start + count)):
                if isinstance(piece, Copy):
                    yield self._copied(piece, block)
                    continue
                for numbers, groups in self._windows(piece):
                    yield self._gathered(numbers, groups, block)
            yield functools.partial(self._complete, block)
            start += count

    def _complete(self, block: _Block) -> None:
        self._finished.append(block.line.submit(block.builder.finish))

    def _copied(self, copy: Copy, block: _Block) -> Callable[[], None]:
        """Have row groups copied."""
        if self._hooks.cancelled():
            raise Cancelled
        self._taken[copy.part] += copy.rows

        def finish() -> None:
            self._check_order(self._ends[copy.start])
            self._hooks.advance(copy.rows)
            self._pool.write(block.line, functools.partial(block.builder.copy, copy.block, copy.groups))

        return finish

    def _windows(self, places: range) -> Iterator[tuple[np.ndarray, tuple[int, ...]]]:
        """Yield the places of rows that follow each other in a block in windows, each with the sizes of its row groups.

        Windows end where row groups do, if they hold one: then the file does not depend on the budget. They have about
        the same number of them, so that none waits long for another.
        """
        numbers = self._plan.order[places.start : places.stop]
        most = _window_bytes(self._task.memory_bytes)
        sizes = np.cumsum(self._row_bytes[numbers], dtype=np.float64)
        groups = deque(cut_rows(len(numbers), self._io.options.row_group_rows))
        even = math.ceil(len(groups) / math.ceil(sizes[-1] / most))
        first = 0
        while first < len(numbers):
            done = sizes[first - 1] if first else 0.0
            room = max(1, int(np.searchsorted(sizes, done + most, side="right")) - first)
            taken: list[int] = []
            while groups and len(taken) < even and sum(taken) + groups[0] <= room:
                taken.append(groups.popleft())
            if not taken:  # a part of a row group, which becomes several
                groups[0] -= room
                taken.append(room)
            yield numbers[first : first + sum(taken)], tuple(taken)
            first += sum(taken)

    def _gathered(self, numbers: np.ndarray, groups: Sequence[int], block: _Block) -> Callable[[], None]:
        """Have the rows in these places gathered, in this order; each input gives a stretch of its own."""
        if self._hooks.cancelled():
            raise Cancelled
        source = np.searchsorted(self._starts, numbers, side="right") - 1
        counts = np.bincount(source, minlength=len(self._inputs))
        active = np.flatnonzero(counts).tolist()
        found = self._pool.read(lambda number: self._inputs[number].take(int(counts[number])), active)
        # A row lies behind those of earlier inputs, at its place in its own input's stretch.
        shift = np.cumsum(counts) - counts - self._taken - self._starts[:-1]
        places = numbers + shift[source]
        self._taken += counts
        if places.min() < 0 or places.max() >= len(places):
            msg = f"group {self._task.group}, task {self._task.number}: rows were to be gathered from nowhere"
            raise InternalError(msg)
        read = pa.concat_tables(itertools.chain.from_iterable(found))
        del found
        in_order = bool((places == np.arange(len(places))).all())
        gather, numbered = _columns(read, None if in_order else pa.array(places.astype(np.uint32)))
        del read  # `gather` lets go of one column after the other
        columns = self._pool.begin(gather, numbered)

        def finish() -> None:
            gathered = [column.result() for column in columns]
            columns.clear()
            self._merged += [fingerprint for _, fingerprint in gathered]
            rows = pa.table({column.column_names[0]: column.column(0) for column, _ in gathered})
            del gathered
            self._check_order(key_table(rows, self._task.sort, self._io.schema))
            self._hooks.advance(rows.num_rows)
            self._pool.write(block.line, block.builder.adding(rows, groups))
            block.line.submit(self._resident.bound)

        return finish

    def _require_all_taken(self) -> None:
        """Refuse a merge that did not take every row of its inputs: what nothing asked for was never decoded either.

        Raises:
            VerificationError: it did not.
        """
        rows = np.diff(self._starts)
        if (self._taken != rows).any():
            msg = (
                f"group {self._task.group}, task {self._task.number}: of {rows.tolist()} rows of its inputs "
                f"{self._taken.tolist()} were merged. Nothing is committed. A bug of tblctl: please report it"
            )
            raise VerificationError(msg)

    def _verified(self, records: tuple[BlockRecord, ...]) -> tuple[BlockRecord, ...]:
        """Return what was stored, if it is what was read.

        Raises:
            VerificationError: it is not.
        """
        where = f"group {self._task.group}, task {self._task.number}"
        merged = Fingerprint.total(self._merged)
        require_equal(Fingerprint.total(part for one in self._inputs for part in one.read), merged, where)
        copied = sum(copy.rows for copy in self._plan.copies)
        require_told(records, merged, self._io.schema, rows_copied=copied, where=where)
        return records

    def _check_order(self, keys: pa.Table) -> None:
        """Refuse rows that are not in order, or not behind those before them."""
        task = self._task
        require_sorted([*self._last, keys], task.sort, f"group {task.group}, task {task.number}")
        self._last = [keys.slice(keys.num_rows - 1).combine_chunks()]


def _columns(
    rows: pa.Table, order: pa.Array | None
) -> tuple[Callable[[int], tuple[pa.Table, Fingerprint]], range]:
    """Return what puts a column of some rows in an order, and the columns. Lets go of each that it was asked for."""
    names = rows.column_names
    columns: list[pa.ChunkedArray | None] = rows.columns

    def gather(place: int) -> tuple[pa.Table, Fingerprint]:
        column, columns[place] = columns[place], None  # frees what no input holds any more
        if column is None:
            msg = f"column {names[place]!r} was to be gathered twice"
            raise InternalError(msg)
        column = column.combine_chunks()
        if order is not None:
            column = pc.take(column, order, boundscheck=False)  # 2.2 times as fast
        gathered = pa.table({names[place]: column})
        return gathered, Fingerprint.of(gathered)

    return gather, range(len(names))


def _one_later(items: Iterable[_T]) -> Iterator[_T]:
    """Yield each item when the next one has been made."""
    made: deque[_T] = deque()
    for item in items:
        made.append(item)
        if len(made) > 1:
            yield made.popleft()
    yield from made


class _Block(NamedTuple):
    """A block that is written: what takes its rows, and the order in which it does."""

    builder: BlockBuilder
    line: Line
