"""Task descriptions, each sent to a worker as the one item of a partition, so that a worker gets only its own.

A classic session has RDDs for that: they need no query plan. The first query of a new JVM takes two seconds more, most
of it to load Spark SQL. A Connect session has frames alone.

Rows of a plan are spread over the session's default number of partitions: one row each, unless there are more rows. A
Connect client does not know that number, and it changes as executors come and go. If it is too small, a shuffle
follows, which is a second Spark job. If a row's partition cannot be chosen, a third job before it looks at the numbers.
For two empty tasks on local[2], warm, the first way takes 0.09 s of the JVM's processor time, the second 0.13 s, and
the third 0.16 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tblctl.merger.engines.spark import workers

Work = Callable[[bytes], Iterable[bytes]]
"""What a task does: from the pickle of its description to pickles of its results."""


def results(session: Any, pickles: Sequence[bytes], work: Work) -> list[bytes]:
    """Run a task for each pickle on the session's workers; return all results, in the order of the pickles.

    Raises:
        EngineError: the session does not work.
        Exception: what Spark raises if it gives up the job.
    """
    if workers.is_connect(session):
        rows = one_each(session, pickles).mapInArrow(_of_batches(work), "number int, found binary").collect()
        return [
            row.found for row in sorted(rows, key=lambda row: row.number)
        ]  # stable: in order within a task
    found: list[bytes] = (
        session.sparkContext.parallelize(pickles, len(pickles)).mapPartitions(_of_items(work)).collect()
    )
    return found


def _of_items(work: Work) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """Return the function that Spark applies to a partition of an RDD."""

    def tblctl_task(
        items: Iterator[bytes],
    ) -> Iterator[bytes]:  # nested: pickled whole, and importable nowhere
        from tblctl.merger.engines.spark.on_worker import spare_zips

        for item in items:
            yield from work(item)
        spare_zips()

    return tblctl_task


def _of_batches(work: Work) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function that Spark applies to a partition of a frame."""

    def tblctl_task(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from tblctl.merger.engines.spark.on_worker import spare_zips

        for batch in batches:
            for number, item in zip(
                batch.column("number").to_pylist(), batch.column("task").to_pylist(), strict=True
            ):
                found = list(work(item))
                numbers = pa.array([number] * len(found), pa.int32())
                yield pa.record_batch({"number": numbers, "found": pa.array(found, pa.binary())})
        spare_zips()

    return tblctl_task


def one_each(session: Any, pickles: Sequence[bytes]) -> Any:
    """Return a frame with columns "number", counted from 0, and "task", the pickle: a row and a partition each.

    Raises:
        EngineError: the session does not work.
    """
    import pyarrow as pa

    count = len(pickles)
    numbers = pa.array(range(count), pa.int32())
    frame = session.createDataFrame(pa.table({"number": numbers, "task": pa.array(pickles, pa.binary())}))
    if not workers.is_connect(session) and count <= workers.parallelism(session):
        return frame
    if hasattr(frame, "repartitionById"):  # Spark 4.1
        return frame.repartitionById(count, "number")
    return frame.repartitionByRange(count, "number")  # as many ranges as numbers: one each
