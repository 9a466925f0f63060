"""Plan and recluster a table: the loop that ties metadata, policy, merge and commit together.

`final` repeats plan, merge and commit until the policy finds nothing to do. Every group that is committed lowers a
whole number that cannot fall below 0 (`selector/draft.py`), so only rounds that commit nothing could go on for ever:
those that conflict are bounded here, and one that fails ends the loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tblctl.followed import Followed
from tblctl.merger.engine import Engine
from tblctl.merger.local import LocalEngine
from tblctl.merger.round import (
    COMMITTED,
    CONFLICTED,
    FAIL,
    FAILED,
    SALVAGE,
    GroupOutcome,
    RoundOutcome,
    merge_round,
)
from tblctl.results import Outcome
from tblctl.selector.blocks import Context
from tblctl.selector.options import SelectOptions
from tblctl.selector.plan import Plan
from tblctl.selector.policies import DEFAULT_POLICY, policy_named
from tblctl.tableformat.errors import EngineError, InvalidKeyError, InvalidOptionError
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema import Schema
from tblctl.tableformat.port import TablePort, Version
from tblctl.view import Averages, View

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

Condition = Callable[[Schema], "BooleanExpression | None"]
Progress = Callable[[int, "int | None", str], None]

_MOST_CONFLICTS = 10
"""`final` gives up after so many rounds in a row that committed nothing because other writers were faster."""

_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 10.0

LOCAL_BYTES = 64 * 2**30
"""`auto` merges up to so many decoded bytes in this process (about six minutes on two processors), above it with Spark
where that can be started."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a caller asks for, before any table was looked at.

    Attributes:
        policy: its name.
        condition: given the schema, which blocks may be selected: those that may hold rows satisfying it.
        options: for the policy and the merge.
        final: round after round, until there is nothing to do.
        on_conflict: `salvage` or `fail`.
    """

    policy: str
    condition: Condition
    options: SelectOptions
    final: bool = False
    on_conflict: str = SALVAGE
    progress: Progress | None = None

    @classmethod
    def of(
        cls,
        *,
        policy: str | None,
        condition: Condition,
        options: Mapping[str, Any] | SelectOptions | None,
        final: bool = False,
        on_conflict: str = SALVAGE,
        progress: Progress | None = None,
    ) -> Request:
        """Return the request; `final` selects unclustered blocks too, unless the options say otherwise.

        Raises:
            InvalidOptionError: a name or value that is none.
        """
        policy_named(policy or DEFAULT_POLICY)
        if on_conflict not in (SALVAGE, FAIL):
            msg = f"on_conflict is {on_conflict!r}, expected {SALVAGE!r} or {FAIL!r}"
            raise InvalidOptionError(msg)
        found = options if isinstance(options, SelectOptions) else SelectOptions.from_mapping(options or {})
        if final and found.include_unclustered is None:
            found = dataclasses.replace(found, include_unclustered=True)
        return cls(
            policy=policy or DEFAULT_POLICY,
            condition=condition,
            options=found,
            final=final,
            on_conflict=on_conflict,
            progress=progress,
        )


def make_plan(version: Version, request: Request) -> Plan:
    """Return what the policy decides for a version.

    Raises:
        InvalidKeyError: the table has no cluster key.
        InvalidPredicateError, UnknownColumnError: of the condition.
    """
    return _plan(version, _view(version, request.condition), request)


def _view(version: Version, condition: Condition) -> View:
    if version.sort is None:
        msg = (
            f"{version.location} has no cluster key to recluster by; give it one: `tblctl alter LOC --cluster-by a,b` "
            "or `table.set_cluster_key(...)`"
        )
        raise InvalidKeyError(msg)
    return View.of(version, version.sort, condition(version.schema))


def _plan(version: Version, view: View, request: Request) -> Plan:
    context = Context(
        table_id=version.table_id,
        snapshot=version.sequence,
        sort_id=view.sort.id,
        blocks=view.blocks,
        options=request.options,
        table_options=version.options,
        restricted=view.listing.matched,
    )
    return policy_named(request.policy)(context)


def recluster(
    port: TablePort[Any], request: Request, engine: Callable[[Plan], Engine], *, plan: Plan | None = None
) -> Outcome:
    """Carry out `plan`, or plan and carry out one round, or with `final` rounds until there is nothing to do.

    Args:
        port: the table.
        request: what to select; of a given plan only how to merge.
        engine: returns what is to carry out a plan.
        plan: made before.

    Raises:
        ConflictError: in a round with `on_conflict="fail"`; earlier rounds are committed.
    """
    return _Loop(port=port, request=request, engine=engine).run(plan)


@dataclass(kw_only=True)
class _Loop:
    """Rounds one after the other, and what they did."""

    port: TablePort[Any]
    request: Request
    engine: Callable[[Plan], Engine]
    rounds: list[RoundOutcome] = field(default_factory=list)
    engine_name: str | None = None
    before: Averages | None = None
    after: Averages | None = None
    note: str = ""

    def __post_init__(self) -> None:
        self.followed = Followed(several=self.request.final)

    def run(self, given: Plan | None) -> Outcome:
        started = self.port.env.elapsed()
        policy = given.policy if given else self.request.policy
        conflicts = 0
        while True:
            plan, outcome = self._round(given)
            if outcome is None:
                self.note = "" if self.rounds else plan.note
                break
            self.rounds.append(outcome)
            if not self.request.final:
                break
            conflicts = 0 if outcome.version else conflicts + 1
            if self._is_stuck(outcome, conflicts):
                break
            if conflicts:
                self._wait(conflicts)
        return self._outcome(policy, self.port.env.elapsed() - started)

    def _round(self, given: Plan | None) -> tuple[Plan, RoundOutcome | None]:
        """Plan, unless that was done, and carry out; None if there is nothing to do."""
        version = self.port.newest()
        view = _view(version, self.request.condition)
        before = self.after = self.followed.begin(version.sequence, view)
        self.before = self.before or before
        plan = given or _plan(version, view, self.request)
        if not plan.groups:
            return plan, None
        engine = self.engine(plan)
        self.engine_name = engine.name
        measured = before

        def measure(removed: frozenset[str], added: Sequence[BlockRecord]) -> dict[str, float]:
            nonlocal measured
            measured = self.followed.replaced(removed, added)
            return _depths(before, measured)

        outcome = merge_round(
            self.port,
            version,
            plan,
            engine,
            on_conflict=self.request.on_conflict,
            progress=self.request.progress,
            measure=measure,
        )
        self.followed.end(None if outcome.version is None else outcome.version.sequence)
        if outcome.version is not None:
            self.after = measured
        return plan, outcome

    def _is_stuck(self, outcome: RoundOutcome, conflicts: int) -> bool:
        """Tell whether another round would be no better, and note why."""
        if outcome.version is None and any(group.status == FAILED for group in outcome.groups):
            self.note = "stopped: what is left failed"
        elif conflicts > _MOST_CONFLICTS:
            self.note = (
                f"stopped: other writers kept {conflicts} rounds in a row from committing; run it again later"
            )
        return bool(self.note)

    def _wait(self, conflicts: int) -> None:
        env = self.port.env
        longest = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**conflicts)
        env.sleep(longest * (0.5 + env.random() / 2))

    def _outcome(self, policy: str, seconds: float) -> Outcome:
        groups = [(number, group) for number, done in enumerate(self.rounds, 1) for group in done.groups]
        committed = [group for _, group in groups if group.status == COMMITTED]
        versions = [done.version for done in self.rounds if done.version is not None]
        statuses = [group.status for _, group in groups]
        before = self.before or Averages(depth=0.0, overlaps=0.0)
        return Outcome(
            rounds=len(self.rounds),
            committed_groups=len(committed),
            conflicted_groups=statuses.count(CONFLICTED),
            failed_groups=statuses.count(FAILED),
            blocks_in=sum(group.blocks_in for group in committed),
            blocks_out=sum(group.blocks_out for group in committed),
            rows=sum(group.rows for group in committed),
            bytes_read=sum(group.bytes_read for group in committed),
            bytes_written=sum(group.bytes_written for group in committed),
            **_depths(before, self.after or before),
            seconds=seconds,
            snapshot=versions[-1].sequence if versions else None,
            policy=policy,
            engine=self.engine_name,
            note=self.note,
            groups=tuple(_group(number, group) for number, group in groups),
        )


def _depths(before: Averages, after: Averages) -> dict[str, float]:
    return {
        "depth_before": before.depth,
        "depth_after": after.depth,
        "overlaps_before": before.overlaps,
        "overlaps_after": after.overlaps,
    }


def _group(number: int, group: GroupOutcome) -> dict[str, Any]:
    return {
        "round": number,
        "number": group.number,
        "status": group.status,
        "blocks": group.blocks_in,
        "rows": group.rows,
        "why": group.why,
        "error": group.error,
    }


@contextmanager
def engines(name: str, session: Any) -> Iterator[Callable[[Plan], Engine]]:
    """Give what names the engine for a plan; a session that is opened for it is stopped at the end.

    Raises:
        InvalidOptionError: an unknown name, or a session for the engine that needs none.
        EngineError: Spark was asked for, and cannot be started here.
    """
    if name not in ("auto", "local", "spark"):
        msg = f"engine is {name!r}, expected 'auto', 'local' or 'spark'"
        raise InvalidOptionError(msg)
    if name == "local" and session is not None:
        msg = "engine='local' runs without Spark, yet a session was given; leave one of them out"
        raise InvalidOptionError(msg)
    with ExitStack() as opened:
        found: list[Engine] = []

        def engine(plan: Plan) -> Engine:
            if not found:
                found.append(_engine(name, session, plan, opened))
            return found[0]

        yield engine


def _engine(name: str, session: Any, plan: Plan, opened: ExitStack) -> Engine:
    large = sum(group.decoded_bytes for group in plan.groups) > LOCAL_BYTES
    if name == "local" or (name == "auto" and session is None and not large):
        return LocalEngine()
    from tblctl.merger.spark import SparkEngine
    from tblctl.merger.spark_session import open_session

    try:
        return SparkEngine(session if session is not None else opened.enter_context(open_session()))
    except EngineError:
        if name == "spark" or session is not None:
            raise
        return LocalEngine()
