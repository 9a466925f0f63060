"""Draw a `tblctl.pictures.picture.Picture` with matplotlib, as SVG or PNG.

The same picture gives the same bytes: ids are hashed with a fixed salt, and no date is written. Colours are those of
Okabe and Ito. People with any colour vision can tell them apart, on light and on dark backgrounds.
"""

from __future__ import annotations

import io
import math
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tblctl.metrics.information import EXACT_BUCKETS
from tblctl.metrics.intervals import Integers
from tblctl.metrics.layout import LAST_LEVEL, Band, density
from tblctl.pictures.asked import AskedPicture
from tblctl.pictures.picture import Panel, Picture, printable, tick_ranks
from tblctl.pictures.planes import Plane

WIDTH_INCHES = 9.6
HEIGHT_INCHES = 7.0
PLANES_INCHES = 5.2  # more, if there are boxes
IMAGE_ROWS = 72
"""The most rows that the image of a density has over the whole height. With more, a sorted level of many blocks is a
line too thin to see on a page that is empty otherwise."""

LEVEL_COLORS = ("#d55e00", "#e69f00", "#56b4e9", "#0072b2", "#009e73", "#cc79a7", "#b8a500", "#7f6fc4")
CONSTANT_COLOR = "#8a939c"
VERSION_COLORS = ("#c49c94", "#8c564b")  # where two are compared; no level has them
INGESTED_COLOR, REWRITTEN_COLOR = "#b9c0c7", "#5c6570"

_SHADES = 15  # of a density, so that its image stays small
_FAINTEST = 0.3
_BAR_SHARE = 0.8  # of the room for a bar
_THICKEST_BAR = 0.12  # of the height
_FONT_SIZE = 8.0
_CHARACTER_INCHES = 0.6 * _FONT_SIZE / 72  # DejaVu Sans, on average
_KEY_ROOM = 1.6  # of the longest key: the outermost two stand within the axis
_MOST_KEYS = 7
_TITLE_LENGTH = 64  # characters
_END_LENGTH = 24
_BOX_SHADE = 0.12  # how opaque boxes are: what many share shows through their edges
_NO_QUERY = 0.3  # how opaque a time without queries is
_MANY_BUCKETS = 12
_SETTINGS: Any = {  # (matplotlib types the names of its settings one by one)
    "svg.hashsalt": "tblctl",
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": _FONT_SIZE,
    "text.parse_math": False,  # a key may hold dollars
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
}
_SETTINGS_LOCK = threading.Lock()  # matplotlib's settings are the process's


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of everything but data. Without `background` the drawing is transparent."""

    ink: str
    faint: str
    background: str | None


ANY_THEME = Theme(ink="#7a838d", faint="#8c959f", background=None)
"""Readable on light and on dark backgrounds."""

PAPER = Theme(ink="#1f2328", faint="#8c959f", background="#ffffff")


@dataclass(frozen=True, kw_only=True)
class Area:
    """Where the axes of a panel's blocks lie in the drawing, as shares of its size from the top left corner."""

    left: float
    top: float
    right: float
    bottom: float


def draw_svg(picture: Picture, theme: Theme = ANY_THEME) -> tuple[bytes, tuple[Area, ...]]:
    """Return the SVG, and where it shows the blocks of each panel."""
    with _settings():
        figure, axes = _figure(picture, theme)
        areas = tuple(_area(item, figure) for item in axes)
        output = io.BytesIO()
        figure.savefig(output, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return output.getvalue(), areas


def draw_png(picture: Picture, theme: Theme = PAPER) -> bytes:
    """Return the PNG, 1,440 pixels wide."""
    with _settings():
        figure, _ = _figure(picture, theme)
        output = io.BytesIO()
        figure.savefig(output, format="png", metadata={"Software": None})
    return output.getvalue()


def draw_asked(picture: AskedPicture, kind: str) -> bytes:
    """Return what a table is asked as `svg` or `png`: above over time, below the hot ranges."""
    rows = len(picture.columns) + len(picture.hot)
    with _settings():
        theme = PAPER if kind == "png" else ANY_THEME
        figure = Figure(figsize=(WIDTH_INCHES, 1.6 + 0.24 * rows), layout="constrained")
        figure.patch.set_facecolor(theme.background or "none")
        above, below = figure.subplots(2, 1, height_ratios=[len(picture.columns), max(len(picture.hot), 1)])
        figure.suptitle(picture.title[:_TITLE_LENGTH], color=theme.ink, fontsize=_FONT_SIZE + 2)
        _draw_over_time(above, picture, theme)
        _draw_hot(below, picture, theme)
        output = io.BytesIO()
        names = ("Software",) if kind == "png" else ("Creator", "Date", "Format", "Type")
        figure.savefig(output, format=kind, metadata=dict.fromkeys(names))
    return output.getvalue()


def _draw_over_time(axes: Axes, picture: AskedPicture, theme: Theme) -> None:
    """Draw which share of the queries tests a column: a row each, the darker the more; empty where none ran."""
    ink = to_rgb(LEVEL_COLORS[3])
    cells = np.zeros((*picture.shares.shape, 4))
    cells[..., :3] = ink
    cells[..., 3] = picture.shares
    cells[np.isnan(picture.shares)] = to_rgba(theme.faint, _NO_QUERY)
    axes.imshow(cells, aspect="auto", interpolation="nearest", extent=(0, 1, len(picture.columns), 0))
    axes.set_yticks(np.arange(len(picture.columns)) + 0.5, picture.columns)
    axes.set_xticks([0, 1], picture.times)
    first, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    axes.set_title(
        "asked for over time: full colour is every query, grey is none at all",
        color=theme.ink,
        fontsize=_FONT_SIZE,
    )
    axes.tick_params(colors=theme.ink, length=0)


def _draw_hot(axes: Axes, picture: AskedPicture, theme: Theme) -> None:
    """Draw the share of all queries that ask for each hot range."""
    places = np.arange(len(picture.hot))
    colors = [LEVEL_COLORS[number % len(LEVEL_COLORS)] for number, _, _ in picture.hot]
    axes.barh(places, [share for _, _, share in picture.hot], height=_BAR_SHARE, color=colors)
    axes.set_yticks(places, [f"{picture.columns[number]}: {text}" for number, text, _ in picture.hot])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.set_title("hot ranges: share of the queries", color=theme.ink, fontsize=_FONT_SIZE)
    axes.tick_params(colors=theme.ink)
    for spine in axes.spines.values():
        spine.set_color(theme.faint)


@contextmanager
def _settings() -> Iterator[None]:
    """Draw with settings of our own, whatever the program or its user has set."""
    with _SETTINGS_LOCK, mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        # The viewer of an SVG has its own fonts; in a PNG a box stands for what DejaVu Sans lacks.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        yield


def _area(axes: Axes, figure: Figure) -> Area:
    box = axes.bbox.transformed(figure.transFigure.inverted())
    return Area(left=box.x0, top=1 - box.y1, right=box.x1, bottom=1 - box.y0)


def _figure(picture: Picture, theme: Theme) -> tuple[Figure, list[Axes]]:
    """Return the whole drawing, and the axes that show the blocks of each panel."""
    more = PLANES_INCHES if picture.planes else 0.0
    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES + more), dpi=150)
    figure.patch.set(visible=theme.background is not None, facecolor=theme.background or "none")
    if picture.planes:
        upper, lower = figure.subfigures(2, 1, height_ratios=(HEIGHT_INCHES, more), squeeze=False)[:, 0]
        areas = _draw_panels(upper, picture, theme)
        _draw_planes(lower, picture, theme)
    else:
        areas = _draw_panels(figure, picture, theme)
    for axes in figure.axes:
        _tint(axes, theme)
    return figure, areas


def _draw_panels(figure: FigureBase, picture: Picture, theme: Theme) -> list[Axes]:
    """Draw blocks, depths and history; return the axes that show the blocks of each panel."""
    sides = {"left": 0.075, "right": 0.925, "wspace": 0.24}
    shares = figure.add_gridspec(
        2, len(picture.panels), top=0.87, bottom=0.392, height_ratios=(1, 3), hspace=0.08, **sides
    )
    below = figure.add_gridspec(2, 2, top=0.248, bottom=0.075, hspace=0.25, **sides)
    wide = len(picture.panels) == 1
    figure.text(
        0.075,
        0.935 if wide else 0.957,
        _shorten(picture.title, _TITLE_LENGTH),
        size=13,
        weight="bold",
        color=theme.ink,
    )
    deepest = max(panel.info.depth.max or 0 for panel in picture.panels)
    areas = []
    for number, panel in enumerate(picture.panels):
        depth_axes, block_axes = (figure.add_subplot(shares[row, number]) for row in (0, 1))
        _draw_depths(depth_axes, picture, panel, deepest)
        depth_axes.set_title(headline(panel, wide=wide), loc="left", size=_FONT_SIZE + 0.5, color=theme.ink)
        _draw_blocks(block_axes, picture, panel)
        areas.append(block_axes)
    _draw_histogram(figure.add_subplot(below[:, 0]), picture.panels, theme)
    _draw_history(figure.add_subplot(below[0, 1]), figure.add_subplot(below[1, 1]), picture, theme)
    areas[0].set_ylabel("blocks, by level")
    return areas


def headline(panel: Panel, *, wide: bool) -> str:
    """Return the title above a version's blocks, in one line or two."""
    found = panel.info
    noun = "block" if found.total_block_count == 1 else "blocks"
    depth, most = found.average_depth, found.depth.max
    known = depth is not None and most is not None
    return f"snapshot {panel.sequence}: {found.total_block_count:,} {noun}{', ' if wide else chr(10)}" + (
        f"depth {depth:,.2f} on average and {most:,} at most" if known else "depth unknown"
    )


def captions(picture: Picture, panel: Panel) -> list[str]:
    """Return the lines below a panel: what its axis shows, and which blocks are not drawn."""
    found = panel.info
    apart = [
        f"{count:,} {word}"
        for count, word in (
            (found.unclustered_block_count, "unclustered"),
            (found.unknown_block_count, "of unknown range"),
        )
        if count
    ]
    return [
        f"{'by partition, then ' if picture.axis.partitions else ''}{picture.terms}, in key order",
        *([f"only blocks that may hold rows with {picture.where}"] if picture.where is not None else []),
        *([f"not drawn: {', '.join(apart)}"] if apart else []),
        *(
            [f"drawn wider than it may be: {found.inexact_block_count:,}"]
            if found.inexact_block_count
            else []
        ),
    ]


def level_name(level: int) -> str:
    """Return the name of a band."""
    if level < 0:
        return "constant"
    return f"level {level}" + ("+" if level == LAST_LEVEL else "")


def level_color(level: int) -> str:
    """Return the colour of a band."""
    return CONSTANT_COLOR if level < 0 else LEVEL_COLORS[level]


def _draw_depths(axes: Axes, picture: Picture, panel: Panel, deepest: int) -> None:
    """Draw the depth over the key axis, one stacked area a level."""
    columns = picture.axis.columns
    edges = np.linspace(0, max(1, picture.axis.rank_count), columns + 1)
    upper = np.cumsum([band.depths for band in panel.bands], axis=0)
    # Each area is drawn over the one before, from the top down, so that a path has only one long side.
    for band, depths in zip(panel.bands[::-1], upper[::-1], strict=True):
        axes.stairs(depths, edges, fill=True, color=level_color(band.level), linewidth=0)
    axes.set(xlim=(edges[0], edges[-1]), ylabel="depth")
    _count_up(axes, most=deepest, whole=True)
    axes.tick_params(axis="x", bottom=False, labelbottom=False)


def _draw_blocks(axes: Axes, picture: Picture, panel: Panel) -> None:
    """Draw the blocks over the key axis: each as a bar, or their number as a shade."""
    width = max(1, picture.axis.rank_count)
    axes.spines["left"].set_visible(False)
    for band in panel.bands:
        color = level_color(band.level)
        if panel.has_bars:
            axes.add_patch(PathPatch(_bars(panel, band), facecolor=color, linewidth=0))
        else:
            image = _image(panel, band, color, rank_count=width, columns=picture.axis.columns)
            axes.imshow(
                image,
                extent=(0, width, band.bottom, band.top),
                aspect="auto",
                origin="lower",
                interpolation="none",
            )
        axes.annotate(
            level_name(band.level),
            (width, (band.bottom + band.top) / 2),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=color,
            weight="bold",
            annotation_clip=False,
        )
    inches = WIDTH_INCHES * axes.get_position().width
    lines = [_shorten(line, int(inches / _CHARACTER_INCHES)) for line in captions(picture, panel)]
    axes.set(xlim=(0, width), ylim=(0, 1), yticks=[], xlabel="\n".join(lines))
    _mark_keys(axes, picture, inches=inches)


def bar_heights(band: Band) -> Iterator[tuple[int, float, float]]:
    """Yield each block's number, bottom and top."""
    pitch = (band.top - band.bottom) / len(band.members)
    half = min(_BAR_SHARE * pitch, _THICKEST_BAR) / 2
    for place, block in enumerate(band.members.tolist()):
        middle = band.bottom + (place + 0.5) * pitch
        yield block, middle - half, middle + half


def _bars(panel: Panel, band: Band) -> Path:
    low, high = panel.low.tolist(), panel.high.tolist()
    corners = [
        ((low[block], bottom), (high[block] + 1, bottom), (high[block] + 1, top), (low[block], top), (0, 0))
        for block, bottom, top in bar_heights(band)
    ]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(corners)
    return Path(np.array(corners, dtype=float).reshape(-1, 2), codes)


def _image(panel: Panel, band: Band, color: str, *, rank_count: int, columns: int) -> np.ndarray:
    """Return the band as RGBA bytes. A cell is more opaque the more of its row's blocks hold the key."""
    rows = max(1, min(len(band.members), round(IMAGE_ROWS * (band.top - band.bottom))))
    low, high = panel.low[band.members], panel.high[band.members]
    counts = density(low, high, np.ones_like(low), rank_count=rank_count, rows=rows, columns=columns)
    blocks_of_row = np.bincount(np.arange(low.size) * rows // low.size, minlength=rows)[:, None]
    share = np.sqrt(counts / blocks_of_row)
    shade = np.round((_FAINTEST + (1 - _FAINTEST) * share) * _SHADES) / _SHADES
    image = np.empty((*counts.shape, 4), dtype=np.uint8)
    image[..., :3] = np.round(np.array(to_rgb(color)) * 255)
    image[..., 3] = np.where(counts > 0, np.round(shade * 255), 0)
    return image


def _mark_keys(axes: Axes, picture: Picture, *, inches: float) -> None:
    """Label as many ranks with their keys as there is room for, and at least the first and the last."""
    axis = picture.axis
    longest = max((len(axis.text(rank)) for rank in tick_ranks(axis, _MOST_KEYS)), default=1)
    under_one = math.ceil(_KEY_ROOM * longest * _CHARACTER_INCHES * axis.rank_count / inches) or 1
    ranks = tick_ranks(axis, max(2, min(_MOST_KEYS, 1 + (axis.rank_count - 1) // under_one)))
    length = int(inches / (1.1 * max(1, len(ranks)) * _CHARACTER_INCHES))
    places = [rank + 0.5 for rank in ranks]
    if len(ranks) > 1:
        places[0], places[-1] = 0.0, float(axis.rank_count)
    labels = axes.set_xticks(places, [_shorten(axis.text(rank), length) for rank in ranks])
    if len(labels) > 1:
        labels[0].label1.set_horizontalalignment("left")
        labels[-1].label1.set_horizontalalignment("right")


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _draw_planes(figure: FigureBase, picture: Picture, theme: Theme) -> None:
    """Draw the boxes of each version in the plane of the two columns of the key."""
    figure.text(0.075, 0.95, "Boxes", size=_FONT_SIZE + 1, weight="bold", color=theme.ink)
    grid = figure.add_gridspec(
        1, len(picture.planes), left=0.075, right=0.925, top=0.86, bottom=0.13, wspace=0.24
    )
    for number, (plane, panel) in enumerate(zip(picture.planes, picture.panels, strict=True)):
        axes = figure.add_subplot(grid[0, number])
        axes.set_title(plane_headline(plane, panel), loc="left", size=_FONT_SIZE + 0.5, color=theme.ink)
        shown = np.maximum(np.minimum(plane.level, LAST_LEVEL), -1)
        for level in np.unique(shown).tolist():
            color = level_color(level)
            path = _rectangles(plane, np.flatnonzero(shown == level))
            inside = to_rgba(color, _BOX_SHADE)
            axes.add_patch(PathPatch(path, facecolor=inside, edgecolor=color, linewidth=0.5))
        _mark_ends(axes, plane)


def plane_headline(plane: Plane, panel: Panel) -> str:
    """Return the title above the boxes of a version."""
    boxes, drawn = panel.info.boxes, plane.level.size
    mean, most = (None, None) if boxes is None else (boxes.depth.mean, boxes.depth.max)
    known = mean is not None and most is not None
    text = f"box depth {mean:,.2f} on average and {most:,} at most" if known else "box depth unknown"
    some = f"\n{drawn:,} of {plane.block_count:,} blocks" if drawn < plane.block_count else ""
    return f"snapshot {panel.sequence}: {text}{some}"


def _rectangles(plane: Plane, blocks: Integers) -> Path:
    """Return the boxes of some blocks."""
    left, right = plane.begin[0][blocks], plane.end[0][blocks]
    bottom, top = plane.begin[1][blocks], plane.end[1][blocks]
    nothing = np.zeros_like(left)
    across = np.stack((left, right, right, left, nothing), axis=1)
    up = np.stack((bottom, bottom, top, top, nothing), axis=1)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(blocks)
    return Path(np.stack((across.ravel(), up.ravel()), axis=1), codes)


def _mark_ends(axes: Axes, plane: Plane) -> None:
    """Label the axes of a plane with the columns, and with their least and greatest values."""
    across, up = plane.axes
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set(xlabel=f"{printable(across.name)}, by rows", ylabel=f"{printable(up.name)}, by rows")
    texts = [
        [_shorten(printable(text), _END_LENGTH) for text in (axis.least, axis.greatest)]
        for axis in (across, up)
    ]
    left, right = axes.set_xticks((0, 1), texts[0])
    left.label1.set_horizontalalignment("left")
    right.label1.set_horizontalalignment("right")
    bottom, top = axes.set_yticks((0, 1), texts[1], rotation="vertical")
    bottom.label1.set_verticalalignment("bottom")
    top.label1.set_verticalalignment("top")


def _draw_histogram(axes: Axes, panels: Sequence[Panel], theme: Theme) -> None:
    """Draw the number of blocks of each depth, for each version."""
    found = [dict(panel.info.block_depth_histogram) for panel in panels]
    buckets = sorted({label for item in found for label in item}, key=int)
    width = _BAR_SHARE / len(panels)
    for number, (panel, counts) in enumerate(zip(panels, found, strict=True)):
        heights = [counts.get(label, 0) for label in buckets]
        places = [place + (number - (len(panels) - 1) / 2) * width for place in range(len(buckets))]
        color = VERSION_COLORS[1] if len(panels) == 1 else VERSION_COLORS[number]
        bars = axes.bar(places, heights, width, color=color, label=f"snapshot {panel.sequence}")
        if len(buckets) * len(panels) <= _MANY_BUCKETS:
            shown = [f"{height:,}" if height else "" for height in heights]
            axes.bar_label(bars, shown, padding=1, color=theme.ink)
    step = max(1, math.ceil(len(buckets) / _MANY_BUCKETS))
    last = len(buckets) - 1
    marked = [place for place in range(0, last, step) if last - place >= step] + ([last] if buckets else [])
    axes.set_xticks(
        marked, [_range(buckets[place]) if place == last else _bucket(buckets[place]) for place in marked]
    )
    axes.set(xlabel="depth of a block (above 16: up to)", ylabel="blocks")
    axes.set_xlim(-0.6, max(3, len(buckets)) - 0.4)
    _count_up(axes, most=max((count for item in found for count in item.values()), default=0), whole=True)
    axes.set_title("Depth histogram", loc="left", size=_FONT_SIZE + 1, weight="bold", color=theme.ink)
    if len(panels) > 1:
        _legend(axes, theme)


def _bucket(label: str) -> str:
    """Return the largest depth in a bucket of the histogram; from 1,024 on they are powers of two."""
    depth = int(label)
    step = (depth.bit_length() - 1) // 10
    return f"{depth >> 10 * step}{('', 'Ki', 'Mi', 'Gi')[step]}"


def _range(label: str) -> str:
    """Return the depths of a bucket, from the least to the largest."""
    most = int(label)
    return _bucket(label) if most <= EXACT_BUCKETS else f"{_bucket(str(most // 2 + 1))} to {_bucket(label)}"


def _draw_history(depths: Axes, written: Axes, picture: Picture, theme: Theme) -> None:
    """Draw the average depth, and the bytes written, snapshot by snapshot."""
    history = picture.history
    at, known = zip(*history.depths, strict=True) if history.depths else ((), ())
    depths.plot(at, known, color=VERSION_COLORS[1], marker="o", markersize=3, linewidth=1.2)
    _count_up(depths, most=max(known, default=0))
    depths.set(ylabel="depth")
    depths.tick_params(axis="x", labelbottom=False)
    depths.set_title("History", loc="left", size=_FONT_SIZE + 1, weight="bold", color=theme.ink)
    most_bytes = max((*history.ingested, *history.rewritten), default=0)
    unit, unit_bytes = _unit(most_bytes)
    for name, sizes, color in (
        ("bytes ingested", history.ingested, INGESTED_COLOR),
        ("bytes rewritten", history.rewritten, REWRITTEN_COLOR),
    ):
        heights = [size / unit_bytes for size in sizes]
        depths.plot([], [], color=color, linewidth=4, label=name)
        written.bar(history.sequences, heights, 0.9, color=color)
    _count_up(written, most=most_bytes / unit_bytes)
    written.set(ylabel=unit, xlabel="snapshot")
    _legend(depths, theme)
    ends = (history.sequences[0] - 0.6, history.sequences[-1] + 0.6) if history.sequences else (0, 1)
    for axes in (depths, written):
        axes.set_xlim(*ends)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))


def _unit(size_bytes: int) -> tuple[str, int]:
    names = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
    step = min(len(names) - 1, max(0, size_bytes.bit_length() - 1) // 10)
    return names[step], 1 << 10 * step


def _count_up(axes: Axes, *, most: float, whole: bool = False) -> None:
    """Scale an axis from 0, with room for a label above the highest value. `whole`: ticks at whole numbers only."""
    axes.set_ylim(0, 1.2 * most or 1)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=whole))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _count(value)))


def _count(value: float) -> str:
    """Return a number in few characters: 12,000 as 12k, 1,500,000 as 1.5M."""
    for name, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{name}"
    return f"{value:g}"


def _legend(axes: Axes, theme: Theme) -> None:
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=2,
        frameon=False,
        borderaxespad=0.2,
        labelcolor=theme.ink,
        handlelength=1,
        handleheight=0.7,
    )


def _tint(axes: Axes, theme: Theme) -> None:
    """Colour everything but data."""
    axes.patch.set_visible(False)
    axes.tick_params(color=theme.faint, labelcolor=theme.ink, length=3, width=0.6)
    for spine in axes.spines.values():
        spine.set_edgecolor(theme.faint)
    for text in (axes.xaxis.label, axes.yaxis.label):
        text.set_color(theme.ink)
