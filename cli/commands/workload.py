"""Show what a table was asked, and import what engines log of that."""

from __future__ import annotations

import datetime
from typing import Any

import click

import tblctl
from tblctl.cli.arguments import params
from tblctl.cli.arguments.pictures import say_drawn
from tblctl.cli.command import command
from tblctl.cli.show import page, render

IMPORT = "import"
SHOWN_COLUMNS = 12


@command(
    "workload",
    example="""
    tblctl workload /data/events --since 7d --picture asked.svg
    tblctl workload /data/events import spark-events/app-1.zstd
    tblctl workload /data/events import history.csv --kind snowflake --table analytics.events
    tblctl workload /data/events import audit.parquet --text-column sql --time-column at --dialect postgres""",
    json_shape="""
    object: snapshot, query_count, weight, first_time, last_time (seconds since 1970), sources {name: share},
    columns [{column, share, equal, range, listed, prefix, other, share_before, share_after,
    hot [{low, high, share}]}], over_time [{start, weight, shares {column: share}}],
    drift, without_condition, unreadable, blocks_read, blocks_total, blocks_needed,
    rows_matched_share (null if unknown), files, damaged_lines, other_files, dropped;
    of an import: object: files [{path, kind, queries, stand_for, unused {reason: count},
    left_out {reason: count}, undated, was_known}]""",
)
@params.LOCATION
@click.argument("words", metavar="[import|FILE]...", nargs=-1)
@click.option("--since", metavar="DURATION", help="Only queries of the last 7d, 24h, ..; default: all.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=10_000,
    help="The newest N queries; of an import: N queries of each file, a sample with weights (default: 10,000).",
)
@click.option(
    "--kind",
    metavar="KIND",
    help="Of an imported log: spark, duckdb, iceberg, databend, clickhouse, snowflake, dremio, trino, trino-mysql, "
    "sql or text (default: told from the file).",
)
@click.option(
    "--table", metavar="NAME", help="What queries call the table (default: the last part of its location)."
)
@click.option(
    "--text-column", metavar="NAME", help="The column of JSON lines, CSV or Parquet with the queries."
)
@click.option("--time-column", metavar="NAME", help="The column with the time when a query ran.")
@click.option("--dialect", metavar="NAME", help="Of the queries' SQL, as sqlglot calls it.")
@click.option(
    "--picture",
    metavar="FILE",
    help="Also draw which columns are asked over time, and the hot ranges. FILE ends with .svg or .png.",
)
@params.opens_any_format
def workload(
    *,
    location: str,
    words: tuple[str, ...],
    since: str | None,
    limit: int,
    picture: str | None,
    opening: dict[str, Any],
    as_json: bool,
    **importing: Any,
) -> None:
    """Show what a table was asked lately, or import it.

    With the table's option recluster.record, scans by tblctl and its Spark source are recorded beside the table.
    Logs of other engines are imported: event logs of Spark, JSON profiles of DuckDB, scan reports of Iceberg, query
    histories exported from Databend, ClickHouse, Snowflake, Dremio or Trino, and SQL. What cannot be used is counted.
    """
    if words and words[0] != IMPORT:
        params.refuse(f"{words[0]!r} is no word of this command; write: tblctl workload LOC import FILE...")
    if words and len(words) == 1:
        params.refuse("name the files to import: tblctl workload LOC import FILE...")
    given = [f"--{name.replace('_', '-')}" for name, value in importing.items() if value is not None]
    if given and not words:
        params.refuse(f"{given[0]} is for an import: tblctl workload LOC import FILE...")
    if words and (since is not None or picture is not None):
        params.refuse(
            f"{'--picture' if since is None else '--since'} is for what is shown, not for an import"
        )
    check_asked(picture)
    table = tblctl.open(location, **opening)
    if words:
        found = table.import_workload(words[1:], limit=limit, **importing)
        if as_json:
            render.print_json({"files": [item.to_dict() for item in found]})
        else:
            put_imports(found)
        return
    report = table.workload(since=since, limit=limit)
    if picture is not None:
        from tblctl.pictures.asked import write_asked

        write_asked(report, table.location, picture)
    if as_json:
        render.print_json(report.to_dict())
    else:
        put_report(report, since)
        say_drawn(picture)


def check_asked(picture: str | None) -> None:
    """Refuse a file that cannot hold the picture, before the log is read."""
    if picture is not None:
        from tblctl.pictures.asked import check_asked as check

        check(picture)


def put_imports(found: tuple[tblctl.ImportedLog, ...]) -> None:
    """Print what became of each file."""
    for item in found:
        if item.was_known:
            page.put_paragraph(f"{item.path}: was imported before", indent=2)
            continue
        more = f", a sample of {item.stand_for:,}" if item.stand_for > item.queries else ""
        page.put_paragraph(f"{item.path} ({item.kind}): {queries(item.queries)}{more}", indent=2)
        for reason, count in item.unused.items():
            page.put_paragraph(f"  not used {count:,}: {reason}", indent=4)
        if item.undated:
            page.put_paragraph(
                f"  dated by the file {item.undated:,}: a time is missing, or cannot be read", indent=4
            )
        for reason, count in item.left_out.items():
            page.put_paragraph(f"  left out of conditions {count:,}: {reason}", indent=4)


def put_report(found: tblctl.WorkloadReport, since: str | None) -> None:
    """Print the figures, and the columns with what is asked of them; of all queries, or of those `since` a time."""
    if not found.query_count:
        page.put(
            f"no query is recorded of the time since {since}: leave --since out, or name an earlier time"
            if since is not None
            else "no query is recorded: set recluster.record=on, or import a log (tblctl workload LOC import FILE...)"
        )
        put_losses(found)
        return
    fields: dict[str, str | page.Span] = {
        "queries": f"{found.query_count:,}"
        + (f", standing for {found.weight:,.0f}" if found.weight != found.query_count else ""),
        "from": f"{day(found.first_time)} to {day(found.last_time)}",
        "seen by": ", ".join(f"{name} {share:.0%}" for name, share in found.sources.items()),
        "reads all rows": f"{found.without_condition:.0%} of them",
    }
    if found.blocks_read is not None:
        total = "" if found.blocks_total is None else f" of {found.blocks_total:,.1f}"
        needed = "" if found.blocks_needed is None else f", {found.blocks_needed:,.1f} needed"
        fields["blocks read"] = f"{found.blocks_read:,.1f}{total} on average{needed}"
    if found.rows_matched_share is not None:
        fields["rows that matched"] = f"{found.rows_matched_share:.1%} of those read"
    fields["drift"] = f"{found.drift:.0%} of what is tested changed from the older to the newer half"
    page.put_fields(fields)
    put_columns(found)
    put_losses(found)


def put_columns(found: tblctl.WorkloadReport) -> None:
    """Print how the columns are asked, and where."""
    if not found.columns:
        return
    rows = [
        (
            item.column,
            *(f"{share:.0%}" if share else "" for share in (item.share, item.equal, item.range, item.listed)),
            f"{item.prefix + item.other:.0%}" if item.prefix + item.other else "",
            f"{item.share_before:.0%} → {item.share_after:.0%}",
            "; ".join(map(range_text, item.hot)),
        )
        for item in found.columns[:SHOWN_COLUMNS]
    ]
    page.put()
    names = ("column", "asked", "=", "range", "IN", "other", "older → newer", "hot")
    page.put_table(names, rows, right=(1, 2, 3, 4, 5, 6))
    if len(found.columns) > SHOWN_COLUMNS:
        page.put((f"(and {len(found.columns) - SHOWN_COLUMNS} more columns: --json has all)", page.RULE))


def range_text(item: tblctl.HotRange) -> str:
    """Return a range with its share of the queries: `a..b 40%`, or the value if it is one."""
    if item.low == item.high and item.low is not None:
        return f"{item.low} {item.share:.0%}"
    return f"{item.low or ''}..{item.high or ''} {item.share:.0%}"


def put_losses(found: tblctl.WorkloadReport) -> None:
    """Print what of the log could not be used."""
    said = {
        "with a condition that does not fit the table, such as of a dropped column": found.unreadable,
        "dropped by writers that could not keep up": found.dropped,
        "in damaged lines": found.damaged_lines,
    }
    for text, count in said.items():
        if count:
            page.put((f"({queries(count)} {text})", page.RULE))
    if found.other_files:
        page.put(
            (f"({render.count(found.other_files, 'file')} of another table or version left alone)", page.RULE)
        )


def queries(count: int) -> str:
    """Return `1 query`, `12 queries`."""
    return "1 query" if count == 1 else f"{count:,} queries"


def day(seconds: float | None) -> str:
    """Return a time of the log, to the minute."""
    try:
        moment = datetime.datetime.fromtimestamp(seconds or 0.0, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return "an unknown time"
    return f"{moment:%Y-%m-%d %H:%M} UTC"
