"""The frame of a job whose rows are sorted beforehand: Spark's own shuffle carries the portions.

A frame of sort tasks, a row and a partition each, becomes rows of portions: the number of the merge task, the portion's
metadata, and its rows as Arrow IPC, lz4. These, and a row for each share of merge tasks, go to one partition for each
share. Compressed, a gigabyte of lineitem's rows is 420 MB, and Spark takes 0.6x the time of uncompressed rows.

A worker gets at most 64 MiB at a time (Spark 4.0: without a limit). Portions that exceed the task's budget go to the
worker's spill folder. If Spark repeats a sort task, only one attempt's rows arrive.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tblctl.merger.engines.spark.frame import one_each
from tblctl.merger.engines.spark.on_worker import TaskFunction, WorkerSetup
from tblctl.merger.presort.sort_tasks import SortTask
from tblctl.merger.task.spec import MergeTask

_COLUMNS = "task int, what binary, content binary"


def sorted_and_merged(
    session: Any,
    setup: WorkerSetup,
    shares: Sequence[tuple[MergeTask, ...]],
    sorts: Sequence[SortTask],
    function: TaskFunction,
) -> Any:
    """Return the frame of the outcomes of a job's merge tasks: column "outcome", as from `on_worker.run_pickled`.

    Args:
        session: pyspark's.
        setup: for the workers.
        shares: the merge tasks, as for `run_pickled`.
        sorts: the sort tasks, for merge tasks that are each a share of their own.
        function: runs a merge task.
    """
    import pyarrow as pa

    numbers = {(task.group, task.number): number for number, share in enumerate(shares) for task in share}
    pickles = [
        pickle.dumps((sort, {item.task: numbers[sort.group, item.task] for item in sort.ranges}))
        for sort in sorts
    ]
    merging = pa.table(
        {
            "task": pa.array(range(len(shares)), pa.int32()),
            "what": pa.array([pickle.dumps(share) for share in shares], pa.binary()),
            "content": pa.nulls(len(shares), pa.binary()),
        }
    )
    pickled = pickle.dumps(setup)
    portions = one_each(session, pickles).mapInArrow(_sorter(pickled), _COLUMNS)
    rows = portions.union(session.createDataFrame(merging))
    if hasattr(rows, "repartitionById"):  # Spark 4.1
        together = rows.repartitionById(len(shares), "task")
    else:  # some partitions get two tasks, some none
        together = rows.repartition(len(shares), "task")
    held_bytes = shares[0][0].memory_bytes // setup.thresholds.held_divisor
    return together.mapInArrow(_merger(pickled, held_bytes, function), "outcome binary")


def _sorter(setup: bytes) -> Callable[[Any], Any]:
    """Return the function that Spark applies to a partition: batches of sort tasks in, rows of portions out."""

    def tblctl_sort(batches: Iterator[Any]) -> Iterator[Any]:  # nested: pickled whole, and importable nowhere
        import pyarrow as pa

        from tblctl.merger.engines.spark.on_worker import sort_pickled, spare_zips

        for batch in batches:
            for sort in batch.column("task").to_pylist():
                for task, what, content in sort_pickled(setup, sort):
                    ends = pa.array([0, content.size], pa.int32()).buffers()[1]
                    yield pa.record_batch(
                        {
                            "task": pa.array([task], pa.int32()),
                            "what": pa.array([what], pa.binary()),
                            "content": pa.Array.from_buffers(pa.binary(), 1, [None, ends, content]),
                        }
                    )
        spare_zips()

    return tblctl_sort


def _merger(setup: bytes, held_bytes: int, function: TaskFunction) -> Callable[[Any], Any]:
    """Return the function that Spark applies to a partition: batches of portions and shares in, outcomes out."""

    def tblctl_merge(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from tblctl.merger.engines.spark.on_worker import merge_pickled, spare_zips

        rows = (
            (task.as_py(), what.as_py(), content.as_buffer())
            for batch in batches
            for task, what, content in zip(*batch.columns, strict=True)
        )
        for outcome in merge_pickled(setup, rows, held_bytes, function):
            yield pa.record_batch({"outcome": pa.array([outcome], pa.binary())})
        spare_zips()

    return tblctl_merge
