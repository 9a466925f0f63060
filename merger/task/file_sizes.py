"""Decide, while a task writes, where its files end, so that each takes about a given number of bytes on storage.

Pure. Rows in key order compress better than they did in the files that are merged, and by how much shows only once some
were written. So the first rows of a task are a probe, and what was written since corrects the guess all the time. Rows
count by their approximate memory, here their weight: a few large ones after many small ones fill a file, too.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_TOLERANCE = 0.1
"""A file may exceed the target by this share, if otherwise there were one file more. Iceberg's rewrite does so too."""

_PROBE = 8
"""The first rows of a task take about this part of a file, by a guess that may be far off."""

_SPANS = 4
"""About how many spans make a file: after each the guess is corrected. A span costs time beside its rows, for every
column of every input: with three times as many, a merge of 61 files of lineitem took a tenth more processor time."""

_STEP = 4096


class Weights:
    """The weight of rows in their order, at every 4,096th place.

    Args:
        row_bytes: approximate memory of each row, by its number.
        order: the rows' numbers, in key order.
    """

    def __init__(self, row_bytes: npt.NDArray[np.floating], order: npt.NDArray[np.integer]) -> None:
        parts = [
            float(row_bytes[order[start : start + _STEP]].sum()) for start in range(0, len(order), _STEP)
        ]
        self._places = np.append(np.arange(0, len(order), _STEP), len(order))
        self._weights = np.cumsum([0.0, *parts])

    def before(self, place: int) -> float:
        """Return about the weight of the rows before a place."""
        return float(np.interp(place, self._places, self._weights))

    def place(self, weight: float) -> int:
        """Return about the place before which rows have a weight."""
        return round(float(np.interp(weight, self._weights, self._places)))


class Span(NamedTuple):
    """What to write next, by its weight; `ends_file` if what follows belongs to another file."""

    weight: float
    ends_file: bool


class FileSizes:
    """The files of one task.

    Args:
        weight: of the task's rows.
        target_bytes: that a file should take.
        guess: the bytes on storage of a unit of weight, by the files that are merged.
    """

    def __init__(self, *, weight: float, target_bytes: int, guess: float) -> None:
        self._left = weight
        self._target = target_bytes
        self._ratio = self._guess = guess
        self._recent: deque[tuple[float, int]] = (
            deque()
        )  # weight and bytes of the last spans, about half a file
        self._unknown: deque[tuple[float, bool]] = (
            deque()
        )  # weight of unknown bytes; whether in the open file
        self._file_bytes = 0  # of what is known of the open file

    @property
    def must_know(self) -> bool:
        """Whether the bytes of all spans are needed before the next one: too little is known yet."""
        return bool(self._unknown) and sum(size for _, size in self._recent) < self._target / _SPANS

    def next(self) -> Span:
        """Return what to write next. If the file ends after it, a place near by will do as well; see `took`."""
        file = self._target / max(self._ratio, self._guess)  # rows may come that compress worse
        if not self._recent and self._left > file / _PROBE:
            return Span(file / _PROBE, ends_file=False)
        waiting = sum(weight for weight, is_open in self._unknown if is_open)
        written = self._file_bytes + waiting * self._ratio
        whole = written + self._left * self._ratio
        files = max(1, math.ceil(whole / self._target - _TOLERANCE))
        wanted = self._left if files == 1 else (whole / files - written) / self._ratio
        if wanted > 1.5 * file / _SPANS:
            return Span(file / _SPANS, ends_file=False)
        return Span(min(max(wanted, 0.0), self._left), ends_file=True)

    def took(self, span: Span) -> None:
        """Note what is written next."""
        self._left -= span.weight
        self._unknown.append((span.weight, True))
        if span.ends_file:
            self._unknown = deque((weight, False) for weight, _ in self._unknown)
            self._file_bytes = 0

    def wrote(self, size_bytes: int) -> None:
        """Note how many bytes the oldest span took of which this is not known."""
        weight, is_open = self._unknown.popleft()
        if is_open:
            self._file_bytes += size_bytes
        self._recent.append((weight, max(1, size_bytes)))
        while sum(size for _, size in self._recent) - self._recent[0][1] > self._target // 2:
            self._recent.popleft()
        known = sum(weight for weight, _ in self._recent)
        if known:
            self._ratio = sum(size for _, size in self._recent) / known
