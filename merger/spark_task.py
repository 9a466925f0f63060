"""What runs on Spark's workers: a task from its pickle, its outcome as a pickle. Nothing here needs pyspark."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from tblctl.merger.engine import failure
from tblctl.merger.run import THREADS, run_task
from tblctl.merger.task import MergeTask, TaskResult
from tblctl.tableformat.port import BlockIO

TaskFunction = Callable[[BlockIO, MergeTask], TaskResult]


def run(io: BlockIO, task: MergeTask) -> TaskResult:
    """Run a task as every engine does: a slot of an executor is one core, yet reads or writes while it computes."""
    return run_task(io, task, threads=THREADS)


def run_pickled(io: bytes, task: bytes, function: TaskFunction = run) -> bytes:
    """Run a task and return its `TaskResult`, or the `TaskFailure` of whatever it raised.

    A task that raised would make Spark run it again, and then give up the whole job.
    """
    what: MergeTask = pickle.loads(task)  # noqa: S301 (both pickles are the driver's)
    try:
        return pickle.dumps(function(pickle.loads(io), what))  # noqa: S301
    except Exception as error:  # noqa: BLE001 (whatever it is, only this task failed)
        return pickle.dumps(failure(what, error))
