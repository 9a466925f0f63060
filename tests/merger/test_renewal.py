"""Tasks that the storage denied run again with fresh credentials."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tblctl.merger.round.renewal import run_renewed
from tblctl.merger.task.spec import TaskFailure
from tblctl.tableformat.errors import AccessDeniedError, ConflictError, StorageError

TASKS: Any = [SimpleNamespace(group=0, number=number, title=f"task {number}") for number in range(3)]


class Engine:
    """Runs each task by a function of the task and of how often it was run."""

    def __init__(self, outcomes: Any) -> None:
        self.runs: list[int] = []
        self._outcomes = outcomes

    def run(self, io: Any, tasks: Any, done: Any, *, title: str, **_: Any) -> None:
        for task in tasks:
            self.runs.append(task.number)
            for outcome in self._outcomes(task, self.runs.count(task.number)):
                done(outcome)


class IO:
    """Renews credentials, or fails to; then nobody knows whether they would be there later."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)

    def renew(self) -> bool:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def merged(task: Any) -> Any:
    return SimpleNamespace(group=task.group, number=task.number)


def denied(task: Any) -> TaskFailure:
    return TaskFailure(group=task.group, number=task.number, error=AccessDeniedError("expired"))


def run(outcomes: Any, io: IO, **words: Any) -> tuple[list[int], list[Any]]:
    engine: Any = Engine(outcomes)
    found: list[Any] = []
    given: Any = io
    run_renewed(engine, given, iter(TASKS), found.append, title="t", **words)
    return engine.runs, found


def test_denied_tasks_run_again_after_the_others() -> None:
    runs, found = run(
        lambda task, nth: [denied(task) if nth == 1 and task.number else merged(task)], IO(True)
    )
    assert runs == [0, 1, 2, 1, 2]
    assert [one.number for one in found] == [0, 1, 2]
    assert not any(isinstance(one, TaskFailure) for one in found)


def test_a_right_that_is_really_lacking_fails_after_two_more_tries() -> None:
    runs, found = run(lambda task, _: [denied(task)], IO(True))
    assert runs == [0, 1, 2] * 3
    assert [(one.number, type(one)) for one in found] == [(number, TaskFailure) for number in range(3)]


@pytest.mark.parametrize("answer", [False, StorageError("the catalog is busy")], ids=["nobody vends", "busy"])
def test_where_nothing_is_renewed_a_denial_is_the_outcome(answer: bool | Exception) -> None:
    runs, found = run(lambda task, _: [denied(task)], IO(answer))
    assert runs == [0, 1, 2]
    assert all(isinstance(one, TaskFailure) for one in found)


def test_after_a_catalog_was_busy_it_is_asked_again() -> None:
    runs, found = run(
        lambda task, nth: [denied(task) if nth == 1 else merged(task)], IO(StorageError("busy"), True)
    )
    assert runs == [0, 1, 2, 1, 2]
    assert [isinstance(one, TaskFailure) for one in found] == [True, False, False]


def test_an_outcome_that_comes_twice_is_reported_twice() -> None:
    """Whoever counts tasks refuses it: rows would be committed twice."""
    _, found = run(lambda task, _: [merged(task)] * 2, IO(True))
    assert [one.number for one in found] == [0, 0, 1, 1, 2, 2]


def test_denied_tasks_of_a_group_that_is_not_wanted_any_more_do_not_run_again() -> None:
    runs, found = run(
        lambda task, _: [denied(task) if task.number else merged(task)], IO(True), wanted=lambda _group: False
    )
    assert runs == [0, 1, 2]
    assert [(one.number, isinstance(one, TaskFailure)) for one in found] == [(0, False), (1, True), (2, True)]
    assert all(isinstance(one.error, ConflictError) for one in found[1:])
