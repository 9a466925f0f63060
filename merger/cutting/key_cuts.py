"""Find the place of a cut in each block of a group, from the blocks' keys alone.

All rows of a group have one order: by key, then by the place of their block in the group, then by their place in the
block. A sample of the keys gives a bracket for every cut and the slack before it. The keys in the bracket decide.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
import pyarrow as pa

from tblctl.merger.presort.decide import Spans, Thresholds
from tblctl.merger.presort.spill import Pieces, SpillFolder
from tblctl.merger.task.block_input import keys_in_order
from tblctl.merger.task.spec import ORDER_BYTES, InputSplit
from tblctl.tableformat.concurrency import cpu_threads, in_parallel
from tblctl.tableformat.keys.order import is_sorted, key_changes, sort_indices
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.cut import rows_back
from tblctl.tableformat.model.tree import MOST_LEAVES, TREE
from tblctl.tableformat.once import once
from tblctl.tableformat.port import BlockIO

_KEY_SAMPLES = 8
"""Row groups that are read to estimate the size of keys."""


@dataclass(frozen=True, kw_only=True)
class KeyEstimate:
    """What is expected of the keys of a group.

    Attributes:
        key_bytes: of a key, about.
        may_be_sorted: blocks that nobody knows to be in key order may be so all the same.
    """

    key_bytes: float
    may_be_sorted: bool


def estimate_keys(io: BlockIO, splits: Sequence[InputSplit], sort: Sort) -> KeyEstimate:
    """Return what to expect of the keys, from the first row groups of a few small and large blocks."""
    splits = sorted(splits, key=lambda item: -item.block.row_count)

    def first(split: InputSplit) -> pa.Table:
        with io.open(split.block) as reader:
            return reader.keys([0], sort)

    chosen = splits[:: math.ceil(len(splits) / _KEY_SAMPLES)]
    keys = in_parallel(first, chosen, threads=max(cpu_threads(), io.opens))
    unknown = [found for item, found in zip(chosen, keys, strict=True) if not item.is_ordered]
    return KeyEstimate(
        key_bytes=float(sum(item.nbytes for item in keys) / sum(item.num_rows for item in keys)),
        may_be_sorted=bool(unknown) and all(is_sorted(found, sort) for found in unknown),
    )


class SplitKeys:
    """The keys of some splits, in key order within each split. Each block is read once if memory allows.

    Some blocks that nobody knows to be in key order are so all the same: `splits` says it once they were read.

    Keys are kept in memory, up to `most_bytes`. Further keys of blocks in another order go to the spill folder. Further
    keys of blocks in key order are dropped: parts of them can be read again.

    Args:
        io: of the table.
        splits: all rows of each block.
        sort: the order.
        folder: for keys that memory has no room for.
        most_bytes: of keys in memory.
        reading_bytes: of keys that are read and sorted at the same time. Blocks that have more than a thread's share
            are read one at a time.
        key_bytes: of a key, about.
        piece_rows: keys are read back from the spill folder this many at a time.
    """

    def __init__(
        self,
        io: BlockIO,
        splits: Sequence[InputSplit],
        sort: Sort,
        folder: SpillFolder,
        *,
        most_bytes: int,
        reading_bytes: int,
        key_bytes: float,
        piece_rows: int,
    ) -> None:
        self.splits = list(splits)
        self.sort = sort
        self.threads = max(cpu_threads(), io.opens)
        self._large_rows = reading_bytes / self.threads / (key_bytes + ORDER_BYTES)
        self._reading_large = Lock()
        self._io = io
        self._folder = folder
        self._room_bytes = most_bytes
        self._piece_rows = piece_rows
        self._lock = Lock()
        self._kept: dict[int, pa.Table | Pieces] = {}
        self._row_groups: dict[int, tuple[Sequence[int], Sequence[int]]] = {}
        self._leaf_rows: dict[int, np.ndarray] = {}

    def read(self, place: int) -> pa.Table:
        """Return the keys of a split, and keep them."""
        split = self.splits[place]
        one_by_one = self._reading_large if split.rows > self._large_rows else contextlib.nullcontext()
        with one_by_one, self._io.open(split.block) as reader:
            keys, is_ordered = keys_in_order(reader, split, self.sort)
            keys = keys.combine_chunks()
            split = self.splits[place] = replace(split, is_ordered=is_ordered)
            if is_ordered:
                self._row_groups[place] = reader.group_rows, reader.group_bytes
        if self.sort.kind == TREE:
            self._leaf_rows[place] = np.bincount(
                keys.column(0).to_numpy().astype(np.int64), minlength=MOST_LEAVES
            )
        with self._lock:
            fits = keys.nbytes <= self._room_bytes
            self._room_bytes -= keys.nbytes if fits else 0
        if fits:
            self._kept[place] = keys
        elif not split.is_ordered:
            starts = range(0, keys.num_rows, self._piece_rows)
            self._kept[place] = self._folder.write(keys.slice(start, self._piece_rows) for start in starts)
        return keys

    def find_order(self) -> None:
        """Read the keys of splits that nobody knows to be in key order: `splits` then says whether they are."""
        unknown = [place for place, split in enumerate(self.splits) if not split.is_ordered]
        in_parallel(self.read, unknown, threads=self.threads)

    def sizes(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Return points of the curve from a split's rows to their bytes: by row group, if it is in key order."""
        block = self.splits[place].block
        rows, sizes = self._row_groups.get(place, ([block.row_count], [block.decoded_bytes]))
        return np.cumsum([0, *rows]), np.cumsum([0, *sizes])

    def leaf_rows(self) -> list[int]:
        """Return how many rows of all splits are in each leaf of a tree, once all were read."""
        found: list[int] = np.sum(list(self._leaf_rows.values()), axis=0).tolist()
        return found

    def group_rows(self, place: int, usual: int) -> int:
        """Return the rows of the largest row group of a split in key order; `usual` if it was not read."""
        rows, _ = self._row_groups.get(place, ([usual], []))
        return max(rows, default=usual)

    def part(self, place: int, low: int, high: int) -> pa.Table:
        """Return the keys `low` to `high` of a split that was read."""
        kept = self._kept.get(place)
        if kept is None:
            split = replace(self.splits[place], start=low, stop=high)
            with self._io.open(split.block) as reader:
                return keys_in_order(reader, split, self.sort)[0]
        if isinstance(kept, pa.Table):
            return kept.slice(low, high - low)
        first = low // self._piece_rows
        pieces = [kept.read(piece) for piece in range(first, -(-high // self._piece_rows))]
        return pa.concat_tables(pieces).slice(low - first * self._piece_rows, high - low)


@dataclass(frozen=True)
class KeyCuts:
    """Finds where cuts through the order of some whole blocks are in each. Reads keys when first asked."""

    keys: SplitKeys
    key_bytes: float
    thresholds: Thresholds

    def rows_before(self, rank: int, slack: int) -> np.ndarray:
        """Return how many rows of each block lie before a cut that is planned after `rank` rows in all.

        The cut moves up to `slack` rows back, to where a key ends.
        """
        low, high = self._brackets.of(rank)
        if slack:  # the keys before and after every possible place of the cut are needed
            low, high = self._brackets.of(rank - slack - 1)[0], self._brackets.of(rank + 1)[1]
        before = int(low.sum())
        if rank == before:
            return low
        places = np.flatnonzero(low < high).tolist()

        def keys_of(place: int) -> pa.Table:
            return self.keys.part(place, int(low[place]), int(high[place]))

        found = in_parallel(keys_of, places, threads=self.keys.threads)
        keys = pa.concat_tables(found).combine_chunks()
        order = sort_indices(keys, self.keys.sort).to_numpy()
        missing = rank - before
        if slack:
            around = keys.take(pa.array(order[missing - slack - 1 : missing + 1]))
            missing -= rows_back(key_changes(around))
        source = np.repeat(places, [item.num_rows for item in found])[order[:missing]]
        return np.asarray(low + np.bincount(source, minlength=len(low)))

    def bytes_between(self, ranks: Sequence[int]) -> list[int]:
        """Return about how many bytes in memory the rows between each two ranks take, the first and last included."""
        between = [_interpolated(*self._brackets.of(rank), rank) for rank in ranks[1:-1]]
        splits = self.keys.splits
        places = np.array([[item.start for item in splits], *between, [item.stop for item in splits]])
        sizes = [self.keys.sizes(place) for place in range(len(splits))]
        before = sum(np.interp(places[:, place], *size) for place, size in enumerate(sizes))
        found: list[int] = np.maximum(np.diff(before), 0).astype(np.int64).tolist()
        return found

    def leaf_rows(self) -> list[int]:
        """Return how many rows are in each leaf of a tree."""
        _ = self._brackets
        return self.keys.leaf_rows()

    def spans(self) -> Spans:
        """Return where in the key order each block has rows."""
        return self._brackets.spans()

    @once
    def _brackets(self) -> _Brackets:
        splits = self.keys.splits
        rows = sum(item.stop for item in splits)
        limits = self.thresholds
        stride = max(
            1, rows // limits.sampled_keys, math.ceil(rows * self.key_bytes / limits.sampled_key_bytes)
        )

        def sample(place: int) -> tuple[pa.Table, np.ndarray]:
            keys = self.keys.read(place)
            places = np.unique([0, *range(stride - 1, keys.num_rows, stride), keys.num_rows - 1])
            return keys.take(pa.array(places)).combine_chunks(), places

        samples = in_parallel(sample, range(len(splits)), threads=self.keys.threads)
        return _Brackets([keys for keys, _ in samples], [places for _, places in samples], self.keys.sort)


def _interpolated(low: np.ndarray, high: np.ndarray, rank: int) -> np.ndarray:
    """Return about how many rows of each input are before a cut, given bounds of these numbers; their sum is `rank`.

    The middle of the bounds is not used: for 10,000 blocks with few samples it is far from the rank near the ends.
    """
    share = (rank - low.sum()) / max(int((high - low).sum()), 1)
    return np.asarray(low + (high - low) * share)


class _Brackets:
    """Bounds for where a cut is in each input, from sorted samples of their keys."""

    def __init__(self, keys: Sequence[pa.Table], places: Sequence[np.ndarray], sort: Sort) -> None:
        self._totals = np.array([item[-1] + 1 for item in places])  # the last row of each input is a sample
        place = np.concatenate(places)
        source = np.repeat(np.arange(len(places)), [len(item) for item in places])
        before = np.concatenate([np.append(-1, item[:-1]) for item in places])
        after = np.concatenate([np.append(item[1:], item[-1] + 1) for item in places])
        # Equal keys stay in the order of inputs and places: that is the order of the group.
        order = sort_indices(pa.concat_tables(keys).combine_chunks(), sort).to_numpy()
        self._source, self._place, self._after = source[order], place[order], after[order]
        # How many rows of the group are not behind each sample, at least and at most.
        self._least = np.cumsum(place[order] - before[order])
        self._most = sum(int(item[0]) for item in places) + np.cumsum(after[order] - place[order])

    def of(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Return for each input two numbers of rows, between which the cut behind `rank` rows is."""
        low = np.zeros(len(self._totals), dtype=np.int64)
        last = int(np.searchsorted(self._most, rank, side="right"))
        np.maximum.at(low, self._source[:last], self._place[:last] + 1)
        high = self._totals.copy()
        stop = int(np.searchsorted(self._least, rank, side="left")) + 1
        later = slice(stop, None)
        np.minimum.at(high, self._source[later], self._place[later])
        return low, high

    def spans(self) -> Spans:
        """Return where each input has its samples."""
        samples = np.arange(len(self._source))
        inputs = len(self._totals)
        first, last = np.full(inputs, len(samples)), np.zeros(inputs, dtype=np.int64)
        np.minimum.at(first, self._source, samples)
        np.maximum.at(last, self._source, samples)
        return Spans(first=first, last=last, own=np.bincount(self._source, minlength=inputs))
