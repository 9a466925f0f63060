"""Writers in processes of their own: they must be importable by a fresh interpreter."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

APPENDS_BEFORE_DELETE = 4  # every fifth operation deletes what the one before it appended


def write_and_delete(url: str, options: dict[str, Any], worker: int, operations: int) -> int:
    """Run `operations` appends and deletes, and return the worst number of attempts that one took.

    Operation n appends the ids worker * 10,000 + 2n and + 1; every fifth deletes one id of each append since.
    """
    import pyarrow as pa

    import tblctl

    table = tblctl.open(url, storage_options=options)
    most = 0
    for number in range(operations):
        first = worker * 10_000 + 2 * number
        if number % (APPENDS_BEFORE_DELETE + 1) < APPENDS_BEFORE_DELETE:
            data = pa.table({"id": [first, first + 1], "v": ["a", "b"]}, schema=table.schema)
            outcome = table.append(data)
            assert outcome.rows_added == 2
        else:
            gone = [first - 2 * back for back in range(1, APPENDS_BEFORE_DELETE + 1)]
            outcome = table.delete(f"id in ({', '.join(map(str, gone))})")
            assert outcome.rows_removed == APPENDS_BEFORE_DELETE
        most = max(most, outcome.attempts)
    return most


def expected_ids(workers: int, operations: int) -> list[int]:
    """Return what is left when all workers are done."""
    found = []
    for worker in range(workers):
        for number in range(operations):
            if number % (APPENDS_BEFORE_DELETE + 1) < APPENDS_BEFORE_DELETE:
                first = worker * 10_000 + 2 * number
                deleted = number + APPENDS_BEFORE_DELETE - number % (APPENDS_BEFORE_DELETE + 1) < operations
                found += [first + 1] if deleted else [first, first + 1]
    return sorted(found)


def run_writers(
    url: str, options: dict[str, Any], *, workers: int, operations: int
) -> tuple[float, list[int]]:
    """Run the workers in fresh processes at once; return the seconds it took and each one's worst attempts.

    They are forks of a process that has done nothing but import what they all need.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pyarrow", "s3fs", "tblctl"])
    started = time.monotonic()
    with context.Pool(workers) as pool:
        jobs = [(url, options, worker, operations) for worker in range(workers)]
        return_value = pool.starmap_async(write_and_delete, jobs, chunksize=1).get(500)
    return time.monotonic() - started, return_value
