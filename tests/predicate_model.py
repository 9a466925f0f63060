"""A model of conditions: values of every column type, and what each predicate says of one value."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
from pyiceberg import expressions as ice
from pyiceberg.expressions.literals import DateLiteral, TimeLiteral, TimestampLiteral

from tblctl.tableformat.model.schema.schema import Schema

NAN = math.nan


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Values of a column type, as raw Python values and as the numbers, strings or bytes that the model compares."""

    type: pa.DataType
    values: tuple  # (raw, model) pairs, raw as `build` takes them
    literals: tuple  # (literal, model) pairs
    prefixes: tuple = ()

    def build(self, raws, data_type):
        if pa.types.is_temporal(data_type):
            width = pa.int32() if data_type.bit_width == 32 else pa.int64()
            return pa.array(raws, width).cast(data_type)
        if pa.types.is_float16(data_type):
            return pa.array(raws, pa.float32()).cast(data_type)
        if pa.types.is_dictionary(data_type):
            return pa.array(raws, data_type.value_type).dictionary_encode().cast(data_type)
        return pa.array(raws, data_type)


def same(*values):
    return tuple((value, value) for value in values)


def fractions(*values):
    return tuple((value, Fraction(value)) for value in values)


def integers(low, high):
    beyond = fractions(low - 1, high + 1, Decimal("-1.5"), Decimal("0.5"), Decimal("1e30"), Decimal("-1e30"))
    return {
        "values": same(low, low + 1, 0, 1, 2, 5, high - 1, high),
        "literals": fractions(low, 0, 1, 2, high, Decimal("1.0"), 0.5, 2.0)
        + beyond
        + ((math.inf, math.inf),),
    }


def floats(width, largest):
    tenth = {16: float(np.float16(0.1)), 32: float(np.float32(0.1)), 64: 0.1}[width]
    return {
        "values": same(-math.inf, -largest, -1.0, -0.0, 0.0, tenth, 1.5, largest, math.inf, NAN),
        "literals": (
            *same(0, 0.0, -0.0, 1.5, math.inf, -math.inf, largest, -largest),
            *((Decimal("0.1"), tenth), (0.1, tenth)),
            *fractions(Decimal("1e400"), Decimal("-1e400")),
        ),
    }


def decimals(scale, precision):
    unit = Decimal(1).scaleb(-scale)
    top = Decimal((0, (9,) * precision, -scale))
    raws = (top.copy_negate(), Decimal(-1), Decimal(0), unit, Decimal("1.5"), top)
    off = (Decimal("0.0005"), Decimal("-0.0005"), Decimal("1e80"), Decimal("-1e80"), 1, 1.5)
    return {
        "values": tuple((raw, Fraction(raw)) for raw in raws),
        "literals": (
            *fractions(*raws, *off),
            *(("1.50", Fraction(3, 2)), ("-0.0001", Fraction(-1, 10_000))),
        ),
    }


def instants(per_second):
    day = 86_400 * per_second
    whole = Fraction(1, 10**6)
    return {
        "values": tuple(
            (raw, Fraction(raw, per_second)) for raw in (-day, -1, 0, 1, day // 2, day, 9131 * day)
        ),
        "literals": (
            (DateLiteral(0), Fraction(0)),
            (DateLiteral(1), Fraction(86_400)),
            (DateLiteral(-(10**9)), Fraction(-(10**9) * 86_400)),
            (TimestampLiteral(1), whole),
            (TimestampLiteral(-1), -whole),
            (TimestampLiteral(43_200_000_000), Fraction(43_200)),
            (TimestampLiteral(2**62), 2**62 * whole),
            ("1970-01-02", Fraction(86_400)),
            ("1970-01-01 00:00:00.000000001", Fraction(1, 10**9)),
            ("1969-12-31T23:59:59.9", Fraction(-1, 10)),
            ("1995-01-01", Fraction(9131 * 86_400)),
        ),
    }


def clocks(per_second):
    last = 86_400 * per_second - 1
    return {
        "values": tuple((raw, Fraction(raw, per_second)) for raw in (0, 1, 3600 * per_second, last)),
        "literals": (
            (TimeLiteral(0), Fraction(0)),
            (TimeLiteral(1), Fraction(1, 10**6)),
            ("01:00", Fraction(3600)),
            ("23:59:59.9999999999", 86_400 - Fraction(1, 10**10)),
        ),
    }


TEXTS = ("", "a", "a\0", "ab", "abc", "b", "é", "\U0010ffff", "\U0010ffffz")
BYTES = (b"", b"\0", b"a", b"a\xff", b"a\xffz", b"b", b"\xff", b"\xff\xff\0")
texts = {
    "values": same(*TEXTS),
    "literals": same(*TEXTS, "aa"),
    "prefixes": ("", "a", "ab", "é", "\U0010ffff"),
}
raw_bytes = {
    "values": same(*BYTES),
    "literals": same(*BYTES, b"zz"),
    "prefixes": (b"", b"a", b"a\xff", b"\xff"),
}
PAIRS = (b"\0\0", b"\0\1", b"a\0", b"ab", b"\xff\xff")

KINDS = {
    "i8": Kind(type=pa.int8(), **integers(-128, 127)),
    "i64": Kind(type=pa.int64(), **integers(-(2**63), 2**63 - 1)),
    "u64": Kind(type=pa.uint64(), **integers(0, 2**64 - 1)),
    "f16": Kind(type=pa.float16(), **floats(16, 65504.0)),
    "f32": Kind(type=pa.float32(), **floats(32, float(np.finfo(np.float32).max))),
    "f64": Kind(type=pa.float64(), **floats(64, float(np.finfo(np.float64).max))),
    "dec32": Kind(type=pa.decimal32(5, 2), **decimals(2, 5)),
    "dec128": Kind(type=pa.decimal128(38, 3), **decimals(3, 38)),
    "dec256": Kind(type=pa.decimal256(60, 3), **decimals(3, 60)),
    "flag": Kind(type=pa.bool_(), values=same(False, True), literals=same(False, True)),
    "text": Kind(type=pa.string(), **texts),
    "large": Kind(type=pa.large_string(), **texts),
    "view": Kind(type=pa.string_view(), **texts),
    "bin": Kind(type=pa.binary(), **raw_bytes),
    "fixed": Kind(
        type=pa.binary(2),
        values=same(*PAIRS),
        literals=same(*PAIRS, *BYTES),
        prefixes=(b"", b"a", b"ab", b"abc"),
    ),
    "day": Kind(
        type=pa.date32(),
        values=tuple((raw, Fraction(raw * 86_400)) for raw in (-1, 0, 1, 9131)),
        literals=instants(1)["literals"],
    ),
    "day64": Kind(
        type=pa.date64(),
        values=tuple((raw * 86_400_000, Fraction(raw * 86_400)) for raw in (-1, 0, 1, 9131)),
        literals=instants(1)["literals"],
    ),
    "ts_s": Kind(type=pa.timestamp("s"), **instants(1)),
    "ts_us": Kind(type=pa.timestamp("us"), **instants(10**6)),
    "ts_ns": Kind(type=pa.timestamp("ns", "Europe/Berlin"), **instants(10**9)),
    "t32": Kind(type=pa.time32("ms"), **clocks(10**3)),
    "t64": Kind(type=pa.time64("ns"), **clocks(10**9)),
    "dict": Kind(type=pa.dictionary(pa.int8(), pa.string()), **texts),
    "dict_i": Kind(type=pa.dictionary(pa.int32(), pa.int64()), **integers(-(2**63), 2**63 - 1)),
    "nothing": Kind(type=pa.null(), values=(), literals=same(1, "x", True)),
    "in.side": Kind(type=pa.int32(), **integers(-(2**31), 2**31 - 1)),
}
SCHEMA = Schema.create(
    pa.schema(
        [(name, kind.type) for name, kind in KINDS.items() if "." not in name]
        + [("in", pa.struct([("side", pa.int32())])), ("many", pa.list_(pa.int8()))]
    )
)
ORDERED = (ice.LessThan, ice.LessThanOrEqual, ice.GreaterThan, ice.GreaterThanOrEqual)
COMPARE = {
    ice.LessThan: lambda x, y: x < y,
    ice.LessThanOrEqual: lambda x, y: x <= y,
    ice.GreaterThan: lambda x, y: x > y,
    ice.GreaterThanOrEqual: lambda x, y: x >= y,
    ice.EqualTo: lambda x, y: x == y,
    ice.NotEqualTo: lambda x, y: x != y,
}


@dataclass(frozen=True)
class Check:
    """A predicate and how the model answers it for one value that is not null."""

    expression: ice.BooleanExpression
    column: str
    answer: object
    of_null: object = None

    def evaluate(self, row):
        value = row[self.column]
        if value is None or self.column == "nothing":
            return self.of_null
        return self.answer(value)


@dataclass(frozen=True)
class Tree:
    expression: ice.BooleanExpression
    evaluate: object


def kleene_and(values):
    return False if False in values else None if None in values else True


def is_nan(value):
    return isinstance(value, float) and math.isnan(value)


def negate(value):
    return None if value is None else not value


def every_check(name):
    """Yield every operator with every literal, and lists of neighbouring literals."""
    kind = KINDS[name]
    for literal, model in kind.literals:
        for operator, compare in COMPARE.items():
            yield Check(operator(name, literal), name, lambda value, c=compare, m=model: c(value, m))
    count = len(kind.literals)
    groups = [kind.literals[i : i + n] for n in (2, 3, count) for i in range(count)]
    for group in groups:
        chosen = [
            pair for pair in group if isinstance(pair[0], DateLiteral) == isinstance(group[0][0], DateLiteral)
        ]
        literals, listed = [literal for literal, _ in chosen], [model for _, model in chosen]
        yield Check(ice.In(name, literals), name, lambda value, m=listed: any(value == each for each in m))
        yield Check(ice.NotIn(name, literals), name, lambda value, m=listed: all(value != each for each in m))
    for prefix in kind.prefixes:
        yield Check(ice.StartsWith(name, prefix), name, lambda value, p=prefix: value.startswith(p))
        yield Check(ice.NotStartsWith(name, prefix), name, lambda value, p=prefix: not value.startswith(p))
    yield Check(ice.IsNull(name), name, lambda _: False, of_null=True)
    yield Check(ice.NotNull(name), name, lambda _: True, of_null=False)
    yield Check(ice.IsNaN(name), name, is_nan)
    yield Check(ice.NotNaN(name), name, lambda value: not is_nan(value))


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows of one block as models, and what its statistics say."""

    rows: tuple
    min: object
    max: object
    nulls: int
    nans: int
    exact: bool


def every_block(kind):
    """Yield blocks of one or two values, with and without NaN and nulls; their statistics exact, wider, unknown."""
    order = sorted((pair for pair in kind.values if not is_nan(pair[1])), key=lambda pair: pair[1])
    spans = [(low, high) for i, low in enumerate(order) for high in order[i:]]
    floating = pa.types.is_floating(kind.type)
    for span in (None, *spans):
        for nulls in (0, 1):
            for nans in (0, 1) if floating else (0,):
                rows = tuple(model for _, model in span or ()) + (None,) * nulls + (NAN,) * nans
                low, high = (span[0][0], span[1][0]) if span else (None, None)
                if not rows:
                    continue
                block = Block(rows=rows, min=low, max=high, nulls=nulls, nans=nans, exact=True)
                yield block
                blurs = [
                    {"min": None},
                    {"max": None},
                    {"min": None, "max": None},
                    {"nulls": -1},
                    {"nans": -1},
                ]
                if span:
                    blurs += [{"min": order[0][0]}, {"max": order[-1][0]}]
                if floating:
                    blurs += [{"min": NAN}, {"max": NAN}, {"min": NAN, "max": NAN}, {"nulls": -1, "nans": -1}]
                yield from (replace(block, **blur, exact=False) for blur in blurs)
