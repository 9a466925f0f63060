"""Peak memory of a merge task against its budget, for inputs of many shapes and two sizes (on Linux).

A fresh process opens the table, and runs a small merge so that all code is loaded. It records its resident memory. Then
it runs the tasks of a group of all blocks, one after the other. Peaks are the kernel's (`VmHWM`). So they include
memory that the allocator keeps after use, which is most of the excess over a small budget. Compare them with Arrow's
own allocations.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

import tblctl
from benchmarks.common import RESULTS, Report, lineitem, main, resident_mib, scratch
from benchmarks.merging.shapes import SHAPES, make_shape
from benchmarks.merging.tasks import merge_tasks
from tblctl.merger.task.merge import run_task

KEY = "l_shipdate"
BUDGETS_MIB = (64, 128, 256, 512, 1024)
CONSTANT_MIB = 192  # how much a task may exceed its budget, whatever the size of budget and input
SHAPE_BUDGETS_MIB = (256, 512, 1024)
SHAPE_BYTES = 3 << 29
THREADS = {"one thread": 1, "two threads, as in every engine": 2}


def measure(report: Report, tiny: bool) -> None:
    budgets = BUDGETS_MIB[:1] if tiny else BUDGETS_MIB
    block_rows = 1_000 if tiny else 100_000
    with scratch() as folder:
        small = make_table(folder / "small", lineitem("0.001"), 1_000)
        tables = [
            make_table(folder / scale, lineitem(scale), block_rows)
            for scale in (("0.001",) if tiny else ("0.1", "1"))
        ]
        report.line(
            f"tables of lineitem, key {KEY}, sorted blocks of {block_rows:,} rows, all merged as one group; "
            f"a task may take {CONSTANT_MIB} MiB more than its budget"
        )
        for title, threads in list(THREADS.items())[: 1 if tiny else None]:
            for table in tables:
                rows, blocks = table.snapshot.rows, table.snapshot.blocks
                report.begin(f"{rows:,} rows in {blocks} blocks, {title}")
                for budget in budgets:
                    found = peak(table.location, small.location, budget, threads)
                    report.figure(
                        f"over a budget of {budget} MiB, {found.tasks} tasks",
                        found.peak_mib - budget,
                        "MiB",
                        most=CONSTANT_MIB,
                    )
                    report.figure("  most that Arrow held", found.arrow_mib, "MiB")
        measure_shapes(report, folder, small, tiny=tiny)


def measure_shapes(report: Report, folder: Path, small: tblctl.Table, *, tiny: bool) -> None:
    """Write and draw the peaks of tables unlike lineitem, and of lineitem in another order."""
    tables = {
        "lineitem, not sorted": make_table(
            folder / "not sorted", lineitem("0.001" if tiny else "1"), 100_000, key=None
        )
    }
    tables["lineitem, not sorted"].set_cluster_key(KEY)
    for shape in SHAPES:
        for is_sorted in (False,) if tiny else (True, False):
            title = shape if is_sorted else f"{shape}, not sorted"
            tables[title] = make_shape(
                folder / title, shape, SHAPE_BYTES >> (12 if tiny else 0), is_sorted=is_sorted
            )
    points: Points = {}
    for title, table in tables.items():
        report.begin(f"{title}: {table.snapshot.rows:,} rows in {table.snapshot.blocks} blocks, two threads")
        for budget in SHAPE_BUDGETS_MIB[:1] if tiny else SHAPE_BUDGETS_MIB:
            found = peak(table.location, small.location, budget, 2)
            points.setdefault(title, []).append((budget, found.peak_mib))
            report.figure(
                f"over a budget of {budget} MiB, {found.tasks} tasks",
                found.peak_mib - budget,
                "MiB",
                most=CONSTANT_MIB,
            )
            report.figure("  most that Arrow held", found.arrow_mib, "MiB")
    draw(
        points,
        (folder if tiny else RESULTS) / "memory.svg",
        what="peak resident size above that at rest, MiB",
        more_mib=CONSTANT_MIB,
    )
    report.line("\nas a picture: memory.svg")


Points = dict[str, list[tuple[int, float]]]
"""Peaks by table: the budget and the peak, MiB."""


def draw(points: Points, path: Path, *, what: str, more_mib: int) -> None:
    """Draw the peaks over the budgets, with the line that they may not exceed."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained", facecolor="white")
    axes = figure.subplots()
    for title, found in points.items():
        axes.plot(*zip(*found, strict=True), "--" if "not sorted" in title else "-", marker=".", label=title)
    budgets = sorted({budget for found in points.values() for budget, _ in found})
    axes.plot(budgets, [budget + more_mib for budget in budgets], "k:", label="what it may take")
    axes.set_xlabel("budget of a task, MiB")
    axes.set_ylabel(what)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "memory"}):  # the same every time
        figure.savefig(path, metadata={"Date": None})


def make_table(place: Path, source: Path, block_rows: int, *, key: str | None = KEY) -> tblctl.Table:
    """Make a table of blocks that all span nearly all keys, each sorted by `key` if there is one."""
    options = {"block_rows": block_rows, "sort_scope": "block"}
    table = tblctl.create(place, tblctl.read_schema(source), cluster_by=key, options=options)
    table.append(source)
    table.set_options({"block_rows": 1_000_000})
    return table


class Peak(NamedTuple):
    """The largest increase of the process's memory by one of several tasks, and of Arrow's allocations."""

    tasks: int
    peak_mib: float
    arrow_mib: float


def peak(location: str, small: str, budget_mib: int, threads: int) -> Peak:
    """Measure the tasks of a table in a new process."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, location, small, budget_mib, threads))
    process.start()
    theirs.close()
    try:
        return mine.recv()
    finally:
        process.join()


def _run(end: Connection, location: str, small: str, budget_mib: int, threads: int) -> None:
    _merge(small, budget_mib, threads)
    baseline = resident_mib("VmRSS")
    tasks = _merge(location, budget_mib, threads)
    arrow_mib = pa.default_memory_pool().max_memory() / 2**20
    end.send(Peak(tasks, resident_mib("VmHWM") - baseline, arrow_mib))


def _merge(location: str, budget_mib: int, threads: int) -> int:
    io, tasks = merge_tasks(tblctl.open(location), tasks=1, memory_bytes=budget_mib * 2**20)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    for task in tasks:
        result = run_task(io, task, threads=threads)
        io.discard([record.path for record in result.records])
    return len(tasks)


if __name__ == "__main__":
    main("memory", measure)
