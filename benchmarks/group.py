"""Merge lineitem as one group, from sorted and unsorted blocks, in this process and on executors of 1 GiB.

    python -m benchmarks.group --scale 10     60 million rows; takes a disk of 30 GB
    python -m benchmarks.group --memory 512 --no-cluster

A fresh process merges, verifies and commits. Its peak memory is the kernel's (`VmHWM`), less what it had before the
merge. In this process two processors run two tasks at once. On a cluster the figure is that of the driver; the memory
of Spark's Python workers, loaded libraries included, is sampled twice a second, and drawn in `group.svg`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import tblctl
from benchmarks.common import RESULTS, Report, lineitem, main, resident_mib, scratch
from benchmarks.memory import CONSTANT_MIB, KEY, Points, draw, make_table
from tblctl.merger.engines.local import LocalEngine

CLUSTER = "local-cluster[2,1,1024]"  # two executors of one core and 1,024 MiB
LIBRARIES_MIB = 256  # of a worker, as docs/spark.md counts them
BLOCK_ROWS = 100_000


class Merged(NamedTuple):
    """Time and memory of a merge."""

    seconds: float
    peak_mib: float
    worker_mib: float
    blocks: int


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", default="1", help="TPC-H's scale factor")
    parser.add_argument("--memory", default="256,512,1024", help="of a task, MiB, with commas between")
    parser.add_argument("--no-cluster", action="store_true", help="only in this process")


def measure(report: Report, tiny: bool, *, scale: str, memory: str, no_cluster: bool) -> None:
    scale = "0.01" if tiny else scale
    budgets = [int(text) for text in memory.split(",")][: 1 if tiny else None]
    masters = [None] if no_cluster or tiny else [None, CLUSTER]
    workers: Points = {}
    for key in (KEY, None):
        order = "sorted" if key else "not sorted"
        with scratch() as folder:
            table = make_table(folder / "table", lineitem(scale), 1_000 if tiny else BLOCK_ROWS, key=key)
            if key is None:
                table.set_cluster_key(KEY)
            for budget_mib in budgets:
                for master in masters:
                    found = measure_merge(report, table, master, budget_mib, order)
                    if master:
                        title = f"{table.snapshot.rows:,} rows, {order}"
                        workers.setdefault(title, []).append((budget_mib, found.worker_mib))
    if workers:
        draw(
            workers,
            RESULTS / "group.svg",
            what="peak resident size of a Spark worker, MiB",
            more_mib=CONSTANT_MIB + LIBRARIES_MIB,
        )
        report.line("\nworkers as a picture: group.svg")


def measure_merge(
    report: Report, table: tblctl.Table, master: str | None, budget_mib: int, order: str
) -> Merged:
    """Merge all blocks, and roll the table back."""
    rows, blocks, before = table.snapshot.rows, table.snapshot.blocks, table.snapshot.sequence
    where = master or "in this process"
    report.begin(f"{rows:,} rows in {blocks} blocks, {order}, {where}, {budget_mib} MiB a task")
    found = in_new_process(table.location, master, budget_mib)
    report.figure("merged, verified and committed", found.seconds, "s")
    report.figure("rows a second", rows / found.seconds, "")
    report.figure("blocks after it", found.blocks, "")
    task_mib = budget_mib + CONSTANT_MIB
    most = None if master else (LocalEngine().parallelism + 1) * task_mib
    report.figure("peak of the process that called it", found.peak_mib, "MiB", most=most)
    if master:
        report.figure("peak of a worker", found.worker_mib, "MiB", most=task_mib + LIBRARIES_MIB)
    table.rollback(before)
    return found


def in_new_process(location: str, master: str | None, budget_mib: int) -> Merged:
    """Merge all blocks of a table in a process that has done nothing else."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_merge, args=(theirs, location, master, budget_mib))
    process.start()
    theirs.close()
    try:
        return mine.recv()
    finally:
        process.join()


def _merge(end: Connection, location: str, master: str | None, budget_mib: int) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    table = tblctl.open(location)
    rows = table.snapshot.rows
    baseline = resident_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    how = {"engine": "local"} if master is None else {"spark": lambda: tblctl.spark_session(master=master)}
    with watched_workers() as peaks:
        started = time.perf_counter()
        outcome = table.recluster(
            policy="full",
            options={"memory_bytes": budget_mib * 2**20, "max_group_bytes": 2**50},
            **how,
        )
        seconds = time.perf_counter() - started
    assert (outcome.committed_groups, outcome.rows) == (1, rows), outcome
    assert master is None or peaks, "no worker of Spark was seen"
    peak_mib = resident_mib("VmHWM") - baseline
    end.send(Merged(seconds, peak_mib, max(peaks.values(), default=0.0), outcome.blocks_out))


@contextmanager
def watched_workers() -> Iterator[dict[int, float]]:
    """Yield the peak memory of each Spark Python worker on this machine in MiB, sampled twice a second."""
    peaks: dict[int, float] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError, StopIteration):  # it ended meanwhile
                    if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                        peaks[int(process.name)] = resident_mib("VmHWM", process.name)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peaks
    finally:
        ended.set()
        watcher.join()


if __name__ == "__main__":
    main("group", measure, options)
