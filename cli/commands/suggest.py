"""Rank the columns that a table could be clustered by."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import tblctl
from tblctl.cli.arguments import params
from tblctl.cli.command import command
from tblctl.cli.show import page, render
from tblctl.cli.show.flags import located
from tblctl.cli.show.folder import gain_to_json, load_files, put_gain
from tblctl.cli.show.layouts import put_layouts, with_file
from tblctl.cli.show.progress import progress

EXPLAINED = 3
PREDICATE_WIDTH = 60
LEAST_PREDICATE_WIDTH = 20
BESIDE_PREDICATES = 22  # columns that the table of conditions needs beside them


@command(
    "suggest",
    example="""
    tblctl suggest /data/lineitem
    tblctl suggest /data/lineitem --predicates typical.sql
    tblctl suggest /data/lineitem --predicates typical.sql --layouts
    tblctl suggest events/""",
    json_shape="""
    object: snapshot, cluster_by [term], total_block_count, predicates [{text, blocks_read}],
    candidates [{terms, average_depth, average_overlaps, distinct_bounds, null_share, unknown_block_count,
    inexact_block_count, blocks_read [an estimate for each predicate; an upper bound for one on other columns],
    named_by (predicates on its columns), range_share (of a block, of the column's whole range),
    average_blocks_read (null without predicates), why, caveats}],
    best first; rejected [{column, reason}], estimate_step (blocks that one block of an estimate stands for);
    queries (of the log that the predicates were drawn from; 0 for given ones);
    layouts (null without --layouts): {candidates [{key, kind, read_share [of the blocks, for each predicate],
    average_read_share, error (of the average, as a share of it)}], read_share_now, block_count (if all were written
    anew), part_count (that were counted), row_count, row_group_count (of the sample), left_out (why there is no tree)};
    of plain Parquet files also gain and next, of the best candidate, as for `tblctl info`""",
)
@params.LOCATION
@click.option(
    "--predicates",
    metavar="FILE",
    help="File of typical conditions of queries, one a line or each ended by ';'; '-' is standard input.",
)
@click.option(
    "--layouts",
    is_flag=True,
    help="Rank linear keys, z-order, Hilbert curves and trees by what conditions would read, from a sample of rows.",
)
@click.option("--rejected", is_flag=True, help="List the columns that cannot be keys, and why.")
@params.opens_any_format
def suggest(
    *,
    location: str,
    predicates: str | None,
    layouts: bool,
    rejected: bool,
    opening: dict[str, Any],
    as_json: bool,
) -> None:
    """Rank columns that the table could be clustered by.

    Only the statistics of blocks are read. With --predicates, columns rank by the blocks that these conditions would
    read if the table were sorted by the column. Without, conditions are drawn from the log of the table's queries
    (`tblctl workload`), newer ones more often. Without a log, columns rank by how deep the blocks lie by them now: the
    table is nearly clustered by a column of low depth. The estimate spreads rows evenly over the range of
    their block, so it does not know how values are distributed within blocks. For conditions on other columns it is an
    upper bound, marked `<=`: they read less if these columns follow the key within blocks.

    With --layouts a sample of the rows is read (the columns that conditions test, of at most 256 row groups), put in
    the order of each candidate, and cut into blocks. The error is what nine of ten such estimates were within, when
    rows were really sorted. Not for plain files.

    LOC may also be a folder of plain Parquet files, a glob in quotes, or a Delta table, as for `tblctl info`.
    """
    table = tblctl.open(location, **opening)
    text = None if predicates is None else read_file(predicates)
    load_files(table)
    try:
        with progress("measuring"):
            found = with_file(table.suggest(text, layouts=layouts), predicates)
    except tblctl.errors.InvalidPredicateError as error:
        message = f"{predicates}: {error}"
        raise tblctl.errors.InvalidPredicateError(message, **error.details) from error
    best = ", ".join(found.candidates[0].terms) if found.candidates else None
    plain = table if isinstance(table, tblctl.ParquetFolder) else None
    if as_json:
        render.print_json({**found.to_dict(), **({} if plain is None else gain_to_json(plain, best))})
        return
    if layouts:
        put_layouts(found, location, is_iceberg=isinstance(table, tblctl.IcebergTable))
        return
    put_suggestion(found)
    if plain is not None and best is not None:
        put_gain(plain, best, otherwise=f"tblctl suggest {shlex.quote(plain.location)} --predicates FILE")
    advice = params.refine_advice(location, opening)
    if advice and any(item.unknown_block_count or item.inexact_block_count for item in found.candidates):
        page.put((f"(some bounds are unknown or inexact; {advice})", page.RULE))
    if rejected and found.rejected:
        page.put()
        page.put_table(("no key", "because"), found.rejected, text=(1,))


def read_file(path: str) -> str:
    """Return the text of a file, or of standard input."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.ClickException(f"cannot read {path}: it is not text in UTF-8") from error


def put_suggestion(found: tblctl.Suggestion) -> None:
    """Print the ranking, the reasons for the first places, and the caveats."""
    page.put_fields(
        {
            "snapshot": f"{found.snapshot}",
            "blocks": f"{found.total_block_count:,}",
            "cluster key": ", ".join(found.cluster_by) or "(none)",
        }
    )
    if not found.candidates:
        empty = "the table has no blocks: nothing to rank"
        page.put(
            "\n" + (empty if not found.total_block_count else "no column can be a key; --rejected shows why")
        )
        return
    if found.predicates:
        put_predicates(found)
    page.put()
    rows = [
        (
            number,
            ", ".join(item.terms),
            *reads_cells(item, len(found.predicates)),
            render.average(item.average_depth, 2),
            f"{item.distinct_bounds:,}",
            f"{item.null_share:.0%}",
        )
        for number, item in enumerate(found.candidates, 1)
    ]
    reads = ("reads",) if found.predicates else ()
    names = ("rank", "key", *reads, "depth now", "bounds", "nulls")
    last = len(names) - 1
    page.put_table(names, rows, right=(0, *range(2, len(names))), least={1: 16}, dropped=(last, last - 1))
    if any(item.named_by < len(found.predicates) for item in found.candidates):
        note = "(<= some conditions test other columns: fewer if those run along with the key within blocks)"
        page.put((note, page.RULE))
    page.put()
    for number, item in enumerate(found.candidates[:EXPLAINED], 1):
        page.put_paragraph(f"{number}. {', '.join(item.terms)}: {item.why}", indent=3)
    put_caveats(found.candidates)


def reads_cells(item: tblctl.Candidate, predicates: int) -> tuple[str, ...]:
    """Return the blocks that a condition reads on average, with `<=` if it is a bound; empty without conditions."""
    if item.average_blocks_read is None:
        return ()
    return (f"{'' if item.named_by == predicates else '<= '}{item.average_blocks_read:,.1f}",)


def put_caveats(candidates: Sequence[tblctl.Candidate]) -> None:
    """Print each caveat once, with the keys that it is about."""
    keys: dict[str, list[str]] = {}
    for item in candidates:
        for text in item.caveats:
            keys.setdefault(text, []).append(" and ".join(item.terms))
    if keys:
        page.put(("\nto keep in mind", page.HEADING))
    for text, about in keys.items():
        page.put_paragraph(f"- {', '.join(about)}: {located(text)}", indent=2)


def put_predicates(found: tblctl.Suggestion) -> None:
    """Print the blocks that each condition reads now, and by the best key."""
    best = found.candidates[0]
    width = render.terminal_width()
    limit = PREDICATE_WIDTH if width is None else max(LEAST_PREDICATE_WIDTH, width - BESIDE_PREDICATES)
    rows = [
        (f"{item.blocks_read:,}", f"{after:,.0f}", render.shorten(item.text, limit))
        for item, after in zip(found.predicates, best.blocks_read, strict=True)
    ]
    page.put()
    page.put_table(("reads now", "by rank 1", "condition"), rows, right=(0, 1))
    if found.queries:
        drawn = "(drawn from 1 query" if found.queries == 1 else f"(drawn from {found.queries:,} queries"
        page.put((f"{drawn} of the table's log, newer ones more often)", page.RULE))
    if found.estimate_step > 1:
        page.put((f"(estimates go in steps of {found.estimate_step:,.0f} blocks)", page.RULE))
