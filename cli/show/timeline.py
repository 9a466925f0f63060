"""Print a table's history: its last reclusters, and its depth after each snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tblctl
from tblctl.cli.show import page, render
from tblctl.cli.show.outcomes import recluster_clause

RUNS_SHOWN = 3
RUNS_WITHIN = 50  # snapshots that are searched for the last runs. Each costs reading an object


def last_runs(table: tblctl.Table) -> list[tblctl.SnapshotInfo]:
    """Return the last reclusters, newest first."""
    return [item for item in table.history(limit=RUNS_WITHIN) if item.operation == "recluster"][:RUNS_SHOWN]


def run_to_json(run: tblctl.SnapshotInfo) -> dict[str, Any]:
    """Return a recluster as JSON values."""
    names = ("timestamp", "blocks_removed", "blocks_added", "bytes_added", "detail")
    values = run.to_dict()
    return {"snapshot": run.sequence, **{name: values[name] for name in names}}


def put_runs(runs: Sequence[tblctl.SnapshotInfo]) -> None:
    """Print a line for every round, newest first."""
    page.put()
    rows = [
        (
            run.sequence,
            render.minute(run.timestamp),
            f"{run.blocks_removed:,} to {run.blocks_added:,}",
            render.size(run.bytes_added),
            recluster_clause(run.detail),
        )
        for run in runs
    ]
    names = ("run", "time (UTC)", "blocks", "written", "what it did")
    page.put_table(names, rows, right=(0, 2, 3), text=(4,))


def put_history(points: Sequence[tblctl.DepthPoint]) -> None:
    """Print the depths as a line of bars, oldest first, and a line for every snapshot, newest first."""
    page.put()
    depths = [point.average_depth for point in reversed(points)]
    known = [depth for depth in depths if depth is not None]
    span = f"  {known[0]:,.2f} to {known[-1]:,.2f} (highest {max(known):,.2f})" if known else "  unknown"
    page.put(("depth ", page.HEADING), (page.sparkline(depths), "cyan"), span, "\n")
    rows = [
        (
            point.snapshot,
            render.minute(point.timestamp),
            point.operation,
            render.number(point.blocks),
            "-" if point.source is None else render.average(point.average_depth),
            "-" if point.source is None else render.average(point.average_overlaps),
            point.source or "unknown",
        )
        for point in points
    ]
    names = ("snapshot", "time (UTC)", "operation", "blocks", "depth", "overlaps", "known from")
    page.put_table(names, rows, right=(0, 3, 4, 5))
