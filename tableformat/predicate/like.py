"""Patterns of LIKE: `%` matches any characters, `_` one, and a character after the ESCAPE character matches itself.

SQL has no escape character unless ESCAPE names one. Some engines use the backslash (Spark, PostgreSQL, MySQL), others
do not (DuckDB, SQLite). So a backslash before a wildcard is refused without ESCAPE: its meaning is ambiguous.

Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_PATTERN_CHARACTERS = 4_000
"""Limit of a pattern that is more than a prefix. It becomes a regular expression, and Arrow refuses some of 60,000."""

_WILDCARDS = "%_"
_ANY = ".*"
_SPECIAL = frozenset(r"\.+*?()|[]{}^$")
"""The special characters of RE2's regular expressions."""

_PIECE = re.compile(r"(?P<any>%+)|(?P<one>_)|\\?(?P<char>.)", re.DOTALL)


class PatternError(ValueError):
    """A pattern is malformed, or engines disagree on its meaning."""


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A pattern.

    Attributes:
        prefix: the common beginning of all matching text.
        rest: the pattern after the prefix, from the first wildcard on, or "". A backslash stands before each `%`, `_`
            and backslash that matches itself.
    """

    prefix: str
    rest: str

    @property
    def text(self) -> str:
        """The whole pattern, with backslashes as in `rest`."""
        return "".join(_escaped(char) for char in self.prefix) + self.rest

    @property
    def regex(self) -> str:
        r"""A regular expression for RE2 that is found in exactly the matching texts.

        Arrow's own `match_like` does not work: in `%x%` and `%x` it takes x literally, including backslashes. `%` at an
        end is left out, since a search is faster that way.
        """
        parts = [_regex(piece) for piece in _PIECE.finditer(self.text)]
        open_start, open_stop = parts[:1] == [_ANY], parts[-1:] == [_ANY]
        inner = "".join(parts[open_start : len(parts) - open_stop])
        start, stop = "" if open_start else r"\A", "" if open_stop else r"\z"
        return f"(?s){start}{inner}{stop}"

    @property
    def is_beginning(self) -> bool:
        """Whether only the beginning of text is tested."""
        return self.rest != "" and not self.rest.strip("%")


def read_pattern(text: str, escape: str | None) -> Pattern:
    """Return the pattern written in `text`.

    Args:
        text: the pattern, with wildcards.
        escape: one character; None or "" for none.

    Raises:
        PatternError: `escape` has several characters, or ends the pattern; a backslash stands before a wildcard without
            ESCAPE; or the pattern is too long.
    """
    if escape is not None and len(escape) > 1:
        raise PatternError(f"ESCAPE takes one character, not the {len(escape)} of {escape!r:.40}")
    if not escape and any(f"\\{wildcard}" in text for wildcard in _WILDCARDS):
        raise PatternError(
            f"LIKE {text!r:.40}: some engines take a backslash before % or _ as an escape, others do not; "
            "write ESCAPE '\\', or ESCAPE with another character"
        )
    prefix: list[str] = []
    rest: list[str] = []
    chars = iter(text)
    for char in chars:
        if char == escape:
            char = next(chars, "")  # noqa: PLW2901
            if not char:
                raise PatternError(
                    f"LIKE {text!r:.40} ends with its escape character; a character must follow it"
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
