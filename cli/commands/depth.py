"""Measure how deep a table's blocks lie by any columns, without changing the table."""

from __future__ import annotations

from typing import Any

import click

import tblctl
from tblctl.cli.arguments import params
from tblctl.cli.command import command
from tblctl.cli.commands.measure import WORST
from tblctl.cli.show import render
from tblctl.cli.show.figures import INFO_JSON, put_info
from tblctl.cli.show.folder import load_files


@command(
    "depth",
    example="""
    tblctl depth /data/lineitem "l_orderkey, l_linenumber"
    tblctl depth /data/lineitem "month(l_shipdate)" --where "l_shipmode = 'AIR'\"""",
    json_shape=INFO_JSON,
)
@params.LOCATION
@click.argument("terms")
@params.WHERE_BLOCKS
@WORST
@params.opens_any_format
def depth(
    *,
    location: str,
    terms: str,
    where: str | None,
    worst: int,
    opening: dict[str, Any],
    as_json: bool,
) -> None:
    """Show how deep blocks lie by any columns.

    TERMS has the form of a cluster key: columns, year, month, day, hour, truncate(n, column), each with asc or desc and
    nulls first or last. The table need not be clustered by them, nor at all. Ranges come from column statistics. So a
    key of several columns may look deeper than it is, and bucket(n, column) has no range, since it keeps no order. Of 2
    to 4 columns it also shows how well blocks separate them: how many have a place in common, and what ranges read.
    """
    table = tblctl.open(location, **opening)
    load_files(table)
    found = table.info(columns=terms, where=where, worst=worst, boxes=True)
    if as_json:
        render.print_json(found.to_dict())
    else:
        put_info(
            found,
            params.refine_advice(location, opening),
            is_iceberg=isinstance(table, tblctl.IcebergTable),
        )
