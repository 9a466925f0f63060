"""A table of keys as arrays: fast enough for a thousand appends of a hundred blocks.

Unlike `simulate.SimulatedTable`, which tests ask what happens to each key, it has one key column of floats, rows of one
width, no partitions, and only blocks in order with known bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from tblctl.metrics.intervals import Integers, Mask, depths
from tblctl.selector.draft import Draft
from tblctl.selector.table_view import TableView
from tblctl.selector.traces.events import BLOCK_ROWS, Event, Keys
from tblctl.tableformat.model.block import CONSTANT_LEVEL, FULL_SHARE
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.cut import cut_rows
from tblctl.tableformat.model.options import TableOptions

ROW_BYTES = 8

SORT = Sort(id=1, terms=(Term(column_id=1),))

Cut: TypeAlias = Callable[[int], Sequence[int]]
"""Given a number of rows, the sizes of the blocks that they are cut into."""


def equal_parts(rows: int) -> tuple[int, ...]:
    """Cut rows into the fewest blocks, of equal size. The traces are defined so."""
    count = -(-rows // BLOCK_ROWS)
    size, more = divmod(rows, count)
    return (size + 1,) * more + (size,) * (count - more)


def as_tables_cut(rows: int) -> tuple[int, ...]:
    """Cut rows as real tables do, where no two rows have one key."""
    return cut_rows(rows, BLOCK_ROWS)


class KeyTable:
    """Blocks in the order in which they were written; every array has one entry a block.

    Attributes:
        low, high: the smallest and largest key.
        rows: the number of keys.
        level: how often they were merged; -1 for a full block of one key, which policies and measures leave out.
        run: the append or merge that wrote it.
        keys: ascending.
    """

    def __init__(self, cut: Cut = equal_parts) -> None:
        self.low = self.high = np.empty(0)
        self.rows = self.level = self.run = np.empty(0, np.int64)
        self.keys: list[Keys] = []
        self._cut = cut
        self._runs = 0
        self._names = pa.array([], pa.string())

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def is_measured(self) -> Mask:
        """The blocks that measures count."""
        found: Mask = self.level != CONSTANT_LEVEL
        return found

    def ingest(self, event: Event) -> int:
        """Delete and append, and return how many rows arrived."""
        if event.delete_below is not None:
            self._delete(event.delete_below)
        arrived = 0
        for keys in event.runs:
            self._add([(keys, 0)])
            arrived += keys.size
        return arrived

    def merge(self, drafts: Iterable[Draft]) -> int:
        """Merge each group by itself, and return how many rows were rewritten."""
        groups = list(drafts)
        taken = np.concatenate([draft.blocks for draft in groups])
        merged = [
            (np.sort(np.concatenate([self.keys[at] for at in draft.blocks.tolist()]), kind="stable"), draft)
            for draft in groups
        ]
        self._keep(np.delete(np.arange(len(self)), taken))
        self._add([(keys, draft.output_level) for keys, draft in merged])
        return sum(keys.size for keys, _ in merged)

    def ranks(self) -> tuple[Integers, Integers]:
        """Return the bounds as dense ranks."""
        found = np.unique(np.concatenate((self.low, self.high)), return_inverse=True)[1]
        return found[: len(self)], found[len(self) :]

    def view(self) -> TableView:
        """Return the table as policies see it. A block's path is its place. O(n log n)."""
        count = len(self)
        if len(self._names) < count:
            self._names = pa.array([f"{place:09d}" for place in range(2 * count)], pa.string())
        low, high = self.ranks()
        return TableView(
            table_id="trace",
            snapshot=1,
            sort_id=SORT.id,
            sorts={SORT.id: SORT},
            next_sort_id=SORT.id + 1,
            table_options=TableOptions(block_rows=BLOCK_ROWS),
            paths=self._names.slice(0, count),
            low=low,
            high=high,
            level=self.level,
            run=self.run,
            row_count=self.rows,
            size_bytes=self.rows * ROW_BYTES,
            decoded_bytes=self.rows * ROW_BYTES,
            same_key_rows=np.full(count, -1),
            constant=low == high,
            unclustered=np.zeros(count, np.bool_),
            unknown=np.zeros(count, np.bool_),
        )

    def block_depths(self) -> Integers:
        """Return the closed depth of every measured block."""
        low, high = self.ranks()
        return depths(low[self.is_measured], high[self.is_measured])

    def _add(self, runs: Sequence[tuple[Keys, int]]) -> None:
        parts: list[Keys] = []
        levels: list[int] = []
        numbers: list[int] = []
        for keys, level in runs:
            ends = np.cumsum(self._cut(keys.size))[:-1]
            blocks = np.split(keys, ends)
            parts += blocks
            levels += [level] * len(blocks)
            numbers += [self._runs] * len(blocks)
            self._runs += 1
        low, high = (np.array([keys[end] for keys in parts]) for end in (0, -1))
        rows = np.array([keys.size for keys in parts], np.int64)
        constant = (low == high) & (rows >= FULL_SHARE * BLOCK_ROWS)
        self.keys += parts
        self.low, self.high = np.concatenate((self.low, low)), np.concatenate((self.high, high))
        self.rows = np.concatenate((self.rows, rows))
        self.level = np.concatenate((self.level, np.where(constant, CONSTANT_LEVEL, levels)))
        self.run = np.concatenate((self.run, np.array(numbers, np.int64)))

    def _keep(self, kept: Integers) -> None:
        self.low, self.high, self.rows = self.low[kept], self.high[kept], self.rows[kept]
        self.level, self.run = self.level[kept], self.run[kept]
        self.keys = [self.keys[at] for at in kept.tolist()]

    def _delete(self, below: float) -> None:
        """Delete rows: blocks below vanish, blocks across are trimmed, which no rewrite is charged for."""
        for at in np.flatnonzero((self.low < below) & (self.high >= below)).tolist():
            keys = self.keys[at]
            self.keys[at] = kept = keys[np.searchsorted(keys, below) :]
            self.low[at], self.rows[at] = kept[0], kept.size
        self._keep(np.flatnonzero(self.high >= below))
