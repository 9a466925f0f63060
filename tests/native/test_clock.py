"""Clocks: the storage's clock decides ages; a writer whose clock is far off is refused; a wrong time is corrected."""

from __future__ import annotations

import dataclasses
import datetime
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from faults import Faults, inject
from pyiceberg.expressions import EqualTo
from servers import Location
from tables import SCHEMA, Places, age, as_stored, assert_sound, ids_of, native_of, objects_of, places, rows

import tblctl
from tblctl.cli.main import application
from tblctl.errors import ClockError, ConflictError, InternalError, SnapshotNotFoundError, StorageError
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.native.log.names import snapshot_path
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.storage import Storage

YEAR_SECONDS = 365.25 * 86400
WRITES: dict[str, Callable[[tblctl.Table], Any]] = {
    "append": lambda table: table.append(rows(9)),
    "delete all": lambda table: table.delete("id > 0"),
    "update": lambda table: table.update({"v": "y"}, "id = 1"),
    "recluster": lambda table: table.recluster(policy="full"),
    "tag": lambda table: table.tag("t"),
    "alter": lambda table: table.add_column("w", "int64"),
    "rollback": lambda table: table.rollback(2),
    "gc": lambda table: table.gc(keep=1, older_than=0),
}


@pytest.fixture(params=["memory", "local"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    yield from places(request.param, tmp_path)


def off_by(url: str, seconds: float, options: dict[str, Any] | None = None) -> tblctl.Table:
    """Open a table on a machine whose clock is ahead by `seconds`, behind if below 0."""
    return tblctl.Table(NativeTable(Storage(url, options), Environment(now=lambda: time.time() + seconds)))


def _table(url: str, options: dict[str, Any] | None = None) -> tblctl.Table:
    table = tblctl.create(url, SCHEMA, cluster_by="id", storage_options=options)
    table.append(rows(1, 3))  # 2
    table.append(rows(2, 4))  # 3
    return table


@pytest.mark.parametrize("seconds", [50 * YEAR_SECONDS, 330, -330, -50 * YEAR_SECONDS])
@pytest.mark.parametrize("name", WRITES)
def test_a_writer_whose_clock_is_far_off_is_told_and_changes_nothing(
    name: str, seconds: float, at: Places
) -> None:
    url = _table(at.fresh()).location
    before = objects_of(url)
    with pytest.raises(
        ClockError, match=r"this machine's clock says .* the storage's says .* 5 minutes"
    ) as caught:
        WRITES[name](off_by(url, seconds))
    assert abs(caught.value.details["skew_seconds"] - seconds) < 60
    assert objects_of(url) == before


@pytest.mark.parametrize("seconds", [240, -240])
@pytest.mark.parametrize("name", WRITES)
def test_a_clock_that_is_off_by_four_minutes_is_good_enough(name: str, seconds: float, at: Places) -> None:
    url = _table(at.fresh()).location
    WRITES[name](off_by(url, seconds))
    assert_sound(tblctl.open(url))


def test_no_table_is_created_by_a_clock_that_is_far_off(at: Places) -> None:
    url = at.fresh()
    with pytest.raises(ClockError):
        off_by(url, 3600)._native.create(SCHEMA, "", {})
    assert not tblctl.exists(url)
    tblctl.create(url, SCHEMA)


def test_the_storage_is_asked_for_its_time(location: Location) -> None:
    """On S3 the time of an append's own segment is compared. It is requested anyway, so there is no extra request."""
    table = _table(location.url, location.storage_options)
    with pytest.raises(ClockError):
        off_by(location.url, 3600, location.storage_options).append(rows(9))
    faults = Faults()
    with inject(faults):
        table.append(rows(5))
    assert not [call for call in faults.calls if ".tmp-clock" in call.name]
    assert ids_of(table) == [1, 2, 3, 4, 5]


def test_a_writer_that_may_not_delete_its_probe_still_commits(at: Places) -> None:
    url = _table(at.fresh()).location
    faults = Faults()
    faults.fail(operation="delete", times=99)
    with inject(faults):
        tblctl.open(url).tag("t")
    (left,) = [name for name in objects_of(url) if ".tmp-clock" in name]
    assert left in tblctl.open(url).gc(keep=1, older_than=0).objects_deleted


def test_a_probe_that_a_gc_takes_away_is_written_again(at: Places) -> None:
    url = _table(at.fresh()).location
    faults = Faults()

    def take() -> None:
        storage = Storage(url)
        storage.delete([item.name for item in storage.list() if ".tmp-clock" in item.name])

    faults.do(take, operation="look for", name="tmp-clock")
    with inject(faults):
        tblctl.open(url).tag("t")
    assert faults.fired
    for number in range(5):
        faults.do(take, operation="look for", name="tmp-clock", nth=number + 1)
    with inject(faults), pytest.raises(StorageError, match="disappeared at once"):
        tblctl.open(url).tag("u")


def _spoil(url: str, seconds: float) -> None:
    """Date the newest snapshot as a writer with a clock ahead did before clocks were compared."""
    storage = Storage(url)
    name = snapshot_path(native_of(tblctl.open(url)).head().sequence)
    document = json.loads(storage.read(name))
    document["timestamp_ms"] += round(1000 * seconds)
    storage.write(name, as_stored(document))


def _spoilt(at: Places) -> str:
    """Snapshots 1 to 3 are two hours old; 4 says that it is of 50 years ahead, so 5 to 8 do too."""
    url = _table(at.fresh()).location
    age(url, 7200)
    table = tblctl.open(url)
    table.append(rows(5))
    _spoil(url, 50 * YEAR_SECONDS)
    for number in range(6, 10):
        tblctl.open(url).append(rows(number))
    return url


def test_snapshots_expire_by_the_storages_time_whatever_they_say(at: Places) -> None:
    table = tblctl.open(_spoilt(at))
    assert table.history()[0].timestamp > "2070"
    assert table.gc(keep=1, older_than=0).snapshots_expired == tuple(range(1, 8))
    assert_only_the_clock_is_wrong(table)


def assert_only_the_clock_is_wrong(table: tblctl.Table) -> None:
    (problem,) = table.check(deep=True).problems
    assert "--fix-clock" in problem


def test_a_snapshot_that_a_clock_behind_made_does_not_expire_before_its_time(at: Places) -> None:
    url = _table(at.fresh()).location
    _spoil(url, -10 * YEAR_SECONDS)
    tblctl.open(url).append(rows(7))
    assert tblctl.open(url).gc(keep=1, older_than=3600).snapshots_expired == ()


def _ago(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time.time() - seconds, datetime.UTC)


def test_as_of_follows_a_reset_of_the_clock(at: Places) -> None:
    url = _spoilt(at)
    table = tblctl.open(url)
    assert tblctl.open(url, as_of=_ago(0)).snapshot.sequence == 3  # all that came since says 2076
    outcome = table.reset_clock()
    assert outcome.snapshot == 9
    assert_sound(table)
    assert tblctl.open(url, as_of=_ago(0)).snapshot.sequence == 9
    table.append(rows(20))
    assert table.history()[0].timestamp < _ago(-60).isoformat()
    for seconds, sequence in ((0, 10), (3600, 3)):
        assert tblctl.open(url, as_of=_ago(seconds)).snapshot.sequence == sequence
    with pytest.raises(SnapshotNotFoundError):
        tblctl.open(url, as_of=_ago(86400))
    assert_sound(table)
    again = table.reset_clock()
    assert (again.snapshot, again.note) == (
        None,
        "the newest snapshot is not ahead: nothing was committed",
    )


def test_as_of_finds_every_version_between_two_resets(at: Places) -> None:
    """Built by hand, seconds apart: 1 2 (3 4 ahead) reset-5 6 (7 ahead) reset-8 9."""
    url = at.fresh()
    table = tblctl.create(url, SCHEMA)
    for number in range(2, 10):
        table.append(rows(number))
    start = int(time.time()) - 1000
    seconds = {1: 0, 2: 10, 3: 9000, 4: 9000, 5: 40, 6: 50, 7: 9000, 8: 70, 9: 80}
    storage = Storage(url)
    for sequence, second in seconds.items():
        document = json.loads(storage.read(snapshot_path(sequence)))
        document["timestamp_ms"] = 1000 * (start + second)
        document["clock_resets"] = [reset for reset in (5, 8) if reset <= sequence]
        storage.write(snapshot_path(sequence), as_stored(document))
    for second, sequence in {
        0: 1,
        9: 1,
        10: 2,
        39: 2,
        40: 5,
        49: 5,
        50: 6,
        69: 6,
        70: 8,
        79: 8,
        80: 9,
        999: 9,
    }.items():
        moment = datetime.datetime.fromtimestamp(start + second, datetime.UTC)
        assert tblctl.open(url, as_of=moment).snapshot.sequence == sequence, second
    with pytest.raises(SnapshotNotFoundError, match="did not exist yet"):
        tblctl.open(url, as_of=datetime.datetime.fromtimestamp(start - 1, datetime.UTC))
    assert_sound(tblctl.open(url))


def test_check_tells_a_clock_that_was_ahead_and_fix_clock_sets_it_right(tmp_path: Path) -> None:
    places_of = Places("local", tmp_path)
    url = _spoilt(places_of)
    before = objects_of(url)
    told = CliRunner().invoke(application, ["check", url])
    assert told.exit_code == 1
    assert "--fix-clock" in told.output
    assert objects_of(url) == before
    fixed = CliRunner().invoke(application, ["check", url, "--fix-clock", "--json"])
    assert fixed.exit_code == 0, fixed.output
    assert json.loads(fixed.stdout)["ok"] is True
    assert "snapshot 9 sets the clock right" in fixed.stderr
    again = CliRunner().invoke(application, ["check", url, "--fix-clock"])
    assert (again.exit_code, "nothing was changed" in again.stderr) == (0, True)
    assert tblctl.open(url).snapshot.sequence == 9


def test_a_snapshot_that_nobody_could_read_is_not_created(at: Places) -> None:
    """Simulated bugs: a tag beyond the head, a segment twice, counts that do not add up, a lower horizon."""
    url = _table(at.fresh()).location
    native = native_of(tblctl.open(url))
    before = objects_of(url)
    bugs: list[Callable[[Any], Any]] = [
        lambda head: dataclasses.replace(head, tags={"t": head.sequence + 2}),
        lambda head: dataclasses.replace(head, segments=(*head.segments, head.segments[0])),
        lambda head: dataclasses.replace(head, segments=head.segments[:1]),
        lambda head: dataclasses.replace(
            head, segments=(dataclasses.replace(head.segments[0], path="../x.parquet"), *head.segments[1:])
        ),
        lambda head: dataclasses.replace(
            head, summary=dataclasses.replace(head.summary, detail={"what": {1}})
        ),
        lambda head: dataclasses.replace(head, retained_from=head.retained_from - 1),
        lambda head: dataclasses.replace(head, horizon_us=head.horizon_us - 1),
    ]
    for number, bug in enumerate(bugs):
        with pytest.raises(InternalError, match="snapshot"):
            native.change(bug)
        assert objects_of(url) == before, number
    assert_sound(tblctl.open(url))


def test_blocks_of_a_commit_that_would_not_be_readable_are_deleted(at: Places) -> None:
    url = _table(at.fresh()).location
    before = objects_of(url)
    with pytest.raises(InternalError, match="would not be readable"):
        native_of(tblctl.open(url)).write(
            "delete", condition=lambda _head: EqualTo("id", 1), detail={"what": {1}}
        )
    assert objects_of(url) == before


def test_a_gc_by_a_clock_that_was_ahead_can_be_undone(at: Places) -> None:
    """On local disk the storage's clock is the machine's, so nothing notices: its horizon is 50 years ahead."""
    url = _table(at.fresh()).location
    storage = Storage(url)
    name = snapshot_path(3)
    document = json.loads(storage.read(name))
    document["horizon"] = round((time.time() + 50 * YEAR_SECONDS) * 1e6)
    storage.write(name, as_stored(document))
    with pytest.raises(ConflictError, match=r"a machine whose clock was ahead.*--fix-clock"):
        tblctl.open(url).append(rows(8))
    assert any("--fix-clock" in problem for problem in tblctl.open(url).check().problems)
    assert tblctl.open(url).reset_clock().snapshot == 4
    head = native_of(tblctl.open(url)).head()
    assert abs(head.horizon_us / 1e6 - time.time()) < 60
    time.sleep(storage.time_step_seconds)
    tblctl.open(url).append(rows(8))
    assert ids_of(tblctl.open(url)) == [1, 2, 3, 4, 8]
    assert_sound(tblctl.open(url))


def test_a_reader_whose_clock_is_behind_finds_no_fault_with_a_sound_table(at: Places) -> None:
    url = _table(at.fresh()).location
    assert off_by(url, -3600).check().problems == ()
