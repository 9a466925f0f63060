"""Print what is known of plain Parquet files, and what clustering them would bring."""

from __future__ import annotations

import shlex
from typing import Any

import tblctl
from tblctl.cli.arguments import pictures
from tblctl.cli.show import page, render
from tblctl.cli.show.figures import put_info
from tblctl.cli.show.progress import progress

COLUMNS_SHOWN = 12


def show_folder(
    table: tblctl.ParquetFolder,
    columns: str | None,
    where: str | None,
    *,
    worst: int,
    picture: str | None,
    compare: pictures.Versions | None,
    as_json: bool,
) -> None:
    """Print the figures of plain files by columns; without columns, what there is and how to measure it."""
    load_files(table)
    if columns is None and picture is None and compare is None and where is None:
        show_sizes(table, as_json=as_json)
        return
    if compare is not None:
        table.compare(*compare)  # refuses
    found = table.info(columns=columns, where=where, worst=worst)
    pictures.draw(table, picture, compare, columns=columns, where=where)
    if as_json:
        render.print_json({**found.to_dict(), "last_runs": [], **gain_to_json(table, columns)})
        return
    put_info(found)
    if columns is not None:
        put_gain(table, columns, otherwise=f"tblctl suggest {shlex.quote(table.location)}")
    pictures.say_drawn(picture)


def load_files(table: Any) -> None:
    """Read the footers of plain files, with a progress bar; do nothing for a table."""
    if isinstance(table, tblctl.ParquetFolder):
        with progress("reading footers") as report:
            table.load(progress=report)


def show_sizes(table: tblctl.ParquetFolder, *, as_json: bool) -> None:
    """Print how much there is, by no key."""
    size, names, given = table.snapshot, table.schema.names, table.folder_columns
    if as_json:
        found = {"files": size.blocks, "rows": size.rows, "bytes": size.bytes}
        render.print_json({**found, "columns": names, "folder_columns": list(given)})
        return
    more = ", .." if len(names) > COLUMNS_SHOWN else ""
    page.put_fields(
        {
            "files": render.number(size.blocks),
            "rows": render.number(size.rows),
            "size": render.size_or_unknown(size.bytes),
            "columns": render.printable(", ".join(names[:COLUMNS_SHOWN])) + more,
            **({"of folders": render.printable(", ".join(given))} if given else {}),
        }
    )
    note = (
        "(no cluster key is known: name columns to measure by, `--columns a,b`; `tblctl suggest` ranks them)"
    )
    page.put((note, page.RULE))


def gain_to_json(table: tblctl.ParquetFolder, columns: str | None) -> dict[str, Any]:
    """Return what clustering by columns would bring, and the next command, as JSON values; null without columns."""
    if columns is None:
        return {"gain": None, "next": None}
    found = table.gain(columns)
    return {"gain": found.to_dict(), "next": table.first_steps(columns) if found.is_worth_it else None}


def put_gain(table: tblctl.ParquetFolder, columns: str, *, otherwise: str) -> None:
    """Print what clustering by columns would bring, and the next command: `otherwise` if that is little."""
    found = table.gain(columns)
    rows = [
        (
            what,
            render.average(now, 1),
            render.average(then, 1),
        )
        for what, now, then in (
            ("one key", found.key_reads_now, found.key_reads_clustered),
            ("1 % of the keys", found.range_reads_now, found.range_reads_clustered),
        )
    ]
    page.put()
    terms = ", ".join(found.cluster_by)
    page.put_table(
        ("a condition on", f"reads about, of {found.files:,} files", f"if clustered by {terms}"),
        rows,
        right=(1, 2),
    )
    terms = render.printable(terms)
    if found.is_worth_it:
        note = f"(estimates; all files are rewritten once: {render.size(found.bytes_to_rewrite)})"
    else:
        note = f"(clustering these files by {terms} would bring little)"
    page.put((note, page.RULE))
    page.put()
    page.put("next, with a place for NEW:" if found.is_worth_it else "next:")
    page.put(f"  {render.printable(table.first_steps(columns) if found.is_worth_it else otherwise)}")
