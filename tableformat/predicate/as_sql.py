r"""Write a resolved condition as SQL text, for logs of queries. Pure.

Where a test has no SQL form, as a pattern that is no prefix, the text is of a weaker condition: it holds for all rows
for which the condition holds. NaN is left out of it: `x > 5 OR x IS NAN` becomes `x > 5`.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.predicate.nodes import AllOf, AnyOf, Constant, Negation, Node, Operator, Test, Truth

MOST_LISTED = 1_000
"""A longer IN list is written as the range of its values: weaker, and short."""

_COMPARISONS = frozenset(
    {Operator.LESS, Operator.LESS_EQUAL, Operator.GREATER, Operator.GREATER_EQUAL, Operator.EQUAL}
)


class _NoTextError(Exception):
    """Nothing can be said of a part."""


def as_sql(node: Node) -> str:
    """Return the SQL text of a condition, or of a weaker one; empty if there is none but TRUE."""
    try:
        return _text(node, exact=False)
    except _NoTextError:
        return ""


def _text(node: Node, *, exact: bool) -> str:
    match node:
        case Test():
            return _test(node, exact=exact)
        case Constant(value=value):
            if value is None and exact:
                raise _NoTextError
            return str(bool(value)).upper()
        case AllOf(children=children):
            return _all(children, exact=exact)
        case AnyOf(children=children):
            kept = [child for child in children if not _is_nan(child)] or children
            return "(" + " OR ".join(_text(child, exact=exact) for child in kept) + ")"
        case Negation(child=child):
            return f"NOT ({_text(child, exact=True)})"
        case Truth(child=child, value=value):
            word = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[value]
            return f"({_text(child, exact=True)}) IS {word}"


def _all(children: tuple[Node, ...], *, exact: bool) -> str:
    parts = []
    for child in children:
        try:
            parts.append(_text(child, exact=exact))
        except _NoTextError:
            if exact:
                raise
    if not parts:
        raise _NoTextError
    return parts[0] if len(parts) == 1 else "(" + " AND ".join(parts) + ")"


def _is_nan(node: Node) -> bool:
    return isinstance(node, Test) and node.operator is Operator.NAN


def _test(test: Test, *, exact: bool) -> str:
    name = column_text(test.leaf.name)
    if test.operator is Operator.NULL:
        return f"{name} IS {'NOT ' if test.negated else ''}NULL"
    if test.operator in _COMPARISONS and test.value is not None:
        text = f"{name} {test.operator.value} {literal(test.value)}"
        return f"NOT ({text})" if test.negated else text
    if test.operator is Operator.IN and test.values is not None:
        return _listed(name, test, exact=exact)
    if test.operator is Operator.PREFIX and test.value is not None and pt.is_string(_plain(test)):
        return f"{name} {'NOT ' if test.negated else ''}LIKE {_prefix(test.value.as_py())}"
    if test.operator is Operator.PATTERN and test.value is not None and not (exact or test.negated):
        prefix = test.value.as_py()
        return f"{name} LIKE {_prefix(prefix)}" if prefix else f"{name} IS NOT NULL"
    raise _NoTextError


def _plain(test: Test) -> pa.DataType:
    kind = test.leaf.type.value_type if pt.is_dictionary(test.leaf.type) else test.leaf.type
    return pa.string() if pt.is_large_string(kind) or pt.is_string_view(kind) else kind


def _listed(name: str, test: Test, *, exact: bool) -> str:
    values = test.values
    assert values is not None
    if len(values) > MOST_LISTED:
        if exact or test.negated:
            raise _NoTextError
        return f"{name} BETWEEN {literal(values[0])} AND {literal(values[len(values) - 1])}"
    listed = ", ".join(literal(value) for value in values)
    return f"{name} {'NOT ' if test.negated else ''}IN ({listed})"


def _prefix(prefix: bytes) -> str:
    try:
        text = prefix.decode()
    except UnicodeDecodeError:
        raise _NoTextError from None
    escaped = re.sub(r"([\\%_])", r"\\\1", text)
    return f"{_quoted(escaped + '%')} ESCAPE '\\'" if escaped != text else _quoted(text + "%")


def column_text(name: str) -> str:
    """Return a column's name as SQL has it, quoted; fields of structs are parted by dots."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def literal(value: pa.Scalar) -> str:
    """Return a value as SQL text.

    Raises:
        _NoTextError: it has none.
    """
    kind = value.type
    if pt.is_timestamp(kind):
        return _timestamp(value)
    if pt.is_time(kind):
        return _quoted(_clock(int(value.value) * _NANOS[kind.unit]))
    found: Any = value.as_py()
    if isinstance(found, bool):
        return str(found).upper()
    if isinstance(found, datetime.date):
        return f"DATE '{found.isoformat()}'"
    if isinstance(found, str):
        return _quoted(found)
    if isinstance(found, bytes):
        return f"X'{found.hex()}'"
    if isinstance(found, float):
        return repr(found) if found == found and abs(found) != float("inf") else _none()  # noqa: PLR0124 (NaN)
    return str(found)


_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def _timestamp(value: pa.Scalar) -> str:
    nanos = int(value.value) * _NANOS[value.type.unit]
    days, rest = divmod(nanos, 86_400 * 10**9)
    try:
        day = datetime.date.fromordinal(datetime.date(1970, 1, 1).toordinal() + days)
    except (ValueError, OverflowError):
        raise _NoTextError from None
    return f"TIMESTAMP '{day.isoformat()} {_clock(rest)}{'Z' if value.type.tz else ''}'"


def _clock(nanos: int) -> str:
    seconds, fraction = divmod(nanos, 10**9)
    shown = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{shown}.{fraction:09d}".rstrip("0") if fraction else shown


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _none() -> str:
    raise _NoTextError
