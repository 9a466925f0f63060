"""One group of all blocks of lineitem, sorted and not: merged in this process, and on a cluster of executors of 1 GiB.

    python -m benchmarks.group --scale 10     60 million rows; takes a disk of 30 GB

A fresh process merges, verifies and commits. Its peak is the kernel's (`VmHWM`), above what it had before the merge: in
this process that of two tasks at once with two processors, on a cluster that of the driver.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import tblctl
from benchmarks.common import Report, lineitem, main, resident_mib, scratch
from benchmarks.memory import CONSTANT_MIB, KEY, make_table
from tblctl.merger.local import LocalEngine

CLUSTER = "local-cluster[2,1,1024]"  # two executors of one core and 1,024 MiB
BUDGET_MIB = 512  # of a task
BLOCK_ROWS = 100_000


class Merged(NamedTuple):
    """What a merge took."""

    seconds: float
    peak_mib: float
    blocks: int


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", default="1", help="TPC-H's scale factor")
    parser.add_argument("--no-cluster", action="store_true", help="only in this process")


def measure(report: Report, tiny: bool, *, scale: str, no_cluster: bool) -> None:
    scale = "0.01" if tiny else scale
    masters = [None] if no_cluster or tiny else [None, CLUSTER]
    at_once = LocalEngine().parallelism + 1
    for key in (KEY, None):
        with scratch() as folder:
            table = make_table(folder / "table", lineitem(scale), 1_000 if tiny else BLOCK_ROWS, key=key)
            if key is None:
                table.set_cluster_key(KEY)
            rows, blocks = table.snapshot.rows, table.snapshot.blocks
            for master in masters:
                report.begin(
                    f"{rows:,} rows in {blocks} blocks, {'sorted' if key else 'not sorted'}, "
                    f"{master or 'in this process'}, {BUDGET_MIB} MiB a task"
                )
                before = table.snapshot.sequence
                found = in_new_process(table.location, master)
                report.figure("merged, verified and committed", found.seconds, "s")
                report.figure("rows a second", rows / found.seconds, "")
                report.figure("blocks after it", found.blocks, "")
                most = None if master else at_once * (BUDGET_MIB + CONSTANT_MIB)
                report.figure("peak of the process that called it", found.peak_mib, "MiB", most=most)
                table = tblctl.open(table.location)
                table.rollback(before)


def in_new_process(location: str, master: str | None) -> Merged:
    """Merge all blocks of a table in a process that has done nothing else."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_merge, args=(theirs, location, master))
    process.start()
    theirs.close()
    try:
        return mine.recv()
    finally:
        process.join()


def _merge(end: Connection, location: str, master: str | None) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    table = tblctl.open(location)
    rows = table.snapshot.rows
    baseline = resident_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    how = {"engine": "local"} if master is None else {"spark": lambda: tblctl.spark_session(master=master)}
    started = time.perf_counter()
    outcome = table.recluster(
        policy="full",
        options={"memory_bytes": BUDGET_MIB * 2**20, "max_group_bytes": 2**50},
        **how,
    )
    seconds = time.perf_counter() - started
    assert (outcome.committed_groups, outcome.rows) == (1, rows), outcome
    end.send(Merged(seconds, resident_mib("VmHWM") - baseline, outcome.blocks_out))


if __name__ == "__main__":
    main("group", measure, options)
