"""A pending plan is executed in several rounds: one budget for all of them, one look at the whole table."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import Faults, inject
from tables import rows

import tblctl
from tblctl.maintain.pending import execute
from tblctl.maintain.pending import schedule as keep
from tblctl.selector.budget import Budget
from tblctl.tableformat.environment import SYSTEM, Environment
from tblctl.tableformat.native.log.names import claim_of
from tblctl.tableformat.native.port import NativeVersion

from .pending import built, one_by_one, pending_objects


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    yield from built(tmp_path)


def test_the_seconds_of_a_plan_count_for_all_its_rounds(url: str) -> None:
    """The clock stands still but for a thousand seconds at the end of each group."""
    passed = [0.0]

    def progress(_done: int, _total: int | None, unit: str) -> None:
        passed[0] += 1000.0 * (unit == "groups")

    table = tblctl.open(url)
    kept = keep(
        table._plans(None), lambda _taken: table.plan(options={"max_seconds": 900.0}), lifetime_seconds=60
    )
    job = one_by_one(url)
    job = dataclasses.replace(job, request=dataclasses.replace(job.request, progress=progress))
    job.port.env.__dict__["elapsed"] = lambda: passed[0]
    outcome = execute(job)
    assert (outcome.rounds, outcome.committed_groups, outcome.left_groups) == (1, 1, 2)
    assert "2 of 3 groups did not begin, to keep to the plan's budget: run it again" in outcome.note
    assert [group.status for group in outcome.groups] == ["committed", "left", "left"]
    assert "max_seconds: it was expected to end after" in outcome.groups[1].error
    claims = [claim_of(name) for name in pending_objects(url)]
    assert [claim[1] for claim in claims if claim] == [0]
    assert execute(job, kept.id).committed_groups == 1  # it counts anew for another execution


def test_the_money_of_a_plan_counts_for_all_its_rounds(url: str) -> None:
    table = tblctl.open(url)
    plan = table.plan(options={"price_per_gib": 1.0})
    budget = Budget(price_per_gib=1.0, max_cost=1.5 * plan.groups[0].price.cost)
    limited = dataclasses.replace(plan, options=dataclasses.replace(plan.options, budget=budget))
    keep(table._plans(None), lambda _taken: limited, lifetime_seconds=60)
    outcome = execute(one_by_one(url))
    assert (outcome.committed_groups, outcome.left_groups) == (1, 2)
    assert "max_cost: with it the round was expected to cost" in outcome.groups[1].error


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the versions whose blocks were listed with their bounds, in order."""
    found: list[str] = []
    real = NativeVersion.listing

    def listing(self: NativeVersion, *args: Any, **words: Any) -> Any:
        found.append(self.id)
        return real(self, *args, **words)

    monkeypatch.setattr(NativeVersion, "listing", listing)
    return found


def test_an_execution_lists_the_table_once_whatever_the_number_of_its_rounds(
    url: str, listings: list[str]
) -> None:
    tblctl.open(url).schedule()
    listings.clear()
    outcome = execute(one_by_one(url))
    assert (outcome.rounds, outcome.commits, len(listings)) == (3, 3, 1)
    assert (outcome.depth_before, outcome.depth_after) == (2.0, 1.0)
    reclusters = [item.detail["recluster"] for item in tblctl.open(url).history(3)]
    assert [(item["depth_before"], item["depth_after"]) for item in reclusters] == [
        (pytest.approx(4 / 3, abs=1e-3), 1.0),
        (pytest.approx(5 / 3, abs=1e-3), pytest.approx(4 / 3, abs=1e-3)),
        (2.0, pytest.approx(5 / 3, abs=1e-3)),
    ]


def test_an_execution_lists_the_table_again_after_others_wrote(url: str, listings: list[str]) -> None:
    table = tblctl.open(url)
    table.schedule()
    listings.clear()
    faults = Faults()
    faults.do(lambda: table.append(rows(501, 502)), operation="write", name="metadata/records/")
    with inject(faults):
        outcome = execute(one_by_one(url))
    assert (outcome.rounds, outcome.committed_groups, len(listings)) == (3, 3, 2)
    assert outcome.depth_after == 1.0
    assert table.info().average_depth == 1.0


def test_later_rounds_read_only_the_segments_that_are_new(url: str) -> None:
    """Apart from the blocks of the round's own groups, which a round looks up in the version that it merges on."""
    tblctl.open(url).schedule()
    with inject(Faults()) as seen:
        assert execute(one_by_one(url)).rounds == 3
    starts = [
        place for place, call in enumerate(seen.calls) if call.operation == "create" and claim_of(call.name)
    ]
    reads = [
        sum("segments/" in call.name and "read" in call.operation for call in seen.calls[begin:end])
        for begin, end in itertools.pairwise([*starts, len(seen.calls)])
    ]
    assert max(reads[1:]) < reads[0], reads


def test_what_rounds_were_expected_to_take_is_summed_up(url: str) -> None:
    table = tblctl.open(url)
    plan = table.schedule().plan
    outcome = execute(one_by_one(url))
    assert outcome.predicted == dataclasses.replace(plan.bill.total, seconds=outcome.predicted.seconds)
    assert outcome.predicted.seconds == pytest.approx(plan.bill.total.seconds)
    assert outcome.predicted_depth_after == plan.predicted.average_depth_after
    reclusters = [item.detail["recluster"] for item in table.history(3)]
    assert [item["predicted_depth_after"] for item in reclusters] == [
        None
    ] * 3  # a plan's is of all its groups


def test_claims_are_renewed_beside_the_rounds_of_every_opened_table(url: str) -> None:
    assert tblctl.open(url)._port.env.beat is SYSTEM.beat
    assert SYSTEM.beat is not Environment().beat


def test_claims_that_a_round_no_longer_needs_are_not_renewed(url: str) -> None:
    kept = tblctl.open(url).schedule()
    plans = one_by_one(url).plans
    claims = [claim for group in range(3) if (claim := plans.claim(kept.id, group, None))]
    answers = iter([False, True])
    with inject(Faults()) as seen:
        plans.renew(kept.id, claims, lambda: next(answers))
    renewed = [claim_of(call.name) for call in seen.calls if call.operation == "write"]
    assert renewed == [(kept.id, 0, 0)]
