"""The number of manifests stays bounded, however many commits a table has seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from profiles import THOROUGH, cases
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from tblctl.tableformat.port import Replacement
from tests.iceberg.lake import Lake, append, fields
from tests.iceberg.position_deletes import delete_rows
from tests.iceberg.replacing import data_files, port_of, record_of, replacement_of, rows_of, sorted_ids

LEAST = 5
"""`commit.manifest.min-count-to-merge` of the tables here."""


def create(lake: Lake) -> Table:
    properties = {"commit.manifest.min-count-to-merge": str(LEAST)}
    return lake.create("t", fields(id=LongType(), s=StringType()), properties=properties)


def manifests(table: Table) -> list[Any]:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return snapshot.manifests(table.io)


def of_deletes(found: Iterable[Any]) -> list[Any]:
    return [manifest for manifest in found if manifest.content == ManifestContent.DELETES]


def live_deletes(table: Table) -> dict[str, tuple[int, int, int]]:
    """Return the live delete files: their sequence numbers, and the snapshot that added them."""
    return {
        entry.data_file.file_path: (entry.sequence_number, entry.file_sequence_number, entry.snapshot_id)
        for manifest in of_deletes(manifests(table))
        for entry in manifest.fetch_manifest_entry(table.io)
    }


def split(table: Table, path: str) -> str:
    """Replace a file by one of its first row and one of the others; return the path of the latter."""
    port = port_of(table)
    base = port.newest()
    rows = rows_of(table, [file for file in data_files(table) if file.file_path == path])
    made = [record_of(base, part, like=path) for part in (rows.slice(0, 1), rows.slice(1))]
    removed = frozenset({path})
    port.replace(base, Replacement(removed=removed, added=tuple(made), detail={"recluster": {}}))
    return made[1].path


@pytest.mark.timeout(3600 if THOROUGH else 600)
def test_manifests_are_merged_however_many_commits_add_files_and_deletes(lake: Lake) -> None:
    """Without merges, each round leaves a manifest of data files and one of delete files."""
    table, rounds = create(lake), cases(16)
    append(table, id=list(range(rounds)), s=["deleted"] * rounds)
    append(table, id=list(range(rounds, 2 * rounds + 1)), s=["split"] * (rounds + 1))
    old, rest = sorted(data_files(table), key=lambda file: file.record_count)
    counts, path = [], rest.file_path
    for number in range(rounds):
        table = delete_rows(table, {old.file_path: [number]})
        before = live_deletes(table)
        path = split(table, path)
        assert live_deletes(table) == before
        found = manifests(table)
        counts.append((len(found) - len(of_deletes(found)), len(of_deletes(found))))
    assert len(data_files(table)) == rounds + 2
    assert max(data for data, _ in counts) <= LEAST + 2
    assert max(deletes for _, deletes in counts) <= LEAST
    merged = max(of_deletes(manifests(table)), key=lambda manifest: manifest.existing_files_count)
    entries = merged.fetch_manifest_entry(table.io, discard_deleted=False)
    assert {entry.status for entry in entries} == {ManifestEntryStatus.EXISTING}
    assert merged.min_sequence_number == min(entry.sequence_number for entry in entries)
    assert sorted_ids(table) == list(range(rounds, 2 * rounds + 1))


def test_delete_files_leave_with_their_data_file_while_their_manifests_are_merged(lake: Lake) -> None:
    table = create(lake)
    append(table, id=list(range(10)), s=["x"] * 10)
    append(table, id=[10], s=["y"])
    old, other = sorted(data_files(table), key=lambda file: -file.record_count)
    for number in range(LEAST):
        table = delete_rows(table, {old.file_path: [number]})
    table = delete_rows(table, {other.file_path: [5]})  # beyond its end: deletes nothing, and stays
    assert len(of_deletes(manifests(table))) == LEAST + 1
    port = port_of(table)
    base = port.newest()
    port.replace(base, replacement_of(base, [old], without=range(LEAST)))
    (merged,) = of_deletes(manifests(table))
    assert (merged.existing_files_count, merged.deleted_files_count) == (1, LEAST)
    assert len(live_deletes(table)) == 1
    assert sorted_ids(table) == list(range(LEAST, 11))
