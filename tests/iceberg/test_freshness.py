"""A commit does not name files that gc may have deleted."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pyiceberg.types import LongType

from tblctl import errors
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.iceberg.port import IcebergPort
from tblctl.tableformat.iceberg.publish.draft import Drafts
from tests.iceberg.lake import Lake, append, fields
from tests.iceberg.replacing import data_files, ours, replacement_of

IDS = [0, 1, 2, 3]


@pytest.mark.parametrize("without", [[0], IDS], ids=["with new files", "without new files"])
@pytest.mark.parametrize("hours", [11, 13])
def test_a_commit_that_sleeps_for_half_a_day_after_it_wrote_its_metadata_is_refused(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, without: list[int], hours: int
) -> None:
    table = lake.create("t", fields(id=LongType()))
    append(table, id=IDS)
    slept: list[float] = []
    port = IcebergPort.of_table(
        table.refresh(), dataclasses.replace(SYSTEM, now=lambda: SYSTEM.now() + sum(slept))
    ).clustered_by("id")
    base = port.newest()
    real = Drafts.draft

    def draft(drafts: Drafts, *args: Any) -> Any:
        found = real(drafts, *args)
        slept.append(hours * 3600.0)
        return found

    monkeypatch.setattr(Drafts, "draft", draft)
    change = replacement_of(base, data_files(table), without=without)
    if hours < 12:
        assert port.replace(base, change).id != base.id
        return
    with pytest.raises(errors.ConflictError, match="began 13 hours ago"):
        port.replace(base, change)
    assert not ours(table)
