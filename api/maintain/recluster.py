"""Plan and recluster a table: the loop that ties metadata, policy, merge and commit together.

`final` repeats plan, merge and commit until the policy finds nothing to do. Every group that is committed lowers a
whole number that cannot fall below 0 (`selector/draft.py`), so only rounds that commit nothing could go on for ever:
these are bounded here.

The blocks of a group that failed are left alone by the rounds that follow, so that one damaged block does not keep the
rest of the table from being merged. A single round that came to nothing for that reason is followed by another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tblctl.maintain.averages import Followed
from tblctl.maintain.request import Request, plan_view, view_of
from tblctl.maintain.view import Averages
from tblctl.merger.engines.engine import Engine
from tblctl.merger.round.commit_every import AT_END
from tblctl.merger.round.group_run import COMMITTED, CONFLICTED, FAILED
from tblctl.merger.round.round import RoundOutcome, merge_round, require_own_plan
from tblctl.results import Outcome
from tblctl.selector.plan import Plan
from tblctl.tableformat.errors import (
    CommitOutcomeUnknownError,
    InvalidOptionError,
)
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.port import TablePort, Version

LOG = logging.getLogger("tblctl")

_MOST_FRUITLESS = 10
"""Rounds in a row that may commit nothing, because groups failed or other writers were faster, before giving up."""

_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 10.0


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
        view = view_of(version, self.request.condition)
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
