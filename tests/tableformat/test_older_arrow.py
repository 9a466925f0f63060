"""Older releases of pyarrow give the same results: each function is tried as if the release could less."""

from __future__ import annotations

import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tblctl.tableformat import older_arrow
from tblctl.tableformat.errors import InvalidSchemaError
from tblctl.tableformat.model.schema.schema import Schema

ROWS = pa.table({"a": [2, None, 1, 2, None, 1], "b": ["x", "y", None, None, None, "z"]})


@pytest.fixture(params=["as it is", "older"])
def release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "older":
        monkeypatch.setattr(older_arrow, "_NULLS_BY_KEY", False)
        monkeypatch.setattr(older_arrow, "_HAS_SEARCH", False)
    return request.param


@pytest.mark.parametrize("directions", list(itertools.product(["ascending", "descending"], repeat=2)))
@pytest.mark.parametrize("nulls", list(itertools.product(["at_start", "at_end"], repeat=2)))
def test_rows_are_sorted_with_the_nulls_of_each_key_where_it_says(release, directions, nulls):
    found = older_arrow.sort_indices(ROWS, list(zip("ab", directions, nulls, strict=True))).to_pylist()
    rows = list(enumerate(ROWS.to_pylist()))
    for name, direction, place in reversed(list(zip("ab", directions, nulls, strict=True))):
        some = [row for row in rows if row[1][name] is not None]
        some.sort(key=lambda row, name=name: row[1][name], reverse=direction == "descending")
        if direction == "descending":  # equal rows stay in order
            some = [
                row
                for value in dict.fromkeys(row[1][name] for row in some)
                for row in rows
                if row[1][name] == value
            ]
        none = [row for row in rows if row[1][name] is None]
        rows = none + some if place == "at_start" else some + none
    assert found == [number for number, _ in rows]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 3, 3, 7]),
        pa.array(["", "a", "a", "é"]),
        pa.array([b"a", b"b", b"b", b"c"], pa.binary(1)),
        pa.array([Decimal("1.5"), Decimal(2), Decimal(2), Decimal(9)], pa.decimal128(5, 2)),
    ],
    ids=lambda values: str(values.type),
)
def test_the_place_of_a_value_is_how_many_lie_below_it_and_0_for_null(release, values, side):
    needles = pa.chunked_array([values.slice(1), pa.nulls(1, values.type), values.slice(0, 1)])
    found = older_arrow.search_sorted(values, needles, side)
    listed = values.to_pylist()
    assert found.dtype == np.int64
    assert found.tolist() == [
        0 if x is None else sum(y < x or (side == "right" and y == x) for y in listed)
        for x in needles.to_pylist()
    ]


def test_no_values_or_no_needles_have_no_places(release):
    some, none = pa.array(["a", "b"]), pa.array([], pa.string())
    assert older_arrow.search_sorted(none, some).tolist() == [0, 0]
    assert older_arrow.search_sorted(some, none).tolist() == []


def test_views_have_a_size_on_every_release():
    assert older_arrow.size_in_memory(pa.array(["x" * 40] * 3, pa.string_view())) >= 40
    assert older_arrow.size_in_memory(pa.array([1, 2])) == 16


def test_lists_of_a_fixed_size_that_could_not_be_read_back_are_refused(monkeypatch):
    schema = pa.schema([("a", pa.list_(pa.int32(), 2))])
    monkeypatch.setattr(older_arrow, "READS_NULL_FIXED_SIZE_LISTS", True)
    Schema.create(schema)
    monkeypatch.setattr(older_arrow, "READS_NULL_FIXED_SIZE_LISTS", False)
    Schema.create(pa.schema([pa.field("a", pa.list_(pa.int32(), 2), nullable=False)]))
    with pytest.raises(
        InvalidSchemaError, match=r"a: pyarrow .* cannot read back a fixed_size_list .*pyarrow 26"
    ):
        Schema.create(schema)
