"""What follows a commit that wrote rows, by the table's option `recluster.mode`.

Whatever fails here, the rows are written: the log has a warning with the reason, and nothing is raised. What does the
work is imported only when there is work, so that a commit without any costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tblctl.tableformat.errors import CommitOutcomeUnknownError, InvalidOptionError
from tblctl.tableformat.model.options import ASYNC, INLINE, OFF, TableOptions
from tblctl.tableformat.port import TablePort
from tblctl.tableformat.progress import Progress

if TYPE_CHECKING:
    from tblctl.results import Outcome, ScheduledPlan

LOG = logging.getLogger("tblctl")

ResultT = TypeVar("ResultT")

PLAN_SECONDS = 7 * 86_400.0
"""A plan that a writer leaves expires after so long."""

MOST_WAITING = 64
"""A writer adds no plan to so many that wait. To make a plan takes reading all others: if nobody executes them, a
writer must not become slower with every commit."""


@dataclass(frozen=True, kw_only=True)
class FollowUp:
    """What followed: the outcome of a round, and a note for people; None if there is none."""

    recluster: Outcome | None = None
    note: str | None = None


def warn_without_key(location: str, options: TableOptions, *, has_key: bool) -> None:
    """Log that no recluster will follow writes, where one is to and the policy needs a key that the table lacks."""
    if has_key or options.recluster_mode == OFF:
        return
    from tblctl.policies import policy_of
    from tblctl.selector.policy import works_without_key

    try:
        policy = policy_of(options.recluster_policy)
    except InvalidOptionError:  # it is known where tables are written
        return
    if not works_without_key(policy):
        LOG.warning(
            "%s has recluster.mode=%s but no cluster key, which policy %s needs, so nothing is reclustered: give it a "
            "key (`tblctl alter LOC --cluster-by a,b`), or a policy that needs none (`--set recluster.policy=size`)",
            location,
            options.recluster_mode,
            policy.name,
        )


def follow_up(
    port: TablePort[Any],
    mode: str,
    *,
    table_id: str,
    written: str,
    recluster: Callable[[], Outcome] | None = None,
) -> FollowUp:
    """Do what a mode other than off calls for after a commit.

    Args:
        port: the table.
        mode: of `recluster.mode`.
        table_id: of the table; a process has one round of it in the background at a time.
        written: says what was written, for messages.
        recluster: carries out the round of `inline`; None: `one_round`.

    A round in the background of this process is over before one of `inline` begins: both would merge the same blocks,
    and one in vain.
    """
    if mode == INLINE:
        round_ = recluster or partial(one_round, port)
        return FollowUp(recluster=attempted(partial(_at_once, table_id, round_), written))
    if mode == ASYNC:
        return FollowUp(note=attempted(partial(_begin, port, table_id, written), written))
    return FollowUp(note=attempted(partial(leave_plan, port), written, "no plan is left for others"))


def attempted(work: Callable[[], ResultT], written: str, failed: str = "not reclustered") -> ResultT | None:
    """Do work after a write. Errors are only logged, since the rows are written. Interrupts get a note."""
    try:
        return work()
    except CommitOutcomeUnknownError as error:
        LOG.warning("%s; it is not known whether it was also reclustered: %s", written, error)
    except Exception as error:  # noqa: BLE001 (whatever it is, the rows are written)
        LOG.warning("%s, but %s: %s", written, failed, error)
    except BaseException as error:
        error.add_note(f"{written}; only the recluster after it was interrupted")
        raise
    return None


def one_round(port: TablePort[Any], progress: Progress | None = None) -> Outcome:
    """Recluster a table once, in this process."""
    from tblctl.maintain.recluster import recluster
    from tblctl.maintain.request import Request
    from tblctl.merger.engines.local import LocalEngine

    request = Request.of(policy=None, condition=lambda _schema: None, options=None, progress=progress)
    return recluster(port, request, lambda _plan: LocalEngine())


def leave_plan(port: TablePort[Any], most_waiting: int = MOST_WAITING) -> str | None:
    """Leave a pending plan with a table, unless `most_waiting` wait; return a note on it, None if nothing is to do.

    If so many wait, those that are dead are removed first: other merges may have done all that they call for.
    """
    from tblctl.maintain.pending import remove_dead, schedule
    from tblctl.tableformat.pending import PendingPlans

    plans = PendingPlans(port.plan_storage(None), port.env, port.location)
    now = port.env.now()
    waiting = [item for item in plans.listed() if item.expires_seconds > now]
    if len(waiting) >= most_waiting:
        waiting = remove_dead(port, plans, waiting)
    if len(waiting) >= most_waiting:
        LOG.warning(
            "%s: %d pending plans wait, so no other one is added: `tblctl recluster %s --pending` executes them",
            port.location,
            len(waiting),
            plans.words,
        )
        return None
    kept = schedule(plans, partial(_planned, port), lifetime_seconds=PLAN_SECONDS)
    return kept.id and f"left the pending plan {kept.id} of {_groups(kept)}"


def _planned(port: TablePort[Any], pending: Any) -> Any:
    from tblctl.maintain.experience import rates_of
    from tblctl.maintain.newest import on_newest
    from tblctl.maintain.request import Request, make_plan

    request = Request.of(policy=None, condition=lambda _schema: None, options=None)
    return on_newest(
        port,
        lambda version: make_plan(
            version, request, pending=pending, rates=rates_of(port, version), env=port.env, port=port
        ),
    )


def _groups(kept: ScheduledPlan) -> str:
    count = len(kept.plan.groups)
    return f"{count} group{'s' * (count != 1)}"


def _at_once(table_id: str, recluster: Callable[[], Outcome]) -> Outcome:
    from tblctl.maintain import background

    background.BACKGROUND.take_over(table_id)
    return recluster()


def _begin(port: TablePort[Any], table_id: str, written: str) -> str:
    from tblctl.maintain import background

    background.BACKGROUND.begin(table_id, lambda report: _in_background(port, written, report))
    return "a recluster goes on in the background"


def _in_background(port: TablePort[Any], written: str, report: Progress) -> None:
    """Do a round. Nobody sees its outcome, so the log has what failed."""
    outcome = attempted(partial(one_round, port, report), written)
    errors = [group.error for group in outcome.groups if group.error] if outcome else []
    if errors:
        LOG.warning(
            "%s, but of the recluster after it %d group(s) failed: %s", written, len(errors), errors[0]
        )
