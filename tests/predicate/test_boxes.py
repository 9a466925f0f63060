"""Conditions as boxes: no row that satisfies one lies outside, and ranges are as narrow as they are written."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.predicate import boxes as subject
from tblctl.tableformat.predicate.boxes import boxes_of
from tblctl.tableformat.predicate.nodes import node_of
from tblctl.tableformat.predicate.rows import filter_table
from tblctl.tableformat.predicate.sql.conditions import parse_where

SCHEMA = Schema.create(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
INF = float("inf")


def boxes(text):
    node = node_of(parse_where(text, SCHEMA), SCHEMA)
    return [dict(box) for box in boxes_of(node, lambda _, value: float(value.as_py()))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a between 1 and 5 and b < 3", [{"a": (1, 5), "b": (-INF, 3)}]),
        ("a > 1 and a > 3", [{"a": (3, INF)}]),
        ("not (a < 4)", [{"a": (4, INF)}]),
        ("a = 2 or b = 7", [{"a": (2, 2)}, {"b": (7, 7)}]),
        ("a in (1, 9) and b = 4", [{"a": (1, 1), "b": (4, 4)}, {"a": (9, 9), "b": (4, 4)}]),
        ("a < 1 and a > 5", []),
        ("a is null", [{}]),
        ("a <> 3", [{}]),
    ],
)
def test_ranges_are_as_narrow_as_they_are_written(text, expected):
    assert boxes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a < 2 or (a > 5 and b between 2 and 3)",
        "not (a in (1, 2, 3) or b >= 6)",
        "(a = 1 or a = 4 or a = 7) and (b = 1 or b = 4) and not (a = 4 and b = 1)",
        "a in (0, 3, 6) and b not in (1, 2) or a is null",
        "(a < 3) is not true and b <= 5",
    ],
)
@pytest.mark.parametrize("most", [1, 3, 64])
def test_no_row_that_satisfies_a_condition_lies_outside_its_boxes(text, most, monkeypatch):
    monkeypatch.setattr(subject, "MOST_BOXES", most)
    values = [*range(9), None]
    rows = list(itertools.product(values, values))
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]}, schema=SCHEMA.arrow)
    node = node_of(parse_where(text, SCHEMA), SCHEMA)
    satisfied = filter_table(table, node, SCHEMA).to_pylist()
    found = boxes(text)
    for (a, b), holds in zip(rows, satisfied, strict=True):
        inside = any(
            all(
                {"a": a, "b": b}[name] is not None and low <= {"a": a, "b": b}[name] <= high
                for name, (low, high) in box.items()
            )
            for box in found
        )
        assert inside or not holds


def test_a_long_list_becomes_at_most_so_many_ranges():
    found = boxes(f"a in ({', '.join(map(str, range(0, 1000, 3)))})")
    assert len(found) <= subject.MOST_BOXES
    assert (found[0]["a"][0], found[-1]["a"][1]) == (0, 999)
