"""What a round asks of an engine: run tasks, report each as it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tblctl.merger.task import MergeTask, TaskFailure, TaskResult
from tblctl.tableformat.port import BlockIO

Done = Callable[[TaskResult | TaskFailure], None]


class Engine(Protocol):
    """Runs merge tasks."""

    name: str  # "local" or "spark"

    @property
    def parallelism(self) -> int:
        """How many tasks it runs at once."""

    def run(self, io: BlockIO, tasks: Sequence[MergeTask], done: Done, *, title: str) -> None:
        """Run all tasks, largest first; call `done` once for each, from the calling thread, as it ends.

        A task that fails is reported, not raised, and the others go on. Raised is only what concerns them all: the
        session is gone, workers lack a library, the user interrupts. `title` names the work for people.
        """
