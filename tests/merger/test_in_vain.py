"""Rounds beside other writers: little is merged of groups that lose blocks, and these lose as little as can be."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tblctl.errors import ConflictError, InvalidDataError, SnapshotNotFoundError
from tblctl.maintain.recluster import recluster
from tblctl.maintain.request import Request
from tblctl.merger.engines.engine import stopped
from tblctl.merger.round.commit_every import AT_END, BESIDE_OTHERS
from tblctl.merger.round.others import OtherWriters
from tblctl.merger.round.round import RoundOutcome, merge_round
from tblctl.merger.task.spec import MergeTask

from .subjects import KINDS, Meddling, Subject, blocks_of, making, plan_of


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def triples(kind: str, request: pytest.FixtureRequest) -> Subject:
    """Make triples of blocks that overlap: groups 0 to 2, of rows 0-11, 12-23, 24-35; each block has four."""
    return in_triples(making(kind, request)(block_rows=4), count=3)


def in_triples(subject: Subject, *, count: int) -> Subject:
    for group in range(count):
        for first in range(3):
            subject.append(*(100.0 * group + first + 3 * step for step in range(4)))
    return subject


@dataclasses.dataclass
class Seen(Meddling):
    """Runs tasks one after the other, and knows which; `between` acts before each, given how many were done."""

    parallelism: int = 3  # so each of three groups is one task
    between: Callable[[int], object] = lambda _done: None
    tasks: list[MergeTask] = dataclasses.field(default_factory=list)

    def run(self, io: Any, tasks: Any, done: Any, **rest: Any) -> None:
        for task in tasks:
            self.between(len(self.tasks))
            self.tasks.append(task)
            super().run(io, [task], done, **rest)

    @property
    def groups(self) -> list[int]:
        return list(dict.fromkeys(task.group for task in self.tasks))


def run(subject: Subject, engine: Any, **words: Any) -> RoundOutcome:
    return merge_round(
        subject.port,
        subject.port.newest(),
        words.pop("plan", None) or plan_of(subject),
        engine,
        **{"commit_every": BESIDE_OTHERS, **words},
    )


def statuses(outcome: RoundOutcome) -> list[str]:
    return [group.status for group in outcome.groups]


def listed(subject: Subject) -> set[str]:
    version = subject.port.newest()
    return set(version.listing(version.sort, None).paths.to_pylist())


# -- before a group begins ---------------------------------------------------------------------------------------------


def test_a_group_that_lost_one_of_three_blocks_before_it_began_goes_on_without_it(triples: Subject) -> None:
    rows = triples.rows()
    gone = next(row for row in rows if row[1] == 24)
    engine = Seen(between=lambda done: triples.delete(24) if done == 1 else None)
    outcome = run(triples, engine)
    assert statuses(outcome) == ["committed"] * 3
    assert [group.blocks_in for group in outcome.groups] == [3, 3, 2]
    assert "without 1 that left the table" in outcome.groups[2].why
    assert triples.rows() == [row for row in rows if row != gone]
    levels = Counter((fact[0] // 100, fact[2]) for fact in blocks_of(triples))
    assert levels == {(0, 1): 3, (1, 1): 3, (2, 1): 2, (2, 0): 1}
    assert listed(triples) <= triples.stored()


def test_what_a_plan_lost_before_its_round_began_is_left_out(triples: Subject) -> None:
    plan = plan_of(triples)
    triples.delete(0)
    outcome = run(triples, Seen(), plan=plan)
    assert statuses(outcome) == ["committed"] * 3
    assert [group.blocks_in for group in outcome.groups] == [2, 3, 3]


def test_a_group_that_lost_two_of_three_blocks_conflicts_and_is_not_merged(triples: Subject) -> None:
    engine = Seen(between=lambda done: [triples.delete(number) for number in (24, 28)] if done == 1 else None)
    outcome = run(triples, engine)
    assert statuses(outcome) == ["committed", "committed", "conflicted"]
    assert engine.groups == [0, 1]
    assert "left the table" in str(outcome.groups[2].error)


def test_where_it_is_planned_again_a_group_that_lost_its_blocks_is_put_back_and_the_others_go_on(
    triples: Subject,
) -> None:
    engine = Seen(
        after=lambda: [triples.delete(number) for number in (12, 16)] if engine.groups == [0] else 0
    )
    outcome = run(triples, engine, plans_again=True)
    assert (statuses(outcome), outcome.put_back) == (["committed"] * 2, 1)
    assert engine.groups == [0, 2]
    assert listed(triples) <= triples.stored()
    assert run(triples, Seen(), plans_again=True).put_back == 0


def test_what_was_lost_before_the_round_began_conflicts(triples: Subject) -> None:
    plan = plan_of(triples)
    for number in (0, 4):
        triples.delete(number)
    outcome = run(triples, Seen(), plan=plan, plans_again=True)
    assert (statuses(outcome), outcome.put_back) == (["conflicted", "committed", "committed"], 0)


@pytest.mark.parametrize("budget", [{}, {"max_groups": 2}])
def test_a_run_of_one_round_merges_as_many_groups_as_it_planned_though_others_disturb_it(
    triples: Subject, budget: dict[str, int]
) -> None:
    rows = len(triples.rows())

    def after() -> None:
        if len(engine.tasks) == 1:
            triples.delete(12)  # of group 1, which is the next
            triples.delete(16)

    engine = Seen(after=after)
    request = Request.of(policy="levels", condition=lambda _schema: None, options=budget)
    outcome = recluster(triples.port, request, lambda _plan: engine)
    assert outcome.committed_groups == budget.get("max_groups", 3)
    assert (outcome.conflicted_groups, outcome.failed_groups, outcome.left_groups) == (0, 0, 0)
    assert outcome.rounds == 2
    assert len(triples.rows()) == rows - 2


def test_rounds_for_groups_that_were_put_back_share_the_most_blocks_of_the_first_one(
    triples: Subject,
) -> None:
    def after() -> None:
        if len(engine.tasks) == 1:
            triples.delete(12)  # of group 1, which is the next
            triples.delete(16)
            for first in range(2):
                triples.append(*(100.0 + first + 3 * step for step in range(4)))

    engine = Seen(after=after)
    request = Request.of(policy="levels", condition=lambda _schema: None, options={"max_blocks": 9})
    outcome = recluster(triples.port, request, lambda _plan: engine)
    assert (outcome.rounds, outcome.committed_groups, outcome.blocks_in) == (2, 3, 9)


def test_with_fail_a_group_that_lost_one_block_ends_the_round(triples: Subject) -> None:
    plan, before = plan_of(triples), triples.stored()
    triples.delete(0)
    with pytest.raises(ConflictError, match="1 of 3 groups conflict"):
        run(triples, Seen(), plan=plan, on_conflict="fail", commit_every=AT_END)
    assert listed(triples) - before == triples.stored() - before


def test_the_rows_of_lost_blocks_do_not_count_as_progress_to_come(triples: Subject) -> None:
    told: list[tuple[int, int]] = []
    engine = Seen(between=lambda done: triples.delete(24) if done == 1 else None)
    run(
        triples,
        engine,
        progress=lambda done, total, unit: told.append((done, total)) if unit == "rows" else None,
    )
    assert told[-1] == (32, 32)


# -- while it is merged ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Midst(Seen):
    """In the midst of some task, after some rows of it, `seconds` pass and `act` is called; then it goes on."""

    place: int = 0
    seconds: float = 2.0
    act: Callable[[], object] = lambda: None
    clock: list[float] = dataclasses.field(default_factory=lambda: [0.0])
    stopped: list[MergeTask] = dataclasses.field(default_factory=list)

    def run(self, io: Any, tasks: Any, done: Any, *, advance: Any, wanted: Any, **rest: Any) -> None:
        for task in tasks:
            if len(self.tasks) == self.place:
                self.act()
                self.clock[0] += self.seconds
                advance(1)
            self.tasks.append(task)
            if wanted(task.group):
                Meddling.run(self, io, [task], done, advance=advance, wanted=wanted, **rest)
            else:
                self.stopped.append(task)
                done(stopped(task))


def run_timed(subject: Subject, engine: Midst, **words: Any) -> RoundOutcome:
    subject.port.env = dataclasses.replace(subject.port.env, elapsed=lambda: engine.clock[0])
    return run(subject, engine, **words)


def test_a_group_that_loses_a_block_while_it_is_merged_is_stopped(triples: Subject) -> None:
    engine = Midst(place=1, act=lambda: triples.delete(12))
    outcome = run_timed(triples, engine)
    assert statuses(outcome) == ["committed", "conflicted", "committed"]
    assert [task.group for task in engine.stopped] == [1]
    assert "left the table" in str(outcome.groups[1].error)
    assert outcome.groups[1].bytes_read == 0
    assert listed(triples) <= triples.stored()


def test_a_group_is_looked_after_once_a_second(triples: Subject) -> None:
    engine = Midst(place=1, seconds=0.5, act=lambda: triples.delete(12))
    outcome = run_timed(triples, engine)
    assert not engine.stopped, "the last look is half a second ago"
    assert statuses(outcome) == ["committed", "conflicted", "committed"], "found out at its commit"


def test_tasks_of_a_group_that_is_lost_are_not_begun(triples: Subject) -> None:
    def between() -> None:
        if engine.groups[-1:] == [2]:
            triples.delete(24)
            engine.clock[0] += 2.0

    class OnceAfterAnother(Midst):
        def run(self, io: Any, tasks: Any, done: Any, *, advance: Any, **rest: Any) -> None:
            for task in tasks:
                self.tasks.append(task)
                Meddling.run(self, io, [task], done, advance=advance, **rest)
                between()
                advance(1)

    engine = OnceAfterAnother(parallelism=2)  # three equal groups become two tasks each
    outcome = run_timed(triples, engine)
    assert statuses(outcome) == ["committed", "committed", "conflicted"]
    assert [task.group for task in engine.tasks].count(2) == 1
    assert listed(triples) <= triples.stored()


@pytest.mark.parametrize(
    ("row_group_rows", "disturb", "tasks"),
    [
        (1, lambda subject: subject.delete(12), 3),
        (1, lambda subject: subject.append(5000.0), 1),
        (8, lambda subject: subject.delete(12), 1),
    ],
    ids=["a block is removed", "a block is added", "a row group of each block is all there is"],
)
def test_once_another_writer_removed_a_block_a_group_has_a_task_for_each_processor(
    request: pytest.FixtureRequest,
    kind: str,
    row_group_rows: int,
    disturb: Callable[[Subject], object],
    tasks: int,
) -> None:
    subject = in_triples(making(kind, request)(block_rows=4, row_group_rows=row_group_rows), count=5)
    engine = Seen(between=lambda done: disturb(subject) if done == 0 else None, parallelism=5)
    outcome = run(subject, engine, groups_ahead=1)
    assert statuses(outcome) == ["committed"] * 5
    found = Counter(task.group for task in engine.tasks)
    assert (found[0], found[4]) == (1, tasks)


# -- looks and progress ------------------------------------------------------------------------------------------------


def test_while_slow_looks_are_put_off_groups_under_way_are_not_gone_through() -> None:
    clock = [0.0]

    class Slow:
        env = SimpleNamespace(elapsed=lambda: clock[0])

        def newest(self) -> Any:
            clock[0] += 1.0
            return SimpleNamespace(id="base")

    port: Any = Slow()
    others = OtherWriters(port, port.newest())
    others.took(["a"])
    clock[0] += 2.0
    assert others.looked_lately, "the next look is due ten seconds after the last one"
    clock[0] += 9.0
    assert not others.looked_lately


def last_rows(told: list[tuple[int, int, str]]) -> tuple[int, int]:
    return [(done, total) for done, total, unit in told if unit == "rows"][-1]


@pytest.mark.parametrize("plans_again", [False, True], ids=["conflicts", "put back"])
def test_the_rows_of_a_group_that_is_not_merged_do_not_count_as_progress_to_come(
    triples: Subject, plans_again: bool
) -> None:
    told: list[tuple[int, int, str]] = []
    engine = Seen(between=lambda done: [triples.delete(number) for number in (24, 28)] if done == 1 else None)
    run(triples, engine, plans_again=plans_again, progress=lambda *event: told.append(event))
    assert last_rows(told) == (24, 24)
    assert [event for event in told if event[2] == "groups"][-1] == (3, 3, "groups")


def test_the_rows_of_a_group_that_is_stopped_do_not_count_as_progress_to_come(triples: Subject) -> None:
    told: list[tuple[int, int, str]] = []
    engine = Midst(place=2, act=lambda: triples.delete(24))
    assert statuses(run_timed(triples, engine, progress=lambda *event: told.append(event)))[2] == "conflicted"
    assert last_rows(told) == (24, 24)
    assert all(done <= total for done, total, _ in told)


# -- what a plan says --------------------------------------------------------------------------------------------------


def test_the_rows_of_a_group_that_lost_a_block_are_those_of_the_plan_together_with_it(
    triples: Subject,
) -> None:
    plan = plan_of(triples)
    edited = dataclasses.replace(plan.groups[0], rows=plan.groups[0].rows + 1)
    triples.delete(0)
    with pytest.raises(InvalidDataError, match=r"group 0 of the plan: rows is \d+, expected \d+"):
        run(triples, Seen(), plan=dataclasses.replace(plan, groups=(edited, *plan.groups[1:])))


def test_a_group_that_lost_a_block_conflicts_if_the_snapshot_of_its_plan_expired(
    triples: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expired(*_: Any, **__: Any) -> Any:
        raise SnapshotNotFoundError("it expired")

    plan, rows = plan_of(triples), triples.rows()
    triples.delete(0)
    monkeypatch.setattr(triples.port, "version", expired)
    outcome = run(triples, Seen(), plan=plan)
    assert statuses(outcome) == ["conflicted", "committed", "committed"]
    assert "left the table, and snapshot" in str(outcome.groups[0].error)
    monkeypatch.undo()
    assert len(triples.rows()) == len(rows) - 1
