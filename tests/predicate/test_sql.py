"""Conditions parsed from SQL text, and how the rest is refused."""

from __future__ import annotations

import datetime
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases
from pyiceberg import expressions as ice
from pyiceberg.expressions.literals import DateLiteral, TimeLiteral, TimestampLiteral

from tblctl.tableformat.errors import InvalidPredicateError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.predicate.literals import LiteralError, column_value
from tblctl.tableformat.predicate.rows import filter_table, needed_columns
from tblctl.tableformat.predicate.sql import text as sql_text
from tblctl.tableformat.predicate.sql.conditions import parse_assignments, parse_where

SCHEMA = Schema.create(
    pa.schema(
        [
            ("a", pa.int64()),
            ("b", pa.bool_()),
            ("s", pa.string()),
            ("d", pa.date32()),
            ("ts", pa.timestamp("us")),
            ("tz", pa.timestamp("us", "UTC")),
            ("ns", pa.timestamp("ns")),
            ("f", pa.float64()),
            ("dec", pa.decimal128(12, 2)),
            ("wide", pa.decimal256(70, 0)),
            ("u", pa.uint64()),
            ("bin", pa.binary()),
            ("t", pa.time64("us")),
            ('odd "name', pa.int32()),
            ("l", pa.list_(pa.int32())),
            ("n", pa.null()),
            ("dict", pa.dictionary(pa.int32(), pa.string())),
            (
                "st",
                pa.struct([("x", pa.int8()), ("c d", pa.struct([("e", pa.struct([("f", pa.int32())]))]))]),
            ),
            ("date", pa.int32()),
            pa.field("req", pa.int32(), nullable=False),
        ]
    )
)
TRUE, FALSE = ice.AlwaysTrue(), ice.AlwaysFalse()
ONE, FLAG = ice.EqualTo("a", 1), ice.EqualTo("b", True)
RANGE = ice.And(ice.GreaterThanOrEqual("a", 1), ice.LessThanOrEqual("a", 2))

READ = {
    "a = 1": ONE,
    "a == 1;": ONE,
    "1 = a": ONE,
    "((a)) = (1)": ONE,
    "a = 1 -- comment": ONE,
    "a = +1": ONE,
    "a IN (1)": ONE,
    "a <> 1": ice.NotEqualTo("a", 1),
    "a != - 1": ice.NotEqualTo("a", -1),
    "1 < a": ice.GreaterThan("a", 1),
    "1 <= a": ice.GreaterThanOrEqual("a", 1),
    "1 > a": ice.LessThan("a", 1),
    "-5 >= a": ice.LessThanOrEqual("a", -5),
    "a BETWEEN 1 AND 2": RANGE,
    "a NOT BETWEEN 1 AND 2": ice.Not(RANGE),
    "a BETWEEN 1 AND 2 AND b": ice.And(RANGE, FLAG),
    "a IN (1, 2, (3))": ice.In("a", {1, 2, 3}),
    "a NOT IN (1, 2)": ice.NotIn("a", {1, 2}),
    "d IN ('1970-01-02', TIMESTAMP '1970-01-01 00:00:00.000001')": ice.Or(
        ice.EqualTo("d", DateLiteral(1)), ice.EqualTo("d", TimestampLiteral(1))
    ),
    "NOT a IN (1, 2)": ice.Not(ice.In("a", {1, 2})),
    "a IS NULL": ice.IsNull("a"),
    "a IS NOT NULL": ice.NotNull("a"),
    "l IS NULL": ice.IsNull("l"),
    "s LIKE 'x%'": ice.StartsWith("s", "x"),
    "s LIKE 'x%%'": ice.StartsWith("s", "x"),
    "s NOT LIKE 'x%'": ice.NotStartsWith("s", "x"),
    "s LIKE '%'": ice.StartsWith("s", ""),
    "s LIKE 'x'": ice.EqualTo("s", "x"),
    "s NOT LIKE 'x'": ice.NotEqualTo("s", "x"),
    "dict LIKE 'x%'": ice.StartsWith("dict", "x"),
    "s = 'it''s'": ice.EqualTo("s", "it's"),
    "s = ''": ice.EqualTo("s", ""),
    "b": FLAG,
    "NOT b": ice.Not(FLAG),
    "b = FALSE": ice.EqualTo("b", False),
    "NOT NOT b": FLAG,
    "TRUE": TRUE,
    "false and a = 1": FALSE,
    "NOT a > 5": ice.Not(ice.GreaterThan("a", 5)),
    "a = 1 AND b OR a = 2": ice.Or(ice.And(ONE, FLAG), ice.EqualTo("a", 2)),
    "a = 1 AND (b OR a = 2)": ice.And(ONE, ice.Or(FLAG, ice.EqualTo("a", 2))),
    "NOT (a = 1 OR b) AND b": ice.And(ice.Not(ice.Or(ONE, FLAG)), FLAG),
    "(a) = 1 AND (b)": ice.And(ONE, FLAG),
    "d = DATE '1995-01-01'": ice.EqualTo("d", DateLiteral(9131)),
    "d = '1995-01-01'": ice.EqualTo("d", DateLiteral(9131)),
    "'1995-01-01' = d": ice.EqualTo("d", DateLiteral(9131)),
    "ts < '1970-01-01 00:00:01.5'": ice.LessThan("ts", TimestampLiteral(1_500_000)),
    "ts < TIMESTAMP '1970-01-01T00:01'": ice.LessThan("ts", TimestampLiteral(60_000_000)),
    "tz < '1970-01-01 02:00:00+02:00'": ice.LessThan("tz", TimestampLiteral(0)),
    "tz < TIMESTAMPTZ '1970-01-01 00:00:00'": ice.LessThan("tz", TimestampLiteral(0)),
    "tz < TIMESTAMP WITH TIME ZONE '1970-01-01 00:00:00Z'": ice.LessThan("tz", TimestampLiteral(0)),
    "ns = '1970-01-01 00:00:00.123456789'": ice.EqualTo("ns", "1970-01-01 00:00:00.123456789"),
    "t >= TIME '01:00:00'": ice.GreaterThanOrEqual("t", TimeLiteral(3_600_000_000)),
    "t >= '01:00'": ice.GreaterThanOrEqual("t", TimeLiteral(3_600_000_000)),
    "f > 1e-3": ice.GreaterThan("f", Decimal("0.001")),
    "f > -.5": ice.GreaterThan("f", Decimal("-0.5")),
    "f = 5.": ice.EqualTo("f", 5),
    "dec = 1.005": ice.EqualTo("dec", Decimal("1.005")),
    "u = 18446744073709551615": ice.EqualTo("u", 2**64 - 1),
    f"wide = {'9' * 70}": ice.EqualTo("wide", Decimal("9" * 70)),
    "a = 1e999999999": ice.EqualTo("a", Decimal("1e500")),
    "bin = X'00ff'": ice.EqualTo("bin", b"\x00\xff"),
    "bin = x''": ice.EqualTo("bin", b""),
    '"odd ""name" = 1': ice.EqualTo('odd "name', 1),
    "st.x = 1": ice.EqualTo("st.x", 1),
    'st."c d".e.f = 1': ice.EqualTo("st.c d.e.f", 1),
    "date = 1": ice.EqualTo("date", 1),
    "n = 'x'": ice.EqualTo("n", "x"),
}


@pytest.mark.parametrize("text", READ)
def test_condition_is_read_as(text):
    assert repr(parse_where(text, SCHEMA)) == repr(READ[text])


REFUSED = {  # text: position of the trouble, words of the message
    "": (0, "empty"),
    " -- nothing": (0, "empty"),
    "a = 1 b": (6, "unexpected 'b'"),
    "a = 0x10": (4, "hexadecimal"),
    "a = 1_000": (5, "unexpected '_000'"),
    "a = 1; b": (5, "unexpected ';'"),
    "a = 1e": (4, "not a number"),
    "a = 1)": (5, "without a '('"),
    "b AND (a = 1": (6, "never closed"),
    "()": (0, "missing"),
    "a = 1 AND": (6, "missing after 'AND'"),
    "OR b": (0, "missing before 'OR'"),
    "b AND OR b": (6, "missing before 'OR'"),
    "(b OR) AND b": (3, "missing after 'OR'"),
    "NOT": (0, "missing after 'NOT'"),
    "a = = 1": (4, "missing"),
    "a =": (2, "missing"),
    "a BETWEEN 1": (10, "missing"),
    "s = 'open": (4, "never closed"),
    's = "open': (4, "never closed"),
    "b /* open": (2, "never closed"),
    "bin = X'0g'": (6, "hexadecimal digits"),
    "bin = X'0'": (6, "hexadecimal digits"),
    "bin = 'x'": (6, "binary literal"),
    "`a = 1": (0, "` is never closed"),
    "nope = 1": (0, "nope"),
    "b AND st.y = 1": (6, "st.y"),
    "A = 1": (0, "no column 'A'"),
    "st = 1": (0, "struct"),
    "st IS NULL": (0, "struct"),
    "l = 1": (4, "no order"),
    "a": (0, "is not a condition"),
    "a = 'x'": (4, "takes a number"),
    "a IN (1, 'x')": (9, "takes a number"),
    "s = 1": (4, "takes a string"),
    "b = 1": (4, "TRUE or FALSE"),
    "dec = 'x'": (6, "not a number"),
    "d = 5": (4, "date"),
    "d = '1995-02-30'": (4, "calendar"),
    "d = DATE '1995-01-01 10:00'": (9, "not a date"),
    "d = DATE 5": (9, "only casts of a string"),
    "t = '24:00:00'": (4, "time of day"),
    "ts = '1995-01-01 00:00:00+02'": (5, "has no zone"),
    "ts = TIMESTAMPTZ '1995-01-01'": (17, "has no zone"),
    "d = '1995-01-01 00:00:00Z'": (4, "has no zone"),
    "a IN ()": (0, "at least one"),
    "a IN 1": (0, "field"),
    "a IN (SELECT 1)": (0, "query"),
    "a = (SELECT 1)": (12, "subquery"),
    "EXISTS (SELECT 1)": (15, "EXISTS"),
    "a = date": (4, "another column"),
    "a IN (1, date)": (9, "not a column"),
    "1 = 1": (0, "a column on one side"),
    "1 BETWEEN a AND 2": (0, "column on its left"),
    "a + 1 = 2": (0, "arithmetic"),
    "a = 1 + 1": (4, "arithmetic"),
    "a = -'x'": (5, "minus"),
    "a % 2 = 0": (0, "arithmetic"),
    "lower(s) = 'x'": (0, "function LOWER"),
    "thing(s) = 'x'": (0, "function thing"),
    "d = date('1995-01-01')": (4, "function DATE"),
    "d = CURRENT_DATE": (0, "CURRENT_DATE"),
    "d > INTERVAL '1' DAY": (13, "INTERVAL"),
    "CAST('1' AS INT) = a": (5, "INT"),
    "a = TRY_CAST('1' AS DATE)": (13, "TRY_CAST"),
    "a::int = 1": (0, "cast"),
    "ts = TIMESTAMP(3) '1995-01-01'": (15, "not supported"),
    "s LIKE 'a\\%'": (7, "ESCAPE"),
    "s LIKE 'a%' ESCAPE '!!'": (7, "one character"),
    "s LIKE 'a!' ESCAPE '!'": (7, "ends with its escape"),
    "s LIKE 'a' ESCAPE 1": (18, "missing"),
    "a LIKE 1": (7, "is not a string"),
    "a IS TRUE": (0, "is not a condition"),
    "(a) IS UNKNOWN": (1, "is not a condition"),
    "1 IS NULL": (0, "column on its left"),
    "a IS": (2, "unexpected 'IS'"),
    "a IS NOT": (2, "unexpected 'IS'"),
    "a IS 5": (5, "IS is followed by"),
    "a = 1 IS": (6, "unexpected 'IS'"),
    "b IS TRUE b": (10, "unexpected 'b'"),
    "(a, s) = 1": (9, "another row"),
    "(a, s) = (1)": (10, "another row"),
    "(a, s) = (1, 'x', 2)": (10, "2 values cannot be compared with one of 3"),
    "(a, s) IN ((1, 'x'), 5)": (21, "another row"),
    "(a, s) = (1, 2)": (13, "takes a string"),
    "(a, s) IS NULL": (1, "column on its left"),
    "(a, a) = (1, date)": (13, "another column"),
    "(a, (a, s)) = (1, (2, 'x'))": (5, "row inside a row"),
    "(a, s)": (2, "','"),
    "nope = NULL": (0, "nope"),
    "NULL = lower(s)": (7, "function LOWER"),
    "NULL IN (nope)": (9, "nope"),
    "a = 1.\0": (6, "unexpected"),
    "s LIKE ANY ('x%')": (12, "LIKE needs a string"),
    "s ILIKE 'x%'": (0, "ILIKE"),
    "a LIKE 'x%'": (7, "is not a string"),
    "s ~ 'x'": (2, "unexpected '~'"),
    "s RLIKE 'x'": (0, "regular expression"),
    "s || 'x' = 'y'": (0, "||"),
    "s = 'x' 'y'": (4, "two strings"),
    "s = N'x'": (4, "N'...'"),
    "s COLLATE x = 'y'": (0, "COLLATE"),
    "a <=> 1": (0, "<=>"),
    "a IS DISTINCT FROM 1": (0, "IS DISTINCT FROM"),
    "a BETWEEN SYMMETRIC 1 AND 2": (0, "symmetric"),
    "a < 1 < 2": (0, "not supported"),
    "b = (a = 1)": (5, "not supported"),
    "a = NOT b": (8, "NOT"),
    "a[0] = 1": (0, "[ ]"),
    "[a] = 1": (1, "[ ]"),
    "a = ?": (0, "parameter"),
    "a = :x": (0, "parameter"),
    "* = 1": (0, "*"),
    "st.* = 1": (3, "*"),
    "CASE WHEN b THEN b END": (10, "CASE"),
    "SELECT 1": (0, "unexpected 'SELECT'"),
    "DROP TABLE x": (0, "unexpected 'DROP'"),
    "b XOR b": (2, "unexpected 'XOR'"),
    "b\nAND a = = 1": (10, "line 2, column 9"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_condition_is_refused_with_its_position(text):
    position, words = REFUSED[text]
    with pytest.raises(InvalidPredicateError) as caught:
        parse_where(text, SCHEMA)
    message = str(caught.value)
    assert words in message
    assert caught.value.details["position"] == position
    line, caret = message.splitlines()[-2:]
    column = position - (text.rfind("\n", 0, position) + 1)
    assert caret == " " * (2 + column) + "^"
    shown = ["".join(char if char.isprintable() else " " for char in part) for part in text.split("\n")]
    assert line[2:] in shown
    if "\n" not in text:
        assert f"at column {position + 1}:" in message


@pytest.mark.parametrize("name", ["show", "call", "optimize"])
def test_a_column_may_bear_the_name_of_a_command(name):
    schema = Schema.create(pa.schema([(name, pa.int64())]))
    assert parse_where(f"{name} = 1 and 2 > {name}", schema) == ice.And(
        ice.EqualTo(name, 1), ice.LessThan(name, 2)
    )


def test_the_caret_stands_below_the_place_after_wide_characters():
    with pytest.raises(InvalidPredicateError) as caught:
        parse_where("'日本' = s or 'e\u0301' = s or nope = 1", SCHEMA)
    line, caret = str(caught.value).splitlines()[-2:]
    position = line.index("nope")
    assert caret.index("^") == position + 2 - 1, "two take two columns, a mark on another none"


def test_a_long_text_is_excerpted_around_the_caret():
    with pytest.raises(InvalidPredicateError) as caught:
        parse_where("a = 1 AND " * 1000 + "nope = 1", SCHEMA)
    line, caret = str(caught.value).splitlines()[-2:]
    assert len(line) < 150
    assert line[caret.index("^") :].startswith("nope")


def position_of_error(text):
    try:
        parse_where(text, SCHEMA)
    except InvalidPredicateError as error:
        return error.details["position"]
    return None


@settings(max_examples=cases(100), deadline=None)
@given(st.text(alphabet="ab1.'\"()<>=! ,;-*/`%xX\n[]{}:?@#$&|^~\\") | st.text())
def test_any_text_gives_an_expression_or_the_one_error(text):
    assert position_of_error(text) in (None, *range(len(text) + 1))


WORDS = (
    "a b s d f 1 -2 'x' 'x_' 1.5 NULL TRUE UNKNOWN NOT AND OR ( ) = < >= <> IN LIKE ESCAPE IS BETWEEN , . "
    "DATE '1995-01-01' ; X'00'"
)


@settings(max_examples=cases(230), deadline=None)
@given(st.lists(st.sampled_from(WORDS.split()), max_size=12).map(" ".join))
def test_any_words_give_an_expression_or_the_one_error(text):
    assert position_of_error(text) in (None, *range(len(text) + 1))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "a = 1" + ")" * 10_000,
        "a = 1" + " AND a = 1" * 10_000,
        "(" * 10_000 + "a = 1" + " AND b)" * 10_000,
        "b AND (" * 10_000 + "a = 1" + ")" * 10_000,
        "NOT " * 10_000 + "b",
    ],
    ids=["parentheses", "chain", "left", "right", "nots"],
)
def test_ten_thousand_levels_that_flatten_are_read(text):
    table = pa.table({"a": [1], "b": [True]})
    assert filter_table(table, parse_where(text, SCHEMA), SCHEMA).to_pylist() == [True]


@pytest.mark.parametrize(
    "text",
    [
        "NOT (b AND " * 10_000 + "b" + ")" * 10_000,
        "a = " + "- " * 10_000 + "1",
        "a = " + "(" * 10_000 + "1" + ")" * 10_000,
        "lower(" * 10_000 + "s" + ")" * 10_000,
        "(" * 10_000,
    ],
    ids=["alternating", "signs", "literal", "functions", "open"],
)
def test_ten_thousand_levels_that_do_not_flatten_are_refused(text):
    with pytest.raises(InvalidPredicateError):
        parse_where(text, SCHEMA)


def test_seventy_levels_of_not_and_or_work():
    text = "NOT (a = 2 OR " * 70 + "b" + ")" * 70
    assert filter_table(pa.table({"a": [1], "b": [True]}), parse_where(text, SCHEMA), SCHEMA).to_pylist() == [
        True
    ]


def test_a_list_may_have_a_thousand_items():
    text = f"a IN ({', '.join(map(str, range(1000)))})"
    assert len(parse_where(text, SCHEMA).literals) == 1000


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("f = " + "1" * 2001, 4, "2,001 digits"),
        ("f = -0." + "1" * 2000, 5, "digits"),
        ("f = " + "9" * 200_000, 4, "200,000 digits, at most 2,000"),
        ("dec = '" + "1" * 4301 + "'", 6, "digits"),
        ("ts = '1995-01-01 00:00:00." + "1" * 4301 + "'", 5, "4,301 digits"),
        ("t = TIME '01:00:00." + "1" * 4301 + "'", 9, "4,301 digits"),
        ("s = '" + "x" * 250_000 + "'", 250_000, "250,006 characters"),
        ("a = 1 /*" + " " * 250_000 + "*/ ", 250_000, "250,010 characters"),
        ("b" + " OR b" * 25_000, None, "50,001 words"),
        (f"a IN ({','.join(['5'] * 100_001)})", 6, "100,001 values"),
        ("s = '\ud800'", 5, "surrogate"),
        (f"(a, a) IN ({', '.join(['(1, 2)'] * 1001)})", 8012, "1,000 rows"),
        (f"({', '.join(['a'] * 51)}) = ({', '.join(['1'] * 51)})", None, "50 values"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
def test_what_is_too_long_is_refused_with_its_limit(text, position, words):
    with pytest.raises(InvalidPredicateError, match=words) as caught:
        parse_where(text, SCHEMA)
    assert len(str(caught.value)) < 500
    if position is not None:
        assert caught.value.details["position"] == position


@pytest.mark.parametrize(
    "value",
    [10**2001, -(10**100_000), Decimal("1." + "1" * 10_000), "a\ud800"],
    ids=["int", "long int", "decimal", "text"],
)
def test_an_expression_with_a_value_that_is_too_long_or_no_text_is_refused(value):
    with pytest.raises(InvalidPredicateError):
        filter_table(pa.table({"f": [1.0], "s": ["a"]}), expression_of(value), SCHEMA)


def expression_of(value):
    return ice.EqualTo("s", value) if isinstance(value, str) else ice.EqualTo("f", value)


def test_numbers_up_to_the_limit_are_read():
    for text in ("1" * 2000, "0." + "0" * 1997 + "1", "-" + "9" * 1999, "1e-1999"):
        assert filter_table(
            pa.table({"f": [0.5]}), parse_where(f"f < {text}", SCHEMA), SCHEMA
        ).to_pylist() in ([[True], [False]])


@pytest.mark.parametrize("ending", ["'", '"', "`", "/*"])
@pytest.mark.parametrize("filling", ["/* x */ ", "-- x\n", "'' ", "`` ", '"" ', "x'00' "])
def test_an_open_quote_is_found_behind_any_number_of_comments_and_quotes(filling, ending):
    text = filling * 20_000 + "s = " + ending + "open"
    with pytest.raises(InvalidPredicateError, match="is never closed") as caught:
        parse_where(text, SCHEMA)
    assert caught.value.details["position"] == len(text) - len("open") - len(ending)


def test_a_quote_that_nothing_closes_is_looked_for_once():
    # each piece of the text is matched once, so that the pieces have no more characters than it has
    text = "/* x */ -- y\n'' " * 1000 + "'" + "/* z" * 1000
    pieces = [piece[0] for piece in sql_text._TOKEN_ERROR.finditer(text[: text.index("/* z")])]
    assert sum(map(len, pieces)) == text.index("/* z")


def test_not_in_over_days_and_moments_is_turned_whole():
    expression = parse_where("d NOT IN ('1970-01-02', TIMESTAMP '1970-01-03 00:00:00')", SCHEMA)
    days = pa.table({"d": pa.array([0, 1, 2, None], pa.int32()).cast(pa.date32())})
    assert filter_table(days, expression, SCHEMA).to_pylist() == [True, False, False, None]


def test_needed_columns_come_once_in_the_order_written():
    expression = parse_where("st.x = 1 AND (s = 'x' OR NOT st.x = 2) AND a IS NULL", SCHEMA)
    assert needed_columns(expression, SCHEMA) == ("st.x", "s", "a")


def test_assignments_are_read_as_plain_values():
    text = (
        "a = -1, s = 'x,y', f = NULL, dec = 1.50, d = '1995-01-01', tz = '1995-01-01 00:00:00+01', b = TRUE"
    )
    assert parse_assignments(text, SCHEMA) == {
        "a": -1,
        "s": "x,y",
        "f": None,
        "dec": Decimal("1.50"),
        "d": datetime.date(1995, 1, 1),
        "tz": datetime.datetime(1994, 12, 31, 23, tzinfo=datetime.UTC),
        "b": True,
    }
    assert parse_assignments("ns = '1995-01-01 00:00:00.123456789'", SCHEMA) == {
        "ns": "1995-01-01 00:00:00.123456789"
    }
    assert parse_assignments("t = TIME '10:00', bin = X'00', st.x = 5, a = 1.0, l = NULL", SCHEMA) == {
        "t": datetime.time(10),
        "bin": b"\0",
        "st.x": 5,
        "a": 1,
        "l": None,
    }


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "empty"),
        ("a = 1,", 5, "missing after the comma"),
        (", a = 1", 0, "missing before the comma"),
        ("a = 1, a = 2", 7, "twice"),
        ("a = date", 4, "only literals"),
        ("a = 1 + 1", 4, "arithmetic"),
        ("a > 1", 0, "column = literal"),
        ("a", 0, "column = literal"),
        ("1 = a", 0, "expected a column"),
        ("nope = 1", 0, "nope"),
        ("st = NULL", 0, "struct"),
        ("req = NULL", 6, "not nullable"),
        ("a = 1.5", 4, "exactly"),
        ("st.x = 128", 7, "exactly"),
        ("dec = 1.234", 6, "exactly"),
        ("s = 5", 4, "takes a string"),
        ("d = 'x'", 4, "not a date"),
        ("l = 1", 4, "list"),
        ("a = 1 AND b", 0, "column = literal"),
    ],
)
def test_assignments_are_refused_with_their_position(text, position, words):
    with pytest.raises(InvalidPredicateError) as caught:
        parse_assignments(text, SCHEMA)
    assert words in str(caught.value)
    assert caught.value.details["position"] == position


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("a", None, None),
        ("f", float("inf"), float("inf")),
        ("f", 0.1, 0.1),
        ("dec", "1.5", Decimal("1.50")),
        ("dict", "x", "x"),
        ("l", [1, None], [1, None]),
        ("ts", datetime.datetime(2020, 1, 2, 3), datetime.datetime(2020, 1, 2, 3)),
        ("n", None, None),
        ("u", 2**64 - 1, 2**64 - 1),
    ],
)
def test_a_plain_value_becomes_a_scalar_of_the_column(name, value, expected):
    assert column_value(SCHEMA.leaf(name), value).as_py() == expected


@pytest.mark.parametrize(("name", "value"), [("a", 1.5), ("a", True), ("s", b"x"), ("l", 5), ("a", object())])
def test_a_value_that_does_not_fit_its_column_is_refused(name, value):
    with pytest.raises(LiteralError):
        column_value(SCHEMA.leaf(name), value)


def test_the_package_itself_imports_nothing_heavy():
    code = "import sys, tblctl.tableformat.predicate; print([m for m in ('sqlglot', 'pyiceberg') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
