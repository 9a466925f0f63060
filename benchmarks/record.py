"""What recording a scan costs, in processor seconds: with `recluster.record=on` against off, on TPC-H lineitem."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tblctl
from benchmarks.common import Report, in_turn, lineitem, main, scratch, timed

CASES: dict[str, dict[str, Any]] = {
    "all columns": {},
    "two columns": {"columns": ["l_orderkey", "l_quantity"]},
    "a month": {
        "where": "l_shipdate >= '1995-01-01' and l_shipdate < '1995-02-01'",
        "columns": ["l_orderkey"],
    },
    "a filter that prunes nothing": {"where": "l_quantity < 10", "columns": ["l_extendedprice"]},
}


def measure(report: Report, tiny: bool) -> None:
    path = lineitem("0.01" if tiny else "1")
    runs = 2 if tiny else 15
    with scratch() as folder:
        table = tblctl.create(
            folder / "table",
            tblctl.read_schema(path),
            cluster_by=["l_shipdate"],
            options={"block_rows": 5_000 if tiny else 200_000},
        )
        table.append(path)
        report.line(
            f"{table.snapshot.rows:,} rows of lineitem in {table.snapshot.blocks} blocks; {runs} runs"
        )
        for name, request in CASES.items():
            on, off = (case(folder / "table", mode, request) for mode in ("on", "off"))
            clock = time.process_time
            ours, baseline = in_turn([timed(on, clock), timed(off, clock)], runs=runs)
            report.begin(name)
            report.seconds("record=on, processor", ours)
            report.seconds("record=off, processor", baseline)
            excess = statistics.median(a - b for a, b in zip(ours, baseline, strict=True))
            share = 100 * excess / statistics.median(baseline)
            report.figure("more than without", share, "%")
        own_cost(report, folder / "table", tiny)


def case(location: Path, record: str, request: dict[str, Any]) -> Callable[[], object]:
    table = tblctl.open(location, record=record)
    return partial(scanned, table, request)


def scanned(table: tblctl.Table, request: dict[str, Any]) -> object:
    return table.scan(**request).to_arrow()


def own_cost(report: Report, location: Path, tiny: bool) -> None:
    """Time the recorder's own calls alone: of whole scans they are less than what one run differs from the next."""
    import cProfile
    import pstats

    report.begin("the recorder's own calls in a scan")
    table = tblctl.open(location, record="on")
    for name, request in CASES.items():
        profile = cProfile.Profile(time.process_time)
        runs = 1 if tiny else 5
        started = time.process_time()
        for _ in range(runs):
            scanned(table, request)
        seconds = (time.process_time() - started) / runs
        own = []
        for _ in range(runs):
            profile.clear()
            profile.runcall(recorded, table, request)
            own.append(_seconds_of(pstats.Stats(profile)))
        share = 100 * statistics.median(own) / seconds
        report.figure(f"{name}, of the scan", share, "%", most=None if tiny else 1.0)


def recorded(table: tblctl.Table, request: dict[str, Any]) -> None:
    """Read block by block in this thread, so that a profile sees the calls."""
    scanner = table.scan(**request)._scanner  # noqa: SLF001 (the scan itself has no such setting)
    for _ in scanner.tables(window_bytes=1):
        pass


_CALLS = (
    ("read/scan.py", "_about_bytes"),
    ("workload/recorder.py", "tally"),
    ("workload/recorder.py", "add"),
)


def _seconds_of(stats: Any) -> float:
    """Return the time spent in the recorder's calls, with what these call."""
    return sum(
        figures[3]
        for (file, _, name), figures in stats.stats.items()
        if any(file.endswith(path) and name == called for path, called in _CALLS)
    )


if __name__ == "__main__":
    main("record", measure)
