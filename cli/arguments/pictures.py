"""The options of `tblctl info` that draw and compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import tblctl
from tblctl.cli.show import render

PICTURE = click.option(
    "--picture",
    metavar="FILE",
    help="Also draw the blocks, their depth and the history. FILE ends with .svg, .png or .html; with .html if there "
    "are several tables, which share a page.",
)
COMPARE = click.option(
    "--compare",
    metavar="A:B",
    callback=lambda _ctx, _param, text: read_versions(text),
    help="Show two versions side by side, also in the picture. Each is a sequence, a tag or a date.",
)

Versions = tuple[int | str, int | str]


def read_versions(text: str | None) -> Versions | None:
    """Parse `3:9` or `before:after`; None stays None."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(":")]
    if len(names) != 2 or not all(names):  # noqa: PLR2004
        raise click.BadParameter(f"{text!r} is not two versions such as 3:9 or before:after")
    from tblctl.as_of import number_or_text

    first, second = map(number_or_text, names)
    return first, second


def draw(
    table: tblctl.Table | tblctl.ParquetFolder,
    picture: str | None,
    compare: Versions | None,
    *,
    columns: str | None,
    where: str | None,
) -> None:
    """Draw the picture, if one is asked for."""
    if picture is not None:
        table.picture(picture, columns=columns, where=where, compare=compare)


def check_page(picture: str | None) -> None:
    """Refuse a file that is no page, before there is anything to draw."""
    if picture is not None:
        from tblctl.pictures.survey import check_page as check

        check(picture)


def draw_all(
    survey: Sequence[tblctl.SurveyedTable],
    picture: str | None,
    opening: dict[str, Any],
    *,
    columns: str | None,
    where: str | None,
) -> None:
    """Draw several tables on one page, if that is asked for. What cannot be drawn is named there with the reason."""
    if picture is None:
        return
    from tblctl.pictures.survey import Entry, write_page

    entries = []
    for item in survey:
        problem, drawn = item.error or "", None
        try:
            if not problem:
                table = tblctl.open(item.location, **opening)
                drawn = table.picture(columns=columns, where=where).picture
        except tblctl.errors.TblctlError as error:
            problem = str(error)
        entries.append(Entry(location=item.location, picture=drawn, problem=problem))
    write_page(entries, picture)


def say_drawn(picture: str | None) -> None:
    """Print where the picture is, if one was asked for."""
    if picture is not None:
        click.echo(f"\npicture: {render.printable(picture)} ({render.size(Path(picture).stat().st_size)})")
