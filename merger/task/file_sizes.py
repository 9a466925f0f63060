"""Decide, while a task writes, where its files end, so that each takes about a given number of bytes on storage.

Pure. Rows in key order compress better than they did in the files that are merged, and by how much shows only once some
were written. So the first rows of a task are a probe, and what was written since corrects the guess all the time.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

_TOLERANCE = 0.1
"""A file may exceed the target by this share, if otherwise there were one file more. Iceberg's rewrite does so too."""

_SPANS = 8
"""About how many spans make a file: after each the guess is corrected."""


class Span(NamedTuple):
    """Rows to write next; `ends_file` if the next rows belong to another file."""

    rows: int
    ends_file: bool


class FileSizes:
    """The files of one task.

    Args:
        rows: of the task.
        target_bytes: that a file should take.
        row_bytes: that a row took in the files that are merged: the first guess.
        group_rows: of a row group. Spans are whole row groups if files have at least two.
    """

    def __init__(self, *, rows: int, target_bytes: int, row_bytes: float, group_rows: int) -> None:
        self._left = rows
        self._target = target_bytes
        self._row_bytes = row_bytes
        guess = max(1, int(target_bytes / row_bytes))
        self._span = max(group_rows, guess // _SPANS // group_rows * group_rows)
        self._probe = min(self._span, max(1, guess // _SPANS))
        self._recent: deque[tuple[int, int]] = deque()  # rows and bytes of the last spans, about half a file
        self.file_rows = 0  # of the open file
        self._unknown: deque[tuple[int, bool]] = (
            deque()
        )  # rows whose bytes are not known; whether in the open file
        self._file_bytes = 0  # of the open file's other rows

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known of what rows take, although some were given."""
        return bool(self._unknown) and not self._recent

    def next(self) -> Span:
        """Return the next rows. If the file ends after them, another number near by will do as well; see `took`."""
        if not self._recent and self._left > self._probe:
            return Span(self._probe, ends_file=False)
        waiting = sum(rows for rows, is_open in self._unknown if is_open)
        written = self._file_bytes + waiting * self._row_bytes
        whole = written + self._left * self._row_bytes
        files = max(1, math.ceil(whole / self._target - _TOLERANCE))
        wanted = self._left if files == 1 else round((whole / files - written) / self._row_bytes)
        if wanted > 1.5 * self._span:
            return Span(self._span, ends_file=False)
        return Span(min(max(wanted, 1), self._left), ends_file=True)

    def took(self, span: Span) -> None:
        """Note the rows that are written next."""
        self._left -= span.rows
        self.file_rows += span.rows
        self._unknown.append((span.rows, True))
        if span.ends_file:
            self._unknown = deque((rows, False) for rows, _ in self._unknown)
            self.file_rows = self._file_bytes = 0

    def wrote(self, size_bytes: int) -> None:
        """Note how many bytes the oldest rows took of which this is not known."""
        rows, is_open = self._unknown.popleft()
        if is_open:
            self._file_bytes += size_bytes
        self._recent.append((rows, max(1, size_bytes)))
        while sum(size for _, size in self._recent) - self._recent[0][1] > self._target // 2:
            self._recent.popleft()
        self._row_bytes = sum(size for _, size in self._recent) / sum(rows for rows, _ in self._recent)
