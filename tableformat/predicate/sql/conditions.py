"""Read a SQL condition, or a list of assignments, as people write them.

sqlglot parses. This module accepts what it knows, and refuses the rest by name and position. It has a list of allowed
node types *and* arguments: a parser for thirty dialects keeps much in arguments (NOT LIKE is LIKE with `negate=True`,
BETWEEN SYMMETRIC is BETWEEN with `symmetric=True`), and these must not be ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NoReturn

import pyarrow.types as pat
from pyiceberg import expressions as ice
from pyiceberg.expressions import literals as ice_literals
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from tblctl.tableformat.errors import UnknownColumnError
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import is_any_string, type_to_text
from tblctl.tableformat.predicate import literals
from tblctl.tableformat.predicate.expressions import Resolved
from tblctl.tableformat.predicate.leaf_tests import listed_test, pattern_test
from tblctl.tableformat.predicate.like import PatternError, read_pattern
from tblctl.tableformat.predicate.literals import LiteralError, Operand
from tblctl.tableformat.predicate.nodes import Constant, Truth
from tblctl.tableformat.predicate.resolve import resolve
from tblctl.tableformat.predicate.sql.literals import (
    listed_carriers,
    listed_operand,
    literal_of,
    python_value,
    typed_operand,
)
from tblctl.tableformat.predicate.sql.long_lists import LongList
from tblctl.tableformat.predicate.sql.structure import read_structure
from tblctl.tableformat.predicate.sql.text import SqlText, is_hex

_make: Any = ice  # the signatures that pydantic makes up for mypy hide the positional ones
_MOST_ROW_VALUES = 50
_MOST_ROWS = 1_000
"""Limit for a list of rows. A row counts as one comparison for each value."""

_SHOWN_VALUES = 5

UNKNOWN = Resolved(Constant(value=None))
"""The condition that is NULL for every row."""


# every supported node type, with the arguments that it may have
_ARGUMENTS: dict[type[exp.Expr], frozenset[str]] = {
    kind: frozenset(arguments.split())
    for kind, arguments in (
        (exp.Not, "this"),
        (exp.Paren, "this"),
        (exp.EQ, "this expression"),
        (exp.NEQ, "this expression"),
        (exp.LT, "this expression"),
        (exp.LTE, "this expression"),
        (exp.GT, "this expression"),
        (exp.GTE, "this expression"),
        (exp.Between, "this low high"),
        (exp.In, "this expressions"),
        (exp.Is, "this expression"),
        (exp.Like, "this expression negate"),
        (exp.Escape, "this expression"),
        (exp.Tuple, "expressions"),
        (exp.Column, "this table db catalog"),
        (exp.Dot, "this expression"),
        (exp.Identifier, "this quoted"),
        (exp.Literal, "this is_string"),
        (exp.HexString, "this"),
        (exp.Neg, "this"),
        (exp.Null, ""),
        (exp.Boolean, "this"),
        (exp.Cast, "this to"),
        (exp.DataType, "this"),
    )
}
_COMPARISONS: dict[type[exp.Expr], tuple[Any, Any]] = {  # as written, and with the column on the right
    exp.EQ: (ice.EqualTo, ice.EqualTo),
    exp.NEQ: (ice.NotEqualTo, ice.NotEqualTo),
    exp.LT: (ice.LessThan, ice.GreaterThan),
    exp.LTE: (ice.LessThanOrEqual, ice.GreaterThanOrEqual),
    exp.GT: (ice.GreaterThan, ice.LessThan),
    exp.GTE: (ice.GreaterThanOrEqual, ice.LessThanOrEqual),
}
_NAMES: dict[type[exp.Expr], str] = {
    exp.ILike: "ILIKE",
    exp.Escape: "ESCAPE",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM (also written <=>)",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.DPipe: "|| (joining strings)",
    exp.Add: "arithmetic (+)",
    exp.Sub: "arithmetic (-)",
    exp.Mul: "arithmetic (*)",
    exp.Div: "arithmetic (/)",
    exp.Mod: "arithmetic (%)",
    exp.Concat: "two strings in a row",
    exp.Bracket: "access by [ ]",
    exp.Array: "a list in [ ]",
    exp.Tuple: "a list of values in ( )",
    exp.Star: "*",
    exp.Placeholder: "a parameter",
    exp.Parameter: "a parameter",
    exp.National: "N'...' strings",
    exp.Select: "a subquery",
    exp.Subquery: "a subquery",
    exp.RegexpLike: "a regular expression",
    exp.Interval: "INTERVAL",
    exp.AtTimeZone: "AT TIME ZONE",
}
_SUPPORTED = (
    "supported are = <> < <= > >=, BETWEEN, IN, LIKE, IS [NOT] NULL, TRUE, FALSE or UNKNOWN, "
    "AND, OR, NOT and literals"
)
_KEYWORDS = {TokenType.NULL, TokenType.TRUE, TokenType.FALSE}


def parse_where(text: str, schema: Schema) -> ice.BooleanExpression:
    """Return the condition `text` as a PyIceberg expression over the columns of `schema`, checked against their types.

    Raises:
        InvalidPredicateError: a syntax error, something that is not supported, an unknown column, or a literal that
            cannot be compared with its column; `details["position"]` is the 0-based offset.
    """
    reader = SqlText(text=text, noun="condition")
    tokens = reader.tokens()
    if not tokens:
        reader.refuse("it is empty; write TRUE for all rows", 0)
    found = read_structure(
        reader,
        tokens,
        lambda part: _Predicate(reader, part, schema).read(),
        lambda child, value: Resolved(Truth(child=resolve(child, schema), value=value)),
    )
    reader.check_lists()
    return found


def parse_assignments(text: str, schema: Schema) -> dict[str, Any]:
    """Return `a = 1, b = 'x', c = NULL` as Python values by dotted column name.

    A value is None, bool, int, Decimal, str, bytes, date, datetime, time; a timestamp or time finer than microseconds
    stays text. All are taken by `literals.column_value`.

    Raises:
        InvalidPredicateError: as `parse_where`; also a column given twice, or a value that the column cannot hold.
    """
    reader = SqlText(text=text, noun="assignment")
    tokens = reader.tokens()
    if not tokens:
        reader.refuse("it is empty; write column = literal", 0)
    values: dict[str, Any] = {}
    for part in reader.split_at_commas(tokens):
        position, name, value = _Predicate(reader, part, schema).read_assignment()
        if name in values:
            reader.refuse(f"column {name} is assigned twice", position)
        values[name] = value
    reader.check_lists()
    return values


class _Predicate:
    """Reads one predicate, or one assignment."""

    def __init__(self, reader: SqlText, tokens: Sequence[Token], schema: Schema) -> None:
        self._reader, self._schema = reader, schema
        self._tree = reader.parse(tokens)
        self._keywords = _keyword_positions(self._tree, tokens)
        self._first = tokens[0].start

    def read(self) -> ice.BooleanExpression:
        """Return the predicate as an expression."""
        expression: ice.BooleanExpression = self._condition(self._tree)
        return expression

    def read_assignment(self) -> tuple[int, str, Any]:
        """Return position, column name and value of `column = literal`."""
        tree = self._tree
        if type(tree) is not exp.EQ:
            self._refuse(tree, "an assignment is written column = literal")
        self._check(tree)
        leaf, position = self._leaf(tree.this), self._position(tree.this)
        right = _unwrapped(tree.expression)
        if type(right) is exp.Null:
            return position, leaf.name, self._writable(leaf, None, right)
        if _is_column(right):
            self._refuse(right, f"only literals can be assigned, {right.sql():.40} is a column")
        operand = self._operand(right)
        try:
            value = python_value(literals.temporal(operand, leaf))
        except LiteralError as error:
            self._refuse(right, str(error), cause=error)
        return position, leaf.name, self._writable(leaf, value, right)

    def _writable(self, leaf: Leaf, value: Any, node: exp.Expr) -> Any:
        try:
            literals.column_value(leaf, value)
        except LiteralError as error:
            self._refuse(node, str(error), cause=error)
        return value

    def _condition(self, node: exp.Expr) -> Any:
        node = _unwrapped(node)
        kind = type(node)
        if kind not in _ARGUMENTS:
            self._refuse_construct(node)
        self._check(node)
        reads: dict[type[exp.Expr], Callable[[Any], Any]] = {
            exp.Not: self._negated,
            exp.Boolean: lambda node: ice.AlwaysTrue() if node.this else ice.AlwaysFalse(),
            exp.Null: lambda _: UNKNOWN,
            exp.Column: self._flag,
            exp.Dot: self._flag,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Is: self._is_null,
            exp.Like: self._like,
            exp.Escape: self._escaped,
        }
        read = self._comparison if kind in _COMPARISONS else reads.get(kind)
        if read is None:
            self._refuse(node, f"expected a condition, not {self._describe(node)}")
        return read(node)

    def _negated(self, node: exp.Expr) -> Any:
        """Return the negation. NOT BETWEEN, NOT IN and IS NOT NULL come this way; only BETWEEN keeps Not."""
        child = self._condition(node.this)
        return ~child if type(node.this) in (exp.In, exp.Is, exp.Like) else _make.Not(child)

    def _flag(self, node: exp.Expr) -> Any:
        leaf = self._leaf(node)
        if not pat.is_boolean(leaf.type):
            self._refuse(
                node, f"column {leaf.name} of type {type_to_text(leaf.type)} is not a condition; compare it"
            )
        return _make.EqualTo(leaf.name, literal=True)

    def _comparison(self, node: exp.Expr) -> Any:
        return self._compared(type(node), node.this, node.expression)

    def _compared(self, kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> Any:
        """Return a comparison of two columns, literals, NULLs or rows."""
        left, right = _unwrapped(left), _unwrapped(right)
        if exp.Tuple in (type(left), type(right)):
            return self._rows_compared(kind, left, right)
        plain, mirrored = _COMPARISONS[kind]
        if exp.Null in (type(left), type(right)):
            for side in (left, right):
                self._check_operand(side)
            return UNKNOWN
        if _is_column(left) and _is_column(right):
            self._refuse(right, "a column can be compared with a literal, not with another column")
        if _is_column(right):
            return self._predicate(mirrored, self._leaf(right), left)
        if _is_column(left):
            return self._predicate(plain, self._leaf(left), right)
        for side in (left, right):
            self._operand(side)  # names what is neither a column nor a literal
        return self._refuse(
            left, "a comparison needs a column on one side; for a constant write TRUE or FALSE"
        )

    def _check_operand(self, node: exp.Expr) -> None:
        """Refuse anything but a known column, a literal or NULL."""
        if _is_column(node):
            self._leaf(node)
        elif type(node) is not exp.Null:
            self._operand(node)

    def _rows_compared(self, kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> Any:
        """Return `(a, b) < (1, 2)` as SQL defines it: `a < 1 OR (a = 1 AND b < 2)`; other operators accordingly."""
        pairs = list(zip(*self._row_pair(left, right), strict=True))
        if kind is exp.EQ:
            return _joined(_make.And, [self._compared(exp.EQ, *pair) for pair in pairs])
        if kind is exp.NEQ:
            return _joined(_make.Or, [self._compared(exp.NEQ, *pair) for pair in pairs])
        strict = exp.LT if kind is exp.LTE else exp.GT if kind is exp.GTE else kind
        found = self._compared(kind, *pairs[-1])
        for pair in reversed(pairs[:-1]):
            equal_so_far = _make.And(self._compared(exp.EQ, *pair), found)
            found = _make.Or(self._compared(strict, *pair), equal_so_far)
        return found

    def _row_pair(self, left: exp.Expr, right: exp.Expr) -> tuple[list[exp.Expr], list[exp.Expr]]:
        """Return the values of two rows of one length."""
        rows = []
        for node in (left, right):
            if type(node) is not exp.Tuple:
                self._refuse(node, "a row of values in ( ) can only be compared with another row")
            self._check(node)
            rows.append([_unwrapped(item) for item in node.expressions])
            for item in rows[-1]:
                if type(item) is exp.Tuple:
                    self._refuse(item, "a row inside a row is not supported")
        if len(rows[0]) != len(rows[1]):
            self._refuse(
                right, f"a row of {len(rows[0])} values cannot be compared with one of {len(rows[1])}"
            )
        if len(rows[0]) > _MOST_ROW_VALUES:
            self._refuse(left, f"a row has at most {_MOST_ROW_VALUES} values, this one {len(rows[0])}")
        return rows[0], rows[1]

    def _between(self, node: exp.Expr) -> Any:
        value = _unwrapped(node.this)
        if not (_is_column(value) or type(value) in (exp.Tuple, exp.Null)):
            self._column_of(value, "BETWEEN")
        bounds = (exp.GTE, node.args["low"]), (exp.LTE, node.args["high"])
        return _make.And(*(self._compared(kind, value, bound) for kind, bound in bounds))

    def _in(self, node: exp.Expr) -> Any:
        items = [_unwrapped(item) for item in node.expressions]
        if not items:
            self._refuse(node, "IN needs at least one value")
        left = _unwrapped(node.this)
        if type(left) is exp.Tuple:
            if len(items) > _MOST_ROWS:
                self._refuse(items[_MOST_ROWS], f"IN takes at most {_MOST_ROWS:,} rows, not {len(items):,}")
            return _joined(_make.Or, [self._compared(exp.EQ, left, item) for item in items])
        long = self._reader.long_list(self._position(items[0]))
        if type(left) is exp.Null:
            for item in items:
                self._check_operand(item)
            return UNKNOWN
        leaf = self._column_of(left, "IN")
        if long is not None:
            return self._in_long(leaf, long)
        values = [
            self._predicate(ice.EqualTo, leaf, item).literal for item in items if type(item) is not exp.Null
        ]
        # in a set of PyIceberg literals day 1 equals microsecond 1, so days have a set of their own
        days = [value for value in values if isinstance(value, ice_literals.DateLiteral)]
        others = [value for value in values if not isinstance(value, ice_literals.DateLiteral)]
        listed = _make.Or(_make.In(leaf.name, days), _make.In(leaf.name, others))  # an empty one vanishes
        return listed if len(values) == len(items) else _make.Or(listed, UNKNOWN)

    def _in_long(self, leaf: Leaf, long: LongList) -> Any:
        """Return the condition that the column has one of the values of a long list."""
        try:
            carriers = listed_carriers(long.values, leaf)
        except LiteralError as error:
            self._refuse_listed(leaf, long, error)
        texts = [value.number or f"'{value.text}'" for value in long.values[:_SHOWN_VALUES]]
        return Resolved(listed_test(leaf, carriers, texts, len(long.values), negated=False))

    def _refuse_listed(self, leaf: Leaf, long: LongList, error: LiteralError) -> NoReturn:
        """Refuse the first value that cannot be read or compared with the column."""
        position = long.start
        for place, value in zip(long.positions(self._reader.text), long.values, strict=True):
            position = place
            try:
                literals.place(listed_operand(value), leaf)
            except LiteralError:
                break
        self._reader.refuse(str(error), position, cause=error)

    def _is_null(self, node: exp.Expr) -> Any:
        leaf = self._column_of(node.this, "IS NULL")
        if type(_unwrapped(node.expression)) is not exp.Null:
            self._refuse(node.expression, "IS is followed by [NOT] NULL, TRUE, FALSE or UNKNOWN")
        return _make.IsNull(leaf.name)

    def _escaped(self, node: exp.Expr) -> Any:
        if type(node.this) is not exp.Like:
            self._refuse_construct(node)
        self._check(node.this)
        return self._like(node.this, _unwrapped(node.expression))

    def _like(self, node: exp.Expr, escape: exp.Expr | None = None) -> Any:
        left, right = _unwrapped(node.this), _unwrapped(node.expression)
        if type(left) is not exp.Null:
            self._check_like_column(self._column_of(left, "LIKE"), right)
        for text in (right, escape):
            if text is not None and type(text) is not exp.Null and not _is_string(text):
                self._refuse(text, "LIKE needs a string such as 'x%', and ESCAPE a string such as '!'")
        if any(type(part) is exp.Null for part in (left, right, escape)):
            return UNKNOWN
        leaf, negated = self._leaf(left), bool(node.args.get("negate"))
        try:
            pattern = read_pattern(right.this, None if escape is None else escape.this)
        except PatternError as error:
            self._refuse(right, str(error), cause=error)
        if not pattern.rest:
            return (_make.NotEqualTo if negated else _make.EqualTo)(leaf.name, pattern.prefix)
        if pattern.is_beginning:
            return (_make.NotStartsWith if negated else _make.StartsWith)(leaf.name, pattern.prefix)
        return Resolved(pattern_test(leaf, pattern, negated=negated))

    def _check_like_column(self, leaf: Leaf, pattern: exp.Expr) -> None:
        kind = leaf.type.value_type if pat.is_dictionary(leaf.type) else leaf.type
        if not (is_any_string(kind) or pat.is_null(kind)):
            self._refuse(
                pattern,
                f"column {leaf.name} of type {type_to_text(leaf.type)} is not a string, so LIKE does not apply",
            )

    def _predicate(self, kind: Any, leaf: Leaf, node: exp.Expr) -> Any:
        """Return `leaf` compared with a literal, after checking that they can be compared."""
        if _is_column(node):
            self._refuse(node, "expected a literal, not a column")
        operand = self._operand(node)
        try:
            if not pat.is_null(leaf.type):
                literals.place(operand, leaf)
            predicate = kind(leaf.name, literal_of(operand, leaf))
        except LiteralError as error:
            self._refuse(node, str(error), cause=error)
        return predicate

    def _operand(self, node: exp.Expr) -> Operand:
        """Return a literal, signs included."""
        negative, inner = False, _unwrapped(node)
        while type(inner) is exp.Neg:
            self._check(inner)
            negative, inner = not negative, _unwrapped(inner.this)
        if type(inner) in _ARGUMENTS:
            self._check(inner)
        try:
            operand = self._plain_operand(inner)
        except LiteralError as error:
            self._refuse(inner, str(error), cause=error)
        if not negative:
            return operand
        if not isinstance(operand.value, Decimal):
            self._refuse(node, "a number must follow a minus sign")
        return Operand(kind="number", value=operand.value.copy_negate(), text=f"-{operand.text}")

    def _plain_operand(self, node: exp.Expr) -> Operand:
        match node:
            case exp.Literal():
                if node.is_string:
                    return literals.from_python(node.this)
                return literals.number(node.this)
            case exp.Boolean():
                return literals.from_python(bool(node.this))
            case exp.HexString():
                return self._hex(node)
            case exp.Cast() if type(node) is exp.Cast:
                return self._typed(node)
        return self._refuse_construct(node)

    def _hex(self, node: exp.Expr) -> Operand:
        position = self._position(node)
        if self._reader.text[position] not in "xX":  # knowing X'..', the tokenizer takes 0x10 as well
            self._refuse(node, "hexadecimal numbers are not supported; a binary literal is X'00ff'")
        if not is_hex(node.this):
            self._refuse(node, "a binary literal X'..' needs pairs of hexadecimal digits")
        return literals.from_python(bytes.fromhex(node.this))

    def _typed(self, node: exp.Expr) -> Operand:
        """Return DATE '...', TIMESTAMP '...' or TIME '...'."""
        target, inner = node.args["to"], _unwrapped(node.this)
        self._check(target)
        if type(inner) is not exp.Literal or not inner.is_string:
            self._refuse(inner, "only casts of a string to DATE, TIMESTAMP or TIME are supported")
        text = inner.this
        match target.this:
            case exp.DataType.Type.DATE:
                return typed_operand("DATE", text)
            case exp.DataType.Type.TIMESTAMP | exp.DataType.Type.TIMESTAMPNTZ | exp.DataType.Type.DATETIME:
                return typed_operand("TIMESTAMP", text)
            case exp.DataType.Type.TIMESTAMPTZ:
                return typed_operand("TIMESTAMPTZ", text)
            case exp.DataType.Type.TIME:
                return typed_operand("TIME", text)
        return self._refuse(
            inner, f"a literal of type {target.sql()} is not supported; write DATE, TIMESTAMP or TIME '...'"
        )

    def _column_of(self, node: exp.Expr, construct: str) -> Leaf:
        inner = _unwrapped(node)
        if not _is_column(inner):
            self._refuse(inner, f"{construct} needs a column on its left")
        return self._leaf(inner)

    def _leaf(self, node: exp.Expr) -> Leaf:
        node = _unwrapped(node)
        if not _is_column(node):
            self._refuse(node, f"expected a column, not {self._describe(node)}")
        name = ".".join(self._path(node))
        try:
            return self._schema.leaf(name)
        except UnknownColumnError as error:
            self._refuse(node, str(error), cause=error)

    def _path(self, node: exp.Expr) -> list[str]:
        """Return the steps of a.b.c. sqlglot reads the first four as catalog, db, table and column."""
        tail: list[exp.Expr] = []
        while type(node) is exp.Dot:
            self._check(node)
            tail.append(node.expression)
            node = node.this
        if type(node) is not exp.Column:
            self._refuse_construct(node)
        self._check(node)
        steps = [node.args.get(part) for part in ("catalog", "db", "table", "this")]
        names = []
        for step in [*(step for step in steps if step is not None), *reversed(tail)]:
            if type(step) is not exp.Identifier:
                self._refuse_construct(step)
            self._check(step)
            names.append(str(step.this))
        return names

    def _check(self, node: exp.Expr) -> None:
        """Refuse a node with any argument set that is not on its list."""
        allowed = _ARGUMENTS[type(node)]
        extra = sorted(name for name, value in node.args.items() if value and name not in allowed)
        if extra:
            self._refuse(node, f"{self._describe(node)} with {', '.join(extra)} is not supported")

    def _refuse_construct(self, node: exp.Expr) -> NoReturn:
        self._refuse(node, f"{self._describe(node)} is not supported here; {_SUPPORTED}")

    def _describe(self, node: exp.Expr) -> str:
        kind = type(node)
        if kind in _NAMES:
            return _NAMES[kind]
        if isinstance(node, exp.Anonymous):
            return f"the function {node.name}"
        if isinstance(node, exp.Func) and not isinstance(node, exp.Connector | exp.Binary):
            return f"the function {node.sql_name()}"
        if isinstance(node, exp.Literal | exp.HexString):
            return "a literal"
        return kind.__name__.upper()

    def _refuse(self, node: exp.Expr, problem: str, *, cause: Exception | None = None) -> NoReturn:
        self._reader.refuse(problem, self._position(node), cause=cause)

    def _position(self, node: exp.Expr) -> int:
        """Return the least start of anything in a node. A node without a position has that of its parent."""
        place: exp.Expr | None = node
        while place is not None:
            starts: list[int | None] = [
                part.meta.get("start", self._keywords.get(id(part))) for part in place.walk()
            ]
            known = [start for start in starts if start is not None]
            if known:
                return min(known)
            place = place.parent
        return self._first


def _keyword_positions(tree: exp.Expr, tokens: Sequence[Token]) -> dict[int, int]:
    """Return starts of NULL, TRUE and FALSE by node identity. sqlglot gives them no position, but keeps their order."""
    nodes = [node for node in tree.dfs() if type(node) in (exp.Null, exp.Boolean)]
    starts = [token.start for token in tokens if token.token_type in _KEYWORDS]
    return (
        {id(node): start for node, start in zip(nodes, starts, strict=True)}
        if len(nodes) == len(starts)
        else {}
    )


def _joined(combine: Any, parts: Sequence[Any]) -> Any:
    return combine(*parts) if len(parts) > 1 else parts[0]


def _is_string(node: exp.Expr) -> bool:
    return type(node) is exp.Literal and bool(node.is_string)


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while type(node) is exp.Paren:
        node = node.this
    return node


def _is_column(node: exp.Expr) -> bool:
    return type(node) in (exp.Column, exp.Dot)
