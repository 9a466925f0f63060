"""Measure whether the tasks of a group take equally long, for many shapes of keys and blocks.

Each shape is one group, cut into 16 tasks as in a round. The tasks run one after the other in this process, each with
the threads that an engine gives it. If blocks must be sorted first, the shared sort is measured separately. Processor
seconds of a task are the least of several runs, which a busy machine changes little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import tblctl
from benchmarks.common import Report, main, rounds_in_all, scratch
from benchmarks.merging.tasks import merge_tasks
from tblctl.merger.engines.local import THREADS
from tblctl.merger.presort.presorter import presort
from tblctl.merger.presort.spill import SpillFolder
from tblctl.merger.task.merge import run_task
from tblctl.merger.task.spec import MergeTask, TaskResult
from tblctl.tableformat.concurrency import cpu_threads, in_parallel
from tblctl.tableformat.port import BlockIO

TASKS = 16
MOST_RATIO = 2
OUTPUT_BLOCKS = 128
"""About how many blocks a group becomes. A task writes whole blocks."""

KEYS = 1 << 20
CONSTANT_LEVEL = -1

Stretch = tuple[int, np.ndarray]
"""Rows of each block, and a function that makes the keys of some blocks."""


def half_one_key(rng: np.random.Generator, share: float) -> Iterator[Stretch]:
    block_rows = int(100_000 * share)
    keys = rng.integers(0, KEYS, 30 * block_rows)
    yield block_rows, np.where(rng.random(len(keys)) < 1 / 2, KEYS // 2, keys)


def zipf(rng: np.random.Generator, share: float) -> Iterator[Stretch]:
    block_rows = int(100_000 * share)
    yield block_rows, rng.zipf(1.2, 30 * block_rows).clip(max=KEYS)


def tiny_blocks(rng: np.random.Generator, share: float) -> Iterator[Stretch]:
    yield 200, rng.integers(0, KEYS, 200 * int(10_000 * share))


def one_huge(rng: np.random.Generator, share: float) -> Iterator[Stretch]:
    huge = int(2_000_000 * share)
    yield huge, rng.integers(0, KEYS, huge)
    yield 1_000, rng.integers(0, KEYS, 1_000 * int(1_000 * share))


SHAPES: dict[str, Callable[[np.random.Generator, float], Iterator[Stretch]]] = {
    "one key has half of all rows": half_one_key,
    "Zipf keys, exponent 1.2": zipf,
    "very many tiny blocks": tiny_blocks,
    "one huge block and many small": one_huge,
}


@dataclass(frozen=True, kw_only=True)
class Merged:
    """One run of the tasks of a group: seconds of the shared sort, of all tasks, and the result of each."""

    sort_seconds: float
    seconds: float
    results: tuple[TaskResult, ...]


def measure(report: Report, tiny: bool) -> None:
    share, runs = (0.01, 1) if tiny else (1.0, 5)
    output_blocks = 2 * TASKS if tiny else OUTPUT_BLOCKS
    report.line(
        f"rows of a key, a number, a fraction and a text; one group in {TASKS} tasks, one after the other; {runs} runs"
    )
    for title, shape in SHAPES.items():
        with scratch() as folder:
            table = make_table(folder / "table", shape(np.random.default_rng(7), share), output_blocks)
            rows, blocks = table.snapshot.rows, table.snapshot.blocks
            report.begin(f"{title}: {rows:,} rows in {blocks:,} blocks")
            io, tasks = merge_tasks(table, tasks=TASKS)
            found = [merged(io, tasks) for _ in range(rounds_in_all(runs))][-runs:]
        assert sum(result.rows for result in found[-1].results) == rows
        write(report, found)


def make_table(place: Path, stretches: Iterator[Stretch], output_blocks: int) -> tblctl.Table:
    """Make a table of sorted blocks with these keys, whose merge gives about `output_blocks`."""
    schema = rows_of(np.zeros(1, np.int64)).schema
    table = tblctl.create(place, schema, cluster_by="k", options={"sort_scope": "block"})
    for block_rows, keys in stretches:
        table.set_options({"block_rows": block_rows})
        table.append(rows_of(keys))
    table.set_options({"block_rows": max(1, table.snapshot.rows // output_blocks)})
    return table


def rows_of(keys: np.ndarray) -> pa.Table:
    """Return rows whose other columns do not depend on the key."""
    numbers = np.random.default_rng(len(keys)).integers(0, KEYS, len(keys))
    texts = [f"row {number % 1_000}" for number in numbers.tolist()]
    return pa.table({"k": keys.astype(np.int64), "n": numbers, "f": numbers * 0.37 % 1, "s": texts})


def merged(io: BlockIO, tasks: tuple[MergeTask, ...]) -> Merged:
    """Run all tasks of a group, and delete their output."""
    started = time.perf_counter()
    with SpillFolder() as folder:
        portions = presort(
            io, tasks, folder, lambda work, items: in_parallel(work, items, threads=cpu_threads())
        )
        sorted_at = time.perf_counter()
        results = tuple(
            run_task(io, task, threads=THREADS, portions=portions.pop(task.number)) for task in tasks
        )
    ended = time.perf_counter()
    io.discard([record.path for result in results for record in result.records])
    return Merged(sort_seconds=sorted_at - started, seconds=ended - started, results=results)


def write(report: Report, found: list[Merged]) -> None:
    results = found[-1].results
    records = [record for result in results for record in result.records]
    writing_constant = sum(
        any(record.level == CONSTANT_LEVEL for record in result.records) for result in results
    )
    cpu_seconds = [min(one.results[number].cpu_seconds for one in found) for number in range(len(results))]
    report.figure("tasks", len(results), "")
    report.figure("blocks written", len(records), "")
    report.figure(
        "  constant ones",
        sum(record.level == CONSTANT_LEVEL for record in records),
        f"by {writing_constant} tasks",
    )
    report.seconds("seconds, all tasks", [one.seconds for one in found])
    report.seconds("  sorting blocks for all of them", [one.sort_seconds for one in found])
    report.seconds("processor seconds of a task", cpu_seconds)
    report.figure("  most / least", max(cpu_seconds) / min(cpu_seconds), "x", most=MOST_RATIO)


if __name__ == "__main__":
    main("skew", measure)
