"""Merge tasks that merge nothing: a function passed to the engine defines what they do on a worker."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from tblctl.merger.engines.spark.engine import SparkEngine, TaskFunction
from tblctl.merger.presort.decide import THRESHOLDS, Thresholds
from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult
from tblctl.spark.code import CODE
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.options import TableOptions

ROWS = 7


def task(group: int, number: int = 0) -> MergeTask:
    return MergeTask(
        group=group,
        number=number,
        presorted_tasks=0,
        splits=(),
        cuts=(ROWS,),
        slack=(),
        sort=Sort(id=1, terms=(Term(column_id=1),)),
        level=1,
        run_id="run",
        memory_bytes=1 << 20,
    )


class ToyIO(SimpleNamespace):
    """A fake `BlockIO` for tasks. `discarded` has the paths that the engine wanted to delete."""

    discarded: frozenset[str] = frozenset()

    def discard(self, paths: Iterable[str]) -> None:
        self.discarded |= set(paths)

    def __reduce__(self) -> tuple[Any, ...]:  # workers do not have this module
        return SimpleNamespace, (), vars(self)


def block_io(**more: Any) -> Any:
    return ToyIO(env=SYSTEM, options=TableOptions(), **more)


def _make_result() -> TaskFunction:
    def result(io: Any, what: MergeTask, **more: Any) -> TaskResult:  # nested: reaches workers by value
        from tblctl.merger.task.spec import TaskResult

        figures = (
            dict(records=(), rows_copied=0, bytes_read=0, bytes_written=0, wall_seconds=0.0, cpu_seconds=0.0)
            | more
        )
        return TaskResult(group=what.group, number=what.number, rows=what.rows, **figures)

    return result


result = _make_result()
"""A task function that does nothing; others call it with the figures that they want to report."""


def outcomes_of(
    session: Any,
    tasks: list[MergeTask],
    function: TaskFunction,
    *,
    thresholds: Thresholds = THRESHOLDS,
    **more: Any,
) -> dict[tuple[int, int], TaskResult | TaskFailure]:
    """Run tasks and return their outcomes by group and number, each reported exactly once."""
    found: list[TaskResult | TaskFailure] = []
    SparkEngine(session, CODE, function=function, thresholds=thresholds).run(
        more.pop("io", block_io()), tasks, found.append, title="toys", **more
    )
    by_task = {(outcome.group, outcome.number): outcome for outcome in found}
    assert len(by_task) == len(found)
    return by_task
