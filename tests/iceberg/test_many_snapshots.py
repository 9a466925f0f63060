"""Metadata of many snapshots: a recluster and gc do as they do with a few."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.types import LongType

from .lake import Lake, append, fields, with_snapshots
from .replacing import sorted_ids

SNAPSHOTS = 400


@pytest.fixture
def table(lake: Lake) -> Table:
    """Return a table of two overlapping files whose metadata has many snapshots, each with the same files."""
    made = lake.create("t", fields(id=LongType()), properties={"tblctl.cluster-by": "id"})
    for first in range(2):
        append(made, id=list(range(first, 20, 2)))
    many = with_snapshots(made.refresh().metadata, SNAPSHOTS)
    back = (SNAPSHOTS + 24) * 3_600_000
    for item in (*many["snapshots"], *many["snapshot-log"], *many["metadata-log"]):
        item["timestamp-ms"] -= back
    many["last-updated-ms"] -= back
    Path(made.metadata_location.removeprefix("file://")).write_text(json.dumps(many))
    return made.refresh()


def counted(io: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, int]]:
    """Count how often each Avro file of a table is opened."""
    opened: dict[str, int] = {}
    real = type(io).new_input

    def new_input(self: Any, location: str) -> Any:
        if location.endswith(".avro"):
            opened[location] = opened.get(location, 0) + 1
        return real(self, location)

    monkeypatch.setattr(type(io), "new_input", new_input)
    return lambda: opened


def test_many_snapshots_are_reclustered_and_expired(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = counted(table.io, monkeypatch)
    opened = lake.open("t")
    assert opened.info().average_depth == 2.0
    outcome = opened.recluster(policy="full")
    assert (outcome.committed_groups, outcome.depth_after) == (1, 1.0)
    assert len(table.refresh().metadata.snapshots) == SNAPSHOTS + 3
    assert sum(reads().values()) < 60, "metadata files are read for the newest snapshots, not for all"
    assert opened.gc().snapshots_expired == ()
    assert opened.gc(expire_older_than=0, keep=1, dry_run=True).snapshots_expired
    done = opened.gc(expire_older_than=0, keep=1)
    assert len(done.snapshots_expired) == SNAPSHOTS + 2
    assert len(table.refresh().metadata.snapshots) == 1
    assert sorted_ids(table) == list(range(20))
    assert max(reads().values()) < 60, "what many snapshots share is not read for each of them"
