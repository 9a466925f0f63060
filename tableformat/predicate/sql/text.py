"""The text of a condition or statement: its tokens, its tree, and errors that point into it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

import sqlglot.errors
from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from tblctl.tableformat.errors import InputError, InvalidPredicateError
from tblctl.tableformat.predicate.sql.long_lists import LONG_LIST, MOST_VALUES, LongList, Shortened, shorten

_EXCERPT = 60  # characters of the text shown on each side of the caret
MOST_CHARACTERS = 250_000
"""Limit of a text without the values of long lists. Tokenizing that much takes up to half a second."""

MOST_TOKENS = 50_000
"""10,000 comparisons have 40,000; sqlglot takes 25 us for each."""

MOST_LISTED_CHARACTERS = 10_000_000
"""Limit of a text with the values of long lists."""

_TOKEN_ERROR = re.compile(
    r"""--[^\n]*+|/\*(?s:.*?)\*/|'[^']*+'|"[^"]*+"|`[^`]*+`|(?P<opened>/\*|['"`])|[^-/'"`]++|[-/]"""
)
"""Matches quotes and comments, each in one piece. `opened` is one that is never closed. Linear time: the first one that
is never closed is the first error, and ends the search."""


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: wide characters take two, marks on others none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


class _Tokenizer(Tokenizer):
    COMMANDS = set()  # noqa: RUF012 (sqlglot's own turn the rest of a text that begins with SHOW or CALL into a string)
    IDENTIFIERS = ['"', "`"]  # noqa: RUF012
    HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012
    KEYWORDS = {word: kind for word, kind in Tokenizer.KEYWORDS.items() if word != "UNKNOWN"}  # noqa: RUF012 (a name)


@dataclass(frozen=True, kw_only=True)
class SqlText:
    """The text being read, and errors that point into it."""

    text: str
    noun: str
    error: type[InputError] = InvalidPredicateError
    _asked: set[int] = field(default_factory=set, init=False, repr=False, compare=False)

    @cached_property
    def _shortened(self) -> Shortened:
        return shorten(self.text)

    @property
    def lists(self) -> Mapping[int, LongList]:
        """The lists whose values are not among the tokens, by the position of the number in their place."""
        return self._shortened.lists

    def long_list(self, position: int) -> LongList | None:
        """Return the long list whose first value is at a position, and mark it as read."""
        self._asked.add(position)
        return self.lists.get(position)

    def check_lists(self) -> None:
        """Refuse the text if a long list was not asked for: the digit in its place was then read as its only value."""
        for position in sorted(self.lists.keys() - self._asked):
            self.refuse(f"a list of {LONG_LIST:,} values or more is not read here", position)

    def tokens(self) -> list[Token]:
        """Return the text's tokens; the tokenizer's own errors name no position, so it is found here.

        Raises:
            error: a quote or comment is never closed, or the text is too long.
        """
        self._check_length()
        try:
            tokens = _Tokenizer().tokenize(self._shortened.text)
        except sqlglot.errors.TokenError as error:
            position, problem = _token_error(self.text)
            self.refuse(problem, position, cause=error)
        if len(tokens) > MOST_TOKENS:
            place = self._shortened.position(tokens[MOST_TOKENS].start)
            self._refuse_length(len(tokens), MOST_TOKENS, "words, values and signs", place)
        for token in (
            tokens if self.lists else ()
        ):  # the token in place of a list covers the list's whole text
            token.start, stop = (self._shortened.position(place) for place in (token.start, token.end + 1))
            token.end = stop - 1
        while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
            tokens.pop()
        for token in tokens:
            if token.token_type in (TokenType.UNKNOWN, TokenType.SEMICOLON):
                hint = "; one statement is expected" if token.text == ";" else ""
                self.refuse(f"unexpected {token.text!r}{hint}", token.start)
        return tokens

    def _check_length(self) -> None:
        try:
            self.text.encode()
        except UnicodeEncodeError as error:
            self.refuse("half a surrogate pair is not valid text", error.start, cause=error)
        if len(self.text) > MOST_LISTED_CHARACTERS:
            self._refuse_length(len(self.text), MOST_LISTED_CHARACTERS, "characters", MOST_LISTED_CHARACTERS)
        short = self._shortened.text.strip()  # a condition of a file is padded with blanks up to its place
        if len(short) > MOST_CHARACTERS:
            what = f"characters, lists of {LONG_LIST:,} plain literals and more left out"
            place = self._shortened.position(self._shortened.text.index(short) + MOST_CHARACTERS)
            self._refuse_length(len(short), MOST_CHARACTERS, what, place)
        count = sum(len(item.values) for item in self.lists.values())
        if count > MOST_VALUES:
            self._refuse_length(count, MOST_VALUES, "values in long lists", max(self.lists))

    def _refuse_length(self, count: int, most: int, what: str, position: int) -> NoReturn:
        self.refuse(f"it has {count:,} {what}; at most {most:,} are read", position)

    def refuse(self, problem: str, position: int | None, *, cause: Exception | None = None) -> NoReturn:
        """Raise the error with the column number and a caret under the place."""
        if position is None:
            msg = f"cannot read the {self.noun}: {problem}"
            raise self.error(msg) from cause
        start = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        first, last = (
            max(start, position - _EXCERPT),
            min(end if end >= 0 else len(self.text), position + _EXCERPT),
        )
        excerpt = "".join(char if char.isprintable() else " " for char in self.text[first:last])
        line = self.text.count("\n", 0, start) + 1
        where = (
            f"column {position - start + 1}" if line == 1 else f"line {line}, column {position - start + 1}"
        )
        caret = " " * _columns(self.text[first:position]) + "^"
        msg = f"cannot read the {self.noun} at {where}: {problem}\n  {excerpt}\n  {caret}"
        raise self.error(msg, position=position) from cause

    def parse(self, tokens: Sequence[Token]) -> exp.Expr:
        """Return the one expression of `tokens`."""
        try:
            found = Parser().parse_into(exp.Condition, list(tokens), self.text)
        except sqlglot.errors.ParseError as error:
            self._refuse_syntax(error, tokens)
        except RecursionError:
            found = None
        if found is None:  # not in the except clause: the traceback of a thousand frames would be the context
            self.refuse("this nests too deeply; write it with fewer parentheses and signs", tokens[0].start)
        if len(found) != 1 or found[0] is None:
            self.refuse("this is not understood", tokens[0].start)
        return found[0]

    def _refuse_syntax(self, error: sqlglot.errors.ParseError, tokens: Sequence[Token]) -> NoReturn:
        details = error.errors[0] if error.errors else {}
        place = (details.get("line"), details.get("col"))
        token = next((token for token in tokens if (token.line, token.col) == place), tokens[-1])
        found = self.text[token.start : token.end + 1]
        what = str(details.get("description", ""))
        if what.startswith("Required keyword"):
            problem = f"something is missing near {found!r:.40}"
        elif what.startswith("Expecting"):
            problem = f"{what[10:]!r} is missing near {found!r:.40}"
        else:
            problem = f"unexpected {found!r:.40}"
        self.refuse(problem, token.start, cause=error)

    def split_at_commas(self, tokens: Sequence[Token]) -> Iterator[list[Token]]:
        """Yield the tokens between commas outside of parentheses."""
        part: list[Token] = []
        depth, last = 0, tokens[0]
        for token in tokens:
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            last = token
            if token.token_type is TokenType.COMMA and depth == 0:
                if not part:
                    self.refuse("an assignment is missing before the comma", token.start)
                yield part
                part = []
            else:
                part.append(token)
        if not part:
            self.refuse("an assignment is missing after the comma", last.start)
        yield part


def _token_error(text: str) -> tuple[int, str]:
    """Return where and why tokenizing fails: an unclosed quote or comment, or a malformed hexadecimal string."""
    for piece in _TOKEN_ERROR.finditer(text):
        start, found = piece.start(), piece[0]
        if piece["opened"]:
            return start, f"{found} is never closed"
        if found[0] == "'" and text[start - 1 : start] in ("x", "X") and not is_hex(found[1:-1]):
            return start - 1, "a binary literal X'..' needs pairs of hexadecimal digits"
    return 0, "it cannot be split into words"


def is_hex(text: str) -> bool:
    """Return whether `text` consists of pairs of hexadecimal digits."""
    return len(text) % 2 == 0 and all(char in "0123456789abcdefABCDEF" for char in text)
