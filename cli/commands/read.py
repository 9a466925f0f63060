"""Read a table: its rows, its history, its blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

import tblctl
from tblctl.cli.arguments import params
from tblctl.cli.command import command
from tblctl.cli.show import output, render
from tblctl.cli.show.outcomes import key_clause, predicted_clause, recluster_clause
from tblctl.cli.show.progress import progress
from tblctl.local_file import why_unwritten


def read_output(_ctx: click.Context, _param: click.Parameter, path: str | None) -> str | None:
    """Check `--output`; a callback for click."""
    if path is not None:
        output.check_output(path)
    return path


@command(
    "scan",
    example="""
    tblctl scan /data/lineitem --where "l_shipdate >= '1995-01-01' and l_shipmode in ('AIR', 'MAIL')" --limit 5
    tblctl scan /data/lineitem --columns l_orderkey,l_tax --as-of 7 --output x.parquet
    tblctl scan /data/lineitem --where "l_orderkey = 1" --explain""",
    json_shape="""
    object: snapshot, columns [{name, type}], rows [{column: value}], row_count; one line per row.
            Decimals, dates, times, timestamps (ISO 8601), binary (hex) and NaN, Infinity, -Infinity are strings;
            a map is a list of [key, value].
    with --explain an object: snapshot, where, columns (null: all), blocks_total, blocks_pruned, blocks_read,
            blocks_whole, bytes_total, bytes_to_read, segments_total, segments_pruned, rows_total
    with --output an object: output, snapshot, row_count""",
)
@params.NATIVE_LOCATION
@params.WHERE
@params.COLUMNS
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=0), help="At most N rows, in no particular order."
)
@click.option(
    "--as-of",
    metavar="WHEN",
    callback=params.read_as_of,
    help="Read an earlier version: a snapshot's number, an ISO timestamp (UTC without a zone), or a tag.",
)
@click.option(
    "--output",
    "output_path",
    metavar="FILE",
    callback=read_output,
    help="Write the rows to FILE, which ends with .parquet, .arrow or .csv; '-' is an Arrow IPC stream on stdout.",
)
@click.option("--explain", is_flag=True, help="Only show what would be read.")
@click.option(
    "--report",
    "report_path",
    metavar="FILE",
    help="Append a line of JSON to FILE with what was read: blocks, rows, bytes, seconds.",
)
def scan(
    *,
    location: str,
    where: str | None,
    columns: list[str] | None,
    limit: int | None,
    as_of: int | str | None,
    output_path: str | None,
    explain: bool,
    report_path: str | None,
    storage_options: dict[str, Any],
    as_json: bool,
) -> None:
    """Print rows, or write them to a file.

    Without --limit a printed table has the first 50 rows.
    """
    if as_json and output_path == "-":
        raise click.UsageError("--json and --output - both want standard output", click.get_current_context())
    if explain and output_path is not None:
        params.excluded("--explain", "--output", "--explain reads no rows")
    table = tblctl.open(
        location,
        as_of=as_of,
        storage_options=storage_options,
        on_scan=append_report(report_path) if report_path is not None else None,
    )
    as_table = not (as_json or output_path or explain)
    most = output.SHOWN_ROWS if as_table and limit is None else None
    chosen = table.scan(where=where, columns=columns, limit=limit if most is None else most + 1)
    snapshot = chosen.snapshot
    if explain:
        print_explanation(chosen.explain(), as_json=as_json)
    elif output_path is not None:
        save(chosen, output_path, snapshot=snapshot, as_json=as_json)
    elif as_json:
        output.print_json_rows(chosen.to_reader(), snapshot=snapshot)
    else:
        output.print_rows(chosen.to_reader(), most=most)


def save(chosen: tblctl.Scan, path: str, *, snapshot: int, as_json: bool) -> None:
    """Write the rows of a scan to a file, and report it."""
    with progress("scanning") as report:
        row_count = output.write_rows(chosen.to_reader(), path, report=report)
    if as_json:
        render.print_json({"output": path, "snapshot": snapshot, "row_count": row_count})
    elif path != "-":
        click.echo(f"wrote {render.count(row_count, 'row')} of snapshot {snapshot} to {path}")


def append_report(path: str) -> Callable[[tblctl.ScanReport], None]:
    """Return a listener that appends each scan's report to `path`. A path that cannot be opened fails at once."""

    def listen(report: tblctl.ScanReport) -> None:
        write(json.dumps(report.to_dict(), ensure_ascii=False, allow_nan=False) + "\n")

    def write(text: str) -> None:
        try:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise click.ClickException(f"cannot append to {path}: {why_unwritten(error)}") from error

    write("")
    return listen


def print_explanation(explanation: tblctl.ScanExplanation, *, as_json: bool) -> None:
    """Print what a scan would read."""
    if as_json:
        render.print_json(explanation.to_dict())
        return
    e = explanation
    lines = {
        "snapshot": f"{e.snapshot}",
        "where": e.where or "(all rows)",
        "columns": ", ".join(e.columns) if e.columns is not None else "(all)",
        "rows": f"{e.rows_total:,} in the table",
        "segments": f"{e.segments_total - e.segments_pruned:,} of {e.segments_total:,} read",
        "blocks": f"{e.blocks_read:,} of {e.blocks_total:,} read, {e.blocks_pruned:,} pruned by their statistics",
        "bytes": f"{render.size(e.bytes_to_read)} of {render.size(e.bytes_total)} read",
    }
    for name, text in lines.items():
        click.echo(f"{name:<9} {render.printable(text)}")


@command(
    "history",
    example="tblctl history /data/lineitem --limit 10",
    json_shape="""
    list, newest first, of objects: sequence, timestamp, operation, rows, blocks, bytes, rows_added, rows_removed,
    blocks_added, blocks_removed, bytes_added, readable, tags, cluster_by, options, detail;
    cluster_by and options are null for an expired snapshot, options for Iceberg too; there rows, blocks and bytes are
    null if the writer did not say;
    with --savings a list of reclusters, newest first, of objects: snapshot, timestamp, policy, queries, unused,
    spent_seconds, before_seconds, after_seconds, saved_seconds, paid_back, note; null for what is not known""",
)
@params.LOCATION
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the newest N snapshots.")
@click.option(
    "--savings",
    is_flag=True,
    help="Instead, what each recluster among them (of 50, unless --limit says otherwise) cost, and saved the queries "
    "of the table's log that ran since.",
)
@params.opens_any_format
def history(
    *, location: str, limit: int | None, savings: bool, opening: dict[str, Any], as_json: bool
) -> None:
    """List the snapshots of the table, newest first.

    Expired snapshots (see `tblctl gc`) are listed, but can no longer be read.
    """
    table = tblctl.open(location, **opening)
    if savings:
        found = table.savings() if limit is None else table.savings(limit=limit)
        print_savings(found, as_json=as_json)
        return
    snapshots = table.history(limit=limit)
    if as_json:
        render.print_json([snapshot.to_dict() for snapshot in snapshots])
        return
    notes = [
        recluster_clause(s.detail) + predicted_clause(s.detail)
        if s.operation == "recluster"
        else key_clause(s.detail)
        for s in snapshots
    ]
    names = ["snapshot", "time (UTC)", "operation", "added", "removed", "rows", "blocks", "size", "tags"]
    rows = [
        [
            s.sequence,
            render.time(s.timestamp),
            s.operation,
            f"{s.rows_added:+,}" if s.rows_added else "",
            f"{-s.rows_removed:+,}" if s.rows_removed else "",
            render.number(s.rows),
            render.number(s.blocks),
            render.size_or_unknown(s.bytes),
            ", ".join(s.tags) if s.readable else "(expired)",
        ]
        for s in snapshots
    ]
    if any(notes):
        names.append("note")
        rows = [[*row, note] for row, note in zip(rows, notes, strict=True)]
    render.print_table(
        names,
        rows,
        right=(0, 3, 4, 5, 6, 7),
        text=(9,) if any(notes) else (),
        least={0: 8, 8: 8},
        dropped=(7, 4, 3, 8, 1),
    )


def print_savings(found: Sequence[tblctl.RealisedSaving], *, as_json: bool) -> None:
    """Print what reclusters cost and saved."""
    if as_json:
        render.print_json([item.to_dict() for item in found])
        return
    if not found:
        click.echo("no recluster in the history that was looked at")
        return
    words = {True: "yes", False: "not yet", None: "unknown"}
    rows = [
        [
            item.snapshot,
            render.time(item.timestamp),
            item.policy,
            f"{item.queries:,}",
            _seconds(item.spent_seconds),
            _seconds(item.before_seconds),
            _seconds(item.after_seconds),
            _seconds(item.saved_seconds),
            words[item.paid_back],
            item.note,
        ]
        for item in found
    ]
    names = [
        "snapshot",
        "time (UTC)",
        "policy",
        "queries",
        "spent",
        "before",
        "after",
        "saved",
        "paid back",
        "note",
    ]
    render.print_table(names, rows, right=(0, 3, 4, 5, 6, 7), text=(9,), least={0: 8}, dropped=(1, 6, 5))
    if unused := max(item.unused for item in found):
        click.echo(f"conditions of queries that do not fit the table, and are not counted: {unused:,}")


def _seconds(value: float | None) -> str:
    """Return seconds of three digits, since those of small tables are below one; `?` if they are unknown."""
    return "?" if value is None else f"{value:,.3g} s"


@command(
    "files",
    example="tblctl files /data/lineitem --limit 10",
    json_shape="""
    list of objects: path, rows, bytes, level, run, min, max, uncompressed_bytes, decoded_bytes, cluster_key_id;
    min and max are lists with one value for each term of the current key: the keys of the first and the last row, or if
    the block is in another order bounds from column statistics, null without these""",
)
@params.NATIVE_LOCATION
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="Only N blocks.")
def files(*, location: str, limit: int | None, storage_options: dict[str, Any], as_json: bool) -> None:
    """List the live blocks of the table: Parquet files below LOC."""
    blocks = tblctl.open(location, storage_options=storage_options).files(limit=limit)
    if as_json:
        render.print_json([block.to_dict() for block in blocks])
        return
    objects = [block.to_dict() for block in blocks]
    rows = [
        (
            b["path"],
            f"{b['rows']:,}",
            render.size(b["bytes"]),
            b["level"],
            b["run"],
            key(b["min"]),
            key(b["max"]),
        )
        for b in objects
    ]
    names = ("path", "rows", "size", "level", "run", "min", "max")
    render.print_table(names, rows, right=(1, 2, 3), least={0: 13, 4: 8, 5: 8, 6: 8}, dropped=(4, 3, 2))


def key(values: list[Any] | None) -> str:
    """Return a key tuple as text."""
    return ", ".join(render.cell(value) for value in values or ())
