"""Compare what the demo's commands printed as JSON before and after: a table on standard output, and a picture.

    python demo_report.py FOLDER COLUMN LOW HIGH > table

FOLDER holds before/ and after/, each with info.json, scan.json (of `scan --explain`) and files.json. COLUMN is the
cluster key, a date; LOW and HIGH are the bounds that the query asks for. The picture becomes FOLDER/blocks.svg.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import demo_picture

MIB = 2**20
FIGURES: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("average depth", lambda found: f"{found['info']['average_depth']:,.2f}"),
    ("blocks", lambda found: f"{found['info']['total_block_count']:,}"),
    ("blocks read", lambda found: f"{found['scan']['blocks_read']:,}"),
    ("bytes read", lambda found: f"{found['scan']['bytes_to_read'] / MIB:,.2f} MiB"),
)


def main(folder: Path, column: str, low: str, high: str) -> None:
    """Print the table and write the picture."""
    before, after = (read(folder / name) for name in ("before", "after"))
    print(f"{'':<18}{'before':>12}{'after':>12}")
    for name, figure in FIGURES:
        print(f"{name:<18}{figure(before):>12}{figure(after):>12}")
    path = folder / "blocks.svg"
    path.write_text(picture(before, after, column=column, asked=(low, high)), encoding="utf-8")
    print(f"\nThe blocks as a picture: {path.resolve()}")


def read(folder: Path) -> dict[str, Any]:
    """Return what the commands printed, by command."""
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in ("info", "scan", "files")}


def picture(before: dict[str, Any], after: dict[str, Any], *, column: str, asked: tuple[str, str]) -> str:
    """Return the picture of both states; its key axis is whole years."""
    blocks = before["files"] + after["files"]
    first = min(block["min"][0] for block in blocks)[:4]
    last = max(block["max"][0] for block in blocks)[:4]
    start, end = day(f"{first}-01-01"), day(f"{int(last) + 1}-01-01")

    def share(text: str) -> float:
        return (day(text) - start) / (end - start)

    def panel(name: str, found: dict[str, Any]) -> demo_picture.Panel:
        count, read_blocks = found["info"]["total_block_count"], found["scan"]["blocks_read"]
        return demo_picture.Panel(
            title=f"{name}: average depth {found['info']['average_depth']:.1f}",
            subtitle=f"{count} blocks over {column}; a query for one week reads {read_blocks} (orange)",
            bars=[(share(block["min"][0]), share(block["max"][0])) for block in found["files"]],
        )

    years = range(int(first), int(last) + 2)
    return demo_picture.draw(
        (panel("before", before), panel("after recluster --final", after)),
        window=(share(asked[0]), share(asked[1])),
        ticks=[(share(f"{year}-01-01"), str(year)) for year in years],
    )


def day(text: str) -> int:
    """Return an ISO date as a count of days."""
    return datetime.date.fromisoformat(text).toordinal()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
