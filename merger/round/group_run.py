"""A group while a round carries it out: its state, its tasks' reports, and its outcome."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult
from tblctl.merger.task.verify import VerificationError, require_order
from tblctl.selector.plan import Group
from tblctl.selector.pricing.price import Price
from tblctl.tableformat.errors import InternalError
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.values import value_for_people
from tblctl.tableformat.port import BlocksReplacedError

_LEAST_KEPT = 0.5
"""A group that lost blocks goes on if it keeps this share of its rows."""

COMMITTED, CONFLICTED, FAILED, LEFT = "committed", "conflicted", "failed", "left"


@dataclass(frozen=True, kw_only=True)
class GroupOutcome:
    """The outcome of a group of the plan.

    Attributes:
        round: the number of the round, from 1.
        number, why: as in the plan; `why` also says how many blocks it went on without.
        status: committed, conflicted (a block of it left the table, or its sort ended or is another one), failed, or
            left (the seconds or the money of the budget did not suffice for it).
        error: why it was not committed; None if it was.
        blocks_in, rows: its blocks and their rows.
        blocks_out, rows_copied, bytes_read, bytes_written: totals of its tasks, committed or not; copied rows are not
            decoded.
        task_seconds, cpu_seconds: wall and processor seconds, summed over its tasks, which run in parallel.
        bytes_copied: of row groups that were copied undecoded; `bytes_read` and `bytes_written` count them too.
        predicted: what it was expected to take; None if the plan does not say.
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
    bytes_copied: int = 0
    predicted: Price | None = None


class State(StrEnum):
    """The state of a group."""

    WAITING = "waiting"
    """It is not cut into tasks yet."""
    MERGING = "merging"
    """It is cut into tasks, and not all of them have ended."""
    MERGED = "merged"
    """All its tasks succeeded: it may be committed."""
    PUBLISHING = "publishing"
    """A commit that names its blocks was begun. Until its outcome is known, they must not be deleted."""
    COMMITTED = COMMITTED
    CONFLICTED = CONFLICTED
    FAILED = FAILED
    LEFT = LEFT
    """It did not begin, since the budget has nothing left for it."""


_NEXT = {
    State.WAITING: {State.MERGING, State.CONFLICTED, State.FAILED, State.LEFT},
    State.MERGING: {State.MERGED, State.CONFLICTED, State.FAILED},
    State.MERGED: {State.PUBLISHING},
    State.PUBLISHING: {State.MERGED, State.COMMITTED, State.CONFLICTED},
    State.COMMITTED: set(),
    State.CONFLICTED: set(),
    State.FAILED: set(),
    State.LEFT: set(),
}
"""The states that may follow each one. From PUBLISHING back to MERGED: nothing was committed, it is tried again."""


class GroupRun:
    """A group while a round carries it out: a state machine.

    Args:
        group: of the plan.
        round_number: which round of a recluster, from 1.
    """

    def __init__(self, group: Group, *, round_number: int) -> None:
        self.group = group
        self.state = State.WAITING
        self.error: str | None = None
        self.blocks: tuple[Block, ...] = ()
        self.sort: Sort | None = None
        self.is_live = False  # rows that are deleted are off its blocks' counts
        self.lost: tuple[str, ...] = ()  # its blocks that had left the table before it began
        self.is_recorded = False  # a commit's record has its outcome
        self._round_number = round_number
        self._numbers: tuple[int, ...] = ()  # of its tasks, which a round of 10,000 groups has no room for
        self._results: list[TaskResult] = []
        self._failures = 0
        self._outcome: GroupOutcome | None = None

    @property
    def number(self) -> int:
        """Its place in the plan."""
        return self.group.number

    @property
    def is_open(self) -> bool:
        """Whether some of its tasks are not made yet, or have not ended."""
        return self.state in {State.WAITING, State.MERGING}

    @property
    def all_reported(self) -> bool:
        """Whether every task ended. A group that failed or conflicts may have tasks that still run, and write."""
        return len(self._results) + self._failures == len(self._numbers)

    @property
    def unmerged_rows(self) -> int:
        """Rows of its blocks that no task has merged."""
        return sum(block.row_count for block in self.blocks) - sum(result.rows for result in self._results)

    @property
    def records(self) -> list[BlockRecord]:
        """The blocks written so far, in key order."""
        ordered = sorted(self._results, key=lambda result: result.number)
        return [record for result in ordered for record in result.records]

    @property
    def deletable(self) -> list[str]:
        """Paths of written blocks that no commit can name."""
        in_commit = self.state in {State.PUBLISHING, State.COMMITTED}
        return [] if in_commit else [record.path for record in self.records]

    def move(self, state: State, error: str | None = None) -> None:
        """Go to another state; `error` says why a group ends without a commit.

        Raises:
            InternalError: no such step exists. The state stays.
        """
        if state not in _NEXT[self.state]:
            raise InternalError(f"group {self.number} cannot become {state}: it is {self.state}")
        self.state, self.error = state, error

    def goes_on_without(self, lost: Collection[str]) -> bool:
        """Leave lost blocks out, and return whether that leaves enough to merge: two blocks, and half of the rows.

        What another writer made of the lost ones keeps its level, and is chosen again by a later plan. The price stays
        that of the whole group, which is the most that the rest takes. To be called before it is cut into tasks.
        """
        kept = tuple(block for block in self.blocks if block.path not in lost)
        rows = sum(block.stored_rows for block in kept)
        if len(kept) < 2 or rows < _LEAST_KEPT * self.group.rows:  # noqa: PLR2004
            return False
        self.blocks = kept
        self.group = replace(
            self.group,
            blocks=tuple(block.path for block in kept),
            rows=rows,
            size_bytes=sum(block.size_bytes for block in kept),
            decoded_bytes=sum(block.decoded_bytes for block in kept),
            why=f"{self.group.why}; without {len(lost)} that left the table",
        )
        self.lost = (*self.lost, *lost)
        return True

    def start(self, tasks: tuple[MergeTask, ...]) -> None:
        """Begin to merge it as `tasks`. Without tasks it is MERGED: it has no rows left."""
        self.move(State.MERGING)
        self._numbers = tuple(sorted(task.number for task in tasks))
        if not tasks:
            self.move(State.MERGED)

    def report(self, item: TaskResult | TaskFailure) -> None:
        """Add a task's outcome. After the last one the group is MERGED.

        After the first error it is FAILED, or CONFLICTED if blocks had left the table.

        Raises:
            VerificationError: its rows have changed, or are out of order.
        """
        if isinstance(item, TaskFailure):
            self._failures += 1
            if self.is_open:
                has_left = isinstance(item.error, BlocksReplacedError)
                self.move(State.CONFLICTED if has_left else State.FAILED, str(item.error))
            return
        self._results.append(item)
        if self.state is State.MERGING and self.all_reported:
            self.require_complete()
            self.move(State.MERGED)

    def require_complete(self) -> None:
        """Refuse a group if a task has no report, or rows were lost, added or put out of order.

        Raises:
            VerificationError: it is not complete.
        """
        reported = sorted(result.number for result in self._results)
        rows_in = sum(block.row_count for block in self.blocks)
        rows_out = sum(record.row_count for record in self.records)
        if tuple(reported) != self._numbers or rows_in != rows_out:
            msg = (
                f"group {self.number}: {rows_in} rows went in and {rows_out} came out of {len(self._numbers)} tasks; "
                f"{reported} tasks reported. It was not committed; this is a bug, please report it"
            )
            raise VerificationError(msg)
        require_order(self.records, self.sort, f"group {self.number}")

    def release(self) -> None:
        """Drop the records of its blocks, which are committed or deleted: with 300 columns, 0.2 MB a block."""
        self._outcome = self.outcome()
        self._results = []

    def outcome(self) -> GroupOutcome:
        """Return its outcome. A merged group counts as committed: the record is a part of the commit itself."""
        return self._outcome or GroupOutcome(
            round=self._round_number,
            number=self.number,
            why=self.group.why,
            status=COMMITTED if self.state in {State.MERGED, State.PUBLISHING} else str(self.state),
            error=self.error,
            blocks_in=len(self.group.blocks),
            blocks_out=len(self.records),
            rows=sum(block.row_count for block in self.blocks) if self.blocks else self.group.rows,
            rows_copied=sum(result.rows_copied for result in self._results),
            bytes_read=sum(result.bytes_read for result in self._results),
            bytes_written=sum(result.bytes_written for result in self._results),
            task_seconds=round(sum(result.wall_seconds for result in self._results), 6),
            cpu_seconds=round(sum(result.cpu_seconds for result in self._results), 6),
            bytes_copied=sum(result.bytes_copied for result in self._results),
            predicted=self.group.price,
        )

    def recorded(self) -> dict[str, Any]:
        """Return its entry in a commit's record: enough to compute later what reading its blocks would have cost."""
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
    """Return whether the splits of `tasks` take every row of `blocks` once, and tasks write all rows they take."""
    taken: dict[str, list[tuple[int, int]]] = {block.path: [] for block in blocks}
    for task in tasks:
        if task.rows != sum(item.stop - item.start for item in task.splits):
            return False
        for item in task.splits:
            if item.block.path not in taken:
                return False
            taken[item.block.path].append((item.start, item.stop))
    for block in blocks:
        end = 0
        for start, stop in sorted(taken[block.path]):
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
        "rows": block.stored_rows,
        "bytes": block.size_bytes,
        "level": cluster.level if cluster else 0,
        "sort_id": cluster.cluster_key_id if cluster else None,
        "min": value_for_people(cluster.min) if cluster else None,
        "max": value_for_people(cluster.max) if cluster else None,
        "exact": cluster.exact if cluster else None,
    }
