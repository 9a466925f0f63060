"""The code that runs on Spark's workers: pickled tasks in, pickled outcomes out. Nothing here needs pyspark.

If a task raised, Spark would run it again, and then give up the whole job. So failures are returned as outcomes.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zipimport import zipimporter

import pyarrow as pa

from tblctl.merger.cutting.cuts import Cuts, CutTask
from tblctl.merger.engines.engine import as_own, cuts_here, failure
from tblctl.merger.engines.presorted_unit import PresortedUnit
from tblctl.merger.presort.decide import Thresholds
from tblctl.merger.presort.portions import Portion, pieces, sorted_portions
from tblctl.merger.presort.sort_tasks import SortTask
from tblctl.merger.presort.spill import Pieces, SpillFolder
from tblctl.merger.task.memory import ProcessMemory
from tblctl.merger.task.merge import THREADS, run_task
from tblctl.merger.task.spec import MergeTask, TaskResult
from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.port import BlockIO

TaskFunction = Callable[..., TaskResult]
"""Called with the `BlockIO` and the task; and by name with its `portions`, if they were sorted beforehand, and the
`memory` of the process, if tasks share it."""


@dataclass(frozen=True, kw_only=True)
class WorkerSetup:
    """Values that every task of a run needs on its worker.

    Attributes:
        io: of the table; it holds secrets.
        thresholds: of the engine.
    """

    io: BlockIO
    thresholds: Thresholds


def run(io: BlockIO, task: MergeTask, **more: Any) -> TaskResult:
    """Run a task with the usual threads: an executor's slot is one core, but it can read or write while it computes."""
    return run_task(io, task, threads=THREADS, **more)


def cut_pickled(setup: bytes, group: bytes) -> bytes:
    """Find the cuts of a group, given the pickles of a `WorkerSetup` and a `CutTask`.

    Returns:
        The pickle of its `Cuts`, or of the error if that is impossible.
    """
    task: CutTask = pickle.loads(group)  # noqa: S301 (both pickles are the driver's)
    found: Cuts | TblctlError
    try:
        opened: WorkerSetup = pickle.loads(setup)  # noqa: S301
        found = cuts_here(opened.io, task, opened.thresholds)
    except Exception as error:  # noqa: BLE001 (the worker lacks something: no group can be cut on it)
        found = as_own(error, task.title)
    return pickle.dumps(found, protocol=5)


def run_pickled(setup: bytes, share: bytes, function: TaskFunction = run) -> Iterator[bytes]:
    """Run a share of tasks: one, or neighbouring tasks of a unit that sort their rows together.

    Yields:
        For each task the pickle of its `TaskResult`, or of the `TaskFailure` if it raised.
    """
    return _outcomes(setup, pickle.loads(share), function)  # noqa: S301 (both pickles are the driver's)


def _outcomes(
    setup: bytes,
    share: Sequence[MergeTask],
    function: TaskFunction,
    portions: Sequence[Portion] | None = None,
) -> Iterator[bytes]:
    with ExitStack() as opened:
        run_one: Callable[[MergeTask], TaskResult] | None = None
        for task in share:
            try:
                run_one = run_one or _runner(setup, share, function, portions, opened)
                outcome = pickle.dumps(run_one(task), protocol=5)
            except Exception as error:  # noqa: BLE001 (whatever it is, only this task failed)
                outcome = pickle.dumps(failure(task, error))
            yield outcome


def _runner(
    pickled: bytes,
    share: Sequence[MergeTask],
    function: TaskFunction,
    portions: Sequence[Portion] | None,
    opened: ExitStack,
) -> Callable[[MergeTask], TaskResult]:
    """Return the function that runs each task of a share."""
    setup: WorkerSetup = pickle.loads(pickled)  # noqa: S301 (the driver's)
    run_one = partial(function, setup.io)
    if len(share) == 1:
        return run_one if portions is None else partial(run_one, portions=portions)
    memory = ProcessMemory(setup.io.env)

    def run_presorted(task: MergeTask, portions: Sequence[Portion]) -> TaskResult:
        return run_one(task, portions=portions, memory=memory)

    unit = PresortedUnit(setup.io, share, run_presorted, memory, thresholds=setup.thresholds)
    return opened.enter_context(unit).run


def sort_pickled(setup: bytes, sort: bytes) -> Iterator[tuple[int, bytes, pa.Buffer]]:
    """Run a sort task. Its pickle also has the number in the job of each merge task that takes rows.

    Yields:
        The number of a merge task, the pickle of a `Portion` without its rows, and the rows. After an error, the error
        for each merge task instead, and no rows.
    """
    task: SortTask
    task, numbers = pickle.loads(sort)  # noqa: S301 (both pickles are the driver's)
    try:
        opened: WorkerSetup = pickle.loads(setup)  # noqa: S301
        io, thresholds = opened.io, opened.thresholds
        memory = ProcessMemory(io.env)
        with memory.task(task.sort_bytes * thresholds.sort_divisor):
            for taker, portion in sorted_portions(io, task, memory.give_back, thresholds):
                content = Pieces.packed(pieces(portion, task, io.schema), compression="lz4")
                rows: list[pickle.PickleBuffer] = []
                what = pickle.dumps(
                    replace(portion, content=content), protocol=5, buffer_callback=rows.append
                )
                del portion  # it refers to all rows of its run
                yield numbers[taker], what, pa.py_buffer(rows[0].raw())
                memory.give_back()
    except Exception as error:  # noqa: BLE001 (whatever it is, only these tasks fail)
        what = pickle.dumps(as_own(error, task.title))
        for number in numbers.values():
            yield number, what, pa.py_buffer(b"")


def merge_pickled(
    setup: bytes,
    rows: Iterable[tuple[int, bytes, pa.Buffer | None]],
    held_bytes: int,
    function: TaskFunction = run,
) -> Iterator[bytes]:
    """Run shares of tasks whose portions Spark's shuffle brings.

    Args:
        setup: the pickle of a `WorkerSetup`.
        rows: shares as for `run_pickled`, and the results of `sort_pickled` for them, in any order. Equal numbers
            belong together.
        held_bytes: bytes of portions that may stay in memory; other portions go unchanged to the spill folder.
        function: runs a task.

    Yields:
        The outcomes, as `run_pickled` does.
    """
    with SpillFolder() as folder:
        shares: dict[int, tuple[MergeTask, ...]] = {}
        found: dict[int, list[Portion]] = {}
        failed: dict[int, Exception] = {}
        free_bytes = held_bytes
        for number, pickled, content in rows:
            what = pickle.loads(pickled, buffers=[] if content is None else [content])  # noqa: S301 (both are ours)
            if isinstance(what, tuple):
                shares[number] = what
            elif isinstance(what, TblctlError):
                failed[number] = what
            elif number not in failed and content is not None:
                try:
                    if content.size > free_bytes:
                        what = replace(what, content=folder.keep(what.content))
                    else:
                        free_bytes -= content.size
                    found.setdefault(number, []).append(what)
                except TblctlError as error:
                    failed[number] = error
        for number, share in shares.items():
            if number in failed:
                yield from (pickle.dumps(failure(task, failed[number])) for task in share)
            else:
                yield from _outcomes(setup, share, function, found.pop(number, None))


def spare_zips() -> None:
    """Save this worker's next task 0.09 s of processor time, which Spark would spend on reading zips again.

    Spark invalidates the import system's caches before every task. Python 3.11 then reads a zip again for each of its
    folders that was imported from: 14 times for Spark's own Python files, and a jar. Removed finders are made again
    when a module is searched that is not loaded, and then share what was read.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)
