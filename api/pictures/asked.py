"""A picture of what a table is asked: which columns over time, and their hot ranges."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tblctl.pictures.file import picture_format, write_whole
from tblctl.pictures.picture import printable
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.workload.report import ColumnUse, WorkloadReport

MOST_COLUMNS = 8
"""Columns of a picture: the ones that most queries test."""

_LABEL_CHARACTERS = 36


@dataclass(frozen=True, kw_only=True, eq=False)
class AskedPicture:
    """What is drawn.

    Attributes:
        title: of the picture.
        columns: their names, the one asked for most first.
        times: of the first and the last query, as text.
        shares: of the queries of a stretch of time that test a column, of shape (columns, stretches); NaN where no
            query ran.
        hot: ranges, the hottest of each column first: the column's number, the range as text, and the share of queries.
    """

    title: str
    columns: tuple[str, ...]
    times: tuple[str, str]
    shares: npt.NDArray[np.float64]
    hot: tuple[tuple[int, str, float], ...]


def asked_picture(found: WorkloadReport, location: str) -> AskedPicture:
    """Return the picture of a report. Text of the log is cut, and made printable."""
    chosen = found.columns[:MOST_COLUMNS]
    shares = [
        [item.shares.get(column.column, 0.0) if item.weight else np.nan for item in found.over_time]
        for column in chosen
    ]
    return AskedPicture(
        title=printable(f"{location}: {found.query_count:,} queries"),
        columns=tuple(_label(column.column) for column in chosen),
        times=(_day(found.first_time), _day(found.last_time)),
        shares=np.array(shares, float).reshape(len(chosen), len(found.over_time)),
        hot=tuple(_hot(chosen)),
    )


def check_asked(path: str | os.PathLike[str]) -> None:
    """Refuse a file that cannot hold such a picture, before anything is read.

    Raises:
        InvalidOptionError: its name ends with neither .svg nor .png, its folder is missing, or so is matplotlib.
    """
    if picture_format(path) == "html":
        raise InvalidOptionError(
            f"picture {os.fspath(path)!r}: expected a file's name that ends with .svg or .png"
        )


def write_asked(found: WorkloadReport, location: str, path: str | os.PathLike[str]) -> None:
    """Draw a report into a file, SVG or PNG by its name.

    Raises:
        InvalidOptionError: as for `check_asked`; no query is known; or the file cannot be written.
        StorageError: the disk is full.
    """
    check_asked(path)
    if not found.columns:
        raise InvalidOptionError(
            f"picture {os.fspath(path)!r}: no query tests a column, so there is nothing to draw"
        )
    from tblctl.pictures.drawing import draw_asked

    write_whole(path, draw_asked(asked_picture(found, location), picture_format(path)))


def _hot(columns: Sequence[ColumnUse]) -> list[tuple[int, str, float]]:
    found = []
    for number, column in enumerate(columns):
        for item in column.hot:
            same = item.low is not None and item.low == item.high
            text = item.low if same else f"{item.low or ''}..{item.high or ''}"
            found.append((number, _label(text or ""), item.share))
    return found


def _label(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LABEL_CHARACTERS else f"{shown[: _LABEL_CHARACTERS - 1]}…"


def _day(seconds: float | None) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(seconds or 0.0, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return "an unknown time"
    return f"{moment:%Y-%m-%d %H:%M} UTC"
