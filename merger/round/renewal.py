"""Run tasks again that the storage denied, with fresh credentials: those that a catalog vends expire.

Credentials travel to a worker with its task, and a worker can ask nobody for others. An engine ships those of the
moment with each of its jobs, and they are good for some minutes at least. A task that takes longer, or waits longer for
a processor, is denied. Only the driver can renew them; so it does, and runs such tasks again after the others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from tblctl.merger.engines.engine import Advance, Done, Engine, Wanted, always, renewed, stopped
from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult
from tblctl.tableformat.errors import AccessDeniedError
from tblctl.tableformat.port import BlockIO

LOG = logging.getLogger("tblctl")

_TRIES = 3
"""A right that is really lacking was found out before the merge, so few tries go to waste."""


def run_renewed(
    engine: Engine,
    io: BlockIO,
    tasks: Iterable[MergeTask],
    done: Done,
    *,
    title: str,
    advance: Advance | None = None,
    wanted: Wanted = always,
) -> None:
    """As `Engine.run`, but tasks that were denied run again, where credentials can be renewed; twice at most.

    Those of groups that are not wanted any more are stopped instead.
    """
    for tries_left in reversed(range(_TRIES)):
        watched = _Watched(io, done, may_repeat=tries_left > 0)
        engine.run(io, watched.given(tasks), watched.report, title=title, advance=advance, wanted=wanted)
        if not watched.denied:
            return
        again = [task for task in watched.denied if wanted(task.group)]
        for task in watched.denied:
            if not wanted(task.group):
                done(stopped(task))
        if not again:
            return
        LOG.info("%d tasks were denied access, and run again with fresh credentials", len(again))
        tasks = again
        renewed(io)  # the last time may be long ago


class _Watched:
    """Reports outcomes, but keeps back tasks that were denied if there are fresh credentials."""

    def __init__(self, io: BlockIO, done: Done, *, may_repeat: bool) -> None:
        self.denied: list[MergeTask] = []
        self._io = io
        self._done = done
        self._may_repeat = may_repeat
        self._renewed = False
        self._running: dict[tuple[int, int], MergeTask] = {}

    def given(self, tasks: Iterable[MergeTask]) -> Iterator[MergeTask]:
        """Yield the tasks, and take note of them."""
        for task in tasks:
            self._running[task.group, task.number] = task
            yield task

    def report(self, outcome: TaskResult | TaskFailure) -> None:
        """Report an outcome, or keep its task back."""
        task = self._running.pop((outcome.group, outcome.number), None)  # None: it was reported before
        if (
            task is not None
            and self._may_repeat
            and isinstance(outcome, TaskFailure)
            and isinstance(outcome.error, AccessDeniedError)
            and self._renews()
        ):
            self.denied.append(task)
        else:
            self._done(outcome)

    def _renews(self) -> bool:
        """Renew credentials at the first denial: the tasks of a job are denied together."""
        self._renewed = self._renewed or renewed(self._io)
        return self._renewed
