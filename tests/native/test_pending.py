"""Pending plans: kept with the table, executed once, in the end removed; whatever others do, and whoever dies."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faults import Call, Faults, Killed, fault_points, inject, interleavings, kill_points, run_interleaved
from tables import (
    Places,
    age,
    assert_sound,
    ids_of,
    named_objects,
    objects_of,
    open_impatient,
    places,
    shape_of,
)

import tblctl
from tblctl.errors import (
    AccessDeniedError,
    CommitOutcomeUnknownError,
    InvalidDataError,
    InvalidOptionError,
    StorageError,
)
from tblctl.maintain.pending import CLAIM_SECONDS, execute
from tblctl.maintain.pending import schedule as keep
from tblctl.selector.budget import Budget
from tblctl.tableformat.model.snapshot import iso_timestamp
from tblctl.tableformat.native.log.names import claim_of, claim_path, plan_of, plan_path
from tblctl.tableformat.storage import Storage

from .pending import DAY_SECONDS, IDS, PAIRS, Beats, build, built, one_by_one, pending_objects, put


@pytest.fixture(params=["memory", "local"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    yield from places(request.param, tmp_path)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    yield from built(tmp_path)


def levels(location: str) -> list[int]:
    return sorted(block.level for block in tblctl.open(location).files())


def assert_clean(location: str, ids: Sequence[int] = IDS) -> None:
    """Assert that the rows are there, and that gc leaves what is named, and nothing else."""
    table = tblctl.open(location)
    assert ids_of(table) == ids
    table.gc(keep=1, older_than=0)
    assert set(objects_of(location)) - {"metadata/latest"} == named_objects(table)
    assert_sound(table)


# -- one process


def test_groups_that_a_budget_leaves_are_free_for_others_at_once(url: str) -> None:
    table = tblctl.open(url)
    plan = table.plan()
    short = dataclasses.replace(plan.options, budget=Budget(max_seconds=1e-6))
    limited = dataclasses.replace(plan, options=short)
    kept = keep(table._plans(None), lambda _taken: limited, lifetime_seconds=60)
    outcome = table.recluster_pending(kept.id)
    assert (outcome.committed_groups, outcome.snapshot) == (0, None)
    assert "did not begin, to keep to the plan's budget: run it again" in outcome.note
    assert table.pending_plans()[0].claimed == 0


def test_a_scheduled_plan_is_listed_executed_and_gone(at: Places) -> None:
    location = at.fresh()
    table = build(location)
    kept = table.schedule(expires="2d")
    assert [plan_of(name) for name in pending_objects(location)] == [(kept.id, 2 * DAY_SECONDS)]
    (listed,) = tblctl.open(location).pending_plans()
    assert (listed.id, listed.expires, listed.policy, listed.problem) == (
        kept.id,
        kept.expires,
        "levels",
        None,
    )
    assert (listed.groups, listed.blocks, listed.rows, listed.claimed, listed.is_expired) == (
        3,
        6,
        24,
        0,
        False,
    )
    assert levels(location) == [0] * 6
    outcome = tblctl.open(location).recluster_pending(kept.id)
    assert (outcome.committed_groups, outcome.commits, outcome.note, outcome.policy) == (3, 1, "", "levels")
    assert [group.number for group in outcome.groups] == [0, 1, 2]
    assert (outcome.depth_before, outcome.depth_after) == (2.0, 1.0)
    assert (table.pending_plans(), pending_objects(location)) == ([], [])
    assert_clean(location)


def test_blocks_of_a_pending_plan_are_not_scheduled_again(url: str) -> None:
    table = tblctl.open(url)
    first = table.schedule(options={"max_groups": 1})
    second = table.schedule(options={"max_groups": 1})
    third = table.schedule()
    groups = [
        {path for group in kept.plan.groups for path in group.blocks} for kept in (first, second, third)
    ]
    assert len(set().union(*groups)) == sum(map(len, groups)) == 6
    left_out = {item.rule: item.blocks for item in third.plan.rejected}
    assert left_out == {"pending": 4}
    fourth = table.schedule()
    assert (fourth.id, fourth.expires, fourth.plan.groups) == (None, None, ())
    assert "pending plans" in fourth.plan.note
    assert len(pending_objects(url)) == 3


def test_without_an_id_the_oldest_plan_with_groups_to_take_is_executed(url: str) -> None:
    table = tblctl.open(url)
    kept = [table.schedule(options={"max_groups": 1}) for _ in PAIRS]
    age(url, 60, lambda name: kept[1].id in name)
    executed = []
    for _ in PAIRS:
        outcome = table.recluster_pending()
        assert outcome.committed_groups == 1
        executed.append(
            {item.id for item in kept} - {item.id for item in table.pending_plans()} - set().union(*executed)
        )
    assert executed[0] == {kept[1].id}
    nothing = table.recluster_pending()
    there_is_none = f"there is no pending plan of {url}"
    assert (nothing.rounds, nothing.snapshot, nothing.note) == (0, None, there_is_none)


def test_groups_whose_blocks_are_gone_drop_out_with_a_word(url: str) -> None:
    table = tblctl.open(url)
    table.schedule()
    table.delete("id = 1")
    outcome = table.recluster_pending()
    assert (outcome.committed_groups, outcome.conflicted_groups) == (2, 0)
    assert "1 of 3 groups dropped out: their blocks have left the table" in outcome.note
    assert pending_objects(url) == []


def test_a_plan_of_which_nothing_is_left_is_removed(url: str) -> None:
    table = tblctl.open(url)
    table.schedule()
    table.set_cluster_key("v")
    outcome = table.recluster_pending()
    assert (outcome.rounds, outcome.snapshot) == (0, None)
    assert "3 of 3 groups dropped out" in outcome.note
    assert pending_objects(url) == []


def test_an_expired_plan_is_refused_skipped_and_removed(at: Places) -> None:
    location = at.fresh()
    table = build(location)
    old = table.schedule(options={"max_groups": 1}, expires="1h")
    young = table.schedule(options={"max_groups": 1}, expires="1h")
    age(location, 3600, lambda name: old.id in name)
    assert [item.is_expired for item in table.pending_plans()] == [True, False]
    with pytest.raises(InvalidOptionError, match=f"pending plan {old.id} expired at"):
        table.recluster_pending(old.id)
    table.gc(older_than="2h")  # younger than the grace period
    assert len(pending_objects(location)) == 2
    table.gc(older_than="30m")
    assert [item.id for item in table.pending_plans()] == [young.id]
    age(location, 3600, lambda name: young.id in name)
    with pytest.raises(InvalidDataError, match=r"none of the pending plans of .* expired at"):
        table.recluster_pending()
    again = table.schedule()  # its blocks are free again, and it is removed on the way
    assert len(again.plan.groups) == 3
    assert [item.id for item in table.pending_plans()] == [again.id]


def test_gc_leaves_live_plans_and_their_claims_and_removes_claims_without_a_plan(at: Places) -> None:
    location = at.fresh()
    table = build(location)
    kept = table.schedule()
    storage = Storage(location)
    live, dead = claim_path(kept.id, 1, 0), claim_path("0" * 32, 1, 0)
    for name in (live, dead):
        storage.write(name, b"{}")
    age(location, 5 * DAY_SECONDS, lambda name: name.startswith("metadata/claims/"))
    table.gc(keep=1, older_than=0)
    assert pending_objects(location) == [live, plan_path(kept.id, 7 * DAY_SECONDS)]
    assert table.pending_plans()[0].claimed == 0  # the claim is too old
    assert table.gc(keep=1, older_than=0, dry_run=True).objects_deleted == ()


@pytest.mark.parametrize("expires", [0, "0.5s", 10.0**9, -1])
def test_a_lifetime_out_of_bounds_is_refused_and_nothing_kept(url: str, expires: Any) -> None:
    with pytest.raises(InvalidOptionError, match=r"expires is .*, expected a time from 1s to 31 years"):
        tblctl.open(url).schedule(expires=expires)
    assert pending_objects(url) == []


@pytest.mark.parametrize("plan_id", ["", "abc", "../" * 10 + "ab", "G" * 32, "0" * 33])
def test_an_id_that_is_none_is_refused(url: str, plan_id: str) -> None:
    for act in (tblctl.open(url).cancel_plan, tblctl.open(url).recluster_pending):
        message = f"is not the id of a pending plan .*; `tblctl plan {url} --list`"
        with pytest.raises(InvalidOptionError, match=message):
            act(plan_id)


def test_a_plan_that_can_be_executed_outweighs_those_that_cannot(url: str) -> None:
    """All its groups are claimed, so nothing is done; but that is no error."""
    table = tblctl.open(url)
    kept = table.schedule()
    claims = [one_by_one(url).plans.claim(kept.id, group, None) for group in range(3)]
    put(url, {"pending_version": 1, "plan": None})
    outcome = table.recluster_pending()
    assert (outcome.rounds, all(claims)) == (0, True)
    assert "3 of 3 groups left to other processes" in outcome.note
    assert "expected a JSON object" in outcome.note


def test_a_plan_that_is_not_there_is_refused(url: str) -> None:
    for act in (tblctl.open(url).cancel_plan, tblctl.open(url).recluster_pending):
        with pytest.raises(
            InvalidOptionError, match=f"{url} has no pending plan {'0' * 32}: .*`tblctl plan {url} --list`"
        ):
            act("0" * 32)


def test_a_native_table_keeps_its_plans_itself(url: str) -> None:
    with pytest.raises(InvalidOptionError, match="keeps pending plans with the table"):
        tblctl.open(url).schedule(plans_at="memory://elsewhere")


def test_a_pinned_handle_lists_and_changes_nothing(url: str) -> None:
    kept = tblctl.open(url).schedule()
    pinned = tblctl.open(url, as_of=3)
    assert [item.id for item in pinned.pending_plans()] == [kept.id]
    for act in (pinned.schedule, pinned.recluster_pending, lambda: pinned.cancel_plan(kept.id)):
        with pytest.raises(InvalidOptionError, match="pinned"):
            act()


# -- several processes


def claim_steps(call: Call) -> bool:
    return (call.operation, call.name.partition("/")[0]) == ("create", "metadata")


def test_in_any_order_two_executors_merge_each_group_once(at: Places, tmp_path: Path) -> None:
    template = at.fresh()
    build(template).schedule()
    for schedule in interleavings(a=4, b=4)[:: 7 if at.kind == "memory" else 30]:
        location = at.renew(template)
        acts = {name: partial(execute, one_by_one(location)) for name in "ab"}
        ends = run_interleaved(schedule, acts, steps=claim_steps)
        assert [end.error for end in ends.values()] == [None, None], schedule
        outcomes = [end.result for end in ends.values()]
        assert sum(outcome.committed_groups for outcome in outcomes) == 3, schedule
        assert sum(outcome.conflicted_groups for outcome in outcomes) == 0, schedule
        assert sorted(group.number for outcome in outcomes for group in outcome.groups) == [0, 1, 2], schedule
        assert levels(location) == [1] * 6
        assert pending_objects(location) == [], schedule
    assert_clean(location)


def test_a_group_merged_twice_does_no_harm(url: str) -> None:
    tblctl.open(url).schedule()
    slow, fast = one_by_one(url), one_by_one(url, claim_seconds=0.0)  # fast takes what slow has begun
    faults = Faults()
    faults.do(lambda: execute(fast), operation="write", name="metadata/records/")
    with inject(faults):
        outcome = execute(slow)
    assert faults.fired
    assert (outcome.committed_groups, outcome.conflicted_groups) == (0, 1)
    assert "left the table" in outcome.groups[0].error
    assert levels(url) == [1] * 6
    assert_clean(url)


def test_claims_of_a_dead_process_hold_for_half_an_hour(at: Places) -> None:
    location = at.fresh()
    build(location).schedule()
    faults = Faults()
    faults.kill(operation="write", name="^data/")
    with inject(faults), pytest.raises(Killed):
        execute(one_by_one(location))
    assert tblctl.open(location).pending_plans()[0].claimed == 1
    (claim,) = (name for name in pending_objects(location) if claim_of(name))
    (renewed,) = Storage(location).modified([claim])
    outcome = execute(one_by_one(location))
    assert outcome.committed_groups == 2
    until = iso_timestamp(int((renewed + CLAIM_SECONDS) * 1000))
    left = "1 of 3 groups left to other processes, which have claimed them. The claims of a process that died run out"
    for_so_long = f"{left} 30 minutes after it renewed them last: the first at {until}"
    assert for_so_long in outcome.note
    nothing = execute(one_by_one(location))
    assert (nothing.rounds, for_so_long in nothing.note) == (0, True)
    age(location, CLAIM_SECONDS, lambda name: claim_of(name) is not None)
    assert tblctl.open(location).pending_plans()[0].claimed == 0
    with inject(Faults()) as seen:
        outcome = execute(one_by_one(location))
    assert (outcome.committed_groups, levels(location)) == (1, [1] * 6)
    assert "2 of 3 groups dropped out" in outcome.note
    claims = [claim_of(call.name) for call in seen.calls if call.operation == "create"]
    assert [attempt for _, _, attempt in filter(None, claims)] == [1]
    assert pending_objects(location) == []
    assert_clean(location)


def test_a_process_that_lives_renews_its_claims_whether_or_not_its_engine_tells_of_progress(url: str) -> None:
    tblctl.open(url).schedule()
    job = one_by_one(url)
    beats = Beats(job)
    with inject(Faults()) as seen:
        assert execute(job).committed_groups == 3
    renewed = [claim_of(call.name) for call in seen.calls if call.operation == "write"]
    assert [claim[1] for claim in renewed if claim] == [0, 0, 1, 1, 2, 2]
    assert beats.seconds == [CLAIM_SECONDS / 3] * 3


def test_a_claim_that_nobody_can_renew_or_release_only_stays(url: str) -> None:
    tblctl.open(url).schedule()
    job = one_by_one(url)
    Beats(job)
    faults = Faults()
    faults.fail(operation="write", name="metadata/claims/", times=10**6)
    with inject(faults):
        assert execute(job).committed_groups == 3
    assert faults.fired


def test_claims_renewed_after_a_cancel_go_with_the_process_that_wrote_them(url: str) -> None:
    table = tblctl.open(url)
    kept = table.schedule()
    job = one_by_one(url)
    Beats(job)
    faults = Faults()
    faults.do(lambda: table.cancel_plan(kept.id), operation="write", name="metadata/records/")
    with inject(faults) as seen:
        assert execute(job).committed_groups == 1
    gone = next(
        place for place, call in enumerate(seen.calls) if plan_of(call.name) and call.operation == "delete"
    )
    assert any(claim_of(call.name) for call in seen.calls[gone:] if call.operation == "write")
    assert pending_objects(url) == []


def test_the_next_schedule_removes_claims_of_plans_that_are_gone_and_no_others(url: str) -> None:
    table, storage = tblctl.open(url), Storage(url)
    kept = table.schedule(options={"max_groups": 1})
    live, dead = claim_path(kept.id, 0, 0), claim_path("0" * 32, 1, 0)
    for name in (live, dead):
        storage.write(name, b"{}")
    second = table.schedule(options={"max_groups": 1})
    assert set(pending_objects(url)) == {
        live,
        *(plan_path(item.id, 7 * DAY_SECONDS) for item in (kept, second)),
    }


def test_a_schedule_that_may_not_delete_claims_leaves_them(url: str) -> None:
    Storage(url).write(claim_path("0" * 32, 1, 0), b"{}")
    faults = Faults()
    faults.fail(AccessDeniedError("denied"), operation="delete", name="metadata/claims/")
    with inject(faults):
        assert tblctl.open(url).schedule().id is not None
    assert len(pending_objects(url)) == 2


def test_a_plan_cancelled_while_it_is_executed_ends_after_the_groups_that_were_begun(url: str) -> None:
    table = tblctl.open(url)
    kept = table.schedule()
    faults = Faults()
    faults.do(lambda: table.cancel_plan(kept.id), operation="write", name="metadata/records/")
    with inject(faults):
        outcome = execute(one_by_one(url))
    assert (outcome.committed_groups, outcome.commits) == (1, 1)
    assert (
        f"pending plan {kept.id}: it was cancelled, or finished by another process; groups not begun: 2"
        in outcome.note
    )
    assert levels(url) == [0] * 4 + [1] * 2
    assert_clean(url)


def test_a_group_that_failed_stays_claimed_and_is_tried_again_later(url: str) -> None:
    tblctl.open(url).schedule()
    faults = Faults()
    faults.fail(StorageError("the storage is full"), operation="write", name="^data/")
    with inject(faults):
        outcome = execute(one_by_one(url))
    assert (outcome.committed_groups, outcome.failed_groups) == (2, 1)
    assert "try again in 30 minutes" in outcome.note
    assert execute(one_by_one(url)).rounds == 0
    age(url, CLAIM_SECONDS, lambda name: claim_of(name) is not None)
    assert execute(one_by_one(url)).committed_groups == 1
    assert pending_objects(url) == []


def test_a_claim_of_which_nobody_knows_whose_it_is_is_left_alone(url: str) -> None:
    tblctl.open(url).schedule()
    faults = Faults()
    faults.fail(
        CommitOutcomeUnknownError("no reply"), operation="create", name="metadata/claims/", at="after"
    )
    with inject(faults):
        outcome = execute(one_by_one(url))
    assert outcome.committed_groups == 2
    assert "1 of 3 groups left to other processes, which have claimed them" in outcome.note


def test_credentials_that_may_not_delete_execute_a_plan_which_stays(url: str) -> None:
    table = tblctl.open(url)
    table.schedule()
    faults = Faults()
    faults.fail(AccessDeniedError("denied"), operation="delete", times=10**6)
    with inject(faults):
        assert execute(one_by_one(url)).committed_groups == 3
    assert len(table.pending_plans()) == 1
    assert "3 of 3 groups dropped out" in table.recluster_pending().note
    assert pending_objects(url) == []


# -- faults at every call


def finish(location: str) -> None:
    """Do what is left to do: claims of dead processes expire, plans are executed, and gc finds the rest."""
    age(location, CLAIM_SECONDS, lambda name: claim_of(name) is not None)
    table = tblctl.open(location)
    for _ in range(5):
        if not table.pending_plans():
            break
        table.recluster_pending()
    assert table.pending_plans() == []
    assert_clean(location, IDS[:8])


ACTS = {
    "schedule": lambda location: open_impatient(location).schedule(),
    "execute": lambda location: execute(one_by_one(location)),
    "cancel": lambda location: [
        open_impatient(location).cancel_plan(item.id) for item in open_impatient(location).pending_plans()
    ],
}


@pytest.fixture
def template(act: str, tmp_path: Path) -> Iterator[tuple[Places, str]]:
    """Return a table of one group, which another process has begun long ago if it is to be taken from it."""
    for at in places("memory", tmp_path):
        location = at.fresh()
        table = build(location, PAIRS[:1])
        if act != "schedule":
            kept = table.schedule()
            Storage(location).write(claim_path(kept.id, 0, 0), b"{}")
            age(location, CLAIM_SECONDS, lambda name: claim_of(name) is not None)
        yield at, location


def judge(location: str, before: dict[str, bytes], seen: set[Any], where: str) -> None:
    """Judge what an interrupted act left behind, each shape once."""
    shape = shape_of(location, before)
    if shape not in seen:
        seen.add(shape)
        assert ids_of(tblctl.open(location)) == IDS[:8], where
        finish(location)


@pytest.mark.parametrize("act", ACTS)
def test_a_kill_at_any_storage_call_harms_nothing(act: str, template: tuple[Places, str]) -> None:
    at, source = template
    trial, before = at.copy(source), objects_of(source)
    seen: set[Any] = set()
    for point in kill_points(lambda: ACTS[act](trial)):
        location = at.renew(source)
        point.kill(lambda location=location: ACTS[act](location))
        judge(location, before, seen, str(point))
    assert len(seen) >= 3


@pytest.mark.parametrize("act", ACTS)
def test_an_error_at_any_storage_call_harms_nothing(act: str, template: tuple[Places, str]) -> None:
    at, source = template
    trial, before = at.copy(source), objects_of(source)
    seen: set[Any] = set()
    for point in fault_points(lambda: ACTS[act](trial)):
        location = at.renew(source)
        faults = Faults()
        unsure = point.call.operation == "create" and point.at == "after"
        error = CommitOutcomeUnknownError("injected: no reply") if unsure else None
        faults.fail(error, nth=point.number, at=point.at)
        with inject(faults), contextlib.suppress(StorageError):
            ACTS[act](location)
        assert faults.fired, str(point)
        judge(location, before, seen, str(point))
    assert len(seen) >= 3


def test_results_are_json(url: str) -> None:
    table = tblctl.open(url)
    kept = table.schedule()
    assert json.loads(json.dumps(kept.to_dict()))["plan"] == json.loads(json.dumps(kept.plan.to_json()))
    (listed,) = table.pending_plans()
    assert json.loads(json.dumps(listed.to_dict())) == dataclasses.asdict(listed)
