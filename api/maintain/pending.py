"""Pending plans: scheduled by one process, executed by one or by several at once, listed and cancelled.

A process executes a plan in rounds. For each it claims as many groups as keep its engine busy, and carries these out as
a plan of their own. Claims only spare work: if two processes merge one group all the same, the commit of the
second finds that its blocks have left the table, and drops it. A group is live as long as all its blocks are in the
newest version. A plan without live groups is finished, and whoever sees that first removes it.

No process tries a group twice. A group that failed stays claimed, so that others do not try it at once, either.
"""

from __future__ import annotations

import datetime
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tblctl.maintain.averages import RollingAverages
from tblctl.maintain.newest import on_newest
from tblctl.maintain.recluster import LoopState, ReclusterJob, Totals, outcome_of, step
from tblctl.maintain.request import Request
from tblctl.maintain.spending import left_of
from tblctl.merger.engines.engine import Engine
from tblctl.merger.round.budget_clock import BudgetClock
from tblctl.merger.round.group_run import COMMITTED, LEFT, GroupRun, State
from tblctl.merger.round.planned_blocks import planned_sorts, require_figures, require_given
from tblctl.merger.round.round import require_own_plan
from tblctl.recorded import seconds_of
from tblctl.results import Outcome, PendingPlan, ScheduledPlan
from tblctl.selector.plan import Group, Plan, PlanOptions
from tblctl.tableformat.errors import (
    InvalidDataError,
    InvalidOptionError,
    TblctlError,
    UnsupportedFormatError,
)
from tblctl.tableformat.model.snapshot import iso_timestamp
from tblctl.tableformat.pending import LONGEST_SECONDS, Claim, PendingObject, PendingPlans, decode_pending
from tblctl.tableformat.port import TablePort, Version

LOG = logging.getLogger("tblctl")

CLAIM_SECONDS = 1800.0
"""A claim that was not renewed for so long is free: its process is dead. A living one renews its claims three times as
often, whatever its engine is doing: a Spark job tells nothing before its end."""

_LEAST_BEAT_SECONDS = 1.0

CLAIM_BYTES = 2**30
"""Smaller groups are committed together: a commit takes requests, and merging so much some seconds."""

UNUSABLE = (InvalidDataError, InvalidOptionError, UnsupportedFormatError)
"""What reading a pending plan raises that is damaged, of another table, or of another version of tblctl."""


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
        raise _unusable(pending, error) from error


def _unusable(pending: PendingObject, error: InvalidDataError) -> InvalidDataError:
    msg = f"the pending plan {pending.id} cannot be executed: {error}; cancel it, and plan again"
    return InvalidDataError(msg, **error.details)


# -- schedule, list, cancel


def lifetime_of(expires: float | str | datetime.timedelta) -> float:
    """Return for how many seconds a plan is kept.

    Raises:
        InvalidOptionError: less than a second, or more than 31 years.
    """
    found = seconds_of(expires, "expires")
    if not 1 <= found <= LONGEST_SECONDS:
        msg = f"expires is {expires!r}, expected a time from 1s to 31 years, such as 2h or 7d"
        raise InvalidOptionError(msg)
    return found


def schedule(
    plans: PendingPlans, make: Callable[[Collection[str]], Plan], *, lifetime_seconds: float
) -> ScheduledPlan:
    """Make a plan without the blocks of other pending plans, and keep it.

    Expired plans are removed on the way, and claims of plans that are gone.

    Args:
        plans: where it is kept.
        make: returns the plan, given paths of blocks that it may not select.
        lifetime_seconds: a whole number of seconds is kept.
    """
    now = plans.now_seconds()
    taken: set[str] = set()
    for pending in plans.sweep():
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


def remove_dead(
    port: TablePort[Any], plans: PendingPlans, waiting: Sequence[PendingObject]
) -> list[PendingObject]:
    """Remove those of some pending plans of which no group can be merged any more, and return the others.

    Reads all of them. One that cannot be read, or is of another table, is among the others.
    """
    read: list[tuple[PendingObject, Plan]] = []
    dead: set[str] = set()
    for pending in waiting:
        try:
            plan = read_plan(plans, pending)
        except UNUSABLE as error:
            LOG.warning("%s", error)
            continue
        if plan is None:
            dead.add(pending.id)
        else:
            read.append((pending, plan))
    for pending in on_newest(port, partial(_without_live_group, read)):
        _remove(plans, pending)
        dead.add(pending.id)
    return [pending for pending in waiting if pending.id not in dead]


def _without_live_group(plans: Sequence[tuple[PendingObject, Plan]], version: Version) -> list[PendingObject]:
    own = [(pending, plan) for pending, plan in plans if plan.table_id == version.table_id]
    groups = [group for _, plan in own for group in plan.groups]
    there = version.blocks([path for group in groups for path in group.blocks]).keys()
    dead = []
    for pending, plan in own:
        sorts = planned_sorts(version, plan.sorts)
        if not any(group.sort_id in sorts and there >= set(group.blocks) for group in plan.groups):
            dead.append(pending)
    return dead


def list_plans(port: TablePort[Any], plans: PendingPlans) -> list[PendingPlan]:
    """Return the pending plans, oldest first. Writes nothing, so ages are by this machine's clock."""
    version = port.newest()
    found = (_figures(plans, pending, version, port.env.now()) for pending in plans.listed())
    return [item for item in found if item is not None]


def cancel(port: TablePort[Any], plans: PendingPlans, plan_id: str) -> PendingPlan:
    """Remove a pending plan and its claims, and return what it was.

    Raises:
        InvalidOptionError: there is no such plan, or it is of another table.
    """
    pending = plans.find(plan_id)
    version = port.newest()
    found = pending and _figures(plans, pending, version, port.env.now())
    if not pending or not found:
        raise _missing(plans, plan_id)
    if found.policy is not None:  # it can be read
        _require_own(plans, pending, version)
    plans.remove(plan_id)
    return found


def _require_own(plans: PendingPlans, pending: PendingObject, version: Version) -> Plan | None:
    """Return a pending plan of this table; None if it was removed meanwhile.

    Raises:
        InvalidOptionError: it is of another table.
        InvalidDataError, UnsupportedFormatError: as for `read_plan`.
    """
    plan = read_plan(plans, pending)
    if plan is not None:
        try:
            require_own_plan(plan, version)
        except InvalidOptionError as error:
            msg = f"the pending plan {pending.id} is not of {version.location}: {error}"
            raise InvalidOptionError(msg, **error.details) from error
    return plan


def _missing(plans: PendingPlans, plan_id: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"{plans.table} has no pending plan {plan_id}: it was executed or cancelled, or gc removed it after it had "
        f"expired; `tblctl plan {plans.words} --list` shows those that are left"
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
        _require_own(plans, pending, version)
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
        InvalidDataError: it is damaged, was edited, or is of another version of tblctl. Without an id: there are
            pending plans, and none of them can be executed for such a reason.
        ConflictError: with `on_conflict="fail"`.

    Whatever is raised, what was committed before stays, and the groups that were begun are free again.
    """
    started = job.port.env.elapsed()
    notes: list[str] = []
    unusable, usable = 0, 0
    for pending in job.plans.listed() if plan_id is None else [_wanted(job, plan_id)]:
        try:
            run = _begun(job, pending)
        except UNUSABLE as error:
            if plan_id is not None:
                raise
            notes.append(str(error))
            unusable += 1
            continue
        if run is None:
            continue
        usable += 1
        run.carry_out()
        notes += run.notes
        if run.state.groups:
            return replace(run.outcome(), note="; ".join(notes))
    if unusable and not usable:
        raise _none_of(job.plans, notes)
    return _nothing(job, job.port.env.elapsed() - started, notes or [_no_plan(job.plans)])


def _none_of(plans: PendingPlans, problems: Sequence[str]) -> InvalidDataError:
    return InvalidDataError(
        f"none of the pending plans of {plans.table} can be executed: {'; '.join(problems)}. `tblctl plan "
        f"{plans.words} --list` shows them, --cancel ID removes one"
    )


def _no_plan(plans: PendingPlans) -> str:
    at = "" if plans.location == plans.table else f" at {plans.location}"
    return f"there is no pending plan of {plans.table}{at}"


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
    version = job.port.newest()
    plan = _require_own(job.plans, pending, version)
    if plan is None:
        return None
    try:
        require_given(job.port, version, plan)
        return _Execution(job, pending, plan)
    except InvalidDataError as error:
        raise _unusable(pending, error) from error


class _Execution:
    """Executes one pending plan, in rounds of one loop: what they did is in `state`, `notes` has what else to say.

    Raises:
        InvalidDataError: at construction: the plan says other things of its groups than the table does.
    """

    def __init__(self, job: PendingJob, pending: PendingObject, plan: Plan) -> None:
        self._job, self._pending, self._plan = job, pending, plan
        self._first: Version | None = None
        self._waiting = plan.groups  # those that nobody committed, as far as is known
        self._tried: set[int] = set()
        self._left: set[int] = set()  # groups that did not begin, to keep to the budget
        self.state = LoopState(
            averages=RollingAverages(several=len(plan.groups) > 1), began=job.port.env.elapsed()
        )
        self.notes: list[str] = []
        self._at_first = self._live()

    def carry_out(self) -> None:
        """Claim and merge groups until none is left to claim; remove the plan if it is finished."""
        live = self._at_first
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
        # The plan is gone, and took its claims along, but not those that were written or renewed since.
        _remove(self._job.plans, self._pending)
        left = _numbers(live) - self._tried
        self._note(f"it was cancelled, or finished by another process; groups not begun: {len(left)}")

    def outcome(self) -> Outcome:
        """Return what all rounds did. Figures of the table are unknown if there was none."""
        seconds = self._job.port.env.elapsed() - (self.state.began or 0.0)
        found = outcome_of(self._loop(self._plan), self.state, seconds)
        whole = found.committed_groups == len(self._plan.groups)
        depth = self._plan.predicted.average_depth_after if whole else None
        unknown: dict[str, Any] = {} if found.rounds else dict.fromkeys(_AVERAGES)
        return replace(found, predicted_depth_after=depth, **unknown)

    def _loop(self, plan: Plan, engine: Engine | None = None) -> ReclusterJob:
        """Return the job of a round."""
        found = self._job.engine if engine is None else lambda _plan: engine
        return ReclusterJob(port=self._job.port, request=self._job.request, engine=found, plan=plan)

    def _note(self, text: str) -> None:
        self.notes.append(f"pending plan {self._pending.id}: {text}")

    def _live(self) -> list[Group]:
        """Return the groups that can still be merged: their blocks and sorts are in the newest version.

        Only the first look reads where all blocks are. Later ones read what is new since.
        """
        done = {item.number for item in self.state.groups if item.status == COMMITTED}
        self._waiting = tuple(group for group in self._waiting if group.number not in done)
        return on_newest(self._job.port, self._live_in)

    def _live_in(self, version: Version) -> list[Group]:
        sorts = planned_sorts(version, self._plan.sorts)
        waiting = [group for group in self._waiting if group.sort_id in sorts]
        paths = list(itertools.chain.from_iterable(group.blocks for group in waiting))
        if self._first is None:
            found = version.blocks(paths)
            there = set(found)
            self._waiting = tuple(group for group in self._waiting if there >= set(group.blocks))
            for group in self._waiting:
                require_figures(group, [found[path] for path in group.blocks])
            self._first = version
        elif self._first.id == version.id:
            there = set(paths)
        else:
            there = set(paths) - self._job.port.gone(self._first, version, paths)
        return [group for group in waiting if there >= set(group.blocks)]

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
        """Claim groups for a round that the budget holds: at least `least`, if others leave so many."""
        found: list[tuple[Group, Claim]] = []
        size_bytes = 0
        clock = BudgetClock(self._options(), self._job.port.env.elapsed)
        for group, last in free:
            self._tried.add(group.number)
            if refusal := clock.refusal(group):
                self._leave(group, refusal)
                continue
            claim = self._job.plans.claim(self._pending.id, group.number, last)
            if claim is not None:
                found.append((group, claim))
                size_bytes += group.decoded_bytes
                if len(found) >= least and size_bytes >= self._job.claim_bytes:
                    break
        return found

    def _leave(self, group: Group, refusal: str) -> None:
        run = GroupRun(group, round_number=self.state.totals.rounds + 1)
        run.move(State.LEFT, refusal)
        self._left.add(group.number)
        totals = replace(self.state.totals, left_groups=self.state.totals.left_groups + 1)
        self.state = replace(self.state, totals=totals, groups=(*self.state.groups, run.outcome()))

    def _merge(self, engine: Engine, claimed: Sequence[tuple[Group, Claim]]) -> None:
        """Merge and commit some groups as a round of their own."""
        if not claimed:
            return
        plans, plan_id = self._job.plans, self._pending.id
        groups, claims = [group for group, _ in claimed], [claim for _, claim in claimed]
        before = self.state
        try:
            with self._job.port.env.beat(
                max(self._job.claim_seconds / 3, _LEAST_BEAT_SECONDS), partial(plans.renew, plan_id, claims)
            ):
                taken = step(self._loop(self._part(groups), engine), before)
        except BaseException as error:
            error.add_note(f"this was the pending plan {plan_id}; its groups are free again")
            plans.release(plan_id, claims)
            raise
        ended = [
            replace(item, number=groups[item.number].number)
            for item in taken.state.groups[len(before.groups) :]
        ]
        left = {item.number for item in ended if item.status == LEFT}
        if left:  # the budget of this run is used up: others may have them at once
            plans.release(plan_id, [claim for group, claim in claimed if group.number in left])
        self._left |= left
        self.state = replace(
            taken.state, groups=(*before.groups, *ended), note=""
        )  # `_end` says what is left

    def _options(self) -> PlanOptions:
        """Return the plan's options with what its budget still gives this execution."""
        seconds = self._job.port.env.elapsed() - (self.state.began or 0.0)
        budget = left_of(self._plan.options.budget, self.state.spent, seconds)
        return replace(self._plan.options, budget=budget)

    def _part(self, groups: Sequence[Group]) -> Plan:
        """Return the plan with some of its groups only, for the rest of its budget."""
        used = {group.sort_id for group in groups}
        predicted = self._plan.predicted
        if len(groups) < len(self._plan.groups):
            predicted = replace(predicted, average_depth_after=None)  # it is of all groups
        return replace(
            self._plan,
            groups=tuple(replace(group, number=place) for place, group in enumerate(groups)),
            sorts=tuple(sort for sort in self._plan.sorts if sort.id in used),
            options=self._options(),
            predicted=predicted,
        )

    def _end(self, live: Sequence[Group]) -> None:
        """Remove the plan if it is finished, or say what is left of it."""
        if not live:
            _remove(self._job.plans, self._pending)
            return
        tried = {item.number for item in self.state.groups} & _numbers(live)
        left = len(tried & self._left)
        failed = len(tried) - left
        of = f"of {len(self._plan.groups)} groups"
        if left:
            self._note(f"{left} {of} did not begin, to keep to the plan's budget: run it again")
        minutes = f"{self._job.claim_seconds / 60:.0f} minutes"
        if others := _numbers(live) - tried:
            self._note(
                f"{len(others)} {of} left to other processes, which have claimed them. The claims of a process that "
                f"died run out {minutes} after it renewed them last{self._first_end(others)}"
            )
        if failed:
            until = _shown(self._pending.expires_seconds)
            self._note(f"{failed} {of} not committed; it stays until {until}: try again in {minutes}")

    def _first_end(self, others: Collection[int]) -> str:
        """Return when the first claim of some groups runs out if nobody renews it, a clause; "" if they have none."""
        claims = self._job.plans.claims(self._pending.id)
        renewed = [claim.renewed_seconds for number, claim in claims.items() if number in others]
        return f": the first at {_shown(min(renewed) + self._job.claim_seconds)}" if renewed else ""


def _numbers(groups: Iterable[Group]) -> set[int]:
    return {group.number for group in groups}


def _nothing(job: PendingJob, seconds: float, notes: Sequence[str]) -> Outcome:
    """Return the outcome of an execution that found no group to merge."""
    none: dict[str, Any] = {**vars(Totals()), **dict.fromkeys(_AVERAGES)}
    return Outcome(
        **none,
        seconds=seconds,
        snapshot=None,
        policy=job.request.policy.name,
        engine=None,
        note="; ".join(notes),
        groups=(),
    )


_AVERAGES = ("depth_before", "depth_after", "overlaps_before", "overlaps_after")
