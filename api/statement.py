"""The statement with which SQL engines ask for a recluster (RFC "recluster table"), read and carried out.

    {ALTER | OPTIMIZE} TABLE [IF EXISTS] name RECLUSTER [FINAL] [WHERE condition] [;]

OPTIMIZE is FINAL, as the RFC's first form had it.
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
"""What a location may consist of to need no quotes."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement.

    Attributes:
        parts: of the table's name, without quotes: the identifiers of its path, or one location.
        is_location: the name is a string literal, or has slashes and no quotes: a location whatever names mean.
        if_exists: no table of that name is no error.
        final: until the table is well clustered, not one round only.
        where: the condition's text, verbatim; None for all blocks.
        where_position: its 0-based offset in the statement; None without one.
    """

    parts: tuple[str, ...]
    is_location: bool
    if_exists: bool
    final: bool
    where: str | None
    where_position: int | None

    @property
    def name(self) -> str:
        """The path as text; a part that holds a dot or a quote is quoted, so that no two paths are the same text."""
        return ".".join(_quoted(part) if "." in part or '"' in part else part for part in self.parts)

    @property
    def location(self) -> str:
        """Where the table is if the name is its location."""
        return ".".join(self.parts)


def parse_statement(text: str) -> Statement:
    """Return what a statement says. The condition is not read: only the table knows its columns.

    Raises:
        InvalidStatementError: it is no such statement; `details["position"]` is the 0-based offset of what is wrong.
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
        resolve: returns the location of a name such as `lake.lineitem` (see `Statement.name`), None where there is no
            such table. Without it the name is the location. One in single quotes, or with slashes, always is.
        storage_options: what the fsspec filesystem takes.
        options: as of `Table.recluster`: policy, options, engine, spark, on_conflict, commit_every,
            progress.

    Returns:
        What was done; None if the statement says IF EXISTS and there is no table.

    Raises:
        InvalidStatementError: see `parse_statement`.
        InvalidPredicateError: of the condition; `details["position"]` counts from the statement's start.
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
    except LookupError:  # a mapping's own method may be what resolves
        location = None
    if location is None:
        raise TableNotFoundError(f"there is no table named {statement.name}")
    return location


def _quoted(part: str) -> str:
    escaped = part.replace('"', '""')
    return f'"{escaped}"'


@dataclass(kw_only=True)
class _Words:
    """The tokens of a statement, taken from the left."""

    reader: SqlText
    tokens: list[Token]
    taken: int = field(default=0)

    def take(self, *words: str) -> bool:
        """Take these words if they are next, in any case; else nothing."""
        following = self.tokens[self.taken : self.taken + len(words)]
        if [self._word(token).upper() for token in following] != list(words):
            return False
        self.taken += len(words)
        return True

    def need(self, word: str, *, or_else: str | None = None) -> None:
        """Take a word that must be next."""
        if not self.take(word):
            self._refuse(or_else or word)

    @property
    def apart(self) -> bool:
        """Whether there is a blank, or the end, before the next token."""
        following = self.tokens[self.taken : self.taken + 1]
        return not following or following[0].start > self.tokens[self.taken - 1].end + 1

    def name(self) -> tuple[tuple[str, ...], bool]:
        """Take the parts of the table's name; also tell whether it is a location."""
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
        """Take what is left: nothing, or WHERE and a condition. Return its text and offset."""
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
        """Take tokens that nothing parts, if they make up a location without quotes, which has slashes; "" if not."""
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
        """Return a token as it is written: keywords are names too, quoted ones are no keywords."""
        return self.reader.text[token.start : token.end + 1]

    def _refuse(self, expected: str) -> NoReturn:
        if self.taken < len(self.tokens):
            token = self.tokens[self.taken]
            self.reader.refuse(f"expected {expected}, not {self._word(token)!r:.80}", token.start)
        end = self.tokens[-1].end + 1 if self.tokens else 0
        self.reader.refuse(f"expected {expected}, and it ends", end)
