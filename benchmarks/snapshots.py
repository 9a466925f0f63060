"""Commands of the shell on a table of a million blocks and 10,000 snapshots, of which only the metadata exists.

Blocks are those of `benchmarks.metadata` in the layout `scattered`. Each snapshot is one commit, which changes nothing.
Every command is a new process, timed from its start to its end, with the peak of its resident memory. What removes is
measured once, the rest several times. The limits are for local disk, and of processor time: other work on the machine
makes that little longer, and nearly all of a command is work of the processor.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.common import Report, main, scratch
from benchmarks.metadata import build, few_rows
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.storage import Storage

SNAPSHOTS = 10_000
KEPT = 100
RUNS = 3

# Not getrusage for the memory: on Linux it includes the peak of the parent process.
PROGRAM = """
import atexit, os, pathlib, sys
from tblctl.cli.main import run
def report():
    print(pathlib.Path("/proc/self/status").read_text(), file=sys.stderr)
    print(f"processor: {sum(os.times()[:2])}", file=sys.stderr, flush=True)
atexit.register(report)
run()
"""
"""`tblctl`, which reports its memory and processor time at the end."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command, and its limits."""

    words: Sequence[str]
    most_seconds: float
    most_gib: float = 1.0
    runs: int = RUNS


def measure(report: Report, tiny: bool) -> None:
    segments, size, snapshots, kept = (3, 100, 30, 10) if tiny else (100, 10_000, SNAPSHOTS, KEPT)
    with scratch() as folder:
        place, rows = folder / "table", folder / "rows.parquet"
        pq.write_table(few_rows(), rows)
        build(place, segments, size, scattered=True)
        commit(place, snapshots)
        metadata_bytes = sum(item.stat().st_size for item in place.rglob("*") if item.is_file())
        report.line(
            f"{segments * size:,} blocks, {snapshots:,} snapshots, {metadata_bytes / 2**20:,.0f} MiB of metadata"
        )
        commands(report, place, rows, kept=kept, runs=1 if tiny else RUNS)


def commands(report: Report, place: Path, rows: Path, *, kept: int, runs: int) -> None:
    """Measure commands on the table, in turn; `rows` is a Parquet file that is appended."""
    table = str(place)
    for case in (
        Case(words=("append", table, str(rows)), most_seconds=2),
        Case(words=("info", table), most_seconds=5, most_gib=2),
        Case(words=("recluster", table, "--dry-run"), most_seconds=8, most_gib=2),
        Case(words=("history", table, "--limit", "20"), most_seconds=2),
        Case(words=("history", table, "--limit", str(SNAPSHOTS)), most_seconds=30),
        Case(
            words=("gc", table, "--keep", str(kept), "--older-than", "0", "--dry-run"),
            most_seconds=30,
            most_gib=2,
        ),
        Case(
            words=("gc", table, "--keep", str(kept), "--older-than", "0"),
            most_seconds=120,
            most_gib=2,
            runs=1,
        ),
        Case(words=("history", table, "--limit", str(SNAPSHOTS)), most_seconds=30),
    ):
        one(report, replace(case, runs=min(case.runs, runs)), place)


def commit(place: Path, snapshots: int) -> None:
    """Add snapshots to the table, by commits as any other."""
    table = NativeTable(Storage(place), SYSTEM)
    for _ in range(snapshots):
        table.change(lambda head: head)


def one(report: Report, case: Case, place: Path) -> None:
    """Measure one command."""
    shown = (word.removeprefix(f"{place.parent}/") for word in case.words)
    report.begin(f"tblctl {' '.join(shown)}")
    seconds, worked, peaks = [], [], []
    for _ in range(case.runs):
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *case.words], capture_output=True, text=True, check=False
        )
        seconds.append(time.perf_counter() - started)
        peak = re.search(r"VmHWM:\s+(\d+) kB", done.stderr)
        processor = re.search(r"processor: ([\d.]+)", done.stderr)
        if done.returncode != 0 or peak is None or processor is None:
            raise RuntimeError(done.stderr[-2000:])
        peaks.append(int(peak.group(1)) / 2**20)
        worked.append(float(processor.group(1)))
    report.seconds("seconds", seconds)
    report.figure("of processor time, median", statistics.median(worked), "s", most=case.most_seconds)
    report.figure("peak memory of the process", max(peaks), "GiB", most=case.most_gib)


if __name__ == "__main__":
    main("snapshots", measure)
