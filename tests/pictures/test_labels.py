"""What a picture says of itself: its title, the last bar, and colours that mean one thing."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tblctl
from tblctl.pictures.drawing import (
    CONSTANT_COLOR,
    INGESTED_COLOR,
    LEVEL_COLORS,
    REWRITTEN_COLOR,
    VERSION_COLORS,
    _range,
    draw_svg,
)

from .subjects import picture_of_table


def test_a_colour_of_a_level_means_nothing_else() -> None:
    others = {*VERSION_COLORS, INGESTED_COLOR, REWRITTEN_COLOR}
    assert len(others) == 4
    assert others & {*LEVEL_COLORS, CONSTANT_COLOR} == set()


@pytest.mark.parametrize(
    ("label", "text"), [("00001", "1"), ("00016", "16"), ("00032", "17 to 32"), ("01024", "513 to 1Ki")]
)
def test_a_last_bar_is_labelled_by_its_range(label: str, text: str) -> None:
    assert _range(label) == text


def test_the_title_says_table_snapshot_and_key_and_the_last_bar_its_range(memory_url: str) -> None:
    table = tblctl.create(memory_url, "k: int64", cluster_by="k", options={"block_rows": 2})
    for number in range(20):
        table.append(pa.table({"k": [number, 100]}))
    one, two = picture_of_table(table, 21), picture_of_table(table, 20, 21)
    assert one.title.endswith(", snapshot 21, by k")
    assert two.title.endswith(", snapshots 20 and 21, by k")
    svg = draw_svg(one)[0].decode()
    assert one.title in svg
    assert ">17 to 32<" in svg
