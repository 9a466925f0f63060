"""Why an operation over Iceberg may fail: every reason, by the class of its error. All else is a broken promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation.actors import CURVES
from simulation.iceberg.actors import EngineError
from simulation.iceberg.faults import ASLEEP
from simulation.reasons import Reason
from tblctl.tableformat.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    InvalidDataError,
    InvalidKeyError,
    InvalidOptionError,
    ObjectNotFoundError,
    StorageError,
    TableNotFoundError,
)

if TYPE_CHECKING:
    from simulation.world import Run


def _failed(run: Run) -> bool:
    return bool(run.faults - {"jump", ASLEEP})


def _others_committed(run: Run) -> bool:
    """Whether another operation committed since this one began, or since its plan was made."""
    mine = set(run.commits)
    return any(number not in mine for number in range(_since(run) + 1, run.world.oracle.newest + 1))


def _since(run: Run) -> int:
    if run.name != "carry out":
        return run.first
    plans = [other for other in run.world.runs if other.actor is run.actor and other.name == "plan"]
    return min((other.first for other in plans), default=run.first)


def _others_did(run: Run, *names: str) -> bool:
    since = _since(run)
    return any(
        other.name in names and other is not run and any(number > since for number in other.commits)
        for other in run.world.runs
    )


def _took_long(run: Run) -> bool:
    return run.world.seconds - run.started_seconds > 11 * 3600


def _something_expired(run: Run) -> bool:
    return _others_did(run, "expire", "gc", "recreate", "rollback")


def _has_equality(world: Any) -> bool:
    return any(other.name == "delete equal" and other.commits for other in world.runs)


REASONS = (
    Reason(error=EngineError, why="a request failed", holds=_failed),
    Reason(error=EngineError, why="others committed", holds=_others_committed),
    Reason(
        error=EngineError,
        why="the catalog shows main alone: the branch is there",
        holds=lambda run: run.name in ("append to branch", "refer") and run.world.hides_history,
    ),
    Reason(
        error=EngineError,
        why="nothing to change",
        holds=lambda run: run.name in ("change schema", "change spec", "refer", "rollback"),
    ),
    Reason(
        error=EngineError,
        why="PyIceberg reads no equality deletes",
        holds=lambda run: _has_equality(run.world),
    ),
    Reason(
        error=InvalidOptionError,
        why="there are equality deletes",
        holds=lambda run: _has_equality(run.world),
    ),
    Reason(error=CommitOutcomeUnknownError, why="a request failed", holds=_failed),
    Reason(
        error=CommitOutcomeUnknownError,
        why="it was recreated, and no longer says what it was",
        holds=lambda run: run.name != "gc" and _others_did(run, "recreate"),
    ),
    Reason(error=TableNotFoundError, why="it was recreated", holds=lambda run: _others_did(run, "recreate")),
    Reason(error=StorageError, why="a request failed", holds=_failed),
    Reason(error=ConflictError, why="the merge took long", holds=_took_long),
    Reason(error=ConflictError, why="others committed", holds=_others_committed),
    Reason(error=ConflictError, why="the catalog refused again and again", holds=_failed),
    Reason(
        error=ObjectNotFoundError,
        why="the version expired",
        holds=lambda run: run.name != "gc" and _something_expired(run),
    ),
    Reason(
        error=InvalidKeyError,
        why="the table has no cluster key",
        holds=lambda run: run.step.args.get("key") is None,
    ),
    Reason(
        error=InvalidKeyError,
        why="there are no rows to take the boundaries of a curve from, or no curve to renew",
        holds=lambda run: run.step.args.get("key", run.actor.planned_key) in CURVES,
    ),
    Reason(
        error=InvalidOptionError,
        why="the table has no log of queries, and none are handed in",
        holds=lambda run: run.step.args.get("policy") == "workload" and run.step.args["workload"] is None,
    ),
    Reason(
        error=InvalidOptionError,
        why="a key is given, and the policy chooses another one: rows have one order only",
        holds=lambda run: run.step.args.get("policy") == "workload" and run.step.args["key"] is not None,
    ),
    Reason(
        error=InvalidOptionError,
        why="another actor executed or cancelled the plan, it expired, or the table was recreated",
        holds=lambda run: run.name in ("execute", "cancel"),
    ),
    Reason(
        error=InvalidDataError,
        why="no pending plan can be executed, or no plan was ever kept",
        holds=lambda run: run.name in ("execute", "cancel"),
    ),
    Reason(
        error=InvalidOptionError,
        why="the catalog hides what others need",
        holds=lambda run: run.name == "gc" and run.world.may_hide,
    ),
    Reason(
        error=InvalidOptionError,
        why="the plan is of a table that was recreated",
        holds=lambda run: run.name == "carry out" and _others_did(run, "recreate"),
    ),
)


def reason_of(run: Run) -> Reason | None:
    """Return a reason for an operation's error, or None if there is none."""
    return next(
        (reason for reason in REASONS if isinstance(run.error, reason.error) and reason.holds(run)), None
    )
