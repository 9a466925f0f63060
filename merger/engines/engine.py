"""The interface of engines: run tasks, and report each when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from typing import Protocol

from tblctl.merger.cutting.cuts import Cuts, CutTask, find_cuts
from tblctl.merger.presort.decide import Thresholds
from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult
from tblctl.tableformat.errors import ConflictError, InternalError, TblctlError
from tblctl.tableformat.port import BlockIO

LOG = logging.getLogger("tblctl")

Done = Callable[[TaskResult | TaskFailure], None]
Advance = Callable[[int], None]
Wanted = Callable[[int], bool]


def always(_group: int) -> bool:
    """Every group stays wanted."""
    return True


class Engine(Protocol):
    """Runs merge tasks."""

    name: str  # "local" or "spark"
    thresholds: Thresholds  # groups are cut into tasks, and rows presorted, by these

    @property
    def parallelism(self) -> int:
        """How many tasks it runs at once."""

    def cut(
        self, io: BlockIO, groups: Iterable[CutTask], *, title: str, groups_ahead: int
    ) -> Generator[Cuts | TblctlError, None, None]:
        """Yield where each group is cut, in the given order, or why that cannot be found out: then it fails alone.

        Later groups are cut while earlier ones are merged: here `groups_ahead` of them, as many as it likes elsewhere.
        Groups are taken as late as that allows. `close` stops what runs. `title` names the work for people.
        """

    def run(
        self,
        io: BlockIO,
        tasks: Iterable[MergeTask],
        done: Done,
        *,
        title: str,
        advance: Advance | None = None,
        wanted: Wanted = always,
    ) -> None:
        """Run all tasks, in the given order. Call `done` once for each when it ends, in the calling thread.

        Making a task may take a while, so the engine takes the next tasks only when it has room for them, in the
        calling thread.

        An engine that can see into tasks calls `advance`, in the calling thread, with numbers of rows merged. They add
        up to all rows of the tasks that succeed.

        `wanted` tells whether the group of a number is still merged, in any thread. Where it is not, an engine that can
        stop tasks does so, and reports them as failed.

        A task that fails is reported, not raised, and the others go on. An error is raised only if it concerns all
        tasks: the session is gone, workers lack a library, the user interrupts, `done` raises. Then the blocks that
        tasks stored are deleted as far as possible, except those that were reported: the caller may have committed
        them. `title` names the work for people.
        """


def cuts_here(io: BlockIO, group: CutTask, thresholds: Thresholds) -> Cuts | TblctlError:
    """Find the cuts of a group in this process, or return why that is impossible."""
    try:
        return find_cuts(io, group, thresholds)
    except Exception as error:  # noqa: BLE001 (whatever it is, only this group fails)
        return as_own(error, group.title)


def renewed(io: BlockIO) -> bool:
    """Ask for fresh credentials; return whether there are any. If nobody can be asked, a warning is logged."""
    try:
        return io.renew()
    except TblctlError as error:
        LOG.warning("credentials of the storage cannot be renewed: %s", error)
        return False


def failure(task: MergeTask, error: Exception) -> TaskFailure:
    """Return an engine's report of a task that raised `error`."""
    own = as_own(error, task.title)
    return TaskFailure(group=task.group, number=task.number, error=own)


def stopped(task: MergeTask) -> TaskFailure:
    """Return an engine's report of a task that it stopped, since its group is not wanted any more."""
    error = ConflictError(f"{task.title} was stopped: its group is not merged any more")
    return TaskFailure(group=task.group, number=task.number, error=error)


def as_own(error: Exception, what: str) -> TblctlError:
    """Return an error as a tblctl error. An error of another library gets a message that `what` failed."""
    if isinstance(error, TblctlError):
        return error
    text = f"{type(error).__name__}: {error}"[:500]
    return InternalError(f"{what} failed: {text}")
