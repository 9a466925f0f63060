"""Records of reclusters in `metadata/records/`: how long gc keeps them, and what check reports."""

from __future__ import annotations

import json

import pytest
from tables import SCHEMA, age, as_stored, assert_sound, objects_of, rows

import tblctl
from tblctl.errors import CorruptTableError
from tblctl.tableformat.native.log.names import snapshot_path
from tblctl.tableformat.native.upkeep.gc import RECORD_SECONDS
from tblctl.tableformat.storage import Storage

DAY_SECONDS = 86400.0


def reclustered(url: str, *days_ago: float) -> tblctl.Table:
    """Make a table that was appended to and reclustered some days ago, once or several times."""
    tblctl.create(url, SCHEMA, cluster_by="id", options={"block_rows": 4})
    done: frozenset[str] = frozenset()
    for days in days_ago:
        table = tblctl.open(url)
        table.append(rows(1, 3, 5, 7))
        table.append(rows(2, 4, 6, 8))
        assert table.recluster().committed_groups
        age(url, days * DAY_SECONDS, lambda name, done=done: name not in done)
        done = frozenset(objects_of(url))
    return tblctl.open(url)


def records(url: str) -> list[str]:
    return [name for name in objects_of(url) if name.startswith("metadata/records/")]


def test_a_record_outlives_its_snapshot_until_it_is_90_days_old(memory_url: str) -> None:
    assert RECORD_SECONDS == 90 * DAY_SECONDS
    table = reclustered(memory_url, 91, 89, 0)
    old, younger, newest = sorted(
        (info for info in table.history() if info.operation == "recluster"), key=lambda info: info.sequence
    )
    gone = table.gc(keep=1, older_than=0)
    assert old.detail["record"] in gone.objects_deleted
    assert sorted(records(memory_url)) == sorted([younger.detail["record"], newest.detail["record"]])
    assert table.gc(keep=1, older_than=0).objects_deleted == ()
    assert_sound(table)


def test_a_record_stays_while_its_snapshot_is_readable(memory_url: str) -> None:
    table = reclustered(memory_url, 200)
    table.tag("kept")
    table.append(rows(50))
    table.gc(keep=1, older_than=0)
    assert len(records(memory_url)) == 1
    table.delete_tag("kept")
    table.gc(keep=1, older_than=0)
    assert records(memory_url) == []
    assert_sound(table)


def test_a_record_that_no_snapshot_names_goes_once_it_is_old_enough(memory_url: str) -> None:
    table = reclustered(memory_url, 0)
    spare = f"metadata/records/{'0' * 32}.json"
    Storage(memory_url).write(spare, b"{}")
    assert spare not in table.gc(keep=1, older_than="1h").objects_deleted
    assert spare in table.gc(keep=1, older_than=0).objects_deleted


def test_check_names_a_record_that_is_missing(memory_url: str) -> None:
    table = reclustered(memory_url, 0)
    (record,) = records(memory_url)
    Storage(memory_url).delete([record])
    sequence = table.snapshot.sequence
    assert table.check().problems == (f"{record}: missing, although snapshot {sequence} names it",)


def test_a_record_of_a_name_that_is_none_is_damage_and_is_not_followed(memory_url: str) -> None:
    table = reclustered(memory_url, 0)
    storage, name = Storage(memory_url), snapshot_path(table.snapshot.sequence)
    snapshot = json.loads(storage.read(name))
    snapshot["summary"]["detail"]["record"] = "../other/metadata/records/x.json"
    storage.write(name, as_stored(snapshot))
    before = objects_of(memory_url)
    assert any("a record's name" in problem for problem in tblctl.open(memory_url).check().problems)
    with pytest.raises(CorruptTableError, match="a record's name"):
        tblctl.open(memory_url).gc(keep=1, older_than=0)
    assert objects_of(memory_url) == before
