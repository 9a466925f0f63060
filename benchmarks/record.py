"""What recording a scan costs, in processor seconds: with `recluster.record=on` against off, on TPC-H lineitem."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import tblctl
from benchmarks.common import Report, in_turn, lineitem, main, scratch, timed
from tblctl.tableformat.native.read import scan
from tblctl.tableformat.workload import recorder, writer

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
    report.begin("the recorder's own calls, the writing of the log included")
    for name, request in CASES.items():
        table = tblctl.open(location, record="on")
        seconds = timed(partial(scanned, table, request), time.process_time)()
        runs = 1 if tiny else max(5, min(300, round(_SECONDS / seconds)))  # a file has up to 1,000 scans
        table.close()
        with _timed_calls() as spent:
            started = time.process_time()
            for _ in range(runs):
                scanned(table, request)
            table.close()
            seconds = time.process_time() - started
        share = 100 * sum(spent) / seconds
        report.figure(f"{name}, a scan", 1e6 * sum(spent) / runs, "us")
        report.figure(f"{name}, of the scan", share, "%", most=None if tiny else 1.0)


_SECONDS = 5.0
"""So long the scans of a case take together."""

_CALLS = (
    (scan, "_bytes_a_row"),
    (recorder.Tally, "add"),
    (recorder.Recorder, "tally"),
    (recorder.Recorder, "add"),
    (writer.LogWriter, "_write"),
)


@contextmanager
def _timed_calls() -> Iterator[list[float]]:
    """Yield the processor seconds of each call of the recorder."""
    spent: list[float] = []

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            started = time.thread_time()
            try:
                return function(*arguments)
            finally:
                spent.append(time.thread_time() - started)

        return run

    with ExitStack() as stack:
        for owner, name in _CALLS:
            stack.enter_context(mock.patch.object(owner, name, wrap(getattr(owner, name))))
        yield spent


if __name__ == "__main__":
    main("record", measure)
