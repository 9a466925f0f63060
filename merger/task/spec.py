"""The unit of work of a merge: rows of some blocks in, whole blocks out. The same values run in every engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.port import Version


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Rows `start` to `stop` of a block, counted in key order.

    That is the block's own order if it `is_ordered`; otherwise the stable order that sorting it by the key gives.
    `place` is the block's among those of its group, whose rows with equal keys keep that order. If it `is_portioned`,
    its rows are not merged as they are read, but sorted together with others' beforehand (`presort/decide.py`).
    """

    block: Block
    place: int
    start: int
    stop: int
    is_ordered: bool
    is_portioned: bool = False

    @property
    def is_streamed(self) -> bool:
        """Whether its rows are merged as they are read."""
        return self.is_ordered and not self.is_portioned


def whole_slices(version: Version, sort: Sort, blocks: Iterable[Block]) -> list[Slice]:
    """Return all rows of a group's blocks, given in its order; blocks without rows have no slice."""
    return [
        Slice(
            block=block,
            place=place,
            start=0,
            stop=block.row_count,
            is_ordered=version.is_ordered(block, sort),
        )
        for place, block in enumerate(blocks)
        if block.row_count
    ]


@dataclass(frozen=True, kw_only=True)
class MergeTask:
    """A part of a group that is merged alone.

    Attributes:
        group: its number in the plan.
        number: of the task in the group, in key order.
        sharing: how many tasks of the group take rows that are portioned out.
        slices: what to merge; rows with equal keys keep this order, and within a block their own.
        cuts: rows of each block to write as planned; their sum is that of the slices.
        slack: for each cut between two of these how many rows it may move back, to where a key ends (`model/cut.py`).
        sort: the order of the output.
        level: of the output (constant full blocks become -1 all the same).
        run_id: of the output; all tasks of a group share it.
        memory_bytes: budget.
    """

    group: int
    number: int
    sharing: int
    slices: tuple[Slice, ...]
    cuts: tuple[int, ...]
    slack: tuple[int, ...]
    sort: Sort
    level: int
    run_id: str
    memory_bytes: int

    @property
    def is_streamed(self) -> bool:
        """Whether it merges all rows as they are read."""
        return all(item.is_streamed for item in self.slices)

    @property
    def partition(self) -> str:
        """The partition of its blocks, and of its output."""
        return self.slices[0].block.partition

    @property
    def rows(self) -> int:
        """Rows that it merges."""
        return sum(self.cuts)

    @property
    def size_bytes(self) -> int:
        """About how many bytes of files it reads."""
        return sum(
            item.block.size_bytes * (item.stop - item.start) // item.block.row_count for item in self.slices
        )


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A task that is done: its blocks are stored and verified, not committed. `rows_copied`: undecoded."""

    group: int
    number: int
    records: tuple[BlockRecord, ...]
    rows: int
    rows_copied: int
    bytes_read: int
    bytes_written: int
    wall_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, kw_only=True)
class TaskFailure:
    """A task that failed; nothing that it wrote counts."""

    group: int
    number: int
    error: TblctlError
