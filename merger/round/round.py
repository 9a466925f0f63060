"""One round of reclustering: an engine runs the tasks of a plan, and their blocks are verified and committed.

A round makes one commit at its end, or several as groups are merged (`commit_every.py`). Each group stands alone. It
fails if it cannot be merged. It conflicts if one of its blocks has left the table, or its sort can no longer become
live. It is left if the budget has no seconds or money for it any more. All other groups are committed.

Beside other writers little is merged in vain. A group that lost a few blocks before it began goes on without them. One
that lost more is put back, if the caller plans again. One that loses a block while it is merged is stopped within a
second; on Spark, whose tasks go on, those of it that did not begin are left out once a job ends. And once another
writer removed a block of the round, all processors work on one group instead of one on each, where its row groups
suffice for that, so that groups take less time in which they can lose a block.

Blocks of groups that are not committed are deleted, but never while a commit may name them.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from tblctl.merger.engines.engine import Engine, stopped
from tblctl.merger.round.budget_clock import BudgetClock
from tblctl.merger.round.commit_every import AT_END, CommitEvery
from tblctl.merger.round.conflicts import OnConflict, left_the_table
from tblctl.merger.round.cutter import GROUPS_AHEAD, Cutter
from tblctl.merger.round.group_run import GroupOutcome, GroupRun, State
from tblctl.merger.round.planned_blocks import find_blocks_unless_expired, require_blocks_of_base
from tblctl.merger.round.progress import RoundProgress
from tblctl.merger.round.publish import Observer, Publisher, discard
from tblctl.merger.round.renewal import run_renewed
from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult
from tblctl.merger.task.verify import VerificationError
from tblctl.selector.plan import Plan
from tblctl.tableformat.errors import (
    InvalidOptionError,
)
from tblctl.tableformat.port import BlockIO, TablePort, Version, VersionT
from tblctl.tableformat.progress import Progress


@dataclass(frozen=True, kw_only=True)
class RoundOutcome:
    """What a round did.

    Attributes:
        version: that of its last commit; None without a commit.
        commits: how many it made.
        groups: all that came to their end.
        put_back: how many others it had, which never began: another writer replaced blocks of theirs.
    """

    version: Version | None
    commits: int
    groups: tuple[GroupOutcome, ...]
    put_back: int = 0


def merge_round(
    port: TablePort[VersionT],
    version: VersionT,
    plan: Plan,
    engine: Engine,
    *,
    on_conflict: str = OnConflict.SALVAGE,
    commit_every: CommitEvery = AT_END,
    plans_again: bool = False,
    progress: Progress | None = None,
    observer: Observer | None = None,
    number: int = 1,
    groups_ahead: int = GROUPS_AHEAD,
) -> RoundOutcome:
    """Carry out the plan on the newest version of its table. After any error, earlier commits stay.

    Args:
        port: the table.
        version: its newest version. The plan may be of an older one: groups that lost blocks since conflict.
        plan: what to merge.
        engine: runs the tasks.
        on_conflict: of `OnConflict`.
        commit_every: when to commit before the round's end.
        plans_again: groups that lost blocks before they began are put back, since the caller plans again.
        progress: called with (done, total, unit); the unit is rows or groups.
        observer: follows the commits, and adds to their summaries.
        number: which round of a recluster it is, from 1.
        groups_ahead: how many groups this process cuts into tasks while others are merged.

    Raises:
        InvalidOptionError: the plan is of another table, or `on_conflict` is not valid.
        InvalidDataError: a group has blocks that were not in the version that the plan was made on, or other rows.
        ConflictError: with `FAIL`, a group conflicts; no further group is committed.
        CommitOutcomeUnknownError: it is unknown whether the last commit happened; none of its blocks was deleted.
        VerificationError: a task would have changed the rows; no further group is committed.
        TblctlError: an error that concerns all tasks, such as a lost engine.
    """
    require_own_plan(plan, version)
    runs = {group.number: GroupRun(group, round_number=number) for group in plan.groups}
    io = port.block_io(version)
    choice = OnConflict.named(on_conflict)
    publisher = Publisher(
        port, version, plan, io=io, runs=runs, engine=engine.name, on_conflict=choice, observer=observer
    )
    find_blocks_unless_expired(port, version, runs.values(), plan.sorts, salvages=publisher.salvages)
    require_blocks_of_base(port, version, plan, runs.values())
    publisher.note_ends()
    cutter = Cutter(
        port, version, io, plan=plan, engine=engine, others=publisher.others, groups_ahead=groups_ahead
    )
    clock = BudgetClock(plan.options, port.env.elapsed)
    merging = _Round(
        version, io, runs, engine, publisher=publisher, clock=clock, due=commit_every, progress=progress
    )
    with _leaving_nothing(io, runs.values()):
        merging.merge(cutter, plans_again=plans_again)
        publisher.publish()
    return _outcome(publisher, runs.values())


def _outcome(publisher: Publisher[Any], runs: Collection[GroupRun]) -> RoundOutcome:
    ended = tuple(run.outcome() for run in runs if run.state is not State.WAITING)
    return RoundOutcome(
        version=publisher.newest,
        commits=publisher.commits,
        groups=ended,
        put_back=len(runs) - len(ended),
    )


def require_own_plan(plan: Plan, version: Version) -> None:
    """Refuse a plan that was made for another table.

    Raises:
        InvalidOptionError: it was.
    """
    if plan.table_id != version.table_id:
        msg = (
            f"the plan was made for another table (its id is {plan.table_id}); the id of {version.location} is "
            f"{version.table_id}: plan again"
        )
        raise InvalidOptionError(msg, plan_field="table_id")


class _Round:
    """Runs the tasks of groups, and publishes groups as they are merged."""

    def __init__(
        self,
        version: Version,
        io: BlockIO,
        runs: Mapping[int, GroupRun],
        engine: Engine,
        *,
        publisher: Publisher[Any],
        clock: BudgetClock,
        due: CommitEvery,
        progress: Progress | None,
    ) -> None:
        self._version, self._io = version, io
        self._runs, self._engine = runs, engine
        self._publisher, self._others, self._due = publisher, publisher.others, due
        self._clock, self._plans_again = clock, False
        self._no_task_since_look = True  # no task ended since the table was looked at
        # The largest groups go first, so that none of them is left at the end.
        self._open = sorted(
            (run for run in runs.values() if run.is_open), key=lambda run: -run.group.decoded_bytes
        )
        self._progress = RoundProgress(
            progress, groups=len(self._open), rows=sum(run.group.rows for run in self._open)
        )

    def merge(self, cutter: Cutter, *, plans_again: bool) -> None:
        """Merge all open groups; those that are put back stay WAITING. Errors concern all that are not committed."""
        self._plans_again = plans_again
        groups = len(self._open)
        if not groups:
            return
        title = f"tblctl recluster {self._version.location} ({groups} group{'s' * (groups > 1)})"
        with closing(self._tasks(cutter, title)) as tasks:
            run_renewed(
                self._engine,
                self._io,
                tasks,
                self._report,
                title=title,
                advance=self._advance,
                wanted=lambda number: self._runs[number].is_open,
            )
        for run in self._open:
            if run.state is State.MERGING or (run.is_open and not self._plans_again):
                run.require_complete()

    def _tasks(self, cutter: Cutter, title: str) -> Generator[MergeTask, None, None]:
        """Yield the tasks of all groups, the largest task of each group first."""
        with closing(cutter.tasks_of_each(self._open, title)) as found:
            for run, tasks in zip(self._open, found, strict=True):
                lost = self._lost(run, was_cut=not isinstance(tasks, str))
                if lost and self._goes_on_without(lost, run):
                    with closing(cutter.tasks_of_each([run], title)) as again:
                        tasks, lost = next(again), ()  # noqa: PLW2901 (the first ones are of no use)
                if lost and self._plans_again:
                    self._progress.group_left_out(run.group.rows)
                    continue
                if lost:
                    run.move(State.CONFLICTED, left_the_table(lost))
                elif isinstance(tasks, str):
                    run.move(State.FAILED, tasks)
                elif refusal := self._clock.refusal(run.group):
                    run.move(State.LEFT, refusal)
                else:
                    self._clock.begin(run.group)
                    run.start(tasks)
                    self._progress.leave_out(sum(block.deleted_rows for block in run.blocks))
                    yield from self._as_long_as_wanted(run, sorted(tasks, key=lambda task: -task.size_bytes))
                    if tasks:
                        continue
                self._note_end(run)
                self._progress.group_left_out(0 if run.state is State.MERGED else run.group.rows)

    def _as_long_as_wanted(self, run: GroupRun, tasks: Sequence[MergeTask]) -> Iterator[MergeTask]:
        """Yield the tasks of a group; once it failed or conflicts, report the others as stopped."""
        for task in tasks:
            if run.is_open:
                yield task
            else:
                self._report(stopped(task))

    def _goes_on_without(self, lost: Sequence[str], run: GroupRun) -> bool:
        """Return whether a group goes on without the blocks that it lost before it began."""
        rows = run.group.rows
        if not self._publisher.salvages or not run.goes_on_without(lost):
            return False
        self._progress.leave_out(rows - run.group.rows)
        return True

    def _advance(self, rows: int) -> None:
        """Count rows that were merged within tasks, and now and then look whether that is in vain."""
        self._progress.rows_merged(rows)
        if not self._others.looked_lately:
            self._stop_lost()

    def _stop_lost(self) -> None:
        """Give up groups under way that have lost a block."""
        merging = [run for run in self._open if run.state is State.MERGING]
        lost = frozenset(self._others.took([path for run in merging for path in run.group.blocks]))
        for run in merging if lost else ():
            if gone := tuple(path for path in run.group.blocks if path in lost):
                run.move(State.CONFLICTED, left_the_table(gone))
                self._note_end(run)

    def _lost(self, run: GroupRun, *, was_cut: bool) -> tuple[str, ...]:
        """Return blocks of a group that left the table, as far as is known before it is merged.

        After the round's start, and as long as no task ended, the table was looked at just now.
        """
        if not was_cut:
            return self._others.took_inputs(run.group.blocks)
        if self._no_task_since_look:
            return ()
        self._no_task_since_look = True
        return self._others.took(run.group.blocks)

    def _note_end(self, run: GroupRun) -> None:
        self._clock.end(run.number)
        self._publisher.note_end(run)
        if run.state is State.CONFLICTED:
            self._publisher.refuse_conflicts()

    def _report(self, item: TaskResult | TaskFailure) -> None:
        """Add a task's outcome; commit if a commit is due."""
        run = self._runs[item.group]
        self._no_task_since_look = False
        if isinstance(item, TaskFailure):
            item = self._others.explained(item, run.group.blocks)
        run.report(item)
        if isinstance(item, TaskFailure) and isinstance(item.error, VerificationError):
            raise item.error  # then no group is trusted
        if not run.is_open:
            self._note_end(run)
        if run.all_reported:
            self._progress.group_ended()
            if run.state in {State.CONFLICTED, State.FAILED}:
                self._progress.leave_out(run.unmerged_rows)
                discard(self._io, [run])
                run.release()
        self._progress.task_ended(item.rows if isinstance(item, TaskResult) else 0)
        waiting = self._publisher.waiting_groups
        if self._due.is_due(groups=waiting, seconds=self._publisher.waiting_seconds) or (
            self._due.adapts and waiting and self._others.wrote()
        ):
            self._publisher.publish()


@contextmanager
def _leaving_nothing(io: BlockIO, runs: Collection[GroupRun]) -> Iterator[None]:
    """If the body raises, delete written blocks that no commit can name."""
    try:
        yield
    except BaseException:
        discard(io, runs)
        raise
