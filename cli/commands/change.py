"""Change rows: append, delete, update, overwrite."""

from __future__ import annotations

import sys
from typing import Any

import click

import tblctl
from tblctl.cli import config
from tblctl.cli.arguments import params
from tblctl.cli.command import command
from tblctl.cli.failures import FAILED
from tblctl.cli.show import render
from tblctl.cli.show.outcomes import OUTCOME_JSON, print_outcome, rewrite_clause
from tblctl.cli.show.progress import progress

FILES = click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, shell_complete=params.complete_files
)
HIVE = click.option(
    "--hive/--no-hive",
    default=None,
    help="Whether folders key=value above files are columns. If neither is said, files that lie in such folders are "
    "refused, unless they have the columns themselves. --no-hive makes such a column of the table NULL, and warns.",
)
MEMORY = params.size_option(
    "--memory",
    "Memory that the write may use, such as 2GiB (default: the table's setting memory_bytes). Rows that fit are "
    "sorted together.",
    name="memory_bytes",
)


def read_files(files: tuple[str, ...]) -> Any:
    """Return the data to append: paths, or for `-` the stream on standard input."""
    if "-" not in files:
        return list(files)
    if len(files) > 1:
        raise click.UsageError("'-' (standard input) cannot be mixed with files", click.get_current_context())
    if sys.stdin.isatty():
        raise click.UsageError(
            "'-' reads an Arrow IPC stream, and standard input is a terminal", click.get_current_context()
        )
    import pyarrow as pa

    try:
        stream = pa.ipc.open_stream(sys.stdin.buffer)
        return pa.RecordBatchReader.from_batches(stream.schema, map(_validated, stream))
    except (pa.ArrowException, OSError) as error:
        raise click.ClickException(f"standard input is not an Arrow IPC stream: {error}") from error


def _validated(batch: Any) -> Any:
    """Return the batch. Arrow itself reads wherever the offsets and indices of a stream lead."""
    batch.validate(full=True)
    return batch


@command(
    "append",
    example="""
    tblctl append /data/lineitem part-*.parquet
    tblctl append s3://bucket/events 's3://lake/in/2026-11/*.parquet'
    tblctl append /data/events in/ --hive
    tblctl scan /data/old --output - | tblctl append /data/new -""",
    json_shape=OUTCOME_JSON,
    writes=True,
)
@params.NATIVE_LOCATION
@FILES
@HIVE
@MEMORY
@click.option(
    "--recluster",
    is_flag=True,
    help="Then do one round of `tblctl recluster`. If it fails, the rows stay appended, and the exit code is 1.",
)
def append(
    *,
    location: str,
    files: tuple[str, ...],
    hive: bool | None,
    memory_bytes: int | None,
    recluster: bool,
    storage_options: dict[str, Any],
    as_json: bool,
) -> None:
    """Append the rows of files, or of standard input.

    FILE is a Parquet or an Arrow IPC file (.arrow), a folder of Parquet files, or a glob in quotes; or '-' for an IPC
    stream on standard input. All files are one commit: either all of their rows are appended, or none. Columns are
    matched by name. Those that may be null may be absent. Types are cast where no value changes. `tblctl import` takes
    each file once.
    """
    data = read_files(files)
    table = tblctl.open(location, storage_options=storage_options)
    with progress("appending") as report:
        outcome = table.append(
            data,
            hive=hive,
            memory_bytes=memory_bytes,
            recluster=recluster,
            source_options=config.source_options,
            progress=report,
        )
    rows, blocks = render.count(outcome.rows_added, "row"), render.count(outcome.blocks_added, "block")
    done = f"appended {rows} in {blocks} ({render.size(outcome.bytes_added)})"
    print_outcome(outcome, done=done, as_json=as_json)
    table.close()
    if (
        recluster
        and outcome.snapshot is not None
        and (outcome.recluster is None or outcome.recluster.failed_groups)
    ):
        click.get_current_context().exit(FAILED)


@command(
    "delete",
    example="""tblctl delete /data/lineitem --where "l_orderkey < 1000 or l_comment is null" """,
    json_shape=OUTCOME_JSON,
    writes=True,
)
@params.NATIVE_LOCATION
@click.option(
    "--where", metavar="CONDITION", required=True, help="SQL: rows for which this is true are deleted."
)
def delete(*, location: str, where: str, storage_options: dict[str, Any], as_json: bool) -> None:
    """Delete the rows for which a condition is true. Rows for which it is NULL stay."""
    table = tblctl.open(location, storage_options=storage_options)
    with progress("deleting") as report:
        outcome = table.delete(where, progress=report)
    done = f"deleted {render.count(outcome.rows_removed, 'row')}, {rewrite_clause(outcome)}"
    print_outcome(outcome, done=done, as_json=as_json)
    table.close()


@command(
    "update",
    example="""tblctl update /data/lineitem --set "l_tax = 0, l_comment = NULL" --where "l_shipmode = 'AIR'" """,
    json_shape=OUTCOME_JSON,
    writes=True,
)
@params.NATIVE_LOCATION
@click.option(
    "--set",
    "assignments",
    metavar="ASSIGNMENTS",
    required=True,
    multiple=True,
    help="New values, literals only: \"a = 0, b = 'x', c = NULL\". Repeatable.",
)
@params.WHERE
@click.option("--all", "every_row", is_flag=True, help="Change all rows; needed without --where.")
def update(
    *,
    location: str,
    assignments: tuple[str, ...],
    where: str | None,
    every_row: bool,
    storage_options: dict[str, Any],
    as_json: bool,
) -> None:
    """Set columns of rows to new values.

    Changes the rows for which the condition is true, or all rows with --all.
    """
    if every_row == (where is not None):
        params.refuse(
            "--where and --all exclude each other"
            if every_row
            else "say which rows to change: --where CONDITION, or --all for all rows"
        )
    table = tblctl.open(location, storage_options=storage_options)
    with progress("updating") as report:
        outcome = table.update(", ".join(assignments), where=where, progress=report)
    done = f"updated {render.count(outcome.rows_removed, 'row')}, {rewrite_clause(outcome)}"
    print_outcome(outcome, done=done, as_json=as_json)
    table.close()


@command(
    "overwrite",
    example="""
    tblctl overwrite /data/lineitem new/*.parquet
    tblctl overwrite /data/lineitem march.parquet --where "l_shipdate between '1995-03-01' and '1995-03-31'" """,
    json_shape=OUTCOME_JSON,
    writes=True,
)
@params.NATIVE_LOCATION
@FILES
@HIVE
@params.WHERE
@MEMORY
def overwrite(
    *,
    location: str,
    files: tuple[str, ...],
    hive: bool | None,
    where: str | None,
    memory_bytes: int | None,
    storage_options: dict[str, Any],
    as_json: bool,
) -> None:
    """Replace rows by those of files.

    One commit removes the rows for which the condition is true, or all rows if there is no condition, and adds the rows
    of the files. Rows that others append before this commit are removed too. FILE is as for `tblctl append`.
    """
    data = read_files(files)
    table = tblctl.open(location, storage_options=storage_options)
    with progress("overwriting") as report:
        outcome = table.overwrite(
            data,
            where=where,
            hive=hive,
            memory_bytes=memory_bytes,
            source_options=config.source_options,
            progress=report,
        )
    removed, added = render.count(outcome.rows_removed, "row"), render.count(outcome.rows_added, "row")
    done = f"replaced {removed} by {added}, {rewrite_clause(outcome)}"
    print_outcome(outcome, done=done, as_json=as_json)
    table.close()
