"""Pairs of a number and a text that maps of several records have alike: the same keys, values of the same lengths.

Maps are passed over pair by pair, since each says only how long it is itself. Where there are few records and many
pairs (a wide table has a pair for each column), a step costs mostly what numpy takes to begin. Numbers and times have
values of one length in all records. So pairs of the first record are looked at one by one, and those of all others
compared with them at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tblctl.tableformat.iceberg.avro.chunk import Cursor, Integers

MOST_RECORDS = 1_000
"""With more, steps pair by pair cost no more than the comparison."""

_FIRST = 32
_MOST = 512
_FEW = 4
_MOST_PAUSE = 64

_MOST_SHIFT = 70
"""Bits. A longer number is damaged; that is found when the pair is read by itself."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Pairs that all records have next: their keys, where each text begins after the record's place, and its length."""

    keys: Sequence[int]
    starts: Sequence[int]
    lengths: Sequence[int]

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.keys, self.starts, self.lengths, strict=True)


class Runs:
    """Finds runs in one list. Where there are none, it tries seldom."""

    def __init__(self) -> None:
        self._width = _FIRST
        self._failures = 0
        self._pause = 0

    def next(self, cursor: Cursor, held: int, most: int) -> Run | None:
        """Return what the first `held` records have next, at most `most` pairs; None for nothing.

        The cursor moves over them.
        """
        if self._pause:
            self._pause -= 1
            return None
        tried = min(self._width, most)
        found = _run(cursor, held, tried)
        count = 0 if found is None else len(found.keys)
        if count < min(_FEW, tried):
            self._failures += 1
            self._pause = min(2**self._failures, _MOST_PAUSE)
        else:
            self._failures = 0
        self._width = min(2 * count, _MOST) if count == tried else max(2 * count, 2 * _FEW)
        return found


def _run(cursor: Cursor, held: int, most: int) -> Run | None:
    at, limit = cursor.at[:held], cursor.limit[:held]
    data = cursor.chunk.data
    first = int(at[0])
    heads, keys, starts, lengths = _pairs(data[first : int(limit[0])].tobytes(), most)
    if not keys or int(at.max()) + starts[-1] > len(data):
        return None
    places = np.concatenate([np.arange(begin, start) for begin, start in zip(heads, starts, strict=True)])
    alike = (data[at[:, None] + places] == data[first + places]).all(axis=0)
    if not alike.all():
        count = int(np.searchsorted(starts, places[alike.argmin()], side="right"))
        if not count:
            return None
        keys, starts, lengths = keys[:count], starts[:count], lengths[:count]
    _pass(cursor, held, starts[-1] + lengths[-1])
    return Run(keys=keys, starts=starts, lengths=lengths)


def _pass(cursor: Cursor, held: int, length: int) -> None:
    after: Integers = cursor.at[:held] + length
    limit = cursor.limit[:held]
    wrong = after > limit
    if wrong.any():
        cursor.bad[:held] |= wrong
        after = np.where(wrong, limit, after)
    cursor.at[:held] = after


def _pairs(data: bytes, most: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return where pairs begin, their keys, where their texts begin, and their lengths; fewer if data are damaged."""
    heads: list[int] = []
    keys: list[int] = []
    starts: list[int] = []
    lengths: list[int] = []
    at = 0
    for _ in range(most):
        begin = at
        try:
            numbers = []
            for _ in range(2):
                value = shift = 0
                while (byte := data[at]) > 0x7F and shift < _MOST_SHIFT:  # noqa: PLR2004
                    value |= (byte & 0x7F) << shift
                    shift += 7
                    at += 1
                value |= byte << shift
                at += 1
                numbers.append((value >> 1) ^ -(value & 1))
        except IndexError:
            break
        key, length = numbers
        if not 0 <= length <= len(data) - at:
            break
        heads.append(begin)
        keys.append(key)
        starts.append(at)
        lengths.append(length)
        at += length
    return heads, keys, starts, lengths
