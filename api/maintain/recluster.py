"""Plan and recluster a table: the loop that ties metadata, policy, merge and commit together.

`final` repeats plan, merge and commit until the policy finds nothing to do. Every group that is committed lowers a
whole number that cannot fall below 0 (`selector/draft.py`), so only rounds that commit nothing could go on for ever:
these are bounded here.

The blocks of a group that failed are left alone by the rounds that follow, so that one damaged block does not keep the
rest of the table from being merged. A single round that came to nothing for that reason is followed by another one.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tblctl.maintain.averages import Followed
from tblctl.maintain.view import Averages, View
from tblctl.merger.engines.engine import Engine
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.round.commit_every import AT_END, CommitEvery
from tblctl.merger.round.conflicts import OnConflict
from tblctl.merger.round.group_run import COMMITTED, CONFLICTED, FAILED
from tblctl.merger.round.round import RoundOutcome, merge_round, require_own_plan
from tblctl.results import Outcome
from tblctl.selector.advice import advised
from tblctl.selector.candidates import Context
from tblctl.selector.options import SelectOptions
from tblctl.selector.plan import Plan
from tblctl.selector.registry import DEFAULT_POLICY, policy_named
from tblctl.tableformat.errors import (
    CommitOutcomeUnknownError,
    EngineError,
    InvalidKeyError,
    InvalidOptionError,
)
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.port import TablePort, Version
from tblctl.tableformat.progress import Progress

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

LOG = logging.getLogger("tblctl")

Condition = Callable[[Schema], "BooleanExpression | None"]

_MOST_FRUITLESS = 10
"""Rounds in a row that may commit nothing, because groups failed or other writers were faster, before giving up."""

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
        on_conflict: what a conflict does.
        commit_every: when a round commits before its end.
    """

    policy: str
    condition: Condition
    options: SelectOptions
    final: bool = False
    on_conflict: OnConflict = OnConflict.SALVAGE
    commit_every: CommitEvery = AT_END
    progress: Progress | None = None

    @classmethod
    def of(
        cls,
        *,
        policy: str | None,
        condition: Condition,
        options: Mapping[str, Any] | SelectOptions | None,
        final: bool = False,
        on_conflict: str = OnConflict.SALVAGE,
        commit_every: int | str | datetime.timedelta | None = None,
        progress: Progress | None = None,
    ) -> Request:
        """Return the request; `final` selects unclustered blocks too, unless the options say otherwise.

        Raises:
            InvalidOptionError: a name or value that is none.
        """
        policy_named(DEFAULT_POLICY if policy is None else policy)
        given: Any = options
        if given is not None and not isinstance(given, Mapping | SelectOptions):
            msg = (
                f"options is {options!r:.80}, expected a mapping such as {{'threshold': 4}} or SelectOptions"
            )
            raise InvalidOptionError(msg)
        given = progress
        if given is not None and not callable(given):
            msg = f"progress is {progress!r:.80}, expected something to call with (done, total, unit)"
            raise InvalidOptionError(msg)
        found = options if isinstance(options, SelectOptions) else SelectOptions.from_mapping(options or {})
        if final and found.include_unclustered is None:
            found = dataclasses.replace(found, include_unclustered=True)
        return cls(
            policy=policy or DEFAULT_POLICY,
            condition=condition,
            options=found,
            final=final,
            on_conflict=OnConflict.named(on_conflict),
            commit_every=CommitEvery.of(commit_every),
            progress=progress,
        )


def make_plan(version: Version, request: Request) -> Plan:
    """Return what the policy decides for a version.

    Raises:
        InvalidKeyError: the table has no cluster key.
        InvalidPredicateError, UnknownColumnError: of the condition.
    """
    return plan_view(version, _view(version, request.condition), request)


def _view(version: Version, condition: Condition) -> View:
    if version.sort is None:
        msg = (
            f"{version.location} has no cluster key to recluster by; give it one: `tblctl alter LOC --cluster-by a,b` "
            "or `table.set_cluster_key(...)`"
        )
        raise InvalidKeyError(msg)
    return View.of(version, version.sort, condition(version.schema))


def plan_view(version: Version, view: View, request: Request, failed: Collection[str] = ()) -> Plan:
    """Return what the policy decides for all blocks of a version but those that `failed`, given by their paths."""
    context = Context(
        table_id=version.table_id,
        snapshot=version.sequence,
        sort_id=view.sort.id,
        blocks=view.blocks,
        options=request.options,
        table_options=version.options,
        restricted=view.listing.matched,
        failed=view.named(failed) if failed else None,
    )
    return advised(context, policy_named(request.policy)(context))


def recluster(
    port: TablePort[Any], request: Request, engine: Callable[[Plan], Engine], *, plan: Plan | None = None
) -> Outcome:
    """Carry out `plan`; or plan and carry out one round, or with `final` rounds until there is nothing to do.

    Args:
        port: the table.
        request: what to select; of a given plan only how to merge.
        engine: returns what is to carry out a plan.
        plan: made before.

    Raises:
        InvalidOptionError: `plan` is none, or of another table.
        ConflictError: in a round with `on_conflict="fail"`.

    Whatever is raised, what was committed before stays; the error has a note that says so.
    """
    given: Any = plan
    if given is not None and not isinstance(given, Plan):
        msg = f"plan is a {type(plan).__name__}, expected a Plan; Plan.from_json reads what to_json gave"
        raise InvalidOptionError(msg)
    return _Loop(port=port, request=request, engine=engine).run(plan)


def round_after_write(recluster: Callable[[], Outcome], written: str) -> Outcome | None:
    """Carry out one round after a write, which it must not make fail; who interrupts it learns that `written` holds."""
    try:
        return recluster()
    except CommitOutcomeUnknownError as error:
        LOG.warning("%s; whether it was reclustered too is not known: %s", written, error)
    except Exception as error:  # noqa: BLE001 (whatever it is, the rows are written)
        LOG.warning("%s, but not reclustered: %s", written, error)
    except BaseException as error:
        error.add_note(f"{written}; what was interrupted is the round of reclustering after it")
        raise
    return None


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
    failed: set[str] = field(default_factory=set)  # blocks of groups that failed
    last: Version | None = None  # that was committed
    note: str = ""
    idle: Plan | None = None  # that had nothing to do, and so ended it

    def __post_init__(self) -> None:
        several = self.request.final or self.request.commit_every != AT_END
        self.followed = Followed(several=several)

    def run(self, given: Plan | None) -> Outcome:
        try:
            return self._run(given)
        except BaseException as error:
            if self.last is not None:
                error.add_note(
                    f"what was reclustered up to snapshot {self.last.sequence} is committed and stays"
                )
            raise

    def _run(self, given: Plan | None) -> Outcome:
        started = self.port.env.elapsed()
        policy = given.policy if given else self.request.policy
        fruitless = 0
        while fruitless <= _MOST_FRUITLESS:
            plan, outcome = self._round(given)
            if outcome is None:
                self.idle = plan
                notes = (self.note, plan.note if plan.is_limited or not self.rounds else "")
                self.note = "; ".join(note for note in notes if note)
                break
            self.rounds.append(outcome)
            self._note_failures(plan, outcome)
            fruitless = 0 if outcome.version else fruitless + 1
            statuses = {group.status for group in outcome.groups}
            if given or not (self.request.final or (fruitless and FAILED in statuses)):
                break
            if fruitless and CONFLICTED in statuses:
                self._wait(fruitless)
        else:
            self.note = (
                f"stopped: groups failed or other writers were faster, so {fruitless} rounds in a row committed "
                "nothing; run it again later"
            )
        return self._outcome(policy, self.port.env.elapsed() - started)

    def _round(self, given: Plan | None) -> tuple[Plan, RoundOutcome | None]:
        """Plan, unless that was done, and carry out; None if there is nothing to do."""
        version = self.port.newest()
        if given:
            require_own_plan(given, version)
        view = _view(version, self.request.condition)
        before = self.after = self.followed.begin(version.sequence, view)
        self.before = self.before or before
        plan = given or plan_view(version, view, self.request, self.failed)
        if not plan.groups:
            return plan, None
        engine = self.engine(plan)
        self.engine_name = engine.name
        measured = before

        def measure(removed: frozenset[str], added: Sequence[BlockRecord]) -> dict[str, float | None]:
            nonlocal measured
            measured = self.followed.replaced(removed, added)
            return _depths(self.after or before, measured)

        def committed(version: Version) -> None:
            self.followed.keep()
            self.after, self.last = measured, version

        outcome = merge_round(
            self.port,
            version,
            plan,
            engine,
            on_conflict=self.request.on_conflict,
            commit_every=self.request.commit_every,
            progress=self.request.progress,
            measure=measure,
            committed=committed,
            number=len(self.rounds) + 1,
        )
        self.followed.end(None if outcome.version is None else outcome.version.sequence)
        return plan, outcome

    def _note_failures(self, plan: Plan, outcome: RoundOutcome) -> None:
        for group in outcome.groups:
            if group.status == FAILED:
                self.failed.update(plan.groups[group.number].blocks)
        if self.failed:
            self.note = f"{len(self.failed)} blocks of groups that failed are left as they are"

    def _wait(self, fruitless: int) -> None:
        env = self.port.env
        longest = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**fruitless)
        env.sleep(longest * (0.5 + env.random() / 2))

    def _outcome(self, policy: str, seconds: float) -> Outcome:
        groups = tuple(group for done in self.rounds for group in done.groups)
        committed = [group for group in groups if group.status == COMMITTED]
        statuses = [group.status for group in groups]
        before = self.before or Averages(depth=0.0, overlaps=0.0)
        return Outcome(
            rounds=len(self.rounds),
            commits=sum(done.commits for done in self.rounds),
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
            snapshot=None if self.last is None else self.last.sequence,
            policy=policy,
            engine=self.engine_name,
            note=self.note,
            groups=groups,
            rejected=self.idle.rejected if self.idle else (),
            advice=self.idle.advice if self.idle else (),
        )


def _depths(before: Averages, after: Averages) -> dict[str, float | None]:
    return {
        "depth_before": before.depth,
        "depth_after": after.depth,
        "overlaps_before": before.overlaps,
        "overlaps_after": after.overlaps,
    }


@contextmanager
def engines(name: str, session: Any, location: str) -> Iterator[Callable[[Plan], Engine]]:
    """Give what names the engine for a plan of the table at `location`; what is opened for it is stopped at the end.

    `session` is one, or what opens one: it is asked when the first plan is to be carried out.

    Raises:
        InvalidOptionError: an unknown name, a session for the engine that needs none, what would open one without
            having been entered, or a table that Spark cannot see.
        EngineError: Spark was asked for, and cannot be started here.
    """
    if name not in ("auto", "local", "spark"):
        msg = f"engine is {name!r}, expected 'auto', 'local' or 'spark'"
        raise InvalidOptionError(msg)
    if name == "local" and session is not None:
        msg = "engine='local' runs without Spark, yet a session was given; leave one of them out"
        raise InvalidOptionError(msg)
    if isinstance(session, AbstractContextManager) and not hasattr(session, "createDataFrame"):
        msg = (
            f"spark is a {type(session).__name__} that gives a session when it is entered, not a session: write "
            "`with tblctl.spark_session(...) as spark:` and pass that, or pass a function that returns it, "
            "`spark=lambda: tblctl.spark_session(...)`"
        )
        raise InvalidOptionError(msg)
    in_memory = location.startswith("memory:")
    if in_memory and (name == "spark" or session is not None):
        msg = f"{location} is in the memory of this process, where Spark's workers cannot see it: use engine='local'"
        raise InvalidOptionError(msg)
    asked = name == "spark" or session is not None
    with ExitStack() as opened:

        @functools.cache  # a session is opened once, or found missing once
        def spark() -> Engine:
            return _spark(session, opened, instead=None if asked else LocalEngine())

        def engine(plan: Plan) -> Engine:
            large = sum(group.decoded_bytes for group in plan.groups) > LOCAL_BYTES
            wanted = asked or (name == "auto" and large and not in_memory)
            return spark() if wanted else LocalEngine()

        yield engine


def _spark(session: Any, opened: ExitStack, *, instead: Engine | None) -> Engine:
    from tblctl.merger.engines.spark.engine import SparkEngine
    from tblctl.merger.engines.spark.session import open_session

    try:
        if session is None or callable(session):
            session = opened.enter_context((session or open_session)())
        return SparkEngine(session)
    except EngineError:
        if instead is None:
            raise
        return instead
