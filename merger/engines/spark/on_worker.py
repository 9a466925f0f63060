"""What runs on Spark's workers: tasks from their pickles, outcomes as pickles. Nothing here needs pyspark.

A task that raised would make Spark run it again, and then give up the whole job: failures are outcomes too.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from zipimport import zipimporter

import pyarrow as pa

from tblctl.merger.engines.engine import as_own, failure
from tblctl.merger.engines.sorted_group import SortedGroup
from tblctl.merger.presort.decide import SORT_SHARE, SortTask
from tblctl.merger.presort.portions import HELD_SHARE, Portion, pieces, portions
from tblctl.merger.presort.spill import Pieces, Scratch
from tblctl.merger.task.memory import Resident
from tblctl.merger.task.merge import THREADS, run_task
from tblctl.merger.task.spec import MergeTask, TaskResult
from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.port import BlockIO

TaskFunction = Callable[..., TaskResult]
"""Called with the BlockIO, the task, its portions if blocks were sorted for it beforehand, and the `resident` memory
if tasks share it."""


def run(
    io: BlockIO,
    task: MergeTask,
    sorted_beforehand: list[Portion] | None = None,
    resident: Resident | None = None,
) -> TaskResult:
    """Run a task as every engine does: a slot of an executor is one core, yet reads or writes while it computes."""
    return run_task(io, task, threads=THREADS, portions=sorted_beforehand, resident=resident)


def run_pickled(io: bytes, tasks: bytes, function: TaskFunction = run) -> Iterator[bytes]:
    """Run a task, or neighbours in a group whose rows are sorted together once.

    Yields:
        The pickle of each one's `TaskResult`, or of the `TaskFailure` of whatever it raised.
    """
    return _outcomes(io, pickle.loads(tasks), function)  # noqa: S301 (both pickles are the driver's)


def _outcomes(
    io: bytes, tasks: Sequence[MergeTask], function: TaskFunction, *sorted_beforehand: list[Portion]
) -> Iterator[bytes]:
    with ExitStack() as opened:
        run_one: Callable[..., TaskResult] | None = None
        for task in tasks:
            try:
                run_one = run_one or _runner(pickle.loads(io), tasks, function, opened)  # noqa: S301
                outcome = pickle.dumps(run_one(task, *sorted_beforehand), protocol=5)
            except Exception as error:  # noqa: BLE001 (whatever it is, only this task failed)
                outcome = pickle.dumps(failure(task, error))
            yield outcome


def _runner(
    io: BlockIO, tasks: Sequence[MergeTask], function: TaskFunction, opened: ExitStack
) -> Callable[..., TaskResult]:
    if len(tasks) == 1:
        return partial(function, io)
    resident = Resident(io.env)
    run_sorted = partial(function, io, resident=resident)
    return opened.enter_context(SortedGroup(io, tasks, run_sorted, resident)).run


def sort_pickled(io: bytes, sort: bytes) -> Iterator[tuple[int, bytes, pa.Buffer]]:
    """Run a sort task, given with a number in the job for each merge task that takes rows.

    Yields:
        The number of a merge task; the pickle of a `Portion`; and its rows, which that pickle lacks. If something is
        raised, its error for each merge task instead, and no rows.
    """
    task: SortTask
    task, numbers = pickle.loads(sort)  # noqa: S301 (both pickles are the driver's)
    try:
        opened: BlockIO = pickle.loads(io)  # noqa: S301
        resident = Resident(opened.env)
        with resident.task(task.sort_bytes * SORT_SHARE):
            for taker, portion in portions(opened, task, resident.bound):
                content = Pieces.packed(pieces(portion, task, opened.schema), compression="lz4")
                rows: list[pickle.PickleBuffer] = []
                what = pickle.dumps(
                    replace(portion, content=content), protocol=5, buffer_callback=rows.append
                )
                del portion  # which has all rows that were sorted with its own
                yield numbers[taker], what, pa.py_buffer(rows[0].raw())
                resident.bound()
    except Exception as error:  # noqa: BLE001 (whatever it is, only these tasks fail)
        what = pickle.dumps(as_own(error, task.title))
        for number in numbers.values():
            yield number, what, pa.py_buffer(b"")


def merge_pickled(
    io: bytes,
    rows: Iterable[tuple[int, bytes, pa.Buffer | None]],
    memory_bytes: int,
    function: TaskFunction = run,
) -> Iterator[bytes]:
    """Yield the outcomes of merge tasks, given as `run_pickled` gets them, and what `sort_pickled` yielded for one.

    Both come in any order, with numbers that tell what belongs together.
    Portions stay in memory up to a part of `memory_bytes`; the others go to the scratch folder as they are.
    """
    with Scratch() as scratch:
        tasks: dict[int, tuple[MergeTask, ...]] = {}
        found: dict[int, list[Portion]] = {}
        failed: dict[int, Exception] = {}
        held_bytes = 0
        for number, pickled, content in rows:
            what = pickle.loads(pickled, buffers=[] if content is None else [content])  # noqa: S301 (both are ours)
            if isinstance(what, tuple):
                tasks[number] = what
            elif isinstance(what, TblctlError):
                failed[number] = what
            elif number not in failed and content is not None:
                held_bytes += content.size
                try:
                    if held_bytes > memory_bytes // HELD_SHARE:
                        what = replace(what, content=scratch.keep(what.content))
                        held_bytes -= content.size
                    found.setdefault(number, []).append(what)
                except TblctlError as error:
                    failed[number] = error
        for number, some in tasks.items():
            if number in failed:
                yield from (pickle.dumps(failure(task, failed[number])) for task in some)
            else:
                yield from _outcomes(io, some, function, *([found.pop(number)] if number in found else []))


def spare_zips() -> None:
    """Save this worker's next task 0.09 s of processor time, which Spark would spend on reading zips again.

    Spark invalidates the import system's caches before every task. Python 3.11 then reads a zip once for each folder of
    it that something was imported from: 14 times Spark's own Python files, and a jar. Forgotten finders come back when
    something is looked for that is not loaded, and know what was read.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)
