"""gc removes only old objects that nothing names any more. Expired snapshots stay in the history."""

from __future__ import annotations

import collections
import datetime
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import Faults, inject
from tables import (
    HOURS_AGO_SECONDS,
    SCHEMA,
    Places,
    aged_table,
    assert_sound,
    ids_of,
    named_objects,
    objects_of,
    places,
    rows,
    state_of,
)

import tblctl
from tblctl.errors import InvalidOptionError, SnapshotNotFoundError
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.native.log.names import snapshot_path
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.storage import Storage

HOUR_SECONDS = HOURS_AGO_SECONDS / 2


@pytest.fixture(params=["memory", "local"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    yield from places(request.param, tmp_path)


def _build(table: tblctl.Table) -> None:
    table.append(rows(1, 2, 3, 4, 5, 6, 7, 8))  # 2
    table.delete("id = 1")  # 3
    table.tag("v1")  # 4
    table.delete("id = 5")  # 5
    table.overwrite(rows(20))  # 6
    table.append(rows(21))  # 7


def _aged(at: Places) -> tblctl.Table:
    return aged_table(at.fresh(), _build, options={"block_rows": 4})


def test_a_dry_run_lists_exactly_what_the_real_run_removes_and_changes_nothing(at: Places) -> None:
    table = _aged(at)
    before = objects_of(table.location)
    dry = table.gc(keep=2, older_than=HOUR_SECONDS, dry_run=True)
    assert objects_of(table.location) == before
    real = table.gc(keep=2, older_than=HOUR_SECONDS)
    assert (real.snapshots_expired, real.objects_deleted, real.bytes_deleted) == (
        dry.snapshots_expired,
        dry.objects_deleted,
        dry.bytes_deleted,
    )
    assert real.snapshots_expired == (1, 2, 4, 5)
    after = objects_of(table.location)
    assert before.keys() - after.keys() == set(real.objects_deleted)
    assert real.objects_deleted


def test_a_second_run_finds_nothing(at: Places) -> None:
    table = _aged(at)
    table.gc(keep=1, older_than=HOUR_SECONDS)
    sequence = table.snapshot.sequence
    for dry_run in (True, False):
        again = table.gc(keep=1, older_than=HOUR_SECONDS, dry_run=dry_run)
        assert (again.snapshots_expired, again.objects_deleted, again.bytes_deleted) == ((), (), 0)
    assert table.snapshot.sequence == sequence  # not even a snapshot of its own


def test_each_gc_proves_that_it_may_delete_by_the_same_names(at: Places) -> None:
    """No object has them. In a versioned bucket a new name would stay each time, marked as deleted."""
    table = _aged(at)
    tried = []
    for _ in range(2):
        there = objects_of(table.location).keys()
        with inject(Faults()) as faults:
            table.gc(keep=2, older_than=HOUR_SECONDS)
        written = {
            name for call in faults.calls if call.operation in {"write", "create"} for name in call.names
        }
        deleted = {name for call in faults.calls if call.operation == "delete" for name in call.names}
        tried.append(deleted - written - there)
    assert tried[0] == tried[1]
    assert {name.partition("/")[0] for name in tried[0]} == {"data", "metadata"}


def test_what_a_kept_snapshot_or_a_tag_names_stays_readable(at: Places) -> None:
    table = _aged(at)
    tagged = state_of(tblctl.open(table.location, as_of="v1")).rows
    newest = [state_of(tblctl.open(table.location, as_of=sequence)).rows for sequence in (6, 7)]
    table.gc(keep=2, older_than=0)
    assert state_of(tblctl.open(table.location, as_of="v1")).rows == tagged
    assert [state_of(tblctl.open(table.location, as_of=sequence)).rows for sequence in (6, 7)] == newest
    assert set(objects_of(table.location)) - {"metadata/latest"} == named_objects(table)
    assert_sound(table)


def test_a_snapshot_stays_as_long_as_it_was_the_head_recently(at: Places) -> None:
    table = _aged(at)
    table.append(rows(30))  # now: until now, 7 was the head
    assert table.gc(keep=1, older_than=HOUR_SECONDS).snapshots_expired == (1, 2, 4, 5, 6)
    assert ids_of(tblctl.open(table.location, as_of=7)) == [20, 21]


def test_an_object_younger_than_the_grace_period_stays_though_nothing_names_it(at: Places) -> None:
    table = _aged(at)
    storage = Storage(table.location)
    fresh = [
        f"data/{'a' * 32}.parquet",
        f"metadata/segments/{'b' * 32}.parquet",
        "data/.tmp-x",
        "metadata/.tmp-y",
    ]
    for name in fresh:
        storage.write(name, b"of a write under way")
    table.gc(keep=1, older_than=HOUR_SECONDS)
    assert set(fresh) <= objects_of(table.location).keys()
    assert set(table.gc(keep=1, older_than=0).objects_deleted) == set(fresh)


def test_reserved_and_unknown_metadata_is_left_alone(at: Places) -> None:
    table = _aged(at)
    storage = Storage(table.location)
    names = ["metadata/plans/p.json", "metadata/claims/c.json", "metadata/notes.txt", "README"]
    for name in names:
        storage.write(name, b"x")
    table.gc(keep=1, older_than=0)
    assert set(names) <= objects_of(table.location).keys()


def test_objects_are_deleted_oldest_first(at: Places) -> None:
    table = _aged(at)
    storage = Storage(table.location)
    storage.write(f"data/{'0' * 31}1.parquet", b"the youngest, though first by name")
    names = list(objects_of(table.location))
    times = dict(zip(names, storage.modified(names), strict=True))
    deleted = [times[name] for name in table.gc(keep=1, older_than=0).objects_deleted]
    assert deleted == sorted(deleted)


def test_expired_snapshots_stay_in_the_history_as_no_longer_readable(at: Places) -> None:
    table = _aged(at)
    before = {item.sequence: item for item in table.history()}
    table.gc(keep=1, older_than=0)
    after = {item.sequence: item for item in table.history()}
    assert [item for item in sorted(after) if not after[item].readable] == [1, 2, 4, 5, 6]
    assert after.keys() - before.keys() == {8}
    for sequence, old in before.items():
        new = after[sequence]
        assert (new.operation, new.rows, new.blocks, new.timestamp, new.rows_added, new.rows_removed) == (
            old.operation,
            old.rows,
            old.blocks,
            old.timestamp,
            old.rows_added,
            old.rows_removed,
        )


def test_an_expired_snapshot_is_refused_by_open_rollback_and_tag(at: Places) -> None:
    table = _aged(at)
    moment = datetime.datetime.fromisoformat(table.history()[-2].timestamp)  # of snapshot 2
    table.gc(keep=1, older_than=0)
    before = objects_of(table.location)
    for act in (
        lambda: tblctl.open(table.location, as_of=5),
        lambda: table.rollback(5),
        lambda: table.tag("late", at=5),
    ):
        with pytest.raises(SnapshotNotFoundError, match=r"snapshot 5 .*expired"):
            act()
    with pytest.raises(SnapshotNotFoundError, match="no snapshot 99"):
        table.rollback(99)
    assert moment < datetime.datetime.now(datetime.UTC)
    assert objects_of(table.location) == before


def test_a_rollback_to_a_tag_survives_gc_and_lets_the_blocks_live_on(at: Places) -> None:
    table = _aged(at)
    table.rollback("v1")
    expected = ids_of(table)
    table.delete_tag("v1")
    table.gc(keep=1, older_than=0)
    assert ids_of(table) == expected == [2, 3, 4, 5, 6, 7, 8]
    assert_sound(table)


def test_gc_by_an_old_handle_sees_what_others_committed_since(at: Places) -> None:
    table = _aged(at)
    old = tblctl.open(table.location)
    table.append(rows(40))
    table.tag("v2")
    old.gc(keep=1, older_than=0)
    assert ids_of(table) == [20, 21, 40]
    assert_sound(table)


def test_a_snapshot_that_only_a_tag_kept_goes_with_its_tag(at: Places) -> None:
    table = _aged(at)
    table.gc(keep=1, older_than=HOUR_SECONDS)
    assert 3 in [item.sequence for item in table.history() if item.readable]
    table.delete_tag("v1")
    dry = table.gc(keep=1, older_than=HOUR_SECONDS, dry_run=True)
    assert 3 in dry.snapshots_expired
    assert dry.objects_deleted
    assert table.gc(keep=1, older_than=HOUR_SECONDS).objects_deleted == dry.objects_deleted
    assert_sound(table)


def test_gc_reads_no_old_snapshot_again_for_a_race_that_it_loses(at: Places) -> None:
    table = _aged(at)
    other = tblctl.open(table.location)
    for number in range(40):
        other.append(rows(100 + number))
    faults = Faults()
    for number in range(5):
        faults.do(lambda: other.tag("t"), operation="create", name="snapshots/", nth=2 * number + 1)
    with inject(faults):
        table.gc(keep=20, older_than=0)
    assert len(faults.fired) == 5
    reads = collections.Counter(
        call.name for call in faults.calls if call.operation == "read" and len(call.names) == 1
    )
    # To judge it, and to collect what it names or to bury it; twice more by the search for the head.
    assert max(reads[snapshot_path(sequence)] for sequence in range(1, 40)) <= 4
    assert_sound(table)


def test_unreasonable_limits_are_refused(at: Places) -> None:
    table = _aged(at)
    for wrong in ({"keep": 0}, {"keep": -1}, {"older_than": -1.0}, {"older_than": "1 fortnight"}):
        with pytest.raises(InvalidOptionError):
            table.gc(**wrong)
    with pytest.raises(InvalidOptionError, match="pinned"):
        tblctl.open(table.location, as_of=3).gc()


def test_any_history_of_commits_tags_and_gcs_keeps_every_kept_version(at: Places) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    url = at.fresh()
    table = tblctl.create(url, SCHEMA, options={"block_rows": 3})
    known = {1: ()}
    for number in range(40):
        operation = rng.choice(["append", "append", "delete", "tag", "untag", "rollback", "gc"])
        readable = [item.sequence for item in table.history() if item.readable]
        if operation == "append":
            table.append(rows(*range(10 * number, 10 * number + rng.randint(1, 7))))
        elif operation == "delete":
            table.delete(f"id >= {rng.randint(0, 10 * number)}")
        elif operation == "tag":
            table.tag(rng.choice("abc"), at=rng.choice(readable))
        elif operation == "untag" and table.tags():
            table.delete_tag(rng.choice(sorted(table.tags())))
        elif operation == "rollback":
            table.rollback(rng.choice(readable))
        elif operation == "gc":
            keep = rng.randint(1, 4)
            before = [item for item in table.history() if item.readable and item.operation != "gc"]
            table.gc(keep=keep, older_than=0)
            left = {item.sequence for item in table.history() if item.readable}
            assert left >= {item.sequence for item in before[:keep]} | set(table.tags().values()), seed
            assert set(objects_of(url)) - {"metadata/latest"} == named_objects(table), seed
        known[table.snapshot.sequence] = state_of(table).rows
        for item in table.history():
            if item.readable and item.sequence in known:
                assert state_of(tblctl.open(url, as_of=item.sequence)).rows == known[item.sequence], seed
    assert_sound(table)


def test_the_clock_of_a_writer_that_is_behind_does_not_make_time_go_back(at: Places) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA).append(rows(1))
    behind = Environment(now=lambda: time.time() - 120)
    slow = tblctl.Table(NativeTable(Storage(url), behind))
    slow.append(rows(2))
    stamps = [item.timestamp for item in tblctl.open(url).history()]
    assert stamps == sorted(stamps, reverse=True)
    assert tblctl.open(url, as_of=datetime.datetime.fromtimestamp(time.time() + 1, datetime.UTC))
    assert_sound(tblctl.open(url))
