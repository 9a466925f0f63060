"""What a SELECT asks of one table: its conditions on it, and the columns that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from tblctl.workload.conjuncts import MOST_CHARACTERS, PARSER_ERRORS, Conditions, Kept, flat

NO_QUERY = "it is no query"
NOT_PARSED = "it cannot be parsed"
TOO_LONG = f"its text has more than {MOST_CHARACTERS:,} characters"
OTHER_TABLE = "it is of another table"


@dataclass(frozen=True, kw_only=True)
class TableName:
    """What queries call the table: `t`, `db.t` or `catalog.db.t`. The longer of two names may begin with more parts."""

    parts: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> TableName:
        """Return the name written in a text, with dots."""
        return cls(parts=tuple(part.strip('"`').lower() for part in text.split(".")))

    def is_in(self, text: str) -> bool:
        """Return whether a text may name the table."""
        return self.parts[-1] in text.lower()

    def matches(self, parts: list[str]) -> bool:
        """Return whether the parts of a name, the last one last, are a name of the table."""
        pairs = zip(reversed(self.parts), reversed(parts), strict=False)
        return bool(parts) and all(mine == theirs.lower() for mine, theirs in pairs)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What one occurrence of the table in a query asks of it. No columns: all."""

    where: str = ""
    columns: tuple[str, ...] = ()


def asked_of(text: str, table: TableName, conditions: Conditions, dialect: str | None) -> list[Asked] | str:
    """Return what a statement asks of a table, once for each time that it names it; a reason if it asks nothing."""
    if len(text) > MOST_CHARACTERS:
        return TOO_LONG
    if not table.is_in(text):
        return OTHER_TABLE
    try:
        statement = sqlglot.parse_one(text, read=dialect)
        query = _query_of(statement)
        if query is None:
            return NO_QUERY
        found = [
            _asked(scope, alias, conditions)
            for scope in traverse_scope(query)
            for alias, source in scope.sources.items()
            if isinstance(source, exp.Table) and table.matches([part.name for part in source.parts])
        ]
    except PARSER_ERRORS:
        return NOT_PARSED
    return found or OTHER_TABLE


def _query_of(statement: exp.Expr) -> exp.Query | None:
    """Return the query of a statement: of INSERT and CREATE TABLE .. AS the one that they read."""
    if isinstance(statement, exp.Query):
        return statement
    inner = statement.args.get("expression") if isinstance(statement, exp.Insert | exp.Create) else None
    return inner if isinstance(inner, exp.Query) else None


def _asked(scope: Scope, alias: str, conditions: Conditions) -> Asked:
    parts = [part for part in _conjuncts(scope.expression) if _is_of(part, alias, scope, conditions)]
    kept: Kept = conditions.of_expressions(parts)
    return Asked(where=kept.where, columns=_columns(scope, alias, conditions))


def _conjuncts(query: exp.Expr) -> Iterator[exp.Expr]:
    """Yield what must hold for each row of a SELECT: of WHERE, and of the ON of inner joins.

    Beside an outer join, IS NULL may hold for a row that the table does not have.
    """
    where = query.args.get("where")
    joins = query.args.get("joins") or ()
    has_outer = any(join.side for join in joins)
    if where is not None:
        yield from (part for part in flat(where.this) if not (has_outer and part.find(exp.Is)))
    if has_outer:
        return
    for join in joins:
        if join.args.get("on") is not None:
            yield from flat(join.args["on"])


def _is_of(part: exp.Expr, alias: str, scope: Scope, conditions: Conditions) -> bool:
    """Return whether a condition names columns of one source alone."""
    columns = list(part.find_all(exp.Column))
    if not columns:
        return False
    return all(_belongs(column, alias, scope, conditions) for column in columns)


def _belongs(column: exp.Column, alias: str, scope: Scope, conditions: Conditions) -> bool:
    qualifier = column.table
    if qualifier:
        return qualifier.lower() == alias.lower()
    return len(scope.sources) == 1 or conditions.column(column.name) is not None


def _columns(scope: Scope, alias: str, conditions: Conditions) -> tuple[str, ...]:
    """Return the columns of the table that a SELECT names; empty if it reads all, or some are unknown."""
    chosen = scope.expression.args.get("expressions") or ()
    stars = (item for item in chosen if item.is_star)
    if any(not isinstance(item, exp.Column) or item.table.lower() in ("", alias.lower()) for item in stars):
        return ()
    names = (
        conditions.column(column.name)
        for column in scope.columns
        if _belongs(column, alias, scope, conditions)
    )
    return tuple(dict.fromkeys(name for name in names if name is not None))
