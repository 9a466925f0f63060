"""Parse and execute the SQL statement for a recluster (RFC "recluster table").

    {ALTER | OPTIMIZE} TABLE [IF EXISTS] name RECLUSTER [FINAL] [WHERE condition] [;]

OPTIMIZE implies FINAL, as in the RFC's first form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from tblctl.tableformat.errors import InvalidPredicateError, InvalidStatementError, TableNotFoundError
from tblctl.tableformat.predicate.sql.text import SqlText

if TYPE_CHECKING:
    from tblctl.results import Outcome

    Resolve = Callable[[str], str | None]


_LOCATION = re.compile(r"[\w./:~@%+=-]+")
"""A location that needs no quotes."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement.

    Attributes:
        parts: the parts of the table's name, without quotes: the identifiers of its path, or one location.
        is_location: the name is a location: a string literal, or text with slashes and without quotes.
        if_exists: a missing table is no error.
        final: whether to run rounds until the table is well clustered, not only one.
        where: the condition's text, verbatim; None for all blocks.
        where_position: 0-based offset of the condition in the statement; None without one.
    """

    parts: tuple[str, ...]
    is_location: bool
    if_exists: bool
    final: bool
    where: str | None
    where_position: int | None

    @property
    def name(self) -> str:
        """The path as text. Parts with a dot or a quote are quoted, so that different paths differ as text."""
        return ".".join(_quoted(part) if "." in part or '"' in part else part for part in self.parts)

    @property
    def location(self) -> str:
        """The table's location, if the name is one."""
        return ".".join(self.parts)


def parse_statement(text: str) -> Statement:
    """Parse a statement. The condition stays text, since only the table knows its columns.

    Raises:
        InvalidStatementError: the text is not such a statement. `details["position"]` is the 0-based offset of the
            error.
    """
    reader = SqlText(text=text, noun="statement", error=InvalidStatementError)
    words = _Words(reader=reader, tokens=reader.tokens())
    optimize = words.take("OPTIMIZE")
    if not optimize:
        words.need("ALTER", or_else="ALTER TABLE ... RECLUSTER or OPTIMIZE TABLE ... RECLUSTER")
    words.need("TABLE")
    if_exists = words.take("IF", "EXISTS")
    parts, is_location = words.name()
    words.need(
        "RECLUSTER", or_else=None if words.apart else "RECLUSTER, or single quotes around the whole name"
    )
    final = words.take("FINAL") or optimize
    where, position = words.condition()
    return Statement(
        parts=parts,
        is_location=is_location,
        if_exists=if_exists,
        final=final,
        where=where,
        where_position=position,
    )


def execute(
    text: str,
    *,
    resolve: Resolve | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Outcome | None:
    """Carry out a user's `ALTER TABLE ... RECLUSTER` or `OPTIMIZE TABLE ... RECLUSTER`.

    Args:
        text: the statement.
        resolve: returns the location of a table's name such as `lake.lineitem` (see `Statement.name`), or None if there
            is no such table. Without `resolve` the name is the location. A name in single quotes, or with slashes,
            always is a location.
        storage_options: options of the fsspec filesystem.
        options: arguments of `Table.recluster`: policy, options, engine, spark, on_conflict, commit_every, progress.

    Returns:
        The outcome; None if the statement says IF EXISTS and there is no table.

    Raises:
        InvalidStatementError: see `parse_statement`.
        InvalidPredicateError: the condition is wrong. `details["position"]` counts from the statement's start.
        TableNotFoundError: there is no table of that name.
    """
    from tblctl.tables import open as open_table

    statement = parse_statement(text)
    try:
        table = open_table(_location(statement, resolve), storage_options=storage_options)
    except TableNotFoundError:
        if statement.if_exists:
            return None
        raise
    try:
        return table.recluster(where=statement.where, final=statement.final, **options)
    except InvalidPredicateError as error:
        position = error.details.get("position")
        if position is None or statement.where_position is None:
            raise
        raise InvalidPredicateError(error.message, position=statement.where_position + position) from error


def _location(statement: Statement, resolve: Resolve | None) -> str:
    if resolve is None or statement.is_location:
        return statement.location
    try:
        location = resolve(statement.name)
    except LookupError:  # `resolve` may be the `__getitem__` of a mapping
        location = None
    if location is None:
        raise TableNotFoundError(f"there is no table named {statement.name}")
    return location


def _quoted(part: str) -> str:
    escaped = part.replace('"', '""')
    return f'"{escaped}"'


@dataclass(kw_only=True)
class _Words:
    """The tokens of a statement, consumed from the left."""

    reader: SqlText
    tokens: list[Token]
    taken: int = field(default=0)

    def take(self, *words: str) -> bool:
        """Take these words if they come next, in upper or lower case; return whether they do."""
        following = self.tokens[self.taken : self.taken + len(words)]
        if [self._word(token).upper() for token in following] != list(words):
            return False
        self.taken += len(words)
        return True

    def need(self, word: str, *, or_else: str | None = None) -> None:
        """Take a word that must come next."""
        if not self.take(word):
            self._refuse(or_else or word)

    @property
    def apart(self) -> bool:
        """Whether the next token follows a blank, or there is none."""
        following = self.tokens[self.taken : self.taken + 1]
        return not following or following[0].start > self.tokens[self.taken - 1].end + 1

    def name(self) -> tuple[tuple[str, ...], bool]:
        """Take the table's name; return its parts, and whether it is a location."""
        if location := self._bare_location():
            return (location,), True
        if self._next_is(TokenType.STRING) and self.tokens[self.taken].text:
            self.taken += 1
            return (self.tokens[self.taken - 1].text,), True
        parts = [self._identifier()]
        while self._next_is(TokenType.DOT):
            self.taken += 1
            parts.append(self._identifier())
        return tuple(parts), False

    def condition(self) -> tuple[str | None, int | None]:
        """Take the rest: nothing, or WHERE and a condition. Return the condition's text and offset."""
        if self.taken == len(self.tokens):
            return None, None
        if not self.take("WHERE"):
            before = self.tokens[self.taken - 1].text.upper()
            self._refuse("WHERE or the end" if before == "FINAL" else "FINAL, WHERE or the end")
        if self.taken == len(self.tokens):
            self._refuse("a condition")
        start = self.tokens[self.taken].start
        return self.reader.text[start : self.tokens[-1].end + 1], start

    def _bare_location(self) -> str:
        """Take adjacent tokens that form an unquoted location, which has slashes. Return "" if they do not."""
        end = self.taken
        while end < len(self.tokens) and not self._is_quoted(self.tokens[end]):
            if end > self.taken and self.tokens[end].start != self.tokens[end - 1].end + 1:
                break
            end += 1
        if end == self.taken:
            return ""
        text = self.reader.text[self.tokens[self.taken].start : self.tokens[end - 1].end + 1]
        if "/" not in text or not _LOCATION.fullmatch(text):
            return ""
        self.taken = end
        return text

    def _is_quoted(self, token: Token) -> bool:
        return token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)

    def _identifier(self) -> str:
        token = self.tokens[self.taken] if self.taken < len(self.tokens) else None
        if token is None or not (
            (token.token_type is TokenType.IDENTIFIER and token.text) or self._word(token).isidentifier()
        ):
            self._refuse(
                "a table's name such as a.b, or a location such as lake/lineitem (in single quotes: 'my lake/lineitem')"
            )
        self.taken += 1
        return token.text

    def _next_is(self, kind: TokenType) -> bool:
        return self.taken < len(self.tokens) and self.tokens[self.taken].token_type is kind

    def _word(self, token: Token) -> str:
        """Return a token as written, with its quotes. So a keyword can be a name, and quoted text is not a keyword."""
        return self.reader.text[token.start : token.end + 1]

    def _refuse(self, expected: str) -> NoReturn:
        if self.taken < len(self.tokens):
            token = self.tokens[self.taken]
            self.reader.refuse(f"expected {expected}, not {self._word(token)!r:.80}", token.start)
        end = self.tokens[-1].end + 1 if self.tokens else 0
        self.reader.refuse(f"expected {expected}, but the text ends", end)
