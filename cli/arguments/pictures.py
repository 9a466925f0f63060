"""The options of `tblctl info` that draw and compare."""

from __future__ import annotations

from pathlib import Path

import click

import tblctl
from tblctl.cli.show import render

PICTURE = click.option(
    "--picture",
    metavar="FILE",
    help="Also draw the blocks, their depth and the history. FILE ends with .svg, .png or .html.",
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
    first, second = (int(name) if name.isascii() and name.isdigit() else name for name in names)
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


def say_drawn(picture: str | None) -> None:
    """Print where the picture is, if one was asked for."""
    if picture is not None:
        click.echo(f"\npicture: {render.printable(picture)} ({render.size(Path(picture).stat().st_size)})")
