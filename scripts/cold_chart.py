"""Draw what a user waits for: one command of the shell, from its start to its end, by tblctl and by Iceberg's rewrite.

Reads `benchmarks/results/`, writes `docs/pictures/cold.svg`. Every bar is the median of its file's rounds; none is
warm.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CHART = ROOT / "docs" / "pictures" / "cold.svg"

OURS, OURS_ON_SPARK, THEIRS = "#0969da", "#54aeff", "#8c959f"
WIDTH, LEFT, BAR, STEP, GAP = 760, 190, 18, 24, 20
INK, PAPER = "#1f2328", "#ffffff"  # a card of its own colour: it reads alike on light and dark pages


class Bar(NamedTuple):
    """One contender: its name in the chart, its median in seconds, its colour."""

    name: str
    seconds: float
    colour: str


def measured(file: str, part: str, name: str) -> float:
    """Return the seconds of a line of a result file, in the part that begins with a line.

    Raises:
        ValueError: there is no such line.
    """
    text = (RESULTS / file).read_text(encoding="utf-8")
    found = re.search(
        rf"^{re.escape(part)}[^\n]*\n(?:  [^\n]*\n)*?  {re.escape(name)} +([\d.]+) s ", text, re.MULTILINE
    )
    if found is None:
        msg = f"{file} has no line {name!r} under {part!r}"
        raise ValueError(msg)
    return float(found.group(1))


def groups() -> dict[str, list[Bar]]:
    """Return the bars of each table, by its title."""
    found = {}
    for size in ("315 KB", "22 MB"):
        found[f"{size} in 10 files"] = [
            Bar(name="tblctl", seconds=measured("small.txt", size, "tblctl recluster"), colour=OURS),
            Bar(
                name="Iceberg on Spark",
                seconds=measured("small.txt", size, "spark-submit, rewrite_data_files"),
                colour=THEIRS,
            ),
        ]
    part = "files as an Iceberg writer makes them; cold"
    found["6 M rows in 61 files"] = [
        Bar(name="tblctl", seconds=measured("iceberg.txt", part, "tblctl, in-process"), colour=OURS),
        Bar(
            name="tblctl on Spark",
            seconds=measured("iceberg.txt", part, "tblctl, on Spark local[2]"),
            colour=OURS_ON_SPARK,
        ),
        Bar(
            name="Iceberg on Spark",
            seconds=measured("iceberg.txt", part, "rewrite_data_files, sort, on Spark local[2]"),
            colour=THEIRS,
        ),
    ]
    return found


def chart(of: dict[str, list[Bar]]) -> str:
    """Return the chart as SVG."""
    scale = (WIDTH - LEFT - 80) / max(bar.seconds for bars in of.values() for bar in bars)
    body, y = [], 58
    for table, bars in of.items():
        body.append(f'<text x="16" y="{y + 13}" font-weight="600">{escape(table)}</text>')
        y += STEP
        for bar in bars:
            width = bar.seconds * scale
            body += [
                f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(bar.name)}</text>',
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{bar.colour}"/>',
                f'<text x="{LEFT + width + 6:.1f}" y="{y + 13}">{bar.seconds:.1f} s</text>',
            ]
            y += STEP
        y += GAP
    height = y
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
        f' font-family="system-ui, sans-serif" font-size="13" fill="{INK}">'
    )
    title = "One shell command that clusters an Iceberg table, started cold: seconds"
    return "\n".join(
        [
            head,
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{PAPER}"/>',
            f'<text x="16" y="28" font-size="15" font-weight="600">{title}</text>',
            *body,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    CHART.write_text(chart(groups()), encoding="utf-8")
