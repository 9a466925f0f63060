"""Literals of a recorded condition can be rounded."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tblctl.errors import InvalidPredicateError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.predicate.sql.conditions import parse_where
from tblctl.tableformat.workload.rounding import rounded_where

SCHEMA = Schema.create(
    pa.schema(
        [
            ("id", pa.int64()),
            ("tiny", pa.int8()),
            ("share", pa.float64()),
            ("price", pa.decimal128(9, 2)),
            ("full", pa.decimal128(2, 2)),
            ("name", pa.string()),
            ("code", pa.binary()),
            ("key", pa.binary(4)),
            ("day", pa.date32()),
            ("moment", pa.timestamp("us")),
            ("clock", pa.time64("us")),
            ("flag", pa.bool_()),
        ]
    )
)


@pytest.mark.parametrize(
    ("text", "rounded"),
    [
        ("id = 123456", '"id" = 120000'),
        ("id >= -98765", '"id" >= -99000'),
        ("tiny < 127", '"tiny" < 120'),
        ("id = 9223372036854775807", '"id" = 9200000000000000000'),
        ("share > 0.12345", '"share" > 0.12'),
        ("price <= 1234.56", '"price" <= 1200.00'),
        ("full > 0.99", '"full" > 0.99'),
        ("name = 'Alice Smith'", "\"name\" LIKE 'Al%'"),
        ("name <> 'Alice'", "\"name\" NOT LIKE 'Al%'"),
        ("name IN ('Alice', 'Alan', 'Bob')", "(\"name\" LIKE 'Al%' OR \"name\" LIKE 'Bo%')"),
        ("name NOT IN ('Alice', 'Alan')", "NOT (\"name\" LIKE 'Al%')"),
        ("name >= 'Alice'", "\"name\" >= 'Al'"),
        ("name LIKE 'Alice%'", "\"name\" LIKE 'Al%'"),
        ("name LIKE 'Al_ce%'", "\"name\" LIKE 'Al%'"),
        ("name LIKE 'Äöü%'", "\"name\" LIKE 'Äö%'"),
        ("code = X'01020304'", "\"code\" = X'0102'"),
        ("key = X'01020304'", "\"key\" = X'01020000'"),
        ("day = '2026-03-17'", "\"day\" = DATE '2026-03-17'"),
        ("moment < '2026-03-17 12:34:56.789'", "\"moment\" < TIMESTAMP '2026-03-17 12:00:00'"),
        ("clock = '12:34:56'", "\"clock\" = '12:00:00'"),
        ("flag = TRUE AND id IS NULL", '("flag" = TRUE AND "id" IS NULL)'),
        ("id IN (1234, 1235, 7)", '"id" IN (7, 1200)'),
    ],
)
def test_literals_keep_their_first_digits_or_characters(text: str, rounded: str) -> None:
    assert rounded_where(text, SCHEMA) == rounded
    parse_where(rounded, SCHEMA)


def test_what_is_no_condition_is_not_kept() -> None:
    with pytest.raises(InvalidPredicateError):
        rounded_where("secret = 'x'", SCHEMA)
