"""Create, alter and drop a table."""

from __future__ import annotations

import textwrap
from typing import Any

import click

import tblctl
from tblctl.cli.arguments import params
from tblctl.cli.command import command
from tblctl.cli.show import render
from tblctl.cli.show.outcomes import OUTCOME_JSON, print_outcome
from tblctl.cli.show.output import column_list

SETTINGS_WIDTH = 100  # of the settings' help: as wide as the examples


@command(
    "create",
    example="""
    tblctl create /data/lineitem --like lineitem.parquet --cluster-by "l_shipdate, l_orderkey"
    tblctl create s3://bucket/events --schema "id: int64 not null, at: timestamp[us, tz=UTC], tags: list<string>" \\
           --cluster-by "day(at), bucket(16, id)" --set block_rows=500000""",
    json_shape="object: location, columns [{name, type}], cluster_by, options, snapshot",
)
@params.NATIVE_LOCATION
@click.option(
    "--schema", metavar="TEXT", help='Columns: "name: type [not null], ...", such as "a: int64, b: string".'
)
@click.option("--like", metavar="FILE", help="Take the columns of this Parquet or Arrow file.")
@click.option(
    "--cluster-by",
    metavar="TERMS",
    default="",
    help="The cluster key: columns, or year|month|day|hour(c), truncate(n, c), bucket(n, c), each with [asc|desc] "
    "[nulls first|last]; or alone zorder(c, c, ..) or hilbert(c, c, ..) of 2 to 4 columns, or qdtree(file:FILE[, "
    'min_rows=N][, by="c, c"]) for the conditions in FILE; these are made from the rows of --like.',
)
@params.SETTINGS
def create(
    *,
    location: str,
    schema: str | None,
    like: str | None,
    cluster_by: str,
    settings: dict[str, str],
    storage_options: dict[str, Any],
    as_json: bool,
) -> None:
    """Create an empty table.

    LOC must be empty or missing.
    """
    if (schema is None) == (like is None):
        raise click.UsageError("give the columns by one of --schema and --like", click.get_current_context())
    table = tblctl.create(
        location,
        tblctl.read_schema(like, storage_options=storage_options) if like is not None else schema,
        cluster_by=cluster_by or (),
        sample=like,
        options=settings,
        storage_options=storage_options,
    )
    if as_json:
        render.print_json(
            {
                "location": table.location,
                "columns": column_list(table.schema),
                "cluster_by": list(table.cluster_by),
                "options": dict(table.options),
                "snapshot": table.snapshot.sequence,
            }
        )
        return
    key = f"clustered by {', '.join(table.cluster_by)}" if table.cluster_by else "without a cluster key"
    click.echo(f"created {table.location}: {render.count(len(table.schema), 'column')}, {key}")


def settings_help() -> str:
    """Return a line for each of the table's settings and its meaning."""
    return "\n".join(
        textwrap.fill(f"{key:<18} {text}", width=SETTINGS_WIDTH, subsequent_indent=" " * 19)
        for key, text in tblctl.OPTION_DOCS.items()
    )


@command(
    "alter",
    example="""
    tblctl alter /data/lineitem --cluster-by "l_orderkey"
    tblctl alter /data/lineitem --cluster-by "hilbert(l_shipdate, l_partkey)"
    tblctl alter /data/lineitem --cluster-by "qdtree(file:cuts.sql, min_rows=100000)"
    tblctl alter /data/lineitem --add-column "note: string"
    tblctl alter /data/lineitem --set block_rows=500000 --set compression_level=3""",
    json_shape=OUTCOME_JSON,
)
@params.NATIVE_LOCATION
@click.option(
    "--cluster-by",
    metavar="TERMS",
    help="Set the cluster key, see `tblctl create --help`; `same` makes new boundaries for a zorder or hilbert key "
    "from the rows of now.",
)
@click.option("--drop-cluster-by", is_flag=True, help="Remove the cluster key.")
@click.option("--add-column", metavar="NAME:TYPE", help="Add a column. Existing rows have NULL in it.")
@click.option("--rename-column", metavar="OLD=NEW", help="Rename a column.")
@click.option("--drop-column", metavar="NAME", help="Drop a column that the cluster key does not use.")
@click.option(
    "--widen-column", metavar="NAME:TYPE", help="Give a column a wider type, such as int64 for int32."
)
@params.SETTINGS
def alter(*, location: str, storage_options: dict[str, Any], as_json: bool, **actions: Any) -> None:
    """Change the key, a column, or the settings.

    Each call changes one of them. Data is never rewritten.
    """
    chosen = {name: value for name, value in actions.items() if value}
    if len(chosen) != 1:
        given = ", ".join("--set" if name == "settings" else f"--{name.replace('_', '-')}" for name in chosen)
        raise click.UsageError(
            f"alter changes one thing at a time, not {given}"
            if chosen
            else "say what to alter, by one option",
            click.get_current_context(),
        )
    [(action, value)] = chosen.items()
    arguments = read_action(action, value)
    table = tblctl.open(location, storage_options=storage_options)
    outcome, done = change_table(table, action, arguments)
    print_outcome(outcome, done=done, as_json=as_json)


def read_action(action: str, value: Any) -> tuple[Any, ...]:
    """Parse the words of one action into the arguments of the method that does it."""
    if action in {"add_column", "widen_column"}:
        return params.read_column(value, option=f"--{action.replace('_', '-')}")
    if action == "rename_column":
        old, equals, new = value.partition("=")
        if not equals or not old.strip() or not new.strip():
            raise click.UsageError(
                f"--rename-column: expected OLD=NEW, not {value!r}", click.get_current_context()
            )
        return old.strip(), new.strip()
    return (value,)


def change_table(
    table: tblctl.Table, action: str, arguments: tuple[Any, ...]
) -> tuple[tblctl.WriteOutcome, str]:
    """Do one action. Return its outcome, and the clause that describes it."""
    words = [str(argument) for argument in arguments]
    match action:
        case "cluster_by":
            outcome, key = table.set_cluster_key(*arguments), words[0]
            if key.strip().lower() == "same" and table.cluster_by != ("same",):
                key = f"{', '.join(table.cluster_by)}, with new boundaries"
            return outcome, f"cluster key is now {key}"
        case "drop_cluster_by":
            return table.drop_cluster_key(), "cluster key dropped"
        case "add_column":
            return table.add_column(*arguments), f"added column {words[0]}: {words[1]}"
        case "rename_column":
            return table.rename_column(*arguments), f"renamed column {words[0]} to {words[1]}"
        case "drop_column":
            return table.drop_column(*arguments), f"dropped column {words[0]}"
        case "widen_column":
            return table.widen_column(*arguments), f"widened column {words[0]} to {words[1]}"
        case _:
            settings = ", ".join(f"{key}={value}" for key, value in arguments[0].items())
            return table.set_options(*arguments), f"set {settings}"


@command(
    "drop",
    example="tblctl drop /data/lineitem --yes",
    json_shape="object: location, dropped (false if there was no table)",
)
@params.NATIVE_LOCATION
@click.option("--yes", is_flag=True, help="Confirm: without it nothing is dropped.")
@click.option("--if-exists", is_flag=True, help="A missing table is no error.")
def drop(
    *, location: str, yes: bool, if_exists: bool, storage_options: dict[str, Any], as_json: bool
) -> None:
    """Delete the table with all its rows and history."""
    if not yes:
        raise click.UsageError(
            f"drop deletes {location} with all its rows and history; add --yes if that is meant",
            click.get_current_context(),
        )
    dropped = tblctl.drop(location, if_exists=if_exists, storage_options=storage_options)
    if as_json:
        render.print_json({"location": location, "dropped": dropped})
    else:
        click.echo(f"dropped {location}" if dropped else f"no table at {location}: nothing to drop")


create.more_help = settings_help
alter.more_help = settings_help
