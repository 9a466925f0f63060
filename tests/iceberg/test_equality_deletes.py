"""Equality deletes that another engine commits while tblctl merges, or later, apply to the rows that they are about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import Table
from pyiceberg.types import LongType

from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.port import BlocksReplacedError

from .duck import Duck
from .lake import Lake, append, fields
from .merging import numbered, recluster
from .position_deletes import commit, data_file, entry_of
from .replacing import data_files, port_of, replacement_of


def delete_equal(table: Table, *ids: int) -> None:
    """Commit an equality delete of rows with some ids, as streaming engines do: without a look at the table."""
    rows = numbered(pa.table({"id": pa.array(ids, pa.int64())}), (1,))
    path = Path(str(data_file(table, rows).file_path).removeprefix("file://"))
    entry = entry_of(path, rows=len(ids), content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    commit(table, [entry], content=ManifestContent.DELETES)


def live_ids(table: Table) -> list[int]:
    """Return the ids that readers see: an equality delete applies to files with a lower data sequence number."""
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    entries = [
        entry
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
    deleted: list[tuple[int, set[int]]] = []
    stored: list[tuple[int, list[int]]] = []
    for entry in entries:
        ids = pq.read_table(entry.data_file.file_path.removeprefix("file://"))["id"].to_pylist()
        assert entry.sequence_number is not None
        if entry.data_file.content == DataFileContent.DATA:
            stored.append((entry.sequence_number, ids))
        else:
            deleted.append((entry.sequence_number, set(ids)))
    return sorted(
        id_
        for number, ids in stored
        for id_ in ids
        if not any(later > number and id_ in gone for later, gone in deleted)
    )


@pytest.fixture
def table(lake: Lake) -> Table:
    made = lake.create("t", fields(id=LongType()), properties={"format-version": "2"})
    append(made, id=[1, 3, 5, 7])
    append(made, id=[2, 3, 6, 8])
    return made


def require_ids(table: Table, duck: Duck | None, expected: list[int]) -> None:
    assert live_ids(table) == expected
    if duck is not None:
        found = duck.sql(f"SELECT id FROM iceberg_scan('{table.refresh().metadata_location}') ORDER BY id")
        assert [row[0] for row in found] == expected


def test_equality_deletes_after_a_recluster_apply_to_its_files_and_not_to_later_rows(
    table: Table, duck_too: Duck | None
) -> None:
    assert recluster(table).committed_groups == 1
    delete_equal(table, 3, 8)
    require_ids(table, duck_too, [1, 2, 5, 6, 7])
    append(table, id=[3, 9])
    require_ids(table, duck_too, [1, 2, 3, 5, 6, 7, 9])


def test_equality_deletes_while_a_recluster_merges_apply_to_its_files_and_rows_that_came_after_stay(
    table: Table, duck_too: Duck | None
) -> None:
    """The new file has the sequence number of the plan: that of the commit is later than the deletes'."""

    port = port_of(table)
    base = port.newest()
    replacement = replacement_of(base, data_files(table))
    delete_equal(table, 3)
    append(table, id=[3])
    delete_equal(table, 6)
    port.replace(base, replacement)
    require_ids(table, duck_too, [1, 2, 3, 5, 7, 8])


def test_a_recluster_of_a_table_with_equality_deletes_is_refused_before_any_work(table: Table) -> None:
    delete_equal(table, 3)
    folder = Path(table.location().removeprefix("file://"))
    before: Any = sorted(folder.rglob("*")), table.refresh().metadata_location
    with pytest.raises(InvalidOptionError, match="1 equality delete files; have an engine apply them first"):
        recluster(table)
    assert (sorted(folder.rglob("*")), table.refresh().metadata_location) == before


def test_a_commit_of_files_that_had_equality_deletes_when_they_were_planned_conflicts(table: Table) -> None:
    """A merge does not apply them, so they would be lost with the numbers of the old files."""
    files = data_files(table)
    delete_equal(table, 3)
    port = port_of(table)
    base = port.newest()
    with pytest.raises(BlocksReplacedError):
        port.replace(base, replacement_of(base, files))
    assert live_ids(table) == [1, 2, 5, 6, 7, 8]
