"""Live sorts through the port: how replacements add them and others end them, alike in every table format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.round.commit_every import CommitEvery
from tblctl.merger.round.round import RoundOutcome, merge_round
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.port import Replacement, SortConflictError

from .subjects import KINDS, Meddling, Subject, making, plan_of

Make = Callable[..., Subject]
BY_N, DESCENDING = (Term(column_id=2),), (Term(column_id=2, descending=True),)


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Make:
    return making(request.param, request)


@pytest.fixture
def subject(make: Make) -> Subject:
    """Make a table of two pairs of overlapping blocks."""
    made = make(block_rows=4)
    for start in (0, 100):
        made.append(start + 0.0, start + 2.0, start + 4.0, start + 6.0)
        made.append(start + 1.0, start + 3.0, start + 5.0, start + 7.0)
    return made


def add(subject: Subject, *sorts: Sort, base: Any = None) -> Any:
    port = subject.port
    return port.replace(
        base or port.newest(),
        Replacement(removed=frozenset(), added=(), sorts=sorts, detail={"recluster": {}}),
    )


def merged(subject: Subject, sort: Sort, engine: Any = None, **more: Any) -> RoundOutcome:
    """Merge each pair of blocks into the order of a sort, one commit each."""
    version = subject.port.newest()
    plan = plan_of(subject, threshold=1)
    assert len(plan.groups) == 2
    groups = tuple(replace(group, sort_id=sort.id) for group in plan.groups)
    plan = replace(plan, groups=groups, sorts=(sort,))
    every = CommitEvery.of(1)
    return merge_round(subject.port, version, plan, engine or LocalEngine(), commit_every=every, **more)


def sort_ids(subject: Subject) -> list[int]:
    version = subject.port.newest()
    ids: list[int] = sorted(version.listing(version.sort, None).sort_id.tolist())
    return ids


def test_a_sort_is_live_once_however_often_it_is_added(subject: Subject) -> None:
    rows, sort = subject.rows(), Sort(id=subject.port.newest().next_sort_id, terms=BY_N)
    outcome = merged(subject, sort)
    assert ([group.status for group in outcome.groups], outcome.commits) == (["committed"] * 2, 2)
    version = add(subject, sort)
    assert dict(version.sorts) == {1: version.sort, sort.id: sort}
    assert version.next_sort_id == sort.id + 1
    assert sort_ids(subject) == [sort.id] * 4
    assert subject.rows() == rows


def test_an_id_is_never_given_again(subject: Subject) -> None:
    used = {1}
    for terms, key in ((BY_N, "n desc"), (DESCENDING, "k desc"), (BY_N, "k, n")):
        number = subject.port.newest().next_sort_id
        assert number not in used
        add(subject, Sort(id=number, terms=(*terms, Term(column_id=1))))
        subject.set_key(key)
        used |= {number, subject.port.newest().sort.id}
    assert used == set(range(1, 8))
    assert subject.port.newest().next_sort_id == 8


def test_a_key_that_the_table_had_has_its_id_again(subject: Subject) -> None:
    subject.set_key("n")
    subject.set_key("k")
    assert subject.port.newest().sort.id == 1


def test_a_sort_of_another_definition_conflicts(subject: Subject) -> None:
    base = subject.port.newest()
    sort = Sort(id=base.next_sort_id, terms=BY_N)
    add(subject, sort)
    with pytest.raises(SortConflictError) as caught:
        add(subject, replace(sort, terms=DESCENDING), base=base)
    assert caught.value.details["sorts"] == (sort.id,)
    assert subject.port.newest().sorts[sort.id] == sort


@pytest.mark.parametrize("keys", [["n"], ["n", "k"]], ids=["another key", "the same key again"])
def test_a_sort_that_a_new_key_ended_is_not_added_again(subject: Subject, keys: list[str]) -> None:
    base = subject.port.newest()
    sort = Sort(id=base.next_sort_id, terms=DESCENDING)
    base = add(subject, sort)
    for key in keys:
        subject.set_key(key)
    assert sort.id not in subject.port.newest().sorts
    with pytest.raises(SortConflictError):
        add(subject, sort, base=base)


def test_a_new_sort_is_not_added_beside_another_key(subject: Subject) -> None:
    subject.set_key("n")
    base = subject.port.newest()
    subject.set_key("k")
    with pytest.raises(SortConflictError):
        add(subject, Sort(id=base.next_sort_id, terms=DESCENDING), base=base)


def test_a_group_of_a_sort_that_ended_during_the_merge_conflicts(subject: Subject) -> None:
    rows, sort = subject.rows(), Sort(id=subject.port.newest().next_sort_id, terms=DESCENDING)
    stored = subject.stored()
    engine = Meddling(before=lambda: subject.set_key("n"))
    assert [group.status for group in merged(subject, sort, engine).groups] == ["conflicted"] * 2
    assert sort not in subject.port.newest().sorts.values()
    assert (subject.rows(), subject.stored()) == (rows, stored)
