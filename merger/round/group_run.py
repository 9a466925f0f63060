"""A group under way: its tasks, what they reported, its fate, and what is told of it afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult
from tblctl.merger.task.verify import VerificationError, require_order
from tblctl.selector.plan import Group
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.values import value_for_people

COMMITTED, CONFLICTED, FAILED = "committed", "conflicted", "failed"


@dataclass(frozen=True, kw_only=True)
class GroupOutcome:
    """What became of a group of the plan.

    Attributes:
        round: which of a run's, from 1.
        number, why: as in the plan.
        status: committed, conflicted (a block of it left the table, or the key was altered) or failed.
        error: why it was not committed; None if it was.
        blocks_in, rows: what it is of.
        blocks_out, rows_copied, bytes_read, bytes_written: what its tasks did in all, committed or not; rows that are
            copied are not decoded.
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
    rows_copied: int
    bytes_read: int
    bytes_written: int
    task_seconds: float
    cpu_seconds: float


@dataclass(kw_only=True)
class Work:
    """A group under way.

    Attributes:
        round: which of a run's, from 1.
        blocks: what it merges, once looked up.
        tasks: what it was cut into; None until it was.
        results: of the tasks that are done.
        failures: how many of them failed.
        status, error: its fate, and why; None until it is known.
        may_stand: a commit that names its blocks was begun and did not surely fail, so they must not be deleted.
        is_told: its fate stands in the record of a commit.
        known: its outcome, once `release` forgot what it is worked out from.
    """

    group: Group
    round: int
    blocks: tuple[Block, ...] = ()
    tasks: tuple[MergeTask, ...] | None = None
    results: list[TaskResult] = field(default_factory=list)
    failures: int = 0
    status: str | None = None
    error: str | None = None
    may_stand: bool = False
    is_told: bool = False
    known: GroupOutcome | None = None

    def end(self, status: str, error: str) -> None:
        """Settle the fate of the group; the first reason stays."""
        if self.status is None:
            self.status, self.error = status, error

    def note(self, item: TaskResult | TaskFailure) -> None:
        """Take what the engine reports of a task."""
        if isinstance(item, TaskFailure):
            self.failures += 1
            self.end(FAILED, str(item.error))
        else:
            self.results.append(item)

    @property
    def is_over(self) -> bool:
        """Whether all tasks were reported."""
        return self.tasks is not None and len(self.results) + self.failures == len(self.tasks)

    @property
    def is_ready(self) -> bool:
        """Whether it is merged and may be committed."""
        return self.status is None and self.is_over

    @property
    def records(self) -> list[BlockRecord]:
        """The blocks written so far, in key order."""
        ordered = sorted(self.results, key=lambda result: result.number)
        return [record for result in ordered for record in result.records]

    def require_complete(self, sort: Sort | None) -> None:
        """Refuse a group without the report of a task, with other rows out than in, or out of order.

        Raises:
            VerificationError: it is not complete.
        """
        tasks = self.tasks or ()
        reported = sorted(result.number for result in self.results)
        rows_in = sum(block.row_count for block in self.blocks)
        rows_out = sum(record.row_count for record in self.records)
        if reported != sorted(task.number for task in tasks) or rows_in != rows_out:
            msg = (
                f"group {self.group.number}: {rows_in} rows went in and {rows_out} came out of {len(tasks)} tasks, of "
                f"which {reported} reported. It was not committed; this is a bug, please report it"
            )
            raise VerificationError(msg)
        require_order(self.records, sort, f"group {self.group.number}")

    def release(self) -> None:
        """Forget the records of its blocks, which were committed or deleted: of 300 columns, 0.2 MB a block."""
        self.known = self.outcome()
        self.results = []

    def outcome(self) -> GroupOutcome:
        """Return what became of it; what has no other fate is as good as committed."""
        return self.known or GroupOutcome(
            round=self.round,
            number=self.group.number,
            why=self.group.why,
            status=self.status or COMMITTED,
            error=self.error,
            blocks_in=len(self.group.blocks),
            blocks_out=len(self.records),
            rows=self.group.rows,
            rows_copied=sum(result.rows_copied for result in self.results),
            bytes_read=sum(result.bytes_read for result in self.results),
            bytes_written=sum(result.bytes_written for result in self.results),
            task_seconds=round(sum(result.wall_seconds for result in self.results), 6),
            cpu_seconds=round(sum(result.cpu_seconds for result in self.results), 6),
        )

    def recorded(self) -> dict[str, Any]:
        """Return what a record says of it: enough to work out later what reading its blocks would have cost."""
        outcome = self.outcome()
        committed = outcome.status == COMMITTED
        return {
            **asdict(outcome),
            "sort_id": self.group.sort_id,
            "level": self.group.output_level,
            "removed": [_removed(block) for block in self.blocks] if committed else [],
            "added": [record.path for record in self.records] if committed else [],
        }


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
