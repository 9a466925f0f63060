"""Rounds beside other writers: little is merged of groups that lose blocks, and these lose as little as can be."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tblctl.errors import ConflictError
from tblctl.maintain.recluster import recluster
from tblctl.maintain.request import Request
from tblctl.merger.engines.engine import stopped
from tblctl.merger.round.commit_every import AT_END, BESIDE_OTHERS
from tblctl.merger.round.round import RoundOutcome, merge_round
from tblctl.merger.task.spec import MergeTask

from .subjects import KINDS, Meddling, Subject, blocks_of, making, plan_of

STARTS = (0.0, 100.0, 200.0)


@pytest.fixture(params=KINDS)
def triples(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Make triples of blocks that overlap: groups 0 to 2, of rows 0-11, 12-23, 24-35; each block has four."""
    subject = making(request.param, request)(block_rows=4)
    for start in STARTS:
        for first in range(3):
            subject.append(*(start + first + 3 * step for step in range(4)))
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


def run_timed(subject: Subject, engine: Midst) -> RoundOutcome:
    subject.port.env = dataclasses.replace(subject.port.env, elapsed=lambda: engine.clock[0])
    return run(subject, engine)


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


def test_from_another_writers_commit_on_a_group_has_a_task_for_each_processor(triples: Subject) -> None:
    for start in (300.0, 400.0):
        for first in range(3):
            triples.append(*(start + first + 3 * step for step in range(4)))
    engine = Seen(between=lambda done: triples.append(5000.0) if done == 0 else None, parallelism=5)
    outcome = run(triples, engine, groups_ahead=1)
    assert statuses(outcome) == ["committed"] * 5
    tasks = Counter(task.group for task in engine.tasks)
    assert (tasks[0], tasks[4]) == (1, 3)
