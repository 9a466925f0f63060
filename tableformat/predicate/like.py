"""Patterns of LIKE: `%` stands for any characters, `_` for one, and what follows the ESCAPE character for itself.

SQL has no escape character unless ESCAPE names one. Others take a backslash for it (Spark, PostgreSQL, MySQL) or do not
(DuckDB, SQLite), so a backslash before a wildcard is refused without ESCAPE: nobody can know which rows are meant.

Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_PATTERN_CHARACTERS = 4_000
"""Of a pattern that is more than a beginning: it becomes a regular expression, and Arrow refuses some of 60,000."""

_WILDCARDS = "%_"
_ANY = ".*"
_SPECIAL = frozenset(r"\.+*?()|[]{}^$")
"""What means more than itself in a regular expression of RE2's."""

_PIECE = re.compile(r"(?P<any>%+)|(?P<one>_)|\\?(?P<char>.)", re.DOTALL)


class PatternError(ValueError):
    """A pattern is none, or it means different things elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A pattern.

    Attributes:
        prefix: what all text that it matches begins with.
        rest: what comes behind that, from the first wildcard on, with a backslash before each `%`, `_` and backslash
            that stands for itself; "" for nothing.
    """

    prefix: str
    rest: str

    @property
    def text(self) -> str:
        """The whole pattern, with backslashes as in `rest`."""
        return "".join(_escaped(char) for char in self.prefix) + self.rest

    @property
    def regex(self) -> str:
        r"""A regular expression of RE2's that is found in the text that matches, and in no other.

        Arrow's own `match_like` is of no use: of `%x%` and `%x` it takes x as it is written, with its backslashes.
        `%` at an end is left out, since a search is faster that way.
        """
        parts = [_regex(piece) for piece in _PIECE.finditer(self.text)]
        open_start, open_stop = parts[:1] == [_ANY], parts[-1:] == [_ANY]
        inner = "".join(parts[open_start : len(parts) - open_stop])
        start, stop = "" if open_start else r"\A", "" if open_stop else r"\z"
        return f"(?s){start}{inner}{stop}"

    @property
    def is_beginning(self) -> bool:
        """Whether it asks only for how text begins."""
        return self.rest != "" and not self.rest.strip("%")


def read_pattern(text: str, escape: str | None) -> Pattern:
    """Return the pattern written in `text`.

    Args:
        text: with wildcards.
        escape: one character; None or "" for none.

    Raises:
        PatternError: `escape` has several characters, or stands at the end; a backslash stands before a wildcard
            without ESCAPE; the pattern is too long.
    """
    if escape is not None and len(escape) > 1:
        raise PatternError(f"ESCAPE takes one character, not the {len(escape)} of {escape!r:.40}")
    if not escape and any(f"\\{wildcard}" in text for wildcard in _WILDCARDS):
        raise PatternError(
            f"LIKE {text!r:.40}: a backslash before % or _ means itself in some engines and not in others; say which "
            "with ESCAPE '\\', or with ESCAPE and another character"
        )
    prefix: list[str] = []
    rest: list[str] = []
    chars = iter(text)
    for char in chars:
        if char == escape:
            char = next(chars, "")  # noqa: PLW2901
            if not char:
                raise PatternError(
                    f"LIKE {text!r:.40} ends with its escape character, which needs one behind it"
                )
        elif char in _WILDCARDS:
            rest.append(char)
            continue
        if rest:
            rest.append(_escaped(char))
        else:
            prefix.append(char)
    found = Pattern(prefix="".join(prefix), rest="".join(rest))
    if not found.is_beginning and found.rest and len(text) > MOST_PATTERN_CHARACTERS:
        raise PatternError(
            f"a pattern of LIKE has at most {MOST_PATTERN_CHARACTERS:,} characters, this one {len(text):,}"
        )
    return found


def _regex(piece: re.Match[str]) -> str:
    if piece["any"]:
        return _ANY
    if piece["one"]:
        return "."
    char = piece["char"]
    return f"\\{char}" if char in _SPECIAL else str(char)


def _escaped(char: str) -> str:
    return f"\\{char}" if char in "%_\\" else char
