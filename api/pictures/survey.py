"""Pictures of many tables as one HTML page: a list of the tables, then a picture of each."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

from tblctl.pictures.file import picture_format, write_whole
from tblctl.pictures.picture import Picture, printable
from tblctl.tableformat.errors import InvalidOptionError


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A table of the page.

    Attributes:
        location: without secrets.
        picture: None if there is none.
        problem: why there is none.
    """

    location: str
    picture: Picture | None = None
    problem: str = ""


def check_page(path: str | os.PathLike[str]) -> None:
    """Raise if pictures cannot be drawn, or not on this page.

    Raises:
        InvalidOptionError: as for `picture_format`; or the name does not end with .html.
    """
    if picture_format(path) != "html":
        msg = f"picture {os.fspath(path)!r}: several tables are drawn on one page: a file whose name ends with .html"
        raise InvalidOptionError(msg)


def write_page(entries: Sequence[Entry], path: str | os.PathLike[str]) -> None:
    """Draw the pictures, and write the page. An existing file is replaced.

    Raises:
        InvalidOptionError, StorageError: as for `write_picture`.
    """
    check_page(path)
    write_whole(path, survey_page(entries))


def survey_page(entries: Sequence[Entry]) -> bytes:
    """Return the page, in UTF-8. It loads nothing and has no script."""
    return _PAGE.substitute(
        count=f"{len(entries):,} table{'' if len(entries) == 1 else 's'}",
        links="".join(_link(number, entry) for number, entry in enumerate(entries)),
        tables="".join(_section(number, entry) for number, entry in enumerate(entries)),
    ).encode()


def _link(number: int, entry: Entry) -> str:
    about = entry.problem
    if entry.picture is not None:
        found = entry.picture.panels[-1].info
        depth = "?" if found.average_depth is None else f"{found.average_depth:,.2f}"
        about = f"depth {depth}, {found.total_block_count:,} blocks, by {entry.picture.terms}"
    location = html.escape(printable(entry.location))
    return f'<li><a href="#t{number}">{location}</a>: {html.escape(printable(about))}</li>\n'


def _section(number: int, entry: Entry) -> str:
    location = html.escape(printable(entry.location))
    if entry.picture is None:
        return f'<h2 id="t{number}">{location}</h2>\n<p>{html.escape(printable(entry.problem))}</p>\n'
    from tblctl.pictures.drawing import draw_svg
    from tblctl.pictures.page import FAINT, INK, THEME

    svg = draw_svg(entry.picture, THEME)[0].decode()
    shown = svg[svg.index("<svg") :].replace(INK, "var(--ink)").replace(FAINT, "var(--faint)")
    return f'<h2 id="t{number}">{location}</h2>\n{shown}\n'


_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>tblctl: $count</title>
<style>
:root { color-scheme: light dark; --ink: #1f2328; --faint: #8c959f; --paper: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #d1d7e0; --faint: #656c76; --paper: #151b23; } }
body { margin: 1rem auto; max-width: 72rem; padding: 0 1rem; font: 14px sans-serif; }
body { color: var(--ink); background: var(--paper); }
a { color: inherit; }
h2 { font-size: 1rem; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; }
</style>
</head>
<body>
<h1>$count</h1>
<ul>
$links</ul>
$tables</body>
</html>
""")
