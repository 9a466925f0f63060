"""Run the sort tasks of neighbouring merge tasks in one process, and keep their portions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tblctl.merger.presort.decide import THRESHOLDS, Thresholds
from tblctl.merger.presort.portions import GiveBack, Portion, keep_free_pages, pieces, sorted_portions
from tblctl.merger.presort.sort_tasks import SortTask, sort_tasks
from tblctl.merger.presort.spill import SpillFolder
from tblctl.merger.task.spec import MergeTask
from tblctl.tableformat.port import BlockIO

Portions = list[tuple[int, Portion]]
"""The portions of a sort task, each with the number of the merge task that takes it."""

MapAll = Callable[[Callable[[SortTask], Portions], Iterable[SortTask]], Iterable[Portions]]
"""Calls a function with every sort task, several at once, and returns the results in order."""


class Presorter:
    """Runs the sort tasks of neighbouring merge tasks of a group.

    Small portions stay in memory, others go to the spill folder.

    Attributes:
        sort_tasks: the sort tasks, each independent of the others.
    """

    def __init__(
        self,
        io: BlockIO,
        tasks: Sequence[MergeTask],
        folder: SpillFolder,
        give_back: GiveBack = keep_free_pages,
        thresholds: Thresholds = THRESHOLDS,
    ) -> None:
        self.sort_tasks = sort_tasks(tasks, thresholds)
        self._io = io
        self._tasks = tasks
        self._folder = folder
        self._give_back = give_back
        self._thresholds = thresholds
        held_bytes = sum(task.presorted_bytes for task in tasks)
        self._spills = held_bytes > tasks[0].memory_bytes // thresholds.held_divisor

    def sort(self, task: SortTask) -> Portions:
        """Run one of the sort tasks. Threads may run several."""
        found = []
        for number, portion in sorted_portions(self._io, task, self._give_back, self._thresholds):
            found.append((number, self._kept(task, portion)))
            del portion  # it refers to all rows of its run
            self._give_back()
        return found

    def _kept(self, task: SortTask, portion: Portion) -> Portion:
        if not self._spills:
            return portion
        return replace(portion, content=self._folder.write(pieces(portion, task, self._io.schema)))

    def by_task(self, found: Iterable[Portions]) -> dict[int, list[Portion]]:
        """Return the portions of each merge task, by its number."""
        portions_of: dict[int, list[Portion]] = {task.number: [] for task in self._tasks}
        for some in found:
            for number, portion in some:
                portions_of[number].append(portion)
        return portions_of


def presort(
    io: BlockIO,
    tasks: Sequence[MergeTask],
    folder: SpillFolder,
    map_all: MapAll,
    *,
    give_back: GiveBack = keep_free_pages,
    thresholds: Thresholds = THRESHOLDS,
) -> dict[int, list[Portion]]:
    """Sort the rows of tasks; return the portions of each task, by its number."""
    presorter = Presorter(io, tasks, folder, give_back, thresholds)
    return presorter.by_task(map_all(presorter.sort, presorter.sort_tasks))
