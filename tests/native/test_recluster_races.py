"""A recluster beside writers: in any order of their steps, no writer fails and no row is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults import Call, Faults, inject, interleavings, run_interleaved
from tables import (
    SCHEMA,
    Places,
    assert_sound,
    ids_of,
    named_objects,
    objects_of,
    open_impatient,
    places,
    rows,
    state_of,
)
from writers import expected_ids, run_writers

import tblctl
from tblctl.errors import ConflictError, TableNotFoundError
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.storage import Storage

Act = Callable[[tblctl.Table], Any]

WRITERS: dict[str, Act] = {
    "append": lambda table: table.append(rows(50)),
    "delete in one group": lambda table: table.delete("id = 1"),
    "delete in both groups": lambda table: table.delete("id in (2, 105)"),
    "delete a whole group": lambda table: table.delete("id < 50"),
    "update": lambda table: table.update({"v": "new"}, "id in (1, 2)"),
    "overwrite": lambda table: table.overwrite(rows(2, v="y"), where="id = 2"),
    "overwrite all": lambda table: table.overwrite(rows(70)),
    "cluster by": lambda table: table.set_cluster_key("v"),
    "add column": lambda table: table.add_column("w", "int32"),
    "rollback": lambda table: table.rollback(4),
    "recluster": lambda table: table.recluster(),
    "gc": lambda table: table.gc(keep=1, older_than="1h"),
}


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Places]:
    yield from places("memory", tmp_path)


def build(url: str) -> tblctl.Table:
    table = tblctl.create(url, SCHEMA, cluster_by="id", options={"block_rows": 4})
    for first in (1, 2, 101, 102):
        table.append(rows(*range(first, first + 8, 2)))
    return table


def commit_steps(call: Call) -> bool:
    return call.operation == "look for" or any("metadata/snapshots/" in name for name in call.names)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_writer_beside_a_recluster_ends_as_if_it_were_alone(writer: str, at: Places) -> None:
    template = at.fresh()
    build(template)
    alone = at.copy(template)
    WRITERS[writer](tblctl.open(alone))
    expected = state_of(tblctl.open(alone))
    for schedule in interleavings(r=4, w=4)[::4]:
        url = at.renew(template)
        recluster, other = open_impatient(url), open_impatient(url)
        ends = run_interleaved(
            schedule,
            {"r": recluster.recluster, "w": lambda other=other: WRITERS[writer](other)},
            steps=commit_steps,
        )
        assert [end.error for end in ends.values()] == [None, None], schedule
        table = tblctl.open(url)
        assert state_of(table) == expected, schedule
        report = table.check()
        assert report.ok, (schedule, report.problems)
        assert named_objects(table) <= objects_of(url).keys(), schedule


def meanwhile(table: tblctl.Table, act: Callable[[], Any], **options: Any) -> tblctl.Outcome:
    """Recluster; `act` happens when all is merged and about to be committed."""
    faults = Faults()
    faults.do(act, operation="write", name="metadata/records/")
    with inject(faults):
        outcome = table.recluster(**options)
    assert faults.fired
    return outcome


@pytest.mark.parametrize("writer", ["append", "cluster by", "add column"])
def test_what_takes_no_block_away_does_not_conflict(writer: str, at: Places) -> None:
    table = build(at.fresh())
    outcome = meanwhile(table, lambda: WRITERS[writer](tblctl.open(table.location)))
    assert (outcome.committed_groups, outcome.conflicted_groups) == (2, 0)
    assert_sound(table)


def test_a_column_added_meanwhile_is_null_in_what_was_merged(at: Places) -> None:
    table = build(at.fresh())
    meanwhile(table, lambda: WRITERS["add column"](tblctl.open(table.location)))
    assert set(table.scan(columns=["w"]).to_arrow()["w"].to_pylist()) == {None}
    assert table.recluster(policy="full", options={"include_unclustered": True}).failed_groups == 0
    assert_sound(table)


def test_a_rollback_to_another_schema_stands_against_all_groups(at: Places) -> None:
    table = build(at.fresh())
    table.add_column("w", "int32")
    outcome = meanwhile(table, lambda: tblctl.open(table.location).rollback(5))
    assert (outcome.committed_groups, outcome.conflicted_groups) == (0, 2)
    assert "rolled back to another schema" in outcome.groups[0].error
    assert table.schema.names == ["id", "v"]
    assert set(objects_of(table.location)) - {"metadata/latest"} == named_objects(table)
    table.add_column("w", "int32")
    with pytest.raises(ConflictError, match="rolled back"):
        meanwhile(table, lambda: tblctl.open(table.location).rollback(5), on_conflict="fail")


def test_a_rollback_within_the_schema_only_drops_the_groups_that_lost_blocks(at: Places) -> None:
    table = build(at.fresh())
    outcome = meanwhile(table, lambda: tblctl.open(table.location).rollback(4))  # before the last append
    assert [group.status for group in outcome.groups] == ["committed", "conflicted"]
    assert len(ids_of(table)) == 12
    assert_sound(table)


def test_a_plan_of_a_table_that_was_emptied_since_conflicts(at: Places) -> None:
    url = at.fresh()
    table = tblctl.create(url, SCHEMA, cluster_by="id")
    table.append(rows(1, 5))
    table.append(rows(3, 7))
    plan = table.plan(policy="full")
    table.rollback(1)
    outcome = table.recluster(plan)
    assert (outcome.conflicted_groups, outcome.commits) == (1, 0)
    assert "left the table" in outcome.groups[0].error
    assert ids_of(tblctl.open(url)) == []


@pytest.mark.parametrize("recreate", [False, True])
def test_a_table_dropped_meanwhile_does_not_come_back(at: Places, recreate: bool) -> None:
    url = at.fresh()
    table = build(url)

    def drop() -> None:
        tblctl.drop(url)
        if recreate:
            build(url)

    with pytest.raises(TableNotFoundError, match="dropped meanwhile" if recreate else "no table at"):
        meanwhile(table, drop)
    assert tblctl.exists(url) == recreate
    if recreate:
        assert len(ids_of(tblctl.open(url))) == 16
        assert_sound(tblctl.open(url))


def test_an_impatient_gc_during_a_long_merge_is_noticed(at: Places) -> None:
    table = build(at.fresh())

    def collect() -> None:
        other = tblctl.open(table.location)
        other.append(rows(50))
        other.gc(keep=1, older_than=0)

    outcome = meanwhile(table, collect)
    assert (outcome.committed_groups, outcome.conflicted_groups) == (0, 2)
    assert "before they were published" in outcome.groups[0].error
    assert len(ids_of(table)) == 17
    assert_sound(table)
    outcome = table.recluster(final=True)
    assert outcome.committed_groups > 0


def test_final_plans_again_after_a_round_that_conflicts(at: Places) -> None:
    table = open_impatient(build(at.fresh()).location)
    outcome = meanwhile(table, lambda: tblctl.open(table.location).delete("id in (1, 101)"), final=True)
    assert outcome.conflicted_groups == 2
    assert outcome.committed_groups > 0
    assert outcome.note == ""
    assert not table.plan().groups


def test_final_gives_up_when_others_are_always_faster(at: Places) -> None:
    table = open_impatient(build(at.fresh()).location)
    faults = Faults()
    number = iter(range(10**6))

    def touch() -> None:
        tblctl.open(table.location).update({"v": f"x{next(number)}"}, "true")

    for nth in range(1, 30):
        faults.do(touch, operation="write", name="metadata/records/", nth=nth)
    with inject(faults):
        outcome = table.recluster(final=True)
    assert (outcome.snapshot, outcome.rounds) == (None, 11)
    assert "other writers were faster, so 11 rounds" in outcome.note


def test_a_recluster_that_loses_the_race_for_a_snapshot_waits_longer_than_a_writer(at: Places) -> None:
    url = at.fresh()
    build(url)

    def waits(act: Act) -> list[float]:
        seen: list[float] = []
        env = Environment(sleep=seen.append, random=lambda: 1.0, elapsed=lambda: 0.0)
        native = NativeTable(Storage(url), env)
        native.head()
        faults = Faults()
        faults.do(lambda: tblctl.open(url).append(rows(60)), operation="create", name="metadata/snapshots/")
        with inject(faults):
            act(tblctl.Table(native))
        return seen

    (writer,) = waits(lambda table: table.append(rows(50)))
    (recluster,) = waits(lambda table: table.recluster())
    assert recluster == 8 * writer


def test_writers_in_other_processes_all_succeed_while_the_table_is_reclustered(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    table = tblctl.create(url, SCHEMA, cluster_by="id", options={"block_rows": 8})
    others: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        writers = pool.submit(run_writers, url, {}, workers=2, operations=20)  # asserts that each succeeds
        while not writers.done():
            first = 100_000 + len(
                others
            )  # beyond what they write: two blocks that no delete takes from the merge
            for half in (range(first, first + 16, 2), range(first + 1, first + 16, 2)):
                table.append(rows(*half))
                others += half
            assert table.recluster(policy="full", final=True).committed_groups > 0
        writers.result()
    assert ids_of(table) == sorted(expected_ids(2, 20) + others)
    assert_sound(table)


FORMER_KEY = {
    "dropped": lambda table: table.drop_column("k"),
    "widened": lambda table: table.widen_column("k", "int64"),
    "renamed": lambda table: table.rename_column("k", "former"),
}


@pytest.mark.parametrize("change", FORMER_KEY)
def test_a_former_key_column_that_changes_during_a_merge_leaves_a_sound_table(
    memory_url: str, change: str
) -> None:
    table = tblctl.create(memory_url, "k: int32, n: int64", cluster_by="k", options={"block_rows": 4})
    for start in range(2):
        rows = {"k": [start + 2 * step for step in range(4)], "n": [10 * start + step for step in range(4)]}
        table.append(pa.table(rows, schema=table.schema))

    def alter() -> None:
        other = tblctl.open(memory_url)
        other.set_cluster_key("n")
        FORMER_KEY[change](other)

    outcome = meanwhile(table, alter)
    assert outcome.committed_groups == 1
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == [0, 1, 2, 3, 10, 11, 12, 13]
    assert table.info().unclustered_block_count == 2
    assert table.check(deep=True).problems == ()
    table.recluster(final=True)
    assert table.info().unclustered_block_count == 0
    assert table.check(deep=True).problems == ()
