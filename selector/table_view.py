"""What a policy sees of a table: arrays of numbers, one entry for each block, and which blocks it may select."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.metrics.boxes import Boxes
from tblctl.metrics.information import RankedBlocks
from tblctl.metrics.intervals import Integers, Mask
from tblctl.metrics.order import stable_order
from tblctl.metrics.partitions import TABLE
from tblctl.tableformat.model.block import CONSTANT_LEVEL, FULL_SHARE
from tblctl.tableformat.model.cluster_key import NO_SORT, Sort
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.runs import NO_RUN
from tblctl.tableformat.model.statistics import Deletions

MOST_LEVEL = 32
"""Blocks of this level or above are left alone (as Databend does), so that `--final` stops."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TableView(RankedBlocks):
    """All blocks of one version of a table, or of some of its partitions. Nobody can write to the arrays.

    Attributes (the others are those of `RankedBlocks`):
        table_id, snapshot: what the view is of; the number or id of the version.
        sort_id: of the current sort; that of `AS_LISTED` in a table without a cluster key. Its blocks are then those in
            no order, and their bounds are unknown.
        asked_sort: the sort that the policy's options name (`policy.sort_terms`), live or new; None if they name none.
        boxes_of: returns the boxes of some blocks in the columns of a curve; None if a bound is not known. It is None
            where the current sort is no curve.
        spares: returns whether a merge of some blocks by the current sort is not worth it: a policy that asks before it
            adds a group can go on to others. None where every group is (`box_test.py`).
        may_ask: is told of groups about which `spares` may be asked next, so that they are measured together: a tenth
            of the time. None where `spares` is.
        deletions_of: returns which deletes apply to the blocks. It returns None, or is None, where no rows are just
            marked deleted.
        bounds_of: returns for a column, by its dotted name, closed bounds of its values in each block, null where they
            are not known, and how many nulls there are (-1 if unknown). Raises `UnknownColumnError`. None where nobody
            knows columns.
        condition_boxes: returns the boxes of a condition, given as SQL (`predicate/boxes.py`): closed ranges of
            numbers by dotted name, values placed by a function. Raises `InvalidPredicateError` where it does not fit
            the table. None where nobody knows columns; so are the next two.
        sort_by: returns the sort by one column, or the Hilbert curve through several, by dotted names: a live one, or a
            new one. No row is read for it: a new curve has no boundaries, whoever carries out the plan makes them.
            Raises `InvalidKeyError`.
        written_levels: returns the level that each block was written with, in whatever sort: also in one that is not
            live, as all sorts beside the key of an Iceberg table. At most 0 where it is not known. None where nobody
            knows more than `level`; so is the next one.
        runs_in: returns for a sort, live or not, the number of the run of each block in its order; -1 for others.
        column_count: columns of the table; 0 if unknown.
        sorts: the live sorts by id, the current one among them; empty where no policy asks.
        sort_ids: the live sort in whose order each block is; -1 for none, or where it is not known. By default the
            current one, or none where a block is unclustered. A block in another live sort is unclustered too: it is
            not in the current order, and its level is that of its own sort.
        next_sort_id: what a new sort is to be called.
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
        pending: these are in groups of a plan that is kept for later, and may not be selected; None for none.
        listed_twice: the table names these several times, so they may not be selected; None for none.
        settled: these are in groups that are not worth it (`box_test.py`), and may not be selected; None for none.
        inexact: the bounds of these may be wider than their keys; None for none.
        run: a number for the append or merge that wrote each block: blocks of one run, unless a delete or another
            writer came between, do not overlap. -1 where it is not known.
        truncated_run: of blocks with truncated keys, the run, by a number: those of one run share at most end points.
            -1 for all others; None where there are none.
        figures_of: which blocks these are: `TABLE`, or `MATCHING` where partitions are left out that `where` excludes.

    Raises:
        ValueError: the arrays differ in length, a known block has its low above its high, a block has no rows, or
            `sort_ids` and `unclustered` contradict each other.
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
    pending: Mask | None = None
    listed_twice: Mask | None = None
    settled: Mask | None = None
    inexact: Mask | None = None
    truncated_run: Integers | None = None
    figures_of: str = TABLE
    sorts: Mapping[int, Sort] = field(default_factory=dict)
    sort_ids: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    next_sort_id: int = 0
    run: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    bounds_of: Callable[[str], tuple[pa.Array, pa.Array, Integers]] | None = None
    boxes_of: Callable[[Integers], Boxes | None] | None = None
    spares: Callable[[Integers], bool] | None = None
    may_ask: Callable[[Sequence[Integers]], None] | None = None
    condition_boxes: Callable[[str, Callable[[Any, pa.Scalar], float | None]], Sequence[Any]] | None = None
    sort_by: Callable[[tuple[str, ...]], Sort] | None = None
    written_levels: Callable[[], Integers] | None = None
    runs_in: Callable[[Sort], Integers] | None = None
    column_count: int = 0
    asked_sort: Sort | None = None
    deletions_of: Callable[[], Deletions | None] | None = None

    def __post_init__(self) -> None:
        if not self.partition.size:
            object.__setattr__(self, "partition", np.zeros(len(self), np.int64))
        if not self.run.size:
            object.__setattr__(self, "run", np.full(len(self), NO_RUN))
        if not self.sort_ids.size:
            object.__setattr__(self, "sort_ids", np.where(self.unclustered, NO_SORT, self.sort_id))
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
        in_current = self.sort_ids == self.sort_id
        if (in_current & self.unclustered).any() or (self.in_other_sort & ~self.unclustered).any():
            raise ValueError(
                "blocks in the current sort are not unclustered, and those in another live sort are"
            )

    def __len__(self) -> int:
        return len(self.low)

    def names(self, blocks: Integers) -> list[str]:
        """Return the paths of some blocks, given by their numbers."""
        names: list[str] = self.paths.take(pa.array(blocks, pa.int64())).to_pylist()
        return names

    @cached_property
    def in_other_sort(self) -> Mask:
        """The blocks in the order of a live sort beside the current one: some policy put them there."""
        found: Mask = (self.sort_ids != self.sort_id) & (self.sort_ids != NO_SORT)
        return found

    @cached_property
    def unordered(self) -> Mask:
        """The blocks whose rows are not known to be in the current order, those of one key excepted.

        Blocks of other writers are measured by their bounds, so they need not be unclustered.
        """
        found: Mask = self.unclustered | ((self.sort_ids == NO_SORT) & ~self.constant)
        return found

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
        """The blocks in the order of a live sort that were merged as often as any may be."""
        high: Mask = (self.sort_ids != NO_SORT) & (self.level >= MOST_LEVEL)
        return _read_only(high)

    @cached_property
    def separable(self) -> Mask:
        """The blocks that are too high to be selected for another reason than that a merge parts them.

        A draft may take them if it lowers what its blocks cover together (`draft.lowers_coverage`).
        """
        exact = self.too_high & ~(self.unknown | self.unclustered)
        if self.inexact is not None:
            exact &= ~self.inexact
        return _read_only(exact & self._allowed(~self.finished))

    @cached_property
    def deletions(self) -> Deletions | None:
        """What `deletions_of` returns; asked once."""
        return None if self.deletions_of is None else self.deletions_of()

    @cached_property
    def renewable(self) -> Mask:
        """The blocks to which deletes apply. A draft may take one of them alone, whatever its level, and keep that."""
        found = self.deletions
        none = np.zeros(len(self), np.bool_)
        return _read_only(none if found is None else self._allowed(found.files > 0))

    @cached_property
    def selectable(self) -> Mask:
        """The blocks that a policy may select, unclustered ones among them."""
        return self.selectable_for(self.sort_id)

    def selectable_for(self, sort_id: int) -> Mask:
        """Return the blocks that a policy may select to give them a sort; O(n) for n blocks.

        Full blocks of one key are left alone in their own sort only: by another they may have many keys.
        """
        in_own = (self.sort_ids == sort_id) & (self.level == CONSTANT_LEVEL)
        chosen: Mask = ~(self.too_high | (self.finished if sort_id == self.sort_id else in_own))
        return _read_only(self._allowed(chosen))

    def _allowed(self, blocks: Mask) -> Mask:
        """Return which of some blocks may be selected, as far as not their order and level decide."""
        chosen = blocks.copy()
        if self.restricted is not None:
            chosen &= self.restricted
        if self.failed is not None:
            chosen &= ~self.failed
        if self.pending is not None:
            chosen &= ~self.pending
        if self.listed_twice is not None:
            chosen &= ~self.listed_twice
        if self.settled is not None:
            chosen &= ~self.settled
        return chosen

    @cached_property
    def is_partitioned(self) -> bool:
        """Whether the blocks are in more than one partition."""
        return len(self) > 0 and bool((self.partition != self.partition[0]).any())

    def by_partition(self, chosen: Integers) -> Iterator[Integers]:
        """Yield `chosen` partition by partition, in order of their numbers; all at once if there is only one."""
        if not (self.is_partitioned and chosen.size):
            yield chosen
            return
        order = chosen[stable_order(self.partition[chosen])]
        yield from np.split(order, np.flatnonzero(np.diff(self.partition[order])) + 1)


def _read_only(array: np.ndarray) -> np.ndarray:
    """Return the array, its numbers shared, so that nobody can write to it."""
    found = array.view()
    found.flags.writeable = False
    return found


def others(chosen: Integers, taken: Integers) -> Integers:
    """Return the blocks of `chosen` that are not in `taken`, which are all among them."""
    if taken.size == chosen.size:
        return chosen[:0]  # so for most of many partitions, and `setdiff1d` takes 70 us
    found: Integers = np.setdiff1d(chosen, taken, assume_unique=True)
    return found


def joined(parts: Iterable[Integers]) -> Integers:
    """Return arrays of block numbers one after the other; empty for none."""
    arrays = list(parts)
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)
