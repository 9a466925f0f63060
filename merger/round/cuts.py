"""Cut a group into tasks: each writes whole blocks, and together they write what one task would.

All rows of a group have one order: by key, then by the place of their block in the group, then by their place in the
block. A task is a stretch of it that starts where a block of the output does. Where that is in each input is found
exactly, from the keys alone: a sample of them gives a bracket for every cut and the slack before it, and the keys in it
decide.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock

import numpy as np
import pyarrow as pa

from tblctl.merger.presort.decide import ORDER_BYTES, shared_piece_bytes
from tblctl.merger.presort.spill import Pieces, Scratch
from tblctl.merger.task.inputs import MOST_OPEN, READ_SHARE, slice_keys
from tblctl.merger.task.spec import MergeTask, Slice
from tblctl.tableformat.concurrency import cpu_threads, in_parallel
from tblctl.tableformat.keys.order import key_changes, sort_indices
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.cut import cut_rows, most_rows, rows_back, slack_rows
from tblctl.tableformat.port import BlockIO

KEY_SHARE = 4
"""A task's keys and order take at most this part of its memory."""

_PIECE_ROWS = 65_536
"""Keys that wait on the disk are read back so many at once."""

_KEY_SAMPLES = 8
"""So many row groups tell how large keys are."""

_FEW_BLOCKS = 256
_SMALL_BYTES = 1 << 20
"""In groups of more blocks than these, blocks of so many decoded bytes are sorted again although they are in order:
that takes 1 ms, and reading each as a stream of its own, by each task and for keys and rows apart, 5 ms every time."""

_MOST_DECODED = 8
"""A block that tasks would decode so many times, since each decodes the row groups at its ends with others, is read
once and portioned out, as if it were in another order. (That costs about as much as decoding it four times; where
Spark carries the portions, eight times.)"""

_USEFUL_BYTES = 1 << 16
"""Blocks in key order are portioned out only if pieces are at least as large: reading smaller ones takes too long."""

_SAMPLES = 65_536
_SAMPLE_BYTES = 32 << 20
"""Of the keys in a group, so many are sampled at most, and so many bytes of them."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """What the blocks that a group becomes are like, and what merging them may take.

    `same_key_rows`: no key has more rows of the group; None if that is not known.
    """

    sort: Sort
    level: int
    run_id: str
    memory_bytes: int
    same_key_rows: int | None = None


def split_group(
    io: BlockIO, group: int, slices: Sequence[Slice], output: Output, *, tasks: int
) -> tuple[MergeTask, ...]:
    """Return the tasks that merge some whole blocks.

    Args:
        io: of the version that has them.
        group: their number in the plan.
        slices: all rows of each block.
        output: what they become.
        tasks: how many are wished for; there are fewer if fewer blocks come out, and more if memory asks for it.

    Keys are read only if there is more than one task, or if more row groups may be needed at once than a task can hold;
    once, but those of large blocks in key order, which need not be kept. In memory are 12 bytes a sample, the keys of
    one block a thread, and a quarter of a task's memory of others.
    """
    slices = _with_small_ones_sorted(slices)
    rows = sum(item.stop - item.start for item in slices)
    decoded = sum(item.block.decoded_bytes for item in slices)
    most = most_rows(io.options, decoded / rows)
    sizes = cut_rows(rows, most, output.same_key_rows)
    slack = slack_rows(sizes, most)
    share = max(1, output.memory_bytes // KEY_SHARE)
    key_bytes = decoded / rows  # at most, where that is known to be enough
    if len(sizes) > 1 and (tasks > 1 or decoded + ORDER_BYTES * rows > share):
        key_bytes = _key_bytes(io, slices, output.sort)
    most_held = share / (key_bytes + ORDER_BYTES)  # rows of a task
    count = _whole_waves(rows / most_held, tasks)
    planned = list(itertools.accumulate(sizes, initial=0))
    with Scratch() as scratch:
        cutter = _Cutter(_Keys(io, slices, output.sort, scratch, most_bytes=share), key_bytes)
        firsts = _firsts(cutter, planned, tasks, count, most_held)
        ends = cutter.positions([(planned[first], slack[first - 1]) for first in firsts[1:]])
        bounds = [np.array([item.start for item in slices]), *ends, np.array([item.stop for item in slices])]
        slices = _portioned(slices, cutter, np.array(bounds), io.options.row_group_rows, output.memory_bytes)
    found = []
    for number, (first, stop) in enumerate(itertools.pairwise([*firsts, len(sizes)])):
        low, high = bounds[number], bounds[number + 1]
        cuts = np.diff([int(low.sum()), *planned[first + 1 : stop], int(high.sum())])
        found.append(
            MergeTask(
                group=group,
                number=number,
                sharing=0,
                slices=tuple(
                    replace(item, start=int(low[place]), stop=int(high[place]))
                    for place, item in enumerate(slices)
                    if low[place] < high[place]
                ),
                cuts=tuple(cuts.tolist()),
                slack=slack[first : stop - 1],
                sort=output.sort,
                level=output.level,
                run_id=output.run_id,
                memory_bytes=output.memory_bytes,
            )
        )
    sharing = sum(not task.is_streamed for task in found)
    return tuple(replace(task, sharing=sharing) for task in found)


def _with_small_ones_sorted(slices: Sequence[Slice]) -> Sequence[Slice]:
    """Return the slices; small blocks of very many are portioned out, as if they were in another order."""
    if len(slices) <= _FEW_BLOCKS:
        return slices
    return [
        replace(item, is_portioned=True) if item.block.decoded_bytes <= _SMALL_BYTES else item
        for item in slices
    ]


def _portioned(
    slices: Sequence[Slice], cutter: _Cutter, bounds: np.ndarray, group_rows: int, memory_bytes: int
) -> Sequence[Slice]:
    """Return the slices; blocks are portioned out that cannot be streamed well.

    Args:
        slices: all rows of each block.
        cutter: of these.
        bounds: how many rows of each block are before each task, and in all.
        group_rows: the most rows of a row group.
        memory_bytes: of a task.
    """
    sizes = [item.block.decoded_bytes for item in slices]
    if shared_piece_bytes(sizes, memory_bytes, tasks=len(bounds) - 1) < _USEFUL_BYTES:
        return slices
    low, high = bounds[:-1], bounds[1:]
    decoded = np.where(low < high, -(-high // group_rows) - low // group_rows, 0).sum(axis=0)
    shared = decoded >= _MOST_DECODED * -(-bounds[-1] // group_rows)
    portioned = shared | cutter.crowded(group_rows, memory_bytes // READ_SHARE)
    return [
        replace(item, is_portioned=True) if one else item
        for item, one in zip(slices, portioned.tolist(), strict=True)
    ]


def _firsts(cutter: _Cutter, planned: Sequence[int], tasks: int, count: int, most_held: float) -> list[int]:
    """Return the first block of each task, given the ranks between blocks, and that there are `count` tasks or more.

    A block counts by its part of the bytes, so that `tasks` take equally long, or by its part of the rows that a task
    can hold, if that is more.
    """
    sizes = np.diff(planned).tolist()
    if not 1 < count < len(sizes):
        return _shared_out(sizes, count)
    weights = cutter.weights(planned)
    even = max(sum(weights), 1) / tasks
    loads = [max(weight / even, size / most_held) for weight, size in zip(weights, sizes, strict=True)]
    least = 0.95 * sum(loads)  # 5 % more is no task of its own
    return _shared_out(loads, max(count, _whole_waves(least, tasks)))


def _whole_waves(least: float, tasks: int) -> int:
    """Return how many tasks there are if memory asks for so many: all processors should end at about the same time."""
    return tasks * max(1, math.ceil(least / tasks))


def _shared_out(loads: Sequence[float], tasks: int) -> list[int]:
    """Return the first block of each of `tasks` stretches of about equal load, of one each if there are fewer."""
    blocks, before = len(loads), list(itertools.accumulate(loads, initial=0.0))
    count = min(tasks, blocks)
    firsts = [0]
    for number in range(1, count):
        fewest, most = firsts[-1] + 1, blocks - count + number  # a block for each task
        even = before[-1] * number / count
        place = bisect.bisect_left(before, even, fewest, most)
        firsts.append(min(range(max(fewest, place - 1), place + 1), key=lambda at: abs(before[at] - even)))
    return firsts


def _key_bytes(io: BlockIO, slices: Sequence[Slice], sort: Sort) -> float:
    """Return about how many bytes a key takes, going by the first row groups of a few blocks, small and large ones."""
    blocks = sorted((item.block for item in slices), key=lambda block: -block.row_count)

    def first(block: Block) -> pa.Table:
        with io.open(block) as reader:
            return reader.keys([0], sort)

    chosen = blocks[:: math.ceil(len(blocks) / _KEY_SAMPLES)]
    keys = in_parallel(first, chosen, threads=max(cpu_threads(), io.opens))
    return float(sum(item.nbytes for item in keys) / sum(item.num_rows for item in keys))


class _Keys:
    """The keys of some slices, each slice's in key order.

    They are kept once they were read: in memory, up to `most_bytes`, then in the scratch folder. Parts of a block that
    is in key order can be read apart: its keys are kept only where there is room in memory.
    """

    def __init__(
        self, io: BlockIO, slices: Sequence[Slice], sort: Sort, scratch: Scratch, *, most_bytes: int
    ) -> None:
        self.slices = slices
        self.sort = sort
        self.threads = max(cpu_threads(), io.opens)
        self._io = io
        self._scratch = scratch
        self._room_bytes = most_bytes
        self._lock = Lock()
        self._kept: dict[int, pa.Table | Pieces] = {}

    def read(self, place: int) -> pa.Table:
        """Return the keys of a slice, and keep them."""
        keys = slice_keys(self._io, self.slices[place], self.sort).combine_chunks()
        with self._lock:
            fits = keys.nbytes <= self._room_bytes
            self._room_bytes -= keys.nbytes if fits else 0
        if fits:
            self._kept[place] = keys
        elif not self.slices[place].is_ordered:
            starts = range(0, keys.num_rows, _PIECE_ROWS)
            self._kept[place] = self._scratch.write(keys.slice(start, _PIECE_ROWS) for start in starts)
        return keys

    def sizes(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers of rows of a block, and the bytes of so many: by row group, where they are in key order."""
        item = self.slices[place]
        rows: Sequence[int] = (item.block.row_count,)
        sizes: Sequence[int] = (item.block.decoded_bytes,)
        if item.is_ordered:
            with self._io.open(item.block) as reader:
                rows, sizes = reader.group_rows, reader.group_bytes
        return np.cumsum([0, *rows]), np.cumsum([0, *sizes])

    def part(self, place: int, low: int, high: int) -> pa.Table:
        """Return the keys `low` to `high` of a slice that was read."""
        kept = self._kept.get(place)
        if kept is None:
            return slice_keys(self._io, replace(self.slices[place], start=low, stop=high), self.sort)
        if isinstance(kept, pa.Table):
            return kept.slice(low, high - low)
        first = low // _PIECE_ROWS
        pieces = [kept.read(piece) for piece in range(first, -(-high // _PIECE_ROWS))]
        return pa.concat_tables(pieces).slice(low - first * _PIECE_ROWS, high - low)


@dataclass(frozen=True)
class _Cutter:
    """Finds where cuts through the order of some whole blocks are in each."""

    keys: _Keys
    key_bytes: float

    def positions(self, cuts: Sequence[tuple[int, int]]) -> list[np.ndarray]:
        """Return how many rows of each block are before each of some cuts, given as planned rank and slack."""
        return [self._exact(rank, slack, self._brackets) for rank, slack in cuts]

    def weights(self, ranks: Sequence[int]) -> list[int]:
        """Return about how many bytes in memory the rows between each two ranks take, the first and last included."""
        between = [_between(*self._brackets.of(rank), rank) for rank in ranks[1:-1]]
        slices = self.keys.slices
        places = np.array([[item.start for item in slices], *between, [item.stop for item in slices]])
        sizes = in_parallel(self.keys.sizes, range(len(slices)), threads=self.keys.threads)
        before = sum(np.interp(places[:, place], *size) for place, size in enumerate(sizes))
        found: list[int] = np.maximum(np.diff(before), 0).astype(np.int64).tolist()
        return found

    @cached_property
    def _brackets(self) -> _Brackets:
        slices = self.keys.slices
        rows = sum(item.stop for item in slices)
        stride = max(1, rows // _SAMPLES, math.ceil(rows * self.key_bytes / _SAMPLE_BYTES))

        def sample(place: int) -> tuple[pa.Table, np.ndarray]:
            keys = self.keys.read(place)
            places = np.unique([0, *range(stride - 1, keys.num_rows, stride), keys.num_rows - 1])
            return keys.take(pa.array(places)).combine_chunks(), places

        samples = in_parallel(sample, range(len(slices)), threads=self.keys.threads)
        return _Brackets([keys for keys, _ in samples], [places for _, places in samples], self.keys.sort)

    def crowded(self, group_rows: int, most_bytes: int) -> np.ndarray:
        """Return which blocks not to stream, so that a row group of each that overlaps at a place fits `most_bytes`.

        Blocks in another order and those that are portioned out anyway do not count.
        """
        held = np.array(
            [
                item.block.decoded_bytes * min(1.0, group_rows / item.block.row_count)
                if item.is_streamed
                else 0.0
                for item in self.keys.slices
            ]
        )
        if held.sum() <= most_bytes and np.count_nonzero(held) <= MOST_OPEN:
            return np.zeros(len(held), dtype=bool)
        return self._brackets.crowded(held, most_bytes)

    def _exact(self, rank: int, slack: int, brackets: _Brackets) -> np.ndarray:
        """Return where the cut is that is planned behind `rank` rows: there, or up to `slack` rows before."""
        low, high = brackets.of(rank)
        if slack:  # the keys before and behind every place where it may be are needed
            low, high = brackets.of(rank - slack - 1)[0], brackets.of(rank + 1)[1]
        before = int(low.sum())
        if rank == before:
            return low
        open_ = np.flatnonzero(low < high).tolist()

        def keys_of(place: int) -> pa.Table:
            return self.keys.part(place, int(low[place]), int(high[place]))

        found = in_parallel(keys_of, open_, threads=self.keys.threads)
        keys = pa.concat_tables(found).combine_chunks()
        order = sort_indices(keys, self.keys.sort).to_numpy()
        missing = rank - before
        if slack:
            around = keys.take(pa.array(order[missing - slack - 1 : missing + 1]))
            missing -= rows_back(key_changes(around))
        source = np.repeat(open_, [item.num_rows for item in found])[order[:missing]]
        return np.asarray(low + np.bincount(source, minlength=len(low)))


def _between(low: np.ndarray, high: np.ndarray, rank: int) -> np.ndarray:
    """Return about how many rows of each input are before a cut, given bounds of that; `rank` in all.

    The middle of the bounds would not do: in 10,000 blocks with few samples each it is far from the rank near the ends.
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
        # At least, and at most, so many rows of the group are not behind each sample.
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

    def crowded(self, held_bytes: np.ndarray, most_bytes: int) -> np.ndarray:
        """Return which inputs to leave out, so that at no place `held_bytes` of those that have rows there exceed that.

        Nor may more be open than `MOST_OPEN`. First go those whose rows lie farthest apart: they are between most
        others' rows. All that are about as bad go with them.
        """
        samples = np.arange(len(self._source))
        first, last = np.full(len(held_bytes), len(samples)), np.zeros(len(held_bytes), dtype=np.int64)
        np.minimum.at(first, self._source, samples)
        np.maximum.at(last, self._source, samples)
        sparse = (last - first + 1) / np.bincount(self._source, minlength=len(held_bytes))

        def places(held: np.ndarray) -> np.ndarray:
            """Return at how many samples up to each there would be too many."""
            changes = np.zeros((2, len(samples) + 1))
            for change, sizes in zip(changes, (held, held > 0), strict=True):
                np.add.at(change, first, sizes)
                np.subtract.at(change, last + 1, sizes)
            together, count = np.cumsum(changes, axis=1)[:, :-1]
            return np.cumsum([0, *((together > most_bytes) | (count > MOST_OPEN))])

        before = places(held_bytes)
        crowded = np.flatnonzero((before[last + 1] > before[first]) & (held_bytes > 0))
        crowded = crowded[np.argsort(-sparse[crowded], kind="stable")]

        def is_enough(count: int) -> bool:
            rest = held_bytes.copy()
            rest[crowded[:count]] = 0
            return bool(places(rest)[-1] == 0)

        left_out = np.zeros(len(held_bytes), dtype=bool)
        if len(crowded):
            count = bisect.bisect_left(range(1, len(crowded)), 1, key=is_enough) + 1
            left_out[crowded[sparse[crowded] >= sparse[crowded[count - 1]] / 2]] = True
        return left_out
