"""Planning at 10^4 to 10^6 blocks: processor time and memory from the columns of the metadata to the plan, by policy.

Reading these columns from the segments, and ranking the two key columns, are measured separately; `info` does both too.
The limits are for ranking and planning together. `workload` is not here: what it takes depends on the queries too.

The tables are those of the subject `metadata`. Each block has one to three days and any orders within, so about a
thousandth of all blocks hold a key. `levels` runs with its default threshold and with one of 4. It finds one range that
is too deep, from end to end, and picks the blocks that fit into a group. `full` puts all blocks into one group, and its
plan names them all. `sort-one` has the same table after a change of its cluster key: no block is in its order.

Figures are the fastest of 3 runs; memory is the peak of what reading, ranking and planning allocate, in a run of its
own. The first reading of segments, with a cold cache, is the slowest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tblctl
from benchmarks.common import Report, main, scratch
from benchmarks.metadata import build
from benchmarks.metrics import MILLION, peak_mib, processor_seconds
from tblctl.maintain.request import Request, planned
from tblctl.maintain.view import View
from tblctl.selector.planner import Planned
from tblctl.tableformat.formats import open_port

SEGMENT_BLOCKS = 10_000
SEGMENTS = (1, 10, 100)
CASES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("levels", {}),
    ("levels", {"threshold": 4}),
    ("full", {}),
    ("runs", {}),
    ("depth", {}),
    ("newdata", {}),
    ("size", {}),
)
UNSORTED: tuple[tuple[str, Mapping[str, Any]], ...] = (("sort-one", {}),)
OTHER_KEY = "l_receiptdate"
LIMIT_SECONDS, LIMIT_MIB = 2.0, 2048.0
RUNS = 3


def measure(report: Report, tiny: bool) -> None:
    for segments in (1,) if tiny else SEGMENTS:
        size = 1_000 if tiny else SEGMENT_BLOCKS
        blocks = segments * size
        report.begin(f"{blocks:,} blocks in {segments} segments")
        with scratch() as folder:
            place = folder / "table"
            build(place, segments, size, scattered=True)
            measure_table(report, str(place), CASES, limited=blocks == MILLION)
            tblctl.open(place).set_cluster_key(OTHER_KEY)
            report.line("  after a change of the cluster key:")
            measure_table(report, str(place), UNSORTED, limited=blocks == MILLION)


def measure_table(
    report: Report, location: str, cases: tuple[tuple[str, Mapping[str, Any]], ...], *, limited: bool
) -> None:
    port = open_port(location)
    views: list[View] = []

    def read() -> None:
        version = port.newest()
        views.append(View.of(version, version.sort, runs=True))

    report.figure("reading the segments", min(processor_seconds(read) for _ in range(RUNS)), "s")
    ranking = min(processor_seconds(lambda view=view: view.blocks) for view in views)
    report.figure("ranking the keys", ranking, "s")
    version, view = port.newest(), views[-1]
    for policy, options in cases:
        request = Request.of(policy=policy, condition=lambda _: None, options=options)

        def plan(asked: Request = request) -> Planned:
            return planned(version, view, asked)

        def plan_anew(asked: Request = request) -> Planned:
            fresh = open_port(location).newest()
            return planned(fresh, View.of(fresh, fresh.sort, runs=True), asked)

        planning = min(processor_seconds(plan) for _ in range(RUNS))
        name = ", ".join([policy, *(f"{option} {value}" for option, value in options.items())])
        report.figure(f"{name}: planning", planning, "s")
        report.figure("  with the ranking", ranking + planning, "s", most=LIMIT_SECONDS if limited else None)
        report.figure("  memory", peak_mib(plan_anew), "MiB", most=LIMIT_MIB if limited else None)


if __name__ == "__main__":
    main("planning", measure)
