"""Long lists of plain literals, taken out of a condition's text before it is tokenized.

sqlglot takes 25 us for each value of a list, so IN with 100,000 values would take seconds. A regular expression finds
such a list in a hundredth of that, and leaves one digit in the text for all its values. Short lists, and lists with
anything but plain literals, stay as they are.

sqlglot gives the digit a position; it gives none to some first values, such as `.5`. A reader asks for lists by that
position, and must refuse a text if it did not find every list.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

LONG_LIST = 2_000
"""The least number of values in a long list."""

_LIST_DIGIT = "0"

MOST_VALUES = 100_000
"""Limit for all long lists of a text together. Timestamps, the slowest, then take about a second to read and place."""

_VALUE = re.compile(
    r"""(?:(?P<word>DATE|TIMESTAMPTZ|TIMESTAMP|TIME)\s*+)?'(?P<text>[^']*+(?:''[^']*+)*+)'"""
    r"""|(?P<number>[+-]?\s*+(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)""",
    re.IGNORECASE,
)
_ANY = re.sub(r"\?P<\w+>", "?:", _VALUE.pattern)
_LIST = rf"\(\s*+(?:{_ANY})(?:\s*+,\s*+(?:{_ANY})){{{LONG_LIST - 1},}}+\s*+\)"
_PIECE = r"""--[^\n]*+|/\*(?s:.*?)\*/|'[^']*+'|"[^"]*+"|`[^`]*+`|(?:/\*|['"`])(?s:.*+)|\bIN\s*+(?P<open>\()"""
"""Text that may contain the word IN (comments, quotes), or IN with its parenthesis. Unclosed quotes take the rest."""


class Value(NamedTuple):
    """One literal as written: text with the word before it, if any, and doubled quotes; or a number."""

    word: str
    text: str
    number: str


@dataclass(frozen=True, kw_only=True)
class LongList:
    """A list in a text.

    Attributes:
        first: where its first value begins.
        start, stop: the text between its parentheses.
        values: the literals.
    """

    first: int
    start: int
    stop: int
    values: tuple[Value, ...]

    def positions(self, text: str) -> Iterator[int]:
        """Yield where each value begins in the text."""
        return (found.start() for found in _VALUE.finditer(text, self.start, self.stop))


@dataclass(frozen=True, kw_only=True)
class Shortened:
    """A text with one digit in place of each long list's values.

    Attributes:
        text: the shortened text.
        lists: the lists by `LongList.first`.
        cuts: ascending places in `text` where characters were cut out, and the number cut out up to there.
    """

    text: str
    lists: Mapping[int, LongList]
    cuts: tuple[tuple[int, int], ...]

    def position(self, place: int) -> int:
        """Return the position in the whole text of a place in the shortened one."""
        index = bisect_right(self.cuts, place, key=lambda cut: cut[0])
        return place + (self.cuts[index - 1][1] if index else 0)


def shorten(text: str) -> Shortened:
    """Return `text` without long lists. O(length)."""
    parts: list[str] = []
    lists: dict[int, LongList] = {}
    cuts: list[tuple[int, int]] = []
    begin = kept = length = 0
    if len(text) < LONG_LIST:
        return Shortened(text=text, lists={}, cuts=())
    pieces, long_list = re.compile(_PIECE, re.IGNORECASE), re.compile(_LIST, re.IGNORECASE)
    while (piece := pieces.search(text, begin)) is not None:
        begin = piece.end()
        found = long_list.match(text, piece.start("open")) if piece["open"] else None
        if found is None:
            continue
        begin, start, stop = found.end(), found.start() + 1, found.end() - 1
        first = _VALUE.search(text, start, stop)
        assert first is not None  # the list has many
        parts += text[kept : first.start()], _LIST_DIGIT
        length += first.start() - kept + len(_LIST_DIGIT)
        kept = stop
        cuts.append((length, stop - length))
        values = tuple(map(Value._make, _VALUE.findall(text, start, stop)))
        lists[first.start()] = LongList(first=first.start(), start=start, stop=stop, values=values)
    return Shortened(text="".join([*parts, text[kept:]]), lists=lists, cuts=tuple(cuts))
