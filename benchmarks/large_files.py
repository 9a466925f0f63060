"""Peak memory of merge tasks of Iceberg tables with large files: 512 MB (Iceberg's default), row groups of 128 MB.

As `benchmarks.memory` does for the native format: a fresh process runs a small merge, so that all code is loaded, and
records its resident memory. Then it runs the tasks of a group of all files, one after the other, and deletes what they
wrote. The tables have both properties, so files and row groups of the output are as large as those of the input. All
files span all keys.

- Files of another writer (`add_files`) in order of the key, and in none.
- Two of tblctl's own files beside two of another writer.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tblctl
from benchmarks.common import Report, main, resident_mib, scratch
from benchmarks.memory import CONSTANT_MIB, Peak
from benchmarks.merging.lake import NAME, Lake
from benchmarks.merging.tasks import tasks_in
from tblctl.merger.task.memory import ProcessMemory
from tblctl.merger.task.merge import run_task
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.iceberg.location import parse_location
from tblctl.tableformat.iceberg.port import IcebergPort

if TYPE_CHECKING:
    from pyiceberg.table import Table

KEY = "k"
FILES = 4
GROUPS = 4  # row groups of each file
BUDGETS_MIB = (512, 1024)


class Size(NamedTuple):
    """How large files are: rows of a row group, and bytes of a file and of a row group."""

    group_rows: int
    file_bytes: int
    group_bytes: int


FULL = Size(group_rows=3_000_000, file_bytes=512 * 2**20, group_bytes=128 * 2**20)
TINY = Size(group_rows=2_000, file_bytes=2**19, group_bytes=2**17)


def measure(report: Report, tiny: bool) -> None:
    size = TINY if tiny else FULL
    report.line(
        f"{FILES} files of {GROUPS} row groups each; targets: {size.file_bytes / 2**20:g} MiB a file, "
        f"{size.group_bytes / 2**20:g} MiB a row group; a task may take {CONSTANT_MIB} MiB more than its budget"
    )
    for title, make in TABLES.items():
        with scratch() as folder:
            lake = Lake(folder / "lake")
            make_foreign(lake, "small", folder / "small", TINY)
            make(lake, "large", folder / "files", size)
            files, largest = _described(lake.load("large"))
            report.begin(f"{title}: {files} files, {largest}")
            for budget in BUDGETS_MIB[:1] if tiny else BUDGETS_MIB:
                found = peak(lake.options, budget)
                report.figure(
                    f"over a budget of {budget} MiB, {found.tasks} tasks",
                    found.peak_mib - budget,
                    "MiB",
                    most=CONSTANT_MIB,
                )
                report.figure("  most that Arrow held", found.arrow_mib, "MiB")


def _described(table: Table) -> tuple[int, str]:
    """Return how many files there are, and the size of the largest, for people."""
    files = [task.file for task in table.scan().plan_files()]
    largest = max(files, key=lambda file: file.file_size_in_bytes)
    footer = pq.read_metadata(str(largest.file_path).removeprefix("file://"))
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    compressed = max(
        sum(group.column(place).total_compressed_size for place in range(footer.num_columns))
        for group in groups
    )
    return len(files), (
        f"the largest {largest.file_size_in_bytes / 2**20:.1f} MiB, its largest row group {compressed / 2**20:.1f} MiB"
    )


# -- the tables --------------------------------------------------------------------------------------------------------


def write_files(folder: Path, size: Size, *, is_sorted: bool, seed: int, files: int = FILES) -> list[str]:
    """Write files that span all keys; return their paths. Holds a row group at a time."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    found = []
    for number in range(files):
        found.append(str(folder / f"{seed}-{number}.parquet"))
        writer = None
        for place in range(GROUPS):
            rows = _rows(rng, size.group_rows, place if is_sorted else None)
            writer = writer or pq.ParquetWriter(found[-1], rows.schema, compression="zstd")
            writer.write_table(rows, row_group_size=size.group_rows)
        assert writer is not None
        writer.close()
    return found


def _rows(rng: np.random.Generator, count: int, place: int | None) -> pa.Table:
    """Return the rows of a row group: all keys in no order, or the keys of its place in order."""
    keys = rng.integers(0, 1 << 40, count)
    if place is not None:
        keys = np.sort(keys // GROUPS + place * ((1 << 40) // GROUPS))
    words = pa.DictionaryArray.from_arrays(
        pa.array(rng.integers(0, 500, count), pa.int32()), pa.array([f"a word of {n}" for n in range(500)])
    )
    columns: dict[str, Any] = {
        KEY: keys,
        "number": rng.integers(0, 1 << 62, count),
        "price": rng.random(count),
        "share": rng.random(count, dtype=np.float32),
        "text": pa.array(rng.integers(0, 1 << 62, count)).cast(pa.string()),
        "more": pa.array(rng.integers(0, 1 << 62, count)).cast(pa.string()),
        "word": words.cast(pa.string()),
        "day": pa.array(rng.integers(0, 20_000, count), pa.int32()).cast(pa.date32()),
        "few": rng.integers(0, 7, count),
    }
    return pa.table(columns)


def make_foreign(lake: Lake, name: str, folder: Path, size: Size, *, is_sorted: bool = True) -> None:
    """Make a table of another writer's files."""
    files = write_files(folder, size, is_sorted=is_sorted, seed=1)
    _register(lake, name, files, size)


def _register(lake: Lake, name: str, files: list[str], size: Size) -> None:
    lake.register(name, files, target_bytes=size.file_bytes)
    with lake.load(name).transaction() as change:
        change.set_properties({"write.parquet.row-group-size-bytes": str(size.group_bytes)})


def make_unsorted(lake: Lake, name: str, folder: Path, size: Size) -> None:
    """Make a table of files in no order."""
    make_foreign(lake, name, folder, size, is_sorted=False)


def make_mixed(lake: Lake, name: str, folder: Path, size: Size) -> None:
    """Make a table of tblctl's files, and as many of another writer."""
    half = FILES // 2
    first = write_files(folder, size, is_sorted=True, seed=1, files=half)
    _register(lake, name, first, size)
    tblctl.from_iceberg(lake.load(name)).recluster(policy="full", cluster_by=[KEY], engine="local")
    later = write_files(folder / "later", size, is_sorted=True, seed=2, files=half)
    lake.load(name).add_files([f"file://{file}" for file in later])


TABLES: Mapping[str, Callable[[Lake, str, Path, Size], None]] = {
    "of another writer, in order": make_foreign,
    "of another writer, in no order": make_unsorted,
    "half of them tblctl's own": make_mixed,
}


# -- peaks -------------------------------------------------------------------------------------------------------------


def peak(options: Mapping[str, str], budget_mib: int) -> Peak:
    """Measure the tasks of the table `large` in a new process."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, dict(options), budget_mib))
    process.start()
    theirs.close()
    try:
        found: Peak = mine.recv()
        return found
    finally:
        process.join()


def _run(end: Connection, options: Mapping[str, str], budget_mib: int) -> None:
    _merge(options, "small", budget_mib)
    baseline = resident_mib("VmRSS")
    tasks = _merge(options, "large", budget_mib)
    arrow_mib = pa.default_memory_pool().max_memory() / 2**20
    end.send(Peak(tasks, resident_mib("VmHWM") - baseline, arrow_mib))


def _merge(options: Mapping[str, str], name: str, budget_mib: int) -> int:
    place = parse_location(f"iceberg://{NAME}/db.{name}")
    port = IcebergPort.of_catalog(place, options, SYSTEM).clustered_by([KEY])
    io, tasks = tasks_in(port, tasks=1, memory_bytes=budget_mib * 2**20)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    memory = ProcessMemory(SYSTEM)  # tasks share it, as they do in the in-process engine
    for task in tasks:
        result = run_task(io, task, memory=memory, threads=2)
        io.discard([record.path for record in result.records])
    return len(tasks)


if __name__ == "__main__":
    main("large_files", measure)
