"""One round of reclustering: the tasks of a plan, run by an engine, verified, and committed.

That is one commit at the end, or with `commit_every` several as groups are merged. Groups stand or fall alone. One that
cannot be merged fails; one of whose blocks another writer took away conflicts; the others are committed. Blocks that
were written for nothing are deleted, but never once a commit may name them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Generic

from tblctl.merger.engines.engine import Engine, as_own
from tblctl.merger.round.balance import tasks_per_group
from tblctl.merger.round.commit_every import AT_END, CommitEvery
from tblctl.merger.round.conflicts import OnConflict, salvage
from tblctl.merger.round.cuts import Output, split_group
from tblctl.merger.round.group_run import COMMITTED, CONFLICTED, FAILED, GroupOutcome, Work, covers
from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult, whole_slices
from tblctl.merger.task.verify import VerificationError
from tblctl.selector.plan import Group, Plan
from tblctl.tableformat.concurrency import ahead
from tblctl.tableformat.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    InternalError,
    InvalidDataError,
    InvalidOptionError,
    TblctlError,
)
from tblctl.tableformat.model.cut import most_rows
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.port import BlockIO, BlocksReplacedError, Replacement, TablePort, Version, VersionT
from tblctl.tableformat.progress import Progress

LEAST_MEMORY_BYTES = 16 << 20
"""A task takes so much even if told to take less: windows of a few rows would take hours."""

_PLANNED_AT_ONCE = 2
"""Groups whose cuts are looked for while others are merged; each may hold the keys of some blocks."""

Measure = Callable[[frozenset[str], Sequence[BlockRecord]], Mapping[str, Any]]
"""Given the blocks that leave and those that join, what else the summary says of the table before and after."""

Committed = Callable[[Version], None]
"""Is told of every version that a round commits; what was measured last holds from then on."""


@dataclass(frozen=True, kw_only=True)
class RoundOutcome:
    """What a round did in so many `commits`; `version` is what the last of them gave, None for nothing."""

    version: Version | None
    commits: int
    groups: tuple[GroupOutcome, ...]


def merge_round(
    port: TablePort[VersionT],
    version: VersionT,
    plan: Plan,
    engine: Engine,
    *,
    on_conflict: str = OnConflict.SALVAGE,
    commit_every: CommitEvery = AT_END,
    progress: Progress | None = None,
    measure: Measure | None = None,
    committed: Committed | None = None,
    number: int = 1,
) -> RoundOutcome:
    """Carry out the plan on the newest version of its table. Whatever is raised, what was committed by then stays.

    Args:
        port: the table.
        version: its newest version. The plan may be of an older one: groups that are no longer whole conflict.
        plan: what to merge.
        engine: what runs the tasks.
        on_conflict: of `OnConflict`.
        commit_every: when to commit before the round's end.
        progress: is called with (done, total, unit), the unit being rows or groups.
        measure: adds to the summary of a commit.
        committed: is called after each commit.
        number: which round of a run it is, from 1.

    Raises:
        InvalidOptionError: the plan is of another table; `on_conflict` is none.
        ConflictError: with `FAIL`, a group conflicts; it and those not yet committed are not.
        CommitOutcomeUnknownError: nobody can tell now whether the last commit happened; nothing of it was deleted.
        VerificationError: a task would have changed the rows; no group is trusted that was not yet committed.
        TblctlError: what concerns all tasks, such as an engine that is gone.
    """
    require_own_plan(plan, version)
    merging = _Round(
        port,
        version,
        plan,
        engine,
        on_conflict=OnConflict.named(on_conflict),
        commit_every=commit_every,
        progress=progress,
        measure=measure,
        committed=committed,
        number=number,
    )
    merging.resolve()
    merging.merge()
    return merging.outcome()


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


class _Round(Generic[VersionT]):
    def __init__(
        self,
        port: TablePort[VersionT],
        version: VersionT,
        plan: Plan,
        engine: Engine,
        *,
        on_conflict: OnConflict,
        commit_every: CommitEvery,
        progress: Progress | None,
        measure: Measure | None,
        committed: Committed | None,
        number: int,
    ) -> None:
        self._port = port
        self._version = version
        self._plan = plan
        self._engine = engine
        self._on_conflict = on_conflict
        self._commit_every = commit_every
        self._measure = measure
        self._committed = committed
        self._io: BlockIO = port.block_io(version)
        self._works = {group.number: Work(group=group, round=number) for group in plan.groups}
        self._told = _Told(progress)
        self._last: Version | None = None  # that was committed
        self._commits = 0
        self._since_seconds = port.env.elapsed()  # the last commit

    def outcome(self) -> RoundOutcome:
        """Return what was done."""
        groups = tuple(work.outcome() for work in self._works.values())
        return RoundOutcome(version=self._last, commits=self._commits, groups=groups)

    def resolve(self) -> None:
        """Look up the blocks of all groups; those that are no longer as planned conflict."""
        sort = self._version.sort
        for work in self._works.values():
            if sort is None or work.group.sort_id != sort.id:
                work.end(CONFLICTED, "the cluster key was altered since the plan")
        paths = {work.group.number: work.group.blocks for work in self._live()}
        wanted = list(itertools.chain.from_iterable(paths.values()))
        found = self._version.blocks(wanted)
        for number, lost in salvage(paths, frozenset(wanted) - found.keys()).dropped.items():
            self._works[number].end(CONFLICTED, _left(lost))
        for work in self._live():
            work.blocks = tuple(found[path] for path in work.group.blocks)
            rows = sum(block.row_count for block in work.blocks)
            if rows != work.group.rows:
                msg = (
                    f"group {work.group.number} of the plan says {work.group.rows} rows, its blocks have {rows}: "
                    "the plan was altered; plan again"
                )
                raise InvalidDataError(msg)
        self._refuse_conflicts()

    def merge(self) -> None:
        """Merge all groups, largest first, and commit them. What is raised concerns all that is not committed."""
        works = sorted(self._live(), key=lambda work: -work.group.decoded_bytes)
        self._told.expect(works)
        with self._leaving_nothing():
            if works:
                title = (
                    f"tblctl recluster {self._version.location} ({len(works)} group{'s' * (len(works) > 1)})"
                )
                with closing(self._tasks(works)) as tasks:
                    self._engine.run(self._io, tasks, self._note, title=title, advance=self._told.advance)
            for work in self._live():
                work.require_complete(self._version.sort)
            self._commit()

    def _tasks(self, works: Sequence[Work]) -> Generator[MergeTask, None, None]:
        """Yield the tasks of groups, each one's largest first. The next groups are cut meanwhile."""
        options = self._version.options
        counts = tasks_per_group(
            [work.group.decoded_bytes for work in works],
            most=[_most_blocks(work.group, options) for work in works],
            parallelism=self._engine.parallelism,
        )
        runs = [self._port.env.new_run_id() for _ in works]
        cut = ahead(
            lambda item: self._split(*item), zip(works, runs, counts, strict=True), threads=_PLANNED_AT_ONCE
        )
        with closing(cut) as found:
            for work, tasks in zip(works, found, strict=True):
                if isinstance(tasks, str):
                    work.end(FAILED, tasks)
                    self._told.group()
                    continue
                work.tasks = tasks
                yield from sorted(tasks, key=lambda task: -task.size_bytes)

    def _split(self, work: Work, run_id: str, count: int) -> tuple[MergeTask, ...] | str:
        """Return the tasks of a group, or why it has none."""
        sort = self._version.sort
        if sort is None:
            msg = "a group of a table without a cluster key is no longer live here"
            raise InternalError(msg)
        output = Output(
            sort=sort,
            level=work.group.output_level,
            run_id=run_id,
            memory_bytes=max(LEAST_MEMORY_BYTES, self._plan.options.memory_bytes),
            same_key_rows=work.group.same_key_rows,
        )
        slices = whole_slices(self._version, sort, work.blocks)
        try:
            tasks = split_group(self._io, work.group.number, slices, output, tasks=count)
        except Exception as error:  # noqa: BLE001 (whatever it is, only this group fails)
            return str(as_own(error, f"planning the tasks of group {work.group.number}"))
        if not covers(tasks, work.blocks):
            return "a bug: its tasks do not take every row once; nothing was written, please report it"
        return tasks

    def _note(self, item: TaskResult | TaskFailure) -> None:
        """Take what the engine reports of a task; commit if it is time to."""
        work = self._works[item.group]
        work.note(item)
        if isinstance(item, TaskFailure) and isinstance(item.error, VerificationError):
            raise item.error  # then no group is trusted
        if work.is_over:
            self._told.group()
            if work.is_ready:
                work.require_complete(self._version.sort)
            else:
                self._discard([work])
                work.release()
        self._told.task(item)
        waited = self._port.env.elapsed() - self._since_seconds
        if self._commit_every.is_due(groups=len(self._ready()), seconds=waited):
            self._commit()

    def _commit(self) -> None:
        """Commit the groups that are merged, again without those that conflict."""
        while ready := self._ready():
            replacement = self._replacement(ready)
            for work in ready:
                work.may_stand = True
            try:
                self._last = self._port.replace(self._version, replacement)
            except CommitOutcomeUnknownError:
                raise
            except TblctlError as error:  # surely nothing was committed
                for work in ready:
                    work.may_stand = False
                if not isinstance(error, ConflictError):
                    raise
                self._note_conflict(error, ready)
                continue
            self._commits += 1
            self._since_seconds = self._port.env.elapsed()
            for work in self._to_tell():
                work.is_told = True
            for work in ready:
                work.status = COMMITTED
                work.release()
            if self._committed:
                self._committed(self._last)

    def _note_conflict(self, error: ConflictError, ready: Sequence[Work]) -> None:
        """Settle which groups conflict; without a hint that is all."""
        gone = error.details.get("paths", ()) if isinstance(error, BlocksReplacedError) else ()
        verdict = salvage({work.group.number: work.group.blocks for work in ready}, gone)
        reasons = {number: _left(lost) for number, lost in verdict.dropped.items()}
        for work in ready:
            if work.group.number in reasons or not reasons:
                work.end(CONFLICTED, reasons.get(work.group.number, str(error)))
        self._refuse_conflicts()
        lost = [work for work in ready if work.status == CONFLICTED]
        self._discard(lost)
        for work in lost:
            work.release()

    def _refuse_conflicts(self) -> None:
        lost = [work for work in self._works.values() if work.status == CONFLICTED]
        if lost and self._on_conflict is OnConflict.FAIL:
            done = sum(work.status == COMMITTED for work in self._works.values())
            stays = (
                "nothing was committed"
                if self._last is None
                else (
                    f"{done} groups were committed before, up to snapshot {self._last.sequence}, and no others"
                )
            )
            msg = (
                f"{self._version.location}: {len(lost)} of {len(self._works)} groups conflict with other writers "
                f"(group {lost[0].group.number}: {lost[0].error}); {stays}: plan again, or salvage the others"
            )
            raise ConflictError(msg, groups=tuple(work.group.number for work in lost))

    def _replacement(self, ready: Sequence[Work]) -> Replacement:
        removed = frozenset(path for work in ready for path in work.group.blocks)
        added = tuple(record for work in ready for record in work.records)
        outcomes = [work.outcome() for work in ready]
        to_tell = self._to_tell()
        statuses = [work.status for work in to_tell]
        detail = {
            "policy": self._plan.policy,
            "engine": self._engine.name,
            "planned_on": self._plan.snapshot,
            "committed_groups": len(ready),
            "conflicted_groups": statuses.count(CONFLICTED),
            "failed_groups": statuses.count(FAILED),
            **{name: sum(getattr(item, name) for item in outcomes) for name in _SUMS},
            **(self._measure(removed, added) if self._measure else {}),
        }
        record = {"groups": [work.recorded() for work in to_tell]}
        return Replacement(removed=removed, added=added, detail={"recluster": detail}, record=record)

    def _live(self) -> list[Work]:
        return [work for work in self._works.values() if work.status is None]

    def _ready(self) -> list[Work]:
        return [work for work in self._works.values() if work.is_ready]

    def _to_tell(self) -> list[Work]:
        """Return the groups whose fate the next commit seals, or that no commit told of yet."""
        return [work for work in self._works.values() if not work.is_told and (work.status or work.is_ready)]

    @contextmanager
    def _leaving_nothing(self) -> Iterator[None]:
        """Delete what was written and can be in no commit if the block raises."""
        try:
            yield
        except BaseException:
            self._discard(self._works.values())
            raise

    def _discard(self, works: Iterable[Work]) -> None:
        paths = [record.path for work in works if not work.may_stand for record in work.records]
        if paths:
            self._io.discard(paths)


_SUMS = ("blocks_in", "blocks_out", "rows", "bytes_read", "bytes_written", "task_seconds", "cpu_seconds")


class _Told:
    """Tells who watches how far the round is."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._total_groups = self._total_rows = 0
        self._groups = 0  # that are done
        self._rows = 0  # of tasks that are done
        self._advanced = 0  # as the engine says, where it can

    def expect(self, works: Sequence[Work]) -> None:
        """Note what is to be done."""
        self._total_groups = len(works)
        self._total_rows = sum(work.group.rows for work in works)

    def group(self) -> None:
        """Note a group that is merged, or failed."""
        self._groups += 1
        if self._progress:
            self._progress(self._groups, self._total_groups, "groups")

    def task(self, item: TaskResult | TaskFailure) -> None:
        """Note a task that ended."""
        self._rows += item.rows if isinstance(item, TaskResult) else 0
        self._report()

    def advance(self, rows: int) -> None:
        """Note rows that were merged within a task."""
        self._advanced += rows
        self._report()

    def _report(self) -> None:
        if self._progress:
            self._progress(max(self._rows, self._advanced), self._total_rows, "rows")


def _most_blocks(group: Group, options: TableOptions) -> int:
    """Return how many blocks a group becomes, about, each of which a task of its own could write."""
    return math.ceil(group.rows / most_rows(options, group.decoded_bytes / group.rows))


def _left(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more} left the table"
