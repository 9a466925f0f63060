"""Fixtures of the command's tests: `overlapping`, the location of a table of three blocks that overlap."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tables import SCHEMA, rows

import tblctl


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the settings of whoever runs the tests out of them."""
    for name in [name for name in os.environ if name.startswith("TBLCTL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TBLCTL_CONFIG", os.devnull)


@pytest.fixture
def overlapping(tmp_path: Path) -> str:
    location = str(tmp_path / "t")
    table = tblctl.create(location, SCHEMA, cluster_by="id", options={"block_rows": 4})
    for start in range(3):
        table.append(rows(start, start + 10, start + 20, start + 30))
    return location
