"""Measure how well a table is clustered."""

from __future__ import annotations

from typing import Any

import click

import tblctl
from tblctl.cli import params, render
from tblctl.cli.command import command

BAR_WIDTH = 40


@command(
    "info",
    example="""
    tblctl info /data/lineitem
    tblctl info /data/lineitem --columns l_orderkey --where "l_shipdate >= '1998-01-01'\"""",
    json_shape="""
    object: cluster_by_keys [term], total_block_count, constant_block_count, unclustered_block_count,
    unknown_block_count, average_overlaps, average_depth, block_depth_histogram {label: blocks},
    depth {p50, p95, p99, max}, levels {level: the same figures of its blocks alone}, rows, bytes""",
)
@params.LOCATION
@params.WHERE
@click.option(
    "--columns",
    metavar="TERMS",
    help="As if clustered by these: 'a, b' or 'year(ts)'; from column statistics.",
)
def info(
    *,
    location: str,
    where: str | None,
    columns: str | None,
    storage_options: dict[str, Any],
    as_json: bool,
) -> None:
    """Tell how well the table is clustered.

    A block's overlaps are the other blocks whose range meets its own; its depth is the most blocks that any one key of
    its range may be in. 0 and 1 are best: then a key is in one block.
    """
    found = tblctl.open(location, storage_options=storage_options).info(columns=columns, where=where)
    if as_json:
        render.print_json(found.to_dict())
    else:
        print_info(found)


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
            f"{figures.depth.max:,}",
        )
        for level, figures in found.levels
    ]
    names = ("level", "blocks", "rows", "size", "overlaps", "depth", "max")
    render.print_table(names, rows, right=tuple(range(len(names))))
