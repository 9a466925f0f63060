"""Groups of a round, cut into merge tasks while earlier groups are merged."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from tblctl.merger.cutting.cuts import Cuts, CutTask, Output, tasks_of, whole_splits
from tblctl.merger.engines.engine import Engine, as_own
from tblctl.merger.round.balance import tasks_per_group
from tblctl.merger.round.group_run import GroupRun, covers
from tblctl.merger.round.others import OtherWriters
from tblctl.merger.task.spec import MergeTask
from tblctl.selector.plan import Group, Plan
from tblctl.tableformat.concurrency import ahead
from tblctl.tableformat.errors import InternalError, TblctlError
from tblctl.tableformat.model.cut import most_rows
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.port import BlockIO, TablePort, VersionT

LEAST_MEMORY_BYTES = 16 << 20
"""A task takes at least this much, even if given less: windows of a few rows would take hours."""

GROUPS_AHEAD = 2
"""Groups that this process cuts into tasks while others are merged; each may hold the keys of some blocks."""


class Cutter:
    """Cuts groups into tasks, while earlier ones are merged.

    The engine reads the keys, wherever it has processors for it. Deletes are looked up here, since only here is the
    version, and tasks are put together here.
    """

    def __init__(
        self,
        port: TablePort[VersionT],
        version: VersionT,
        io: BlockIO,
        *,
        plan: Plan,
        engine: Engine,
        others: OtherWriters[Any],
        groups_ahead: int,
    ) -> None:
        self._version, self._io, self._engine, self._others = version, io, engine, others
        self._new_run_id = port.env.new_run_id
        self._memory_bytes = max(LEAST_MEMORY_BYTES, plan.options.memory_bytes)
        self._groups_ahead = groups_ahead

    def tasks_of_each(
        self, runs: Sequence[GroupRun], title: str
    ) -> Generator[tuple[MergeTask, ...] | str, None, None]:
        """Yield the tasks of each group, in order; for a group without tasks, the reason."""
        described: deque[tuple[GroupRun, CutTask | str | None]] = deque()

        def to_cut() -> Iterator[CutTask]:
            for run, item in zip(runs, found, strict=True):
                described.append((run, item))
                if isinstance(item, CutTask):
                    yield item

        with (
            closing(ahead(self._described, self._to_describe(runs), threads=self._groups_ahead)) as found,
            closing(
                self._engine.cut(self._io, to_cut(), title=title, groups_ahead=self._groups_ahead)
            ) as all_cuts,
        ):
            for cuts in all_cuts:
                run, item = described.popleft()
                while not isinstance(item, CutTask):
                    yield item or ()
                    run, item = described.popleft()
                yield self._tasks(run, item, cuts)
            for _, item in described:
                yield "a bug: it was not cut; please report it" if isinstance(item, CutTask) else item or ()

    def _to_describe(self, runs: Sequence[GroupRun]) -> Iterator[tuple[GroupRun, Output, int]]:
        counts = tasks_per_group(
            [run.group.decoded_bytes for run in runs],
            most=[_most_blocks(run.group, self._version.options) for run in runs],
            parallelism=self._engine.parallelism,
        )
        outputs = [_output(run, self._new_run_id(), self._memory_bytes) for run in runs]
        return zip(runs, outputs, counts, strict=True)

    def _described(self, group: tuple[GroupRun, Output, int]) -> CutTask | str | None:
        """Return what is to be cut, without deleted rows: None if no row is left; or why that is unknown."""
        run, output, tasks = group
        if self._others.known_to_have_removed:
            at_once = min(self._engine.parallelism, _whole_row_groups(run, self._version.options))
            tasks = max(tasks, at_once)
        try:
            if not run.is_live:
                run.blocks, run.is_live = self._io.live(run.blocks), True
            splits = whole_splits(self._version, output.sort, run.blocks)
        except Exception as error:  # noqa: BLE001 (whatever it is, only this group fails)
            return str(as_own(error, f"planning the tasks of group {run.number}"))
        if not splits:
            return None
        return CutTask(group=run.number, splits=tuple(splits), output=output, tasks=tasks)

    def _tasks(self, run: GroupRun, task: CutTask, cuts: Cuts | TblctlError) -> tuple[MergeTask, ...] | str:
        """Return the tasks of a group, or why it has none."""
        if isinstance(cuts, TblctlError):
            return str(cuts)
        found = tasks_of(task, cuts, self._io.options)
        if not covers(found, run.blocks):
            return "a bug: its tasks do not take every row once; nothing was written, please report it"
        return found


def _output(run: GroupRun, run_id: str, memory_bytes: int) -> Output:
    if run.sort is None:
        raise InternalError(f"group {run.number} has no sort, and was not dropped")
    return Output(
        sort=run.sort,
        level=run.group.output_level,
        run_id=run_id,
        memory_bytes=memory_bytes,
        same_key_rows=run.group.same_key_rows,
    )


def _most_blocks(group: Group, options: TableOptions) -> int:
    """Return about how many output blocks a group has; each could be written by a task of its own."""
    return math.ceil(group.rows / most_rows(options, group.decoded_bytes / group.rows))


def _whole_row_groups(run: GroupRun, options: TableOptions) -> int:
    """Return how many tasks a group has if each takes about a row group of each block.

    With more tasks, row groups would be read and decoded by several of them.
    """
    row_groups = sum(math.ceil(block.stored_rows / options.row_group_rows) for block in run.blocks)
    return row_groups // max(1, len(run.blocks))
