"""Pending plans: scheduled by one process, executed by one or by several at once, listed and cancelled.

A process executes a plan in rounds. For each it claims as many groups as keep its engine busy, and carries these out as
a plan of their own. Claims only spare work: if two processes merge one group all the same, the commit of the
second finds that its blocks have left the table, and drops it. A group is live as long as all its blocks are in the
newest version. A plan without live groups is finished, and whoever sees that first removes it.

No process tries a group twice. A group that failed stays claimed, so that others do not try it at once, either.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tblctl.maintain.newest import on_newest
from tblctl.maintain.recluster import recluster
from tblctl.maintain.request import Request
from tblctl.merger.engines.engine import Engine
from tblctl.merger.round.group_run import COMMITTED, LEFT
from tblctl.merger.round.round import require_own_plan
from tblctl.results import Outcome, PendingPlan, ScheduledPlan
from tblctl.selector.plan import Group, Plan
from tblctl.tableformat.errors import (
    InvalidDataError,
    InvalidOptionError,
    TblctlError,
    UnsupportedFormatError,
)
from tblctl.tableformat.model.cluster_key import AS_LISTED
from tblctl.tableformat.model.snapshot import iso_timestamp
from tblctl.tableformat.pending import Claim, PendingObject, PendingPlans, decode_pending
from tblctl.tableformat.port import TablePort, Version
from tblctl.tableformat.progress import Progress

LOG = logging.getLogger("tblctl")

CLAIM_SECONDS = 1800.0
"""A claim that was not renewed for so long is free: its process is dead, or hangs. A living one renews its claims three
times as often, whenever a merge task makes progress; a task of 1 GiB makes some every few seconds."""

CLAIM_BYTES = 2**30
"""Smaller groups are committed together: a commit takes requests, and merging so much some seconds."""

UNUSABLE = (InvalidDataError, InvalidOptionError, UnsupportedFormatError)
"""What reading a pending plan raises that is damaged, of another table, or of another version of tblctl."""

_SUMS = (
    *(
        "rounds",
        "commits",
        "committed_groups",
        "conflicted_groups",
        "failed_groups",
        "blocks_in",
        "blocks_out",
    ),
    *("rows", "bytes_read", "bytes_written", "entries_copied"),
)


def read_plan(plans: PendingPlans, pending: PendingObject) -> Plan | None:
    """Return a pending plan; None if it was removed meanwhile.

    Raises:
        InvalidDataError: it is damaged, was edited, or is of another version of tblctl.
        UnsupportedFormatError: it is of a newer tblctl.
    """
    data = plans.read(pending)
    if data is None:
        return None
    try:
        return Plan.from_json(decode_pending(data, pending.name))
    except InvalidDataError as error:
        msg = f"the pending plan {pending.id} cannot be executed: {error}; cancel it, and plan again"
        raise InvalidDataError(msg) from error


# -- schedule, list, cancel


def schedule(
    plans: PendingPlans, make: Callable[[Collection[str]], Plan], *, lifetime_seconds: float
) -> ScheduledPlan:
    """Make a plan without the blocks of other pending plans, and keep it. Expired plans are removed on the way.

    Args:
        plans: where it is kept.
        make: returns the plan, given paths of blocks that it may not select.
        lifetime_seconds: a whole number of seconds is kept.
    """
    now = plans.now_seconds()
    taken: set[str] = set()
    for pending in plans.listed():
        if pending.expires_seconds <= now:
            _remove(plans, pending)
            continue
        try:
            other = read_plan(plans, pending)
        except UNUSABLE as error:
            LOG.warning("%s", error)
            continue
        taken.update(itertools.chain.from_iterable(group.blocks for group in other.groups) if other else ())
    plan = make(taken)
    if not plan.groups:
        return ScheduledPlan(id=None, expires=None, plan=plan)
    kept = plans.add(plan.to_json(), lifetime_seconds=int(lifetime_seconds))
    return ScheduledPlan(id=kept.id, expires=_shown(kept.expires_seconds), plan=plan)


def list_plans(port: TablePort[Any], plans: PendingPlans) -> list[PendingPlan]:
    """Return the pending plans, oldest first. Writes nothing, so ages are by this machine's clock."""
    version = port.newest()
    found = (_figures(plans, pending, version, port.env.now()) for pending in plans.listed())
    return [item for item in found if item is not None]


def cancel(port: TablePort[Any], plans: PendingPlans, plan_id: str) -> PendingPlan:
    """Remove a pending plan and its claims, and return what it was.

    Raises:
        InvalidOptionError: there is no such plan.
    """
    pending = plans.find(plan_id)
    found = pending and _figures(plans, pending, port.newest(), port.env.now())
    if not found:
        raise _missing(plans, plan_id)
    plans.remove(plan_id)
    return found


def _missing(plans: PendingPlans, plan_id: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"{plans.location} has no pending plan {plan_id}: it was executed or cancelled, or gc removed it after it had "
        "expired; `tblctl plan LOC --list` shows those that are left"
    )


def _figures(
    plans: PendingPlans, pending: PendingObject, version: Version, now_seconds: float
) -> PendingPlan | None:
    """Return what is to be said of a pending plan; None if it was removed meanwhile."""
    plan, problem = None, None
    try:
        plan = read_plan(plans, pending)
        if plan is None:
            return None
        require_own_plan(plan, version)
    except UNUSABLE as error:
        problem = str(error)
    groups = plan.groups if plan else ()
    claims = plans.claims(pending.id).values()
    return PendingPlan(
        id=pending.id,
        created=_shown(pending.created_seconds),
        expires=_shown(pending.expires_seconds),
        is_expired=pending.expires_seconds <= now_seconds,
        policy=plan.policy if plan else None,
        snapshot=plan.snapshot if plan else None,
        groups=len(groups),
        blocks=sum(len(group.blocks) for group in groups),
        rows=sum(group.rows for group in groups),
        bytes=sum(group.size_bytes for group in groups),
        claimed=sum(now_seconds - claim.renewed_seconds < CLAIM_SECONDS for claim in claims),
        problem=problem,
    )


def _shown(seconds: float) -> str:
    return iso_timestamp(int(seconds * 1000))


def _remove(plans: PendingPlans, pending: PendingObject) -> None:
    """Remove a plan that is dead, if that works: credentials may not delete. gc removes it once it has expired."""
    try:
        plans.remove(pending.id)
    except TblctlError as error:
        LOG.warning("the pending plan %s stays until gc removes it: %s", pending.id, error)


# -- execute


@dataclass(frozen=True, kw_only=True)
class PendingJob:
    """How pending plans are executed.

    Attributes:
        port: the table.
        plans: its pending plans.
        request: how to merge.
        engine: returns what carries out a plan.
        claim_seconds: claims that were not renewed for so long are free.
        claim_bytes: a round claims groups until they have so many bytes in memory, and keep the engine busy.
    """

    port: TablePort[Any]
    plans: PendingPlans
    request: Request
    engine: Callable[[Plan], Engine]
    claim_seconds: float = CLAIM_SECONDS
    claim_bytes: int = CLAIM_BYTES


def execute(job: PendingJob, plan_id: str | None = None) -> Outcome:
    """Execute a pending plan; without an id, the oldest that has groups nobody took.

    Raises:
        InvalidOptionError: there is no plan of this id, or it has expired, or is of another table.
        InvalidDataError: it is damaged, was edited, or is of another version of tblctl.
        ConflictError: with `on_conflict="fail"`.

    Whatever is raised, what was committed before stays, and the groups that were begun are free again.
    """
    started = job.port.env.elapsed()
    notes: list[str] = []
    for pending in job.plans.listed() if plan_id is None else [_wanted(job, plan_id)]:
        try:
            run = _begun(job, pending)
        except UNUSABLE as error:
            if plan_id is not None:
                raise
            notes.append(str(error))
            continue
        if run is None:
            continue
        run.carry_out()
        notes += run.notes
        if run.outcomes:
            return _combined(run.outcomes, job.port.env.elapsed() - started, notes)
    return _nothing(job, job.port.env.elapsed() - started, notes or ["there is no pending plan"])


def _wanted(job: PendingJob, plan_id: str) -> PendingObject:
    pending = job.plans.find(plan_id)
    if pending is None:
        raise _missing(job.plans, plan_id)
    return pending


def _begun(job: PendingJob, pending: PendingObject) -> _Execution | None:
    """Return the execution of a plan; None if it was removed meanwhile.

    Raises:
        InvalidOptionError: it has expired, or is of another table.
        InvalidDataError, UnsupportedFormatError: as for `read_plan`.
    """
    if pending.expires_seconds <= job.plans.now_seconds():
        msg = f"the pending plan {pending.id} expired at {_shown(pending.expires_seconds)}: plan again"
        raise InvalidOptionError(msg)
    plan = read_plan(job.plans, pending)
    if plan is None:
        return None
    require_own_plan(plan, job.port.newest())
    return _Execution(job, pending, plan)


class _Execution:
    """Executes one pending plan. `outcomes` has one entry a round, `notes` what people should know besides."""

    def __init__(self, job: PendingJob, pending: PendingObject, plan: Plan) -> None:
        self._job, self._pending, self._plan = job, pending, plan
        self._tried: set[int] = set()
        self._committed: set[int] = set()
        self._left: set[int] = set()  # groups that did not begin, to keep to the budget
        self.outcomes: list[Outcome] = []
        self.notes: list[str] = []

    def carry_out(self) -> None:
        """Claim and merge groups until none is left to claim; remove the plan if it is finished."""
        live = self._live()
        if dropped := len(self._plan.groups) - len(live):
            self._note(
                f"{dropped} of {len(self._plan.groups)} groups dropped out: their blocks have left the table since the "
                "plan, or their sort has ended"
            )
        engine: Engine | None = None
        while self._job.plans.find(self._pending.id) is not None:
            free = self._free(live)
            if not free:
                self._end(live)
                return
            engine = engine or self._job.engine(self._part([group for group, _ in free]))
            self._merge(engine, self._claim(free, least=max(1, engine.parallelism)))
            live = self._live()
        left = _numbers(live) - self._tried
        self._note(f"it was cancelled, or finished by another process; groups not begun: {len(left)}")

    def _note(self, text: str) -> None:
        self.notes.append(f"pending plan {self._pending.id}: {text}")

    def _live(self) -> list[Group]:
        """Return the groups that can still be merged: their blocks and sorts are in the newest version."""
        groups = [group for group in self._plan.groups if group.number not in self._committed]
        return on_newest(self._job.port, partial(_live_groups, self._plan, groups))

    def _free(self, live: Sequence[Group]) -> list[tuple[Group, Claim | None]]:
        """Return the groups that this process did not try, and no other one holds, with their expired claims."""
        waiting = [group for group in live if group.number not in self._tried]
        if not waiting:
            return []
        claims = self._job.plans.claims(self._pending.id)
        if not claims:
            return [(group, None) for group in waiting]
        now = self._job.plans.now_seconds()
        last = ((group, claims.get(group.number)) for group in waiting)
        return [
            (group, claim)
            for group, claim in last
            if claim is None or now - claim.renewed_seconds >= self._job.claim_seconds
        ]

    def _claim(self, free: Iterable[tuple[Group, Claim | None]], *, least: int) -> list[tuple[Group, Claim]]:
        """Claim groups for a round, at least `least` if others leave so many."""
        found: list[tuple[Group, Claim]] = []
        size_bytes = 0
        for group, last in free:
            self._tried.add(group.number)
            claim = self._job.plans.claim(self._pending.id, group.number, last)
            if claim is not None:
                found.append((group, claim))
                size_bytes += group.decoded_bytes
                if len(found) >= least and size_bytes >= self._job.claim_bytes:
                    break
        return found

    def _merge(self, engine: Engine, claimed: Sequence[tuple[Group, Claim]]) -> None:
        """Merge and commit some groups as a round of their own."""
        if not claimed:
            return
        job, groups = self._job, [group for group, _ in claimed]
        claims = [claim for _, claim in claimed]
        renewing = _Renewing(job, self._pending.id, claims)
        try:
            outcome = recluster(
                job.port,
                replace(job.request, progress=renewing.report),
                lambda _plan: engine,
                plan=self._part(groups),
            )
        except BaseException as error:
            error.add_note(f"this was the pending plan {self._pending.id}; its groups are free again")
            job.plans.release(self._pending.id, claims)
            raise
        numbered = [
            replace(item, number=groups[item.number].number, round=len(self.outcomes) + 1)
            for item in outcome.groups
        ]
        self._committed |= {item.number for item in numbered if item.status == COMMITTED}
        left = {item.number for item in numbered if item.status == LEFT}
        if left:  # the budget of this run is used up: others may have them at once
            job.plans.release(self._pending.id, [claim for group, claim in claimed if group.number in left])
        self._left |= left
        self.outcomes.append(replace(outcome, groups=tuple(numbered)))

    def _part(self, groups: Sequence[Group]) -> Plan:
        """Return the plan with some of its groups only."""
        used = {group.sort_id for group in groups}
        return replace(
            self._plan,
            groups=tuple(replace(group, number=place) for place, group in enumerate(groups)),
            sorts=tuple(sort for sort in self._plan.sorts if sort.id in used),
        )

    def _end(self, live: Sequence[Group]) -> None:
        """Remove the plan if it is finished, or say what is left of it."""
        if not live:
            _remove(self._job.plans, self._pending)
            return
        tried = {item.number for outcome in self.outcomes for item in outcome.groups} & _numbers(live)
        left = len(tried & self._left)
        failed = len(tried) - left
        of = f"of {len(self._plan.groups)} groups"
        if left:
            self._note(f"{left} {of} did not begin, to keep to the plan's budget: run it again")
        if others := len(live) - len(tried):
            self._note(f"{others} {of} left to other processes, which have claimed them")
        if failed:
            minutes = self._job.claim_seconds / 60
            until = _shown(self._pending.expires_seconds)
            self._note(
                f"{failed} {of} not committed; it stays until {until}: try again in {minutes:.0f} minutes"
            )


def _numbers(groups: Iterable[Group]) -> set[int]:
    return {group.number for group in groups}


def _live_groups(plan: Plan, groups: Sequence[Group], version: Version) -> list[Group]:
    """Return which groups of a plan can still be merged: a version has their blocks, and their sort may be live."""
    paths = list(itertools.chain.from_iterable(group.blocks for group in groups))
    there = version.blocks(paths).keys()
    live = version.sorts
    sorts = set(live) | {sort.id for sort in plan.sorts if version.may_add(sort)}
    sorts |= set() if version.sort else {AS_LISTED.id}
    sorts -= {sort.id for sort in plan.sorts if live.get(sort.id, sort) != sort}
    return [group for group in groups if group.sort_id in sorts and there >= set(group.blocks)]


class _Renewing:
    """Passes progress on, and renews claims when a third of their time has passed."""

    def __init__(self, job: PendingJob, plan_id: str, claims: Sequence[Claim]) -> None:
        self._job, self._plan_id, self._claims = job, plan_id, claims
        self._progress: Progress | None = job.request.progress
        self._wait()

    def report(self, done: int, total: int | None, unit: str) -> None:
        """Take note of progress of the round; see `Progress`."""
        if self._job.port.env.elapsed() >= self._next_seconds:
            self._wait()
            self._job.plans.renew(self._plan_id, self._claims)
        if self._progress:
            self._progress(done, total, unit)

    def _wait(self) -> None:
        self._next_seconds = self._job.port.env.elapsed() + self._job.claim_seconds / 3


def _combined(outcomes: Sequence[Outcome], seconds: float, notes: Sequence[str]) -> Outcome:
    """Return the outcomes of a plan's rounds as one."""
    first, last = outcomes[0], outcomes[-1]
    sums: dict[str, Any] = {name: sum(getattr(item, name) for item in outcomes) for name in _SUMS}
    committed = [item.snapshot for item in outcomes if item.snapshot is not None]
    every_note = dict.fromkeys([*notes, *(item.note for item in outcomes if item.note)])
    return replace(
        last,
        **sums,
        depth_before=first.depth_before,
        overlaps_before=first.overlaps_before,
        seconds=seconds,
        snapshot=committed[-1] if committed else None,
        note="; ".join(every_note),
        groups=tuple(group for item in outcomes for group in item.groups),
    )


def _nothing(job: PendingJob, seconds: float, notes: Sequence[str]) -> Outcome:
    """Return the outcome of an execution that found no group to merge."""
    none: dict[str, Any] = dict.fromkeys(_SUMS, 0)
    return Outcome(
        **none,
        depth_before=None,
        depth_after=None,
        overlaps_before=None,
        overlaps_after=None,
        seconds=seconds,
        snapshot=None,
        policy=job.request.policy.name,
        engine=None,
        note="; ".join(notes),
        groups=(),
    )
