"""The engine in this process: threads, since nearly all of a task runs outside the interpreter's lock."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import TypeAlias

from tblctl.merger.cutting.cuts import Cuts, CutTask
from tblctl.merger.engines.engine import Advance, Done, Wanted, always, cuts_here, failure, stopped
from tblctl.merger.engines.presorted_unit import PresortedUnit
from tblctl.merger.presort.decide import THRESHOLDS, Thresholds, units
from tblctl.merger.presort.portions import Portion
from tblctl.merger.task.memory import ProcessMemory
from tblctl.merger.task.merge import THREADS, Cancelled, Hooks, run_task
from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult
from tblctl.tableformat.concurrency import ahead, cpu_threads
from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.port import BlockIO

RunTask: TypeAlias = Callable[[MergeTask], TaskResult]


@dataclass(frozen=True)
class _RowsMerged:
    """Some task merged rows."""

    rows: int


@dataclass(frozen=True, eq=False)
class _TaskEnded:
    """A task is done, or failed."""

    outcome: TaskResult | TaskFailure


@dataclass(frozen=True, eq=False)
class _Interrupted:
    """A task's thread ended with an error that concerns the whole run."""

    error: BaseException


_ProgressEvent: TypeAlias = _RowsMerged | _TaskEnded | _Interrupted


class LocalEngine:
    """Runs tasks in threads of this process; `tblctl.merger.engines.engine.Engine`.

    Args:
        thresholds: for cutting groups into tasks, and for presorting.
        processors: how many to keep busy.
    """

    name = "local"

    def __init__(
        self, *, thresholds: Thresholds = THRESHOLDS, processors: Callable[[], int] = cpu_threads
    ) -> None:
        self.thresholds = thresholds
        self._processors = processors

    @property
    def parallelism(self) -> int:
        """How many tasks keep all processors busy; each task uses as many as it has threads."""
        return max(1, self._processors() // THREADS)

    def cut(
        self,
        io: BlockIO,
        groups: Iterable[CutTask],
        *,
        title: str,  # noqa: ARG002
        groups_ahead: int,
    ) -> Generator[Cuts | TblctlError, None, None]:
        """See `Engine.cut`."""
        return ahead(lambda group: cuts_here(io, group, self.thresholds), groups, threads=groups_ahead)

    def run(
        self,
        io: BlockIO,
        tasks: Iterable[MergeTask],
        done: Done,
        *,
        title: str,  # noqa: ARG002
        advance: Advance | None = None,
        wanted: Wanted = always,
    ) -> None:
        """See `Engine.run`. `parallelism` tasks are in memory, and one more that runs while others wait."""
        run = _Attempts(io, self.thresholds, wanted)
        at_once = self.parallelism + 1
        running = 0
        with ExitStack() as opened, ThreadPoolExecutor(at_once, thread_name_prefix="tblctl") as pool:
            waiting = run.attempts(tasks, opened)
            try:
                while True:
                    for run_one, task in itertools.islice(waiting, at_once - running):
                        pool.submit(run.attempt, run_one, task)
                        running += 1
                    if not running:
                        return
                    match run.events.get():
                        case _RowsMerged(rows) if advance:
                            advance(rows)
                        case _TaskEnded(outcome):
                            running -= 1
                            run.written.pop(id(outcome), None)  # from here on it belongs to the caller
                            done(outcome)
                        case _Interrupted(error):
                            raise error  # noqa: TRY301
            except BaseException:
                run.stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                io.discard([record.path for result in run.written.values() for record in result.records])
                raise


@dataclass
class _Attempts:
    """State shared by the task attempts of one run.

    Attributes:
        io: of the table.
        thresholds: of the engine.
        wanted: whether a group is still merged.
        events: reports of attempts.
        written: results that the caller does not have yet, by identity.
        stop: set when the run is over.
    """

    io: BlockIO
    thresholds: Thresholds
    wanted: Wanted
    events: queue.SimpleQueue[_ProgressEvent] = field(default_factory=queue.SimpleQueue)
    written: dict[int, TaskResult] = field(default_factory=dict)
    stop: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self._memory = ProcessMemory(self.io.env)

    def _is_cancelled(self, group: int) -> bool:
        return self.stop.is_set() or not self.wanted(group)

    def attempt(self, run_one: RunTask, task: MergeTask) -> None:
        """Run a task in this thread, and report its outcome."""
        try:
            result = run_one(task)
            self.written[id(result)] = result
            self.events.put(_TaskEnded(result))
        except Cancelled:
            if not self.stop.is_set():
                self.events.put(_TaskEnded(stopped(task)))
        except Exception as error:  # noqa: BLE001 (whatever it is, only this task failed)
            self.events.put(_TaskEnded(failure(task, error)))
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            self.events.put(_Interrupted(error))

    def attempts(self, tasks: Iterable[MergeTask], opened: ExitStack) -> Iterator[tuple[RunTask, MergeTask]]:
        """Yield each task with the function that runs it. State shared by units is closed with `opened`."""
        group_rows = self.io.options.row_group_rows
        for unit in units(tasks, group_rows=group_rows, thresholds=self.thresholds):
            run_one: RunTask = self._run_task
            if len(unit) > 1:
                presorted = PresortedUnit(
                    self.io,
                    unit,
                    self._run_task,
                    self._memory,
                    thresholds=self.thresholds,
                    cancelled=partial(self._is_cancelled, unit[0].group),
                )
                run_one = opened.enter_context(presorted).run
            for task in unit:
                yield run_one, task

    def _run_task(self, task: MergeTask, portions: Sequence[Portion] | None = None) -> TaskResult:
        return run_task(
            self.io,
            task,
            threads=THREADS,
            hooks=Hooks(
                advance=lambda rows: self.events.put(_RowsMerged(rows)),
                cancelled=partial(self._is_cancelled, task.group),
            ),
            portions=portions,
            memory=self._memory,
            thresholds=self.thresholds,
        )
