"""Rounds until there is nothing to do, on the native format and on its twin: golden cases, and what ends the loop."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tblctl.maintain.recluster import (
    Committed,
    Done,
    Idle,
    ReclusterJob,
    Retry,
    Step,
    Waits,
    _note,
    outcome_of,
    recluster,
    step,
)
from tblctl.maintain.request import Request
from tblctl.merger.engines.local import LocalEngine
from tblctl.results import Outcome

from .subjects import KINDS, Meddling, Subject, blocks_of, making, plan_of

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "recluster.json").read_text())["cases"]

Make = Callable[..., Subject]


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Make:
    return making(request.param, request)


def run(subject: Subject, *, engine: Any = None, **words: Any) -> Outcome:
    words = {"policy": None, "options": None, **words}
    request = Request.of(condition=lambda _schema: None, **words)
    return recluster(subject.port, request, lambda _plan: engine or LocalEngine())


@pytest.mark.parametrize("case", GOLDEN, ids=[case["name"] for case in GOLDEN])
def test_golden(make: Make, case: dict[str, Any]) -> None:
    subject = make(block_rows=case["block_rows"])
    for keys in case["inserts"]:
        subject.append(*map(float, keys))
    rows = subject.rows()
    for action, expected in case["steps"]:
        if action == "levels":
            assert sorted(block[2] for block in blocks_of(subject)) == sorted(expected)
            continue
        outcome = run(subject, final=action == "recluster_final")
        assert (outcome.rounds == 0) == (expected == "no-op")
        if isinstance(expected, list):
            assert blocks_of(subject) == sorted(expected)
        assert subject.rows() == rows


def table_of_pairs(make: Make, pairs: int = 2) -> Subject:
    """Make pairs of blocks that overlap, far from each other: as many groups."""
    subject = make(block_rows=4)
    for pair in range(pairs):
        for start in (100.0 * pair, 100.0 * pair + 1):
            subject.append(*(start + 2 * step for step in range(4)))
    return subject


def test_final_takes_what_others_append_meanwhile(make: Make) -> None:
    subject = table_of_pairs(make)
    late = iter([1.5, 3.5])

    def append() -> None:
        start = next(late, None)
        if start is not None:
            for first in (start, start + 1):
                subject.append(*(first + 2 * step for step in range(4)))

    outcome = run(subject, engine=Meddling(after=append), final=True)
    assert outcome.rounds > 2
    assert run(subject, final=True).rounds == 0
    assert len(subject.rows()) == 32


def damaged_beside_healthy(make: Make) -> Subject:
    """Make four blocks that overlap, one of them lost, and two ranges of three: less deep, so for another round."""
    subject = make(block_rows=4)
    for start in range(4):
        subject.append(*(start + 4.0 * step for step in range(4)))
    for base in (100.0, 200.0):
        for start in range(3):
            subject.append(*(base + start + 3.0 * step for step in range(4)))
    (damaged,) = plan_of(subject).groups
    subject.lose(damaged.blocks[0])
    return subject


def test_a_group_that_fails_is_left_out_and_the_rest_goes_on(make: Make) -> None:
    subject = damaged_beside_healthy(make)
    outcome = run(subject, final=True)
    assert outcome.failed_groups == 1
    assert outcome.note == "4 blocks of groups that failed are left as they are"
    levels = [block[2] for block in blocks_of(subject)]
    assert levels[:4] == [0, 0, 0, 0]
    assert min(levels[4:]) > 0
    assert all(group.error for group in outcome.groups if group.status == "failed")


def test_a_single_round_that_only_failed_is_followed_by_one_of_the_rest(make: Make) -> None:
    subject = damaged_beside_healthy(make)
    outcome = run(subject)
    assert (outcome.rounds, outcome.committed_groups, outcome.failed_groups) == (2, 2, 1)
    assert [group.status for group in outcome.groups] == ["failed", "committed", "committed"]


def test_a_plan_that_only_failed_is_all_that_is_tried(make: Make) -> None:
    subject = damaged_beside_healthy(make)
    request = Request.of(policy=None, condition=lambda _schema: None, options=None)
    outcome = recluster(subject.port, request, lambda _plan: LocalEngine(), plan=plan_of(subject))
    assert (outcome.rounds, outcome.committed_groups, outcome.failed_groups) == (1, 0, 1)


def test_a_single_round_goes_on_until_all_failed(make: Make) -> None:
    subject = damaged_beside_healthy(make)
    outcome = run(subject, engine=Meddling(failing=frozenset(range(4))))
    assert (outcome.committed_groups, outcome.failed_groups) == (0, 3)
    assert outcome.note == "10 blocks of groups that failed are left as they are"


def test_rounds_that_all_fail_come_to_an_end(make: Make) -> None:
    subject = table_of_pairs(make, pairs=20)
    outcome = run(subject, engine=Meddling(failing=frozenset({0})), final=True, options={"max_groups": 1})
    assert (outcome.rounds, outcome.failed_groups) == (11, 11)
    assert outcome.note.startswith("stopped: groups failed ")


def test_one_round_is_one_round(make: Make) -> None:
    subject = table_of_pairs(make)
    for keys in ((0.5, 2.5, 4.5, 6.5), (1.5, 3.5, 5.5, 7.5)):
        subject.append(*keys)
    outcome = run(subject)
    assert outcome.rounds == 1
    assert run(subject).rounds == 1


def job_of(subject: Subject, *, engine: Any = None, endless: bool = False, **words: Any) -> ReclusterJob:
    request = Request.of(condition=lambda _schema: None, **{"policy": None, "options": None, **words})
    return ReclusterJob(
        port=subject.port, request=request, engine=lambda _plan: engine or LocalEngine(), endless=endless
    )


def steps(job: ReclusterJob, count: int) -> list[Step]:
    state, taken = job.start(), []
    for _ in range(count):
        taken.append(step(job, state))
        state = taken[-1].state
    return taken


def test_a_step_carries_out_one_round_and_says_whether_there_is_more(make: Make) -> None:
    subject = table_of_pairs(make)
    job = job_of(subject, final=True, options={"max_groups": 1})
    taken = steps(job, 3)
    assert [type(item) for item in taken] == [Committed, Committed, Done]
    assert [item.more for item in taken[:2]] == [True, True]
    outcome = outcome_of(job, taken[-1].state, 1.5)
    assert (outcome.rounds, outcome.commits, outcome.seconds) == (2, 2, 1.5)


def test_a_single_round_is_a_step_without_more(make: Make) -> None:
    (taken,) = steps(job_of(table_of_pairs(make)), 1)
    assert isinstance(taken, Committed)
    assert not taken.more


def test_a_state_can_be_stepped_from_again(make: Make) -> None:
    subject = table_of_pairs(make)
    job = job_of(subject, final=True, options={"max_groups": 1})
    start = job.start()
    first = step(job, start)
    assert start.groups == ()
    assert step(job, start).state.groups != first.state.groups


def test_an_endless_job_is_idle_until_there_is_something_to_do(make: Make) -> None:
    subject = table_of_pairs(make, pairs=1)
    job = job_of(subject, endless=True)
    taken = steps(job, 4)
    assert [type(item) for item in taken] == [Committed, Idle, Idle, Idle]
    assert taken[0].more
    now = subject.port.env.elapsed()
    waits = [item.until_seconds - now for item in taken[1:]]
    assert 0 < waits[0] <= 1.0 < waits[2] <= 4.0
    for start in (100.0, 101.0):
        subject.append(*(start + 2 * place for place in range(4)))
    later = step(job, taken[-1].state)
    assert isinstance(later, Committed)
    assert later.state.idle == 0


def test_a_round_that_lost_to_other_writers_asks_for_a_retry_and_does_not_sleep(make: Make) -> None:
    subject = table_of_pairs(make, pairs=1)

    def take_a_block_away() -> None:
        subject.delete(0)

    job = job_of(subject, engine=Meddling(after=take_a_block_away), final=True)
    (taken,) = steps(job, 1)
    assert isinstance(taken, Retry)
    assert 0.1 <= taken.after_seconds <= 0.2
    assert taken.state.fruitless == 1


def test_a_round_whose_groups_failed_is_retried_at_once(make: Make) -> None:
    job = job_of(damaged_beside_healthy(make))
    taken = steps(job, 2)
    assert isinstance(taken[0], Retry)
    assert taken[0].after_seconds == 0
    assert isinstance(taken[1], Committed)


def test_waits_grow_to_the_longest_and_rounds_without_a_commit_end(make: Make) -> None:
    subject = table_of_pairs(make, pairs=20)
    waits = Waits(most_fruitless=2)
    job = replace(
        job_of(subject, engine=Meddling(failing=frozenset({0})), final=True, options={"max_groups": 1}),
        waits=waits,
    )
    taken = steps(job, 3)
    assert [type(item) for item in taken] == [Retry, Retry, Done]
    assert taken[-1].state.note.startswith("stopped: groups failed ")


@pytest.mark.parametrize(
    ("failed", "left", "said"),
    [
        (0, [], ""),
        (1, [], "1 block of a group that failed is left as it is"),
        (2, [], "2 blocks of groups that failed are left as they are"),
        (0, [1], "1 group of 1 block did not begin, to keep to the budget"),
        (0, [2, 3], "2 groups of 5 blocks did not begin, to keep to the budget"),
    ],
)
def test_what_is_left_is_counted_in_words_of_its_number(failed: int, left: list[int], said: str) -> None:
    assert _note(failed, [SimpleNamespace(blocks_in=count) for count in left]) == said
