"""What a service that steps for ever rests on: small states, cheap waking, what errors and policies remember."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tblctl.maintain import recluster as loop
from tblctl.maintain.pacing import next_most_groups
from tblctl.maintain.recluster import (
    Committed,
    Done,
    Idle,
    LoopState,
    ReclusterJob,
    Retry,
    Step,
    Totals,
    Waits,
    outcome_of,
    state_of,
    step,
)
from tblctl.maintain.request import Request
from tblctl.merger.engines.local import LocalEngine
from tblctl.policies import Budget, Decision, Draft, TableView, next_level
from tblctl.selector.pricing.rates import Rates
from tblctl.tableformat.errors import CommitOutcomeUnknownError, ConflictError, StorageError

from .subjects import KINDS, Meddling, Subject, making

Make = Callable[..., Subject]


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Make:
    return making(request.param, request)


@pytest.fixture
def twin(request: pytest.FixtureRequest) -> Make:
    return making("twin", request)


def table_of_pairs(make: Make, pairs: int = 2) -> Subject:
    """Make pairs of blocks that overlap, far from each other: as many groups."""
    subject = make(block_rows=4)
    for pair in range(pairs):
        append_pair(subject, 100.0 * pair)
    return subject


def append_pair(subject: Subject, start: float) -> None:
    for first in (start, start + 1):
        subject.append(*(first + 2 * place for place in range(4)))


def job_of(subject: Subject, *, engine: Any = None, **words: Any) -> ReclusterJob:
    of_request = Request.__dataclass_fields__.keys() - ReclusterJob.__dataclass_fields__.keys()
    asked = {name: words.pop(name) for name in list(words) if name in of_request}
    request = Request.of(condition=lambda _schema: None, **{"policy": None, "options": None, **asked})
    words = {"endless": True, **words}
    return ReclusterJob(
        port=subject.port, request=request, engine=lambda _plan: engine or LocalEngine(), **words
    )


def steps(job: ReclusterJob, count: int, state: LoopState | None = None) -> list[Step]:
    state, taken = state or job.start(), []
    for _ in range(count):
        taken.append(step(job, state))
        state = taken[-1].state
    return taken


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    pass


class Pair:
    """Merges the two blocks of the lowest level that were written first, as often as it is told, and counts."""

    name = "pair"
    summary = "merges two blocks"
    options = NoOptions

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.handed: list[tuple[Any, Any, Any]] = []

    def decide(
        self, view: TableView, budget: Budget, options: NoOptions, *, workload: Any, state: Any, rates: Any,
        now: float, rng: Any,
    ) -> Decision:  # fmt: skip
        self.handed.append((workload, state, rates))
        count = state or 0
        blocks = np.argsort(view.level, kind="stable")[:2]
        if count >= self.most or blocks.size < 2:
            return Decision(state=count)
        draft = Draft(blocks=blocks, output_level=next_level(view, blocks), why="two")
        return Decision(drafts=(draft,), state=count + 1)


# -- the state stays small -----------------------------------------------------------------------------------------


def test_an_idle_state_does_not_grow_and_keeps_both_notes_apart(make: Make) -> None:
    job = job_of(
        table_of_pairs(make, pairs=1), options={"threshold": 100.0}, workload=lambda _version: "asked"
    )
    taken = steps(job, 4)
    assert {type(item) for item in taken} == {Idle}
    first, *_, last = [item.state for item in taken]
    assert (first.note, last.note) == ("", "")
    assert first.nothing
    assert last.nothing
    assert first.nothing.note == last.nothing.note
    assert outcome_of(job, last, 0.0).note == first.nothing.note


def test_an_endless_job_keeps_the_groups_of_the_last_round_and_sums_of_all(twin: Make) -> None:
    subject = table_of_pairs(twin, pairs=6)
    job = job_of(subject, options={"max_groups": 1})
    taken = steps(job, 7)
    assert [type(item) for item in taken] == [Committed] * 6 + [Idle]
    state = taken[-1].state
    assert [group.round for group in state.groups] == [6]
    assert state.totals == Totals(
        rounds=6, commits=6, committed_groups=6, blocks_in=12, blocks_out=12, rows=48,
        bytes_read=state.totals.bytes_read, bytes_written=state.totals.bytes_written,
        predicted=state.totals.predicted,
    )  # fmt: skip
    assert outcome_of(job, state, 0.0).rounds == 6
    in_turn = job_of(table_of_pairs(twin, pairs=6), options={"max_groups": 1}, endless=False, final=True)
    state = steps(in_turn, 7)[-1].state
    assert [group.round for group in state.groups] == [1, 2, 3, 4, 5, 6]


def test_the_size_of_a_state_does_not_depend_on_how_many_rounds_there_were(twin: Make) -> None:
    subject = table_of_pairs(twin, pairs=1)
    job = job_of(subject)
    sizes = []
    state = job.start()
    for number in range(1, 20):
        state = steps(job, 2, state)[-1].state
        sizes.append(len(pickle.dumps(replace(state, averages=None, nothing=None))))
        append_pair(subject, 100.0 * number)
    assert max(sizes[5:]) < 1.1 * sizes[5]


def test_groups_that_failed_are_tried_again_after_an_endless_job_was_idle(make: Make) -> None:
    subject = table_of_pairs(make, pairs=1)
    engine = Meddling(failing=frozenset({0}))
    job = job_of(subject, engine=engine)
    taken = steps(job, 5)
    assert [type(item) for item in taken] == [Retry, Idle, Retry, Idle, Retry]
    assert [len(item.state.failed) for item in taken] == [2, 2, 2, 2, 2]
    assert [item.state.idle for item in taken] == [0, 1, 1, 2, 2]
    assert [item.state.fruitless for item in taken] == [1, 0, 1, 0, 1]
    assert taken[1].state.note == "2 blocks of groups that failed are left as they are"
    engine.failing = frozenset()
    idle, committed = steps(job, 2, taken[-1].state)
    assert isinstance(idle, Idle)
    assert isinstance(committed, Committed)
    assert (committed.state.failed, committed.state.idle, committed.state.note) == (frozenset(), 0, "")


# -- waking up -----------------------------------------------------------------------------------------------------


def count_plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    made = loop.planned

    def planned(*args: Any, **words: Any) -> Any:
        calls.append(words)
        return made(*args, **words)

    monkeypatch.setattr(loop, "planned", planned)
    return calls


def test_an_idle_job_plans_once_a_version(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = count_plans(monkeypatch)
    subject = table_of_pairs(make, pairs=1)
    job = job_of(subject)
    taken = steps(job, 5)
    assert [type(item) for item in taken] == [Committed, *([Idle] * 4)]
    assert len(plans) == 2
    idle = taken[-1]
    assert isinstance(idle, Idle)
    assert idle.version == idle.state.version == subject.port.newest().id
    append_pair(subject, 100.0)
    assert [type(item) for item in steps(job, 2, idle.state)] == [Committed, Idle]
    assert len(plans) == 4


def test_a_job_with_a_workload_plans_at_each_step(twin: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = count_plans(monkeypatch)
    steps(job_of(table_of_pairs(twin, pairs=1), workload=lambda version: version.id), 4)
    assert len(plans) == 4


@pytest.mark.parametrize(("endless", "found"), [(True, ()), (False, ("full",))])
def test_only_a_job_that_ends_plans_for_advice(twin: Make, endless: bool, found: tuple[str, ...]) -> None:
    subject = twin(block_rows=4)
    for keys in ((1, 2, 3, 9), (4, 5, 6, 7)):
        subject.append(*map(float, keys))
    job = job_of(subject, endless=endless, options={"threshold": 100.0}, final=True)
    (taken,) = steps(job, 1)
    assert taken.state.nothing
    assert tuple(item.policy for item in taken.state.nothing.advice if item.policy == "full") == found


def test_waits_stay_the_longest_however_often_there_was_nothing_to_do(twin: Make) -> None:
    subject = twin(block_rows=4)
    job = job_of(subject)
    state = replace(steps(job, 1)[0].state, idle=5000)
    (taken,) = steps(job, 1, state)
    assert isinstance(taken, Idle)
    assert 30.0 <= taken.until_seconds - subject.port.env.elapsed() <= 60.0


def test_an_endless_job_whose_rounds_commit_nothing_waits_and_goes_on(make: Make) -> None:
    subject = table_of_pairs(make, pairs=20)
    engine = Meddling(failing=frozenset({0}))
    job = job_of(subject, engine=engine, options={"max_groups": 1}, waits=Waits(most_fruitless=2))
    taken = steps(job, 4)
    assert [type(item) for item in taken] == [Retry] * 4
    assert [item.after_seconds for item in taken[:2] if isinstance(item, Retry)] == [0.0, 0.0]
    assert all(5.0 <= item.after_seconds <= 10.0 for item in taken[2:] if isinstance(item, Retry))
    assert taken[-1].state.note.startswith("groups failed or other writers were faster, so 4 rounds in a row")
    engine.failing = frozenset()
    assert isinstance(step(job, taken[-1].state), Committed)


# -- what a policy remembers -----------------------------------------------------------------------------------------


def test_a_round_that_conflicts_leaves_the_policy_where_it_was(make: Make) -> None:
    subject = table_of_pairs(make, pairs=1)
    numbers = iter((0, 4))
    engine = Meddling(
        after=lambda: [subject.delete(number) for number in (next(numbers, None),) if number is not None]
    )
    policy = Pair(most=1)
    job = job_of(subject, policy=policy, engine=engine, endless=False, final=True)
    taken = steps(job, 4)
    assert [type(item) for item in taken] == [Retry, Retry, Committed, Done]
    assert [item.state.policy for item in taken] == [None, None, 1, 1]


def test_groups_that_all_fail_leave_the_policy_where_it_was(twin: Make) -> None:
    job = job_of(table_of_pairs(twin, 1), policy=Pair(), engine=Meddling(failing=frozenset({0})))
    (taken,) = steps(job, 1)
    assert isinstance(taken, Retry)
    assert taken.state.policy is None


def test_a_plan_that_the_budget_leaves_nothing_of_does_not_move_the_policy_on(twin: Make) -> None:
    job = job_of(table_of_pairs(twin, 1), policy=Pair(), options={"max_blocks": 1}, endless=False)
    (taken,) = steps(job, 1)
    assert isinstance(taken, Done)
    assert taken.state.policy is None


CHEAP = Rates(seconds_per_group=0.01)


def test_workload_rates_and_an_earlier_state_reach_the_policy_and_the_last_state_is_left(make: Make) -> None:
    subject = table_of_pairs(make, pairs=1)
    policy = Pair(most=43)
    job = job_of(
        subject, policy=policy, workload=lambda version: f"at {version.id}", rates=CHEAP, policy_state=42
    )
    first = subject.port.newest().id
    taken = steps(job, 2)
    assert [type(item) for item in taken] == [Committed, Idle]
    second = subject.port.newest().id
    assert policy.handed == [(f"at {first}", 42, CHEAP), (f"at {second}", 43, CHEAP)]
    assert taken[-1].state.policy == 43
    assert outcome_of(job, taken[-1].state, 0.0).policy == "pair"


# -- errors --------------------------------------------------------------------------------------------------------


def test_an_error_in_mid_round_carries_the_state_with_what_was_committed(make: Make) -> None:
    subject = table_of_pairs(make, pairs=3)

    def fail() -> None:
        raise CommitOutcomeUnknownError("the network is gone")

    job = job_of(subject, engine=Meddling(after=fail), commit_every=1)
    start = job.start()
    with pytest.raises(CommitOutcomeUnknownError) as raised:
        step(job, start)
    state = state_of(raised.value)
    assert state is not None
    newest = subject.port.newest()
    assert (state.snapshot, state.totals.rounds, state.totals.commits) == (newest.public_id, 1, 3)
    assert (state.before and state.before.depth, state.after and state.after.depth) == (2.0, 1.0)
    (taken,) = steps(replace(job, engine=lambda _plan: LocalEngine()), 1, state)
    assert isinstance(taken, Idle)
    assert taken.state.totals.commits == 3


def test_an_error_after_a_commit_moves_the_policy_on_and_one_before_does_not(twin: Make) -> None:
    def fail() -> None:
        raise StorageError("the network is gone")

    for engine, remembered in ((Meddling(after=fail), 1), (Meddling(before=fail), None)):
        job = job_of(table_of_pairs(twin, 1), engine=engine, policy=Pair(), commit_every=1)
        with pytest.raises(StorageError) as raised:
            step(job, job.start())
        state = state_of(raised.value)
        assert state is not None
        assert (state.policy, state.totals.commits) == (remembered, int(remembered or 0))


def test_after_an_error_a_job_that_was_idle_plans_again(make: Make) -> None:
    subject = table_of_pairs(make, pairs=1)

    def fail() -> None:
        raise StorageError("the network is gone")

    job = job_of(subject)
    idle = steps(job, 2)[-1]
    append_pair(subject, 100.0)
    with pytest.raises(StorageError) as raised:
        step(replace(job, engine=lambda _plan: Meddling(before=fail)), idle.state)
    state = state_of(raised.value)
    assert state is not None
    assert isinstance(step(job, state), Committed)


def test_a_state_does_not_travel_with_a_pickled_error(twin: Make) -> None:
    subject = table_of_pairs(twin, 1)

    def fail() -> None:
        raise KeyError("a bug")

    job = job_of(subject, engine=Meddling(after=fail))
    with pytest.raises(KeyError) as raised:
        step(job, job.start())
    assert state_of(raised.value) is not None
    assert state_of(pickle.loads(pickle.dumps(raised.value))) is None
    assert state_of(ConflictError("of elsewhere")) is None


def test_a_loop_takes_fewer_groups_a_round_after_conflicts_and_more_when_there_are_none(make: Make) -> None:
    subject = table_of_pairs(make, pairs=4)
    taken: list[int] = []
    rivals = [0]  # a row of the first pair

    @dataclass
    class Beside(Meddling):
        def run(self, io: Any, tasks: Any, done: Any, **rest: Any) -> None:
            tasks = list(tasks)
            taken.append(len({task.group for task in tasks}))
            if rivals:
                subject.delete(rivals.pop())
            super().run(io, tasks, done, **rest)

    request = Request.of(policy="levels", condition=lambda _schema: None, options={})
    job = ReclusterJob(port=subject.port, request=request, engine=lambda _plan: Beside(), endless=True)
    state = step(job, job.start()).state
    assert (state.totals.committed_groups, state.totals.conflicted_groups, state.most_groups) == (3, 1, 2)
    for start in (1000.0, 2000.0, 3000.0, 4000.0):
        append_pair(subject, start)
    while isinstance(found := step(job, state), Committed):
        state = found.state
    assert taken[0] == 4
    assert taken[1] <= 2
    assert sum(taken) == state.totals.committed_groups + 1


@pytest.mark.parametrize(
    ("most", "committed", "conflicted", "put_back", "expected"),
    [
        (None, 8, 0, 0, None),
        (None, 5, 5, 0, 5),
        (None, 0, 4, 0, None),
        (5, 4, 1, 0, 2),
        (1, 0, 1, 0, 2),
        (2, 0, 2, 0, 4),
        (2, 1, 1, 0, 1),
        (3, 3, 0, 0, 4),
        (9, 3, 0, 0, None),
        (None, 3, 0, 1, 2),
        (4, 3, 0, 1, 2),
        (4, 1, 1, 2, 2),
        (2, 0, 0, 2, 4),
        (None, 0, 0, 2, None),
    ],
)
def test_how_many_groups_the_next_round_may_have(
    most: int | None, committed: int, conflicted: int, put_back: int, expected: int | None
) -> None:
    groups: Any = [SimpleNamespace(status="committed")] * committed
    groups += [SimpleNamespace(status="conflicted")] * conflicted
    assert next_most_groups(most, groups, put_back=put_back) == expected
