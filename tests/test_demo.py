"""The demo's picture: every block is a bar where its keys are, and those that the query reads stand out."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

sys.path.append(str(Path(__file__).parent.parent / "scripts"))

import demo_picture
import demo_report

SVG = "{http://www.w3.org/2000/svg}"


def bars(panel: ET.Element) -> list[tuple[float, float, str]]:
    """Return (x, width, color) of the bars from top to bottom; the query's window has an opacity, they have none."""
    found = [rect for rect in panel.iter(f"{SVG}rect") if rect.get("fill-opacity") is None]
    assert sorted(found, key=lambda rect: float(rect.get("y"))) == found
    return [(float(rect.get("x")), float(rect.get("width")), rect.get("fill")) for rect in found]


def drawn(*panels: demo_picture.Panel) -> list[ET.Element]:
    text = demo_picture.draw((panels[0], panels[1]), window=(0.4, 0.5), ticks=[(0, "0"), (1, "<1>")])
    root = ET.fromstring(text)
    assert [node.text for node in root.iter(f"{SVG}text")].count("<1>") == 2
    return list(root.iter(f"{SVG}g"))


def test_a_block_is_a_bar_over_its_keys_and_the_ones_that_are_read_stand_out():
    before = demo_picture.Panel(title="a < b", subtitle="", bars=[(0.5, 1.0), (0.0, 0.25), (0.0, 0.4)])
    after = demo_picture.Panel(title="none", subtitle="", bars=[])
    left, right = drawn(before, after)
    width = demo_picture.PANEL_WIDTH
    assert bars(left) == [
        (0, 0.25 * width, demo_picture.SKIPPED),
        (0, 0.4 * width, demo_picture.READ),
        (0.5 * width, 0.5 * width, demo_picture.READ),
    ]
    assert bars(right) == []


def test_any_number_of_blocks_fits_and_a_block_of_one_key_is_seen():
    many = demo_picture.Panel(title="", subtitle="", bars=[(i / 5000, i / 5000) for i in range(5000)])
    left, _ = drawn(many, many)
    assert all(width >= 1 for _, width, _ in bars(left))
    bottoms = [float(r.get("y")) + float(r.get("height")) for r in left.iter(f"{SVG}rect")]
    assert max(bottoms) <= demo_picture.TOP + demo_picture.PANEL_HEIGHT + 1


def test_the_report_places_dates_on_whole_years():
    def state(depth: float, *ranges: tuple[str, str]) -> dict:
        return {
            "info": {"average_depth": depth, "total_block_count": len(ranges)},
            "scan": {"blocks_read": 1, "bytes_to_read": 2**20},
            "files": [{"min": [low], "max": [high]} for low, high in ranges],
        }

    before = state(2.0, ("1992-03-01", "1995-12-31"), ("1992-01-01", "1995-07-02"))
    after = state(1.0, ("1992-01-01", "1993-12-31"), ("1994-01-01", "1995-12-31"))
    text = demo_report.picture(before, after, column="d", asked=("1995-03-01", "1995-03-07"))
    left, right = ET.fromstring(text).iter(f"{SVG}g")
    labels = [node.text for node in left.iter(f"{SVG}text")]
    assert labels[0] == "before: average depth 2.0"
    assert labels[2:] == ["1992", "1993", "1994", "1995", "1996"]
    colors = [color for _, _, color in bars(right)]
    assert colors == [demo_picture.SKIPPED, demo_picture.READ]
    assert {color for _, _, color in bars(left)} == {demo_picture.READ}
