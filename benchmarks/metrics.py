"""Overlap, depth and clustering information of 10^4 to 10^7 blocks: processor time and memory.

Processor time, not wall time: the work is on one thread, and other work on the machine does not count then. Memory is
what the work allocates at its peak, beyond its input (tracemalloc, which numpy reports to), in a run of its own.

Layouts: `arrivals`, ranks spread evenly, each block over about 14 others (keys that follow time);
`random`, both ends anywhere (a table nobody clustered); `sparse`, as arrivals with gaps between ranks, so that they are
sorted first. Levels: nine, blocks spread evenly over them.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.common import Report, main
from tblctl.metrics.information import BlockArrays, clustering_info
from tblctl.metrics.intervals import Integers, overlaps_and_depths, selection_depths

MILLION = 1_000_000
SIZES = (10_000, 100_000, MILLION, 10 * MILLION)
LAYOUTS = ("arrivals", "random", "sparse")
LIMIT_SECONDS = 1.0  # at a million blocks
LIMIT_MIB = {MILLION: 1024.0, 10 * MILLION: 8 * 1024.0}


def measure(report: Report, tiny: bool) -> None:
    for layout in LAYOUTS:
        report.begin(f"{layout}: processor seconds of the fastest of 3 runs, and memory")
        for size in (1000,) if tiny else SIZES:
            low, high = make_ranges(layout, size)
            blocks = make_blocks(low, high)
            figures: dict[str, Callable[[], object]] = {
                "overlaps and depths": partial(overlaps_and_depths, low, high),
                "selection depths": partial(selection_depths, low, high),
                "clustering_info": partial(clustering_info, ("a",), blocks),
            }
            for name, work in figures.items():
                seconds = min(processor_seconds(work) for _ in range(3))
                most = LIMIT_SECONDS if size == MILLION else None
                report.figure(f"{name}, {size:,} blocks", seconds, "s", most=most)
                report.figure("  memory beyond the input", peak_mib(work), "MiB", most=LIMIT_MIB.get(size))


def processor_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def peak_mib(work: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


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
    main("metrics", measure)
