"""The engine in this process: threads, since nearly all of a task runs outside the interpreter's lock."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event

from tblctl.merger.engines.engine import Advance, Done, failure
from tblctl.merger.engines.sorted_group import SortedGroup
from tblctl.merger.presort.decide import units
from tblctl.merger.presort.portions import Portion
from tblctl.merger.task.memory import Resident
from tblctl.merger.task.merge import THREADS, Cancelled, Hooks, run_task
from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult
from tblctl.tableformat.concurrency import cpu_threads
from tblctl.tableformat.port import BlockIO

Run = Callable[[MergeTask], TaskResult]


class LocalEngine:
    """Runs tasks in threads of this process; `tblctl.merger.engines.engine.Engine`."""

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
    for unit in units(tasks, group_rows=common.io.options.row_group_rows):
        run: Run = common.run
        if len(unit) > 1:
            group = SortedGroup(common.io, unit, common.run, common.resident, common.hooks.cancelled)
            run = opened.enter_context(group).run
        for task in unit:
            yield run, task
