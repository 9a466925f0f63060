"""docs/reliability.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_exists() -> None:
    """`file.py`, `file.py::test`, and behind one of these `::test` or `…end of a test` of the same file."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| fault")]
    assert len(rows) > 20
    for row in rows:
        text = ""
        for name in re.findall(r"`([^`]*)`", row.rsplit("|", 2)[1]):
            file, _, test = name.rpartition("::") if not name.endswith(".py") else (name, "", "")
            if file:
                text = (TESTS / file).read_text(encoding="utf-8")
            part = (test or name if not file else test).strip("…").removeprefix("::")
            assert f"{part}" in text, (row, name)
            assert not part or re.search(rf"def test_\w*{re.escape(part.removeprefix('test_'))}", text), name
