"""Merge tasks whose rows are sorted together once, in one process (`presort/decide.py` says which)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event, Lock
from typing import Generic, Self, TypeVar

from tblctl.merger.engines.engine import as_own
from tblctl.merger.presort.decide import SortTask
from tblctl.merger.presort.portions import Portion, Portions, by_task, sort_work
from tblctl.merger.presort.spill import Pieces, Scratch
from tblctl.merger.task.memory import Resident
from tblctl.merger.task.merge import THREADS, Cancelled
from tblctl.merger.task.spec import MergeTask, TaskResult
from tblctl.merger.task.threads import Clock
from tblctl.tableformat.concurrency import in_parallel
from tblctl.tableformat.port import BlockIO

_T = TypeVar("_T")
_R = TypeVar("_R")
RunSorted = Callable[[MergeTask, list[Portion]], TaskResult]
"""Runs a merge task, given its portions."""


class SortedGroup:
    """Merge tasks of a group whose rows are portioned out once for all, by those that run at the time.

    A context manager: its scratch folder is gone when the last task has ended, or at the exit.
    """

    def __init__(
        self,
        io: BlockIO,
        tasks: Sequence[MergeTask],
        run: RunSorted,
        resident: Resident,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._io = io
        self._tasks = tasks
        self._run = run
        self._resident = resident
        self._cancelled = cancelled
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
        """Run one of the tasks; the time that it takes part in sorting is its own. What that fails with they all do."""
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
            self._scratch.remove(
                portion.content for portion in portions if isinstance(portion.content, Pieces)
            )
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._sorting = None
                    self._portions = {}
                    self._scratch.__exit__()

    def _sorted(self, task: MergeTask, clock: Clock) -> list[Portion]:
        """Take part in sorting, with the task's memory and threads; return its portions."""
        with self._lock:
            if self._sorting is None:
                work, sorts = sort_work(self._io, self._tasks, self._scratch, self._resident.bound)
                self._sorting = _Together(self._watched(work), sorts)
            sorting = self._sorting
        with self._resident.task(task.memory_bytes):
            sorting.take_part(THREADS, clock)
        with self._lock:
            if self._portions is None:
                self._portions = by_task(self._tasks, sorting.given_out())
            return self._portions.pop(task.number)

    def _watched(self, work: Callable[[SortTask], Portions]) -> Callable[[SortTask], Portions]:
        def watched(sort: SortTask) -> Portions:
            if self._cancelled():
                raise Cancelled
            try:
                return work(sort)
            except Exception as error:
                raise as_own(error, sort.title) from error

        return watched


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
        if not items:
            self._ended.set()

    def take_part(self, threads: int, clock: Clock) -> None:
        """Work in so many threads, whose time counts, while there is some left, and wait for the others.

        Raises:
            BaseException: whatever the first piece of work failed with, by whomever it was done.
        """
        in_parallel(lambda _: clock.counted(self._take_some, None), range(threads), threads=threads)
        self._ended.wait()
        if self._failed:
            raise self._failed

    def given_out(self) -> list[_R]:
        """Return all results, in the order of the items, and keep none."""
        results, self._results = self._results, {}
        return [results[number] for number in sorted(results)]

    def _take_some(self, _: None) -> None:
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
