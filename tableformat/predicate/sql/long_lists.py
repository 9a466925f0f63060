"""Long lists of plain literals, taken out of a condition's text before it is made into tokens.

sqlglot takes 25 us a value of a list, so that IN of 100,000 would take seconds. A regular expression finds such a list
in a hundredth of that, and leaves one digit in the text for all its values. Short lists, and those with anything but
plain literals, stay as they are.

The digit has a position, which sqlglot does not give for each first value: `.5` has none there. A reader asks
for lists by that position, and must refuse a text if it did not meet every list.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

LONG_LIST = 2_000
"""So many values make a list a long one."""

_STANDS_FOR_LIST = "0"

MOST_VALUES = 100_000
"""Of all long lists of a text: timestamps, the slowest, take about a second to read and to place in their column."""

_VALUE = re.compile(
    r"""(?:(?P<word>DATE|TIMESTAMPTZ|TIMESTAMP|TIME)\s*+)?'(?P<text>[^']*+(?:''[^']*+)*+)'"""
    r"""|(?P<number>[+-]?\s*+(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)""",
    re.IGNORECASE,
)
_ANY = re.sub(r"\?P<\w+>", "?:", _VALUE.pattern)
_LIST = rf"\(\s*+(?:{_ANY})(?:\s*+,\s*+(?:{_ANY})){{{LONG_LIST - 1},}}+\s*+\)"
_PIECE = r"""--[^\n]*+|/\*(?s:.*?)\*/|'[^']*+'|"[^"]*+"|`[^`]*+`|(?:/\*|['"`])(?s:.*+)|\bIN\s*+(?P<open>\()"""
"""What may hold the word IN without meaning it, or IN and its parenthesis. What is never closed takes all the rest."""


class Value(NamedTuple):
    """One literal as it is written: text with the word before it, if any, and doubled quotes; or a number."""

    word: str
    text: str
    number: str


@dataclass(frozen=True, kw_only=True)
class LongList:
    """A list in a text.

    Attributes:
        first: where its first value begins.
        start, stop: the text between its parentheses.
        values: of the list.
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
    """A text with one digit in the place of each long list's values.

    Attributes:
        text: what is left.
        lists: by `LongList.first`.
        cuts: places in `text` where something was cut out, ascending, and how much up to there.
    """

    text: str
    lists: Mapping[int, LongList]
    cuts: tuple[tuple[int, int], ...]

    def position(self, place: int) -> int:
        """Return where in the whole text a place in the shortened one is."""
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
        parts += text[kept : first.start()], _STANDS_FOR_LIST
        length += first.start() - kept + len(_STANDS_FOR_LIST)
        kept = stop
        cuts.append((length, stop - length))
        values = tuple(map(Value._make, _VALUE.findall(text, start, stop)))
        lists[first.start()] = LongList(first=first.start(), start=start, stop=stop, values=values)
    return Shortened(text="".join([*parts, text[kept:]]), lists=lists, cuts=tuple(cuts))
