"""Read a SQL condition, or a list of assignments, as people write them.

sqlglot parses; this module accepts what it knows and refuses the rest by name and position. It goes by list over node
types *and* their arguments, since a parser for thirty dialects keeps much in arguments (NOT LIKE is LIKE with
`negate=True`, BETWEEN SYMMETRIC is BETWEEN with `symmetric=True`) that must not be dropped unseen.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn

import pyarrow.types as pat
from pyiceberg import expressions as ice
from pyiceberg.expressions import literals as ice_literals
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from tblctl.tableformat.errors import UnknownColumnError
from tblctl.tableformat.model.schema import Leaf, Schema
from tblctl.tableformat.model.types import is_any_string, type_to_text
from tblctl.tableformat.predicate import literals
from tblctl.tableformat.predicate.literals import LiteralError, Operand
from tblctl.tableformat.predicate.sql_structure import read_structure
from tblctl.tableformat.predicate.sql_text import SqlText, is_hex

_make: Any = ice  # the signatures that pydantic makes up for mypy hide the positional ones
_MICROS = 10**6
_LONG_DIGITS = 40

# every node type that is understood, with the arguments that may be set on it
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
    exp.Escape: "LIKE with ESCAPE",
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
_SUPPORTED = "supported are = <> < <= > >=, BETWEEN, IN, IS [NOT] NULL, LIKE 'x%', AND, OR, NOT and literals"
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
    return read_structure(reader, tokens, lambda part: _Predicate(reader, part, schema).read())


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
            value = _python_value(literals.temporal(operand, leaf))
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
            exp.Column: self._flag,
            exp.Dot: self._flag,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Is: self._is_null,
            exp.Like: self._like,
        }
        read = self._comparison if kind in _COMPARISONS else reads.get(kind)
        if read is None:
            self._refuse(node, f"a condition is expected, not {self._describe(node)}")
        return read(node)

    def _negated(self, node: exp.Expr) -> Any:
        """NOT BETWEEN, NOT IN and IS NOT NULL come as NOT around the rest; of these only BETWEEN keeps a Not."""
        child = self._condition(node.this)
        return ~child if type(node.this) in (exp.In, exp.Is) else _make.Not(child)

    def _flag(self, node: exp.Expr) -> Any:
        leaf = self._leaf(node)
        if not pat.is_boolean(leaf.type):
            self._refuse(
                node, f"column {leaf.name} of type {type_to_text(leaf.type)} is no condition; compare it"
            )
        return _make.EqualTo(leaf.name, literal=True)

    def _comparison(self, node: exp.Expr) -> Any:
        left, right = _unwrapped(node.this), _unwrapped(node.expression)
        if exp.Null in (type(left), type(right)):
            null = left if type(left) is exp.Null else right
            self._refuse(null, "a comparison with NULL is never true; write IS NULL or IS NOT NULL")
        plain, mirrored = _COMPARISONS[type(node)]
        if _is_column(left) and _is_column(right):
            self._refuse(right, "a column can be compared with a literal, not with another column")
        if _is_column(right):
            return self._predicate(mirrored, self._leaf(right), left)
        if _is_column(left):
            return self._predicate(plain, self._leaf(left), right)
        for side in (left, right):
            self._operand(side)  # names what is neither a column nor a literal
        return self._refuse(
            node, "a comparison needs a column on one side; for a constant write TRUE or FALSE"
        )

    def _between(self, node: exp.Expr) -> Any:
        leaf = self._column_of(node.this, "BETWEEN")
        low, high = (self._bound(node.args[name]) for name in ("low", "high"))
        return _make.And(
            self._predicate(ice.GreaterThanOrEqual, leaf, low),
            self._predicate(ice.LessThanOrEqual, leaf, high),
        )

    def _bound(self, node: exp.Expr) -> exp.Expr:
        node = _unwrapped(node)
        if type(node) is exp.Null:
            self._refuse(node, "BETWEEN with NULL is never true")
        return node

    def _in(self, node: exp.Expr) -> Any:
        leaf = self._column_of(node.this, "IN")
        items = [_unwrapped(item) for item in node.expressions]
        if not items:
            self._refuse(node, "IN needs at least one value")
        values = []
        for item in items:
            if type(item) is exp.Null:
                self._refuse(
                    item, "NULL in a list is never equal to anything; leave it out, or add OR ... IS NULL"
                )
            values.append(self._predicate(ice.EqualTo, leaf, item).literal)
        # a set of PyIceberg literals takes day 1 and microsecond 1 for the same, so days stand apart
        days = [value for value in values if isinstance(value, ice_literals.DateLiteral)]
        others = [value for value in values if not isinstance(value, ice_literals.DateLiteral)]
        return _make.Or(_make.In(leaf.name, days), _make.In(leaf.name, others))  # an empty one vanishes

    def _is_null(self, node: exp.Expr) -> Any:
        leaf = self._column_of(node.this, "IS NULL")
        if type(_unwrapped(node.expression)) is not exp.Null:
            self._refuse(node.expression, "only IS NULL and IS NOT NULL are supported")
        return _make.IsNull(leaf.name)

    def _like(self, node: exp.Expr) -> Any:
        leaf = self._column_of(node.this, "LIKE")
        right = _unwrapped(node.expression)
        if type(right) is not exp.Literal or not right.is_string:
            self._refuse(right, "LIKE needs a string such as 'x%'")
        pattern = right.this
        prefix = pattern.rstrip("%")
        if "%" in prefix or "_" in prefix or (prefix.endswith("\\") and prefix != pattern):
            self._refuse(
                right,
                f"LIKE {right.this!r:.40}: only a prefix, 'x%', or a string without wildcards can be matched",
            )
        kind = leaf.type.value_type if pat.is_dictionary(leaf.type) else leaf.type
        if not (is_any_string(kind) or pat.is_null(kind)):
            self._refuse(
                right,
                f"column {leaf.name} of type {type_to_text(leaf.type)} is no string, so LIKE does not apply",
            )
        if prefix == pattern:
            return (_make.NotEqualTo if node.args.get("negate") else _make.EqualTo)(leaf.name, pattern)
        return (_make.NotStartsWith if node.args.get("negate") else _make.StartsWith)(leaf.name, prefix)

    def _predicate(self, kind: Any, leaf: Leaf, node: exp.Expr) -> Any:
        """Return `leaf` compared with a literal, after checking that the two go together."""
        if _is_column(node):
            self._refuse(node, "a literal is expected here, not a column")
        operand = self._operand(node)
        try:
            if not pat.is_null(leaf.type):
                literals.place(operand, leaf)
            predicate = kind(leaf.name, _literal(operand, leaf))
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
            self._refuse(node, "a minus sign needs a number behind it")
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
            self._refuse(inner, "a cast is supported only of a string to DATE, TIMESTAMP or TIME")
        text = inner.this
        match target.this:
            case exp.DataType.Type.DATE:
                return literals.date(text)
            case exp.DataType.Type.TIMESTAMP | exp.DataType.Type.TIMESTAMPNTZ | exp.DataType.Type.DATETIME:
                return literals.timestamp(text)
            case exp.DataType.Type.TIMESTAMPTZ:
                return dataclasses.replace(literals.timestamp(text), kind="timestamp", zoned=True)
            case exp.DataType.Type.TIME:
                return literals.time(text)
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
            self._refuse(node, f"a column is expected, not {self._describe(node)}")
        name = ".".join(self._path(node))
        try:
            return self._schema.leaf(name)
        except UnknownColumnError as error:
            self._refuse(node, str(error), cause=error)

    def _path(self, node: exp.Expr) -> list[str]:
        """Return the steps of a.b.c; sqlglot takes the first four for catalog, db, table and column."""
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
        """Return the least start of anything in a node; what carries none lies where its parent does."""
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
    """Return starts of NULL, TRUE and FALSE by node identity: sqlglot gives these none, but keeps their order."""
    nodes = [node for node in tree.dfs() if type(node) in (exp.Null, exp.Boolean)]
    starts = [token.start for token in tokens if token.token_type in _KEYWORDS]
    return (
        {id(node): start for node, start in zip(nodes, starts, strict=True)}
        if len(nodes) == len(starts)
        else {}
    )


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while type(node) is exp.Paren:
        node = node.this
    return node


def _is_column(node: exp.Expr) -> bool:
    return type(node) in (exp.Column, exp.Dot)


def _literal(operand: Operand, leaf: Leaf) -> ice_literals.Literal[Any]:
    """Return a PyIceberg literal that `resolve` takes for `operand` again.

    Moments become typed literals where microseconds hold them, and stay text otherwise. Integers become LongLiteral
    even where they exceed 64 bits, which only binding to an Iceberg schema would mind.
    """
    moment = literals.temporal(operand, leaf)
    value: Any = moment.value
    if moment.kind == "number":
        integral = value == value.to_integral_value() if abs(value.adjusted()) < _LONG_DIGITS else False
        return ice_literals.LongLiteral(int(value)) if integral else ice_literals.DecimalLiteral(value)
    if isinstance(value, Fraction):
        micros = value * _MICROS
        if moment.kind == "date":
            return ice_literals.DateLiteral(int(value) // 86_400)
        if micros.denominator != 1:
            return ice_literals.StringLiteral(moment.text)
        kind = ice_literals.TimestampLiteral if moment.kind == "timestamp" else ice_literals.TimeLiteral
        return kind(int(micros))
    return ice_literals.literal(value)


def _python_value(moment: Operand) -> Any:
    """Return a literal as the plain value that `parse_assignments` promises."""
    value: Any = moment.value
    if moment.kind == "number":
        return int(value) if value == value.to_integral_value() else value
    if not isinstance(value, Fraction):
        return value
    micros = value * _MICROS
    if micros.denominator != 1:
        return moment.text
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if moment.zoned else None)
    try:
        instant = start + datetime.timedelta(microseconds=int(micros))
    except OverflowError:  # an offset took it out of the years 1 to 9999
        return moment.text
    if moment.kind == "timestamp":
        return instant
    return instant.date() if moment.kind == "date" else instant.time()
