"""The model of a table: its rows, columns and tags after each commit, as plain Python values.

Every row has an id that no other row of the history has, so that a row lost or doubled is seen. Values are kept by the
uid of their column, which stays when it is renamed. Names are never used twice in a history.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
"""Values by the uid of their column."""
Condition = tuple[str, str, Any]
"""Column, operator and value, such as ("k", ">=", 3), ("x", "is null", None) or ("id", "between", (3, 7))."""

OWN_COLUMNS = ("id", "k", "x", "s", "n")
SCHEMA = "id: int64 not null, k: int64, x: double, s: string, n: int32"


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of the table.

    Attributes:
        names: the name of each column, by its uid, in the order of the schema.
        rows: by id.
        tags: sequences by name.
        taken: the imported files that it has (`lake.File`).
    """

    names: Mapping[str, str] = field(default_factory=lambda: {name: name for name in OWN_COLUMNS})
    rows: Mapping[int, Row] = field(default_factory=dict)
    tags: Mapping[str, int] = field(default_factory=dict)
    taken: frozenset[tuple[str, int, int]] = frozenset()

    def with_rows(self, rows: Mapping[int, Row]) -> Version:
        return dataclasses.replace(self, rows=rows)

    def plus(self, rows: Mapping[int, Row]) -> Version:
        """Return the version with new rows; columns that they lack are null, those that it lacks are dropped."""
        fresh = {key: {uid: row.get(uid) for uid in self.names} for key, row in rows.items()}
        return self.with_rows({**self.rows, **fresh})

    def without(self, condition: Condition | None) -> Version:
        """Return the version without the rows that satisfy a condition; None for all."""
        left = {key: row for key, row in self.rows.items() if not matches(condition, row)}
        return self.with_rows(left)

    def updated(self, column: str, value: Any, condition: Condition | None) -> Version:
        changed = {
            key: {**row, column: value} if matches(condition, row) else row for key, row in self.rows.items()
        }
        return self.with_rows(changed)

    def listed(self, condition: Condition | None = None) -> list[tuple[Any, ...]]:
        """Return the rows that satisfy a condition as `normal` tuples in the order of the columns, by id."""
        found = (row for row in self.rows.values() if condition is None or matches(condition, row))
        return sorted(tuple(normal(row[uid]) for uid in self.names) for row in found)


def normal(value: Any) -> Any:
    """Return a value that is equal only to the same one: 0.0 and -0.0 differ, NaN is NaN; all have one order."""
    if isinstance(value, float):
        return ("float", repr(value))
    return ("none", "") if value is None else (type(value).__name__, value)


_COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches(condition: Condition | None, row: Row) -> bool:
    """Return whether a row satisfies a condition. A comparison with null is not true."""
    if condition is None:
        return True
    column, compare, wanted = condition
    value = row[column]
    if compare == "is null":
        return value is None
    if value is None:
        return False
    if compare == "between":
        return bool(wanted[0] <= value <= wanted[1])
    return bool(_COMPARES[compare](value, wanted))


def sql(condition: Condition | None) -> str | None:
    """Return a condition as tblctl takes it."""
    if condition is None:
        return None
    column, compare, wanted = condition
    if compare == "is null":
        return f"{column} is null"
    if compare == "between":
        return f"{column} between {wanted[0]} and {wanted[1]}"
    return f"{column} {compare} {literal(wanted)}"


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return "'" + value + "'" if isinstance(value, str) else repr(value)
