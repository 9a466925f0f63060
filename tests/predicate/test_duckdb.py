"""DuckDB, and SQLite for row values, as oracles: the same text over the same rows gives the same truth."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import sqlite3
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.predicate.rows import filter_table
from tblctl.tableformat.predicate.sql.conditions import parse_where

duckdb = pytest.importorskip("duckdb")

DAYS = [datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(1995, 1, 1), None]
TIMES = [datetime.datetime(1970, 1, 1), datetime.datetime(1995, 1, 1, 12, 0, 0, 500_000), None]
COLUMNS = {
    "i": (pa.int32(), [-2, 0, 1, 5, 2**31 - 1, None]),
    "f": (pa.float64(), [-1.5, 0.0, 0.1, 1.0, 1e300, None]),
    "n": (
        pa.decimal128(9, 2),
        [Decimal("-1.50"), Decimal("0.00"), Decimal("0.10"), Decimal("9999999.99"), None],
    ),
    "s": (pa.string(), ["", "a", "ab", "b", "é", "it's", "a%", "a_b", "a\nb", "aéb", "%", None]),
    "d": (pa.date32(), DAYS),
    "t": (pa.timestamp("us"), TIMES),
    "b": (pa.bool_(), [True, False, None]),
    "odd name": (pa.int64(), [0, 1, None]),
}
NUMBERS = ["-2", "0", "1", "1.5", "0.10", "-0.001", "5", "1e2", "2147483648", ".5"]
LITERALS = {
    "i": NUMBERS,
    "f": [*NUMBERS, "0.1"],
    "n": NUMBERS,
    "s": ["''", "'a'", "'ab'", "'it''s'", "'é'"],
    "d": ["DATE '1970-01-01'", "'1995-01-01'", "'1969-12-31'", "TIMESTAMP '1995-01-01 12:00:00'"],
    "t": ["TIMESTAMP '1970-01-01 00:00:00'", "'1995-01-01 12:00:00.5'", "DATE '1995-01-01'"],
    "b": ["TRUE", "FALSE"],
    '"odd name"': ["0", "1", "2"],
}
SCHEMA = Schema.create(pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()]))


PATTERNS = st.lists(st.sampled_from(("a", "b", "é", "_", "%", "!%", "!_", "!!", "!a")), max_size=5).map(
    "".join
)


@st.composite
def predicates(draw):
    name = draw(st.sampled_from(tuple(LITERALS)))
    literal = st.sampled_from((*LITERALS[name], "NULL"))
    no = draw(st.sampled_from(("", "NOT ")))
    shape = draw(st.sampled_from(("compare", "mirrored", "between", "in", "null", "like", "flag")))
    if shape == "like" and name == "s":
        pattern = draw(PATTERNS)
        return f"s {no}LIKE '{pattern}' ESCAPE '!'" if "!" in pattern else f"s {no}LIKE '{pattern}'"
    if shape == "flag" and name == "b":
        return "b"
    if shape == "null":
        return f"{name} IS {no}NULL"
    if shape == "between":
        return f"{name} {no}BETWEEN {draw(literal)} AND {draw(literal)}"
    if shape == "in":
        return f"{name} {no}IN ({', '.join(draw(st.lists(literal, min_size=1, max_size=4)))})"
    operator = draw(st.sampled_from(("=", "<>", "!=", "<", "<=", ">", ">=")))
    if shape == "mirrored":
        return f"{draw(literal)} {operator} {name}"
    return f"{name} {operator} {draw(literal)}"


TRUTHS = ("TRUE", "FALSE", "NULL", "UNKNOWN")
conditions = st.recursive(
    predicates()
    | st.sampled_from(("TRUE", "FALSE", "NULL", "NULL IS NULL"))
    | st.builds("{} IS {}{}".format, predicates(), st.sampled_from(("", "NOT ")), st.sampled_from(TRUTHS)),
    lambda child: (
        st.builds("{} AND {}".format, child, child)
        | st.builds("{} OR {}".format, child, child)
        | st.builds("({})".format, child)
        | st.builds("NOT {}".format, child)
        | st.builds("NOT ({})".format, child)
        | st.builds("({}) IS {}{}".format, child, st.sampled_from(("", "NOT ")), st.sampled_from(TRUTHS))
    ),
    max_leaves=8,
)


@st.composite
def tables(draw):
    count = draw(st.integers(1, 12))
    return pa.table(
        {
            name: pa.array([draw(st.sampled_from(values)) for _ in range(count)], kind)
            for name, (kind, values) in COLUMNS.items()
        }
    )


@settings(max_examples=cases(130), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(table=tables(), text=conditions)
def test_conditions_mean_what_they_mean_to_duckdb(table, text):
    with duckdb.connect() as connection:
        connection.register("rows", table)
        expected = [row[0] for row in connection.execute(f"SELECT ({text})::BOOLEAN FROM rows").fetchall()]
    assert filter_table(table, parse_where(text, SCHEMA), SCHEMA).to_pylist() == expected


ROW_VALUES = [*itertools.product((1, 2, 3, None), repeat=3)]
ROW_SCHEMA = Schema.create(pa.schema([(name, pa.int64()) for name in "abc"]))


@st.composite
def row_conditions(draw):
    count = draw(st.integers(2, 3))
    columns = "abc"[:count]
    left = f"({', '.join(columns)})"
    values = st.lists(st.sampled_from(("1", "2", "3", "NULL")), min_size=count, max_size=count)
    row = values.map(lambda items: f"({', '.join(items)})")
    no = draw(st.sampled_from(("", "NOT ")))
    shape = draw(st.sampled_from(("compare", "mirrored", "between", "in")))
    if shape == "in":
        rows = draw(st.lists(row, min_size=1, max_size=3))
        return f"{left} {no}IN ({', '.join(rows)})", f"{left} {no}IN (VALUES {', '.join(rows)})"
    if shape == "between":
        text = f"{left} {no}BETWEEN {draw(row)} AND {draw(row)}"
        return text, text
    operator = draw(st.sampled_from(("=", "<>", "<", "<=", ">", ">=")))
    sides = (left, draw(row))
    text = f" {operator} ".join(sides if shape == "compare" else sides[::-1])
    return (f"NOT {text}",) * 2 if no else (text, text)


@settings(max_examples=cases(100), deadline=None)
@given(row_conditions(), st.sampled_from(("", " IS TRUE", " IS NOT TRUE", " IS FALSE", " IS NOT FALSE")))
def test_row_values_mean_what_they_mean_to_sqlite(condition, truth):
    ours, theirs = condition
    table = pa.table(
        {name: pa.array([row[place] for row in ROW_VALUES], pa.int64()) for place, name in enumerate("abc")}
    )
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (a, b, c)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", ROW_VALUES)
        found = connection.execute(f"SELECT ({theirs}){truth} FROM t ORDER BY rowid").fetchall()
    expected = [None if value is None else bool(value) for (value,) in found]
    assert (
        filter_table(table, parse_where(f"({ours}){truth}", ROW_SCHEMA), ROW_SCHEMA).to_pylist() == expected
    )
