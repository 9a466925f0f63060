"""Figures of boxes of real tables: columns of every type, blocks that match, kinds of keys that have boxes."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tblctl
from tblctl.conditions import resolved
from tblctl.maintain.boxes import boxes_of
from tblctl.metrics.boxes import BoxFigures


def boxes(table: tblctl.Table, *columns: str, where: str | None = None) -> BoxFigures:
    version = table._port.newest()
    return boxes_of(
        version, [version.schema.leaf(name).id for name in columns], resolved(where, version.schema)
    )


@pytest.fixture
def tiles(memory_url: str) -> tblctl.Table:
    """Return a table of nine blocks: three by three tiles of 10 by 10 values."""
    table = tblctl.create(memory_url, "a: int64, b: int64, c: int64", cluster_by="c")
    for x, y in itertools.product((0, 10, 20), repeat=2):
        table.append(pa.table({"a": [x, x + 9], "b": [y + 9, y], "c": [5, 7]}))
    return table


def test_tiles_have_the_depth_1_and_read_what_a_grid_reads(tiles: tblctl.Table) -> None:
    found = boxes(tiles, "a", "b")
    assert (found.columns, found.total_block_count, found.unknown_block_count) == (("a", "b"), 9, 0)
    assert (found.depth.mean, found.depth.p99, found.depth.max) == (1.0, 1, 1)
    assert [read.columns for read in found.reads] == [("a",), ("b",), ("a", "b")]
    assert [read.share for read in found.reads] == pytest.approx([read.best for read in found.reads])
    assert found.reads[0].best == pytest.approx(1 / 3 + 0.01)


def test_a_column_that_all_blocks_hold_whole_is_read_whole(tiles: tblctl.Table) -> None:
    found = boxes(tiles, "c", "a")
    assert found.depth.mean == 3.0
    assert [read.share for read in found.reads] == pytest.approx([1.0, 1 / 3 + 0.01, 1 / 3 + 0.01])


def test_where_measures_only_blocks_that_may_match(tiles: tblctl.Table) -> None:
    found = boxes(tiles, "c", "a", where="a < 10")
    assert (found.total_block_count, found.depth.mean, found.reads[1].share) == (3, 3.0, 1.0)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int32", [1, 2, 30, 40]),
        ("float64", [-1.0, 2.5, 7.0, 9.0]),
        ("bool", [False, False, True, True]),
        ("date32", [datetime.date(2024, 1, day) for day in (1, 2, 8, 9)]),
        ("timestamp[us]", [datetime.datetime(2024, 1, day) for day in (1, 2, 8, 9)]),
        ("time64[us]", [datetime.time(hour) for hour in (1, 2, 8, 9)]),
        ("decimal(30, 2)", [Decimal(number) for number in (1, 2, 8, 9)]),
        ("decimal(9, 2)", [Decimal(number) for number in (1, 2, 8, 9)]),
        ("string", ["customer-1", "customer-2", "customer-7", "customer-9"]),
        ("binary", [b"a", b"b", b"x", b"z"]),
        ("fixed_size_binary[2]", [b"aa", b"bb", b"xx", b"zz"]),
    ],
)
def test_blocks_apart_in_a_column_of_any_type_are_apart(
    memory_url: str, kind: str, values: list[Any]
) -> None:
    table = tblctl.create(memory_url, f"v: {kind}, n: int64")
    column = pa.array(values, table.schema.field("v").type)
    for begin in (0, 2):
        table.append(pa.table({"v": column[begin : begin + 2], "n": pa.array([0, 9])}))
    found = boxes(table, "v", "n")
    assert found.depth.mean == 1.0
    assert [read.share for read in found.reads] == pytest.approx([0.51, 1.0, 0.51])


@pytest.mark.parametrize(
    ("kind", "last"), [("float64", None), ("float64", float("nan")), ("int64", None), ("string", None)]
)
def test_nulls_and_nan_lie_behind_all_values(memory_url: str, kind: str, last: float | None) -> None:
    table = tblctl.create(memory_url, f"x: {kind}, n: int64")
    numbers = pa.array([10, 20, 30, 40]).cast(pa.type_for_alias(kind))
    gone = pa.array([last, last], pa.type_for_alias(kind))
    for column in (numbers[:2], numbers[2:], gone):
        table.append(pa.table({"x": column, "n": [0, 9]}))
    found = boxes(table, "x", "n")
    assert found.depth.mean == 1.0
    assert found.reads[0].share == pytest.approx(1 / 3 + 0.01)


def test_a_column_of_nulls_alone_is_one_place(memory_url: str) -> None:
    table = tblctl.create(memory_url, "x: float64, n: int64")
    for begin in (0, 5):
        table.append(pa.table({"x": pa.nulls(2, pa.float64()), "n": [begin, begin + 4]}))
    found = boxes(table, "x", "n")
    assert (found.depth.mean, found.reads[0].share) == (1.0, 1.0)


def test_an_empty_table_has_zeros(memory_url: str) -> None:
    found = boxes(tblctl.create(memory_url, "a: int64, b: string"), "a", "b")
    assert (found.total_block_count, found.depth.mean, found.reads[2].share) == (0, 0.0, 0.0)


@pytest.mark.parametrize("kind", ["zorder", "hilbert"])
def test_info_of_a_curve_has_the_boxes_of_its_columns(tiles: tblctl.Table, kind: str) -> None:
    found = tiles.info(columns=f"{kind}(a, b)")
    assert found.boxes == boxes(tiles, "a", "b")
    assert found.to_dict()["boxes"] == found.boxes.to_dict()
    some = tiles.info(columns=f"{kind}(a, c, b)", where="a < 10")
    assert some.boxes == boxes(tiles, "a", "c", "b", where="a < 10")


def test_a_table_along_a_curve_has_boxes_and_they_are_better_than_before(memory_url: str) -> None:
    rng = np.random.default_rng(7)
    rows = pa.table({"a": rng.integers(0, 10**6, 6400), "b": rng.integers(0, 10**6, 6400)})
    table = tblctl.create(memory_url, rows.schema, options={"block_rows": 100})
    for begin in range(0, 6400, 100):
        table.append(rows.slice(begin, 100))
    table.set_cluster_key("hilbert(a, b)")
    before = table.info()
    assert (before.average_depth, before.unclustered_block_count) == (None, 64)
    assert before.boxes is not None
    table.recluster(options={"include_unclustered": True}, final=True)
    after = table.info().boxes
    assert after is not None
    assert (after.columns, after.total_block_count) == (("a", "b"), 64)
    assert before.boxes.depth.mean > 10
    assert after.depth.mean < 2
    assert min(read.share for read in before.boxes.reads) > 0.8
    one, other, both = (read.share / read.best for read in after.reads)
    assert max(one, other) < 1.4
    assert both < 1.6


def test_info_of_other_keys_has_boxes_if_they_are_asked_for(tiles: tblctl.Table) -> None:
    found = tiles.info(columns="a, b")
    assert found.boxes is None
    assert "boxes" not in found.to_dict()
    assert tiles.info(columns="a, b desc, c", boxes=True).boxes == boxes(tiles, "a", "b", "c")


def test_keys_of_one_column_have_no_boxes(tiles: tblctl.Table) -> None:
    assert tiles.info(columns="a", boxes=True).boxes is None
    assert tiles.info(columns="a, truncate(5, a)", boxes=True).boxes is None


def test_versions_are_compared_by_their_boxes(tiles: tblctl.Table) -> None:
    tiles.append(pa.table({"a": [0, 29], "b": [0, 29], "c": [0, 0]}))
    before, after = tiles.compare(2, 11, columns="hilbert(a, b)")
    assert before.info.boxes is not None
    assert (before.info.boxes.total_block_count, before.info.boxes.depth.mean) == (1, 1.0)
    assert after.info.boxes == boxes(tiles, "a", "b")
