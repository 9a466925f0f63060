"""Keep of an engine's condition what a table can test: each part that is joined by AND, or none of it.

What is left out makes the condition weaker. A query is then taken to read more than it did, never less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.simplify import simplify

from tblctl.tableformat.errors import InvalidPredicateError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.predicate.as_sql import column_text

MOST_CHARACTERS = 100_000
"""Longer texts are not parsed."""

_CACHED = 4_096
"""So many conditions are remembered: parsing one takes a millisecond, and programs ask the same again and again."""

PARSER_ERRORS = (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError)
"""What sqlglot raises on some texts: its own errors, and those of a parser that meets what it does not expect."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A condition of this table, as SQL; empty for none."""

    where: str = ""
    columns: frozenset[str] = frozenset()


@dataclass(kw_only=True)
class Conditions:
    """Turns parts of conditions into those of one table, and counts what cannot be used.

    Attributes:
        schema: of the table.
        left_out: how many parts were left out, by reason.
    """

    schema: Schema
    left_out: Counter[str] = field(default_factory=Counter)
    _names: dict[str, str] = field(init=False, repr=False)
    _known: dict[str, frozenset[str] | None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._names = {leaf.name.lower(): leaf.name for leaf in self.schema.leaves}
        self._names |= {name.lower(): name for name in self.schema.names}

    def column(self, name: str) -> str | None:
        """Return the table's column of a name in any case; None if it has none."""
        return self._names.get(name.lower())

    def of_texts(self, parts: Iterable[str]) -> Kept:
        """Return the parts that can be used, joined; each is SQL that names columns as the table does."""
        kept: list[str] = []
        columns: set[str] = set()
        for text in parts:
            found = self._resolved(text)
            if found is not None:
                kept.append(text)
                columns |= found
        return Kept(where=" AND ".join(kept), columns=frozenset(columns))

    def of_expressions(self, parts: Iterable[exp.Expr]) -> Kept:
        """Return the parts that can be used, joined."""
        return self.of_texts(text for part in parts if (text := self._text(part)) is not None)

    def of_text(
        self,
        text: str,
        dialect: str | None = None,
        change: Callable[[exp.Expr], None] = lambda _part: None,
    ) -> Kept:
        """Return what can be used of a condition of one table in an engine's words; `change` edits each part first."""
        try:
            found = sqlglot.parse_one(f"SELECT 1 WHERE {text}", read=dialect)
            where = found.find(exp.Where)
        except PARSER_ERRORS:
            where = None
        if where is None or len(text) > MOST_CHARACTERS:
            self.left_out["a condition cannot be parsed"] += 1
            return Kept()
        parts = list(flat(where.this))
        for part in parts:
            change(part)
        return self.of_expressions(parts)

    def _resolved(self, text: str) -> frozenset[str] | None:
        """Return the columns of a condition; None if the table cannot test it."""
        from tblctl.tableformat.predicate.nodes import node_of, tests_of
        from tblctl.tableformat.predicate.sql.conditions import parse_where

        if text not in self._known:
            if len(self._known) >= _CACHED:
                self._known.clear()
            try:
                node = node_of(parse_where(text, self.schema), self.schema)
                self._known[text] = frozenset(test.leaf.name for test in tests_of(node))
            except InvalidPredicateError:
                self._known[text] = None
        found = self._known[text]
        if found is None:
            self.left_out["a condition has a form or a literal that tblctl does not test"] += 1
        return found

    def _text(self, part: exp.Expr) -> str | None:
        """Return a part in the table's own words; None if it has other columns, or none."""
        try:
            plain = simplify(part.copy())
            columns = list(plain.find_all(exp.Column))
            if not columns or plain.find(exp.Query):
                self.left_out["a condition names no column, or has a subquery"] += 1
                return None
            for column in columns:
                name = self.column(column.name)
                if name is None:
                    self.left_out["a condition is on a column that the table does not have"] += 1
                    return None
                path = [exp.to_identifier(item, quoted=True) for item in name.split(".")]
                column.replace(exp.Column(this=path[-1], table=path[-2] if len(path) > 1 else None))
                if column is plain:
                    return column_text(name)
            text: str = plain.sql()
        except PARSER_ERRORS:
            self.left_out["a condition cannot be parsed"] += 1
            return None
        return f"({text})"


def flat(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts that AND joins."""
    todo = [condition]
    while todo:
        part = todo.pop()
        if isinstance(part, exp.Paren) and not isinstance(part.this, str | None):
            todo.append(part.this)
        elif isinstance(part, exp.And):
            todo += (part.expression, part.this)
        else:
            yield part
