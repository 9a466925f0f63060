"""Print lines, tables and fields: plain text, with some colour on a terminal (none with NO_COLOR), or by --color."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import click

from tblctl.cli.show import render

Span = tuple[str, str]
"""A text and its rich style on a terminal; "" for no style."""

HEADING = "bold"
RULE = "dim"
BARS = "█▁▂▃▄▅▆▇"
STEPS = "▁▂▃▄▅▆▇█"
GAP_MARK = "·"

# Colours stand for how many blocks a lookup reads: about one, a few, many.
SHALLOW_DEPTH = 2
DEEP_DEPTH = 16


def put(*spans: str | Span) -> None:
    """Print one line."""
    parts = [span if isinstance(span, tuple) else (span, "") for span in spans]
    forced = color_asked()
    if not (sys.stdout.isatty() if forced is None else forced):
        click.echo("".join(text for text, _ in parts))
        return
    from rich.console import Console
    from rich.text import Text

    always: dict[str, Any] = {"no_color": False, "color_system": "standard"} if forced else {}
    console = Console(highlight=False, force_terminal=True, **always)
    with console.capture() as captured:  # what rich writes itself would end the process where nobody reads it
        console.print(Text.assemble(*parts), soft_wrap=True)
    click.echo(captured.get(), nl=False, color=True)


def color_asked() -> bool | None:
    """Return whether --color asks for colours; None if the terminal and NO_COLOR decide."""
    ctx = click.get_current_context(silent=True)
    return None if ctx is None else ctx.color


def put_paragraph(text: str, *, indent: int, style: str = "") -> None:
    """Print a paragraph. On a terminal it is wrapped, and lines after the first are indented."""
    width = render.terminal_width()
    shown = render.printable(text)
    if width is None:
        put((shown, style))
        return
    for line in textwrap.wrap(shown, max(width, 2 * indent), subsequent_indent=" " * indent):
        put((line, style))


def put_table(
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Iterable[int] = (),
    styles: Sequence[str] = (),
    **fit: Any,
) -> None:
    """Print a table as `render.print_table` does, with its `fit`; `styles` colour the bars of its rows."""
    whole, left_out = render.table(names, rows, width=render.terminal_width(), right=right, **fit)
    header, rule, *lines = whole.splitlines()
    put((header, HEADING))
    put((rule, RULE))
    for number, line in enumerate(lines):
        at = min((line.find(mark) for mark in BARS if mark in line), default=len(line))
        put(line[:at], (line[at:], styles[number] if number < len(styles) else ""))
    if left_out:
        put((render.left_out_line(left_out), RULE))


def put_fields(fields: dict[str, str | Span]) -> None:
    """Print names and values, one pair a line."""
    width = max(map(len, fields))
    for name, value in fields.items():
        text, style = (value, "") if isinstance(value, str) else value
        put((f"{name:<{width}}", RULE), "  ", (render.printable(text), style))


def depth_style(depth: float | None) -> str:
    """Return the style for a depth. An unknown depth counts as bad: no block can be skipped."""
    if depth is None:
        return "red"
    if depth <= SHALLOW_DEPTH:
        return "green"
    return "yellow" if depth <= DEEP_DEPTH else "red"


def sparkline(values: Sequence[float | None]) -> str:
    """Return a mark for each value, scaled from 0 to the greatest; a dot for None."""
    known = [value for value in values if value is not None]
    most = max(known, default=0.0)
    if not most:
        return "".join(GAP_MARK if value is None else STEPS[0] for value in values)
    top = len(STEPS) - 1
    return "".join(GAP_MARK if value is None else STEPS[round(top * value / most)] for value in values)
