"""Rounds that commit groups as they are merged: when they commit, their outcomes, and the state after an early end."""

from __future__ import annotations

import dataclasses
import datetime
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tblctl.errors import CommitOutcomeUnknownError, ConflictError, InvalidOptionError, StorageError
from tblctl.merger.cutting.cuts import CutTask
from tblctl.merger.engines import engine as engine_module
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.round import planned_blocks
from tblctl.merger.round import round as round_module
from tblctl.merger.round.commit_every import AT_END, BESIDE_OTHERS, CommitEvery
from tblctl.merger.round.group_run import GroupRun, State
from tblctl.merger.round.others import OtherWriters
from tblctl.merger.round.round import RoundOutcome, merge_round
from tblctl.merger.task.verify import VerificationError
from tblctl.selector.plan import Plan
from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.model.record import BlockRecord

from .subjects import KINDS, Meddling, Observing, Subject, blocks_of, making, plan_of, twin, versions_of

EACH = CommitEvery(groups=1)


@pytest.fixture(params=KINDS)
def pairs(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Make four pairs of blocks that overlap, far from each other: groups 0 to 3, of rows 0-7, 8-15, 16-23, 24-31."""
    subject = making(request.param, request)(block_rows=4)
    for start in (0.0, 100.0, 200.0, 300.0):
        subject.append(*(start + 2 * step for step in range(4)))
        subject.append(*(start + 1 + 2 * step for step in range(4)))
    return subject


class OneByOne(Meddling):
    """Runs tasks one after the other; `between` acts before each, given the number of those that are done."""

    between: Callable[[int], object] = staticmethod(lambda _done: None)

    def run(self, io: Any, tasks: Any, done: Any, **rest: Any) -> None:
        for number, task in enumerate(tasks):
            self.between(number)
            super().run(io, [task], done, **rest)


def one_by_one(between: Callable[[int], object], **words: Any) -> OneByOne:
    engine = OneByOne(**words)
    engine.between = between
    return engine


def raises_at(place: int, error: BaseException) -> Callable[[int], None]:
    def between(done: int) -> None:
        if done == place:
            raise error

    return between


def run(
    subject: Subject,
    plan: Plan | None = None,
    measure: Callable[..., Any] = lambda _removed, _added: {},
    **words: Any,
) -> tuple[RoundOutcome, list[Any]]:
    """Run and return what each commit said of itself, too."""
    told: list[Any] = []
    words = {"engine": OneByOne(), "commit_every": EACH, **words}
    outcome = merge_round(
        subject.port,
        subject.port.newest(),
        plan or plan_of(subject),
        observer=Observing(
            measure=measure, after=lambda _version: told.append(subject.detail()["recluster"])
        ),
        **words,
    )
    return outcome, told


def statuses(outcome: RoundOutcome) -> list[str]:
    return [group.status for group in outcome.groups]


def levels(subject: Subject) -> list[int]:
    """Return the levels of each pair's blocks, in order of key."""
    return [block[2] for block in blocks_of(subject)]


def listed(subject: Subject) -> set[str]:
    version = subject.port.newest()
    return set(version.listing(version.sort, None).paths.to_pylist())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, BESIDE_OTHERS),
        (8, CommitEvery(groups=8)),
        ("8", CommitEvery(groups=8)),
        (" 60s ", CommitEvery(seconds=60)),
        ("5m", CommitEvery(seconds=300)),
        (datetime.timedelta(minutes=2), CommitEvery(seconds=120)),
    ],
)
def test_a_number_is_of_groups_and_a_time_is_a_time(value: Any, expected: CommitEvery) -> None:
    assert CommitEvery.of(value) == expected


@pytest.mark.parametrize("value", [0, "0", "0s", -1, "-1", True, 1.5, "often", "", datetime.timedelta()])
def test_what_is_neither_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOptionError, match=r"commit_every is .* a number of groups such as 8"):
        CommitEvery.of(value)


@pytest.mark.parametrize(
    ("every", "groups", "seconds", "due"),
    [
        (AT_END, 10**6, 10**6, False),
        (CommitEvery(groups=3), 2, 10**6, False),
        (CommitEvery(groups=3), 3, 0, True),
        (CommitEvery(seconds=60), 10**6, 59, False),
        (CommitEvery(seconds=60), 1, 60, True),
        (CommitEvery(seconds=60), 0, 60, False),
    ],
)
def test_a_commit_is_due_when_enough_groups_wait_or_one_waits_long_enough(
    every: CommitEvery, groups: int, seconds: float, due: bool
) -> None:
    assert every.is_due(groups=groups, seconds=seconds) == due


@pytest.mark.parametrize(
    ("every", "groups"),
    [
        (AT_END, [4]),
        (EACH, [1, 1, 1, 1]),
        (CommitEvery(groups=3), [3, 1]),
        (CommitEvery(seconds=1e-9), [1, 1, 1, 1]),
        (CommitEvery(seconds=1e9), [4]),
        (BESIDE_OTHERS, [4]),
    ],
    ids=str,
)
def test_groups_are_committed_as_they_are_merged(
    pairs: Subject, every: CommitEvery, groups: list[int]
) -> None:
    rows, before = pairs.rows(), versions_of(pairs)
    outcome, told = run(pairs, commit_every=every)
    assert [item["committed_groups"] for item in told] == groups
    assert sum(item["rows"] for item in told) == sum(group.rows for group in outcome.groups) == len(rows)
    assert outcome.commits == len(groups)
    assert statuses(outcome) == ["committed"] * 4
    assert outcome.version is not None
    assert outcome.version.id == pairs.port.newest().id
    assert len(versions_of(pairs)) == len(before) + len(groups)
    assert (levels(pairs), pairs.rows()) == ([1] * 8, rows)


class Clock:
    """The time of a table: it passes in looks for other writers, each of `look_seconds`, and in `pass_time`.

    `looks` tells when they began.
    """

    def __init__(self) -> None:
        self.seconds, self.look_seconds = 0.0, 0.0
        self.looks: list[float] = []

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock(pairs: Subject, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made, look = Clock(), OtherWriters._look

    def slow(others: OtherWriters[Any]) -> None:
        made.looks.append(made.seconds)
        made.pass_time(made.look_seconds)
        look(others)

    monkeypatch.setattr(OtherWriters, "_look", slow)
    pairs.port.env = dataclasses.replace(pairs.port.env, elapsed=lambda: made.seconds)
    return made


@pytest.mark.usefixtures("clock")
def test_from_another_writers_commit_on_each_group_is_committed_as_it_is_merged(pairs: Subject) -> None:
    engine = one_by_one(lambda done: pairs.append(5000.0) if done == 1 else None)
    outcome, told = run(pairs, engine=engine, commit_every=BESIDE_OTHERS)
    assert [item["committed_groups"] for item in told] == [2, 1, 1]
    assert statuses(outcome) == ["committed"] * 4


@pytest.mark.usefixtures("clock")
def test_groups_that_were_committed_at_once_are_not_lost_to_a_writer_that_comes_later(pairs: Subject) -> None:
    engine = one_by_one(lambda done: pairs.delete({1: 24, 3: 0}[done]) if done in {1, 3} else None)
    outcome, _ = run(pairs, engine=engine, commit_every=BESIDE_OTHERS)
    assert statuses(outcome) == ["committed"] * 3 + ["conflicted"]


def test_a_group_that_lost_a_block_is_dropped_before_it_is_merged(pairs: Subject) -> None:
    merged: list[int] = []

    class Watching(OneByOne):
        def run(self, io: Any, tasks: Any, done: Any, **rest: Any) -> None:
            for task in tasks:
                merged.append(task.group)
                LocalEngine().run(io, [task], done, **rest)
                if len(merged) == 1:
                    pairs.delete(16)

    outcome, _ = run(pairs, engine=Watching(), commit_every=AT_END)
    assert statuses(outcome) == ["committed", "committed", "conflicted", "committed"]
    assert list(dict.fromkeys(merged)) == [0, 1, 3]
    assert "left the table" in str(outcome.groups[2].error)


def test_a_task_whose_input_left_the_table_conflicts_and_does_not_fail(pairs: Subject) -> None:
    version, plan = pairs.port.newest(), plan_of(pairs)
    lost = version.blocks(plan.groups[0].blocks)

    def collect(done: int) -> None:
        if done == 0:
            pairs.delete(0)
            for path in lost.keys() - listed(pairs):
                pairs.lose(path)

    outcome, _ = run(pairs, plan, engine=one_by_one(collect))
    assert statuses(outcome) == ["conflicted"] + ["committed"] * 3
    assert "left the table" in str(outcome.groups[0].error)
    assert listed(pairs) <= pairs.stored()


def test_other_writers_are_looked_for_in_a_tenth_of_the_time(pairs: Subject, clock: Clock) -> None:
    clock.look_seconds = 1
    engine = one_by_one(lambda _done: clock.pass_time(4))
    _, told = run(pairs, engine=engine, commit_every=BESIDE_OTHERS)
    assert [item["committed_groups"] for item in told] == [4]
    assert clock.looks == [4, 17], "at 9 and 13 none is due: 10 seconds pass after the first one's end"


def test_a_writer_in_the_midst_is_seen_when_a_look_is_due_again(pairs: Subject, clock: Clock) -> None:
    clock.look_seconds = 1

    def meddle(done: int) -> None:
        clock.pass_time(6)
        if done == 1:
            pairs.append(5000.0)

    _, told = run(pairs, engine=one_by_one(meddle), commit_every=BESIDE_OTHERS)
    assert [item["committed_groups"] for item in told] == [3, 1]
    assert clock.looks == [6, 19], "none at 13, after the group in whose midst it wrote"


def cut_off(subject: Subject, between: Callable[[int], object], **words: Any) -> tuple[RoundOutcome, int]:
    """Run, and let every look of the tasks' time fail; return how many did, too."""
    newest, looks = subject.port.newest, []

    def no_reply() -> Any:
        looks.append(1)
        raise StorageError("no reply")

    class CutOff(OneByOne):
        def run(self, *arguments: Any, **rest: Any) -> None:
            subject.port.newest = no_reply
            super().run(*arguments, **rest)
            subject.port.newest = newest

    engine = CutOff()
    engine.between = between
    outcome, _ = run(subject, engine=engine, **words)
    return outcome, len(looks)


@pytest.mark.parametrize("every", [AT_END, BESIDE_OTHERS], ids=["at end", "beside others"])
def test_a_look_that_fails_does_not_end_a_round(pairs: Subject, every: CommitEvery) -> None:
    outcome, looks = cut_off(pairs, between=lambda _done: None, commit_every=every)
    assert looks
    assert (statuses(outcome), outcome.commits) == (["committed"] * 4, 1)


def test_looks_that_fail_slowly_are_as_rare_as_others(pairs: Subject, clock: Clock) -> None:
    clock.look_seconds = 1
    outcome, looks = cut_off(pairs, between=lambda _done: clock.pass_time(4), commit_every=BESIDE_OTHERS)
    assert statuses(outcome) == ["committed"] * 4
    assert clock.looks == [4, 17]
    assert looks == 2


def test_a_commit_tells_of_what_was_left_out_since_the_one_before_it(pairs: Subject) -> None:
    engine = one_by_one(lambda done: pairs.delete(16) if done == 2 else None, failing=frozenset({0}))
    outcome, told = run(pairs, engine=engine)
    assert statuses(outcome) == ["failed", "committed", "conflicted", "committed"]
    fates = ("committed_groups", "conflicted_groups", "failed_groups")
    assert [[item[name] for name in fates] for item in told] == [[1, 0, 1], [1, 1, 0]]
    assert listed(pairs) <= pairs.stored()


def test_a_measure_is_asked_about_each_commits_blocks_alone(pairs: Subject) -> None:
    asked: list[tuple[int, int]] = []
    run(pairs, measure=lambda removed, added: asked.append((len(removed), len(added))) or {})
    assert asked == [(2, 2)] * 4


def test_appends_and_deletes_between_commits_do_no_harm(pairs: Subject) -> None:
    def meddle(done: int) -> None:
        pairs.append(100.0 * done + 0.5)
        if done == 3:
            pairs.delete(0)  # its group is already committed: this replaces the group's output block

    outcome, _ = run(pairs, engine=one_by_one(meddle, parallelism=1))
    assert statuses(outcome) == ["committed"] * 4
    assert len(pairs.rows()) == 32 + 4 - 1


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), StorageError("the session is gone")])
def test_what_ends_a_round_leaves_what_was_committed_and_nothing_else(
    pairs: Subject, place: int, error: BaseException
) -> None:
    before, old, rows = pairs.stored(), listed(pairs), pairs.rows()
    with pytest.raises(type(error)):
        run(pairs, engine=one_by_one(raises_at(place, error)))
    assert pairs.stored() == before | listed(pairs)
    assert len(listed(pairs) - old) == 2 * place
    assert pairs.rows() == rows
    outcome, _ = run(pairs)
    assert (len(outcome.groups), levels(pairs)) == (4 - place, [1] * 8)


@pytest.mark.parametrize("error", [CommitOutcomeUnknownError("no reply"), KeyboardInterrupt()])
def test_a_commit_in_doubt_ends_the_round_and_nothing_of_it_is_deleted(
    pairs: Subject, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, calls = type(pairs.port).replace, []

    def in_doubt(*arguments: Any) -> Any:
        calls.append(arguments)
        version = replace(*arguments)
        if len(calls) == 2:
            raise error
        return version

    monkeypatch.setattr(type(pairs.port), "replace", in_doubt)
    rows = pairs.rows()
    with pytest.raises(type(error)):
        run(pairs)
    assert levels(pairs) == [1, 1, 1, 1, 0, 0, 0, 0]
    assert listed(pairs) <= pairs.stored()
    assert pairs.rows() == rows


def test_fail_stops_at_the_first_conflict_and_tells_what_stays(pairs: Subject) -> None:
    engine = one_by_one(lambda done: pairs.delete(16) if done == 2 else None)
    before = versions_of(pairs)
    with pytest.raises(ConflictError) as caught:
        run(pairs, engine=engine, on_conflict="fail")
    _, second, _deleted = versions_of(pairs)[len(before) :]
    assert f"2 groups were committed before, up to snapshot {second}," in str(caught.value)
    assert caught.value.details["groups"] == (2,)
    assert levels(pairs) == [1, 1, 1, 1, 0, 0, 0, 0]


def test_a_task_that_would_change_rows_stops_all_that_is_not_committed(pairs: Subject) -> None:
    before, old = pairs.stored(), listed(pairs)
    engine = OneByOne(failing=frozenset({2}), error=VerificationError("read 8 values, merged 7"))
    with pytest.raises(VerificationError, match="read 8 values"):
        run(pairs, engine=engine)
    assert len(listed(pairs) - old) == 4
    assert pairs.stored() == before | listed(pairs)


def test_the_largest_groups_are_merged_first(pairs: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_blocks, "require_figures", lambda *_: None)  # the sizes are made up
    plan = plan_of(pairs)
    sized = zip(plan.groups, (10, 30, 20, 40), strict=True)
    groups = tuple(dataclasses.replace(group, decoded_bytes=size) for group, size in sized)
    order: list[int] = []

    class Watching(OneByOne):
        def run(self, io: Any, tasks: Any, done: Any, **rest: Any) -> None:
            def watch() -> Iterator[Any]:
                for task in tasks:
                    order.append(task.group)
                    yield task

            super().run(io, watch(), done, **rest)

    run(pairs, dataclasses.replace(plan, groups=groups), engine=Watching())
    assert order == [3, 1, 2, 0]


def test_merging_begins_before_all_groups_are_cut_into_tasks(
    pairs: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, cut, seen = engine_module.find_cuts, [], []

    def find_cuts(io: Any, task: CutTask, *rest: Any) -> Any:
        cut.append(task.group)
        return real(io, task, *rest)

    monkeypatch.setattr(engine_module, "find_cuts", find_cuts)
    run(pairs, engine=one_by_one(lambda _done: seen.append(len(cut))), groups_ahead=1)
    assert seen[0] <= 3
    assert len(cut) == 4


def test_what_an_observer_raises_after_a_commit_ends_the_round(pairs: Subject) -> None:
    def stop(_version: Any) -> None:
        raise TblctlError("enough")

    with pytest.raises(TblctlError, match="enough"):
        merge_round(
            pairs.port,
            pairs.port.newest(),
            plan_of(pairs),
            OneByOne(),
            commit_every=EACH,
            observer=Observing(after=stop),
        )
    assert levels(pairs) == [1, 1, 0, 0, 0, 0, 0, 0]
    assert listed(pairs) <= pairs.stored()


@pytest.mark.parametrize("pairs", ["native"], indirect=True)
def test_a_round_holds_the_records_of_no_more_blocks_than_wait_for_a_commit(pairs: Subject) -> None:
    alive: list[weakref.ref[BlockRecord]] = []
    held: list[int] = []

    class Watching(OneByOne):
        def run(self, io: Any, tasks: Any, done: Any, **rest: Any) -> None:
            def watch(item: Any) -> None:
                alive.extend(weakref.ref(record) for record in item.records)
                done(item)

            super().run(io, tasks, watch, **rest)

    engine = Watching()
    engine.between = lambda _done: held.append(sum(item() is not None for item in alive))
    run(pairs, engine=engine)
    assert len(alive) == 8
    assert max(held) <= 4, "those of one group, and of the one before, which loops still name"


class Watched(GroupRun):
    """Counts how often the state of a group is looked at."""

    looks = 0

    @property
    def state(self) -> State:
        Watched.looks += 1
        return self._now

    @state.setter
    def state(self, value: State) -> None:
        self._now = value


@pytest.mark.parametrize("commit_every", [1, None])
def test_no_task_and_no_commit_looks_at_all_groups_of_a_round(
    commit_every: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_module, "GroupRun", Watched)
    looks = {}
    for groups in (5, 40):
        subject = twin(block_rows=2)
        for number in range(groups):
            subject.append(10.0 * number, 10.0 * number + 2)
            subject.append(10.0 * number + 1, 10.0 * number + 3)
        Watched.looks = 0
        plan = plan_of(subject, threshold=1)
        assert len(plan.groups) == groups
        every = CommitEvery.of(commit_every)
        outcome = merge_round(subject.port, subject.port.newest(), plan, LocalEngine(), commit_every=every)
        assert outcome.commits == (groups if commit_every else 1)
        looks[groups] = Watched.looks / groups
    assert looks[40] <= looks[5]
