"""Concurrent writers: in any order of their steps, the table is as if they had run one after the other."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults import Call, Faults, inject, interleavings, run_interleaved
from profiles import THOROUGH as EVERYTHING
from servers import Location, SkippingClock
from tables import (
    HOURS_AGO_SECONDS,
    SCHEMA,
    Places,
    State,
    aged_table,
    assert_sound,
    ids_of,
    named_objects,
    native_of,
    objects_of,
    open_impatient,
    places,
    rows,
    state_of,
)
from writers import expected_ids, run_writers

import tblctl
from tblctl.errors import CommitOutcomeUnknownError, ConflictError, InputError, TableNotFoundError
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.native.log.commit import publish
from tblctl.tableformat.native.log.edit import Edit
from tblctl.tableformat.native.log.edit_applier import EditApplier
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.native.write.dml import MOST_REPLANS
from tblctl.tableformat.port import Label
from tblctl.tableformat.storage import Storage

OPERATIONS = 50 if EVERYTHING else 6  # of each process that races

Act = Callable[[tblctl.Table], Any]


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Places]:
    yield from places("memory", tmp_path)


def _build(table: tblctl.Table) -> None:
    """Fill a table: 1 to 8 in two blocks, 11 to 13 in a third, and an old snapshot that named 10."""
    table.append(rows(*range(1, 9)))
    table.append(rows(10))
    table.overwrite(rows(11, 12, 13), where="id = 10")


ACTS: dict[str, Act] = {
    "append": lambda table: table.append(rows(50)),
    "append more": lambda table: table.append(rows(*range(60, 70))),
    "delete 1": lambda table: table.delete("id = 1"),
    "delete 2, the same block": lambda table: table.delete("id = 2"),
    "delete 12, another block": lambda table: table.delete("id = 12"),
    "delete a block": lambda table: table.delete("id <= 4"),
    "update 1 and 12": lambda table: table.update({"v": "new"}, "id in (1, 12)"),
    "overwrite all": lambda table: table.overwrite(rows(70)),
    "overwrite some": lambda table: table.overwrite(rows(2, v="y"), where="id = 2"),
    "add column": lambda table: table.add_column("w", "int32"),
    "rename": lambda table: table.rename_column("v", "u"),
    "cluster by": lambda table: table.set_cluster_key("v"),
    "rollback": lambda table: table.rollback(2),
    "rollback to 10": lambda table: table.rollback(3),
    "delete 1 and 10": lambda table: table.delete("id in (1, 10)"),
    "overwrite 10": lambda table: table.overwrite(rows(10, v="y"), where="id = 10"),
    "gc": lambda table: table.gc(keep=1, older_than=HOURS_AGO_SECONDS / 2),
    "tag": lambda table: table.tag("t", 3),
}
PAIRS = [
    ("append", "append more"),
    ("append", "delete 1"),
    ("append", "overwrite all"),
    ("append", "rename"),
    ("append", "add column"),
    ("append", "cluster by"),
    ("gc", "append"),
    ("append", "rollback"),
    ("delete 1", "delete 2, the same block"),
    ("delete 1", "delete 12, another block"),
    ("delete 1", "delete a block"),
    ("delete 1", "update 1 and 12"),
    ("delete 1", "overwrite all"),
    ("delete 1", "rename"),
    ("delete 1", "rollback"),
    ("delete 1 and 10", "rollback to 10"),
    ("overwrite 10", "rollback to 10"),
    ("gc", "delete 1"),
    ("overwrite some", "update 1 and 12"),
    ("overwrite all", "rollback"),
    ("overwrite all", "overwrite all"),
    ("overwrite 10", "overwrite 10"),
    ("overwrite some", "append"),
    ("add column", "rename"),
    ("rename", "cluster by"),
    ("gc", "rollback"),
    ("gc", "tag"),
    ("gc", "gc"),
]
THOROUGH = [
    ("append", "append more"),
    ("delete 1", "delete 2, the same block"),
    ("delete 1", "update 1 and 12"),
]


def _outcome(table: tblctl.Table, act: Act) -> str | None:
    """Run `act`; return the name of the error that it may end with, None for none."""
    try:
        act(table)
    except InputError as error:  # the other one made it impossible: expired the snapshot, renamed the column
        return type(error).__name__
    return None


def _serial_results(
    template: str, at: Places, pair: tuple[str, str]
) -> list[tuple[State, dict[str, str | None]]]:
    found = []
    for order in itertools.permutations(zip("ab", pair, strict=True)):
        table = tblctl.open(at.copy(template))
        outcomes = {actor: _outcome(table, ACTS[name]) for actor, name in order}
        found.append((state_of(table), outcomes))
    return found


def _commit_steps(call: Call) -> bool:
    """Count what two committers order: reads and creates of snapshots, the last look at new objects."""
    return call.operation == "look for" or any("metadata/snapshots/" in name for name in call.names)


def _gc_steps(call: Call) -> bool:
    """Count what changes something or decides what may go, but not the many reads of gc."""
    return call.operation not in {"read", "open"} and call.names != ("metadata/latest",)


def _schedules(pair: tuple[str, str]) -> list[str]:
    if "gc" in pair:
        return interleavings(a=7, b=3)[:: 3 if EVERYTHING else 7]
    return (interleavings(a=4, b=4)[::2] if pair in THOROUGH else interleavings(a=3, b=3))[:: 2 - EVERYTHING]


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_writers_in_any_order_of_steps_end_as_if_one_after_the_other(
    pair: tuple[str, str], at: Places
) -> None:
    template = at.fresh()
    aged_table(template, _build, options={"block_rows": 4})
    serial = _serial_results(template, at, pair)
    for schedule in _schedules(pair):
        url = at.renew(template)
        ends = run_interleaved(
            schedule,
            {
                actor: functools.partial(_outcome, open_impatient(url), ACTS[name])
                for actor, name in zip("ab", pair, strict=True)
            },
            steps=_gc_steps if "gc" in pair else _commit_steps,
        )
        assert [end.error for end in ends.values()] == [None, None], schedule
        table = tblctl.open(url)
        result = state_of(table), {actor: end.result for actor, end in ends.items()}
        assert result in serial, schedule
        report = table.check(deep=False)
        assert report.ok, (schedule, report.problems)
        assert named_objects(table) <= objects_of(url).keys(), schedule


def _late_writer(url: str, meanwhile: Callable[[], Any], act: Act, **pause: Any) -> Any:
    """Run `act` on a handle that is old by the time it publishes: `meanwhile` happens just before."""
    faults = Faults()
    faults.do(meanwhile, operation="create", name="metadata/snapshots/", **pause)
    table = open_impatient(url)  # it remembers this head
    with inject(faults):
        outcome = act(table)
    assert faults.fired
    return outcome


@pytest.mark.parametrize("act", ["append", "delete 1", "update 1 and 12", "rename", "tag"])
def test_a_writer_that_slept_through_100_commits_and_a_gc_loses_the_race_and_tries_again(
    act: str, at: Places
) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA, options={"block_rows": 4}).append(rows(*range(1, 9)))
    tblctl.open(url).append(rows(11, 12, 13))

    def others() -> None:
        table = tblctl.open(url)
        for number in range(100):
            table.append(rows(1000 + number))
        if act == "tag":
            table.tag("keeps_3", 3)
        table.gc(keep=1, older_than="1h")
        native_of(table).collect_garbage(keep=1, older_than_seconds=0, dry_run=True)

    outcome = _late_writer(url, others, ACTS[act])
    assert outcome.attempts == 2
    table = tblctl.open(url)
    assert outcome.snapshot == table.snapshot.sequence >= 104
    assert set(range(1000, 1100)) <= set(ids_of(table))
    assert (1 in ids_of(table)) == (act != "delete 1")
    assert_sound(table)


def test_a_writer_whose_blocks_an_impatient_gc_removed_is_told_and_nothing_is_published(at: Places) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA).append(rows(1))

    def impatient() -> None:
        tblctl.open(url).append(rows(2))
        tblctl.open(url).gc(keep=1, older_than=0)

    with pytest.raises(ConflictError, match="before they were published"):
        _late_writer(url, impatient, lambda table: table.append(rows(3)))
    assert ids_of(tblctl.open(url)) == [1, 2]
    assert_sound(tblctl.open(url))


@pytest.mark.parametrize("recreate", [False, True])
def test_a_writer_whose_table_was_dropped_does_not_bring_it_back(at: Places, recreate: bool) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA).append(rows(1))
    table = tblctl.open(url)
    faults = Faults()

    def drop() -> None:
        tblctl.drop(url)
        if recreate:
            tblctl.create(url, SCHEMA)

    faults.do(drop, operation="write", name="data/")
    with inject(faults), pytest.raises(TableNotFoundError, match="dropped"):
        table.append(rows(2))
    assert tblctl.exists(url) == recreate
    if recreate:
        assert ids_of(tblctl.open(url)) == []


def _recreate(url: str, commits: int) -> None:
    """Replace this table by another one, with its own snapshots of the same names."""
    tblctl.drop(url)
    table = tblctl.create(url, SCHEMA, options={"block_rows": 4})
    for number in range(commits):
        table.append(rows(1000 + number))


RECREATED = ("append", "delete 1", "update 1 and 12", "overwrite all", "rename", "rollback", "tag", "gc")


@pytest.mark.parametrize("commits", [0, 2, 3, 4, 9])  # the old table's head is 4
@pytest.mark.parametrize("act", RECREATED)
def test_a_writer_does_not_touch_the_table_that_took_the_place_of_its_own(
    act: str, commits: int, at: Places
) -> None:
    url = at.fresh()
    aged_table(url, _build, options={"block_rows": 4})
    table = open_impatient(url)
    before: dict[str, bytes] = {}

    def recreate() -> None:
        _recreate(url, commits)
        before.update(objects_of(url))

    faults = Faults()
    # After all is read and written, just before the commit. gc looked at its probe and at its snapshots' ages before.
    faults.do(recreate, operation="look for", nth=3 if act == "gc" else 1)
    with inject(faults), pytest.raises(TableNotFoundError, match="dropped"):
        ACTS[act](table)
    assert objects_of(url) == before
    assert ids_of(tblctl.open(url)) == list(range(1000, 1000 + commits))


@pytest.mark.parametrize("commits", [4, 9])
def test_a_writer_whose_table_is_recreated_while_it_waits_after_a_lost_race_is_told(
    commits: int, at: Places
) -> None:
    url = at.fresh()
    aged_table(url, _build, options={"block_rows": 4})

    def lose_then_recreate() -> None:
        tblctl.open(url).delete("id = 1")
        faults.do(lambda: _recreate(url, commits), operation="read", name="metadata/snapshots/", nth=2)

    faults = Faults()
    faults.do(lose_then_recreate, operation="create", name="metadata/snapshots/")
    table = open_impatient(url)
    with inject(faults), pytest.raises(TableNotFoundError, match="dropped"):
        table.delete("id = 1")
    assert ids_of(tblctl.open(url)) == list(range(1000, 1000 + commits))
    assert_sound(tblctl.open(url))


@pytest.mark.parametrize("commits", [4, 9])
def test_gc_writes_no_tombstone_into_a_table_that_took_the_place_of_its_own(commits: int, at: Places) -> None:
    url = at.fresh()
    aged_table(url, _build, options={"block_rows": 4})
    table = tblctl.open(url)
    faults = Faults()
    faults.do(lambda: _recreate(url, commits), operation="write", name="metadata/latest")
    with inject(faults), pytest.raises(TableNotFoundError, match="dropped"):
        table.gc(keep=1, older_than=0)
    assert ids_of(tblctl.open(url)) == list(range(1000, 1000 + commits))
    assert all(item.readable for item in tblctl.open(url).history())


def test_an_edit_is_planned_again_as_often_as_another_writer_replaces_its_block_up_to_a_bound(
    at: Places,
) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA).append(rows(*range(100)))
    faults = Faults()
    other = tblctl.open(url)
    for number in range(MOST_REPLANS + 1):
        # 2 creates a round: the victim's, and the one of the other writer inside it
        faults.do(
            lambda number=number: other.delete(f"id = {number}"),
            operation="create",
            name="snapshots/",
            nth=2 * number + 1,
        )
    with inject(faults), pytest.raises(ConflictError, match="21 times in a row"):
        open_impatient(url).delete("id = 99")
    assert ids_of(tblctl.open(url)) == list(range(MOST_REPLANS + 1, 100))
    assert tblctl.open(url).delete("id = 99").rows_removed == 1
    assert_sound(tblctl.open(url))


def _recluster(url: str, relabel: bool) -> None:
    """Rewrite every block as it is, or give each another run, as a recluster would."""
    table = tblctl.open(url)
    native = native_of(table)
    head = native.head()
    from tblctl.tableformat.native.read.metadata import block_metadata
    from tblctl.tableformat.native.write.write_planner import Planner, Write

    metadata = block_metadata(native.storage, head)
    paths = metadata.values("path").to_pylist()
    by_segment: dict[str, list[str]] = {}
    for row, path in enumerate(paths):
        by_segment.setdefault(metadata.segment_of(row).path, []).append(path)
    if relabel:
        labels = {
            segment: {path: Label(level=3, run_id="f" * 32) for path in found}
            for segment, found in by_segment.items()
        }
        edit = Edit(operation="recluster", relabelled=labels)
    else:
        write = Write(operation="recluster", everything=True, assign=lambda schema: {})
        edit = Planner(native.storage, native.env, write).plan(head)
    applier = EditApplier(native.storage, native.env)
    assert publish(native.storage, native.env, lambda head: applier.propose(edit, head), head)


@pytest.mark.parametrize("relabel", [False, True])
def test_losing_to_a_recluster_does_not_count_towards_the_bound(at: Places, relabel: bool) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA, cluster_by="id").append(rows(*range(20)))
    faults = Faults()
    rounds = MOST_REPLANS + 5
    for number in range(rounds):
        faults.do(lambda: _recluster(url, relabel), operation="create", name="snapshots/", nth=2 * number + 1)
    with inject(faults):
        outcome = open_impatient(url).delete("id = 7")
    assert outcome.rows_removed == 1
    assert len(faults.fired) == rounds
    assert ids_of(tblctl.open(url)) == [item for item in range(20) if item != 7]
    assert_sound(tblctl.open(url))


@pytest.mark.parametrize("relabel", [False, True])
def test_losing_to_a_recluster_while_others_delete_elsewhere_does_not_count_either(
    at: Places, relabel: bool
) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA, cluster_by="id").append(rows(*range(20)))
    other = tblctl.open(url)
    rounds = MOST_REPLANS + 2
    other.append(rows(*range(1000, 1000 + rounds)))
    faults = Faults()

    def meanwhile(number: int) -> None:
        other.delete(f"id = {1000 + number}")
        _recluster(url, relabel)

    for number in range(rounds):
        act = functools.partial(meanwhile, number)
        faults.do(act, operation="create", name="snapshots/", nth=3 * number + 1)
    with inject(faults):
        outcome = open_impatient(url).delete("id = 7")
    assert len(faults.fired) == rounds
    assert outcome.rows_removed == 1
    assert ids_of(tblctl.open(url)) == [item for item in range(20) if item != 7]
    assert_sound(tblctl.open(url))


def test_an_edit_reads_a_touched_segment_once_however_often_it_loses(at: Places) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA, options={"block_rows": 4}).append(rows(*range(8)))
    native = native_of(tblctl.open(url))
    head = native.head()
    block = next(iter(tblctl.open(url).files()))
    edit = Edit(operation="delete", removed={head.segments[0].path: frozenset([block.path])})
    applier = EditApplier(native.storage, native.env)
    with inject(Faults()) as faults:
        drafts = [applier.propose(edit, head) for _ in range(3)]
    assert len([call for call in faults.calls if call.operation in {"read", "open"}]) == 1
    assert all(draft.snapshot.segments == drafts[0].snapshot.segments for draft in drafts)


def test_an_append_across_a_rollback_of_the_schema_is_told_and_nothing_is_published(at: Places) -> None:
    url = at.fresh()
    table = tblctl.create(url, "id: int32, v: string not null, w: string")
    table.widen_column("id", "int64")
    table.drop_column("v")
    data = pa.table({"id": [2**40], "w": ["x"]}, schema=table.schema)
    for act in (lambda table: table.append(data), lambda table: table.overwrite(data, where="id = 1")):
        with pytest.raises(ConflictError, match="rolled back to another schema"):
            _late_writer(url, lambda: tblctl.open(url).rollback(1), act)
        assert ids_of(tblctl.open(url)) == []
        assert_sound(tblctl.open(url))
        tblctl.open(url).rollback(3)
    tblctl.open(url).append(data)
    assert ids_of(tblctl.open(url)) == [2**40]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", "minio"])
def test_8_processes_of_appends_and_deletes_leave_every_row_exactly_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if kind == "minio":
        location = request.getfixturevalue("minio").location()
    else:
        location = Location(kind="local", url=str(tmp_path / "table"))
    table = tblctl.create(location.url, SCHEMA, storage_options=location.storage_options)
    seconds, attempts = run_writers(location.url, location.storage_options, workers=8, operations=OPERATIONS)
    print(f"{kind}: {seconds:.1f} s, at most {attempts} attempts")
    assert ids_of(table) == expected_ids(8, OPERATIONS)
    assert table.snapshot.sequence == 1 + 8 * OPERATIONS
    assert_sound(table)


def test_appends_whose_replies_are_cut_commit_exactly_once(proxied: Location, proxy: Any) -> None:
    table = tblctl.create(proxied.url, SCHEMA, storage_options=proxied.storage_options)
    for number in range(1, 4):
        proxy.clear()
        proxy.on("PUT", "metadata/snapshots/", action="cut reply", times=number)
        assert table.append(rows(number)).rows_added == 1
        assert any(item.action == "cut reply" for item in proxy.exchanges)
    assert ids_of(table) == [1, 2, 3]
    assert_sound(table)


def test_a_commit_without_any_reply_says_that_its_outcome_is_unknown_and_deletes_nothing(
    proxied: Location, proxy: Any, s3_clock: SkippingClock
) -> None:
    tblctl.create(proxied.url, SCHEMA, storage_options=proxied.storage_options).append(rows(1))
    table = open_impatient(proxied.url, proxied.storage_options)
    proxy.clear()
    faults = Faults()

    def server_goes_away() -> None:
        proxy.on("PUT", "metadata/snapshots/", action="cut reply")
        proxy.on("", "", action="drop", nth=2, times=10**6)

    faults.do(server_goes_away, operation="create", name="metadata/snapshots/")
    with inject(faults), pytest.raises(CommitOutcomeUnknownError, match="tblctl history") as caught:
        table.append(rows(2))
    assert 0 < s3_clock.waited_seconds < 60
    assert caught.value.details["sequence"] == 3
    assert [item for item in proxy.exchanges if item.method == "DELETE" or "delete" in item.path] == []
    proxy.clear()
    assert ids_of(table) == [1, 2]  # it had happened
    assert_sound(table)


def test_a_writer_that_loses_for_long_waits_less_and_less(at: Places) -> None:
    """Otherwise writers that have just begun, whose waits are short, win over it again and again."""
    url, waits = at.fresh(), []
    tblctl.create(url, SCHEMA).append(rows(0))
    env = Environment(sleep=waits.append, elapsed=lambda: sum(waits), random=lambda: 1.0)
    native = NativeTable(Storage(url), env)
    native.head()
    faults = Faults()
    for number in range(20):  # another writer commits before each attempt; its own create is the next match
        faults.do(
            lambda: tblctl.open(url).append(rows(1)),
            operation="create",
            name="snapshots/",
            nth=2 * number + 1,
        )
    with inject(faults):
        tblctl.Table(native).append(rows(2))
    assert ids_of(tblctl.open(url)) == [0, *[1] * 20, 2]
    longest = waits.index(max(waits))
    assert waits[:longest] == sorted(waits[:longest]), "waits grow at first"
    assert waits[longest:] == sorted(waits[longest:], reverse=True), "and then shrink"
    assert waits[-1] < max(waits) / 2


@pytest.mark.parametrize("reads", [1, 3])
def test_a_commit_whose_read_back_is_damaged_is_neither_made_twice_nor_deleted(
    at: Places, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    """The driver sends the create again and meets its own object, which then has a flipped bit when it is read."""
    url = at.fresh()
    tblctl.create(url, SCHEMA)
    table = open_impatient(url)
    backend = native_of(table).storage._backend
    create, read = backend.create, backend.read
    left: list[str] = []

    def create_twice(name: str, data: bytes) -> bool:
        left.extend([name] * reads)
        return create(name, data) and create(name, data)

    def damaged_at_first(name: str) -> bytes:
        data = read(name)
        if name not in left:
            return data
        left.remove(name)
        return data[:50] + bytes([data[50] ^ 1]) + data[51:]

    monkeypatch.setattr(backend, "create", create_twice)
    monkeypatch.setattr(backend, "read", damaged_at_first)
    assert table.append(rows(1, 2)).snapshot == 2
    assert ids_of(tblctl.open(url)) == [1, 2]
    assert_sound(tblctl.open(url))


def test_a_commit_whose_object_stays_damaged_says_that_its_outcome_is_unknown(
    at: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA)
    table = open_impatient(url)
    backend = native_of(table).storage._backend
    create = backend.create
    monkeypatch.setattr(backend, "create", lambda name, data: create(name, data[:50]) and False)
    blocks_before = {name for name in objects_of(url) if name.startswith("data/")}
    with pytest.raises(CommitOutcomeUnknownError, match="tblctl history"):
        table.append(rows(1))
    assert {name for name in objects_of(url) if name.startswith("data/")} > blocks_before


@pytest.mark.parametrize(("waited", "attempts"), [(True, 1), (False, 2)])
def test_an_append_that_waited_for_its_turn_begins_on_the_newest_head(
    at: Places, *, waited: bool, attempts: int
) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA)

    @contextmanager
    def turn(_name: str) -> Iterator[bool]:
        tblctl.open(url).append(rows(1))  # of the thread whose turn it was
        yield waited

    done = tblctl.Table(NativeTable(Storage(url), Environment(turn=turn))).append(rows(2))
    assert done.attempts == attempts
    assert ids_of(tblctl.open(url)) == [1, 2]


def test_appends_of_many_threads_all_land(at: Places) -> None:
    url, count = at.fresh(), 8
    tblctl.create(url, SCHEMA)
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda number: tblctl.open(url).append(rows(number)), [*range(count)] * 3))
    assert sorted(ids_of(tblctl.open(url))) == sorted([*range(count)] * 3)


def test_rows_are_written_before_the_turn_to_commit(at: Places) -> None:
    """So a slow upload holds up nobody."""
    url = at.fresh()
    tblctl.create(url, SCHEMA)
    seen, storage = [], Storage(url)

    @contextmanager
    def turn(name: str) -> Iterator[bool]:
        seen.append([name, *(item.name for item in storage.list("data/"))])
        yield False

    tblctl.Table(NativeTable(storage, Environment(turn=turn))).append(rows(1))
    ((name, block),) = seen
    assert name == url
    assert block.endswith(".parquet")
