"""Split a file of conditions, and keep each one's place in the file, so that errors can point there. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PIECES = re.compile(
    r"""(?P<text>'[^']*+'|"[^"]*+"|`[^`]*+`)|(?P<comment>--[^\n]*+|/\*.*?\*/)|(?P<end>;)|(?P<line>\n)"""
    r"""|(?P<opened>(?:/\*|['"`]).*+)""",
    re.DOTALL,
)
_WHERE = re.compile(r"\s*where\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class PredicateText:
    """One condition.

    Attributes:
        text: the condition alone, for people.
        padded: the condition after blanks and line breaks in place of the text before it. So a position in `padded` is
            the position in the file.
    """

    text: str
    padded: str


def split_predicates(text: str) -> tuple[PredicateText, ...]:
    """Return the conditions of `text`. Each ends with a `;`; if the text has none, each line is a condition.

    SQL comments (`--`, `/* */`) are left out, and so is WHERE at the beginning of a condition. An unclosed quote or
    comment reaches to the end of the text. Linear time, except for `padded`, which grows with the place in the file.
    """
    pieces = list(_PIECES.finditer(text))
    blank = _PIECES.sub(lambda piece: _blanks(piece[0]) if piece["comment"] else piece[0], text)
    ends = [piece.start() for piece in pieces if piece["end"]]
    ends = ends or [piece.start() for piece in pieces if piece["line"]]
    starts = [0, *(end + 1 for end in ends)]
    found = []
    for start, end in zip(starts, [*ends, len(text)], strict=True):
        part = blank[start:end]
        if (word := _WHERE.match(part)) is not None:
            part = _blanks(word[0]) + part[word.end() :]
        if part.strip():
            padded = _blanks(blank[:start]) + part
            found.append(PredicateText(text=" ".join(part.split()), padded=padded.rstrip()))
    return tuple(found)


def _blanks(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
