"""Many writers of one table: 64 appenders beside a recluster loop, one appender alone, and 1,000 small appends.

On local disk, and on MinIO if it is installed. Appenders are threads of eight processes. Each appends 100 rows of
random keys, as often as it can, while another process reclusters the table again and again. An appender starves if it
waits long, or commits far less than others: so each one's commits are counted, and its longest append is timed. Every
row is looked for afterwards.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import tblctl
from benchmarks.common import ROOT, Report, main, scratch
from tblctl.errors import TblctlError

sys.path.append(str(ROOT / "tests"))
from servers import find_minio, run_minio

ROWS = 100
SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("text", pa.string())])
KEYS = 1_000_000
LEAST_SHARE = 0.25
MOST_WAIT_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a table is. It is pickled to processes."""

    url: str
    options: dict[str, Any]

    def create(self) -> tblctl.Table:
        return tblctl.create(self.url, SCHEMA, cluster_by="key", storage_options=self.options)

    def open(self) -> tblctl.Table:
        return tblctl.open(self.url, storage_options=self.options)


@dataclass(frozen=True, kw_only=True)
class Race:
    """How many processes append, with how many threads each, and for how long, once they had time to import."""

    processes: int
    threads: int
    seconds: float
    import_seconds: float


@dataclass(frozen=True, kw_only=True)
class Appender:
    """What one appender did: seconds of every append, and the texts of errors."""

    seconds: Sequence[float]
    errors: Sequence[str]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="of the 64 appenders")


def measure(report: Report, tiny: bool, *, seconds: float) -> None:
    race = (
        Race(processes=2, threads=2, seconds=0.5, import_seconds=0.0)
        if tiny
        else Race(processes=8, threads=8, seconds=seconds, import_seconds=10.0)
    )
    with scratch() as folder, run_minio() if find_minio() else nullcontext() as server:
        kinds = {"local disk": Place(url=str(folder), options={})}
        if server is None:
            report.line("skipped MinIO: it is not installed")
        else:
            url = f"s3://{server.bucket}/load"
            kinds["MinIO"] = Place(url=url, options=server.storage_options)
        for kind, place in kinds.items():
            inside = [
                Place(url=f"{place.url}/{name}", options=place.options) for name in ("many", "one", "small")
            ]
            many_appenders(report, kind, inside[0], race)
            one_appender(report, kind, inside[1], min(10.0, race.seconds))
            small_appends(report, kind, inside[2], 5 if tiny else 1000)


def many_appenders(report: Report, kind: str, place: Place, race: Race) -> None:
    """Let appenders race for some seconds, beside a recluster loop."""
    seconds = race.seconds
    report.begin(
        f"{kind}: {race.processes * race.threads} appenders for {seconds:g} s, beside a recluster loop"
    )
    place.create()
    with multiprocessing.get_context("spawn").Pool(race.processes + 1) as pool:
        started = time.time() + race.import_seconds
        loop = pool.apply_async(recluster_loop, (place, race, started))
        working = [pool.apply_async(append_for, (place, race, n, started)) for n in range(race.processes)]
        appenders = [item for result in working for item in result.get()]
        rounds, groups, conflicts = loop.get()
    commits = [len(item.seconds) for item in appenders]
    waits = [second for item in appenders for second in item.seconds]
    report.figure("appends that failed", sum(len(item.errors) for item in appenders), "", most=0)
    report.figure("appends a second", sum(commits) / seconds, "1/s")
    report.figure("median append", statistics.median(waits), "s")
    report.figure("longest append", max(waits), "s", most=MOST_WAIT_SECONDS)
    report.figure(
        "least appends of one, of the mean", min(commits) / statistics.mean(commits), "x", least=LEAST_SHARE
    )
    report.figure("most appends of one, of the mean", max(commits) / statistics.mean(commits), "x")
    report.line(f"  recluster loop: {rounds} rounds, {groups} groups committed, {conflicts} in conflict")
    table = place.open()
    require_rows(table, sum(commits))
    info = table.info()
    report.line(
        f"  {sum(commits):,} appends; at the end {info.total_block_count} blocks, depth {info.average_depth:.2f}"
    )


def one_appender(report: Report, kind: str, place: Place, seconds: float) -> None:
    """Append alone, as often as possible."""
    report.begin(f"{kind}: one appender for {seconds:g} s")
    place.create()
    table, stop, done = place.open(), time.monotonic() + seconds, []
    while time.monotonic() < stop:
        started = time.perf_counter()
        table.append(rows(0, len(done)))
        done.append(time.perf_counter() - started)
    require_rows(place.open(), len(done))
    report.figure("commits a second", len(done) / seconds, "1/s")
    report.seconds("an append", done)


def small_appends(report: Report, kind: str, place: Place, count: int) -> None:
    """Append a few rows many times, then recluster the table."""
    report.begin(f"{kind}: {count:,} appends of {ROWS} rows, then recluster --final")
    table = place.create()
    started = time.perf_counter()
    for number in range(count):
        table.append(rows(0, number))
    report.figure("appends", time.perf_counter() - started, "s")
    started = time.perf_counter()
    outcome = place.open().recluster(final=True)
    report.figure("recluster", time.perf_counter() - started, "s")
    require_rows(place.open(), count)
    report.line(f"  depth {outcome.depth_before:.1f} before, {outcome.depth_after:.1f} after")


# -- processes ---------------------------------------------------------------------------------------------------------


def rows(appender: int, number: int) -> pa.Table:
    """Return the rows of an append: ids are unique over all appenders."""
    first = (appender << 32) + number * ROWS
    keys = np.random.default_rng(first).integers(0, KEYS, ROWS)
    ids = np.arange(first, first + ROWS)
    return pa.table([ids, keys, [f"text {key}" for key in keys]], schema=SCHEMA)


def append_for(place: Place, race: Race, process: int, started: float) -> list[Appender]:
    """Append in some threads, each with a table of its own."""
    found: list[Appender | None] = [None] * race.threads

    def work(thread: int) -> None:
        appender, times, errors = process * race.threads + thread, [], []
        table = place.open()
        time.sleep(max(0.0, started - time.time()))
        while time.time() < started + race.seconds or not times + errors:
            began = time.perf_counter()
            try:
                table.append(rows(appender, len(times)))
            except TblctlError as error:
                errors.append(repr(error))
            else:
                times.append(time.perf_counter() - began)
        found[thread] = Appender(seconds=times, errors=errors)

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(race.threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [item for item in found if item is not None]


def recluster_loop(place: Place, race: Race, started: float) -> tuple[int, int, int]:
    """Recluster again and again; return rounds, groups that were committed, and groups in conflict."""
    table = place.open()
    time.sleep(max(0.0, started - time.time()))
    rounds = groups = conflicts = 0
    while time.time() < started + race.seconds:
        outcome = table.recluster()
        rounds += outcome.rounds
        groups += outcome.committed_groups
        conflicts += outcome.conflicted_groups
        if not outcome.rounds:
            time.sleep(0.2)
    return rounds, groups, conflicts


def require_rows(table: tblctl.Table, appends: int) -> None:
    """Raise unless every row of the appends is there once.

    Raises:
        AssertionError: rows were lost, or are there twice.
    """
    ids = table.scan(columns=["id"]).to_arrow()["id"]
    assert len(ids) == appends * ROWS, f"{len(ids)} rows of {appends} appends"
    assert len(ids.unique()) == len(ids), "rows are there twice"


if __name__ == "__main__":
    main("load", measure, options)
