"""Format text and JSON: tables that fit the terminal, counts, sizes and durations.

Values come from tables that others wrote. Characters that are not printable are escaped, so that data cannot control a
terminal.
"""

from __future__ import annotations

import json
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click

from tblctl.sizes import size_text

size = size_text  # `render.size(..)`, as the other texts here

CELL_WIDTH = 48  # of a table on a terminal. In a pipe cells keep their full length
GAP = "  "
INDENT = "    "
NARROW = 80  # columns: on terminals with fewer, even times are shortened
LEAST_TEXT_WIDTH = 24  # sentences in narrower columns are hard to read
ELLIPSIS = "…"
NOTHING_SHRINKS: Mapping[int, int] = MappingProxyType({})


def print_json(value: Any) -> None:
    """Print one JSON value on standard output."""
    click.echo(json_text(value, indent=2))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return JSON in which text is readable, but characters that control a terminal are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def count(number: int, noun: str) -> str:
    """Return `1 row`, `6,001,215 rows`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def duration(seconds: float) -> str:
    """Return `0.04 s`, `12.3 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:  # noqa: PLR2004
        return f"{seconds:.2f} s"
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min"


def cell(value: Any) -> str:
    """Return one JSON value (see `values`) as text for a table."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        value = json_text(value)
    return printable(str(value))


def printable(text: str) -> str:
    r"""Escape characters that control a terminal: control characters, `\n`, bidirectional marks."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def text_width(text: str) -> int:
    """Return how many terminal columns `text` takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def shorten(text: str, width: int) -> str:
    """Cut `text` to `width` columns, the last an ellipsis."""
    if text_width(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += text_width(character)
        if used >= width:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def terminal_width() -> int | None:
    """Return the terminal's width, or None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    width: int | None,
    right: Iterable[int] = (),
    text: Sequence[int] = (),
    least: Mapping[int, int] = NOTHING_SHRINKS,
    dropped: Sequence[int] = (),
) -> tuple[str, tuple[str, ...]]:
    """Return an aligned table, and the names of the columns left out because they do not fit `width`.

    Args:
        names: the header.
        rows: JSON values, see `cell`.
        width: of the terminal; None (a pipe) means no limit on columns and cells.
        right: positions of the columns aligned to the right, numbers mostly.
        text: positions of columns of sentences. They are never cut: they are wrapped within what the others leave, or
            below their rows where that is too little.
        least: positions of columns that are shortened where there is no room, such as paths, and how wide they stay.
        dropped: positions of columns in the order in which they are left out where there is still no room. Without
            them, columns are left out in the middle.
    """
    cells = [[cell(value) for value in row] for row in rows]
    header = [printable(name) for name in names]
    if width is None:
        return _aligned(header, cells, range(len(names)), right), ()
    limits = [None if place in text else CELL_WIDTH for place in range(len(names))]
    header, *cells = [_cut(row, limits) for row in (header, *cells)]
    widths = [max(map(text_width, column)) for column in zip(header, *cells, strict=True)]
    if _total(widths) <= width:
        return _aligned(header, cells, range(len(names)), right), ()
    # What says nothing in any row makes room, unless it is data: of that every column is named.
    fixed = [
        place
        for place in range(len(names))
        if place not in text and (not (text or dropped) or any(row[place] for row in cells))
    ]
    _squeeze(widths, fixed, width, least)
    limits = [None if place in text else widths[place] for place in range(len(names))]
    header, *cells = [_cut(row, limits) for row in (header, *cells)]
    if not text and _total(widths) <= width:
        return _aligned(header, cells, range(len(names)), right), ()
    if dropped:
        shown = _without(widths, fixed, width, dropped)
    else:
        shown = [fixed[place] for place in fitting([widths[place] for place in fixed], width)]
    left_out = tuple(names[place] for place in fixed if place not in shown)
    room = width - _total([widths[place] for place in shown]) - len(GAP) * len(text)
    beside = [] if left_out or room < LEAST_TEXT_WIDTH * len(text) else list(text)
    shares = dict(zip(beside, shared([widths[place] for place in beside], room), strict=True))
    lines = [
        line
        for number, row in enumerate((header, *cells))
        for line in _lines_of(row, shown, shares, text if number and not beside else (), width)
    ]
    return _aligned(lines[0], lines[1:], sorted((*shown, *beside)), right, has_gap=bool(left_out)), left_out


def _cut(row: Sequence[str], limits: Sequence[int | None]) -> list[str]:
    return [value if most is None else shorten(value, most) for value, most in zip(row, limits, strict=True)]


def _lines_of(
    row: Sequence[str], shown: Sequence[int], shares: Mapping[int, int], below: Sequence[int], width: int
) -> list[list[str]]:
    """Return a row's lines: sentences are wrapped within their shares of the width, or stand below it."""
    parts = [
        wrapped(row[place], shares[place]) if place in shares else [row[place]] for place in range(len(row))
    ]
    height = max(len(parts[place]) for place in (*shown, *shares))
    lines = [[part[deep] if deep < len(part) else "" for part in parts] for deep in range(height)]
    return lines + [[INDENT + line] for place in below for line in wrapped(row[place], width - len(INDENT))]


def _squeeze(widths: list[int], fixed: Sequence[int], width: int, least: Mapping[int, int]) -> None:
    """Take from the widest columns that may be shortened until all fit, or none has more to give."""
    over = _total([widths[place] for place in fixed]) - width
    while over > 0:
        giving = [place for place in fixed if widths[place] > least.get(place, widths[place])]
        if not giving:
            return
        widths[max(giving, key=widths.__getitem__)] -= 1
        over -= 1


def _without(widths: Sequence[int], fixed: Sequence[int], width: int, dropped: Sequence[int]) -> list[int]:
    """Return the columns that are left when those that matter least are left out until the others fit."""
    shown = list(fixed)
    for place in dropped:
        mark = len(GAP) + len(ELLIPSIS) if len(shown) < len(fixed) else 0
        if _total([widths[item] for item in shown]) + mark <= width:
            break
        if place in shown and len(shown) > 1:
            shown.remove(place)
    return shown


def _aligned(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    shown: Sequence[int],
    right: Iterable[int],
    *,
    has_gap: bool = False,
) -> str:
    """Return the lines of a table. A row of one cell of several is a line of its own.

    With `has_gap`, columns are left out in the middle: the first ones name a row, the last ones are often sums or
    states.
    """
    whole = [row for row in (header, *rows) if len(row) == len(header)]
    widths = [max(map(text_width, column)) for column in zip(*whole, strict=True)]
    aligned_right = set(right)
    at = next((i for i, column in enumerate([*shown, len(header)]) if i != column), len(shown))
    lines = []
    for number, row in enumerate((header, ["-" * w for w in widths], *rows)):
        if len(row) != len(header):
            lines.append(row[0])
            continue
        line = [pad(row[i], widths[i], right=i in aligned_right) for i in shown]
        if has_gap:
            line.insert(at, "-" if number == 1 else ELLIPSIS)
        lines.append(GAP.join(line).rstrip())
    return "\n".join(lines)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * max(len(widths) - 1, 0)


def shared(widths: Sequence[int], room: int) -> list[int]:
    """Return how much of `room` each of some columns gets: what it needs, or an equal share of what others leave."""
    found = [0] * len(widths)
    left = len(widths)
    for place in sorted(range(len(widths)), key=lambda place: widths[place]):
        found[place] = min(widths[place], room // left)
        room, left = room - found[place], left - 1
    return found


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines of at most `width` columns, broken at blanks where that can be; no line for no text."""
    lines: list[str] = []
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(joined) <= width:
            lines[-1] = joined
            continue
        lines.append("")
        for character in word:
            if text_width(lines[-1] + character) > max(width, 2):
                lines.append("")
            lines[-1] += character
    return lines


def fitting(widths: Sequence[int], width: int) -> list[int]:
    """Return the positions of the columns that fit, taken from both ends in turn, but at least the first."""
    count_all = len(widths)
    if _total(widths) <= width:
        return list(range(count_all))
    order = [i // 2 if i % 2 == 0 else count_all - 1 - i // 2 for i in range(count_all)]
    chosen: list[int] = []
    used = 1  # the ellipsis between the two halves
    for column in order:
        used += widths[column] + len(GAP)
        if used > width and chosen:
            break
        chosen.append(column)
    return sorted(chosen)


def pad(text: str, width: int, *, right: bool) -> str:
    """Fill `text` up to `width` columns."""
    space = " " * (width - text_width(text))
    return space + text if right else text + space


def print_table(
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Iterable[int] = (),
    text: Sequence[int] = (),
    least: Mapping[int, int] = NOTHING_SHRINKS,
    dropped: Sequence[int] = (),
) -> None:
    """Print a table that fits the terminal, and the names of the columns left out; the rest is as for `table`."""
    lines, left_out = table(
        names, rows, width=terminal_width(), right=right, text=text, least=least, dropped=dropped
    )
    click.echo(lines)
    if left_out:
        click.echo(left_out_line(left_out))


def left_out_line(names: Sequence[str]) -> str:
    """Return the line that names the columns that do not fit."""
    return f"({count(len(names), 'column')} not shown: {', '.join(map(printable, names))})"


def time(timestamp: str) -> str:
    """Return an ISO timestamp, on a terminal as `minute`, on a narrow one without the year."""
    width = terminal_width()
    if width is None:
        return timestamp
    return minute(timestamp) if width >= NARROW else minute(timestamp)[len("2026-") :]


def minute(timestamp: str) -> str:
    """Return an ISO timestamp as `2026-11-21 10:29`, so that a line fits into 80 columns."""
    return timestamp[: len("2026-11-21T10:29")].replace("T", " ")


def number(value: int | None) -> str:
    """Return a whole number as text; `?` if it is unknown."""
    return "?" if value is None else f"{value:,}"


def size_or_unknown(size_bytes: int | None) -> str:
    """Return a size as text; `?` if it is unknown."""
    return "?" if size_bytes is None else size(size_bytes)


def average(value: float | None, digits: int = 4) -> str:
    """Return an average as text; `?` if it is unknown."""
    return "?" if value is None else f"{value:,.{digits}f}"
