"""Results as HTML for notebooks. Pure; what others wrote, such as keys and names, is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MOST_ROWS = 20
_BAR_PIXELS = 240


def fields_html(title: str, fields: Mapping[str, Any]) -> str:
    """Return a heading, and names with their values."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{_text(name)}</th><td style='text-align:left'>{_text(value)}</td></tr>"
        for name, value in fields.items()
    )
    return f"<div><b>{_text(title)}</b><table>{rows}</table></div>"


def table_html(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table of at most `MOST_ROWS` rows, and how many it leaves out."""
    listed = list(rows)
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_text(value)}</td>" for value in row) + "</tr>" for row in listed[:MOST_ROWS]
    )
    left = len(listed) - MOST_ROWS
    more = f"<p>and {left:,} more</p>" if left > 0 else ""
    return f"<table><tr>{head}</tr>{body}</table>{more}"


def bars_html(names: tuple[str, str], bars: Sequence[tuple[str, int]]) -> str:
    """Return a table of labels and counts, each with a bar."""
    most = max((count for _, count in bars), default=1)
    rows = "".join(
        f"<tr><td>{_text(label)}</td><td>{count:,}</td><td style='text-align:left'><div style='background:#56b4e9;"
        f"height:0.8em;width:{max(1, round(_BAR_PIXELS * count / most))}px'></div></td></tr>"
        for label, count in bars
    )
    return f"<table><tr><th>{_text(names[0])}</th><th>{_text(names[1])}</th><th></th></tr>{rows}</table>"


def _text(value: Any) -> str:
    """Return a value as escaped text; `?` for None, which stands for what is unknown."""
    if value is None:
        return "?"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return html.escape(f"{value:,}" if isinstance(value, int) else str(value))
