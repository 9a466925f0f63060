"""What the recluster loop knows: its job, its state between two steps, and what a step returns. Values, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tblctl.maintain.averages import RollingAverages
from tblctl.maintain.request import Request
from tblctl.maintain.spending import Spent
from tblctl.maintain.view import Averages
from tblctl.maintain.waits import Waits
from tblctl.merger.engines.engine import Engine
from tblctl.merger.round.commit_every import AT_END, BESIDE_OTHERS
from tblctl.merger.round.group_run import COMMITTED, CONFLICTED, FAILED, LEFT, GroupOutcome
from tblctl.selector.plan import Plan
from tblctl.selector.policy import State, Workload
from tblctl.selector.pricing.price import Price, total_price
from tblctl.selector.pricing.rates import Rates
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.port import TablePort, Version


@dataclass(frozen=True, kw_only=True)
class ReclusterJob:
    """What to recluster, and with what.

    Attributes:
        port: the table.
        request: what to select; of a given plan only how to merge.
        engine: returns what carries out a plan.
        plan: made before; it is all that is carried out. None: plan each round.
        estimates_again: prices and depths of `plan` are counted anew, since it may come from a file that was edited.
            Pending plans are not: they have a checksum.
        endless: with nothing to do, be `Idle` instead of `Done`. No advice is planned then.
        waits: how long to wait.
        workload: returns what was asked of the table lately, for the policy; None: a policy that wants it gets the
            table's log of queries.
        rates: what reading and rewriting take (`experience.rates_of`); None for what the newest version's own metadata
            tells of the last reclusters, or, for a policy that chooses by the queries, what the history tells.
        expected_engine: the name of the engine that will merge; None for the one that merged last.
        policy_state: what the policy remembers of an earlier job: the `LoopState.policy` that this one ended with.
    """

    port: TablePort[Any]
    request: Request
    engine: Callable[[Plan], Engine]
    plan: Plan | None = None
    estimates_again: bool = False
    endless: bool = False
    waits: Waits = field(default_factory=Waits)
    workload: Callable[[Version], Workload] | None = None
    rates: Rates | None = None
    expected_engine: str | None = None
    policy_state: State = None

    def start(self) -> LoopState:
        """Return the state before the first step.

        Raises:
            InvalidOptionError: `plan` is not a plan.
        """
        given: Any = self.plan
        if given is not None and not isinstance(given, Plan):
            msg = f"plan is a {type(given).__name__}, expected a Plan; Plan.from_json reads what to_json gave"
            raise InvalidOptionError(msg)
        every = self.request.commit_every
        several = self.request.final or self.endless or every not in {AT_END, BESIDE_OTHERS}
        return LoopState(averages=RollingAverages(several=several), policy=self.policy_state)


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What rounds did, summed up; see `Outcome`. Of a round that an error ended, only its commits are known."""

    rounds: int = 0
    commits: int = 0
    committed_groups: int = 0
    conflicted_groups: int = 0
    failed_groups: int = 0
    blocks_in: int = 0
    blocks_out: int = 0
    rows: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    left_groups: int = 0
    bytes_copied: int = 0
    predicted: Price | None = None

    def plus(self, commits: int, groups: Sequence[GroupOutcome] = ()) -> Totals:
        """Return the totals with another round."""
        statuses = [group.status for group in groups]
        committed = [group for group in groups if group.status == COMMITTED]
        priced = [*((self.predicted,) if self.predicted else ()), *(item.predicted for item in committed)]
        known = [price for price in priced if price is not None]
        return Totals(
            rounds=self.rounds + 1,
            commits=self.commits + commits,
            committed_groups=self.committed_groups + len(committed),
            conflicted_groups=self.conflicted_groups + statuses.count(CONFLICTED),
            failed_groups=self.failed_groups + statuses.count(FAILED),
            blocks_in=self.blocks_in + sum(group.blocks_in for group in committed),
            blocks_out=self.blocks_out + sum(group.blocks_out for group in committed),
            rows=self.rows + sum(group.rows for group in committed),
            bytes_read=self.bytes_read + sum(group.bytes_read for group in committed),
            bytes_written=self.bytes_written + sum(group.bytes_written for group in committed),
            left_groups=self.left_groups + statuses.count(LEFT),
            bytes_copied=self.bytes_copied + sum(group.bytes_copied for group in committed),
            predicted=total_price(known) if known and len(known) == len(priced) else None,
        )


@dataclass(frozen=True, kw_only=True)
class LoopState:
    """What is known between two steps. However long an endless job runs, its state stays small.

    Attributes:
        averages: a cache, which steps change in place.
        totals: what all rounds did.
        groups: those of all rounds that came to their end, in order; of an endless job only those of the last one.
        failed: paths of the blocks of groups that failed. An endless job forgets them at the step after an `Idle`.
        fruitless: rounds in a row that committed nothing, up to now.
        most_groups: of the next round, since groups of the last ones conflicted; None for no limit.
        most_blocks: of the next round, if it goes on for groups that were put back; None for what was asked for.
        idle: steps that found nothing to do since something was committed.
        version: the id of the version that the last step looked at; None before the first.
        before, after: the figures before the first round and after the last; None before the first step.
        snapshot: the public id of what was committed last; None as long as nothing was.
        engine: the name of the one that carried out the last plan; None without one.
        policy: what the policy remembers from one plan to the next.
        nothing: the plan of the last step, if it had no groups.
        note: for people, on the rounds; `nothing` has a note of its own.
        began: `elapsed` at the first step; None before it.
        spent: what all rounds read.
        predicted_depth: the average depth that the last round was expected to bring.
        policy_name: what planned the last round; empty before it, and with a given plan.
    """

    averages: RollingAverages
    totals: Totals = field(default_factory=Totals)
    groups: tuple[GroupOutcome, ...] = ()
    failed: frozenset[str] = frozenset()
    fruitless: int = 0
    most_groups: int | None = None
    most_blocks: int | None = None
    idle: int = 0
    version: str | None = None
    before: Averages | None = None
    after: Averages | None = None
    snapshot: int | str | None = None
    engine: str | None = None
    policy: State = None
    nothing: Plan | None = None
    note: str = ""
    began: float | None = None
    spent: Spent = field(default_factory=Spent)
    predicted_depth: float | None = None
    policy_name: str = ""


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
    """There is nothing to do now: step again at `until_seconds` of the environment's `elapsed`, or on a new version.

    A step that finds the same `version` again plans nothing, so it costs no more than to ask which one is newest. It
    plans all the same if there is a `workload`, or groups failed. A policy that waits for a point in time is not
    asked again before the version changes.
    """

    state: LoopState
    until_seconds: float
    version: str


@dataclass(frozen=True, kw_only=True)
class Retry:
    """A round committed nothing: step again after `after_seconds`."""

    state: LoopState
    after_seconds: float


Step: TypeAlias = Committed | Done | Idle | Retry
