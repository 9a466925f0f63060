"""What a policy sees of a table: arrays of numbers, one entry for each block, and which blocks it may select."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.metrics.information import RankedBlocks
from tblctl.metrics.intervals import Integers, Mask
from tblctl.tableformat.model.block import CONSTANT_LEVEL, FULL_SHARE
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.options import TableOptions

MOST_LEVEL = 32
"""Blocks of this level or above are left alone (as Databend does), so that `--final` stops."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TableView(RankedBlocks):
    """All blocks of one version of a table. Nobody can write to the arrays through a view.

    Attributes (the others are those of `RankedBlocks`):
        table_id, snapshot: the table and its version, by number or id.
        sort_id: the current sort's id.
        sorts: the live sorts by id, including the current one; empty if no policy asks for them.
        next_sort_id: the id of a new sort.
        table_options: how blocks are written.
        paths: a string array of pyarrow, plain, large or chunked. Only those that a plan picks become Python objects.
        row_count: at least 1 each.
        decoded_bytes: of the rows as Arrow arrays.
        same_key_rows: most rows that any key of the block has; -1 if unknown, or if ranks do not distinguish all its
            keys.
        partition: a number for each partition; always 0 in a table without partitions. No group crosses partitions,
            and depth and overlap count the blocks of one partition.
        partition_values: the partition of each number, a JSON value; None if the numbers suffice.
        restricted: only these may be selected (`where`); None for all.
        failed: these failed to merge in an earlier round and may not be selected; None for none.

    Raises:
        ValueError: the arrays differ in length, a known block has its low above its high, or a block has no rows.
    """

    table_id: str
    snapshot: int | str
    sort_id: int
    table_options: TableOptions
    paths: pa.Array
    decoded_bytes: Integers
    same_key_rows: Integers
    partition: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    partition_values: tuple[Any, ...] | None = None
    restricted: Mask | None = None
    failed: Mask | None = None
    sorts: Mapping[int, Sort] = field(default_factory=dict)
    next_sort_id: int = 0

    def __post_init__(self) -> None:
        if not self.partition.size:
            object.__setattr__(self, "partition", np.zeros(len(self), np.int64))
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        for name, array in arrays.items():
            object.__setattr__(self, name, _read_only(array))
        lengths = {name: len(array) for name, array in {"paths": self.paths, **arrays}.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ValueError(f"the arrays must be of one length; theirs are {listed}")
        crossed = ~self.unknown & (self.low > self.high)
        if crossed.any():
            raise ValueError(f"block {self.paths[int(crossed.argmax())]} has its low above its high")
        if (self.row_count < 1).any():
            raise ValueError(f"block {self.paths[int((self.row_count < 1).argmax())]} has no rows")

    def __len__(self) -> int:
        return len(self.low)

    def names(self, blocks: Integers) -> list[str]:
        """Return the paths of some blocks, given by their numbers."""
        names: list[str] = self.paths.take(pa.array(blocks, pa.int64())).to_pylist()
        return names

    @cached_property
    def finished(self) -> Mask:
        """The clustered blocks that are constant and full, or marked so."""
        options = self.table_options
        full = (self.row_count >= math.floor(FULL_SHARE * options.block_rows)) | (
            self.decoded_bytes >= FULL_SHARE * options.block_bytes
        )
        done: Mask = ~self.unclustered & ((self.level == CONSTANT_LEVEL) | (self.constant & full))
        return _read_only(done)

    @cached_property
    def too_high(self) -> Mask:
        """The clustered blocks that were merged as often as any may be."""
        high: Mask = ~self.unclustered & (self.level >= MOST_LEVEL)
        return _read_only(high)

    @cached_property
    def selectable(self) -> Mask:
        """The blocks that a policy may select, including unclustered ones."""
        chosen = ~(self.finished | self.too_high)
        if self.restricted is not None:
            chosen &= self.restricted
        if self.failed is not None:
            chosen &= ~self.failed
        return _read_only(chosen)

    @cached_property
    def is_partitioned(self) -> bool:
        """Whether the blocks are in more than one partition."""
        return len(self) > 0 and bool((self.partition != self.partition[0]).any())

    def by_partition(self, chosen: Integers) -> Iterator[Integers]:
        """Yield `chosen` partition by partition, in order of their numbers; all at once if there is only one."""
        if not (self.is_partitioned and chosen.size):
            yield chosen
            return
        order = chosen[np.argsort(self.partition[chosen], kind="stable")]
        yield from np.split(order, np.flatnonzero(np.diff(self.partition[order])) + 1)


def _read_only(array: np.ndarray) -> np.ndarray:
    """Return the array, its numbers shared, so that nobody can write to it."""
    found = array.view()
    found.flags.writeable = False
    return found


def joined(parts: Iterable[Integers]) -> Integers:
    """Return arrays of block numbers one after the other; empty for none."""
    arrays = list(parts)
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)
