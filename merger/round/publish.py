"""Commit merged groups on top of the newest version, without those that conflict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Generic, Protocol

from tblctl.merger.round.conflicts import OnConflict, conflicts, left_the_table
from tblctl.merger.round.group_run import GroupOutcome, GroupRun, State
from tblctl.merger.round.others import OtherWriters
from tblctl.selector.plan import Group, Plan
from tblctl.selector.pricing.price import total_price
from tblctl.tableformat.errors import CommitOutcomeUnknownError, ConflictError, TblctlError
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.port import (
    BlockIO,
    BlocksReplacedError,
    Replacement,
    SortConflictError,
    TablePort,
    Version,
    VersionT,
)

_SUMS = (
    *("blocks_in", "blocks_out", "rows", "rows_copied", "bytes_read", "bytes_copied", "bytes_written"),
    *("task_seconds", "cpu_seconds"),
)
"""Figures of group outcomes whose sums are in a commit's summary."""


class Observer(Protocol):
    """Follows the commits of a round, and adds figures of its own to their summaries."""

    def summary(self, removed: frozenset[str], added: Sequence[BlockRecord]) -> Mapping[str, Any]:
        """Return figures for the summary of the next commit. After a conflict it is called again."""

    def committed(self, version: Version) -> None:
        """Record that the change of the last `summary` call is committed."""


class Publisher(Generic[VersionT]):
    """The commits of one round.

    Args:
        port: the table.
        base: the version that the groups were merged on.
        plan: their plan.
        io: deletes blocks of groups that conflict.
        engine: the name of the engine that merged them.
        runs: the groups, by number.
        on_conflict: whether a conflict drops its group or ends the round.
        observer: follows the commits, or None.
    """

    def __init__(
        self,
        port: TablePort[VersionT],
        base: VersionT,
        plan: Plan,
        *,
        io: BlockIO,
        engine: str,
        runs: Mapping[int, GroupRun],
        on_conflict: OnConflict,
        observer: Observer | None,
    ) -> None:
        self.others = OtherWriters(port, base)
        self.newest: VersionT | None = None
        """The version committed last; None before the first commit."""
        self.commits = 0
        self.waiting_groups = 0
        """Groups that are merged and not committed: those that a commit would take now."""
        self._ended: dict[int, GroupRun] = {}  # by number; without those that a commit's record has
        self._port, self._base, self._plan, self._engine = port, base, plan, engine
        self._runs, self._on_conflict = runs, on_conflict
        self._io, self._observer = io, observer
        self._since_seconds = port.env.elapsed()

    @property
    def salvages(self) -> bool:
        """Whether a conflict does not end the round."""
        return self._on_conflict is OnConflict.SALVAGE

    @property
    def waiting_seconds(self) -> float:
        """The time since the last commit, or since the round began."""
        return self._port.env.elapsed() - self._since_seconds

    def note_end(self, run: GroupRun) -> None:
        """Note that a group is merged, or will not be. So no commit looks at all groups of the round, maybe 10,000."""
        self.waiting_groups += run.state is State.MERGED
        if not run.is_recorded:
            self._ended[run.number] = run

    def note_ends(self) -> None:
        """Note which groups ended before any was merged.

        Raises:
            ConflictError: one conflicts, and `on_conflict` says to fail.
        """
        for run in self._runs.values():
            if not run.is_open:
                self.note_end(run)
        self.refuse_conflicts()

    def publish(self) -> None:
        """Commit the merged groups. If some conflict, try again without these.

        Raises:
            CommitOutcomeUnknownError: it is unknown whether they are committed. They stay PUBLISHING.
            ConflictError: a group conflicts, and `on_conflict` says to fail.
            TblctlError: anything else; the groups are MERGED as before.
        """
        while ready := [run for run in self._unrecorded() if run.state is State.MERGED]:
            replacement = self._replacement(ready)
            for run in ready:
                run.move(State.PUBLISHING)
            try:
                self.newest = self._port.replace(self._base, replacement)
            except CommitOutcomeUnknownError:
                raise
            except ConflictError as error:
                self._drop(error, ready)
            except TblctlError:
                for run in ready:
                    run.move(State.MERGED)
                raise
            else:
                self._note_commit(self.newest, ready)

    def refuse_conflicts(self) -> None:
        """End the round if a group conflicts and `on_conflict` says so.

        Raises:
            ConflictError: a group conflicts.
        """
        if self._on_conflict is not OnConflict.FAIL:
            return
        lost = [run for run in self._runs.values() if run.state is State.CONFLICTED]
        if not lost:
            return
        done = sum(run.state is State.COMMITTED for run in self._runs.values())
        stays = (
            "nothing was committed"
            if self.newest is None
            else f"{done} groups were committed before, up to snapshot {self.newest.public_id}, and no others"
        )
        msg = (
            f"{self._base.location}: {len(lost)} of {len(self._runs)} groups conflict with other writers "
            f"(group {lost[0].number}: {lost[0].error}); {stays}: plan again, or salvage the others"
        )
        raise ConflictError(msg, groups=tuple(run.number for run in lost))

    def _note_commit(self, version: VersionT, ready: Sequence[GroupRun]) -> None:
        self.commits += 1
        self.others.note_own(version)
        self._since_seconds = self._port.env.elapsed()
        for run in self._unrecorded():
            run.is_recorded = True
        self._ended.clear()
        self.waiting_groups -= len(ready)
        for run in ready:
            run.move(State.COMMITTED)
            run.release()
        if self._observer:
            self._observer.committed(version)

    def _drop(self, error: ConflictError, ready: Sequence[GroupRun]) -> None:
        """Settle which groups conflict; the others are tried again."""
        found = _conflicting(error, ready)
        for run in ready:
            if run.number in found:
                run.move(State.CONFLICTED, found[run.number])
            else:
                run.move(State.MERGED)
        lost = [run for run in ready if run.state is State.CONFLICTED]
        if isinstance(error, BlocksReplacedError):
            self.others.note_removal()
        self.waiting_groups -= len(lost)
        self.refuse_conflicts()
        discard(self._io, lost)
        for run in lost:
            run.release()

    def _replacement(self, ready: Sequence[GroupRun]) -> Replacement:
        removed = frozenset(path for run in ready for path in run.group.blocks)
        added = tuple(record for run in ready for record in run.records)
        outcomes = [run.outcome() for run in ready]
        unrecorded = self._unrecorded()
        states = [run.state for run in unrecorded]
        summary = {
            "policy": self._plan.policy,
            "engine": self._engine,
            "planned_on": self._plan.snapshot,
            "committed_groups": len(ready),
            "conflicted_groups": states.count(State.CONFLICTED),
            "failed_groups": states.count(State.FAILED),
            **{name: sum(getattr(item, name) for item in outcomes) for name in _SUMS},
            "memory_bytes": sum(decoded_memory(run.group, run.outcome()) for run in ready),
            "merge_seconds": round(self.waiting_seconds, 6),
            **self._predicted(ready),
            **(self._observer.summary(removed, added) if self._observer else {}),
        }
        record = {"groups": [run.recorded() for run in unrecorded]}
        used = {run.group.sort_id for run in ready}
        sorts = tuple(sort for sort in self._plan.sorts if sort.id in used)
        return Replacement(
            removed=removed, added=added, sorts=sorts, detail={"recluster": summary}, record=record
        )

    def _predicted(self, ready: Sequence[GroupRun]) -> dict[str, Any]:
        """Return what the groups were expected to take, and to bring if they are the whole plan; None if unknown.

        Also how many runs of the table the rates of the plan rest on; 0 for the stated defaults.
        """
        # A group that lost blocks has the price of all of them: no rate must be learned from that.
        found = [None if run.lost else run.group.price for run in ready]
        priced = [price for price in found if price is not None]
        whole = len(ready) == len(self._plan.groups)
        return {
            "predicted": asdict(total_price(priced)) if len(priced) == len(found) else None,
            "predicted_depth_after": self._plan.predicted.average_depth_after if whole else None,
            "predicted_by_runs": self._plan.bill.measured_runs if self._plan.bill else None,
        }

    def _unrecorded(self) -> list[GroupRun]:
        """Return the groups whose end is known and in no commit's record yet, in the order of the plan."""
        return [self._ended[number] for number in sorted(self._ended)]


def decoded_memory(group: Group, outcome: GroupOutcome) -> int:
    """Return about how many bytes the decoded rows of a merged group took in memory: all but the copied ones."""
    return group.decoded_bytes * max(outcome.rows - outcome.rows_copied, 0) // max(outcome.rows, 1)


def discard(io: BlockIO, runs: Iterable[GroupRun]) -> None:
    """Delete written blocks of groups that no commit can name."""
    paths = [path for run in runs for path in run.deletable]
    if paths:
        io.discard(paths)


def _conflicting(error: ConflictError, ready: Sequence[GroupRun]) -> dict[int, str]:
    """Return the numbers of groups that conflict, and why: those that lost a block, or a sort; without a hint all."""
    found: dict[int, str] = {}
    if isinstance(error, BlocksReplacedError):
        gone = error.details.get("paths", ())
        dropped = conflicts({run.number: run.group.blocks for run in ready}, gone)
        found = {number: left_the_table(paths) for number, paths in dropped.items()}
    elif isinstance(error, SortConflictError):
        lost = error.details.get("sorts", ())
        found = {run.number: str(error) for run in ready if run.group.sort_id in lost}
    return found or {run.number: str(error) for run in ready}
