"""`Table.picture`: what is drawn, that it is the same every time, and that any number of blocks fits into one file."""

from __future__ import annotations

import itertools
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import tblctl
from tblctl import errors
from tblctl.pictures.drawing import LEVEL_COLORS, PAPER, _bars, _figure, _settings, draw_png, draw_svg
from tblctl.pictures.page import picture_page
from tblctl.pictures.picture import MOST_BARS, history_up_to, tick_ranks
from tblctl.tableformat.model.cluster_key import Sort, parse_terms
from tblctl.tableformat.model.schema.schema import Schema

from .subjects import SEED, ListedVersion, picture_of, picture_of_table, random_version, table_of

SVG = "{http://www.w3.org/2000/svg}"
MOST_BYTES = 500_000
PNG_START = b"\x89PNG\r\n\x1a\n"


def drawn(table: tblctl.Table, folder: Path, **settings) -> str:
    table.picture(folder / "out.svg", **settings)
    return (folder / "out.svg").read_text()


def texts(svg: str) -> list[str]:
    return [node.text for node in ET.fromstring(svg).iter(f"{SVG}text")]


def test_ranks_of_blocks_are_places_of_real_keys(memory_url: str):
    picture = picture_of_table(table_of(memory_url, (1, 5), (2, 6), (10, 12)), 4)
    panel = picture.panels[0]
    assert [picture.axis.text(rank) for rank in range(picture.axis.rank_count)] == [
        "1",
        "2",
        "5",
        "6",
        "10",
        "12",
    ]
    assert (panel.low.tolist(), panel.high.tolist()) == ([0, 1, 4], [2, 3, 5])
    assert panel.bands[0].depths.tolist() == [1, 2, 2, 1, 1, 1]


def test_a_bar_covers_the_keys_from_its_first_to_its_last_whole():
    keys = np.array([0, 10, 20])
    version = ListedVersion(low=keys[[0, 1]], high=keys[[2, 1]], level=np.zeros(2, dtype=np.int64))
    [panel] = picture_of(version).panels
    corners = _bars(panel, panel.bands[0]).vertices.reshape(2, 5, 2)[:, :4, 0]
    assert corners.tolist() == [[0, 3, 3, 0], [1, 2, 2, 1]]


def test_a_picture_shows_keys_levels_and_figures(memory_url: str, tmp_path: Path):
    svg = drawn(table_of(memory_url, (1, 5), (2, 6), (10, 12), (7, 7)), tmp_path)
    found = texts(svg)
    assert {"table, snapshot 5, by a", "level 0", "1", "12", "snapshot", "Depth histogram", "History"} <= set(
        found
    )
    assert "snapshot 5: 4 blocks, depth 1.50 on average and 2 at most" in found
    assert LEVEL_COLORS[0] in svg


def test_two_versions_share_one_axis_of_keys(memory_url: str, tmp_path: Path):
    table = table_of(memory_url, (1, 50), (20, 60))
    table.recluster()
    picture = picture_of_table(table, 3, 4)
    first, second = picture.panels
    assert (first.sequence, second.sequence) == (3, 4)
    assert picture.axis.rank_count == len({1, 50, 20, 60})
    assert [picture.axis.text(rank) for rank in second.low.tolist()] == ["1"]
    assert [band.level for band in second.bands] == [1]
    found = texts(drawn(table, tmp_path, compare=(3, 4)))
    assert {"level 0", "level 1", "snapshot 3", "snapshot 4"} <= set(found)


def test_a_version_before_a_key_was_altered_is_compared_by_the_new_key(memory_url: str, tmp_path: Path):
    table = tblctl.create(memory_url, "a: int32, b: int64", cluster_by="b")
    table.append(pa.table({"a": pa.array([1, 2], pa.int32()), "b": [2, 1]}))
    table.widen_column("a", "int64")
    table.set_cluster_key("a")
    table.append(pa.table({"a": [1, 2], "b": [2, 1]}))
    found = texts(drawn(table, tmp_path, compare=(2, 5)))
    assert "not drawn: 1 unclustered" in found
    found = texts(drawn(table, tmp_path, compare=(2, 5), columns="a"))
    assert not any(text.startswith("not drawn") for text in found)


def test_a_column_that_the_older_version_lacks_is_named(memory_url: str, tmp_path: Path):
    table = table_of(memory_url, (1, 2))
    table.add_column("b", "int64")
    table.append(pa.table({"a": [1, 2], "b": [5, 6]}))
    with pytest.raises(
        errors.InvalidKeyError, match=r"snapshot 2 of .* has no column b .* snapshots 2 and 4 both"
    ):
        table.picture(tmp_path / "out.svg", compare=(2, 4), columns="b")


def test_where_draws_only_blocks_that_may_match(memory_url: str, tmp_path: Path):
    table = table_of(memory_url, (1, 5), (2, 6), (10, 12))
    found = texts(drawn(table, tmp_path, where="a < 7"))
    assert "12" not in found
    assert "only blocks that may hold rows with a < 7" in found
    (cut,) = [
        text
        for text in texts(drawn(table, tmp_path, where="a < 7 and " * 50 + "a < 7"))
        if "hold rows" in text
    ]
    assert cut.endswith("…")
    assert len(cut) < 150


def test_blocks_of_unknown_range_are_counted_below_the_others(memory_url: str, tmp_path: Path):
    found = texts(drawn(table_of(memory_url, (1, 5), (2, 6)), tmp_path, columns="bucket(4, a)"))
    assert "not drawn: 2 of unknown range" in found


def test_history_tells_ingested_from_rewritten_and_the_depth_after_each_snapshot(memory_url: str):
    table = table_of(memory_url, (1, 50), (20, 60))
    table.recluster()
    table.append(pa.table({"a": [5, 55]}))
    table.delete("a = 20")
    history = picture_of_table(table, 6).history
    assert history.sequences == (1, 2, 3, 4, 5, 6)
    assert [size > 0 for size in history.ingested] == [False, True, True, False, True, False]
    assert [size > 0 for size in history.rewritten] == [False, False, False, True, False, True]
    assert history.depths == ((1, 0.0), (2, 1.0), (3, 2.0), (4, 1.0), (5, 2.0), (6, 2.0))


def test_history_ends_with_the_version_that_is_drawn(memory_url: str, tmp_path: Path, monkeypatch):
    table = table_of(memory_url, *[(1, 2)] * 6)
    drawn = []
    monkeypatch.setattr("tblctl.pictures.file.write_picture", lambda picture, path: drawn.append(picture))
    tblctl.open(table.location, as_of=5).picture(tmp_path / "out.svg")
    table.picture(tmp_path / "out.svg", compare=(2, 4))
    assert [picture.history.sequences for picture in drawn] == [(1, 2, 3, 4, 5), (1, 2, 3, 4)]


def test_history_shows_no_more_snapshots_than_its_limit(memory_url: str):
    table = table_of(memory_url, *[(1, 2)] * 6)
    history = history_up_to(table._port.version("5"), table._port, most_shown=3)
    assert history.sequences == (3, 4, 5)


def test_the_same_picture_is_the_same_bytes_in_another_process_with_other_settings(tmp_path: Path):
    table = table_of(str(tmp_path / "t"), (1, 5), (2, 6))
    program = (
        "import sys, tblctl, matplotlib\n"
        "matplotlib.rcParams['axes.facecolor'] = 'red'\n"
        "for name in ('there.svg', 'there.png', 'there.html'):\n"
        "    tblctl.open(sys.argv[1] + '/t').picture(sys.argv[1] + '/' + name)"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True, timeout=120)
    for kind in ("svg", "png", "html"):
        table.picture(tmp_path / f"here.{kind}")
        assert (tmp_path / f"here.{kind}").read_bytes() == (tmp_path / f"there.{kind}").read_bytes()


def test_drawing_needs_no_display_and_leaves_the_programs_settings_alone(tmp_path: Path):
    table_of(str(tmp_path / "t"), (1, 5), (2, 6))
    program = (
        "import sys, tblctl, matplotlib\n"
        "before = matplotlib.rcParams.copy()\n"
        "tblctl.open(sys.argv[1]).picture(sys.argv[2])\n"
        "assert matplotlib.rcParams.copy() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    words = [sys.executable, "-W", "error", "-c", program, tmp_path / "t", tmp_path / "out.png"]
    subprocess.run(words, check=True, timeout=120)


@pytest.mark.parametrize("count", [0, 1, 3, 60, MOST_BARS, MOST_BARS + 1, 100_000])
def test_any_number_of_blocks_fits_into_a_small_file(count: int):
    print(f"seed {SEED}")
    one, two = random_version(count), random_version(min(count, MOST_BARS))
    for picture in (picture_of(one), picture_of(one, two)):
        sizes = [len(draw_svg(picture)[0]), len(draw_png(picture)), len(picture_page(picture))]
        assert max(sizes) <= MOST_BYTES, sizes


@pytest.mark.filterwarnings("error")
def test_long_keys_of_4_bytes_a_character_fit_too_and_need_no_font():
    schema = Schema.create(pa.schema([("s", pa.string())]))
    numbers = np.random.default_rng(SEED).integers(10**7, 10**8, (2, MOST_BARS))
    keys = np.array([f"漢{'😀' * 60}{number}" for number in np.sort(numbers, axis=0).flat], dtype=object)
    version = ListedVersion(
        low=keys[:MOST_BARS],
        high=keys[MOST_BARS:],
        level=np.arange(MOST_BARS) % 9,
        schema=schema,
        sort=Sort(id=1, terms=parse_terms("s", schema)),
    )
    picture = picture_of(version, version)
    assert len(picture_page(picture)) <= MOST_BYTES
    assert draw_png(picture).startswith(PNG_START)


def test_a_hundred_thousand_blocks_are_an_image_and_not_as_many_elements():
    svg = draw_svg(picture_of(random_version(100_000, levels=3)))[0].decode()
    root = ET.fromstring(svg)
    assert len(list(root.iter(f"{SVG}image"))) == 4
    assert len(list(root.iter())) < 1000


def test_keys_that_are_longer_than_the_page_or_no_xml_are_shown_shortened_and_escaped(
    memory_url: str, tmp_path: Path
):
    table = tblctl.create(memory_url, "s: string", cluster_by="s")
    table.append(pa.table({"s": ["\x00<&>$x_1$\u202e", "z" * 300]}))
    table.append(pa.table({"s": ["m\n", None]}))
    found = texts(drawn(table, tmp_path))
    assert r"\x00<&>$x_1$\u202e" in found
    assert "null" in found
    table.picture(tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(PNG_START)


def test_labels_of_long_keys_leave_room_between_them():
    keys = np.arange(100) * 10**16
    picture = picture_of(ListedVersion(low=keys, high=keys, level=np.zeros(100, dtype=np.int64)))
    svg = draw_svg(picture)[0].decode()
    shown = [text for text in texts(svg) if text.isdecimal() and len(text) > 10]
    assert 2 <= len(shown) <= 5
    assert (shown[0], shown[-1]) != ("", "")
    assert tick_ranks(picture.axis, 7)[-1] == 99


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 12, 60])
@pytest.mark.parametrize("versions", [1, 2])
def test_labels_of_keys_do_not_cover_each_other(count: int, versions: int):
    keys = np.datetime64("2024-01-01T20:00:00", "us") + np.arange(count) * np.timedelta64(7_777, "s")
    schema = Schema.create(pa.schema([("ts", pa.timestamp("us"))]))
    sort = Sort(id=1, terms=parse_terms("ts", schema))
    version = ListedVersion(
        low=keys, high=keys, level=np.zeros(count, dtype=np.int64), schema=schema, sort=sort
    )
    with _settings():
        figure, block_axes = _figure(picture_of(*[version] * versions), PAPER)
        FigureCanvasAgg(figure).draw()
    for axes in block_axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        assert len(boxes) == 1 if count == 1 else 2 <= len(boxes) <= count
        for left, right in itertools.pairwise(boxes):
            assert left.x1 < right.x0


def test_an_empty_table_has_an_empty_picture_of_zeros(memory_url: str, tmp_path: Path):
    found = texts(drawn(table_of(memory_url), tmp_path))
    assert "snapshot 1: 0 blocks, depth 0.00 on average and 0 at most" in found


@pytest.mark.parametrize("name", ["out.gif", "out", "svg"])
def test_an_unknown_extension_names_those_that_are_known(memory_url: str, tmp_path: Path, name: str):
    with pytest.raises(errors.InvalidOptionError, match=r"\.svg, \.png, \.html"):
        table_of(memory_url).picture(tmp_path / name)


def test_a_picture_that_cannot_be_written_is_named(memory_url: str, tmp_path: Path):
    table = table_of(memory_url)
    with pytest.raises(errors.InvalidOptionError, match=r"there is no folder .*nowhere"):
        table.picture(tmp_path / "nowhere" / "out.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(errors.InvalidOptionError, match=r"folder\.svg' cannot be written: Is a directory"):
        table.picture(tmp_path / "folder.svg")


def test_without_matplotlib_the_extra_is_named(memory_url: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tblctl.pictures.file.find_spec", lambda name: None)
    with pytest.raises(errors.InvalidOptionError, match=r"pip install '\.\[pictures\]'"):
        table_of(memory_url).picture(tmp_path / "out.svg")


def test_a_table_without_key_asks_for_columns(memory_url: str, tmp_path: Path):
    table = tblctl.create(memory_url, "a: int64")
    table.append(pa.table({"a": [1, 2]}))
    with pytest.raises(errors.InvalidKeyError, match="--columns"):
        table.picture(tmp_path / "out.svg")
    assert "table, snapshot 2, by a" in texts(drawn(table, tmp_path, columns="a"))


def test_versions_that_cannot_be_read_are_named(memory_url: str, tmp_path: Path):
    table = table_of(memory_url, (1, 2), (3, 4))
    table.gc(keep=1, older_than=0)
    with pytest.raises(errors.SnapshotNotFoundError, match="2"):
        table.picture(tmp_path / "out.svg", compare=(2, 3))
    with pytest.raises(errors.SnapshotNotFoundError, match="nosuch"):
        table.picture(tmp_path / "out.svg", compare=("nosuch", 3))
    assert not (tmp_path / "out.svg").exists()


def test_blocks_of_two_partitions_lie_apart_on_the_axis_and_share_no_depth():
    partitions = ("b", "a", "b", "a", "")
    low, high = np.array([0, 0, 5, 3, 1]), np.array([9, 9, 7, 9, 2])
    picture = picture_of(ListedVersion(low=low, high=high, level=np.zeros(5, int), partition=partitions))
    [panel] = picture.panels
    assert panel.info.depth.max == 2
    assert max(band.depths.max() for band in panel.bands) == 2
    texts = [picture.axis.text(rank) for rank in range(picture.axis.rank_count)]
    assert texts[:2] == ["(no partition): 1", "(no partition): 2"]
    assert texts[2:] == ["a: 0", "a: 3", "a: 9", "b: 0", "b: 5", "b: 7", "b: 9"]


def test_two_versions_with_other_partitions_share_one_axis():
    first = ListedVersion(low=np.array([0]), high=np.array([1]), level=np.zeros(1, int), partition=("b",))
    second = ListedVersion(
        low=np.array([0, 0]), high=np.array([1, 1]), level=np.zeros(2, int), partition=("a", "b")
    )
    picture = picture_of(first, second)
    texts = [[picture.axis.text(rank) for rank in panel.low.tolist()] for panel in picture.panels]
    assert texts == [["b: 0"], ["a: 0", "b: 0"]]
