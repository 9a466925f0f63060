"""gc beside writers: in any order of their storage calls, no head names a deleted object, and no row is lost."""

from __future__ import annotations

import functools
import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import racing
from faults import Call, Faults, inject, run_interleaved, storage_calls
from operations import At, two_groups
from profiles import THOROUGH
from servers import Location
from tables import (
    SCHEMA,
    Places,
    age,
    aged_table,
    assert_sound,
    ids_of,
    named_objects,
    native_of,
    objects_of,
    open_impatient,
    places,
    rows,
)

import tblctl
from tblctl.errors import ConflictError, CorruptTableError
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.log.head import load_head, load_version
from tblctl.tableformat.native.log.names import snapshot_path
from tblctl.tableformat.native.port import NativeVersion
from tblctl.tableformat.port import Listing
from tblctl.tableformat.storage import Storage

MINUTE_SECONDS = 60.0
STRESS_SECONDS = 60 if THOROUGH else 2
STRIDE = (
    1 if THOROUGH else 11
)  # (a prime: no call is left out) every STRIDE-th order of storage calls is tried

Act = Callable[[tblctl.Table], Any]

WRITERS: dict[str, Act] = {
    "append": lambda table: table.append(rows(50, 51)),
    "delete": lambda table: table.delete("id in (2, 31)"),
    "update": lambda table: table.update({"v": "new"}, "id in (3, 32)"),
    "overwrite": lambda table: table.overwrite(rows(60), where="id >= 31"),
    "recluster": lambda table: table.recluster(policy="full"),
    "add column": lambda table: table.add_column("w", "int64"),
    "rollback": lambda table: table.rollback("kept"),
    "tag": lambda table: table.tag("new"),
    "tag an old one": lambda table: table.tag("kept", at=7),
}
AFTER = {
    "append": [2, 3, 4, 30, 31, 32, 33, 50, 51],
    "delete": [3, 4, 30, 32, 33],
    "overwrite": [2, 3, 4, 30, 60],
    "rollback": [1, 2, 3, 4],
}
BEFORE = [2, 3, 4, 30, 31, 32, 33]


@pytest.fixture(params=["memory", "local"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    yield from places(request.param, tmp_path)


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Places]:
    yield from places("memory", tmp_path)


def _build(table: tblctl.Table) -> None:
    table.append(rows(1, 2, 3, 4))  # 2
    table.tag("kept")  # 3
    table.append(rows(30, 32))  # 4
    table.gc(keep=1, older_than=0)  # 5
    table.append(rows(31, 33))  # 6
    table.delete("id = 1")  # 7


def _template(at: Places) -> str:
    url = at.fresh()
    aged_table(url, _build, cluster_by="id", options={"block_rows": 2})
    return url


def _gc(table: tblctl.Table, older_than: float = 0) -> Any:
    return table.gc(keep=1, older_than=older_than)


def _steps(call: Call) -> bool:
    """Count what changes something, looks at ages or lists, and the search for the head; other objects never change."""
    return call.operation not in {"read", "open"} or len(call.names) == 2


def _two_switches(first: str, first_calls: int, second: str, second_calls: int) -> list[str]:
    """Return orders in which `first` stops before some call, `second` runs to some call, then both go on."""
    schedules = [
        first * stop + second * other_stop + first * (first_calls - stop + 20)
        for stop in range(1, first_calls)
        for other_stop in range(1, second_calls + 1)
    ]
    return schedules[::STRIDE]


def _calls(template: str, at: Places, act: Act) -> int:
    url = at.copy(template)
    return sum(map(_steps, storage_calls(lambda: act(open_impatient(url)))))


def _assert_right(url: str, name: str, error: BaseException | None, where: str) -> None:
    """Assert that the table holds what it should, whether the writer was refused or not."""
    assert error is None or isinstance(error, ConflictError), (where, error)
    table = tblctl.open(url)
    expected = BEFORE if error else AFTER.get(name, BEFORE)
    assert ids_of(table) == expected, where
    report = table.check(deep=False)
    assert report.ok, (where, report.problems)
    assert named_objects(table) <= objects_of(url).keys(), where


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("order", ["writer first", "gc first"])
def test_no_order_of_storage_calls_of_gc_and_a_writer_loses_an_object(
    name: str, order: str, in_memory: Places
) -> None:
    template = _template(in_memory)
    act = WRITERS[name]
    writer_calls, gc_calls = (_calls(template, in_memory, item) for item in (act, _gc))
    schedules = (
        _two_switches("w", writer_calls, "g", gc_calls)
        if order == "writer first"
        else _two_switches("g", gc_calls, "w", writer_calls)
    )
    for schedule in schedules:
        url = in_memory.renew(template)
        ends = run_interleaved(
            schedule,
            {
                "w": functools.partial(act, open_impatient(url)),
                "g": functools.partial(_gc, open_impatient(url)),
            },
            steps=_steps,
        )
        assert ends["g"].error is None, (schedule, ends["g"].error)
        _assert_right(url, name, ends["w"].error, schedule)


@pytest.mark.parametrize("name", ["append", "delete", "update", "recluster"])
def test_a_write_that_is_shorter_than_older_than_is_never_refused(name: str, in_memory: Places) -> None:
    """gc has garbage to delete at every moment, so that it always commits a fence; what is young stays."""
    template = _template(in_memory)
    Storage(template).write(f"data/{'a' * 32}.parquet", b"left by somebody")
    age(template, 2 * MINUTE_SECONDS, lambda item: "aaaa" in item)
    act = WRITERS[name]
    patient = functools.partial(_gc, older_than=MINUTE_SECONDS)
    writer_calls, gc_calls = (_calls(template, in_memory, item) for item in (act, patient))
    for schedule in _two_switches("w", writer_calls, "g", gc_calls):
        url = in_memory.renew(template)
        ends = run_interleaved(
            schedule,
            {
                "w": functools.partial(act, open_impatient(url)),
                "g": functools.partial(patient, open_impatient(url)),
            },
            steps=_steps,
        )
        assert [end.error for end in ends.values()] == [None, None], schedule
        if name == "recluster":
            assert ends["w"].result.conflicted_groups == 0, schedule
        assert ends["g"].result.objects_deleted, schedule
        _assert_right(url, name, None, schedule)


@pytest.mark.parametrize(
    "schedule", ["a" * n + "g" * m + "b" * k for n in (2, 5) for m in (3, 9, 14) for k in (2, 9)]
)
def test_two_gcs_and_two_writers_leave_a_sound_table(schedule: str, in_memory: Places) -> None:
    url = in_memory.copy(_template(in_memory))
    ends = run_interleaved(
        schedule + "h" * 6,
        {
            "a": functools.partial(WRITERS["append"], open_impatient(url)),
            "b": functools.partial(WRITERS["delete"], open_impatient(url)),
            "g": functools.partial(_gc, open_impatient(url)),
            "h": functools.partial(_gc, open_impatient(url)),
        },
    )
    assert [ends[gc].error for gc in "gh"] == [None, None]
    expected = set(BEFORE)
    if ends["a"].error is None:
        expected |= {50, 51}
    if ends["b"].error is None:
        expected -= {2, 31}
    assert all(end.error is None or isinstance(end.error, ConflictError) for end in ends.values())
    assert ids_of(tblctl.open(url)) == sorted(expected)
    assert_sound(tblctl.open(url))


def _horizon(url: str) -> int:
    return native_of(tblctl.open(url)).head().horizon_us


def test_every_later_commit_carries_the_horizon_on_and_it_never_decreases(at: Places) -> None:
    fresh = tblctl.create(at.fresh(), SCHEMA)
    fresh.append(rows(1))
    assert _horizon(fresh.location) == 0
    url = _template(at)
    table = tblctl.open(url)
    table.tag("before")
    _gc(table)
    horizon = _horizon(url)
    assert abs(horizon / 1e6 - time.time()) < 60
    for act in WRITERS.values():
        act(tblctl.open(url))
        assert _horizon(url) == horizon
    table.rollback("before")
    assert _horizon(url) == horizon
    Storage(url).write(f"data/{'a' * 32}.parquet", b"left by somebody")
    age(url, 10 * MINUTE_SECONDS, lambda item: "aaaa" in item)
    _gc(table, older_than=5 * MINUTE_SECONDS)  # its own horizon would be lower
    assert not [name for name in objects_of(url) if "aaaa" in name]
    assert _horizon(url) == horizon
    _gc(table)
    assert _horizon(url) > horizon
    assert_sound(table)


def test_gc_that_finds_nothing_commits_nothing_and_leaves_no_probe(at: Places) -> None:
    table = tblctl.open(_template(at))
    _gc(table)
    before = objects_of(table.location)
    assert _gc(table).objects_deleted == ()
    assert objects_of(table.location) == before


def test_gc_deletes_nothing_when_its_fence_cannot_be_committed(at: Places) -> None:
    url = _template(at)
    before = objects_of(url)
    faults = Faults()
    faults.fail(operation="create", name="metadata/snapshots/")
    with inject(faults), pytest.raises(tblctl.errors.StorageError):
        _gc(tblctl.open(url))
    assert objects_of(url) == before


def _late(url: str, act: Act, meanwhile: Callable[[], Any]) -> Any:
    """Run `act`; `meanwhile` happens just before it publishes for the first time."""
    faults = Faults()
    faults.do(meanwhile, operation="create", name="metadata/snapshots/")
    with inject(faults):
        outcome = act(open_impatient(url))
    assert faults.fired
    return outcome


@pytest.mark.parametrize("folder", ["metadata/segments/", "metadata/records/"])
def test_segments_and_records_that_gc_may_delete_are_written_again(folder: str, at: Places) -> None:
    """The blocks are young; only what names them was written before the horizon, as in a commit that loses for long."""
    url = _template(at)
    known = objects_of(url).keys()

    def late_gc() -> None:
        age(url, 2 * MINUTE_SECONDS, lambda name: name.startswith(folder) and name not in known)
        assert _gc(tblctl.open(url), older_than=MINUTE_SECONDS).objects_deleted

    outcome = _late(url, WRITERS["recluster"], late_gc)
    assert outcome.committed_groups == 1
    assert ids_of(tblctl.open(url)) == BEFORE
    assert_sound(tblctl.open(url))
    _gc(tblctl.open(url))
    assert set(objects_of(url)) - {"metadata/latest"} == named_objects(tblctl.open(url))


@pytest.mark.parametrize("name", ["append", "delete", "update", "overwrite"])
def test_a_block_that_gc_may_delete_is_refused_even_if_it_is_still_there(name: str, at: Places) -> None:
    url = _template(at)
    known = objects_of(url).keys()

    def late_gc() -> None:
        age(url, 2 * MINUTE_SECONDS, lambda item: item.startswith("data/") and item not in known)
        there = objects_of(url)
        _gc(tblctl.open(url), older_than=MINUTE_SECONDS)
        gone = there.keys() - objects_of(url).keys()
        assert gone
        for item in gone:  # as if gc had ended before it deleted anything
            Storage(url).write(item, there[item])
        age(url, 2 * MINUTE_SECONDS, lambda item: item in gone)

    before = ids_of(tblctl.open(url))
    faults = Faults()
    faults.do(late_gc, operation="create", name="metadata/snapshots/")
    with (
        inject(faults),
        pytest.raises(ConflictError, match="or may remove them: gc ran with an --older-than"),
    ):
        WRITERS[name](open_impatient(url))
    assert ids_of(tblctl.open(url)) == before
    assert_sound(tblctl.open(url))


def test_an_older_tblctl_is_refused_as_a_writer_of_a_table_that_this_one_wrote_to(at: Places) -> None:
    """It would drop the horizon. Version 1 refuses every head whose `min_writer_version` is above 1."""
    table = tblctl.create(at.fresh(), SCHEMA)
    for act in (lambda: None, lambda: table.append(rows(1)), lambda: table.tag("t"), lambda: _gc(table)):
        act()
        document = json.loads(Storage(table.location).read(snapshot_path(table.snapshot.sequence)))
        assert document["min_writer_version"] == 2
        assert document["format_version"] == 1  # it may read


def test_what_was_written_just_before_gc_goes_and_a_write_just_after_it_is_not_refused(
    location: Location,
) -> None:
    table = tblctl.create(location.url, SCHEMA, storage_options=location.storage_options)
    table.append(rows(1))
    table.overwrite(rows(2))
    gone = {
        item.path
        for item in tblctl.open(location.url, as_of=2, storage_options=location.storage_options).files()
    }
    assert gone <= set(_gc(table).objects_deleted)
    table.append(rows(3))
    table.update({"v": "y"}, "id = 2")
    assert ids_of(table) == [2, 3]
    assert_sound(table)


def _stress(url: str, options: dict[str, Any], seconds: float) -> None:
    """Append in one thread, collect in two others and in another process; then judge the table."""
    stop = time.monotonic() + seconds
    written: list[int] = []
    errors: list[BaseException] = []

    def append() -> None:
        number = 0
        while time.monotonic() < stop:
            number += 1
            try:
                tblctl.open(url, storage_options=options).append(rows(number))
            except ConflictError:
                continue
            written.append(number)

    def collect() -> None:
        while time.monotonic() < stop:
            _gc(tblctl.open(url, storage_options=options))

    def run(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in (append, collect, collect)]
    process = multiprocessing.get_context("spawn").Process(
        target=racing.collect_for, args=(url, options, seconds)
    )
    for runner in (*threads, process):
        runner.start()
    for runner in (*threads, process):
        runner.join()
    assert (errors, process.exitcode) == ([], 0)
    table = tblctl.open(url, storage_options=options)
    assert ids_of(table) == written
    assert_sound(table)


@pytest.mark.parametrize("kind", ["local", "minio"])
def test_an_appender_beside_impatient_gcs_in_threads_and_another_process_loses_no_row(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "local":
        place = Location(kind="local", url=str(tmp_path / "table"))
    else:
        place = request.getfixturevalue("minio").location()
    tblctl.create(place.url, SCHEMA, storage_options=place.storage_options)
    _stress(place.url, place.storage_options, STRESS_SECONDS)


def _expire_and_fold(url: str) -> None:
    """Commit often enough that segments are folded, and let a gc remove what only older snapshots name."""
    for number in range(4):
        tblctl.open(url).append(rows(100 + number))
    tblctl.open(url).delete_tag("kept")
    _gc(tblctl.open(url))


@pytest.mark.parametrize("name", ["gc", "delete", "update", "overwrite", "rollback"])
def test_what_another_gc_removes_while_it_is_looked_at_is_no_damage(name: str, in_memory: Places) -> None:
    """`act` has read the head; before any later call of it others commit, and a gc removes what that head names."""
    act = {**WRITERS, "gc": functools.partial(tblctl.Table.gc, keep=4, older_than=0)}[name]
    template = _template(in_memory)
    calls = len(storage_calls(lambda: act(open_impatient(in_memory.copy(template)))))
    for number in range(2, calls + 1):
        url = in_memory.renew(template)
        faults = Faults()
        faults.do(functools.partial(_expire_and_fold, url), nth=number)
        table = open_impatient(url)
        with inject(faults):
            try:
                act(table)
            except ConflictError:
                assert name in {"delete", "update", "overwrite"}, number
            except tblctl.errors.SnapshotNotFoundError:
                assert name == "rollback", number
        assert_sound(tblctl.open(url))


def test_a_recluster_whose_version_gc_removes_conflicts_and_reports_no_damage(in_memory: Places) -> None:
    """Before each of its storage calls a delete rewrites what it is to read, and a gc without grace removes that."""
    template = in_memory.fresh()
    two_groups(At(url=template))
    ids = ids_of(tblctl.open(template))
    calls = len(storage_calls(lambda: tblctl.open(in_memory.copy(template)).recluster()))
    committed = set()
    for number in range(1, calls + 1):
        url = in_memory.renew(template)

        def expire(url: str = url) -> None:
            table = tblctl.open(url)
            table.delete("id = 1")
            table.gc(keep=1, older_than=0)

        faults = Faults()
        faults.do(expire, nth=number)
        with inject(faults):
            outcome = tblctl.open(url).recluster()
        committed.add(outcome.committed_groups)
        assert not [group for group in outcome.groups if "check --deep" in (group.error or "")], number
        table = tblctl.open(url)
        assert_sound(table)
        table.recluster(final=True)
        assert ids_of(table) == ids[1:], number
    assert committed >= {0, 2}


@pytest.mark.parametrize("name", ["plan", "info", "suggest"])
def test_what_looks_at_a_version_that_gc_removes_looks_at_the_next_one(name: str, in_memory: Places) -> None:
    """Before each of its storage calls a delete rewrites what it is to read, and a gc without grace removes that."""
    template = in_memory.fresh()
    two_groups(At(url=template))
    calls = len(storage_calls(getattr(tblctl.open(in_memory.copy(template)), name)))
    blocks = []
    for number in range(1, calls + 1):
        url = in_memory.renew(template)
        faults = Faults()
        faults.do(functools.partial(_delete_and_expire, url), nth=number)
        with inject(faults):
            found = getattr(tblctl.open(url), name)()
        if name == "plan":
            blocks.append(set(found.groups[0].blocks) <= {file.path for file in tblctl.open(url).files()})
    assert name != "plan" or blocks.count(True) > 1, "it looked again"


def _delete_and_expire(url: str) -> None:
    table = tblctl.open(url)
    table.delete("id = 1")
    table.gc(keep=1, older_than=0)


def test_a_plan_whose_versions_expire_again_and_again_conflicts_and_one_of_a_damaged_table_does_not(
    in_memory: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = in_memory.fresh()
    two_groups(At(url=url))
    listing, expired = NativeVersion.listing, [0]

    def expire_first(version: NativeVersion, *args: Any, **options: Any) -> Listing:
        with monkeypatch.context() as patch:
            patch.setattr(NativeVersion, "listing", listing)
            table = tblctl.open(url)
            table.overwrite(rows(1000 + expired[0]))
            table.gc(keep=1, older_than=0)
        expired[0] += 1
        return listing(version, *args, **options)

    monkeypatch.setattr(NativeVersion, "listing", expire_first)
    with pytest.raises(ConflictError, match="try again, and let gc keep versions"):
        tblctl.open(url).plan()
    assert expired[0] > 1
    monkeypatch.undo()
    Storage(url).delete([name for name in objects_of(url) if "segments/" in name])
    with pytest.raises(CorruptTableError, match="is missing"):
        tblctl.open(url).plan()


def test_a_newest_snapshot_that_expires_while_it_is_looked_for_is_no_damage(
    in_memory: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look for the next one comes before commits and a gc of others, the look at it comes after these."""
    url = in_memory.fresh()
    tblctl.create(url, SCHEMA).append(rows(1))
    at_first = tblctl.open(url).snapshot.sequence
    read_many = Storage.read_many
    waiting = [True]

    def others() -> None:
        table = tblctl.open(url)
        for number in range(2, 5):
            table.append(rows(number))
        table.gc(keep=1, older_than=0)

    def next_one_first(storage: Storage, names: Sequence[str]) -> list[bytes | None]:
        if not waiting or names[0] != snapshot_path(at_first):
            return read_many(storage, names)
        after = read_many(storage, names[1:])
        waiting.clear()
        others()
        return [*read_many(storage, names[:1]), *after]

    monkeypatch.setattr(Storage, "read_many", next_one_first)
    head = load_head(Storage(url))
    assert not waiting
    assert head.sequence > at_first
    assert ids_of(tblctl.open(url)) == [1, 2, 3, 4]


def test_a_tombstone_without_a_newer_snapshot_is_damage(in_memory: Places) -> None:
    url = in_memory.fresh()
    table = tblctl.create(url, SCHEMA)
    for number in range(3):
        table.append(rows(number))
    table.gc(keep=1, older_than=0)
    storage = Storage(url)
    head = load_head(storage)
    last = max(
        number
        for number in range(1, head.sequence)
        if not isinstance(load_version(storage, number), Snapshot)
    )
    for number in range(last + 1, head.sequence + 1):
        storage.delete([snapshot_path(number)])
    with pytest.raises(CorruptTableError, match="newest snapshot but a tombstone"):
        load_head(storage)
