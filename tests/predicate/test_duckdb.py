"""DuckDB as an oracle: the same text over the same rows gives the same truth, NULLs included."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tblctl.tableformat.model.schema import Schema
from tblctl.tableformat.predicate.rows import filter_table
from tblctl.tableformat.predicate.sql import parse_where

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
    "s": (pa.string(), ["", "a", "ab", "b", "é", "it's", None]),
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


@st.composite
def predicates(draw):
    name = draw(st.sampled_from(tuple(LITERALS)))
    literal = st.sampled_from(LITERALS[name])
    no = draw(st.sampled_from(("", "NOT ")))
    shape = draw(st.sampled_from(("compare", "mirrored", "between", "in", "null", "like", "flag")))
    if shape == "like" and name == "s":
        return f"s {no}LIKE '{draw(st.sampled_from(('a%', '%', 'a', 'é%', '')))}'"
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


conditions = st.recursive(
    predicates() | st.sampled_from(("TRUE", "FALSE")),
    lambda child: (
        st.builds("{} AND {}".format, child, child)
        | st.builds("{} OR {}".format, child, child)
        | st.builds("({})".format, child)
        | st.builds("NOT {}".format, child)
        | st.builds("NOT ({})".format, child)
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


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(table=tables(), text=conditions)
def test_conditions_mean_what_they_mean_to_duckdb(table, text):
    with duckdb.connect() as connection:
        connection.register("rows", table)
        expected = [row[0] for row in connection.execute(f"SELECT ({text})::BOOLEAN FROM rows").fetchall()]
    assert filter_table(table, parse_where(text, SCHEMA), SCHEMA).to_pylist() == expected
