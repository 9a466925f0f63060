"""Concurrent operations: each applies to the rows at its commit, wherever others come in between.

The model is a list of rows: every operation in the order of the commits does to it what it says.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faults import Call, Faults, inject, storage_calls
from tables import (
    SCHEMA,
    Places,
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
from tblctl.tableformat.model.snapshot import Batch
from tblctl.tableformat.native.write.dml import MOST_REPLANS
from tblctl.tableformat.native.write.staged_write import StagedWriter

Rows = frozenset[tuple[int, str]]
"""The rows of a table: every pair of id and text is there once."""


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Places]:
    yield from places("memory", tmp_path)


@dataclass(frozen=True, kw_only=True)
class Act:
    """One operation: on a table, and on the model (rows before it, rows of every snapshot so far)."""

    run: Callable[[tblctl.Table], Any]
    model: Callable[[Rows, Mapping[int, Rows]], Rows]


def _pairs(*ids: int, v: str = "x") -> Rows:
    return frozenset((item, f"{v}{item}") for item in ids)


def _appending(*ids: int) -> Act:
    return Act(
        run=lambda table: table.append(rows(*ids, v="n")), model=lambda now, _: now | _pairs(*ids, v="n")
    )


def _overwriting(*ids: int, above: int | None, v: str) -> Act:
    where = None if above is None else f"id >= {above}"

    def model(now: Rows, _: Mapping[int, Rows]) -> Rows:
        left = [] if above is None else [row for row in now if row[0] < above]
        return frozenset(left) | _pairs(*ids, v=v)

    return Act(run=lambda table: table.overwrite(rows(*ids, v=v), where=where), model=model)


def _with_a_part(table: tblctl.Table, batch: Batch | None = None) -> Any:
    """Overwrite everything as Spark does: blocks from tasks, one commit."""
    native = native_of(table)
    staged = StagedWriter.of(native.storage, native.env, native.head()).write(SCHEMA, [rows(300, v="p")])
    return native.write("overwrite", staged=staged, everything=True, batch=batch)


ACTS: dict[str, Act] = {
    "overwrite 100 on": _overwriting(100, 101, above=100, v="a"),
    "overwrite 100 on again": _overwriting(101, 102, above=100, v="b"),
    "overwrite 5 on": _overwriting(5, 104, above=5, v="c"),
    "overwrite all": _overwriting(200, 201, above=None, v="d"),
    "overwrite with a part": Act(run=_with_a_part, model=lambda *_: _pairs(300, v="p")),
    "overwrite with a batch": Act(
        run=lambda table: _with_a_part(table, Batch(stream="s", number=0)),
        model=lambda *_: _pairs(300, v="p"),
    ),
    "append matching rows": _appending(150, 151, 152, 153, 154),
    "append a block that matches partly": _appending(50, 160),
    "append other rows": _appending(60, 61),
    "recluster": Act(run=lambda table: table.recluster(policy="full"), model=lambda now, _: now),
    "rollback": Act(run=lambda table: table.rollback(3), model=lambda _, then: then[3]),
    "alter the key": Act(run=lambda table: table.set_cluster_key("v"), model=lambda now, _: now),
    "delete": Act(
        run=lambda table: table.delete("id >= 100 or id = 2"),
        model=lambda now, _: frozenset(row for row in now if row[0] < 100 and row[0] != 2),
    ),
    "update": Act(
        run=lambda table: table.update({"v": "u"}, "id >= 100 or id = 2"),
        model=lambda now, _: frozenset((item, "u" if item >= 100 or item == 2 else v) for item, v in now),
    ),
    "update again": Act(
        run=lambda table: table.update({"v": "w"}, "id <= 3 or v = 'u'"),
        model=lambda now, _: frozenset((item, "w" if item <= 3 or v == "u" else v) for item, v in now),
    ),
}
OVERWRITES = ["overwrite 100 on", "overwrite 5 on", "overwrite all", "overwrite with a part"]
MEETING_OVERWRITES = [
    *((first, second) for first in OVERWRITES for second in OVERWRITES),
    ("overwrite 100 on", "overwrite 100 on again"),
    ("overwrite with a batch", "overwrite with a batch"),
    ("overwrite with a batch", "overwrite all"),
    ("overwrite all", "append matching rows"),
    ("overwrite 100 on", "append a block that matches partly"),
]
PAIRS = [
    *(
        (first, second)
        for first in ("overwrite 100 on", "overwrite 5 on", "overwrite all")
        for second in ACTS
        if not second.startswith("overwrite")
    ),
    ("delete", "append a block that matches partly"),
    ("delete", "recluster"),
    ("delete", "rollback"),
    ("delete", "update"),
    ("update", "append a block that matches partly"),
    ("update", "recluster"),
    ("update", "update again"),
    ("update again", "delete"),
    ("update again", "rollback"),
    ("append other rows", "overwrite all"),
    ("append other rows", "rollback"),
    ("recluster", "overwrite 5 on"),
    ("recluster", "update"),
    ("rollback", "overwrite 100 on"),
    ("rollback", "overwrite all"),
]


def _empty(url: str) -> dict[int, Rows]:
    tblctl.create(url, SCHEMA, cluster_by="id", options={"block_rows": 4})
    return {1: frozenset()}


def _filled(url: str) -> dict[int, Rows]:
    """Make two overlapping runs, the second of them gone from 100 on since snapshot 3."""
    history = _empty(url)
    table = tblctl.open(url)
    table.append(rows(*range(1, 9)))
    history[2] = _pairs(*range(1, 9))
    table.append(rows(20, 110, 111))
    history[3] = history[2] | _pairs(20, 110, 111)
    table.overwrite(rows(4, v="z"), where="id >= 100 or id = 4")
    history[4] = frozenset(row for row in history[3] if row[0] < 100 and row[0] != 4) | _pairs(4, v="z")
    return history


def _sequence_of(outcome: Any) -> int | None:
    """Return the snapshot that an act committed; None where it changed no row, as a recluster."""
    committed = getattr(outcome, "snapshot", None)
    return getattr(committed, "sequence", committed)


def _assert_follows_the_commits(
    url: str, history: Mapping[int, Rows], done: Sequence[tuple[str, Any]], context: object
) -> None:
    """Assert that the table holds what the model has after the acts in the order of their commits."""
    known = dict(history)
    now = known[max(known)]
    acts = [(_sequence_of(outcome), name) for name, outcome in done]
    for sequence, name in sorted((number, name) for number, name in acts if number is not None):
        now = known[sequence] = ACTS[name].model(now, known)
    for number, name in acts:
        if number is None:  # it had nothing to do; this was right at some moment
            assert any(ACTS[name].model(then, known) == then for then in known.values()), (name, context)
    found = [tuple(row.values()) for row in tblctl.open(url).scan(columns=["id", "v"]).to_arrow().to_pylist()]
    assert sorted(found) == sorted(now), context
    report = tblctl.open(url).check(deep=False)
    assert report.ok, (context, report.problems)
    assert named_objects(tblctl.open(url)) <= objects_of(url).keys(), context


def _is_own(call: Call) -> bool:
    """Return whether another writer's commit makes no difference to a call: its object is written once."""
    own = ("data/", "metadata/segments/", "metadata/records/")
    return call.operation in {"read", "open", "write"} and all(name.startswith(own) for name in call.names)


def _moments(calls: Sequence[Call]) -> list[int]:
    """Return the numbers of the calls before which a commit may come: one for a run of calls that it leaves alone."""
    return [
        call.number
        for before, call in zip([None, *calls], calls, strict=False)
        if before is None or not (_is_own(before) and _is_own(call))
    ]


@pytest.mark.parametrize(
    ("build", "pair"),
    [
        *((_empty, pair) for pair in MEETING_OVERWRITES),
        *((_filled, pair) for pair in MEETING_OVERWRITES + PAIRS),
    ],
    ids=lambda item: " beside ".join(item) if isinstance(item, tuple) else item.__name__.strip("_"),
)
def test_whatever_comes_before_any_storage_call_of_an_operation_it_concerns_the_rows_at_its_commit(
    build: Callable[[str], dict[int, Rows]], pair: tuple[str, str], at: Places
) -> None:
    first, second = pair
    template = at.fresh()
    history = build(template)
    trial = open_impatient(at.copy(template))
    for number in _moments(storage_calls(lambda: ACTS[first].run(trial))):
        url = at.renew(template)
        table, other = open_impatient(url), open_impatient(url)
        done: list[tuple[str, Any]] = []
        faults = Faults()
        faults.do(
            functools.partial(
                lambda other, done: done.append((second, ACTS[second].run(other))), other, done
            ),
            nth=number,
        )
        with inject(faults):
            done.append((first, ACTS[first].run(table)))
        assert len(done) == 2, number
        _assert_follows_the_commits(url, history, done, faults.fired)


@pytest.mark.parametrize("seed", range(16))
def test_three_operations_inside_one_another_each_concern_the_rows_at_their_commits(
    seed: int, at: Places
) -> None:
    chance = random.Random(seed)
    url = at.fresh()
    history = _filled(url)
    tables = [open_impatient(url) for _ in range(3)]
    names = chance.sample(sorted(ACTS), 3)
    places_inside = [chance.randrange(1, 15), chance.randrange(1, 30)]
    done: list[tuple[str, Any]] = []
    faults = Faults()
    for number, table, name in zip(places_inside, tables[1:], names[1:], strict=True):
        faults.do(
            functools.partial(lambda table, name: done.append((name, ACTS[name].run(table))), table, name),
            nth=number,
        )
    with inject(faults):
        done.append((names[0], ACTS[names[0]].run(tables[0])))
    _assert_follows_the_commits(url, history, done, (seed, names, places_inside))


# -- an overwrite beside an appender that never pauses ----------------------------------------------------------------


def _before_each_commit(act: Callable[[int], Any], rounds: int) -> Faults:
    """Return faults that run `act`, which commits once, just before each of the first `rounds` commits."""
    faults = Faults()
    for number in range(rounds):
        # 2 creates a round: the victim's, and the one of the other writer inside it
        faults.do(functools.partial(act, number), operation="create", name="snapshots/", nth=2 * number + 1)
    return faults


@pytest.mark.parametrize("ids", [(150,), (50,), (50, 150)], ids=["matching", "others", "both"])
@pytest.mark.parametrize("operation", ["overwrite", "delete", "update"])
def test_races_lost_to_appends_do_not_count_and_every_appended_row_is_seen(
    operation: str, ids: tuple[int, ...], at: Places
) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA, cluster_by="id").append(rows(1, 100))
    other = tblctl.open(url)
    rounds = MOST_REPLANS + 5
    table = open_impatient(url)
    acts: dict[str, Callable[[], Any]] = {
        "overwrite": lambda: table.overwrite(rows(100, v="new"), where="id >= 100"),
        "delete": lambda: table.delete("id >= 100"),
        "update": lambda: table.update({"v": "new"}, "id >= 100"),
    }
    with inject(_before_each_commit(lambda _: other.append(rows(*ids)), rounds)) as faults:
        outcome = acts[operation]()
    assert len(faults.fired) == rounds
    assert outcome.attempts == rounds + 1
    matching = 1 + rounds * (150 in ids)
    assert outcome.rows_removed == matching
    left = {"overwrite": 1, "delete": 0, "update": matching}[operation]
    data = tblctl.open(url).scan("id >= 100").to_arrow()
    assert data.num_rows == left
    assert all(text.startswith("new") for text in data["v"].to_pylist())
    assert ids_of(tblctl.open(url)).count(50) == rounds * (50 in ids)
    assert_sound(tblctl.open(url))


def test_an_operation_that_lost_a_race_reads_and_writes_only_what_is_new(at: Places) -> None:
    url = at.fresh()
    table = tblctl.create(url, SCHEMA, cluster_by="id", options={"block_rows": 4})
    for first in range(0, 40, 4):  # ten segments folded twice; every block matches partly
        table.append(rows(first, first + 1, first + 2, 100 + first))
    during: list[int] = []

    def meanwhile() -> None:
        during.append(len(faults.calls))
        tblctl.open(url).append(rows(50, 150))
        during.append(len(faults.calls))

    faults = Faults()
    faults.do(meanwhile, operation="create", name="snapshots/")
    slow = open_impatient(url)
    with inject(faults):
        outcome = slow.overwrite(rows(*range(200, 220)), where="id >= 100")
    assert (outcome.attempts, outcome.rows_removed) == (2, 11)
    appended = [call.name for call in faults.calls[slice(*during)] if call.operation == "write"]
    again = faults.calls[during[1] :]
    segments = [
        call.name for call in again if call.operation in {"read", "open"} and "segments/" in call.name
    ]
    assert set(segments) <= {name for name in appended if "segments/" in name}
    opened = {call.name for call in again if call.operation == "open" and call.name.startswith("data/")}
    assert opened == {name for name in appended if name.startswith("data/")}, (
        "ten blocks were looked at before"
    )
    written = [call.name for call in again if call.operation == "write" and call.name.startswith("data/")]
    assert len(written) == 1, "only the new block is rewritten; the overwrite's own rows are there already"
    assert_sound(tblctl.open(url))


def test_two_overwrites_of_an_empty_table_leave_the_rows_of_the_later_commit(at: Places) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA)
    other = tblctl.open(url)
    with inject(_before_each_commit(lambda _: other.overwrite(rows(1, 2)), 1)):
        outcome = open_impatient(url).overwrite(rows(3))
    assert (outcome.rows_removed, outcome.rows_added) == (2, 1)
    assert ids_of(tblctl.open(url)) == [3]
    last, first = list(tblctl.open(url).history(2))
    assert (first.rows_added, last.rows_added, last.rows_removed) == (2, 1, 2)


def test_blocks_and_segments_of_lost_attempts_are_deleted(at: Places) -> None:
    url = at.fresh()
    tblctl.create(url, SCHEMA, cluster_by="id").append(rows(1, 100))
    other = tblctl.open(url)
    with inject(_before_each_commit(lambda number: other.update({"v": f"{number}"}, "id = 1"), 6)):
        open_impatient(url).overwrite(rows(200), where="id >= 100")
    assert objects_of(url).keys() - named_objects(tblctl.open(url)) <= {"metadata/latest"}
    assert ids_of(tblctl.open(url)) == [1, 200]
