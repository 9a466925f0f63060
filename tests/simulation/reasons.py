"""Why an operation may fail: every reason, by the class of the error. Anything else is a broken promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.actors import LAYOUTS
from tblctl.tableformat.errors import (
    ClockError,
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptTableError,
    InvalidDataError,
    InvalidKeyError,
    InvalidOptionError,
    InvalidSchemaError,
    SnapshotNotFoundError,
    StorageError,
    TblctlError,
)
from tblctl.tableformat.native.log.clock import MOST_SKEW_SECONDS

if TYPE_CHECKING:
    from simulation.world import Run


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A reason: an error of this class is right if `holds`."""

    error: type[TblctlError]
    why: str
    holds: Callable[[Run], bool]


_ROWS = frozenset({"append", "overwrite", "delete", "update", "stage", "stream", "import"})
_SCHEMA = frozenset({"add column", "rename column", "drop column", "widen column"})
_READS = frozenset({"read", "travel", "plan", "schedule", "cancel", "record", "export"})
_RECLUSTERS = frozenset({"recluster", "follow log", "plan", "carry out", "schedule", "execute"})
_NAMES_A_VERSION = frozenset({"travel", "rollback", "tag", "untag"})


_FLIPS = frozenset({"flipped bit", "misspelt name"})


def _storage_failed(run: Run) -> bool:
    return bool(run.faults - {"jump", *_FLIPS})


def _bits_flipped(run: Run) -> bool:
    return bool(_FLIPS & run.faults)


def _clock_is_off(run: Run) -> bool:
    return abs(run.actor.skew_seconds) > MOST_SKEW_SECONDS - 2 or "jump" in run.faults


def _beside_a_shorter_gc(run: Run) -> bool:
    """Whether a gc whose grace period is shorter than the operation took committed its fence since it began.

    The storage's times are whole seconds.
    """
    took = run.world.seconds - run.started_seconds
    return run.name not in _READS and any(
        other.name == "gc"
        and not other.step.args["dry_run"]
        and any(sequence > run.first for sequence in other.commits)
        and other.step.args["older_than"] <= took + 2
        for other in run.world.runs
    )


def _gc_removed_something(run: Run) -> bool:
    return run.name in _READS | _RECLUSTERS and run.world.oracle.gc_changes > run.gc_changes


def _others_did(run: Run, names: frozenset[str]) -> bool:
    """Whether another actor committed such an operation since this one began."""
    return any(
        other.name in names and any(sequence > run.first for sequence in other.commits)
        for other in run.world.runs
    )


REASONS = (
    Reason(error=StorageError, why="the storage failed", holds=_storage_failed),
    Reason(error=CommitOutcomeUnknownError, why="the storage failed", holds=_storage_failed),
    Reason(error=TblctlError, why="bits were flipped", holds=_bits_flipped),
    Reason(error=ClockError, why="the actor's clock is off", holds=_clock_is_off),
    Reason(error=ConflictError, why="a gc had a shorter grace period", holds=_beside_a_shorter_gc),
    Reason(error=StorageError, why="the version expired while it was read", holds=_gc_removed_something),
    Reason(error=CorruptTableError, why="the version expired while it was read", holds=_gc_removed_something),
    Reason(
        error=SnapshotNotFoundError,
        why="the version or tag is gone",
        holds=lambda run: run.name in _NAMES_A_VERSION,
    ),
    Reason(
        error=InvalidSchemaError,
        why="another actor changed the schema",
        holds=lambda run: run.name in _ROWS | _SCHEMA and _others_did(run, _SCHEMA | {"rollback"}),
    ),
    Reason(
        error=InvalidSchemaError,
        why="the column is as wide already",
        holds=lambda run: run.name == "widen column",
    ),
    Reason(
        error=ConflictError,
        why="another actor rolled back to another schema",
        holds=lambda run: run.name in _ROWS and _others_did(run, frozenset({"rollback"})),
    ),
    Reason(
        error=InvalidOptionError,
        why="another actor executed or cancelled the plan, or it expired",
        holds=lambda run: run.name in {"execute", "cancel"},
    ),
    Reason(
        error=InvalidDataError,
        why="all pending plans have expired",
        holds=lambda run: run.name == "execute",
    ),
    Reason(
        error=InvalidOptionError,
        why="the table has no log of queries, and none are handed in",
        holds=lambda run: run.step.args.get("policy") == "workload" and run.step.args["workload"] is None,
    ),
    Reason(
        error=InvalidOptionError,
        why="nothing has arrived",
        holds=lambda run: run.name == "import" and not run.notes["arrived"],
    ),
    Reason(
        error=InvalidDataError,
        why="a file was written again while it was read",
        holds=lambda run: run.name == "import" and run.world.lake.writes > run.notes["writes"],
    ),
    Reason(
        error=InvalidOptionError,
        why="there is an export already",
        holds=lambda run: run.name == "export" and not run.step.args["overwrite"],
    ),
    Reason(
        error=InvalidKeyError,
        why="there is no cluster key",
        holds=lambda run: run.name in _RECLUSTERS | {"drop key"},
    ),
    Reason(
        error=InvalidKeyError,
        why="there are no rows to make a curve or a tree from, or neither to renew",
        holds=lambda run: run.name == "set key" and run.step.args["terms"] in LAYOUTS,
    ),
)


def reason_of(run: Run) -> Reason | None:
    """Return a reason for an operation's error, or None if there is none."""
    return next(
        (reason for reason in REASONS if isinstance(run.error, reason.error) and reason.holds(run)), None
    )
