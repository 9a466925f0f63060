"""Overlap, depth and clustering information of 10^4 to 10^7 blocks: processor time and memory.

Every case runs in a fresh process. Processor time, not wall time: the work is on one thread, and other work on the
machine does not count then. Memory is the peak of resident memory beyond what was resident with the input made.

Layouts: `arrivals`, ranks spread evenly, each block over about 14 others (time-correlated data, 60 batches behind);
`random`, both ends anywhere (a table nobody clustered); `sparse`, as arrivals with gaps between ranks, so that they are
sorted first. Levels: nine, blocks spread evenly over them.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import numpy as np

from benchmarks.common import Report, main
from tblctl.metrics.information import BlockArrays, clustering_info
from tblctl.metrics.intervals import Integers, overlaps_and_depths, selection_depths

MILLION = 1_000_000
SIZES = (10_000, 100_000, MILLION, 10 * MILLION)
LAYOUTS = ("arrivals", "random", "sparse")
FIGURES = ("overlaps and depths", "selection depths", "clustering_info")
LIMIT_SECONDS, LIMIT_MIB = 1.0, 1024.0  # at a million blocks
LARGEST_MIB = 8 * 1024.0  # at ten million


def measure(report: Report, tiny: bool) -> None:
    for layout in LAYOUTS:
        report.begin(f"{layout}: processor seconds of the fastest of 3 runs, and memory")
        for figure in FIGURES:
            for size in (1000,) if tiny else SIZES:
                done = run_apart(layout, figure, size)
                at_million = size == MILLION
                name = f"{figure}, {size:,} blocks"
                report.figure(name, done["seconds"], "s", most=LIMIT_SECONDS if at_million else None)
                most = LIMIT_MIB if at_million else LARGEST_MIB if size > MILLION else None
                report.figure("  memory beyond the input", done["mib"], "MiB", most=most)


def run_apart(layout: str, figure: str, size: int) -> dict[str, float]:
    """Measure one case in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.metrics", "case", layout, figure, str(size)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run_case(layout: str, figure: str, size: int) -> dict[str, float]:
    low, high = make_ranges(layout, size)
    blocks = make_blocks(low, high)
    if figure == "overlaps and depths":
        work = lambda: overlaps_and_depths(low, high)  # noqa: E731 - one of three, side by side
    elif figure == "selection depths":
        work = lambda: selection_depths(low, high)  # noqa: E731
    else:
        work = lambda: clustering_info(("a",), blocks)  # noqa: E731
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(3):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"seconds": min(seconds), "mib": mib}


def make_ranges(layout: str, size: int) -> tuple[Integers, Integers]:
    rng = np.random.default_rng(0)
    if layout == "random":
        ends = rng.integers(0, 2 * size, (2, size))
        return ends.min(axis=0), ends.max(axis=0)
    gap = 1 if layout == "arrivals" else 1_000_003
    low = rng.integers(0, 2 * size, size)
    return low * gap, (low + rng.integers(0, 28, size)) * gap


def make_blocks(low: Integers, high: Integers) -> BlockArrays:
    none = np.zeros(low.size, bool)
    thousand = np.full(low.size, 1000, np.int64)
    return BlockArrays(
        low=low,
        high=high,
        level=np.random.default_rng(1).integers(-1, 8, low.size).astype(np.int32),
        row_count=thousand,
        size_bytes=thousand,
        constant=low == high,
        unclustered=none,
        unknown=none,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["case"]:
        print(json.dumps(run_case(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
    else:
        main("metrics", measure)
