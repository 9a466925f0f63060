"""Reclusters beside a writer that updates random ranges: groups that conflict, and the depth that a loop holds.

A table has ranges of keys, each of four blocks that overlap, so that a round has a group for each range. Whenever a
task of a merge ends (in a loop every third one, so about once a group), the writer updates a range of a hundredth of
the keys, at random, and in a loop every fourth time appends a block to a random range. So the figures depend on what
commits when, and little on the speed of the machine. The baseline commits each round at its
end, all groups at once, as with `commit_every=10**6`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tblctl
from benchmarks.common import Report, main, scratch
from tblctl.maintain.recluster import Committed, ReclusterJob, step
from tblctl.maintain.request import Request
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.task.spec import MergeTask

RANGES, BLOCKS, ROWS = 10, 4, 5_000
KEYS = 1_000_000
STEPS = 40
SEEDS = 3
TASKS_EACH = 3
AT_END = 10**6
"""More groups than a round has."""


def measure(report: Report, tiny: bool) -> None:
    rows, steps, seeds = (200, 10, 1) if tiny else (ROWS, STEPS, SEEDS)
    for what, run in (
        (f"one round of {RANGES} groups", one_round),
        (
            f"a loop as long as {steps} updates, with appends",
            lambda table, seed, every: loop(table, seed, every, steps),
        ),
    ):
        report.begin(f"{what}: {RANGES} x {BLOCKS} blocks of {rows:,} rows; {seeds} seeds")
        shares = {}
        for name, every in (("ours", None), ("baseline, one commit a round", AT_END)):
            found = [fresh(run, rows, seed, every) for seed in range(seeds)]
            groups = sum(one.committed for one in found)
            conflicts = sum(one.conflicted for one in found)
            shares[name] = conflicts / max(1, conflicts + groups)
            report.line(f"  {name}")
            report.figure("  groups committed", groups / seeds, "a run")
            report.figure("  groups that conflicted", conflicts / seeds, "a run")
            report.figure("  share that conflicted", 100 * shares[name], "%")
            report.figure("  average depth after it", sum(one.depth for one in found) / seeds, "")
        ours, theirs = shares.values()
        report.figure("share that conflicted, ours / baseline", ours / max(theirs, 1e-9), "x")


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a run did: `depth` is the average at its end, or in a loop the mean of all rounds."""

    committed: int
    conflicted: int
    depth: float


def fresh(
    run: Callable[[tblctl.Table, int, int | None], Found], rows: int, seed: int, every: int | None
) -> Found:
    """Run on a table of its own."""
    with scratch() as folder:
        return run(make_table(folder, rows, seed), seed, every)


def make_table(folder: Path, rows: int, seed: int) -> tblctl.Table:
    schema = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("text", pa.string())])
    table = tblctl.create(str(folder / "t"), schema, cluster_by="key", options={"block_rows": rows})
    chance = np.random.default_rng(seed)
    for number in range(RANGES * BLOCKS):
        append(table, chance, number % RANGES, rows)
    return table


def append(table: tblctl.Table, chance: np.random.Generator, place: int, rows: int) -> None:
    """Append a block with keys all over one range."""
    width = KEYS // RANGES
    keys = place * width + chance.integers(0, width, rows)
    text = [f"text {number}" for number in chance.integers(0, 1000, rows)]
    table.append(
        pa.table({"key": keys, "value": np.zeros(rows, np.int64), "text": text}, schema=table.schema)
    )


class Beside:
    """The local engine, with a writer that acts after each task."""

    name = "local"
    parallelism = 2

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._engine = LocalEngine()
        self.thresholds = self._engine.thresholds
        self.cut = self._engine.cut

    def run(self, io: Any, tasks: Iterable[MergeTask], done: Callable[[Any], None], **more: Any) -> None:
        def ended(outcome: Any) -> None:
            self._act()
            done(outcome)

        self._engine.run(io, tasks, ended, **more)


def updater(table: tblctl.Table, seed: int, rows: int | None) -> Callable[[], None]:
    """Return a function that updates a random range, and with `rows` now and then appends a block."""
    chance, appended, count = random.Random(seed), np.random.default_rng(seed), 0

    def act() -> None:
        nonlocal count
        count += 1
        low = chance.randrange(KEYS)
        table.update({"value": count}, f"key >= {low} AND key < {low + KEYS // 100}")
        if rows and count % 4 == 0:
            append(table, appended, chance.randrange(RANGES), rows)

    return act


def job_of(table: tblctl.Table, act: Callable[[], None], every: int | None, *, endless: bool) -> ReclusterJob:
    request = Request.of(
        policy="levels", condition=lambda _: None, options={"threshold": 1.5}, commit_every=every
    )
    engine = Beside(act)
    return ReclusterJob(port=table._port, request=request, engine=lambda _: engine, endless=endless)  # noqa: SLF001


def one_round(table: tblctl.Table, seed: int, every: int | None) -> Found:
    job = job_of(table, updater(table, seed, None), every, endless=False)
    totals = step(job, job.start()).state.totals
    return found_of(totals, table.info().average_depth or 0.0)


def loop(table: tblctl.Table, seed: int, every: int | None, steps: int) -> Found:
    """Step a service's loop until the writer acted so often; it acts while the loop is idle or waits, too."""
    depths: list[float] = []
    write = updater(table, seed, table.options["block_rows"])

    tasks = 0

    def act() -> None:
        write()
        depths.append(table.info().average_depth or 0.0)

    def ended() -> None:
        nonlocal tasks
        tasks += 1
        if tasks % TASKS_EACH == 0:
            act()

    job = job_of(table, ended, every, endless=True)
    state = job.start()
    while len(depths) < steps:
        taken = step(job, state)
        state = taken.state
        if not isinstance(taken, Committed):
            act()
    return found_of(state.totals, sum(depths) / len(depths))


def found_of(totals: Any, depth: float) -> Found:
    return Found(committed=totals.committed_groups, conflicted=totals.conflicted_groups, depth=depth)


if __name__ == "__main__":
    main("beside", measure)
