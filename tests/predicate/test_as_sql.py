"""A condition written as SQL is the condition that was resolved, or holds for more rows."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg import expressions as ice

from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.predicate.as_sql import as_sql
from tblctl.tableformat.predicate.leaf_tests import comparison_test, unary_test
from tblctl.tableformat.predicate.literals import from_python
from tblctl.tableformat.predicate.nodes import AnyOf, Node, Operator, node_of
from tblctl.tableformat.predicate.rows import filter_table
from tblctl.tableformat.predicate.sql.conditions import parse_where

_MOMENT = datetime.datetime(2026, 3, 1, 12, 30, 15, 250_000)
ROWS = pa.table(
    {
        "id": pa.array([1, 5, None, 900], pa.int64()),
        "share": pa.array([0.5, float("nan"), None, -1e300], pa.float64()),
        "price": pa.array([Decimal("1.50"), Decimal("-2.00"), None, Decimal("9.99")], pa.decimal128(9, 2)),
        "select": pa.array(["it's", "50% \\ _x", None, ""], pa.string()),
        "code": pa.array([b"\x00\xff", b"", None, b"a"], pa.binary()),
        "day": pa.array(
            [datetime.date(2026, 3, 1), datetime.date(1969, 1, 1), None, datetime.date(9999, 1, 1)]
        ),
        "moment": pa.array([_MOMENT, None, datetime.datetime(1969, 1, 1), _MOMENT], pa.timestamp("us")),
        "instant": pa.array([_MOMENT, None, _MOMENT, _MOMENT], pa.timestamp("ns", "UTC")),
        "clock": pa.array(
            [datetime.time(1, 2, 3, 4), None, datetime.time(0), datetime.time(23)], pa.time64("us")
        ),
        "flag": pa.array([True, False, None, True]),
    }
)
SCHEMA = Schema.create(ROWS.schema)


def resolved(text: str) -> Node:
    return node_of(parse_where(text, SCHEMA), SCHEMA)


def chosen(node: Node) -> list[bool]:
    return [found is True for found in filter_table(ROWS, node, SCHEMA).to_pylist()]


@pytest.mark.parametrize(
    "text",
    [
        "id = 5", "id <> 5 OR id > 2.5", "NOT id >= 5 AND share < 0.5", "share > -1e301", "price BETWEEN 1.5 AND 9",
        "\"select\" = 'it''s'", "\"select\" LIKE '50!% \\ !_%' ESCAPE '!'", "\"select\" NOT LIKE 'it%'",
        "\"select\" IN ('', 'it''s')", "id NOT IN (1, 900)", "id IS NULL", "id IS NOT NULL", "code = X'00ff'",
        "day = DATE '2026-03-01'", "day > '1969-12-31'", "moment = '2026-03-01 12:30:15.25'", "moment < '1970-01-01'",
        "instant >= TIMESTAMP '2026-03-01 12:30:15.25Z'", "clock = TIME '01:02:03.000004'", "flag = TRUE",
        "(id = 5) IS NOT TRUE", "(id > 1 AND share > 0) IS UNKNOWN", "TRUE", "id = 1 OR id = NULL",
    ],
)  # fmt: skip
def test_a_condition_read_again_holds_for_the_same_rows(text: str) -> None:
    node = resolved(text)
    assert chosen(resolved(as_sql(node))) == chosen(node)


@pytest.mark.parametrize(
    ("text", "weaker"),
    [
        ("\"select\" LIKE '%t_s'", '"select" IS NOT NULL'),
        ("\"select\" LIKE 'it_s%'", "\"select\" LIKE 'it%'"),
        ("id = 5 AND \"select\" NOT LIKE '%x%'", '"id" = 5'),
        ("id = 5 OR \"select\" NOT LIKE '%x%'", ""),
        ("NOT (\"select\" LIKE '%x%')", ""),
        ("(\"select\" LIKE '%x%') IS TRUE", ""),
        ("id = 2.5", ""),
    ],
)
def test_a_test_without_a_text_makes_the_condition_weaker_never_stronger(text: str, weaker: str) -> None:
    node = resolved(text)
    assert as_sql(node) == weaker
    if weaker:
        pairs = zip(chosen(node), chosen(resolved(weaker)), strict=True)
        assert all(wide for narrow, wide in pairs if narrow)


def test_a_long_list_becomes_the_range_of_its_values() -> None:
    node = node_of(ice.In("id", tuple(range(1, 3_000, 2))), SCHEMA)
    assert as_sql(node) == '"id" BETWEEN 1 AND 2999'
    assert as_sql(node_of(ice.Not(ice.In("id", tuple(range(3_000)))), SCHEMA)) == ""


def test_nan_beside_a_comparison_is_left_out() -> None:
    leaf = SCHEMA.leaf("share")
    above = comparison_test(Operator.GREATER, leaf, from_python(0.5), negated=False)
    nan = unary_test(Operator.NAN, leaf, negated=False)
    assert as_sql(AnyOf(children=(above, nan))) == '("share" > 0.5)'
    assert as_sql(nan) == ""
