"""Cut a group into tasks: each writes whole blocks, and together they write what one task would.

All rows of a group have one order: by key, then by the place of their block in the group, then by their place in the
block. A task is a stretch of it that starts where a block of the output does. Where that is in each input is found
exactly, from the keys alone: a sample of them gives a bracket for every cut and the slack before it, and the keys in it
decide.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tblctl.merger.inputs import slice_keys
from tblctl.merger.task import MergeTask, Slice
from tblctl.tableformat.concurrency import cpu_threads, in_parallel
from tblctl.tableformat.keys import key_changes, sort_indices
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.cut import cut_rows, most_rows, rows_back, slack_rows
from tblctl.tableformat.port import BlockIO

KEY_SHARE = 4
"""A task's keys and order take at most this part of its memory."""

ORDER_BYTES = 24
"""What ordering takes a row beside its key: see `run.py`."""

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

    Keys are read only if there is more than one task: 12 bytes a sample, and the keys of one block a thread.
    """
    rows = sum(item.stop - item.start for item in slices)
    decoded = sum(item.block.decoded_bytes for item in slices)
    most = most_rows(io.options, decoded / rows)
    sizes = cut_rows(rows, most, output.same_key_rows)
    slack = slack_rows(sizes, most)
    share = max(1, output.memory_bytes // KEY_SHARE)
    key_bytes = decoded / rows  # at most, where that is known to be enough
    if len(sizes) > 1 and (tasks > 1 or decoded + ORDER_BYTES * rows > share):
        key_bytes = _key_bytes(io, slices, output.sort)
    firsts = _shared_out(len(sizes), max(tasks, math.ceil(rows * (key_bytes + ORDER_BYTES) / share)))
    planned = list(itertools.accumulate(sizes, initial=0))
    between = [(planned[first], slack[first - 1]) for first in firsts[1:]]
    ends = _Cutter(io, slices, output.sort, key_bytes).positions(between) if between else []
    bounds = [np.array([item.start for item in slices]), *ends, np.array([item.stop for item in slices])]
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
    sharing = sum(not task.is_ordered for task in found)
    return tuple(replace(task, sharing=sharing) for task in found)


def _shared_out(blocks: int, tasks: int) -> list[int]:
    """Return the first block of each of `tasks` stretches of about equally many, of one each if there are fewer."""
    count = min(tasks, blocks)
    return [blocks * number // count for number in range(count)]


def _key_bytes(io: BlockIO, slices: Sequence[Slice], sort: Sort) -> float:
    """Return about how many bytes a key takes, going by the first row group of the largest block."""
    largest = max((item.block for item in slices), key=lambda block: block.row_count)
    with io.open(largest) as reader:
        keys = reader.keys([0], sort)
    return float(keys.nbytes / keys.num_rows)


@dataclass(frozen=True)
class _Cutter:
    """Finds where cuts through the order of some whole blocks are in each."""

    io: BlockIO
    slices: Sequence[Slice]
    sort: Sort
    key_bytes: float

    def positions(self, cuts: Sequence[tuple[int, int]]) -> list[np.ndarray]:
        """Return how many rows of each block are before each of some cuts, given as planned rank and slack."""
        brackets = self._brackets()
        return [self._exact(rank, slack, brackets) for rank, slack in cuts]

    def _brackets(self) -> _Brackets:
        rows = sum(item.stop for item in self.slices)
        stride = max(1, rows // _SAMPLES, math.ceil(rows * self.key_bytes / _SAMPLE_BYTES))

        def sample(item: Slice) -> tuple[pa.Table, np.ndarray]:
            keys = slice_keys(self.io, item, self.sort)
            places = np.unique(np.append(np.arange(stride - 1, keys.num_rows, stride), keys.num_rows - 1))
            return keys.take(pa.array(places)).combine_chunks(), places

        samples = in_parallel(sample, self.slices, threads=max(cpu_threads(), self.io.opens))
        return _Brackets([keys for keys, _ in samples], [places for _, places in samples], self.sort)

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
            part = replace(self.slices[place], start=int(low[place]), stop=int(high[place]))
            return slice_keys(self.io, part, self.sort)

        found = in_parallel(keys_of, open_, threads=max(cpu_threads(), self.io.opens))
        keys = pa.concat_tables(found).combine_chunks()
        order = sort_indices(keys, self.sort).to_numpy()
        missing = rank - before
        if slack:
            around = keys.take(pa.array(order[missing - slack - 1 : missing + 1]))
            missing -= rows_back(key_changes(around))
        source = np.repeat(open_, [item.num_rows for item in found])[order[:missing]]
        return np.asarray(low + np.bincount(source, minlength=len(low)))


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
