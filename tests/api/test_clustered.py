"""`ClusteredTable` needs only the port: the same tests run on the native format and on its in-memory twin."""

from __future__ import annotations

import copy
import datetime
import pickle
from pathlib import Path
from typing import Any

import pytest

import tblctl
from tblctl.as_of import version_as_of
from tblctl.clustered import ClusteredTable
from tblctl.tableformat.errors import InvalidOptionError, SnapshotNotFoundError
from tblctl.tableformat.formats import open_port

from ..merger.memory_port import MemoryPort
from ..merger.subjects import KINDS, SCHEMA, Subject, Twin, making, versions_of


@pytest.fixture(params=KINDS)
def subject(request: pytest.FixtureRequest) -> Subject:
    """Make a table of two pairs of blocks that overlap."""
    made = making(request.param, request)(block_rows=4)
    for start in (0.0, 1.0, 100.0, 101.0):
        made.append(*(start + 2 * step for step in range(4)))
    return made


@pytest.fixture
def table(subject: Subject) -> ClusteredTable:
    return ClusteredTable(subject.port)


def test_it_says_what_it_is(table: ClusteredTable, subject: Subject) -> None:
    assert table.location == subject.port.newest().location
    assert (table.schema.names, table.cluster_by) == (["k", "n"], ("k",))
    assert table.options["block_rows"] == 4
    assert table.snapshot == table.history(1)[0]
    assert [item.sequence for item in table.history()] == versions_of(subject)[::-1]
    assert (table.snapshot.rows, table.snapshot.blocks) == (16, 4)
    assert repr(table) == f"tblctl.ClusteredTable({table.location!r})"


def test_it_is_planned_reclustered_and_measured(table: ClusteredTable, subject: Subject) -> None:
    rows = subject.rows()
    assert table.info().average_depth == 2.0
    assert len(table.plan().groups) == 2
    outcome = table.recluster(final=True)
    assert (outcome.committed_groups, outcome.rows, outcome.failed_groups) == (2, 16, 0)
    assert outcome.snapshot == versions_of(subject)[-1]
    assert (outcome.depth_before, outcome.depth_after, table.info().average_depth) == (2.0, 1.0, 1.0)
    assert subject.rows() == rows


def test_it_is_compared_with_itself_and_has_a_depth_history(table: ClusteredTable, subject: Subject) -> None:
    table.recluster()
    before, after = versions_of(subject)[-2:]
    assert [found.info.average_depth for found in table.compare(before, after)] == [2.0, 1.0]
    assert [found.snapshot for found in table.compare(before, after)] == [before, after]
    newest, older = table.depth_history(2)
    assert (newest.snapshot, newest.average_depth, newest.source) == (after, 1.0, "summary")
    assert (older.snapshot, older.average_depth, older.source) == (before, 2.0, "summary")


def test_it_is_drawn_and_advised_on(table: ClusteredTable, tmp_path: Path) -> None:
    table.recluster()
    table.picture(tmp_path / "it.svg")
    assert (tmp_path / "it.svg").stat().st_size > 1_000
    found = table.suggest()
    assert {candidate.terms for candidate in found.candidates} >= {("n",), ("k",)}
    assert found.snapshot == table.snapshot.sequence


def test_it_is_checked_and_its_garbage_is_collected(table: ClusteredTable, subject: Subject) -> None:
    table.recluster()
    assert table.check().ok
    found = table.gc(dry_run=True)
    assert found.objects_deleted == ()
    version = subject.port.newest()
    subject.lose(version.listing(version.sort, None).paths[0].as_py())
    assert not table.check().ok


def test_a_pinned_handle_reads_its_version_and_refuses_changes(subject: Subject) -> None:
    pinned = ClusteredTable(subject.port, pinned=subject.port.newest())
    now = pinned.snapshot.sequence
    ClusteredTable(subject.port).recluster()
    assert pinned.snapshot.sequence == now
    assert pinned.info().average_depth == 2.0
    assert f"as_of={now}" in repr(pinned)
    for change in (pinned.recluster, pinned.gc):
        with pytest.raises(InvalidOptionError, match="pinned to snapshot"):
            change()


def test_a_version_is_meant_by_its_id_a_tag_or_a_time(subject: Subject) -> None:
    port = subject.port
    before = port.newest()
    if isinstance(subject, Twin):
        subject.port.tag("before")
    else:
        subject.table.tag("before")  # type: ignore[attr-defined]
    later = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)
    assert version_as_of(port, "before").id == before.id
    assert version_as_of(port, str(before.public_id)).id == before.id
    assert version_as_of(port, later).id == port.newest().id
    if isinstance(before.public_id, int):
        assert version_as_of(port, before.public_id).id == before.id
    for unknown in (10**6, "0001-01-01", "nothing"):
        with pytest.raises(SnapshotNotFoundError):
            version_as_of(port, unknown)
    wrong: Any
    for wrong in (None, True, 1.5):
        with pytest.raises(InvalidOptionError, match="expected a sequence, a tag"):
            version_as_of(port, wrong)


def test_a_port_is_opened_by_its_location_and_pickles(memory_url: str) -> None:
    table = tblctl.create(memory_url, SCHEMA, cluster_by="k")
    port = pickle.loads(pickle.dumps(open_port(memory_url)))
    assert (port.location, port.newest().id, port.newest().parent) == (table.location, "1", None)
    handle = pickle.loads(pickle.dumps(ClusteredTable(port, pinned=port.newest())))
    assert (handle.snapshot.sequence, copy.copy(handle).cluster_by) == (1, ("k",))


def test_in_a_table_with_partitions_depth_is_that_within_each() -> None:
    port = MemoryPort(SCHEMA, "k", partition_of=lambda row: f"day={row['n'] // 4}", block_rows=4)
    subject = Twin(port)
    for _day in range(3):
        subject.append(0.0, 2.0, 4.0, 6.0)
    table = ClusteredTable(port)
    assert (table.info().average_depth, table.depth_history(1)[0].average_depth) == (1.0, 1.0)
    assert table.plan().groups == ()
