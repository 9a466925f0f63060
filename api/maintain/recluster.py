"""The recluster loop: plan, merge and commit, one step at a time.

A step never sleeps: it returns what to wait for, so that a service can own time. `recluster` steps until there is
nothing to do.

The loop ends. Every committed group lowers a whole number that cannot fall below 0 (`selector/draft.py`). Only rounds
that commit nothing could go on for ever, and `Waits.most_fruitless` bounds these.

Later rounds leave blocks of failed groups alone, so that one damaged block does not stop the rest of the table from
being merged. If a single round commits nothing because groups failed, another round follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tblctl.maintain.averages import RollingAverages
from tblctl.maintain.request import Request, planned_view, view_of
from tblctl.maintain.view import Averages
from tblctl.merger.engines.engine import Engine
from tblctl.merger.round.commit_every import AT_END
from tblctl.merger.round.group_run import COMMITTED, CONFLICTED, FAILED
from tblctl.merger.round.round import RoundOutcome, merge_round, require_own_plan
from tblctl.results import Outcome
from tblctl.selector.plan import Plan
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import CommitOutcomeUnknownError, InvalidOptionError
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.port import TablePort, Version

LOG = logging.getLogger("tblctl")


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How long to wait between steps, and how often.

    Attributes:
        first_retry_seconds, longest_retry_seconds: the wait after a round that lost all groups to other writers. It
            doubles from the first to the longest, and is shortened by up to a half at random.
        first_idle_seconds, longest_idle_seconds: the same when there is nothing to do.
        most_fruitless: the loop gives up after this many consecutive rounds without a commit.
    """

    first_retry_seconds: float = 0.1
    longest_retry_seconds: float = 10.0
    first_idle_seconds: float = 1.0
    longest_idle_seconds: float = 60.0
    most_fruitless: int = 10


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to recluster, and with what.

    Attributes:
        port: the table.
        request: what to select and how to merge; with a given plan, only how to merge.
        engine: returns the engine that carries out a plan.
        plan: an earlier plan; only this is carried out. None: plan each round.
        endless: return `Idle` instead of `Done` if there is nothing to do.
        waits: how long to wait.
    """

    port: TablePort[Any]
    request: Request
    engine: Callable[[Plan], Engine]
    plan: Plan | None = None
    endless: bool = False
    waits: Waits = field(default_factory=Waits)

    def start(self) -> LoopState:
        """Return the state before the first step.

        Raises:
            InvalidOptionError: `plan` is not a plan.
        """
        given: Any = self.plan
        if given is not None and not isinstance(given, Plan):
            msg = f"plan is a {type(given).__name__}, expected a Plan; Plan.from_json reads what to_json gave"
            raise InvalidOptionError(msg)
        several = self.request.final or self.endless or self.request.commit_every != AT_END
        return LoopState(averages=RollingAverages(several=several))


@dataclass(frozen=True, kw_only=True)
class LoopState:
    """The state between two steps.

    Attributes:
        averages: a cache, which steps change in place.
        rounds: their outcomes.
        failed: paths of the blocks of failed groups.
        fruitless: number of latest consecutive rounds without a commit.
        idle: number of latest consecutive steps with nothing to do.
        before, after: the table's figures before the first round and after the last; None before the first step.
        newest: the version committed last; None before the first commit.
        engine: the name of the engine that carried out the last plan; None without one.
        policy: the policy's own state.
        nothing: the plan of the last step, if it had no groups.
        note: a sentence for people.
    """

    averages: RollingAverages
    rounds: tuple[RoundOutcome, ...] = ()
    failed: frozenset[str] = frozenset()
    fruitless: int = 0
    idle: int = 0
    before: Averages | None = None
    after: Averages | None = None
    newest: Version | None = None
    engine: str | None = None
    policy: Any = None
    nothing: Plan | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Committed:
    """A round was carried out, and at least a part of it committed. `more`: the next step may find more to do."""

    state: LoopState
    more: bool


@dataclass(frozen=True, kw_only=True)
class Done:
    """There is nothing to do, or nothing more was asked for."""

    state: LoopState


@dataclass(frozen=True, kw_only=True)
class Idle:
    """There is nothing to do now: step again at `until_seconds` of the environment's `elapsed`, or on a new version."""

    state: LoopState
    until_seconds: float


@dataclass(frozen=True, kw_only=True)
class Retry:
    """A round committed nothing: step again after `after_seconds`."""

    state: LoopState
    after_seconds: float


Step: TypeAlias = Committed | Done | Idle | Retry


def step(job: Job, state: LoopState) -> Step:
    """Plan and carry out one round on the newest version; never sleeps.

    Raises:
        InvalidOptionError: the job's plan is of another table.
        ConflictError: in a round with `on_conflict="fail"`.

    Whatever is raised, what was committed before stays; the error has a note that says so.
    """
    watch = _Watch(state)
    try:
        return _step(job, state, watch)
    except BaseException as error:
        if watch.newest is not None:
            error.add_note(
                f"groups reclustered up to snapshot {watch.newest.public_id} are committed and stay"
            )
        raise


def _step(job: Job, state: LoopState, watch: _Watch) -> Step:
    version = job.port.newest()
    if job.plan:
        require_own_plan(job.plan, version)
    view = view_of(version, job.request.condition)
    before = state.averages.begin(version.id, view)
    state = replace(state, before=state.before or before, after=before)
    watch.after = before
    plan = job.plan
    if plan is None:
        planned = planned_view(version, view, job.request, state.failed, state=state.policy, env=job.port.env)
        plan, state = planned.plan, replace(state, policy=planned.state)
    if not plan.groups:
        return _without_groups(job, state, plan)
    engine = job.engine(plan)
    outcome = merge_round(
        job.port,
        version,
        plan,
        engine,
        on_conflict=job.request.on_conflict,
        commit_every=job.request.commit_every,
        progress=job.request.progress,
        observer=watch,
        number=len(state.rounds) + 1,
    )
    state = replace(state, after=watch.after, newest=watch.newest, engine=engine.name)
    return _after_round(job, state, plan, outcome)


def _without_groups(job: Job, state: LoopState, plan: Plan) -> Step:
    notes = (state.note, plan.note if plan.is_limited or not state.rounds else "")
    state = replace(state, nothing=plan, note="; ".join(note for note in notes if note))
    if not job.endless:
        return Done(state=state)
    env, waits = job.port.env, job.waits
    wait = _wait_seconds(env, state.idle, waits.first_idle_seconds, waits.longest_idle_seconds)
    return Idle(state=replace(state, idle=state.idle + 1), until_seconds=env.elapsed() + wait)


def _after_round(job: Job, state: LoopState, plan: Plan, outcome: RoundOutcome) -> Step:
    failed = {
        path
        for group in outcome.groups
        if group.status == FAILED
        for path in plan.groups[group.number].blocks
    }
    failed |= state.failed
    state = replace(
        state,
        rounds=(*state.rounds, outcome),
        failed=frozenset(failed),
        fruitless=0 if outcome.version else state.fruitless + 1,
        idle=0,
        note=f"{len(failed)} blocks of groups that failed are left as they are" if failed else state.note,
    )
    statuses = {group.status for group in outcome.groups}
    several = job.request.final or job.endless
    again = not job.plan and (several or (state.fruitless > 0 and FAILED in statuses))
    if outcome.version:
        return Committed(state=state, more=again)
    if not again:
        return Done(state=state)
    if state.fruitless > job.waits.most_fruitless:
        note = (
            f"stopped: groups failed or other writers were faster, so {state.fruitless} rounds in a row committed "
            "nothing; run it again later"
        )
        return Done(state=replace(state, note=note))
    if CONFLICTED not in statuses:
        return Retry(state=state, after_seconds=0.0)
    waits = job.waits
    wait = _wait_seconds(
        job.port.env, state.fruitless, waits.first_retry_seconds, waits.longest_retry_seconds
    )
    return Retry(state=state, after_seconds=wait)


def _wait_seconds(env: Environment, number: int, first: float, longest: float) -> float:
    """Return a wait that doubles with its number, with a random part that differs between processes."""
    return min(longest, first * 2.0**number) * (0.5 + env.random() / 2)


class _Watch:
    """Follows the commits of a round: the version committed last, and the table's figures then."""

    def __init__(self, state: LoopState) -> None:
        self.after = state.after
        self.newest = state.newest
        self._averages = state.averages
        self._next: Averages | None = None

    def summary(self, removed: frozenset[str], added: Sequence[BlockRecord]) -> Mapping[str, Any]:
        """Return the table's figures before and after a commit."""
        self._next = self._averages.replaced(removed, added)
        return _depths(self.after or self._next, self._next)

    def committed(self, version: Version) -> None:
        """Record that the commit happened."""
        self._averages.keep(version.id, version.parent)
        self.after, self.newest = self._next, version


def recluster(
    port: TablePort[Any], request: Request, engine: Callable[[Plan], Engine], *, plan: Plan | None = None
) -> Outcome:
    """Carry out `plan`; or plan and carry out one round, or with `final` rounds until there is nothing to do.

    Args:
        port: the table.
        request: what to select and how to merge; with a given plan, only how to merge.
        engine: returns the engine that carries out a plan.
        plan: an earlier plan.

    Raises:
        InvalidOptionError: `plan` is not a plan, or is of another table.
        ConflictError: in a round with `on_conflict="fail"`.

    Whatever is raised, what was committed before stays; the error has a note that says so.
    """
    env = port.env
    started = env.elapsed()
    job = Job(port=port, request=request, engine=engine, plan=plan)
    state = job.start()
    while True:
        taken = step(job, state)
        state = taken.state
        match taken:
            case Done() | Committed(more=False):
                return outcome_of(job, state, env.elapsed() - started)
            case Retry(after_seconds=seconds) if seconds:
                env.sleep(seconds)


def outcome_of(job: Job, state: LoopState, seconds: float) -> Outcome:
    """Return what the steps up to `state` did in `seconds`."""
    groups = tuple(group for done in state.rounds for group in done.groups)
    committed = [group for group in groups if group.status == COMMITTED]
    statuses = [group.status for group in groups]
    before = state.before or Averages(depth=0.0, overlaps=0.0)
    return Outcome(
        rounds=len(state.rounds),
        commits=sum(done.commits for done in state.rounds),
        committed_groups=len(committed),
        conflicted_groups=statuses.count(CONFLICTED),
        failed_groups=statuses.count(FAILED),
        blocks_in=sum(group.blocks_in for group in committed),
        blocks_out=sum(group.blocks_out for group in committed),
        rows=sum(group.rows for group in committed),
        bytes_read=sum(group.bytes_read for group in committed),
        bytes_written=sum(group.bytes_written for group in committed),
        **_depths(before, state.after or before),
        seconds=seconds,
        snapshot=None if state.newest is None else state.newest.public_id,
        policy=job.plan.policy if job.plan else job.request.policy,
        engine=state.engine,
        note=state.note,
        groups=groups,
        rejected=state.nothing.rejected if state.nothing else (),
        advice=state.nothing.advice if state.nothing else (),
    )


def round_after_write(recluster: Callable[[], Outcome], written: str) -> Outcome | None:
    """Carry out one round after a write. Errors are only logged, since the rows are written. Interrupts get a note."""
    try:
        return recluster()
    except CommitOutcomeUnknownError as error:
        LOG.warning("%s; it is not known whether it was also reclustered: %s", written, error)
    except Exception as error:  # noqa: BLE001 (whatever it is, the rows are written)
        LOG.warning("%s, but not reclustered: %s", written, error)
    except BaseException as error:
        error.add_note(f"{written}; only the recluster round after it was interrupted")
        raise
    return None


def _depths(before: Averages, after: Averages) -> dict[str, float | None]:
    return {
        "depth_before": before.depth,
        "depth_after": after.depth,
        "overlaps_before": before.overlaps,
        "overlaps_after": after.overlaps,
    }
