"""Merge tasks and their outcomes: frozen values, the same in every engine."""

from __future__ import annotations

from dataclasses import dataclass

from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.record import BlockRecord

ORDER_BYTES = 24
"""Memory for ordering a row, besides its key."""


@dataclass(frozen=True, kw_only=True)
class InputSplit:
    """Rows `start` to `stop` of a block, counted in key order.

    Attributes:
        block: the block.
        place: the block's place in its group. Rows with equal keys keep this order in the output.
        start, stop: the rows. For a block that is not in key order they count in its stably sorted order.
        is_ordered: the block is in key order.
        is_presorted: its rows are sorted with others' before tasks merge them, although the block is in key order.
    """

    block: Block
    place: int
    start: int
    stop: int
    is_ordered: bool
    is_presorted: bool = False

    @property
    def is_streamed(self) -> bool:
        """Whether its rows are merged as they are read."""
        return self.is_ordered and not self.is_presorted

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.stop - self.start

    @property
    def size_bytes(self) -> int:
        """Approximate bytes of the rows in the block's file."""
        return self.block.size_bytes * self.rows // self.block.row_count

    @property
    def sorting_bytes(self) -> int:
        """Approximate memory of the decoded rows and their order."""
        return self.block.decoded_bytes * self.rows // self.block.row_count + ORDER_BYTES * self.rows


@dataclass(frozen=True, kw_only=True)
class MergeTask:
    """Rows of a group that are merged alone, into whole blocks.

    Attributes:
        group: its number in the plan.
        number: of the task in the group, in key order.
        presorted_tasks: how many tasks of the group take presorted rows.
        splits: the rows to merge; rows with equal keys keep this order, and within a block their own.
        cuts: planned rows of each block to write; their sum is that of the splits.
        slack: for each cut between two blocks, how many rows it may move back, to where a key ends (`model/cut.py`).
        sort: the order of the output.
        level: of the output (constant full blocks become -1 all the same).
        run_id: of the output; all tasks of a group share it.
        memory_bytes: budget.
    """

    group: int
    number: int
    presorted_tasks: int
    splits: tuple[InputSplit, ...]
    cuts: tuple[int, ...]
    slack: tuple[int, ...]
    sort: Sort
    level: int
    run_id: str
    memory_bytes: int

    @property
    def title(self) -> str:
        """Its name in errors."""
        return f"group {self.group}, task {self.number}"

    @property
    def is_streamed(self) -> bool:
        """Whether it merges all rows as they are read."""
        return all(item.is_streamed for item in self.splits)

    @property
    def partition(self) -> str:
        """The partition of its blocks, and of its output."""
        return self.splits[0].block.partition

    @property
    def rows(self) -> int:
        """Rows that it merges."""
        return sum(self.cuts)

    @property
    def size_bytes(self) -> int:
        """Approximate bytes of files that it reads."""
        return sum(item.size_bytes for item in self.splits)

    @property
    def presorted_bytes(self) -> int:
        """Approximate memory of its presorted rows and their order."""
        return sum(item.sorting_bytes for item in self.splits if not item.is_streamed)


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A finished task: its blocks are stored and verified, not committed.

    `rows_copied` and `bytes_copied`, of the stored bytes that were read, were copied undecoded.
    """

    group: int
    number: int
    records: tuple[BlockRecord, ...]
    rows: int
    rows_copied: int
    bytes_read: int
    bytes_written: int
    wall_seconds: float
    cpu_seconds: float
    bytes_copied: int = 0


@dataclass(frozen=True, kw_only=True)
class TaskFailure:
    """A failed task. Its blocks do not count."""

    group: int
    number: int
    error: TblctlError
