"""Recluster by the SQL statement that engines pass on."""

from __future__ import annotations

from typing import Any

import click

import tblctl
from tblctl.cli.arguments.engines import EngineChoice, engine_options
from tblctl.cli.command import command
from tblctl.cli.show.outcomes import RECLUSTER_JSON, print_missing, print_recluster
from tblctl.cli.show.progress import progress


@command(
    "sql",
    example="""
    tblctl sql "ALTER TABLE IF EXISTS '/data/lineitem' RECLUSTER FINAL WHERE l_shipdate >= '1998-01-01'"
    tblctl sql "OPTIMIZE TABLE '/data/lineitem' RECLUSTER\"""",
    json_shape=f"""
    {RECLUSTER_JSON.strip()}
    if IF EXISTS finds no table, an object: location, note""",
    writes=True,
)
@click.argument("statement")
@engine_options
def sql(*, statement: str, storage_options: dict[str, Any], as_json: bool, **words: Any) -> None:
    """Recluster by an SQL statement.

    STATEMENT is ALTER TABLE [IF EXISTS] name RECLUSTER [FINAL] [WHERE condition]. OPTIMIZE instead of ALTER implies
    FINAL. The name is a location, such as lake/lineitem. Quote names with blanks or odd characters: 'my lake/lineitem'.
    """
    engine = EngineChoice.of(words).arguments()
    parsed = tblctl.parse_statement(statement)
    with progress("reclustering", first="planning") as report:
        outcome = tblctl.execute(statement, storage_options=storage_options, progress=report, **engine)
    if outcome is None:
        print_missing(parsed.location, as_json=as_json)
    else:
        print_recluster(outcome, as_json=as_json)
