"""The engine in this process: threads, since nearly all of a task runs outside the interpreter's lock."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from tblctl.merger.engine import Advance, Done, failure
from tblctl.merger.run import THREADS, Cancelled, Hooks, run_task
from tblctl.merger.task import MergeTask, TaskFailure, TaskResult
from tblctl.tableformat.concurrency import cpu_threads
from tblctl.tableformat.port import BlockIO


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
        waiting = iter(tasks)

        def work(task: MergeTask) -> None:
            try:
                result = run_task(io, task, threads=THREADS, hooks=hooks)
                written[id(result)] = result
                news.put(result)
            except Cancelled:
                pass
            except Exception as error:  # noqa: BLE001 (whatever it is, only this task failed)
                news.put(failure(task, error))
            except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
                news.put(error)

        with ThreadPoolExecutor(at_once, thread_name_prefix="tblctl") as pool:
            try:
                running = 0
                while True:
                    for task in itertools.islice(waiting, at_once - running):
                        pool.submit(work, task)
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
