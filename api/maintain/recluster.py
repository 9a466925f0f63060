"""The recluster loop: plan, merge and commit, one step at a time.

A step never sleeps: it returns what to wait for, so that a service can own time. `recluster` steps until there is
nothing to do.

The loop ends. Every committed group lowers a whole number that cannot fall below 0 (`selector/draft.py`). Only rounds
that commit nothing could go on for ever, and `Waits.most_fruitless` bounds these.

Blocks of groups that failed are left alone by the rounds that follow: one damaged block does not keep the rest of the
table from being merged. A single round that committed nothing for that reason is followed by another one. An endless
job tries them again each time that it was idle.

What a policy remembers (`LoopState.policy`) moves on with a round that committed something, and with a plan that had
nothing to merge. If a round committed nothing, the policy decides again from what it remembered before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tblctl.maintain.credit import within_savings
from tblctl.maintain.experience import rates_at_hand, rates_of
from tblctl.maintain.loop import Committed, Done, Idle, LoopState, ReclusterJob, Retry, Step, Totals
from tblctl.maintain.newest import GONE
from tblctl.maintain.pacing import blocks_left, next_most_groups, paced
from tblctl.maintain.request import (
    Request,
    planned,
    selectable,
    table_view,
    warn_of_other_order,
    workload_of_request,
)
from tblctl.maintain.spending import left_of, used_up
from tblctl.maintain.view import Averages, View, require_listed
from tblctl.maintain.waits import Waits, wait_seconds
from tblctl.merger.engines.engine import Engine
from tblctl.merger.round.group_run import CONFLICTED, FAILED, LEFT, GroupOutcome
from tblctl.merger.round.planned_blocks import require_given
from tblctl.merger.round.round import RoundOutcome, merge_round, require_own_plan
from tblctl.metrics.partitions import TABLE
from tblctl.results import Outcome
from tblctl.selector.again import estimated_again
from tblctl.selector.box_test import Unfinished
from tblctl.selector.plan import Plan
from tblctl.selector.policy import State
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.port import TablePort, Version
from tblctl.workload.log import wants_workload

__all__ = [
    "Committed",
    "Done",
    "Idle",
    "LoopState",
    "ReclusterJob",
    "Retry",
    "Step",
    "Totals",
    "Waits",
    "outcome_of",
    "recluster",
    "state_of",
    "step",
]

LOG = logging.getLogger("tblctl")


def step(job: ReclusterJob, state: LoopState) -> Step:
    """Plan and carry out one round on the newest version; never sleeps.

    Raises:
        InvalidOptionError: the job's plan is of another table; the policy's decision breaks the rules.
        ConflictError: in a round with `on_conflict="fail"`.

    Whatever is raised, what was committed before stays; the error has a note that says so, and `state_of(error)` is
    the state to step from next.
    """
    if state.began is None:
        state = replace(state, began=job.port.env.elapsed())
    watch = _Watch(state)
    try:
        return _step(job, state, watch)
    except BaseException as error:
        error.__dict__[_STATE] = _Left(watch.state())
        if watch.snapshot is not None:
            error.add_note(f"groups reclustered up to snapshot {watch.snapshot} are committed and stay")
        raise


def state_of(error: BaseException) -> LoopState | None:
    """Return the state after the step that raised `error`, with what it had committed by then.

    None if no step raised it, or it comes from another process.
    """
    left = error.__dict__.get(_STATE)
    return left.state if isinstance(left, _Left) else None


_STATE = "tblctl_loop_state"


class _Left:
    """A state that an error carries; empty once pickled, since it is of use in this process only."""

    def __init__(self, state: LoopState | None = None) -> None:
        self.state = state

    def __reduce__(self) -> tuple[type[_Left], tuple[()]]:
        return _Left, ()


def _step(job: ReclusterJob, state: LoopState, watch: _Watch) -> Step:
    version = job.port.newest()
    if job.plan:
        require_own_plan(job.plan, version)
        require_given(job.port, version, job.plan)
    job = replace(job, request=job.request.on(version))
    if job.endless and state.nothing:  # it was idle
        has_workload = job.workload is not None or wants_workload(job.request.policy)
        if version.id == state.version and not (state.failed or has_workload):
            return _idle(job, state, version.id)
        state = replace(state, failed=frozenset())
    known = state.averages.known(version.id) if job.plan else None
    view: View | None = None
    if known is None:
        try:
            version, view = selectable(version, job.request, executes=job.plan is not None)
        except GONE:  # maybe gc removed the version while it was read
            if job.port.newest().id == version.id:
                raise
            return _step(job, state, watch)
        known = state.averages.begin(version.id, view)
    state = replace(
        state,
        version=version.id,
        before=state.before or known,
        after=known,
        nothing=None,
        policy_name="" if job.plan else job.request.policy.name,
    )
    plan, policy_state = _planned(job, state, version, view)
    watch.begin(state, policy_state)
    if not plan.groups:
        return _without_groups(job, replace(state, policy=policy_state), plan)
    engine = job.engine(plan)
    outcome = merge_round(
        job.port,
        version,
        plan,
        engine,
        on_conflict=job.request.on_conflict,
        commit_every=job.request.commit_every,
        plans_again=job.plan is None and job.request.may_plan_again,
        progress=job.request.progress,
        observer=watch,
        number=state.totals.rounds + 1,
    )
    state = replace(
        state,
        after=watch.after,
        snapshot=watch.snapshot,
        engine=engine.name,
        predicted_depth=plan.predicted.average_depth_after,
    )
    if outcome.version:
        state = replace(state, policy=policy_state)
    return _after_round(job, state, plan, outcome)


def _planned(job: ReclusterJob, state: LoopState, version: Version, view: View | None) -> tuple[Plan, State]:
    """Return the plan of the round, and what the policy remembers once that is carried out."""
    if job.plan is not None or view is None:  # a view is missing only where a plan was given
        assert job.plan is not None
        return _given(job, job.plan, version, view), state.policy
    paced_request = paced(job.request, state.most_groups, state.most_blocks)
    workload = workload_of_request(paced_request, job.port, version, lately=job.workload)
    request = within_savings(_within_budget(job, state, paced_request), job.port, version, workload)
    # What such a policy chooses depends on the rates: a plan of it and a run have to know the same ones.
    find = rates_of if wants_workload(request.policy) else rates_at_hand
    found = planned(
        version,
        view,
        request,
        state.failed,
        workload=workload,
        state=state.policy,
        rates=job.rates or find(job.port, version, job.expected_engine),
        env=job.port.env,
        with_advice=not job.endless,
    )
    if not state.totals.rounds:
        warn_of_other_order(version, request, found.plan)
    is_rest = state.totals.rounds and request.options.budget != job.request.options.budget
    return used_up(found.plan, job.request.options.budget) if is_rest else found.plan, found.state


def _given(job: ReclusterJob, plan: Plan, version: Version, view: View | None) -> Plan:
    """Return a plan that was made before, with the figures of today if they are asked for.

    Raises:
        InvalidDataError: it says other things of its groups than the table does.
    """
    if view is None:  # a later round of one plan, whose first one read the table
        return plan
    require_listed(plan, view)
    if not job.estimates_again:
        return plan
    rates = job.rates or rates_of(job.port, version, job.expected_engine)  # as for the plan
    return estimated_again(plan, table_view(version, view), rates)


def _within_budget(job: ReclusterJob, state: LoopState, request: Request) -> Request:
    """Return the request for what the budget of the whole run still gives. An endless job has one for each round.

    The first round has all of it, so that what does not fit is compared with the limits that were asked for.
    """
    if job.endless or not state.totals.rounds:
        return request
    budget = left_of(request.options.budget, state.spent, job.port.env.elapsed() - (state.began or 0.0))
    return replace(request, options=replace(request.options, budget=budget))


def _most_groups(job: ReclusterJob, state: LoopState, outcome: RoundOutcome) -> int | None:
    """Return how many groups the next round may have. One that goes on for groups that were put back has no others."""
    if outcome.put_back and not (job.request.final or job.endless):
        return outcome.put_back
    if not job.request.commit_every.adapts:
        return None
    return next_most_groups(state.most_groups, outcome.groups, put_back=outcome.put_back)


def _most_blocks(job: ReclusterJob, state: LoopState, outcome: RoundOutcome) -> int | None:
    """Return how many blocks the next round may have. One that goes on for groups that were put back has the rest."""
    most = state.most_blocks or job.request.options.budget.max_blocks
    goes_on = outcome.put_back and not (job.request.final or job.endless)
    return state.most_blocks if most is None or not goes_on else blocks_left(most, outcome.groups)


def _without_groups(job: ReclusterJob, state: LoopState, plan: Plan) -> Step:
    if isinstance(state.policy, Unfinished):  # the next plan looks at the rest
        return Retry(state=replace(state, fruitless=0), after_seconds=0.0)
    state = replace(state, nothing=plan, fruitless=0)
    return _idle(job, state, state.version or "") if job.endless else Done(state=state)


def _idle(job: ReclusterJob, state: LoopState, version: str) -> Idle:
    env, waits = job.port.env, job.waits
    wait = wait_seconds(env, state.idle, waits.first_idle_seconds, waits.longest_idle_seconds)
    return Idle(
        state=replace(state, idle=state.idle + 1), until_seconds=env.elapsed() + wait, version=version
    )


def _after_round(job: ReclusterJob, state: LoopState, plan: Plan, outcome: RoundOutcome) -> Step:
    fresh = [group.number for group in outcome.groups if group.status == FAILED]
    failed = state.failed.union(*(plan.groups[number].blocks for number in fresh))
    state = replace(
        state,
        totals=state.totals.plus(outcome.commits, outcome.groups),
        spent=state.spent.plus(outcome.groups),
        groups=outcome.groups if job.endless else (*state.groups, *outcome.groups),
        failed=failed,
        fruitless=0 if outcome.version else state.fruitless + 1,
        most_groups=_most_groups(job, state, outcome),
        most_blocks=_most_blocks(job, state, outcome),
        idle=0 if outcome.version else state.idle,
        note=_note(len(failed), [group for group in outcome.groups if group.status == LEFT]),
    )
    statuses = {group.status for group in outcome.groups}
    several = job.request.final or job.endless or outcome.put_back > 0
    again = not job.plan and (several or (state.fruitless > 0 and FAILED in statuses))
    if outcome.version:
        return Committed(state=state, more=again)
    if not again:
        return Done(state=state)
    if state.fruitless > job.waits.most_fruitless:
        return _given_up(job, state)
    if CONFLICTED not in statuses and not outcome.put_back:
        return Retry(state=state, after_seconds=0.0)
    waits = job.waits
    wait = wait_seconds(job.port.env, state.fruitless, waits.first_retry_seconds, waits.longest_retry_seconds)
    return Retry(state=state, after_seconds=wait)


def _note(failed: int, left: Sequence[GroupOutcome]) -> str:
    """Return what a round left as it is, for people."""
    found = []
    if failed:
        found.append(
            "1 block of a group that failed is left as it is"
            if failed == 1
            else f"{failed} blocks of groups that failed are left as they are"
        )
    if left:
        groups = "1 group" if len(left) == 1 else f"{len(left)} groups"
        blocks = sum(group.blocks_in for group in left)
        of_blocks = "1 block" if blocks == 1 else f"{blocks} blocks"
        found.append(f"{groups} of {of_blocks} did not begin, to keep to the budget")
    return "; ".join(found)


def _given_up(job: ReclusterJob, state: LoopState) -> Step:
    """Return what follows on too many rounds without a commit."""
    why = (
        f"groups failed or other writers were faster, so {state.fruitless} rounds in a row committed nothing"
    )
    if not job.endless:
        return Done(state=replace(state, note=f"stopped: {why}; run it again later"))
    longest = job.waits.longest_retry_seconds
    return Retry(
        state=replace(state, note=why), after_seconds=wait_seconds(job.port.env, 0, longest, longest)
    )


class _Watch:
    """Follows the commits of a round: the version committed last, and the table's figures then."""

    def __init__(self, state: LoopState) -> None:
        self.after = state.after
        self.snapshot = state.snapshot
        self._state = state
        self._policy_state: State = None
        self._commits = 0
        self._next: Averages | None = None

    def begin(self, state: LoopState, policy_state: State) -> None:
        """Take note of the state before the round, and of what the policy remembers after it."""
        self.after, self._state, self._policy_state = state.after, state, policy_state

    def state(self) -> LoopState:
        """Return the state of a step that ends here."""
        if not self._commits:
            return self._state
        return replace(
            self._state,
            totals=self._state.totals.plus(self._commits),
            fruitless=0,
            idle=0,
            after=self.after,
            snapshot=self.snapshot,
            policy=self._policy_state,
        )

    def summary(self, removed: frozenset[str], added: Sequence[BlockRecord]) -> Mapping[str, Any]:
        """Return the table's figures before and after a commit."""
        self._next = self._state.averages.replaced(removed, added)
        return _depths(self.after or self._next, self._next)

    def committed(self, version: Version) -> None:
        """Take note that the commit happened."""
        self._state.averages.keep(version.id, version.parent)
        self.after, self.snapshot = self._next, version.public_id
        self._commits += 1


def recluster(
    port: TablePort[Any],
    request: Request,
    engine: Callable[[Plan], Engine],
    *,
    plan: Plan | None = None,
    expected: str | None = None,
) -> Outcome:
    """Carry out `plan`; or plan and carry out one round, or with `final` rounds until there is nothing to do.

    Args:
        port: the table.
        request: what to select and how to merge; with a given plan, only how to merge.
        engine: returns the engine that carries out a plan.
        plan: an earlier plan.
        expected: the name of the engine that will merge, if that is known.

    Raises:
        InvalidOptionError: `plan` is not a plan, or is of another table.
        ConflictError: in a round with `on_conflict="fail"`.

    Whatever is raised, what was committed before stays; the error has a note that says so (see `step`).
    """
    env = port.env
    started = env.elapsed()
    budget = request.options.budget
    is_timed = budget.max_seconds is not None or budget.max_cost is not None
    # Earlier runs are read where a limit depends on them: others need no request more than their own.
    rates = rates_of(port, port.newest(), expected) if is_timed and not plan else None
    job = ReclusterJob(
        port=port,
        request=request,
        engine=engine,
        plan=plan,
        estimates_again=True,
        rates=rates,
        expected_engine=expected,
    )
    state = job.start()
    while True:
        taken = step(job, state)
        state = taken.state
        match taken:
            case Done() | Committed(more=False):
                return outcome_of(job, state, env.elapsed() - started)
            case Retry(after_seconds=seconds) if seconds:
                env.sleep(seconds)


def outcome_of(job: ReclusterJob, state: LoopState, seconds: float) -> Outcome:
    """Return what the steps up to `state` did in `seconds`."""
    before = state.before or Averages(depth=0.0, overlaps=0.0)
    nothing = state.nothing
    says_why = nothing is not None and (nothing.is_limited or not state.totals.rounds)
    notes = (state.note, nothing.note if nothing and says_why else "")
    figures: dict[str, Any] = {**vars(state.totals), **_depths(before, state.after or before)}
    return Outcome(
        **figures,
        seconds=seconds,
        snapshot=state.snapshot,
        policy=job.plan.policy if job.plan else state.policy_name or job.request.policy.name,
        engine=state.engine,
        note="; ".join(note for note in notes if note),
        groups=state.groups,
        rejected=nothing.rejected if nothing else (),
        advice=nothing.advice if nothing else (),
        predicted_depth_after=state.predicted_depth,
    )


def _depths(before: Averages, after: Averages) -> dict[str, float | str | None]:
    return {
        "depth_before": before.depth,
        "depth_after": after.depth,
        "overlaps_before": before.overlaps,
        "overlaps_after": after.overlaps,
        "figures_of": after.figures_of if before.figures_of == TABLE else before.figures_of,
    }
