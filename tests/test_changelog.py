"""The changelog has the form that tools and people know: https://keepachangelog.com."""

from __future__ import annotations

import re
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def test_every_change_stands_under_its_release_and_kind() -> None:
    releases = re.split(r"^## ", CHANGELOG.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert releases[0].startswith("[Unreleased]\n")
    for release in releases:
        title, *parts = re.split(r"^### ", release, flags=re.MULTILINE)
        assert re.fullmatch(r"\[(Unreleased\]|\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d)\n+", title), title
        kinds = [part.partition("\n")[0] for part in parts]
        assert kinds == [kind for kind in KINDS if kind in kinds], title
        for part in parts:
            lines = part.partition("\n")[2].strip().splitlines()
            assert lines
            assert all(line.startswith("- ") for line in lines), part[:80]


def test_no_change_is_told_twice() -> None:
    lines = [line for line in CHANGELOG.read_text(encoding="utf-8").splitlines() if line.startswith("- ")]
    assert len(lines) == len(set(lines))
