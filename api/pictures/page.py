"""A picture as one HTML page: the SVG, and a script that describes the block under the pointer.

The SVG also shows with scripts off. The page loads nothing: its content security policy forbids it.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from string import Template
from typing import Any

import numpy as np

from tblctl.metrics.layout import Band, density
from tblctl.pictures.drawing import Area, Theme, bar_heights, draw_svg, level_name
from tblctl.pictures.picture import Panel, Picture, column_keys

_CELL_COLUMNS = 40
_CELL_ROWS = 24  # over the whole height
INK, FAINT = "#010203", "#040506"
THEME = Theme(ink=INK, faint=FAINT, background=None)
"""Placeholders for a page's colours, which follow the reader's light or dark scheme."""


def picture_page(picture: Picture) -> bytes:
    """Return the page, in UTF-8."""
    drawn, areas = draw_svg(picture, THEME)
    svg = drawn.decode()
    svg = svg[svg.index("<svg") :].replace(INK, "var(--ink)").replace(FAINT, "var(--faint)")
    panels = [_hints(picture, panel, area) for panel, area in zip(picture.panels, areas, strict=True)]
    # `<` is escaped, since a script ends at the first `</script`, whatever it stands in.
    data = json.dumps({"panels": panels}, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    text = _PAGE.substitute(
        title=html.escape(picture.title), location=html.escape(picture.location), svg=svg, data=data
    )
    return text.encode()


def _hints(picture: Picture, panel: Panel, area: Area) -> dict[str, Any]:
    """Return what the script shows of a panel. Positions are shares of the panel from its lower left corner.

    A bar is [left, right, bottom, top, path, rows, min, max]. A band of cells has its name, bottom and top, and, for
    every row from the bottom up, the number of blocks and of rows in each cell.
    """
    place = {"left": area.left, "top": area.top, "right": area.right, "bottom": area.bottom}
    if panel.has_bars:
        return {**place, "bars": [bar for band in panel.bands for bar in _bars(picture, panel, band)]}
    columns = min(_CELL_COLUMNS, picture.axis.columns)
    return {
        **place,
        "keys": column_keys(picture.axis, columns),
        "bands": [_cells(picture, panel, band, columns) for band in panel.bands],
    }


def _bars(picture: Picture, panel: Panel, band: Band) -> Iterator[list[Any]]:
    width = picture.axis.rank_count
    for block, bottom, top in bar_heights(band):
        low, high = int(panel.low[block]), int(panel.high[block])
        yield [
            round(low / width, 5),
            round((high + 1) / width, 5),
            round(bottom, 5),
            round(top, 5),
            panel.paths[block].as_py(),
            int(panel.row_count[block]),
            picture.axis.text(low),
            picture.axis.text(high),
        ]


def _cells(picture: Picture, panel: Panel, band: Band, columns: int) -> dict[str, Any]:
    rows = max(1, min(len(band.members), round(_CELL_ROWS * (band.top - band.bottom))))
    low, high = panel.low[band.members], panel.high[band.members]
    grids = [
        density(low, high, weights, rank_count=picture.axis.rank_count, rows=rows, columns=columns)
        for weights in (np.ones_like(low), panel.row_count[band.members])
    ]
    blocks, row_counts = (np.round(grid).astype(np.int64).tolist() for grid in grids)
    return {
        "name": level_name(band.level),
        "bottom": round(band.bottom, 5),
        "top": round(band.top, 5),
        "blocks": blocks,
        "rows": row_counts,
    }


_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1f2328; --faint: #8c959f; --page: #ffffff; --card: #f6f8fa }
@media (prefers-color-scheme: dark) {
  :root { --ink: #d1d7e0; --faint: #656c76; --page: #0d1117; --card: #212830 }
}
body { margin: 0 auto; padding: 1rem; max-width: 75rem; background: var(--page); color: var(--ink);
  font: 0.875rem/1.5 system-ui, sans-serif }
svg { display: block; width: 100%; height: auto }
p { margin: 0.5rem 0 0; overflow-wrap: anywhere }
#hint { position: fixed; pointer-events: none; max-width: 26rem; padding: 0.4rem 0.6rem; border-radius: 0.4rem;
  border: 1px solid var(--faint); background: var(--card); white-space: pre-line; overflow-wrap: anywhere }
</style>
</head>
<body>
<main id="picture">
$svg
</main>
<p>$location</p>
<div id="hint" role="status" hidden></div>
<script type="application/json" id="data">$data</script>
<script>
"use strict";
const panels = JSON.parse(document.getElementById("data").textContent).panels;
const svg = document.querySelector("#picture svg"), hint = document.getElementById("hint");
const number = (value) => value.toLocaleString("en-US");

function barText(panel, x, y) {
  const bar = panel.bars.find(([left, right, bottom, top]) => left <= x && x < right && bottom <= y && y <= top);
  return bar && `$${bar[4]}\\nrows $${number(bar[5])}\\nmin $${bar[6]}\\nmax $${bar[7]}`;
}

function cellText(panel, x, y) {
  const band = panel.bands.find(({bottom, top}) => bottom <= y && y < top);
  if (!band) return undefined;
  const row = Math.floor((y - band.bottom) / (band.top - band.bottom) * band.blocks.length);
  const column = Math.floor(x * panel.keys.length);
  const blocks = band.blocks[row][column], [first, last] = panel.keys[column];
  return blocks ? `$${band.name}\\n$${number(blocks)} blocks of $${number(band.rows[row][column])} rows\\n` +
    `hold keys from\\n$${first}\\nto $${last}` : undefined;
}

function textAt(x, y) {
  const panel = panels.find((item) => item.left <= x && x < item.right && item.top < y && y <= item.bottom);
  if (!panel) return undefined;
  const across = (x - panel.left) / (panel.right - panel.left);
  const up = (panel.bottom - y) / (panel.bottom - panel.top);
  return panel.bars ? barText(panel, across, up) : cellText(panel, across, up);
}

svg.addEventListener("pointermove", (event) => {
  const box = svg.getBoundingClientRect();
  const text = textAt((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  hint.hidden = !text;
  if (!text) return;
  hint.textContent = text;
  const {offsetWidth: width, offsetHeight: height} = hint;
  hint.style.left = `$${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
  const below = event.clientY + 14;
  hint.style.top = `$${below + height < innerHeight ? below : Math.max(4, event.clientY - height - 14)}px`;
});
svg.addEventListener("pointerleave", () => { hint.hidden = true; });
</script>
</body>
</html>
""")
