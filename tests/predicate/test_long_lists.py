"""Lists that are taken out of a condition's text keep their meaning."""

from __future__ import annotations

import dataclasses
import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from tblctl.tableformat.errors import InvalidPredicateError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import read_type
from tblctl.tableformat.predicate.rows import filter_table
from tblctl.tableformat.predicate.sql import long_lists
from tblctl.tableformat.predicate.sql import text as sql_text
from tblctl.tableformat.predicate.sql.conditions import parse_assignments, parse_where

SCHEMA = Schema.create(
    pa.schema(
        [
            ("a", pa.int64()),
            ("b", pa.bool_()),
            ("s", pa.string()),
            ("d", pa.date32()),
            ("tz", pa.timestamp("us", "UTC")),
            ("f", pa.float64()),
            ("dec", pa.decimal128(12, 2)),
            ("t", pa.time64("us")),
            ("n", pa.null()),
            ("dict", pa.dictionary(pa.int32(), pa.string())),
        ]
    )
)

LISTED = {
    "a": ("5", "-5", "+7", "- 8", "1.0", "2.5", "1e2", "99999999999999999999"),
    "s": ("'x'", "'it''s'", "''", "'a,b'", "')'"),
    "dec": ("1.5", "-1.505", "'2.50'", "7"),
    "f": ("0.1", "5", "-1e400"),
    "d": ("'1995-01-01'", "DATE '1995-01-02'", "TIMESTAMP '1995-01-03 00:00:00'", "'1995-01-04 00:00:01'"),
    "tz": ("'1995-01-01 00:00:00Z'", "TIMESTAMPTZ '1995-01-02 00:00:00'", "date '1995-01-03'"),
    "t": ("'01:00'", "TIME '02:00:00.5'"),
    "dict": ("'x'", "'y'"),
    "n": ("1", "'x'"),
}


SAMPLES = {
    "a": [5, -5, 7, -8, 1, 2, 100, 3, None],
    "s": ["x", "it's", "", "a,b", ")", "y", None],
    "dec": [Decimal("1.50"), Decimal("-1.51"), Decimal("2.50"), Decimal(7), Decimal(0), None],
    "f": [0.1, 5.0, float("-inf"), float("nan"), None],
    "d": [*(datetime.date(1995, 1, day) for day in range(1, 6)), None],
    "tz": [*(datetime.datetime(1995, 1, day, tzinfo=datetime.UTC) for day in range(1, 5)), None],
    "t": [datetime.time(1), datetime.time(2, 0, 0, 500_000), datetime.time(3), None],
    "dict": ["x", "y", "z", None],
    "n": [None, None],
}


@pytest.mark.parametrize("name", LISTED)
@pytest.mark.parametrize("no", ["", "NOT "])
def test_a_long_list_means_what_its_values_mean_one_by_one(name, no):
    literals = LISTED[name]
    long = f"b AND {name} {no}IN ({', '.join(literals * 1000)}) AND b"
    short = f"b AND {name} {no}IN ({', '.join(literals)}) AND b"
    assert long_lists.shorten(long).lists
    assert not long_lists.shorten(short).lists
    values = pa.array(SAMPLES[name], read_type(SCHEMA.leaf(name).type))
    table = pa.table({"b": [True] * len(values), name: values})
    found, expected = (
        filter_table(table, parse_where(text, SCHEMA), SCHEMA).to_pylist() for text in (long, short)
    )
    assert found == expected
    assert name == "n" or {True, False} <= set(found)


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("a IN (%s, 'x', %s)", "'x'", "takes a number"),
        ("s IN (%s, 'x')", "7", "takes a string"),
        ("d IN ('1995-01-01', %s)", "7", "date"),
        ("nope IN (%s)", "nope", "no column"),
        ("a IN (%s) OR nope = 1", "nope", "no column"),
        ("a IN (%s) AND a IN (%s) AND 'open", "'open", "never closed"),
        ("a IN (%s) AND b OR", "OR", "missing"),
    ],
)
def test_what_is_wrong_in_or_behind_a_long_list_is_refused_with_its_position(text, at, words):
    text = text.replace("%s", ", ".join(["7"] * 2500))
    with pytest.raises(InvalidPredicateError, match=words) as caught:
        parse_where(text, SCHEMA)
    assert caught.value.details["position"] == text.rindex(at) if at != "7" else text.index(at)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        *(("a", text) for text in ("5", "+5", "-5", "- 5", "-\n5", "5.", "5e0", "5.e0", "(5)", "NULL")),
        *(("a", text) for text in ("/* ( */ 5", "-- (\n5", " 5", "((-5))", "- (5)", "-(.5)", "/**/.5")),
        *(
            ("f", text)
            for text in ("0.1", ".1", "-.1", "- .1", "+.1", ".1e0", "-.1E+0", "\t.1", "(.1)", "1.")
        ),
        *(("dec", text) for text in (".5", "-.5", "- .5", "5.", "'.5'", "'-.5'")),
        *(("s", text) for text in ("'x'", "''", "'it''s'", "'.5'", "'('", "('x')", "NULL")),
        *(
            ("d", text)
            for text in ("'1995-01-01'", "DATE '1995-01-01'", "DATE'1995-01-01'", "(DATE '1995-01-01')")
        ),
        ("d", "date\n'1995-01-01'"),
        ("d", "TIMESTAMP '1995-01-01 00:00:00'"),
        ("tz", "TIMESTAMPTZ '1995-01-01 00:00:00'"),
        ("t", "TIME '01:00'"),
        ("b", "TRUE"),
        ("b", "false"),
    ],
)
@pytest.mark.parametrize("no", ["", "NOT "])
def test_a_long_list_means_the_same_however_its_first_value_is_written(name, first, no):
    """sqlglot gives no position for `.5`; looked up by that, the list was taken for its first value."""
    samples = {
        "a": ([5, -5, 7, 100, 0, None], ["7", "100"]),
        "f": ([0.1, -0.1, 1.0, 7.0, 0.5, None], ["7", ".5"]),
        "dec": ([*map(Decimal, ("0.50", "-0.50", "5.00", "7.00", "8.00")), None], ["7", "'8'"]),
        "s": (["x", "", "it's", ".5", "(", "y", None], ["'y'"]),
        "d": ([*(datetime.date(1995, 1, day) for day in (1, 2, 3)), None], ["'1995-01-02'"]),
        "tz": (SAMPLES["tz"], ["'1995-01-02 00:00:00Z'"]),
        "t": (SAMPLES["t"], ["'03:00'"]),
        "b": ([True, False, None], [first]),
    }
    values, more = samples[name]
    table = pa.table({name: pa.array(values, read_type(SCHEMA.leaf(name).type))})
    count = long_lists.LONG_LIST // len(more)
    texts = [f"{name} {no}IN ({', '.join([first, *more * times])})" for times in (1, count)]
    short, long = (filter_table(table, parse_where(text, SCHEMA), SCHEMA).to_pylist() for text in texts)
    assert long == short
    assert not long_lists.shorten(texts[0]).lists


def test_several_long_lists_keep_their_own_values():
    many = ", ".join(["7"] * 2500)
    text = (
        f"a IN (.5, {many}) OR a IN (5, 8) OR NULL IN (.5, {many}) "
        f"OR (a NOT IN (-1.5,{many}) AND a IN (- .5, 9, {many}))"
    )
    expression = parse_where(text, SCHEMA)
    table = pa.table({"a": pa.array([0, 5, 7, 8, 9], pa.int64())})
    assert filter_table(table, expression, SCHEMA).to_pylist() == [None, True, True, True, True]


@pytest.mark.parametrize("off", [-1, 1, 1_000])
@pytest.mark.parametrize("no", ["", "NOT "])
def test_a_long_list_that_is_not_found_again_is_refused(monkeypatch, off, no):
    """Never is the number in its place read as all of it: a delete would take other rows."""

    def misplaced(text):
        found = long_lists.shorten(text)
        return dataclasses.replace(found, lists={place + off: item for place, item in found.lists.items()})

    monkeypatch.setattr(sql_text, "shorten", misplaced)
    text = f"a {no}IN ({', '.join(['7'] * 2500)})"
    with pytest.raises(InvalidPredicateError, match="a list of 2,000 values or more is not read here"):
        parse_where(text, SCHEMA)


def test_a_long_list_is_no_value_to_assign():
    with pytest.raises(InvalidPredicateError, match="IN is not supported here"):
        parse_assignments(f"b = a IN ({', '.join(['.5'] * 2500)})", SCHEMA)


@pytest.mark.parametrize("left", ["(a, s)", "5", "a + 1", "(a IN (1))"])
def test_a_long_list_behind_anything_but_a_column_is_refused(left):
    with pytest.raises(InvalidPredicateError):
        parse_where(f"{left} IN ({', '.join(['.5'] * 2500)})", SCHEMA)
