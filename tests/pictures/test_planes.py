"""Pictures of keys on a curve: the boxes of blocks in the plane of two columns."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tblctl
from tblctl.pictures import planes
from tblctl.pictures.drawing import (
    HEIGHT_INCHES,
    LEVEL_COLORS,
    PLANES_INCHES,
    _rectangles,
    draw_png,
    draw_svg,
)
from tblctl.pictures.page import picture_page
from tblctl.pictures.picture import Picture

from .subjects import picture_of_table

SVG = "{http://www.w3.org/2000/svg}"
MOST_BYTES = 500_000


@pytest.fixture
def tiles(memory_url: str) -> tblctl.Table:
    """Return a table of four tiles: snapshots 2 to 5 add one each, and snapshot 6 is along a curve."""
    table = tblctl.create(memory_url, "a: int64, b: string", cluster_by="a, b")
    for x, y in itertools.product((0, 10), "km"):
        table.append(pa.table({"a": [x, x + 9], "b": [y, f"{y}z"]}))
    table.set_cluster_key("hilbert(a, b)")
    return table


def texts(picture: Picture) -> list[str | None]:
    return [node.text for node in ET.fromstring(draw_svg(picture)[0]).iter(f"{SVG}text")]


def test_boxes_lie_where_their_share_of_the_rows_is(tiles: tblctl.Table) -> None:
    [plane] = picture_of_table(tiles, 6).planes
    assert [places.tolist() for places in plane.begin] == [[0, 0, 0.5, 0.5], [0, 0.5, 0, 0.5]]
    assert [places.tolist() for places in plane.end] == [[0.5, 0.5, 1, 1], [0.5, 1, 0.5, 1]]
    assert [(axis.name, axis.least, axis.greatest) for axis in plane.axes] == [
        ("a", "0", "19"),
        ("b", "k", "mz"),
    ]
    corners = _rectangles(plane, np.array([2])).vertices[:4].tolist()
    assert corners == [[0.5, 0], [1, 0], [1, 0.5], [0.5, 0.5]]


def test_two_versions_share_the_axes_of_their_boxes(tiles: tblctl.Table) -> None:
    before, after = picture_of_table(tiles, 2, 6).planes
    assert before.axes == after.axes
    assert (before.end[0].tolist(), before.block_count, after.block_count) == ([0.6], 1, 4)
    assert after.end[0].tolist() == pytest.approx([0.6, 0.6, 1, 1])


def test_a_picture_tells_columns_ends_levels_and_box_depth(tiles: tblctl.Table) -> None:
    picture = picture_of_table(tiles, 6)
    assert {"Boxes", "a, by rows", "b, by rows", "0", "19", "k", "mz"} <= set(texts(picture))
    assert "snapshot 6: box depth 1.00 on average and 1 at most" in texts(picture)
    assert LEVEL_COLORS[0] in draw_svg(picture)[0].decode()


def test_of_many_boxes_some_are_drawn_and_it_says_how_many(
    tiles: tblctl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planes, "MOST_BOXES", 2)
    picture = picture_of_table(tiles, 6)
    assert (picture.planes[0].level.size, picture.planes[0].block_count) == (2, 4)
    assert "2 of 4 blocks" in texts(picture)


def test_as_many_boxes_as_are_drawn_fit_into_a_small_file(tiles: tblctl.Table) -> None:
    rng = np.random.default_rng(1)
    picture = picture_of_table(tiles, 5, 6)
    half = planes.MOST_BOXES // 2
    begin = rng.random((2, half))
    end = begin + rng.random((2, half))
    full = tuple(
        replace(plane, begin=tuple(begin), end=tuple(end), level=np.arange(half) % 9)
        for plane in picture.planes
    )
    drawn = replace(picture, planes=full)
    assert max(len(draw_svg(drawn)[0]), len(draw_png(drawn)), len(picture_page(drawn))) <= MOST_BYTES


def test_what_the_page_tells_of_bars_is_where_they_are_drawn(tiles: tblctl.Table) -> None:
    """The picture is longer with boxes, so the bars lie in a smaller share of it."""
    picture = picture_of_table(tiles, 6)
    (_, [long]), (_, [short]) = draw_svg(picture), draw_svg(replace(picture, planes=()))
    share = HEIGHT_INCHES / (HEIGHT_INCHES + PLANES_INCHES)
    assert (long.left, long.right) == pytest.approx((short.left, short.right))
    assert (long.top, long.bottom) == pytest.approx((short.top * share, short.bottom * share))


def test_an_empty_table_has_a_plane_without_boxes(memory_url: str) -> None:
    sample = pa.table({"a": [1, 2], "b": ["x", "y"]})
    table = tblctl.create(memory_url, sample.schema, cluster_by="zorder(a, b)", sample=sample)
    assert "snapshot 1: box depth 0.00 on average and 0 at most" in texts(picture_of_table(table, 1))


def test_keys_of_three_columns_have_no_plane(memory_url: str) -> None:
    table = tblctl.create(memory_url, "a: int64, b: int64, c: int64", cluster_by="a, b, c")
    table.append(pa.table({"a": [1], "b": [1], "c": [1]}))
    table.set_cluster_key("hilbert(a, b, c)")
    assert picture_of_table(table, 3).planes == ()


def test_keys_of_one_order_have_no_plane(tiles: tblctl.Table, tmp_path: Path) -> None:
    picture = picture_of_table(tiles, 5)
    assert picture.planes == ()
    assert "Boxes" not in texts(picture)
