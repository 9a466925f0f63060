"""A recluster that dies, or whose storage fails, at any call: the rows stay, and gc removes all leftovers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import Faults, fault_points, inject, kill_points
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
    shape_of,
)

import tblctl
from tblctl.errors import CommitOutcomeUnknownError, CorruptTableError, StorageError

IDS = [1, 2, 3, 4, 5, 6, 7, 8, 101, 102, 103, 104, 105, 106, 107, 108]


@pytest.fixture(params=["memory", "local"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    yield from places(request.param, tmp_path)


def build(url: str) -> None:
    """Make a table of two pairs of blocks that overlap: two groups."""
    table = tblctl.create(url, SCHEMA, cluster_by="id", options={"block_rows": 4})
    for first in (1, 2, 101, 102):
        table.append(rows(*range(first, first + 8, 2)))


def recluster(url: str, **words: Any) -> tblctl.Outcome:
    return tblctl.open(url).recluster(**words)


def levels(url: str) -> list[int]:
    return sorted(block.level for block in tblctl.open(url).files())


def assert_usable(url: str, where: str) -> None:
    """Assert that the rows are there, that the next recluster succeeds, and that gc leaves exactly what is named."""
    table = tblctl.open(url)
    assert_sound(table)
    table.recluster(final=True)
    assert levels(url) == [1, 1, 1, 1], where
    table.gc(keep=1, older_than=0)
    assert ids_of(table) == IDS, where
    assert set(objects_of(url)) - {"metadata/latest"} == named_objects(table), where
    assert_sound(table)


def levels_after_kills(template: str, at: Places, **words: Any) -> set[tuple[int, ...]]:
    """Return the levels of the blocks that kills at every storage call leave, each shape of a table once.

    Every shape must hold the rows and be usable.
    """
    trial, objects = at.copy(template), objects_of(template)
    seen, shapes = set(), set()
    for point in kill_points(lambda: recluster(trial, **words)):
        url = at.renew(template)
        point.kill(lambda url=url: recluster(url, **words))
        shape = shape_of(url, objects)
        if shape not in shapes:
            shapes.add(shape)
            assert ids_of(tblctl.open(url)) == IDS, str(point)
            seen.add(tuple(levels(url)))
            assert_usable(url, str(point))
    return seen


def test_a_kill_at_any_storage_call_leaves_the_table_as_before_or_as_after(at: Places) -> None:
    template = at.fresh()
    build(template)
    seen = levels_after_kills(template, at)
    assert seen == {(0, 0, 0, 0), (1, 1, 1, 1)}  # the kills came early enough, and late enough


def test_a_kill_between_the_commits_of_a_round_leaves_whole_groups_and_the_next_run_goes_on(
    at: Places,
) -> None:
    template = at.fresh()
    build(template)
    seen = levels_after_kills(template, at, commit_every=1)
    assert seen == {(0, 0, 0, 0), (0, 0, 1, 1), (1, 1, 1, 1)}


@pytest.mark.parametrize("at", ["memory"], indirect=True)
def test_an_error_at_any_storage_call_costs_a_group_at_most_and_leaves_no_orphan(at: Places) -> None:
    template = at.fresh()
    build(template)
    trial, objects = at.copy(template), objects_of(template)
    failures, shapes = 0, set()
    for point in fault_points(lambda: recluster(trial)):
        url = at.renew(template)
        before = objects_of(url)
        unsure = point.call.operation == "create" and point.at == "after"
        faults = Faults()
        error = CommitOutcomeUnknownError("injected: no reply") if unsure else None
        faults.fail(error, nth=point.number, at=point.at)
        with inject(faults):
            try:
                outcome = recluster(url)
            except StorageError:
                outcome = None
        assert faults.fired, str(point)
        needed = before.keys() if outcome is None else {"metadata/latest", *named_objects(tblctl.open(url))}
        # gc deletes objects that were written although their writer got an error.
        spare = (point.at, point.call.operation) == ("after", "write")
        orphans = {
            name for name in objects_of(url) if "/.tmp-" not in name
        } - needed  # (a probe is gc's to remove)
        assert len(orphans) <= spare, str(point)
        if outcome is not None:
            failures += outcome.failed_groups
            assert levels(url).count(1) == 4 - 2 * outcome.failed_groups, str(point)
        shape = shape_of(url, objects)
        if shape not in shapes:
            shapes.add(shape)
            assert_usable(url, str(point))
    assert failures > 0


@pytest.mark.parametrize("at", ["memory"], indirect=True)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_whose_reply_is_lost_for_good_is_in_doubt_and_nothing_is_deleted(
    at: Places, moment: str
) -> None:
    url = at.fresh()
    build(url)
    faults = Faults()

    def cut_off() -> None:
        faults.fail(operation="read", times=10**6)
        raise CommitOutcomeUnknownError("no reply")

    faults.do(cut_off, operation="create", name="metadata/snapshots/", at=moment)
    with inject(faults), pytest.raises(CommitOutcomeUnknownError):
        open_impatient(url).recluster()
    assert levels(url) == ([1, 1, 1, 1] if moment == "after" else [0, 0, 0, 0])
    assert len([name for name in objects_of(url) if name.startswith("data/")]) == 8
    assert_usable(url, moment)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_disk_that_fills_up_costs_groups_and_leaves_nothing(at: Places, nth: int) -> None:
    url = at.fresh()
    build(url)
    faults = Faults()
    faults.fail(StorageError("the storage is full"), operation="write", name="^data/", nth=nth, times=10**6)
    with inject(faults):
        outcome = recluster(url)
    assert outcome.failed_groups == 2 - outcome.committed_groups > 0
    assert {group.error for group in outcome.groups} <= {None, "the storage is full"}
    assert set(objects_of(url)) - {"metadata/latest"} == named_objects(tblctl.open(url))
    assert_usable(url, str(nth))


@pytest.mark.parametrize("delay_seconds", [0.05, 0.2, 0.5])
def test_a_process_killed_while_it_reclusters_leaves_a_sound_table(
    tmp_path: Path, delay_seconds: float
) -> None:
    url = str(tmp_path / "table")
    table = tblctl.create(url, SCHEMA, cluster_by="id", options={"block_rows": 500})
    for number in range(20):
        table.append(rows(*range(number, 20_000, 20)))
    program = f"""
import tblctl, tblctl.maintain.recluster
table = tblctl.open({url!r})
print("ready", flush=True)
table.recluster(final=True)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(delay_seconds)
    process.kill()
    process.wait()
    process.stdout.close()
    assert ids_of(table) == list(range(20_000))
    assert_sound(table)
    table.recluster(final=True)
    table.gc(keep=1, older_than=0)
    assert ids_of(table) == list(range(20_000))
    assert set(objects_of(url)) - {"metadata/latest"} == named_objects(table)


def test_any_error_once_a_commit_may_stand_leaves_it_in_doubt(at: Places) -> None:
    url = at.fresh()
    build(url)
    faults = Faults()
    faults.fail(CorruptTableError("odd"), operation="create", name="metadata/snapshots/", at="after")
    with (
        inject(faults),
        pytest.raises(CommitOutcomeUnknownError, match="may have happened before this failed: odd"),
    ):
        recluster(url)
    assert levels(url) == [1, 1, 1, 1]
    assert_usable(url, "odd")


KILLED_AFTER_COMMITS = """
import os, signal, sys, tblctl
from tblctl.tableformat.native.port import NativePort

replace, left = NativePort.replace, [int(sys.argv[2])]

def counted(*arguments):
    version = replace(*arguments)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return version

NativePort.replace = counted
tblctl.open(sys.argv[1]).recluster(commit_every=1)
"""


@pytest.mark.parametrize("commits", [1, 3])
def test_a_process_killed_after_some_commits_keeps_them_and_the_next_run_does_the_rest(
    tmp_path: Path, commits: int
) -> None:
    url = str(tmp_path / "table")
    table = tblctl.create(url, SCHEMA, cluster_by="id", options={"block_rows": 4})
    ids = [100 * pair + step for pair in range(5) for step in range(8)]
    for first in ids:
        if first % 100 < 2:
            table.append(rows(*range(first, first + 8, 2)))
    killed = subprocess.run([sys.executable, "-c", KILLED_AFTER_COMMITS, url, str(commits)])
    assert killed.returncode == -9
    assert levels(url).count(1) == 2 * commits
    assert ids_of(table) == ids
    assert_sound(table)
    outcome = table.recluster(commit_every=2)
    assert (outcome.committed_groups, outcome.commits) == (5 - commits, 3 - commits // 2 - commits % 2)
    assert levels(url) == [1] * 10
    table.gc(keep=1, older_than=0)
    assert ids_of(table) == ids
    assert set(objects_of(url)) - {"metadata/latest"} == named_objects(table)
