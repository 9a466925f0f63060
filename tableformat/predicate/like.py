"""Patterns of LIKE: `%` stands for any characters, `_` for one, and what follows the ESCAPE character for itself.

SQL has no escape character unless ESCAPE names one. Others take a backslash for it (Spark, PostgreSQL, MySQL) or do not
(DuckDB, SQLite), so one before a wildcard is refused without ESCAPE: which rows are meant cannot be told. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_PATTERN_CHARACTERS = 4_000
"""Of a pattern that is more than a beginning: Arrow turns it into a regular expression, and refuses some of 60,000."""

_WILDCARDS = "%_"


class PatternError(ValueError):
    """A pattern is none, or it means different things elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A pattern.

    Attributes:
        prefix: what all text that it matches begins with.
        rest: what comes behind that, from the first wildcard on, as Arrow's `match_like` takes it; "" for nothing.
    """

    prefix: str
    rest: str

    @property
    def arrow(self) -> str:
        """The whole pattern, as Arrow's `match_like` takes it."""
        return "".join(_arrow(char) for char in self.prefix) + self.rest

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
            rest.append(_arrow(char))
        else:
            prefix.append(char)
    found = Pattern(prefix="".join(prefix), rest="".join(rest))
    if not found.is_beginning and found.rest and len(text) > MOST_PATTERN_CHARACTERS:
        raise PatternError(
            f"a pattern of LIKE has at most {MOST_PATTERN_CHARACTERS:,} characters, this one {len(text):,}"
        )
    return found


def _arrow(char: str) -> str:
    return f"\\{char}" if char in "%_\\" else char
