"""The engine in this process: threads, since nearly all of a task runs outside the interpreter's lock."""

from __future__ import annotations

import itertools
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event, Lock
from typing import Generic, Self, TypeVar

from tblctl.merger.engine import Advance, Done, failure
from tblctl.merger.portion import Portion, Portions, by_task, sort_work
from tblctl.merger.resident import Resident
from tblctl.merger.run import THREADS, Cancelled, Hooks, run_task
from tblctl.merger.scratch import Pieces, Scratch
from tblctl.merger.shuffle import SortTask, units
from tblctl.merger.task import MergeTask, TaskFailure, TaskResult
from tblctl.tableformat.concurrency import cpu_threads, in_parallel
from tblctl.tableformat.port import BlockIO

_MOST_READS = 1.2
"""Of blocks that are portioned out, by the tasks of a group, on average: doing that once for all costs no more than
doing it in each task, but for what is decoded again, and waiting for the last."""

_T = TypeVar("_T")
_R = TypeVar("_R")
Run = Callable[[MergeTask], TaskResult]


class LocalEngine:
    """Runs tasks in threads of this process; `tblctl.merger.engine.Engine`."""

    name = "local"

    @property
    def parallelism(self) -> int:
        """How many tasks keep all processors busy; one keeps as many as it has threads."""
        return max(1, cpu_threads() // THREADS)

    def run(
        self,
        io: BlockIO,
        tasks: Iterable[MergeTask],
        done: Done,
        *,
        title: str,  # noqa: ARG002
        advance: Advance | None = None,
    ) -> None:
        """See `Engine.run`. In memory are `parallelism` tasks and one more, which fills in where others wait."""
        news: queue.SimpleQueue[TaskResult | TaskFailure | int | BaseException] = queue.SimpleQueue()
        written: dict[int, TaskResult] = {}  # and not reported, by identity
        stop = Event()
        hooks = Hooks(advance=news.put, cancelled=stop.is_set)
        at_once = self.parallelism + 1

        def work(run: Run, task: MergeTask) -> None:
            try:
                result = run(task)
                written[id(result)] = result
                news.put(result)
            except Cancelled:
                pass
            except Exception as error:  # noqa: BLE001 (whatever it is, only this task failed)
                news.put(failure(task, error))
            except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
                news.put(error)

        with ExitStack() as opened, ThreadPoolExecutor(at_once, thread_name_prefix="tblctl") as pool:
            waiting = _runs(_Common(io, hooks, Resident(io.env)), tasks, opened)
            try:
                running = 0
                while True:
                    for run, task in itertools.islice(waiting, at_once - running):
                        pool.submit(work, run, task)
                        running += 1
                    if not running:
                        return
                    item = news.get()
                    if isinstance(item, BaseException):
                        raise item  # noqa: TRY301
                    if not isinstance(item, int):
                        running -= 1
                        written.pop(id(item), None)  # from here on it is the caller's, whatever happens
                        done(item)
                    elif advance:
                        advance(item)
            except BaseException:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                io.discard([record.path for result in written.values() for record in result.records])
                raise


@dataclass(frozen=True)
class _Common:
    """What the tasks of one run share."""

    io: BlockIO
    hooks: Hooks
    resident: Resident

    def unless_cancelled(self, work: Callable[[_T], _R]) -> Callable[[_T], _R]:
        """Return `work` of sorting: refused once the run is cancelled."""

        def watched(item: _T) -> _R:
            if self.hooks.cancelled():
                raise Cancelled
            return work(item)

        return watched

    def run(self, task: MergeTask, portions: Sequence[Portion] | None = None) -> TaskResult:
        """Run one of them."""
        return run_task(
            self.io, task, threads=THREADS, hooks=self.hooks, portions=portions, resident=self.resident
        )


def _runs(common: _Common, tasks: Iterable[MergeTask], opened: ExitStack) -> Iterator[tuple[Run, MergeTask]]:
    """Yield each task with what runs it."""
    for unit in units(tasks, group_rows=common.io.options.row_group_rows, most_reads=_MOST_READS):
        run: Run = common.run
        if len(unit) > 1:
            run = opened.enter_context(_SortedGroup(common, unit)).run
        for task in unit:
            yield run, task


class _SortedGroup:
    """A group whose rows are portioned out once for all its tasks, by those that run at the time.

    A context manager: its scratch folder is gone when the last task has ended, or at the exit.
    """

    def __init__(self, common: _Common, tasks: Sequence[MergeTask]) -> None:
        self._common = common
        self._tasks = tasks
        self._lock = Lock()
        self._scratch = Scratch()
        self._sorting: _Together[SortTask, Portions] | None = None
        self._portions: dict[int, list[Portion]] | None = None
        self._left = len(tasks)  # that have not ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._scratch.__exit__(*exc)

    def run(self, task: MergeTask) -> TaskResult:
        """Run one of the tasks. What sorting failed with they all fail with."""
        portions: list[Portion] = []
        try:
            portions = self._sorted(task)
            return self._common.run(task, portions)
        finally:
            self._scratch.remove(
                portion.content for portion in portions if isinstance(portion.content, Pieces)
            )
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._sorting = None
                    self._portions = {}
                    self._scratch.__exit__()

    def _sorted(self, task: MergeTask) -> list[Portion]:
        """Take part in sorting, with the task's memory and threads; return its portions."""
        with self._lock:
            if self._sorting is None:
                work, sorts = sort_work(
                    self._common.io, self._tasks, self._scratch, self._common.resident.bound
                )
                self._sorting = _Together(self._common.unless_cancelled(work), sorts)
            sorting = self._sorting
        with self._common.resident.task(task.memory_bytes):
            sorting.take_part(THREADS)
        with self._lock:
            if self._portions is None:
                self._portions = by_task(self._tasks, sorting.given_out())
            return self._portions.pop(task.number)


class _Together(Generic[_T, _R]):
    """Some work on many items, which whoever needs all results takes part in."""

    def __init__(self, work: Callable[[_T], _R], items: Sequence[_T]) -> None:
        self._work = work
        self._waiting = deque(enumerate(items))
        self._left = len(items)
        self._results: dict[int, _R] = {}
        self._failed: BaseException | None = None
        self._lock = Lock()
        self._ended = Event()

    def take_part(self, threads: int) -> None:
        """Work in so many threads while there is some left, and wait for the others.

        Raises:
            BaseException: whatever the first piece of work failed with, by whomever it was done.
        """
        in_parallel(self._take_some, range(threads), threads=threads)
        self._ended.wait()
        if self._failed:
            raise self._failed

    def given_out(self) -> list[_R]:
        """Return all results, in the order of the items, and keep none."""
        results, self._results = self._results, {}
        return [results[number] for number in sorted(results)]

    def _take_some(self, _: int) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._failed:
                    return
                number, item = self._waiting.popleft()
            try:
                self._results[number] = self._work(item)
            except BaseException as error:  # noqa: BLE001 (raised by all that take part)
                self._failed = self._failed or error
            with self._lock:
                self._left -= 1
                if self._failed or not self._left:
                    self._ended.set()
