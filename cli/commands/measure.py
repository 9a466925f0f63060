"""Measure how well tables are clustered."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import tblctl
from tblctl.cli.arguments import params, pictures
from tblctl.cli.command import command
from tblctl.cli.failures import FAILED
from tblctl.cli.show import page, prometheus, render, timeline
from tblctl.cli.show.figures import INFO_JSON, average_depth, put_comparison, put_info
from tblctl.cli.show.flags import located
from tblctl.cli.show.folder import show_folder
from tblctl.cli.show.progress import progress

WORST = click.option(
    "--worst",
    metavar="N",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Show the N deepest ranges of keys.",
)


@command(
    "info",
    example="""
    tblctl info /data/lineitem
    tblctl info /data/lineitem --columns l_orderkey --where "l_shipdate >= '1998-01-01'"
    tblctl info /data/lineitem --compare 3:9 --picture lineitem.html
    tblctl info events/ --columns at
    tblctl info 's3://lake/in/*.parquet' --columns "at, customer"
    tblctl info --all s3://warehouse
    tblctl info iceberg://prod/sales.orders --columns "region, day(ts)"
    tblctl info --all iceberg://prod --namespace sales""",
    json_shape=f"""
    {INFO_JSON.strip()},
    last_runs [{{snapshot, timestamp, blocks_removed, blocks_added, bytes_added, detail}}];
    if there are worst ranges, but `recluster` has nothing to do, recluster {{note, rejected, advice}};
    with --compare also compared [{{snapshot, and the figures of that version}}];
    of an Iceberg table also delete_files {{position, equality}}: how many there are (null if they cannot be read);
    of others also options, those of `tblctl alter --set`;
    with --history also history [{{snapshot, timestamp, operation, rows, blocks, average_depth, average_overlaps,
    source}}], newest first; source is summary, metadata (measured now), or null if the averages are unknown.
    of a table without a cluster key only cluster_by_keys [], total_block_count, rows, bytes, next [command];
    of plain Parquet files without options, with gain {{cluster_by [term], files, key_reads_now, key_reads_clustered,
    range_reads_now, range_reads_clustered, bytes_to_rewrite}}, next [command]; or without --columns only
    files, rows, bytes, columns [name], folder_columns [name];
    of several tables, or with --all, a list, worst first: location, error (null if none), rows, blocks, bytes (null
    if the writer of an Iceberg table did not say),
    info (the object above without last_runs and options; null without a cluster key)""",
)
@click.argument("locations", metavar="[LOC]...", nargs=-1, shell_complete=params.complete_folders)
@params.WHERE_BLOCKS
@click.option(
    "--columns",
    metavar="TERMS",
    help="Measure as if clustered by these: 'a, b', 'year(ts)', 'hilbert(a, b)', from column statistics.",
)
@WORST
@click.option(
    "--history", is_flag=True, help="Also show depth and overlaps after each of the last 20 snapshots."
)
@click.option(
    "--all",
    "below",
    metavar="DIR",
    help="All tables at or below DIR, a folder or URL, or of a catalog (iceberg://CATALOG).",
)
@click.option(
    "--namespace", metavar="NAME", help="With --all iceberg://CATALOG: only this namespace and those below."
)
@pictures.PICTURE
@pictures.COMPARE
@params.METRICS_FILE
@params.opens_any_format
def info(
    *,
    locations: tuple[str, ...],
    where: str | None,
    columns: str | None,
    worst: int,
    history: bool,
    below: str | None,
    picture: str | None,
    compare: pictures.Versions | None,
    namespace: str | None,
    metrics_file: str | None,
    opening: dict[str, Any],
    as_json: bool,
) -> None:
    """Show how well tables are clustered.

    A block's overlaps are the other blocks whose key range meets its own. Its depth is the largest number of blocks
    that may hold the same key of its range. 0 overlaps and a depth of 1 are best: then each key is in one block. A
    worst range is one where most blocks overlap; "to rewrite" is what these blocks hold. A key along a curve (zorder,
    hilbert) also shows how well blocks separate its columns: box depth counts those that have a place in common, and
    "at best" is what a grid of as many blocks reads. Several tables get one line each.

    LOC may also be a folder of plain Parquet files, or a glob in quotes: the files are its blocks, which nothing
    changes. They are measured by --columns, from the statistics in their footers; `key=value` folders are columns. Or a
    Delta table, `delta:PATH`, from the statistics in its log.
    """
    params.check_namespace(namespace, below)
    prometheus.check_metrics_file(metrics_file)
    if len(locations) == 1 and below is None:
        show_single(
            locations[0],
            opening,
            columns=columns,
            where=where,
            worst=worst,
            history=history,
            picture=picture,
            compare=compare,
            metrics_file=metrics_file,
            as_json=as_json,
        )
        return
    if history or compare is not None:
        params.refuse("--history and --compare are for one table")
    pictures.check_page(picture)
    places = several(locations, below, namespace, opening)
    words: dict[str, Any] = {"columns": columns, "where": where}
    with progress("measuring"):
        survey = tblctl.survey(places, worst=worst, **words, **opening)
    prometheus.write_metrics(metrics_file, [prometheus.of_survey(item) for item in survey])
    pictures.draw_all(survey, picture, opening, **words)
    show_survey(survey, picture, as_json=as_json)


def show_single(
    location: str,
    opening: dict[str, Any],
    *,
    columns: str | None,
    where: str | None,
    worst: int,
    history: bool,
    picture: str | None,
    compare: pictures.Versions | None,
    metrics_file: str | None,
    as_json: bool,
) -> None:
    """Measure and show one table, or one folder of plain Parquet."""
    table = tblctl.open(location, **opening)
    drawn: dict[str, Any] = {"picture": picture, "compare": compare}
    if isinstance(table, tblctl.ParquetFolder):
        if flag := "--history" if history else "--metrics-file" if metrics_file else None:
            params.refuse(f"{flag} is for tables: plain files have no versions")
        show_folder(table, columns, where, worst=worst, as_json=as_json, **drawn)
        return
    try:
        with progress("measuring"):
            found = table.info(columns=columns, where=where, worst=worst)
    except tblctl.errors.InvalidKeyError:
        if table.cluster_by or any((columns, where, history, compare, picture, metrics_file)):
            raise
        show_without_key(table, location, as_json=as_json)
        return
    compared = () if compare is None else table.compare(*compare, columns=columns, where=where)
    pictures.draw(table, columns=columns, where=where, **drawn)
    by_key = columns is None and where is None
    advice = params.refine_advice(location, opening)
    if metrics_file is not None:  # runs cost a request each
        figures = prometheus.of_info(table.location, found, timeline.last_runs(table))
        prometheus.write_metrics(metrics_file, [figures])
    show_one(table, found, compared, history=history, by_key=by_key, advice=advice, as_json=as_json)
    if not as_json:
        pictures.say_drawn(picture)


def show_without_key(table: tblctl.Table, location: str, *, as_json: bool) -> None:
    """Print what is known of a table without a cluster key, and what would measure it."""
    newest = next(iter(table.history()))
    place = shlex.quote(location)
    set_key = "recluster" if isinstance(table, tblctl.IcebergTable) else "alter"
    after = [
        f"tblctl info {place} --columns a,b",
        f"tblctl suggest {place}",
        f"tblctl {set_key} {place} --cluster-by a,b",
    ]
    if as_json:
        figures = {"total_block_count": newest.blocks, "rows": newest.rows, "bytes": newest.bytes}
        render.print_json({"cluster_by_keys": [], **figures, "next": after})
        return
    page.put_fields(
        {
            "cluster key": "(none)",
            "rows": render.number(newest.rows),
            "blocks": render.number(newest.blocks),
            "size": render.size_or_unknown(newest.bytes),
        }
    )
    measures, ranks, sets = (render.printable(command) for command in after)
    page.put_paragraph(
        f"depth is measured by columns: `{measures}`; `{ranks}` ranks them, and `{sets}` makes some the cluster key. "
        "`recluster --policy size` needs none",
        indent=0,
    )


def several(
    locations: tuple[str, ...], below: str | None, namespace: str | None, opening: dict[str, Any]
) -> list[str]:
    """Return the locations of several tables. Refuse files that a glob without quotes stands for."""
    if not locations and below is None:
        params.refuse("name a table (LOC), several of them, or --all DIR")
    if len(locations) > 1 and all(Path(location).is_file() for location in locations):
        params.refuse(
            "files are measured together by their folder, or by a glob in quotes: 'DIR/*.parquet'; these are "
            f"{len(locations):,} files"
        )
    return [*locations, *([] if below is None else find_tables(below, namespace, opening))]


def find_tables(below: str, namespace: str | None, opening: dict[str, Any]) -> list[str]:
    """Return the locations of the tables of a folder or a catalog."""
    words = {name: opening[name] for name in ("storage_options", "catalog_options")}
    return tblctl.find_tables(below, namespace=namespace, **words)


def show_one(
    table: tblctl.Table,
    found: tblctl.ClusteringInfo,
    compared: Sequence[tblctl.MeasuredVersion],
    *,
    history: bool,
    by_key: bool,
    advice: str,
    as_json: bool,
) -> None:
    """Print the figures of one table, those of versions to compare, and the table's history.

    `by_key`: the figures are of all its blocks by its own key, so they show whether a recluster could help. `advice`:
    as for `put_info`.
    """
    idle = idle_plan(table, found) if by_key else None
    runs = timeline.last_runs(table)
    points = table.depth_history() if history else ()
    deletes, problem = delete_files(table)
    if as_json:
        shown = {**found.to_dict(), "last_runs": [timeline.run_to_json(run) for run in runs]}
        if isinstance(table, tblctl.IcebergTable):
            shown["delete_files"] = deletes
        else:
            shown["options"] = table.options
        if idle is not None:
            shown["recluster"] = {name: idle.to_json()[name] for name in ("note", "rejected", "advice")}
        if compared:
            shown["compared"] = [version.to_dict() for version in compared]
        if history:
            shown["history"] = [point.to_dict() for point in points]
        render.print_json(shown)
        return
    put_info(found, advice, is_iceberg=isinstance(table, tblctl.IcebergTable))
    if problem:
        page.put((f"(delete files cannot be counted: {render.printable(problem)})", "red"))
    elif deletes and any(deletes.values()):
        counts = [f"{count:,} {kind}" for kind, count in deletes.items() if count]
        page.put((f"(delete files: {', '.join(counts)}; rows count as stored)", page.RULE))
    if idle is not None:
        page.put((f"(a recluster would leave these: {render.printable(located(idle.note))})", page.RULE))
    if compared:
        put_comparison(compared)
    if not isinstance(table, tblctl.IcebergTable):
        put_mode(table.options)
    if runs:
        timeline.put_runs(runs)
    if history:
        timeline.put_history(points)


def put_mode(options: dict[str, Any]) -> None:
    """Print what follows writes, if anything does."""
    mode, every = options["recluster.mode"], options["recluster.every"]
    if mode != "off":
        page.put((f"(recluster.mode={mode} after every {render.count(every, 'commit')} of rows)", page.RULE))


def delete_files(table: tblctl.Table) -> tuple[dict[str, int] | None, str]:
    """Return how many delete files an Iceberg table has, or None and why they cannot be counted."""
    if not isinstance(table, tblctl.IcebergTable):
        return None, ""
    try:
        return table.delete_files(), ""
    except (tblctl.errors.CorruptTableError, tblctl.errors.StorageError) as error:
        return None, str(error)


def idle_plan(table: tblctl.Table, found: tblctl.ClusteringInfo) -> tblctl.Plan | None:
    """Return the plan if a recluster has nothing to do although there are worst ranges; else None.

    None too if the table's own policy cannot plan, such as `workload` without a log: figures do not depend on it.
    """
    try:
        plan = table.plan() if found.worst else None
    except tblctl.errors.InvalidOptionError:
        return None
    return None if plan is None or plan.groups else plan


def show_survey(survey: tuple[tblctl.SurveyedTable, ...], picture: str | None, *, as_json: bool) -> None:
    """Print a line for each table, worst first, then a line for each that could not be measured: then exit with 1."""
    if as_json:
        render.print_json([item.to_dict() for item in survey])
    else:
        put_survey(survey)
        pictures.say_drawn(picture)
    if any(item.error is not None for item in survey):
        click.get_current_context().exit(FAILED)


def put_survey(survey: tuple[tblctl.SurveyedTable, ...]) -> None:
    """Print the tables."""
    rows = [
        (
            item.location,
            *(("-", "-") if item.info is None else depth_cells(item.info)),
            render.number(item.blocks),
            render.number(item.rows),
            render.size_or_unknown(item.bytes),
            "(none)" if item.info is None else ", ".join(item.info.cluster_by_keys),
        )
        for item in survey
        if item.error is None
    ]
    if rows:
        names = ("table", "depth", "max", "blocks", "rows", "size", "cluster key")
        page.put_table(names, rows, right=range(1, 6))
    for item in survey:
        if item.error is not None:
            problem = " ".join(item.error.split())
            page.put((f"{render.printable(item.location)}: error: {render.printable(problem)}", "red"))


def depth_cells(found: tblctl.ClusteringInfo) -> tuple[str, str]:
    """Return the cells for average and maximum depth."""
    return average_depth(found, 2), render.average(found.depth.max, 0)
