"""One round of reclustering: the tasks of a plan, run by an engine, verified, and committed in one go.

Groups stand or fall alone. One that cannot be merged fails; one of whose blocks another writer took away conflicts; the
others are committed. Blocks that were written for nothing are deleted, but never while a commit may name them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Generic

from tblctl.merger.conflicts import OnConflict, salvage
from tblctl.merger.engine import Engine, as_own
from tblctl.merger.split import Output, split_group
from tblctl.merger.task import MergeTask, Slice, TaskFailure, TaskResult
from tblctl.merger.verify import VerificationError, require_order
from tblctl.selector.plan import Group, Plan
from tblctl.tableformat.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    InternalError,
    InvalidDataError,
    InvalidOptionError,
    TblctlError,
)
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.values import value_for_people
from tblctl.tableformat.port import BlockIO, BlocksReplacedError, Replacement, TablePort, Version, VersionT
from tblctl.tableformat.progress import Progress

LEAST_MEMORY_BYTES = 16 << 20
"""A task takes so much even if told to take less: windows of a few rows would take hours."""

COMMITTED, CONFLICTED, FAILED = "committed", "conflicted", "failed"

Measure = Callable[[frozenset[str], Sequence[BlockRecord]], Mapping[str, Any]]
"""Given the blocks that leave and those that join, what else the summary says of the table before and after."""


@dataclass(frozen=True, kw_only=True)
class GroupOutcome:
    """What became of a group of the plan.

    Attributes:
        round: which of a run's, from 1.
        number, why: as in the plan.
        status: committed, conflicted (a block of it left the table, or the key was altered) or failed.
        error: why it was not committed; None if it was.
        blocks_in, rows: what it is of.
        blocks_out, bytes_read, bytes_written: what its tasks did in all, committed or not.
        task_seconds, cpu_seconds: summed over its tasks, which run side by side: their time, and that of processors.
    """

    round: int
    number: int
    why: str
    status: str
    error: str | None
    blocks_in: int
    blocks_out: int
    rows: int
    bytes_read: int
    bytes_written: int
    task_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, kw_only=True)
class RoundOutcome:
    """What a round did; `version` is what it committed, None for nothing."""

    version: Version | None
    groups: tuple[GroupOutcome, ...]


def merge_round(
    port: TablePort[VersionT],
    version: VersionT,
    plan: Plan,
    engine: Engine,
    *,
    on_conflict: str = OnConflict.SALVAGE,
    progress: Progress | None = None,
    measure: Measure | None = None,
    number: int = 1,
) -> RoundOutcome:
    """Carry out the plan on the newest version of its table.

    Args:
        port: the table.
        version: its newest version. The plan may be of an older one: groups that are no longer whole conflict.
        plan: what to merge.
        engine: what runs the tasks.
        on_conflict: of `OnConflict`.
        progress: is called with (done, total, unit), the unit being rows or groups.
        measure: adds to the summary of the commit.
        number: which round of a run it is, from 1.

    Raises:
        InvalidOptionError: the plan is of another table; `on_conflict` is none.
        ConflictError: with `FAIL`, a group conflicts; nothing was committed.
        CommitOutcomeUnknownError: nobody can tell now whether it was committed; nothing was deleted.
        VerificationError: a task would have changed the rows; nothing was committed.
        TblctlError: what concerns all tasks, such as an engine that is gone; nothing was committed.
    """
    require_own_plan(plan, version)
    merging = _Round(port, version, plan, engine, on_conflict=OnConflict.named(on_conflict), number=number)
    merging.resolve()
    merging.merge(progress)
    committed = merging.commit(measure)
    return RoundOutcome(version=committed, groups=tuple(work.outcome() for work in merging.works.values()))


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


@dataclass(kw_only=True)
class _Work:
    """A group under way; `status` is None until its fate is known."""

    group: Group
    round: int
    blocks: tuple[Block, ...] = ()
    tasks: tuple[MergeTask, ...] = ()
    results: list[TaskResult] = field(default_factory=list)
    status: str | None = None
    error: str | None = None

    def end(self, status: str, error: str) -> None:
        """Settle the fate of the group; the first reason stays."""
        if self.status is None:
            self.status, self.error = status, error

    @property
    def records(self) -> list[BlockRecord]:
        """The blocks written so far, in key order."""
        ordered = sorted(self.results, key=lambda result: result.number)
        return [record for result in ordered for record in result.records]

    def outcome(self) -> GroupOutcome:
        return GroupOutcome(
            round=self.round,
            number=self.group.number,
            why=self.group.why,
            status=self.status or COMMITTED,
            error=self.error,
            blocks_in=len(self.group.blocks),
            blocks_out=len(self.records),
            rows=self.group.rows,
            bytes_read=sum(result.bytes_read for result in self.results),
            bytes_written=sum(result.bytes_written for result in self.results),
            task_seconds=round(sum(result.wall_seconds for result in self.results), 6),
            cpu_seconds=round(sum(result.cpu_seconds for result in self.results), 6),
        )


class _Round(Generic[VersionT]):
    def __init__(
        self,
        port: TablePort[VersionT],
        version: VersionT,
        plan: Plan,
        engine: Engine,
        *,
        on_conflict: OnConflict,
        number: int,
    ) -> None:
        self._port = port
        self._version = version
        self._plan = plan
        self._engine = engine
        self._on_conflict = on_conflict
        self._io: BlockIO = port.block_io(version)
        self.works = {group.number: _Work(group=group, round=number) for group in plan.groups}

    def resolve(self) -> None:
        """Look up the blocks of all groups; those that are no longer as planned conflict."""
        sort = self._version.sort
        for work in self.works.values():
            if sort is None or work.group.sort_id != sort.id:
                work.end(CONFLICTED, "the cluster key was altered since the plan")
        paths = {number: work.group.blocks for number, work in self._live().items()}
        found = self._version.blocks(list(itertools.chain.from_iterable(paths.values())))
        gone = frozenset(itertools.chain.from_iterable(paths.values())) - found.keys()
        for number, lost in salvage(paths, gone).dropped.items():
            self.works[number].end(CONFLICTED, _left(lost))
        for work in self._live().values():
            work.blocks = tuple(found[path] for path in work.group.blocks)
            rows = sum(block.row_count for block in work.blocks)
            if rows != work.group.rows:
                msg = (
                    f"group {work.group.number} of the plan says {work.group.rows} rows, its blocks have {rows}: "
                    "the plan was altered; plan again"
                )
                raise InvalidDataError(msg)
        self._refuse_conflicts()

    def merge(self, progress: Progress | None) -> None:
        """Run the tasks of all groups. What is raised concerns them all: nothing that was written stays.

        Raises:
            VerificationError: a task would have changed the rows. Then no group is trusted.
        """
        live = self._live()
        total = sum(work.group.decoded_bytes for work in live.values())
        run_ids = {number: self._port.env.new_run_id() for number in live}

        def split(work: _Work) -> None:
            share = work.group.decoded_bytes / max(total, 1)
            self._split(work, run_ids[work.group.number], math.ceil(share * self._engine.parallelism))

        for work in live.values():  # one by one: each may hold the keys of some blocks
            split(work)
        with self._leaving_nothing():
            tally = _Tally(self._live(), progress)
            tasks = [task for work in self._live().values() for task in work.tasks]
            if tasks:
                title = f"tblctl recluster {self._version.location}"
                self._engine.run(self._io, tasks, tally.done, title=title, advance=tally.advance)
                tally.require_no_mismatch()
            for work in self._live().values():
                _verify(work)
                require_order(work.records, self._version.sort, f"group {work.group.number}")
        self._discard(work for work in self.works.values() if work.status == FAILED)

    def _split(self, work: _Work, run_id: str, tasks: int) -> None:
        sort = self._version.sort
        if sort is None:
            msg = "a group of a table without a cluster key is no longer live here"
            raise InternalError(msg)
        output = Output(
            sort=sort,
            level=work.group.output_level,
            run_id=run_id,
            memory_bytes=max(LEAST_MEMORY_BYTES, self._plan.options.memory_bytes),
        )
        slices = [
            Slice(
                block=block, start=0, stop=block.row_count, is_ordered=self._version.is_ordered(block, sort)
            )
            for block in work.blocks
        ]
        try:
            work.tasks = split_group(self._io, work.group.number, slices, output, tasks=tasks)
        except Exception as error:  # noqa: BLE001 (whatever it is, only this group fails)
            work.end(FAILED, str(as_own(error, f"planning the tasks of group {work.group.number}")))
            return
        if not covers(work.tasks, work.blocks):
            work.end(
                FAILED, "a bug: its tasks do not take every row once; nothing was written, please report it"
            )

    def commit(self, measure: Measure | None) -> Version | None:
        """Commit the groups that are left, again without those that conflict; None if none is left."""
        while kept := self._live():
            with self._leaving_nothing():
                replacement = self._replacement(kept, measure)
            try:
                return self._port.replace(self._version, replacement)
            except CommitOutcomeUnknownError:
                raise
            except TblctlError as error:  # surely nothing was committed
                with self._leaving_nothing():
                    if not isinstance(error, ConflictError):
                        raise
                    self._note_conflict(error, kept)
        return None

    def _note_conflict(self, error: ConflictError, kept: Mapping[int, _Work]) -> None:
        """Settle which groups conflict; without a hint that is all."""
        gone = error.details.get("paths", ()) if isinstance(error, BlocksReplacedError) else ()
        verdict = salvage({number: work.group.blocks for number, work in kept.items()}, gone)
        reasons = {number: _left(lost) for number, lost in verdict.dropped.items()}
        for number, work in kept.items():
            if number in reasons or not reasons:
                work.end(CONFLICTED, reasons.get(number, str(error)))
        self._refuse_conflicts()
        self._discard(work for work in kept.values() if work.status == CONFLICTED)

    def _refuse_conflicts(self) -> None:
        lost = [work for work in self.works.values() if work.status == CONFLICTED]
        if lost and self._on_conflict is OnConflict.FAIL:
            msg = (
                f"{self._version.location}: {len(lost)} of {len(self.works)} groups conflict with other writers "
                f"(group {lost[0].group.number}: {lost[0].error}); nothing was committed: plan again, or salvage the "
                "others"
            )
            raise ConflictError(msg, groups=tuple(work.group.number for work in lost))

    def _replacement(self, kept: Mapping[int, _Work], measure: Measure | None) -> Replacement:
        removed = frozenset(path for work in kept.values() for path in work.group.blocks)
        added = tuple(record for work in kept.values() for record in work.records)
        outcomes = [self.works[number].outcome() for number in kept]
        statuses = [work.status for work in self.works.values()]
        detail = {
            "policy": self._plan.policy,
            "engine": self._engine.name,
            "planned_on": self._plan.snapshot,
            "committed_groups": len(kept),
            "conflicted_groups": statuses.count(CONFLICTED),
            "failed_groups": statuses.count(FAILED),
            **{name: sum(getattr(item, name) for item in outcomes) for name in _SUMS},
            **(measure(removed, added) if measure else {}),
        }
        record = {"groups": [_recorded(work) for work in self.works.values()]}
        return Replacement(removed=removed, added=added, detail={"recluster": detail}, record=record)

    def _live(self) -> dict[int, _Work]:
        return {number: work for number, work in self.works.items() if work.status is None}

    @contextmanager
    def _leaving_nothing(self) -> Iterator[None]:
        """Delete what was written if the block raises; nothing of it may be committed by then."""
        try:
            yield
        except BaseException:
            self._discard(self.works.values())
            raise

    def _discard(self, works: Iterable[_Work]) -> None:
        paths = [record.path for work in works for record in work.records]
        if paths:
            self._io.discard(paths)


_SUMS = ("blocks_in", "blocks_out", "rows", "bytes_read", "bytes_written", "task_seconds", "cpu_seconds")


class _Tally:
    """Takes what the engine reports, and tells how far it is."""

    def __init__(self, works: Mapping[int, _Work], progress: Progress | None) -> None:
        self._works = works
        self._progress = progress
        self._mismatch: VerificationError | None = None
        self._left = {number: len(work.tasks) for number, work in works.items()}
        self._total_rows = sum(task.rows for work in works.values() for task in work.tasks)
        self._groups = 0  # that are done
        self._rows = 0  # of tasks that are done
        self._advanced = 0  # as the engine says, where it can

    def done(self, item: TaskResult | TaskFailure) -> None:
        """Note a task that ended."""
        work = self._works[item.group]
        if isinstance(item, TaskFailure):
            work.end(FAILED, str(item.error))
            if isinstance(item.error, VerificationError):
                self._mismatch = item.error
        else:
            work.results.append(item)
            self._rows += item.rows
        self._left[item.group] -= 1
        if self._left[item.group] == 0:
            self._groups += 1
            if self._progress:
                self._progress(self._groups, len(self._left), "groups")
        self._report()

    def require_no_mismatch(self) -> None:
        """Raise what a task found that would have changed the rows."""
        if self._mismatch:
            raise self._mismatch

    def advance(self, rows: int) -> None:
        """Note rows that were merged within a task."""
        self._advanced += rows
        self._report()

    def _report(self) -> None:
        if self._progress:
            self._progress(max(self._rows, self._advanced), self._total_rows, "rows")


def covers(tasks: Sequence[MergeTask], blocks: Sequence[Block]) -> bool:
    """Tell whether the slices of `tasks` take every row of `blocks` once, and every task writes what it takes."""
    stretches: dict[str, list[tuple[int, int]]] = {block.path: [] for block in blocks}
    for task in tasks:
        if task.rows != sum(item.stop - item.start for item in task.slices):
            return False
        for item in task.slices:
            if item.block.path not in stretches:
                return False
            stretches[item.block.path].append((item.start, item.stop))
    for block in blocks:
        end = 0
        for start, stop in sorted(stretches[block.path]):
            if start != end or stop < start:
                return False
            end = stop
        if end != block.row_count:
            return False
    return True


def _verify(work: _Work) -> None:
    """Refuse a group that is not complete: a task without a report, or other rows out than in."""
    reported = sorted(result.number for result in work.results)
    rows_in = sum(block.row_count for block in work.blocks)
    rows_out = sum(record.row_count for record in work.records)
    if reported != sorted(task.number for task in work.tasks) or rows_in != rows_out:
        msg = (
            f"group {work.group.number}: {rows_in} rows went in and {rows_out} came out of {len(work.tasks)} tasks, of "
            f"which {reported} reported. Nothing was committed; this is a bug, please report it"
        )
        raise VerificationError(msg)


def _recorded(work: _Work) -> dict[str, Any]:
    """Return what the record says of a group: enough to work out later what reading its blocks would have cost."""
    outcome = work.outcome()
    committed = outcome.status == COMMITTED
    return {
        **asdict(outcome),
        "sort_id": work.group.sort_id,
        "level": work.group.output_level,
        "removed": [_removed(block) for block in work.blocks] if committed else [],
        "added": [record.path for record in work.records] if committed else [],
    }


def _removed(block: Block) -> dict[str, Any]:
    cluster = block.cluster
    return {
        "path": block.path,
        "rows": block.row_count,
        "bytes": block.size_bytes,
        "level": cluster.level if cluster else 0,
        "sort_id": cluster.cluster_key_id if cluster else None,
        "min": value_for_people(cluster.min) if cluster else None,
        "max": value_for_people(cluster.max) if cluster else None,
        "exact": cluster.exact if cluster else None,
    }


def _left(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more} left the table"
