"""A unit of merge tasks in one process: their rows are sorted once, by the tasks that run at the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event, Lock
from typing import Generic, Self, TypeVar

from tblctl.merger.engines.engine import as_own
from tblctl.merger.presort.decide import THRESHOLDS, Thresholds
from tblctl.merger.presort.portions import Portion
from tblctl.merger.presort.presorter import Portions, Presorter
from tblctl.merger.presort.sort_tasks import SortTask
from tblctl.merger.presort.spill import Pieces, SpillFolder
from tblctl.merger.task.memory import ProcessMemory
from tblctl.merger.task.merge import THREADS, Cancelled
from tblctl.merger.task.spec import MergeTask, TaskResult
from tblctl.merger.task.threads import Clock
from tblctl.tableformat.concurrency import in_parallel
from tblctl.tableformat.port import BlockIO

_T = TypeVar("_T")
_R = TypeVar("_R")
RunPresorted = Callable[[MergeTask, list[Portion]], TaskResult]
"""Runs a merge task, given its portions."""


class PresortedUnit:
    """Merge tasks of a group that sort their rows together.

    The first task that runs begins to sort, and every task that runs meanwhile takes part. A context manager: the spill
    folder is deleted when the last task ends, or at the exit.

    Args:
        io: of the table.
        tasks: of the unit.
        run: runs one of them.
        memory: the process's.
        thresholds: to compare sizes with.
        cancelled: called before each sort task; whether to stop.
    """

    def __init__(
        self,
        io: BlockIO,
        tasks: Sequence[MergeTask],
        run: RunPresorted,
        memory: ProcessMemory,
        *,
        thresholds: Thresholds = THRESHOLDS,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._io = io
        self._tasks = tasks
        self._run = run
        self._memory = memory
        self._thresholds = thresholds
        self._cancelled = cancelled
        self._lock = Lock()
        self._folder = SpillFolder()
        self._presorter: Presorter | None = None
        self._sorting: _SharedWork[SortTask, Portions] | None = None
        self._portions: dict[int, list[Portion]] | None = None
        self._left = len(tasks)  # that have not ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._folder.__exit__(*exc)

    def run(self, task: MergeTask) -> TaskResult:
        """Run one of the tasks. The time it spends sorting counts as its own. If sorting fails, all tasks fail."""
        portions: list[Portion] = []
        clock = Clock(self._io)
        try:
            portions = self._sorted(task, clock)
            wall, cpu = clock.wall(), clock.cpu()
            result = self._run(task, portions)
            return replace(
                result, wall_seconds=result.wall_seconds + wall, cpu_seconds=result.cpu_seconds + cpu
            )
        finally:
            self._folder.remove(
                portion.content for portion in portions if isinstance(portion.content, Pieces)
            )
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._sorting = None
                    self._portions = {}
                    self._folder.__exit__()

    def _sorted(self, task: MergeTask, clock: Clock) -> list[Portion]:
        """Take part in sorting, with the task's memory and threads; return its portions."""
        with self._lock:
            if self._presorter is None:
                self._presorter = Presorter(
                    self._io, self._tasks, self._folder, self._memory.give_back, self._thresholds
                )
            presorter = self._presorter
            if self._sorting is None:
                self._sorting = _SharedWork(self._watched(presorter.sort), presorter.sort_tasks)
            sorting = self._sorting
        with self._memory.task(task.memory_bytes):
            sorting.take_part(THREADS, clock)
        with self._lock:
            if self._portions is None:
                self._portions = presorter.by_task(sorting.handed_over())
            return self._portions.pop(task.number)

    def _watched(self, work: Callable[[SortTask], Portions]) -> Callable[[SortTask], Portions]:
        def watched(task: SortTask) -> Portions:
            if self._cancelled():
                raise Cancelled
            try:
                return work(task)
            except Exception as error:
                raise as_own(error, task.title) from error

        return watched


class _SharedWork(Generic[_T, _R]):
    """Work on many items. Every thread that needs the results takes part, and all wait for the last one."""

    def __init__(self, work: Callable[[_T], _R], items: Sequence[_T]) -> None:
        self._work = work
        self._waiting = deque(enumerate(items))
        self._left = len(items)
        self._results: dict[int, _R] = {}
        self._error: BaseException | None = None
        self._lock = Lock()
        self._ended = Event()
        if not items:
            self._ended.set()

    def take_part(self, threads: int, clock: Clock) -> None:
        """Work in `threads` threads while items are left, and wait for the others; `clock` counts the time.

        Raises:
            BaseException: the first failure in any thread.
        """
        in_parallel(lambda _: clock.counted(self._take_some, None), range(threads), threads=threads)
        self._ended.wait()
        if self._error:
            raise self._error

    def handed_over(self) -> list[_R]:
        """Return all results in the order of the items, and keep no reference to them."""
        results, self._results = self._results, {}
        return [results[number] for number in sorted(results)]

    def _take_some(self, _: None) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._error:
                    return
                number, item = self._waiting.popleft()
            try:
                self._results[number] = self._work(item)
            except BaseException as error:  # noqa: BLE001 (raised by all that take part)
                self._error = self._error or error
            with self._lock:
                self._left -= 1
                if self._error or not self._left:
                    self._ended.set()
