"""The HTML picture in a browser: it shows without scripts, describes the block under the pointer, loads nothing."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.image import imread

import tblctl
from tblctl.pictures.drawing import draw_svg
from tblctl.pictures.page import picture_page
from tblctl.pictures.picture import Picture

from .subjects import ListedVersion, picture_of, picture_of_table, random_version, table_of

POINT = """<script>
const box = svg.getBoundingClientRect();
const at = (x, y) => svg.dispatchEvent(new PointerEvent("pointermove",
  {clientX: box.left + x * box.width, clientY: box.top + y * box.height}));
at(%s, %s);
</script></body>"""


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        reason = "Chromium is not installed: run `make chromium`, or install it by hand"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{reason}; with CI=true it must be there")
        pytest.skip(reason)
    return found


def run_chromium(program: str, profile: Path, *words: str) -> str:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
    done = subprocess.run([program, *flags, *words], check=True, capture_output=True, text=True, timeout=120)
    return done.stdout


def hint_at(program: str, folder: Path, page: bytes, x: float, y: float) -> str:
    """Return what the page says when the pointer is at (x, y), as shares of the drawing from its top left."""
    file = folder / "page.html"
    file.write_text(page.decode().replace("</body>", POINT % (x, y)))
    dom = run_chromium(program, folder / "profile", "--dump-dom", file.as_uri())
    found = re.search(r'<div id="hint"[^>]*>(.*?)</div>', dom, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


def place(picture: Picture, x: float, y: float) -> tuple[float, float]:
    """Return where in the drawing a point of the first panel's blocks is, given as shares from its lower left."""
    area = draw_svg(picture)[1][0]
    return area.left + x * (area.right - area.left), area.bottom - y * (area.bottom - area.top)


def test_pointing_at_a_block_tells_its_path_rows_and_keys(chromium: str, tmp_path: Path) -> None:
    table = table_of(str(tmp_path / "t"), (1, 5), (2, 6), (10, 12))
    table.picture(tmp_path / "out.html")
    page = (tmp_path / "out.html").read_bytes()
    first = next(block for block in table.files() if block.min == (1,))
    picture = picture_of_table(table, 4)
    assert (
        hint_at(chromium, tmp_path, page, *place(picture, 0.2, 1 / 6))
        == f"{first.path}\nrows 2\nmin 1\nmax 5"
    )
    assert not hint_at(chromium, tmp_path, page, *place(picture, 0.9, 1 / 6))
    assert not hint_at(chromium, tmp_path, page, 0.5, 0.95)


def test_pointing_at_a_density_tells_of_the_blocks_there(chromium: str, tmp_path: Path) -> None:
    low = np.arange(4_800)  # every block holds the keys in the middle
    picture = picture_of(ListedVersion(low=low, high=low + 5_000, level=np.zeros(low.size, dtype=np.int64)))
    said = hint_at(chromium, tmp_path, picture_page(picture), *place(picture, 0.5, 0.5))
    assert re.fullmatch(r"level 0\n200 blocks of 200,000,000 rows\nhold keys from\n\d+\nto \d+", said)


@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_the_picture_shows_with_scripts_off_on_dark_and_on_light(
    chromium: str, tmp_path: Path, scheme: int
) -> None:
    page = picture_page(picture_of(random_version(60))).decode()
    assert "script-src 'unsafe-inline'" in page
    (tmp_path / "page.html").write_text(page.replace("script-src 'unsafe-inline'", "script-src 'none'"))
    run_chromium(
        chromium,
        tmp_path / "profile",
        f"--blink-settings=preferredColorScheme={scheme}",
        "--window-size=1000,900",
        f"--screenshot={tmp_path / 'shot.png'}",
        (tmp_path / "page.html").as_uri(),
    )
    shot = imread(tmp_path / "shot.png")[..., :3]
    background = shot[5, 5]
    assert (background.mean() < 0.2) == (scheme == 0)
    orange = abs(shot - [0xD5 / 255, 0x5E / 255, 0]).max(axis=2) < 0.02
    assert orange.sum() > 1000, "the blocks of level 0"
    ink = abs(shot - background).max(axis=2) > 0.6
    assert ink[:120].sum() > 200, "the title"


def test_the_page_names_no_other_resource() -> None:
    page = picture_page(picture_of(random_version(400))).decode()
    assert "default-src 'none'" in page
    links = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert links
    assert all(link.startswith(("#", "data:image/png")) for link in links)
    assert "url(http" not in page


def test_a_key_cannot_end_the_script(tmp_path: Path) -> None:
    table = tblctl.create(str(tmp_path / "t"), "s: string", cluster_by="s")
    table.append(pa.table({"s": ["</script><script>alert(1)</script>", "z"]}))
    table.picture(tmp_path / "out.html")
    page = (tmp_path / "out.html").read_text()
    assert page.count("</script>") == 2
    assert "<script>alert" not in page
