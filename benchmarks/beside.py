"""Reclusters beside a writer that updates random ranges: groups that conflict, rows merged in vain, and depth held.

A table has ranges of keys, each of four blocks that overlap, so that a round has a group for each range. Time is
simulated: `PARALLEL` tasks run at once, each merges `ROWS_PER_SECOND`, and every `EVERY_SECONDS`, about once while a
group is merged, the writer updates a range of a hundredth of the keys, at random; in a loop every fourth time it also
appends a block to a random range. So the figures depend on what commits when, and not on the speed of the machine.
The baseline commits each round at its end, all groups at once, as with `commit_every=10**6`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tblctl
from benchmarks.common import Report, main, scratch
from tblctl.maintain.recluster import Committed, ReclusterJob, Retry, step
from tblctl.maintain.request import Request
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.task.spec import MergeTask

RANGES, BLOCKS, ROWS = 10, 4, 2_000
KEYS = 1_000_000
STEPS = 30
SEEDS = 4
PARALLEL = 2
ROWS_PER_SECOND = 100
TICK_SECONDS = 1.0
EVERY_SECONDS = 40.0
AT_END = 10**6
"""More groups than a round has."""


def measure(report: Report, tiny: bool) -> None:
    steps, seeds, blocks = (2, 1, 2) if tiny else (STEPS, SEEDS, BLOCKS)
    for what, run in (
        (f"one run of {RANGES} groups", one_run),
        (
            f"a loop as long as {steps} updates, with appends",
            lambda table, seed, every: loop(table, seed, every, steps),
        ),
    ):
        report.begin(f"{what}: {RANGES} x {blocks} blocks of {ROWS:,} rows; {seeds} seeds")
        shares = {}
        for name, every in (("ours", None), ("baseline, one commit a round", AT_END)):
            found = [fresh(run, seed, every, blocks) for seed in range(seeds)]
            groups = sum(one.committed for one in found)
            conflicts = sum(one.conflicted for one in found)
            merged = sum(one.rows_merged for one in found)
            shares[name] = conflicts / max(1, conflicts + groups)
            report.line(f"  {name}")
            report.figure("  groups committed", groups / seeds, "a run")
            report.figure("  groups that conflicted", conflicts / seeds, "a run")
            report.figure("  share that conflicted", 100 * shares[name], "%")
            vain = merged - sum(one.rows_committed for one in found)
            report.figure("  rows committed", (merged - vain) / seeds, "a run")
            report.figure("  rows merged in vain", vain / seeds, "a run")
            report.figure("  share of rows merged in vain", 100 * vain / max(1, merged), "%")
            report.figure("  average depth after it", sum(one.depth for one in found) / seeds, "")
        ours, theirs = shares.values()
        report.figure("share that conflicted, ours / baseline", ours / max(theirs, 1e-9), "x")


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a run did: `depth` is the average at its end, or in a loop the mean over the time that it takes."""

    committed: int
    conflicted: int
    rows_merged: int
    rows_committed: int
    depth: float


def fresh(
    run: Callable[[tblctl.Table, int, int | None], Found], seed: int, every: int | None, blocks: int
) -> Found:
    """Run on a table of its own."""
    with scratch() as folder:
        return run(make_table(folder, seed, blocks), seed, every)


def make_table(folder: Path, seed: int, blocks: int) -> tblctl.Table:
    schema = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("text", pa.string())])
    table = tblctl.create(str(folder / "t"), schema, cluster_by="key", options={"block_rows": ROWS})
    chance = np.random.default_rng(seed)
    for number in range(RANGES * blocks):
        append(table, chance, number % RANGES)
    return table


def append(table: tblctl.Table, chance: np.random.Generator, place: int) -> None:
    """Append a block with keys all over one range."""
    width = KEYS // RANGES
    keys = place * width + chance.integers(0, width, ROWS)
    text = [f"text {number}" for number in chance.integers(0, 1000, ROWS)]
    table.append(
        pa.table({"key": keys, "value": np.zeros(ROWS, np.int64), "text": text}, schema=table.schema)
    )


class Time:
    """The simulated time; `act` is called every `EVERY_SECONDS`."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.seconds = 0.0
        self._act, self._next_seconds = act, EVERY_SECONDS

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds
        while self.seconds >= self._next_seconds:
            self._next_seconds += EVERY_SECONDS
            self._act()


class Simulated:
    """An engine that merges at a speed of its own: a task's blocks are there when its time is over."""

    name = "local"
    parallelism = PARALLEL
    cut = LocalEngine.cut

    def __init__(self, time: Time) -> None:
        self.rows_merged = 0
        self.thresholds = LocalEngine().thresholds
        self._time = time

    def run(
        self,
        io: Any,
        tasks: Iterable[MergeTask],
        done: Callable[[Any], None],
        *,
        title: str,
        advance: Callable[[int], None] | None = None,
        wanted: Callable[[int], bool] = lambda _group: True,
    ) -> None:
        waiting, running = iter(tasks), dict[tuple[int, int], tuple[MergeTask, int]]()
        while True:
            while len(running) < PARALLEL and (task := next(waiting, None)) is not None:
                running[task.group, task.number] = task, task.rows
            if not running:
                return
            self._time.pass_by(TICK_SECONDS)
            for place, (task, left) in list(running.items()):
                rows = min(left, int(ROWS_PER_SECOND * TICK_SECONDS))
                running[place] = task, left - rows
                self.rows_merged += rows
                if advance:
                    advance(rows)
            for place, (task, left) in list(running.items()):
                if not left or not wanted(task.group):
                    del running[place]
                    LocalEngine().run(
                        io, [task], done, title=title, **({} if left == 0 else {"wanted": wanted})
                    )


def updater(table: tblctl.Table, seed: int, *, appends: bool) -> Callable[[], None]:
    """Return a function that updates a random range, and with `appends` now and then appends a block."""
    chance, appended, count = random.Random(seed), np.random.default_rng(seed), 0

    def act() -> None:
        nonlocal count
        count += 1
        low = chance.randrange(KEYS)
        table.update({"value": count}, f"key >= {low} AND key < {low + KEYS // 100}")
        if appends and count % 4 == 0:
            append(table, appended, chance.randrange(RANGES))

    return act


def job_of(
    table: tblctl.Table, engine: Simulated, time: Time, every: int | None, *, endless: bool
) -> ReclusterJob:
    request = Request.of(
        policy="levels", condition=lambda _: None, options={"threshold": 1.5}, commit_every=every
    )
    port = table._port  # noqa: SLF001
    port.env = dataclasses.replace(port.env, elapsed=lambda: time.seconds)
    return ReclusterJob(port=port, request=request, engine=lambda _: engine, endless=endless)


def one_run(table: tblctl.Table, seed: int, every: int | None) -> Found:
    other = tblctl.open(table.location)
    time = Time(updater(other, seed, appends=False))
    engine = Simulated(time)
    job = job_of(table, engine, time, every, endless=False)
    taken = step(job, job.start())
    while isinstance(taken, Committed | Retry) and getattr(taken, "more", True):
        taken = step(job, taken.state)
    return found_of(taken.state.totals, engine, other.info().average_depth or 0.0)


def loop(table: tblctl.Table, seed: int, every: int | None, steps: int) -> Found:
    """Step a service's loop until the writer acted so often; time passes while the loop is idle or waits, too."""
    depths: list[float] = []
    other = tblctl.open(table.location)
    write = updater(other, seed, appends=True)

    def act() -> None:
        write()
        depths.append(other.info().average_depth or 0.0)

    time = Time(act)
    engine = Simulated(time)
    job = job_of(table, engine, time, every, endless=True)
    state = job.start()
    while len(depths) < steps:
        taken = step(job, state)
        state = taken.state
        if not isinstance(taken, Committed):
            time.pass_by(TICK_SECONDS)
    return found_of(state.totals, engine, sum(depths) / len(depths))


def found_of(totals: Any, engine: Simulated, depth: float) -> Found:
    return Found(
        committed=totals.committed_groups,
        conflicted=totals.conflicted_groups,
        rows_merged=engine.rows_merged,
        rows_committed=totals.rows,
        depth=depth,
    )


if __name__ == "__main__":
    main("beside", measure)
