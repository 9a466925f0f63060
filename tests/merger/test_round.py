"""A round of merges, on the native format and on its twin in memory: what is committed, and what is left out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest

from tblctl.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptTableError,
    InvalidOptionError,
    StorageError,
)
from tblctl.merger.cutting.cuts import CutTask
from tblctl.merger.engines import engine as engine_module
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.round.round import RoundOutcome, merge_round
from tblctl.merger.task.verify import VerificationError
from tblctl.selector.plan import Plan
from tblctl.tableformat.port import Label, Replacement

from .subjects import KINDS, Meddling, Observing, Subject, blocks_of, making, plan_of, twin, versions_of

Make = Callable[..., Subject]


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Make:
    return making(request.param, request)


@pytest.fixture
def two_ranges(make: Make) -> Subject:
    """Two pairs of blocks that overlap, far from each other: two groups. Rows 0-3, 4-7, 8-11, 12-15."""
    subject = make(block_rows=4)
    for start in (0.0, 1.0, 100.0, 101.0):
        subject.append(*(start + 2 * step for step in range(4)))
    return subject


def run(subject: Subject, plan: Plan | None = None, engine: Any = None, **rest: Any) -> RoundOutcome:
    version = subject.port.newest()
    return merge_round(subject.port, version, plan or plan_of(subject), engine or LocalEngine(), **rest)


def statuses(outcome: RoundOutcome) -> list[str]:
    return [group.status for group in outcome.groups]


def test_overlapping_blocks_become_disjoint_ones_of_the_next_level(two_ranges: Subject) -> None:
    rows = two_ranges.rows()
    outcome = run(two_ranges)
    assert statuses(outcome) == ["committed", "committed"]
    assert blocks_of(two_ranges) == [
        [0.0, 3.0, 1, 4], [4.0, 7.0, 1, 4], [100.0, 103.0, 1, 4], [104.0, 107.0, 1, 4]
    ]  # fmt: skip
    assert two_ranges.rows() == rows
    assert outcome.version is not None
    assert outcome.version.id == two_ranges.port.newest().id
    assert outcome.version.public_id == plan_of(two_ranges).snapshot == versions_of(two_ranges)[-1]


def test_a_round_is_one_commit_that_says_what_it_did(two_ranges: Subject) -> None:
    before = versions_of(two_ranges)
    observer = Observing(measure=lambda removed, added: {"seen": [len(removed), len(added)]})
    run(two_ranges, observer=observer)
    assert len(versions_of(two_ranges)) == len(before) + 1
    detail = two_ranges.detail()["recluster"]
    assert detail.items() >= {
        "policy": "levels", "engine": "local", "planned_on": before[-1], "committed_groups": 2, "conflicted_groups": 0,
        "failed_groups": 0, "blocks_in": 4, "blocks_out": 4, "rows": 16, "seen": [4, 4],
    }.items()  # fmt: skip
    assert detail["bytes_read"] > 0 < detail["bytes_written"]


def test_progress_ends_with_all_rows_and_all_groups(two_ranges: Subject) -> None:
    seen: list[tuple[int, int | None, str]] = []
    run(two_ranges, progress=lambda *report: seen.append(report))
    assert max(report for report in seen if report[2] == "rows") == (16, 16, "rows")
    assert max(report for report in seen if report[2] == "groups") == (2, 2, "groups")
    assert all(0 <= done <= (total or 0) for done, total, _ in seen)


def test_null_and_nan_keys_are_merged_to_the_end(make: Make) -> None:
    subject = make(block_rows=4)
    subject.append(1.0, 5.0, math.nan, None)
    subject.append(2.0, -0.0, math.inf, math.nan)
    rows = subject.rows()
    run(subject)
    assert subject.rows() == rows
    ends = [(repr(low), repr(high)) for low, high, *_ in blocks_of(subject)]
    assert ends == [("-0.0", "5.0"), ("inf", "None")]


def test_unclustered_blocks_are_sorted_in_when_asked_for(make: Make) -> None:
    subject = make(block_rows=4)
    subject.append(4.0, 3.0, 2.0, 1.0)
    subject.set_key("n")
    assert not plan_of(subject).groups
    rows = subject.rows()
    outcome = run(subject, plan_of(subject, include_unclustered=True))
    assert statuses(outcome) == ["committed"]
    assert blocks_of(subject) == [[0, 3, 1, 4]]
    assert subject.rows() == rows


def test_where_restricts_to_blocks_that_may_hold_such_rows(two_ranges: Subject) -> None:
    from tblctl.tableformat.predicate.sql.conditions import parse_where

    where = parse_where("k < 50", two_ranges.port.newest().schema)
    run(two_ranges, plan_of(two_ranges, where=where))
    assert [block[2] for block in blocks_of(two_ranges)] == [1, 1, 0, 0]


def test_appends_since_the_plan_do_not_conflict(two_ranges: Subject) -> None:
    outcome = run(two_ranges, engine=Meddling(after=lambda: two_ranges.append(2.5)))
    assert statuses(outcome) == ["committed", "committed"]
    assert len(two_ranges.rows()) == 17
    assert [2.5, 2.5, 0, 1] in blocks_of(two_ranges)


@pytest.mark.parametrize("moment", ["between plan and round", "before", "after"])
def test_a_delete_in_one_group_drops_that_group_and_commits_the_other(
    two_ranges: Subject, moment: str
) -> None:
    plan = plan_of(two_ranges)
    if moment == "between plan and round":
        two_ranges.delete(0)
        outcome = run(two_ranges, plan)
    else:
        outcome = run(two_ranges, plan, Meddling(**{moment: lambda: two_ranges.delete(0)}))
    assert statuses(outcome) == ["conflicted", "committed"]
    assert outcome.groups[0].error is not None
    assert "left the table" in outcome.groups[0].error
    assert len(two_ranges.rows()) == 15
    assert [block[2] for block in blocks_of(two_ranges)] == [0, 0, 1, 1]
    assert two_ranges.detail()["recluster"]["conflicted_groups"] == 1


def test_blocks_of_a_group_that_conflicts_are_deleted_and_those_committed_stay(two_ranges: Subject) -> None:
    before = two_ranges.stored()
    run(two_ranges, engine=Meddling(after=lambda: two_ranges.delete(0)))
    version = two_ranges.port.newest()
    listed = set(version.listing(version.sort, None).paths.to_pylist())
    assert two_ranges.stored() == before | listed


@pytest.mark.parametrize(
    "make", ["twin", "native"], indirect=True
)  # with deleted rows a block is too large to pass
def test_a_delete_in_a_block_that_passes_through_unwritten_conflicts_with_nothing(make: Make) -> None:
    subject = make(block_rows=4)
    for start in (0.0, 100.0, 101.0):
        subject.append(*(start + 2 * step for step in range(4)))
    outcome = run(subject, plan_of(subject, "full"), Meddling(after=lambda: subject.delete(0)))
    assert statuses(outcome) == ["committed"]
    assert blocks_of(subject) == [[2.0, 6.0, 0, 3], [100.0, 103.0, 1, 4], [104.0, 107.0, 1, 4]]
    assert len(subject.rows()) == 11


def test_when_all_groups_conflict_nothing_is_committed(two_ranges: Subject) -> None:
    before = two_ranges.stored()

    def meddle() -> None:
        two_ranges.delete(0)
        two_ranges.delete(15)

    outcome = run(two_ranges, engine=Meddling(after=meddle))
    assert statuses(outcome) == ["conflicted", "conflicted"]
    assert outcome.version is None
    assert len(two_ranges.rows()) == 14
    assert len(two_ranges.stored() - before) == 2  # what the deletes copied


@pytest.mark.parametrize("moment", ["between plan and round", "after"])
def test_fail_commits_nothing_and_names_the_group(two_ranges: Subject, moment: str) -> None:
    plan, engine = plan_of(two_ranges), None
    if moment == "after":
        engine = Meddling(after=lambda: two_ranges.delete(15))
    else:
        two_ranges.delete(15)
    with pytest.raises(ConflictError, match=r"group 1: .* left the table.*nothing was committed") as caught:
        run(two_ranges, plan, engine, on_conflict="fail")
    assert caught.value.details["groups"] == (1,)
    assert [block[2] for block in blocks_of(two_ranges)] == [0, 0, 0, 0]
    version = two_ranges.port.newest()
    assert len(two_ranges.stored()) == 5  # four, and the one that the delete copied
    assert len(version.listing(version.sort, None).paths) == 4


def test_a_group_whose_task_fails_fails_alone_and_leaves_nothing(two_ranges: Subject) -> None:
    before = two_ranges.stored()
    outcome = run(two_ranges, engine=Meddling(failing=frozenset({0})))
    assert statuses(outcome) == ["failed", "committed"]
    assert outcome.groups[0].error == "the disk is full"
    assert len(two_ranges.stored() - before) == 2
    assert len(two_ranges.rows()) == 16


def test_a_missing_block_is_named_and_fails_its_group_alone(two_ranges: Subject) -> None:
    plan = plan_of(two_ranges)
    lost = plan.groups[0].blocks[1]
    two_ranges.lose(lost)
    before = two_ranges.stored()
    outcome = run(two_ranges, plan)
    assert statuses(outcome) == ["failed", "committed"]
    assert lost in str(outcome.groups[0].error)
    assert len(two_ranges.stored() - before) == 2


@pytest.mark.parametrize("error", [MemoryError("no room"), StorageError("no room")])
def test_a_group_whose_tasks_cannot_be_planned_fails_alone(
    two_ranges: Subject, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = engine_module.find_cuts

    def find_cuts(io: Any, task: CutTask, *rest: Any) -> Any:
        if task.group == 0:
            raise error
        return real(io, task, *rest)

    monkeypatch.setattr(engine_module, "find_cuts", find_cuts)
    outcome = run(two_ranges)
    assert statuses(outcome) == ["failed", "committed"]
    assert str(outcome.groups[0].error).endswith("no room")


@pytest.mark.parametrize("error", [StorageError("the session is gone"), KeyboardInterrupt()])
def test_what_an_engine_raises_commits_nothing_and_leaves_nothing(
    two_ranges: Subject, error: BaseException
) -> None:
    before, blocks = two_ranges.stored(), blocks_of(two_ranges)

    def stop() -> None:
        raise error

    with pytest.raises(type(error)):
        run(two_ranges, engine=Meddling(after=stop))
    assert (two_ranges.stored(), blocks_of(two_ranges)) == (before, blocks)


@pytest.mark.parametrize("while_cutting", [False, True])
def test_what_ends_a_round_ends_the_search_for_cuts(two_ranges: Subject, while_cutting: bool) -> None:
    ended: list[str] = []

    class Interrupted(Meddling):
        def cut(self, io: Any, groups: Any, **more: Any) -> Any:
            try:
                for place, found in enumerate(LocalEngine().cut(io, groups, **more)):
                    if place and while_cutting:
                        raise KeyboardInterrupt
                    yield found
            finally:
                ended.append("cuts")

        def run(self, io: Any, tasks: Any, done: Any, **rest: Any) -> None:
            for number, _ in enumerate(tasks):
                if number and not while_cutting:
                    raise KeyboardInterrupt

    blocks = blocks_of(two_ranges)
    with pytest.raises(KeyboardInterrupt) as caught:
        run(two_ranges, engine=Interrupted())
    assert ended == ["cuts"], f"not only once {caught} is gone"
    assert blocks_of(two_ranges) == blocks


@pytest.mark.parametrize("error", [CommitOutcomeUnknownError("no reply"), KeyboardInterrupt()])
def test_while_a_commit_may_stand_nothing_of_it_is_deleted(
    two_ranges: Subject, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = two_ranges.stored()
    replace = type(two_ranges.port).replace

    def in_doubt(*arguments: Any) -> None:
        replace(*arguments)
        raise error

    monkeypatch.setattr(type(two_ranges.port), "replace", in_doubt)
    with pytest.raises(type(error)):
        run(two_ranges)
    assert len(two_ranges.stored() - before) == 4
    assert [block[2] for block in blocks_of(two_ranges)] == [1, 1, 1, 1]


@pytest.mark.parametrize("error", [MemoryError("no room"), KeyboardInterrupt()])
def test_what_is_raised_before_the_commit_leaves_nothing(two_ranges: Subject, error: BaseException) -> None:
    before = two_ranges.stored()

    def measure(*_: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        run(two_ranges, observer=Observing(measure=measure))
    assert two_ranges.stored() == before


def test_a_commit_that_surely_failed_leaves_nothing(
    two_ranges: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = two_ranges.stored()

    def refuse(*_: Any) -> None:
        raise StorageError("read only")

    monkeypatch.setattr(type(two_ranges.port), "replace", refuse)
    with pytest.raises(StorageError, match="read only"):
        run(two_ranges)
    assert two_ranges.stored() == before


def test_a_plan_of_another_table_is_refused(make: Make, two_ranges: Subject) -> None:
    plan = plan_of(twin(block_rows=4))
    with pytest.raises(InvalidOptionError, match="another table"):
        run(two_ranges, plan)


def test_a_word_that_is_none_for_conflicts_is_refused_before_any_work(two_ranges: Subject) -> None:
    with pytest.raises(InvalidOptionError, match="'fial', expected 'salvage' or 'fail'"):
        run(two_ranges, on_conflict="fial")
    assert len(two_ranges.stored()) == 4


def test_groups_of_an_older_plan_that_are_merged_already_conflict(two_ranges: Subject) -> None:
    plan = plan_of(two_ranges)
    run(two_ranges, plan_of(two_ranges, max_groups=1))
    outcome = run(two_ranges, plan)
    assert statuses(outcome) == ["conflicted", "committed"]
    assert len(two_ranges.rows()) == 16


def test_groups_planned_for_another_key_conflict(two_ranges: Subject) -> None:
    plan = plan_of(two_ranges)
    two_ranges.set_key("n")
    outcome = run(two_ranges, plan)
    assert statuses(outcome) == ["conflicted", "conflicted"]
    assert outcome.groups[0].error == "the cluster key was altered since the plan"


def test_a_key_altered_during_the_merge_leaves_sound_blocks_of_the_old_one(two_ranges: Subject) -> None:
    rows = two_ranges.rows()
    outcome = run(two_ranges, engine=Meddling(after=lambda: two_ranges.set_key("n")))
    assert statuses(outcome) == ["committed", "committed"]
    version = two_ranges.port.newest()
    assert not version.listing(version.sort, None).own.any()
    assert two_ranges.rows() == rows


def test_replace_names_every_block_that_left(two_ranges: Subject) -> None:
    base = two_ranges.port.newest()
    paths = base.listing(base.sort, None).paths.to_pylist()
    two_ranges.delete(0)
    two_ranges.delete(15)
    labels = {path: Label(level=3, run_id=None) for path in paths}
    with pytest.raises(ConflictError) as caught:
        two_ranges.port.replace(base, Replacement(removed=frozenset(), added=(), relabelled=labels))
    assert len(caught.value.details["paths"]) == 2
    assert set(caught.value.details["paths"]) <= set(paths)


def test_relabelling_changes_levels_and_writes_no_block(two_ranges: Subject) -> None:
    base = two_ranges.port.newest()
    (path, *_) = base.listing(base.sort, None).paths.to_pylist()
    before = two_ranges.stored()
    label = Label(level=7, run_id=None)
    version = two_ranges.port.replace(
        base, Replacement(removed=frozenset(), added=(), relabelled={path: label})
    )
    assert sorted(block[2] for block in blocks_of(two_ranges)) == [0, 0, 0, 7]
    assert (version.id, version.parent) == (two_ranges.port.newest().id, base.id)
    assert two_ranges.stored() == before


def test_corrupt_blocks_fail_when_opened(two_ranges: Subject) -> None:
    version = two_ranges.port.newest()
    (path, *_) = version.listing(version.sort, None).paths.to_pylist()
    two_ranges.lose(path)
    (block,) = version.blocks([path, "data/none.parquet"]).values()
    with pytest.raises(CorruptTableError) as caught:
        two_ranges.port.block_io(version).open(block)
    assert caught.value.details["name"] == path


def test_rows_that_went_in_and_did_not_come_out_commit_nothing(two_ranges: Subject) -> None:
    before = two_ranges.stored()

    class Forgetful(Meddling):
        def run(self, io: Any, tasks: Any, done: Any, **rest: Any) -> None:
            def report(item: Any) -> None:
                short = item.group == 1
                if short:
                    io.discard([record.path for record in item.records[-1:]])
                done(dataclasses.replace(item, records=item.records[:-1]) if short else item)

            super().run(io, tasks, report, **rest)

    with pytest.raises(VerificationError, match="group 1: 8 rows went in and 4 came out"):
        run(two_ranges, engine=Forgetful())
    assert two_ranges.stored() == before
    assert len(two_ranges.rows()) == 16


def test_a_task_that_the_engine_never_reports_commits_nothing(two_ranges: Subject) -> None:
    before = two_ranges.stored()

    class Silent(Meddling):
        def run(self, io: Any, tasks: Any, done: Any, **rest: Any) -> None:
            super().run(io, [task for task in tasks if task.group == 0], done, **rest)

    with pytest.raises(VerificationError, match=r"group 1: .* \[\] tasks reported"):
        run(two_ranges, engine=Silent())
    assert two_ranges.stored() == before


def test_when_one_task_would_change_rows_no_group_is_committed(two_ranges: Subject) -> None:
    before = two_ranges.stored()
    engine = Meddling(failing=frozenset({0}), error=VerificationError("read 8 values, merged 7"))
    with pytest.raises(VerificationError, match="read 8 values"):
        run(two_ranges, engine=engine)
    assert two_ranges.stored() == before
