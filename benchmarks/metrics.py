"""Overlap, depth and clustering information of 10^4 to 10^7 blocks: processor time and memory.

Time is processor time, since the work runs on one thread and other work on the machine does not count then. Memory is
the peak of what the work allocates beyond its input (by tracemalloc, which sees numpy, and Arrow's own count). It is
measured in a separate run.

Inputs of ranks, with blocks spread evenly over nine levels:

- `arrivals`: ranks spread evenly, each block overlaps about 14 others (keys that follow time).
- `random`: both ends anywhere (a table that was never clustered).
- `sparse`: as arrivals, with gaps between ranks, so that ranks must be sorted first.

Inputs of keys: the same arrivals with unsorted key columns, as `info` has them after reading metadata. Times include
the ranks and the figures of `clustering_info`.

The picture shows `clustering_info` over the number of blocks, on logarithmic axes. From 10^6 to 10^7 blocks times grow
by more than n log n, probably because arrays no longer fit the processor's cache.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.common import RESULTS, Report, main, scratch
from tblctl.metrics.information import ClusteringInfo, RankedBlocks, clustering_info
from tblctl.metrics.intervals import Integers, overlaps_and_depths, selection_depths
from tblctl.metrics.worst import deepest_hills
from tblctl.tableformat.keys.order import key_ranks
from tblctl.tableformat.model.cluster_key import Sort, Term

MILLION = 1_000_000
SIZES = (10_000, 100_000, MILLION, 10 * MILLION)
LAYOUTS = ("arrivals", "random", "sparse")
LIMIT_MIB = {MILLION: 1024.0, 10 * MILLION: 8 * 1024.0}
RANKS_SECONDS = 1.0  # at a million blocks
KEYS = {"int64": 1.0, "date": 1.0, "string": 1.0, "date, int64": 2.0, "date, string": 2.0}
"""Key columns, and at most how many seconds a million blocks may take."""


@dataclass
class Points:
    """Points of the picture: (blocks, value), by name of the line."""

    seconds: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    mib: dict[str, list[tuple[int, float]]] = field(default_factory=dict)


def measure(report: Report, tiny: bool) -> None:
    points = Points()
    sizes = (1000,) if tiny else SIZES
    for layout in LAYOUTS:
        report.begin(f"{layout}: processor seconds of the fastest of 3 runs, and memory")
        for size in sizes:
            low, high = make_ranges(layout, size)
            figures: dict[str, Callable[[], object]] = {
                "overlaps and depths": partial(overlaps_and_depths, low, high),
                "selection depths": partial(selection_depths, low, high),
                "clustering_info": partial(clustering_info, ("a",), make_blocks(low, high)),
                "worst ranges": partial(deepest_hills, low, high, 5),
            }
            for name, work in figures.items():
                one_figure(report, points, f"{layout}: {name}", size=size, work=work, most=RANKS_SECONDS)
    for columns, most in KEYS.items():
        report.begin(f"from keys ({columns}): processor seconds of the fastest of 3 runs, and memory")
        for size in sizes:
            work = partial(info_of_keys, *make_keys(columns, size))
            name = f"key {columns}: ranks and clustering_info"
            one_figure(report, points, name, size=size, work=work, most=most)
    with scratch() as folder:
        draw(points, (folder if tiny else RESULTS) / "metrics.svg")
    report.line("\nas a picture: metrics.svg")


def one_figure(
    report: Report, points: Points, name: str, *, size: int, work: Callable[[], object], most: float | None
) -> None:
    seconds = min(processor_seconds(work) for _ in range(3))
    memory_mib = peak_mib(work)
    short = name.partition(": ")[2]
    report.figure(f"{short}, {size:,} blocks", seconds, "s", most=most if size == MILLION else None)
    report.figure("  memory beyond the input", memory_mib, "MiB", most=LIMIT_MIB.get(size))
    points.seconds.setdefault(name, []).append((size, seconds))
    points.mib.setdefault(name, []).append((size, memory_mib))


def processor_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


_POOLS: list[pa.MemoryPool] = []
"""Kept to the end: what the work leaves in caches is freed by its pool."""


def peak_mib(work: Callable[[], object]) -> float:
    usual = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(usual)
    _POOLS.append(counted)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        work()
        return float(tracemalloc.get_traced_memory()[1] + counted.max_memory()) / 2**20
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)


def make_ranges(layout: str, size: int) -> tuple[Integers, Integers]:
    rng = np.random.default_rng(0)
    if layout == "random":
        ends = rng.integers(0, 2 * size, (2, size))
        return ends.min(axis=0), ends.max(axis=0)
    gap = 1 if layout == "arrivals" else 1_000_003
    low = rng.integers(0, 2 * size, size)
    return low * gap, (low + rng.integers(0, 28, size)) * gap


def make_blocks(low: Integers, high: Integers) -> RankedBlocks:
    none = np.zeros(low.size, bool)
    thousand = np.full(low.size, 1000, np.int64)
    return RankedBlocks(
        low=low,
        high=high,
        level=np.random.default_rng(1).integers(-1, 8, low.size).astype(np.int32),
        row_count=thousand,
        size_bytes=thousand,
        constant=low == high,
        unclustered=none,
        unknown=none,
    )


def make_keys(columns: str, size: int) -> tuple[pa.Table, pa.Table, Sort]:
    """Return the minimum and maximum keys of blocks, and their order. With a second column, 100 keys share a date."""
    kinds = columns.split(", ")

    def table(ends: Integers) -> pa.Table:
        made = [make_column(kind, ends, coarse=kind != kinds[-1]) for kind in kinds]
        return pa.table(made, names=[str(number) for number in range(len(kinds))])

    low, high = make_ranges("arrivals", size)
    terms = tuple(Term(column_id=number) for number in range(1, len(kinds) + 1))
    return table(low), table(high), Sort(id=1, terms=terms)


def make_column(kind: str, ends: Integers, *, coarse: bool) -> pa.Array:
    if kind == "string":
        digits = pc.utf8_lpad(pa.array(ends).cast(pa.string()), width=9, padding="0")
        return pc.binary_join_element_wise("customer", digits, "-")
    if kind == "date":
        return pa.array((ends // 100 if coarse else ends).astype(np.int32)).cast(pa.date32())
    return pa.array(ends * 1_000_003)


def info_of_keys(low: pa.Table, high: pa.Table, sort: Sort) -> ClusteringInfo:
    return clustering_info(("a",), make_blocks(*key_ranks(low, high, sort)))


def draw(points: Points, path: Path) -> None:
    """Write seconds and memory of `clustering_info` over blocks as one picture, and what n log n and n would be."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    blocks = np.array(SIZES)
    for axes, lines, label, limit, growth in zip(
        figure.subplots(1, 2),
        (points.seconds, points.mib),
        ("processor seconds", "MiB beyond the input"),
        (RANKS_SECONDS, LIMIT_MIB[MILLION]),
        (blocks * np.log(blocks), blocks),
        strict=True,
    ):
        for name, found in lines.items():
            start, _, work = name.partition(": ")
            if work.endswith("clustering_info"):
                style = "-" if start.startswith("key") else "--"
                text = start if start.startswith("key") else f"ranks: {start}"
                axes.loglog(*zip(*found, strict=True), style, marker=".", linewidth=1, label=text)
        axes.loglog(blocks, growth * (limit / growth[2]), "k:", label="n log n (time), n (memory)")
        axes.plot(MILLION, limit, "kx", label="limit at a million blocks, one column")
        axes.set_xlabel("blocks")
        axes.set_ylabel(label)
        axes.grid(visible=True, which="major", alpha=0.3)
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", fontsize="small")
    with mpl.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "metrics"}
    ):  # small, and the same every time
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main("metrics", measure)
