"""Which cuts conditions suggest, and which conditions can hold for no row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.predicate import cuts
from tblctl.tableformat.predicate.cuts import contradiction, cuts_of
from tblctl.tableformat.predicate.nodes import Node, node_of
from tblctl.tableformat.predicate.sql.conditions import parse_where

SCHEMA = Schema.create(
    pa.schema([("a", pa.int64()), ("s", pa.string()), ("x", pa.float64()), ("l", pa.list_(pa.int8()))])
)


def node(text: str) -> Node:
    return node_of(parse_where(text, SCHEMA), SCHEMA)


def suggested(*texts: str) -> list[tuple[object, ...]]:
    return [cut.to_json() for cut in cuts_of(map(node, texts))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < 5", [(1, "<", (5,))]),
        ("a >= 5", [(1, "<", (5,))]),
        ("a > 5", [(1, "<=", (5,))]),
        ("a <= 5.5", [(1, "<=", (5,))]),
        ("NOT a < 5", [(1, "<", (5,))]),
        ("a BETWEEN 1 AND 2", [(1, "<", (1,)), (1, "<=", (2,))]),
        ("a = 5", [(1, "<", (5,)), (1, "<=", (5,)), (1, "in", (5,))]),
        (
            "a IN (7, 5)",
            [(1, "<", (5,)), (1, "<=", (5,)), (1, "<", (7,)), (1, "<=", (7,)), (1, "in", (5, 7))],
        ),
        ("s LIKE 'ab%'", [(2, "<", ("ab",)), (2, "prefix", ("6162",))]),
        ("s LIKE 'ab%c'", [(2, "<", ("ab",)), (2, "prefix", ("6162",))]),
        ("s LIKE '%c'", []),
        ("s IS NOT NULL", [(2, "null", ())]),
        ("l IS NULL", []),
        ("a = 1.5", []),
        ("s < '" + "x" * 65 + "'", []),
    ],
)
def test_tests_suggest_cuts(text: str, expected: list[tuple[object, ...]]) -> None:
    assert suggested(text) == expected


def test_a_long_list_is_cut_at_its_ends_only() -> None:
    values = ", ".join(map(str, range(100)))
    assert suggested(f"a IN ({values})") == [
        (1, "<", (0,)),
        (1, "<=", (0,)),
        (1, "<", (99,)),
        (1, "<=", (99,)),
    ]


def test_the_cuts_of_the_most_conditions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "MOST_CUTS", 2)
    assert suggested("a < 1", "a < 3 AND a < 2", "a < 3 OR a < 3", "a < 2", "a < 3") == [
        (1, "<", (3,)),
        (1, "<", (2,)),
    ]


def test_all_cuts_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "MOST_CUT_TEXT", 40)
    assert len(suggested(*(f"a < {value}" for value in range(100)))) == 3


@pytest.mark.parametrize(
    "text",
    [
        "a < 2 AND a > 5",
        "a = 1 AND a = 2",
        "a = 1 AND a <> 1",
        "a IN (1, 2) AND a > 2",
        "a IN (1, 2) AND a NOT IN (2, 1)",
        "a IS NULL AND a = 1",
        "a IS NULL AND a IS NOT NULL",
        "s = 'x' AND a < 2 AND a > 5",
        "x > 0.0 AND x <= -0.0",
        "a = 1.5",
        "s < 'a' AND s > 'b'",
    ],
)
def test_tests_that_no_value_satisfies_together_are_a_contradiction(text: str) -> None:
    assert contradiction(node(text)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "a <= 2 AND a >= 2",
        "a < 2 OR a > 5",
        "a < 2 AND x > 5",
        "a <> 1 AND a <> 2",
        "x >= 0.0 AND x <= -0.0",
        "NOT x < 1 AND NOT x >= 1",
        "a IS NULL",
        "a IS NOT NULL",
        "NOT (a < 2 AND a > 5)",
        "s LIKE 'a%' AND s > 'b'",
        "a <> 1.5",
        "a IN (1, 2) AND a > 1",
    ],
)
def test_tests_that_some_value_may_satisfy_are_none(text: str) -> None:
    assert contradiction(node(text)) is None
