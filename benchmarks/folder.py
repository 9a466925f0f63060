"""A folder of plain Parquet files: `tblctl info --columns` reads all footers, and the next call what was kept of them.

10,000 files on local disk, of one row group and of eight columns: times, numbers and text. Each command is a new
process, timed from its start to its end. The files were just written, so the disk's cache holds them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import Command, Report, main, scratch, script

FILES = 10_000
KINDS = 100  # different files; the others are copies
ROWS = 100
MOST_SECONDS = 20.0
LONG_AGO = 1_700_000_000  # what is kept of a file holds from two seconds after it was written


def measure(report: Report, tiny: bool) -> None:
    count = 30 if tiny else FILES
    with scratch() as folder:
        make(folder / "in", count)
        words = ("info", str(folder / "in"), "--columns", "at", "--metadata-cache")
        runs = 1 if tiny else 3
        first = [Command(script("tblctl"), *words, str(folder / f"cache{number}")) for number in range(runs)]
        seconds = [command() for command in first]
        again = Command(script("tblctl"), *words, str(folder / "cache0"))
        kept = [again() for _ in range(runs)]
    report.begin(f"{count:,} files of {ROWS:,} rows and 8 columns; {runs} runs")
    report.seconds("tblctl info --columns at, all footers read", seconds)
    report.seconds("  of processor time", [command.cpu_seconds[-1] for command in first])
    report.seconds("the next call", kept)
    report.figure("all footers read, worst run", max(seconds), "s", most=None if tiny else MOST_SECONDS)


def make(folder: Path, count: int) -> None:
    """Write the files."""
    folder.mkdir()
    chance = np.random.default_rng(seed=0)
    for number in range(count):
        path = folder / f"part-{number:05}.parquet"
        if number < KINDS:
            at = chance.integers(number * 1_000, (number + 30) * 1_000, ROWS)
            numbers = {name: chance.integers(0, 10**6, ROWS) for name in ("customer", "order", "line")}
            texts = {name: [f"{name} {value}" for value in at] for name in ("city", "note")}
            times = {"at": pa.array(at, pa.timestamp("us")), "price": chance.random(ROWS), "day": at // 1_000}
            pq.write_table(pa.table({**times, **numbers, **texts}), path)
        else:
            shutil.copyfile(folder / f"part-{number % KINDS:05}.parquet", path)
        os.utime(path, (LONG_AGO, LONG_AGO))


if __name__ == "__main__":
    main("folder", measure)
