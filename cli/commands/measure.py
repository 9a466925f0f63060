"""Measure how well a table is clustered."""

from __future__ import annotations

from typing import Any

import click

import tblctl
from tblctl.cli import params, pictures, render
from tblctl.cli.command import command
from tblctl.cli.outcomes import recluster_clause

BAR_WIDTH = 40
RUNS_SHOWN = 3
RUNS_WITHIN = 50  # snapshots looked at for the last runs: each is an object to read


@command(
    "info",
    example="""
    tblctl info /data/lineitem
    tblctl info /data/lineitem --columns l_orderkey --where "l_shipdate >= '1998-01-01'"
    tblctl info /data/lineitem --picture lineitem.html --compare 3:9""",
    json_shape="""
    object: cluster_by_keys [term], total_block_count, constant_block_count, unclustered_block_count,
    unknown_block_count, average_overlaps, average_depth, block_depth_histogram {label: blocks},
    depth {p50, p95, p99, max}, levels {level: the same figures of its blocks alone}, rows, bytes,
    last_runs [{snapshot, timestamp, blocks_removed, blocks_added, bytes_added, detail}]""",
)
@params.LOCATION
@params.WHERE
@click.option(
    "--columns",
    metavar="TERMS",
    help="As if clustered by these: 'a, b' or 'year(ts)'; from column statistics.",
)
@pictures.PICTURE
@pictures.COMPARE
def info(
    *,
    location: str,
    where: str | None,
    columns: str | None,
    picture: str | None,
    compare: pictures.Versions | None,
    storage_options: dict[str, Any],
    as_json: bool,
) -> None:
    """Tell how well the table is clustered.

    A block's overlaps are the other blocks whose range meets its own; its depth is the most blocks that any one key of
    its range may be in. 0 and 1 are best: then a key is in one block.
    """
    table = tblctl.open(location, storage_options=storage_options)
    found = table.info(columns=columns, where=where)
    pictures.draw(table, picture, compare, columns=columns, where=where)
    runs = [item for item in table.history(limit=RUNS_WITHIN) if item.operation == "recluster"][:RUNS_SHOWN]
    if as_json:
        render.print_json({**found.to_dict(), "last_runs": [run_to_json(run) for run in runs]})
        return
    print_info(found)
    if runs:
        print_runs(runs)
    pictures.say_drawn(picture)


def run_to_json(run: tblctl.SnapshotInfo) -> dict[str, Any]:
    """Return what a round did, as JSON values."""
    names = ("timestamp", "blocks_removed", "blocks_added", "bytes_added", "detail")
    values = run.to_dict()
    return {"snapshot": run.sequence, **{name: values[name] for name in names}}


def print_runs(runs: list[tblctl.SnapshotInfo]) -> None:
    """Print a line for every round, newest first."""
    click.echo()
    rows = [
        (
            run.sequence,
            run.timestamp,
            f"{run.blocks_removed:,}",
            f"{run.blocks_added:,}",
            render.size(run.bytes_added),
            recluster_clause(run.detail),
        )
        for run in runs
    ]
    names = ("last runs", "time (UTC)", "blocks in", "out", "written", "what it did")
    render.print_table(names, rows, right=(0, 2, 3, 4))


def print_info(found: tblctl.ClusteringInfo) -> None:
    """Print the figures for people."""
    apart = [
        f"{count:,} {word}"
        for count, word in (
            (found.constant_block_count, "constant"),
            (found.unclustered_block_count, "unclustered"),
            (found.unknown_block_count, "of unknown range"),
        )
        if count
    ]
    depth = found.depth
    lines = {
        "cluster key": ", ".join(found.cluster_by_keys),
        "rows": f"{found.rows:,}",
        "blocks": f"{found.total_block_count:,}" + (f" ({', '.join(apart)})" if apart else ""),
        "size": render.size(found.bytes),
        "overlaps": f"{found.average_overlaps:,.4f} on average",
        "depth": f"{found.average_depth:,.4f} on average; "
        f"p50 {depth.p50:,}, p95 {depth.p95:,}, p99 {depth.p99:,}, max {depth.max:,}",
    }
    for name, text in lines.items():
        click.echo(f"{name:<12} {render.printable(text)}")
    print_histogram(found)
    if len(found.levels) > 1:
        print_levels(found)


def print_histogram(found: tblctl.ClusteringInfo) -> None:
    """Print a bar for every depth that blocks have; labels are upper bounds above 16."""
    most = max((count for _, count in found.block_depth_histogram), default=0)
    if not most:
        return
    click.echo()
    rows = [
        (f"{int(label):,}", f"{count:,}", "█" * max(1, round(BAR_WIDTH * count / most)))
        for label, count in found.block_depth_histogram
    ]
    render.print_table(("depth", "blocks", ""), rows, right=(0, 1))


def print_levels(found: tblctl.ClusteringInfo) -> None:
    """Print a line for every level, each measured alone."""
    click.echo()
    rows = [
        (
            level,
            f"{figures.total_block_count:,}",
            f"{figures.rows:,}",
            render.size(figures.bytes),
            f"{figures.average_overlaps:,.4f}",
            f"{figures.average_depth:,.4f}",
            *(f"{figure:,}" for figure in figures.depth.to_dict().values()),
        )
        for level, figures in found.levels
    ]
    names = ("level", "blocks", "rows", "size", "overlaps", "depth", "p50", "p95", "p99", "max")
    render.print_table(names, rows, right=tuple(range(len(names))))
