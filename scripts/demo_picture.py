"""Draw blocks as bars over the key, before and after, as one SVG that reads on light and on dark backgrounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

PANEL_WIDTH = 420
PANEL_HEIGHT = 260
GAP = 50
TOP = 60
BOTTOM = 30
MARGIN = 20
WIDTH = 2 * (MARGIN + PANEL_WIDTH) + GAP
HEIGHT = TOP + PANEL_HEIGHT + BOTTOM
MOST_PITCH = 8  # pixels from bar to bar where there are few
TEXT, FAINT, READ, SKIPPED = "#808a94", "#808a9455", "#e8590c", "#4c8bd6"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One half of the picture; a bar is the (low, high) key of a block, from 0 at the left to 1 at the right."""

    title: str
    subtitle: str
    bars: Sequence[tuple[float, float]]


def draw(
    panels: tuple[Panel, Panel], *, window: tuple[float, float], ticks: Sequence[tuple[float, str]]
) -> str:
    """Return the SVG. Bars that meet `window`, the keys that a query asks for, stand out: it reads these blocks."""
    height = 0.65 * min(pitch(panel) for panel in panels)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    font = 'font-family="system-ui, sans-serif" font-size="12"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font} fill="{TEXT}">']
    for panel, left in zip(panels, (MARGIN, MARGIN + PANEL_WIDTH + GAP), strict=True):
        parts += [f'<g transform="translate({left} 0)">', *panel_parts(panel, window, ticks, height), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def pitch(panel: Panel) -> float:
    """Return the pixels from bar to bar."""
    return min(MOST_PITCH, PANEL_HEIGHT / max(1, len(panel.bars)))


def panel_parts(
    panel: Panel, window: tuple[float, float], ticks: Sequence[tuple[float, str]], height: float
) -> list[str]:
    """Return the elements of one panel: titles, axis, the query's window, a bar for every block."""
    bottom = TOP + PANEL_HEIGHT
    low, high = (share * PANEL_WIDTH for share in window)
    parts = [
        f'<text x="0" y="20" font-size="16" font-weight="600">{escape(panel.title)}</text>',
        f'<text x="0" y="40">{escape(panel.subtitle)}</text>',
        f'<path d="M0 {bottom}H{PANEL_WIDTH}" stroke="{FAINT}"/>',
    ]
    for share, label in ticks:
        x = share * PANEL_WIDTH
        parts.append(f'<path d="M{x:.1f} {bottom}v5" stroke="{FAINT}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{escape(label)}</text>')
    for number, (start, end) in enumerate(sorted(panel.bars)):
        color = READ if start <= window[1] and end >= window[0] else SKIPPED
        x, width = start * PANEL_WIDTH, max(1.0, (end - start) * PANEL_WIDTH)
        parts.append(rect(x, TOP + number * pitch(panel), width, height, color))
    parts.append(rect(low, TOP - 6, max(2.0, high - low), PANEL_HEIGHT + 6, TEXT, opacity=0.45))
    return parts


def rect(x: float, y: float, width: float, height: float, color: str, *, opacity: float = 1) -> str:
    """Return one rectangle."""
    shade = "" if opacity == 1 else f' fill-opacity="{opacity}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"{shade}/>'
