"""One round of reclustering: an engine runs the tasks of a plan, and their blocks are verified and committed.

A round makes one commit at its end, or several as groups are merged (`commit_every.py`). Each group stands alone. It
fails if it cannot be merged. It conflicts if one of its blocks has left the table, or its sort can no longer become
live. It is left if the budget has no seconds or money for it any more. All other groups are committed.

Beside other writers little is merged in vain. A group that lost a few blocks before it began goes on without them. One
that lost more is put back, if the caller plans again. One that loses a block while it is merged is stopped within a
second. And from another writer's commit on, all processors work on one group instead of one on each, so that groups
take less time in which they can lose a block.

Blocks of groups that are not committed are deleted, but never while a commit may name them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from tblctl.merger.engines.engine import Engine, as_own, stopped
from tblctl.merger.presort.decide import Thresholds
from tblctl.merger.round.balance import tasks_per_group
from tblctl.merger.round.budget_clock import BudgetClock
from tblctl.merger.round.commit_every import AT_END, CommitEvery
from tblctl.merger.round.conflicts import OnConflict, conflicts, left_the_table
from tblctl.merger.round.cuts import Output, cut_into_tasks, whole_splits
from tblctl.merger.round.group_run import GroupOutcome, GroupRun, State, covers
from tblctl.merger.round.others import OtherWriters
from tblctl.merger.round.progress import RoundProgress
from tblctl.merger.round.publish import Observer, Publisher, discard
from tblctl.merger.round.renewal import run_renewed
from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult
from tblctl.merger.task.verify import VerificationError
from tblctl.selector.plan import Group, Plan
from tblctl.tableformat.concurrency import ahead
from tblctl.tableformat.errors import (
    CorruptTableError,
    InternalError,
    InvalidDataError,
    InvalidOptionError,
)
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.cut import most_rows
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.port import BlockIO, TablePort, Version, VersionT
from tblctl.tableformat.progress import Progress

LEAST_MEMORY_BYTES = 16 << 20
"""A task takes at least this much, even if given less: windows of a few rows would take hours."""

GROUPS_AHEAD = 2
"""Groups that are cut into tasks while others are merged; each may hold the keys of some blocks."""


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
        plans_again: whether groups that lost blocks before they began are put back, for another plan.
        progress: called with (done, total, unit); the unit is rows or groups.
        observer: follows the commits, and adds to their summaries.
        number: which round of a recluster it is, from 1.
        groups_ahead: how many groups are cut into tasks while others are merged.

    Raises:
        InvalidOptionError: the plan is of another table, or `on_conflict` is not valid.
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
    _find_blocks_unless_expired(port, version, runs.values(), plan.sorts, publisher)
    clock = BudgetClock(plan.options, port.env.elapsed)
    merging = _Round(
        version, io, runs, engine, publisher=publisher, due=commit_every, clock=clock, progress=progress
    )
    with _leaving_nothing(io, runs.values()):
        cut = _cutter(
            port, version, io, publisher.others, plan=plan, engine=engine, groups_ahead=groups_ahead
        )
        merging.merge(cut, plans_again=plans_again)
        publisher.publish()
    groups = tuple(run.outcome() for run in runs.values() if run.state is not State.WAITING)
    put_back = len(runs) - len(groups)
    return RoundOutcome(version=publisher.newest, commits=publisher.commits, groups=groups, put_back=put_back)


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
        raise InvalidOptionError(msg)


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
        due: CommitEvery,
        clock: BudgetClock,
        progress: Progress | None,
    ) -> None:
        self._version, self._io = version, io
        self._runs, self._engine = runs, engine
        self._publisher, self._others, self._due = publisher, publisher.others, due
        self._clock = clock
        self._looked = True  # since a task ended
        # The largest groups go first, so that none of them is left at the end.
        self._open = sorted(
            (run for run in runs.values() if run.is_open), key=lambda run: -run.group.decoded_bytes
        )
        self._progress = RoundProgress(
            progress, groups=len(self._open), rows=sum(run.group.rows for run in self._open)
        )

    def merge(self, cut: Cutter, *, plans_again: bool) -> None:
        """Merge all open groups; those that are put back stay WAITING. Errors concern all that are not committed."""
        groups = len(self._open)
        if not groups:
            return
        title = f"tblctl recluster {self._version.location} ({groups} group{'s' * (groups > 1)})"
        with closing(self._tasks(cut, plans_again=plans_again)) as tasks:
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
            if run.state is State.MERGING or (run.is_open and not plans_again):
                run.require_complete()

    def _tasks(self, cut: Cutter, *, plans_again: bool) -> Generator[MergeTask, None, None]:
        """Yield the tasks of all groups, the largest task of each group first."""
        with closing(cut(self._open)) as found:
            for run, tasks in zip(self._open, found, strict=True):
                lost = self._lost(run, was_cut=not isinstance(tasks, str))
                if lost and self._goes_on_without(lost, run):
                    with closing(cut([run])) as again:
                        tasks, lost = next(again), ()  # noqa: PLW2901 (the first ones are of no use)
                if lost and plans_again:
                    self._progress.group_ended()
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
                self._progress.group_ended()

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
        if self._looked:
            return ()
        self._looked = True
        return self._others.took(run.group.blocks)

    def _note_end(self, run: GroupRun) -> None:
        self._clock.end(run.number)
        self._publisher.note_end(run)
        if run.state is State.CONFLICTED:
            self._publisher.refuse_conflicts()

    def _report(self, item: TaskResult | TaskFailure) -> None:
        """Add a task's outcome; commit if a commit is due."""
        run = self._runs[item.group]
        self._looked = False
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
                discard(self._io, [run])
                run.release()
        self._progress.task_ended(item.rows if isinstance(item, TaskResult) else 0)
        waiting = self._publisher.waiting_groups
        if self._due.is_due(groups=waiting, seconds=self._publisher.waiting_seconds) or (
            self._due.adapts and waiting and self._others.wrote()
        ):
            self._publisher.publish()


def _find_blocks_unless_expired(
    port: TablePort[VersionT],
    version: VersionT,
    runs: Collection[GroupRun],
    added: Sequence[Sort],
    publisher: Publisher[VersionT],
) -> None:
    """Do `find_blocks`, and note which groups conflict. If gc removed the version meanwhile, all do."""
    try:
        find_blocks(version, runs, added, salvages=publisher.salvages)
    except CorruptTableError:
        if port.newest().id == version.id:
            raise
        for run in runs:
            if run.is_open:
                run.move(State.CONFLICTED, f"snapshot {version.public_id} expired while it was read")
    for run in runs:
        if not run.is_open:
            publisher.note_end(run)
    publisher.refuse_conflicts()


def find_blocks(
    version: Version, runs: Iterable[GroupRun], added: Sequence[Sort] = (), *, salvages: bool = False
) -> None:
    """Give every group its sort and its blocks from the version. Groups that are no longer as planned conflict.

    A group is as planned if its sort is live, current or not, and the one that it was at planning; or if it is among
    `added`, those that the plan brings, and its id is still free. One that lost few blocks goes on if one `salvages`.

    Raises:
        InvalidDataError: a group's row count differs from that of its blocks, or it has blocks of several partitions.
    """
    brought = {sort.id: sort for sort in added}
    fresh = {number: sort for number, sort in brought.items() if number >= version.next_sort_id}
    sorts = {**fresh, **version.sorts}
    waiting = []
    for run in runs:
        number = run.group.sort_id
        run.sort = sorts.get(number)
        if run.sort is None and number not in brought:
            run.move(State.CONFLICTED, "the cluster key was altered since the plan")
        elif run.sort is None or run.sort != brought.get(number, run.sort):
            run.move(
                State.CONFLICTED, f"sort {number}, which it brings, ended or is another one since the plan"
            )
        else:
            waiting.append(run)
    wanted = {run.number: run.group.blocks for run in waiting}
    paths = list(itertools.chain.from_iterable(wanted.values()))
    found = version.blocks(paths)
    dropped = conflicts(wanted, frozenset(paths) - found.keys())
    for run in waiting:
        run.blocks = tuple(found[path] for path in run.group.blocks if path in found)
        lost = dropped.get(run.number, ())
        if lost and not (salvages and run.goes_on_without(lost)):
            run.blocks = ()
            run.move(State.CONFLICTED, left_the_table(lost))
            continue
        _require_as_planned(run)


def _require_as_planned(run: GroupRun) -> None:
    """Refuse a group whose row count differs from the plan, or that crosses partitions.

    Raises:
        InvalidDataError: it does.
    """
    rows = sum(block.stored_rows for block in run.blocks)
    if rows != run.group.rows:
        msg = (
            f"group {run.number} of the plan says {run.group.rows} rows, its blocks have {rows}: "
            "the plan was altered; plan again"
        )
        raise InvalidDataError(msg)
    partitions = sorted({block.partition for block in run.blocks})
    if len(partitions) > 1:
        msg = (
            f"group {run.number} of the plan has blocks of {len(partitions)} partitions, such as {partitions[0]!r} "
            f"and {partitions[1]!r}; blocks are merged within a partition only: plan again"
        )
        raise InvalidDataError(msg)


Cutter = Callable[[Sequence[GroupRun]], Generator["tuple[MergeTask, ...] | str", None, None]]
"""Yields the tasks of each group, in order; for a group without tasks, the reason."""


def _cutter(
    port: TablePort[VersionT],
    version: VersionT,
    io: BlockIO,
    others: OtherWriters[VersionT],
    *,
    plan: Plan,
    engine: Engine,
    groups_ahead: int,
) -> Cutter:
    """Return the function that cuts groups into tasks: the next `groups_ahead` groups while earlier ones are merged.

    Beside other writers each is cut into a task for every processor.
    """
    memory_bytes = max(LEAST_MEMORY_BYTES, plan.options.memory_bytes)

    def cut(runs: Sequence[GroupRun]) -> Generator[tuple[MergeTask, ...] | str, None, None]:
        counts = tasks_per_group(
            [run.group.decoded_bytes for run in runs],
            most=[_most_blocks(run.group, version.options) for run in runs],
            parallelism=engine.parallelism,
        )
        outputs = [_output(run, port.env.new_run_id(), memory_bytes) for run in runs]

        def cut_one(item: tuple[GroupRun, Output, int]) -> tuple[MergeTask, ...] | str:
            run, output, count = item
            tasks = max(count, engine.parallelism) if others.wrote_before else count
            return _cut_group(version, io, run, output, tasks, thresholds=engine.thresholds)

        return ahead(cut_one, zip(runs, outputs, counts, strict=True), threads=groups_ahead)

    return cut


def _output(run: GroupRun, run_id: str, memory_bytes: int) -> Output:
    if run.sort is None:
        raise InternalError(f"group {run.number} has no sort, and was not dropped")
    return Output(
        sort=run.sort,
        level=run.group.output_level,
        run_id=run_id,
        memory_bytes=memory_bytes,
        same_key_rows=run.group.same_key_rows,
    )


def _cut_group(
    version: Version, io: BlockIO, run: GroupRun, output: Output, tasks: int, *, thresholds: Thresholds
) -> tuple[MergeTask, ...] | str:
    """Return the tasks of a group, or why it has none."""
    try:
        if not run.is_live:
            run.blocks, run.is_live = io.live(run.blocks), True
        splits = whole_splits(version, output.sort, run.blocks)
        if not splits:
            return ()
        found = cut_into_tasks(io, run.number, splits, output, tasks=tasks, thresholds=thresholds)
    except Exception as error:  # noqa: BLE001 (whatever it is, only this group fails)
        return str(as_own(error, f"planning the tasks of group {run.number}"))
    if not covers(found, run.blocks):
        return "a bug: its tasks do not take every row once; nothing was written, please report it"
    return found


@contextmanager
def _leaving_nothing(io: BlockIO, runs: Collection[GroupRun]) -> Iterator[None]:
    """If the body raises, delete written blocks that no commit can name."""
    try:
        yield
    except BaseException:
        discard(io, runs)
        raise


def _most_blocks(group: Group, options: TableOptions) -> int:
    """Return about how many output blocks a group has; each could be written by a task of its own."""
    return math.ceil(group.rows / most_rows(options, group.decoded_bytes / group.rows))
