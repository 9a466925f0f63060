"""Bring Parquet files into a table, and out of it."""

from __future__ import annotations

from typing import Any

import click

import tblctl
from tblctl.cli import config
from tblctl.cli.arguments import params
from tblctl.cli.command import command
from tblctl.cli.commands.change import HIVE, MEMORY
from tblctl.cli.failures import FAILED
from tblctl.cli.show import page, render
from tblctl.cli.show.outcomes import print_recluster_lines
from tblctl.cli.show.progress import progress

FILES_SHOWN = 5

IMPORT_JSON = """object: location, is_new, snapshot, files_taken, files_known, files_changed [path], rows_added,
blocks_added, bytes_added, bytes_read, commits, seconds, note, recluster (as of `tblctl recluster`, or null)"""


@command(
    "import",
    example="""
    tblctl import events/ /data/events --hive --cluster-by "at, customer"
    tblctl import 's3://lake/in/*.parquet' s3://bucket/events --recluster
    tblctl import events/ iceberg://prod/db.events --hive --cluster-by at""",
    json_shape=IMPORT_JSON,
    writes=True,
)
@click.argument("sources", metavar="SRC...", nargs=-1, required=True)
@params.LOCATION
@params.CATALOG_OPTION
@HIVE
@click.option(
    "--cluster-by",
    metavar="TERMS",
    default="",
    help="The cluster key of a new table, see `tblctl create --help`; of one that exists, it must be its key.",
)
@click.option(
    "--accept-changed",
    is_flag=True,
    help="Files that were written again since they were taken count as taken as they are now: their rows in the table "
    "stay, and they are not reported again.",
)
@MEMORY
@params.size_option(
    "--commit-every",
    "Commit after about so many bytes of files (default: 4GiB). An interrupted import reads so much again.",
    name="commit_bytes",
)
@click.option(
    "--recluster",
    is_flag=True,
    help="Then do one round of `tblctl recluster`. If it fails, the rows stay, and the exit code is 1.",
)
def import_files(
    *,
    sources: tuple[str, ...],
    location: str,
    hive: bool | None,
    cluster_by: str,
    accept_changed: bool,
    memory_bytes: int | None,
    commit_bytes: int | None,
    recluster: bool,
    catalog_options: dict[str, str],
    storage_options: dict[str, Any],
    as_json: bool,
) -> None:
    """Take Parquet files into a table, each once.

    SRC is a folder of Parquet files, a glob in quotes, or a file. LOC is created if there is no table; it may be
    iceberg://CATALOG/NAMESPACE.TABLE, which other engines read. The table keeps
    a list of the files that it took, by path, size and time. So the same command goes on after an interrupt, and takes
    the new files when it runs again. Files that were written again since are reported, and not taken again.
    """
    with progress("importing") as report:
        outcome = tblctl.import_parquet(
            list(sources),
            location,
            hive=hive,
            cluster_by=cluster_by,
            recluster=recluster,
            accept_changed=accept_changed,
            memory_bytes=memory_bytes,
            **({} if commit_bytes is None else {"commit_bytes": commit_bytes}),
            storage_options=storage_options,
            source_options=config.source_options,
            catalog_options=catalog_options,
            progress=report,
        )
    if as_json:
        render.print_json(outcome.to_dict())
    else:
        print_import(outcome, accepted=accept_changed)
    if recluster and outcome.commits and (outcome.recluster is None or outcome.recluster.failed_groups):
        click.get_current_context().exit(FAILED)


@command(
    "export",
    example="""
    tblctl export /data/events out/ --where "at >= '2026-01-01'" --columns at,customer""",
    json_shape="object: location, snapshot, files, rows, bytes, seconds",
)
@params.NATIVE_LOCATION
@click.argument("directory", metavar="DIR")
@params.WHERE
@params.COLUMNS
@click.option(
    "--overwrite", is_flag=True, help="Replace the Parquet files in DIR, once all new ones are written."
)
def export(
    *,
    location: str,
    directory: str,
    where: str | None,
    columns: list[str] | None,
    overwrite: bool,
    storage_options: dict[str, Any],
    as_json: bool,
) -> None:
    """Write rows as plain Parquet files.

    DIR is a folder or a URL, and must be empty or missing. Its files have about 128 MiB.
    """
    table = tblctl.open(location, storage_options=storage_options)
    with progress("exporting") as report:
        outcome = table.export(directory, where=where, columns=columns, overwrite=overwrite, progress=report)
    if as_json:
        render.print_json(outcome.to_dict())
        return
    rows, files = render.count(outcome.rows, "row"), render.count(outcome.files, "file")
    click.echo(
        f"exported {rows} of snapshot {outcome.snapshot} to {render.printable(outcome.location)}: {files} "
        f"({render.size(outcome.bytes)}), {render.duration(outcome.seconds)}"
    )


def print_import(outcome: tblctl.ImportOutcome, *, accepted: bool) -> None:
    """Print what an import did; `accepted`: files that were written again count as taken."""
    files, size = render.count(outcome.files_taken, "file"), render.size(outcome.bytes_read)
    rows, blocks = render.count(outcome.rows_added, "row"), render.count(outcome.blocks_added, "block")
    new = "a new table, " if outcome.is_new else ""
    if outcome.commits:
        click.echo(
            f"imported {files} ({size}) into {new}{render.printable(outcome.location)}: {rows} in {blocks} "
            f"({render.size(outcome.bytes_added)}), {render.count(outcome.commits, 'commit')}, snapshot "
            f"{outcome.snapshot}, {render.duration(outcome.seconds)}"
        )
    if outcome.files_known:
        click.echo(f"{render.count(outcome.files_known, 'file')} taken before")
    changed = outcome.files_changed
    if changed:
        more = f" and {len(changed) - FILES_SHOWN:,} more" if len(changed) > FILES_SHOWN else ""
        names = ", ".join(map(render.printable, changed[:FILES_SHOWN]))
        rest = (
            "Their rows in the table stay; from now on they count as taken as they are"
            if accepted
            else "`tblctl overwrite --where ..` replaces rows, and `import --accept-changed` ends this report"
        )
        page.put_paragraph(
            f"{render.count(len(changed), 'file')} {'was' if len(changed) == 1 else 'were'} taken before and written "
            f"again since, and not taken again: {names}{more}. {rest}",
            indent=0,
        )
    if outcome.note:
        page.put_paragraph(outcome.note, indent=0)
    if outcome.recluster is not None:
        print_recluster_lines(outcome.recluster)
