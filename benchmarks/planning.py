"""Planning at 10^4 to 10^6 blocks: processor time from the columns of the metadata to the plan, by policy.

Reading these columns from the segments, and ranking the two key columns, are measured separately; `info` does both too.
The limit is for ranking and planning together.

The tables are those of the subject `metadata`. Each block has one to three days and any orders within, so about a
thousandth of all blocks hold a key. `levels` runs with its default threshold and with one of 4. It finds one range that
is too deep, from end to end, and picks the blocks that fit into a group. `full` puts all blocks into one group, and its
plan names them all.

Figures are the fastest of 3 runs. The first reading of segments, with a cold cache, is the slowest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.common import Report, main, scratch
from benchmarks.metadata import build
from benchmarks.metrics import MILLION, processor_seconds
from tblctl.maintain.request import Request, planned
from tblctl.maintain.view import View
from tblctl.tableformat.formats import open_port

SEGMENT_BLOCKS = 10_000
SEGMENTS = (1, 10, 100)
CASES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("levels", {}),
    ("levels", {"threshold": 4}),
    ("full", {}),
)
LIMIT_SECONDS = 2.0
RUNS = 3


def measure(report: Report, tiny: bool) -> None:
    for segments in (1,) if tiny else SEGMENTS:
        size = 1_000 if tiny else SEGMENT_BLOCKS
        blocks = segments * size
        report.begin(f"{blocks:,} blocks in {segments} segments")
        with scratch() as folder:
            build(folder / "table", segments, size, scattered=True)
            measure_table(report, str(folder / "table"), LIMIT_SECONDS if blocks == MILLION else None)


def measure_table(report: Report, location: str, limit: float | None) -> None:
    port = open_port(location)
    views: list[View] = []

    def read() -> None:
        version = port.newest()
        views.append(View.of(version, version.sort))

    report.figure("reading the segments", min(processor_seconds(read) for _ in range(RUNS)), "s")
    ranking = min(processor_seconds(lambda view=view: view.blocks) for view in views)
    report.figure("ranking the keys", ranking, "s")
    version, view = port.newest(), views[-1]
    for policy, options in CASES:
        request = Request.of(policy=policy, condition=lambda _: None, options=options)
        planning = min(
            processor_seconds(lambda asked=request: planned(version, view, asked)) for _ in range(RUNS)
        )
        name = ", ".join([policy, *(f"{option} {value}" for option, value in options.items())])
        report.figure(f"{name}: planning", planning, "s")
        report.figure("  with the ranking", ranking + planning, "s", most=limit)


if __name__ == "__main__":
    main("planning", measure)
