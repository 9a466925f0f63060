"""Print the JSON figures of the demo's commands before and after, side by side.

    python demo_report.py FOLDER

FOLDER holds before/ and after/, each with info.json and scan.json (of `scan --explain`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MIB = 2**20
FIGURES: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("average depth", lambda found: f"{found['info']['average_depth']:,.2f}"),
    ("blocks", lambda found: f"{found['info']['total_block_count']:,}"),
    ("blocks read", lambda found: f"{found['scan']['blocks_read']:,}"),
    ("bytes read", lambda found: f"{found['scan']['bytes_to_read'] / MIB:,.2f} MiB"),
)


def main(folder: Path) -> None:
    """Print the table."""
    before, after = (read(folder / name) for name in ("before", "after"))
    print(f"{'':<18}{'before':>12}{'after':>12}")
    for name, figure in FIGURES:
        print(f"{name:<18}{figure(before):>12}{figure(after):>12}")


def read(folder: Path) -> dict[str, Any]:
    """Return the JSON of each command."""
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in ("info", "scan")}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
