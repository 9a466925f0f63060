"""The engine in this process: threads, since nearly all of a task runs outside the interpreter's lock."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event, Lock
from typing import Self, TypeVar

from tblctl.merger.engine import Advance, Done, failure
from tblctl.merger.resident import Resident
from tblctl.merger.run import THREADS, Cancelled, Hooks, run_task
from tblctl.merger.scratch import Scratch
from tblctl.merger.shuffle import Portion, sort_blocks, units
from tblctl.merger.task import MergeTask, TaskFailure, TaskResult
from tblctl.tableformat.concurrency import cpu_threads, in_parallel
from tblctl.tableformat.port import BlockIO

_MOST_READS = 1.5
"""Of blocks in another order by the tasks of a group, on average: sorting them beforehand costs a copy on the disk,
which takes half the time that decoding them again does."""

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

    def run(self, task: MergeTask, portions: Sequence[Portion] | None = None) -> TaskResult:
        """Run one of them."""
        return run_task(
            self.io, task, threads=THREADS, hooks=self.hooks, portions=portions, resident=self.resident
        )


def _runs(common: _Common, tasks: Iterable[MergeTask], opened: ExitStack) -> Iterator[tuple[Run, MergeTask]]:
    """Yield each task with what runs it."""
    for unit in units(tasks, most_reads=_MOST_READS):
        run: Run = common.run
        if len(unit) > 1:
            run = opened.enter_context(_SortedGroup(common, unit)).run
        for task in unit:
            yield run, task


class _SortedGroup:
    """A group whose blocks in another order are sorted once for all its tasks, when the first of them runs.

    A context manager: its scratch folder is gone when the last task has ended, or at the exit.
    """

    def __init__(self, common: _Common, tasks: Sequence[MergeTask]) -> None:
        self._common = common
        self._tasks = tasks
        self._lock = Lock()
        self._scratch = Scratch()
        self._portions: dict[int, list[Portion]] = {}
        self._failed: Exception | None = None
        self._left = 0  # tasks that have not ended, once all is sorted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._scratch.__exit__(*exc)

    def run(self, task: MergeTask) -> TaskResult:
        """Run one of the tasks. What sorting failed with they all fail with."""
        with self._lock:
            if not self._left:
                self._sort()
            portions = self._portions.pop(task.number)
        try:
            return self._common.run(task, portions)
        finally:
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._scratch.__exit__()

    def _sort(self) -> None:
        if self._failed:
            raise self._failed
        try:
            self._portions = sort_blocks(self._common.io, self._tasks, self._scratch, self._in_parallel)
        except Exception as error:
            self._failed = error
            raise
        self._left = len(self._tasks)

    def _in_parallel(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        def unless_cancelled(item: _T) -> _R:
            if self._common.hooks.cancelled():
                raise Cancelled
            return work(item)

        return in_parallel(unless_cancelled, items, threads=cpu_threads())
