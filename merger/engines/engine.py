"""What a round asks of an engine: run tasks, report each as it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from tblctl.merger.presort.decide import Thresholds
from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult
from tblctl.tableformat.errors import InternalError, TblctlError
from tblctl.tableformat.port import BlockIO

Done = Callable[[TaskResult | TaskFailure], None]
Advance = Callable[[int], None]


class Engine(Protocol):
    """Runs merge tasks."""

    name: str  # "local" or "spark"
    thresholds: Thresholds  # groups are cut into tasks, and rows presorted, by these

    @property
    def parallelism(self) -> int:
        """How many tasks it runs at once."""

    def run(
        self,
        io: BlockIO,
        tasks: Iterable[MergeTask],
        done: Done,
        *,
        title: str,
        advance: Advance | None = None,
    ) -> None:
        """Run all tasks, in the order given; call `done` once for each, from the calling thread, as it ends.

        Planning a task may take a while: the next ones are asked for, from the calling thread too, when there is room.

        Where it can, `advance` is called from the same thread with numbers of rows merged, which add up to all rows
        of the tasks that succeed.

        A task that fails is reported, not raised, and the others go on. Raised is only what concerns them all: the
        session is gone, workers lack a library, the user interrupts, `done` raises. Then what tasks stored is deleted
        as far as possible, except what was reported: that is the caller's, who may have committed it. `title` names
        the work for people.
        """


def failure(task: MergeTask, error: Exception) -> TaskFailure:
    """Return what an engine reports of a task that raised `error`."""
    own = as_own(error, task.title)
    return TaskFailure(group=task.group, number=task.number, error=own)


def as_own(error: Exception, what: str) -> TblctlError:
    """Return an error as one of this package; one of another library then names `what` failed."""
    if isinstance(error, TblctlError):
        return error
    text = f"{type(error).__name__}: {error}"[:500]
    return InternalError(f"{what} failed: {text}")
