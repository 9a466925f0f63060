"""An index of blocks that keeps their overlaps and depths up to date under edits, without measuring all blocks again.

As in intervals.py a block is a closed interval of ranks. Ranks are any numbers from 0 to 2^63 - 1 in key order. Gaps
between ranks mean nothing, so a caller can leave gaps for keys that come later. The index holds numbers only. Blocks
without known bounds do not belong in it: count them separately.

*Finding the blocks that overlap a range.* A cell is a range [c 2^k, (c+1) 2^k). Each block belongs to the smallest
cell that contains it. All blocks with the same k are kept together, sorted by low and again by high. A block contains
the middle of its cell; otherwise it would fit into one half. So a block contains a point of its cell before the middle
if it begins at or before the point, and a point behind the middle if it ends at or after the point. At most 64 values
of k are looked up, about log2(n) if ranks are dense, and each lookup visits only blocks that it returns. This is an
interval tree whose nodes are computed instead of stored (Kriegel, Poetke and Seidl, "Managing intervals efficiently in
object-relational databases", VLDB 2000).

*Sum of overlaps.* All blocks overlap [a, b] but those that end before a and those that begin after b.

*Depths.* An edit changes the depth of points only inside the ranges of the blocks that it removes or adds: the edited
regions. A block's depth is the larger of its greatest depth inside and outside of these regions. If the old depth was
not reached inside, it was reached outside, and still is. If the new depth inside is no less than the old depth, the
outside does not matter. In the remaining case the block's deepest point was inside and has become less deep. Only such
blocks are measured again over their whole range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sortedcontainers import SortedList

from tblctl.metrics.intervals import Integers, check_ranges, depths, overlaps

_NOT_USED = -1

BULK_SHARE = 16
"""If an edit touches more than 1/16 of the blocks, measuring all is as fast as looking up the touched ones."""


@dataclass(frozen=True)
class _Cells:
    """The blocks whose cells have the same size, as ascending (low, block) and (high, block)."""

    by_low: Any = field(default_factory=SortedList)
    by_high: Any = field(default_factory=SortedList)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Touched:
    """Pairs of a block and a region that it overlaps: the block's number and the part of its range in the region."""

    blocks: Integers
    first: Integers
    last: Integers

    def maxima(self, blocks: Integers) -> Integers:
        """Return for each of the ascending `blocks` its greatest depth inside the regions; 0 if it overlaps none."""
        found = np.zeros(blocks.size, np.int64)
        known = np.isin(self.blocks, blocks)
        depth = depths(self.first, self.last)
        np.maximum.at(found, np.searchsorted(blocks, self.blocks[known]), depth[known])
        return found


class IntervalIndex:
    """Blocks by number, with the sums of their overlaps and depths.

    In the costs below n is the number of blocks and s the span of their ranks. Memory is about 0.5 KiB a block.
    """

    def __init__(self, low: Integers, high: Integers, *, bulk_share: int = BULK_SHARE) -> None:
        """Add blocks 0, 1, ..; O(n log n).

        Args:
            low: the rank at which each begins.
            high: the rank at which each ends.
            bulk_share: an edit that touches more than one in `bulk_share` blocks has all of them measured.

        Raises:
            ValueError: the arrays differ in length, a block's low is above its high, or a rank is negative.
        """
        _check_ranks(low, high)
        self._bulk_share = bulk_share
        self._low, self._high = low.astype(np.int64), high.astype(np.int64)
        self._depth = np.zeros(low.size, np.int64)
        self._free: list[int] = []
        self._lows, self._highs = SortedList(np.sort(low).tolist()), SortedList(np.sort(high).tolist())
        self._cells: dict[int, _Cells] = {}
        self.overlap_sum = int(overlaps(low, high).sum())
        self.depth_sum = 0
        self._put_into_cells(np.arange(low.size))
        self._measure_all()

    def __len__(self) -> int:
        return len(self._lows)

    def count(self, low: int, high: int) -> int:
        """Return how many blocks overlap [low, high]. O(log n)."""
        after = len(self) - self._lows.bisect_right(high)
        return int(len(self) - after - self._highs.bisect_left(low))

    def overlapping(self, low: int, high: int) -> Integers:
        """Return the numbers of the blocks that overlap [low, high], in no order. O(log n log s + blocks returned)."""
        return np.fromiter(self._overlapping(int(low), int(high)), np.int64)

    def add(self, low: int, high: int) -> int:
        """Add a block and return its number. The cost is that of `replace`.

        Raises:
            ValueError: low is above high, or negative.
        """
        return int(self.replace(np.empty(0, np.int64), np.array([low]), np.array([high]))[0])

    def remove(self, block: int) -> None:
        """Remove a block. The cost is that of `replace`.

        Raises:
            KeyError: there is no such block.
        """
        none = np.empty(0, np.int64)
        self.replace(np.array([block]), none, none)

    def replace(self, removed: Integers, low: Integers, high: Integers) -> Integers:
        """Remove and add blocks. Return the numbers of the added ones; numbers of removed blocks are used again.

        The sum of overlaps costs O(log n) a block. Depths cost O(k log k + m log n log s) if k blocks overlap the m
        removed and added ones, or O(n log n) in numpy if k is a large part of n.

        Raises:
            KeyError: there is no such block to remove, or it is named twice. Nothing was changed.
            ValueError: as at construction. Nothing was changed.
        """
        _check_ranks(low, high)
        self._check_numbers(removed)
        first, last = _union(
            np.concatenate((self._low[removed], low)), np.concatenate((self._high[removed], high))
        )
        touched = self._touched(first, last)
        self._take_out(removed)
        added = self._put_in(low, high)
        if touched is None:
            self._measure_all()
        else:
            self._measure_touched(touched, added)
        return added

    def _measure_touched(self, before: _Touched, added: Integers) -> None:
        """Update the depths after an edit. `before` are the pairs before the edit."""
        stayed = self._low[before.blocks] != _NOT_USED
        stayed &= ~np.isin(before.blocks, added)  # an added block may reuse the number of a removed one
        after = _Touched(
            blocks=np.concatenate((before.blocks[stayed], added)),
            first=np.concatenate((before.first[stayed], self._low[added])),
            last=np.concatenate((before.last[stayed], self._high[added])),
        )
        blocks = np.unique(after.blocks)
        old, old_inside, new_inside = self._depth[blocks], before.maxima(blocks), after.maxima(blocks)
        # Added blocks have an old depth of 0. Blocks that lie wholly in a region have no outside.
        new = np.where((new_inside < old) & (old_inside < old), old, new_inside)
        unsure = (new_inside < old) & (old_inside == old) & self._reach_out(after, blocks)
        self._set_depths(blocks[~unsure], new[~unsure])
        if unsure.any():
            self._measure_whole(blocks[unsure])

    def _reach_out(self, touched: _Touched, blocks: Integers) -> Any:
        """Return for each of the ascending `blocks` whether it reaches out of the regions."""
        whole = (touched.first == self._low[touched.blocks]) & (touched.last == self._high[touched.blocks])
        return ~np.isin(blocks, touched.blocks[whole])

    def _measure_whole(self, blocks: Integers) -> None:
        """Measure the ascending `blocks` over their whole ranges."""
        touched = self._touched(*_union(self._low[blocks], self._high[blocks]))
        if touched is None:
            self._measure_all()
        else:
            self._set_depths(blocks, touched.maxima(blocks))

    def _measure_all(self) -> None:
        used = np.flatnonzero(self._low != _NOT_USED)
        self._set_depths(used, depths(self._low[used], self._high[used]))

    def _set_depths(self, blocks: Integers, new: Integers) -> None:
        """Record depths; 0 for removed blocks."""
        self.depth_sum += int((new - self._depth[blocks]).sum())
        self._depth[blocks] = new

    def _touched(self, first: Integers, last: Integers) -> _Touched | None:
        """Return the blocks that overlap disjoint regions; None if measuring all blocks is cheaper."""
        regions = list(zip(first.tolist(), last.tolist(), strict=True))
        if sum(self.count(low, high) for low, high in regions) * self._bulk_share > len(self):
            return None
        found = [self.overlapping(low, high) for low, high in regions]
        blocks = np.concatenate((*found, first[:0]))
        sizes = [part.size for part in found]
        return _Touched(
            blocks=blocks,
            first=np.maximum(self._low[blocks], np.repeat(first, sizes)),
            last=np.minimum(self._high[blocks], np.repeat(last, sizes)),
        )

    def _overlapping(self, low: int, high: int) -> Iterator[int]:
        for bits, cells in self._cells.items():
            begin = low >> bits << bits
            inside = begin
            if low >= begin + (1 << bits >> 1):  # at or behind the middle: blocks that do not end before it
                yield from (block for _, block in cells.by_high.irange((low,), (begin + (1 << bits),)))
                inside = low + 1
            yield from (block for _, block in cells.by_low.irange((inside,), (high + 1,)))

    def _take_out(self, blocks: Integers) -> None:
        self._set_depths(blocks, np.zeros(blocks.size, np.int64))
        lows, highs, bits = (
            part.tolist() for part in (self._low[blocks], self._high[blocks], self._bits(blocks))
        )
        for block, low, high, size in zip(blocks.tolist(), lows, highs, bits, strict=True):
            self._lows.remove(low)
            self._highs.remove(high)
            self.overlap_sum -= 2 * self.count(low, high)
            self._cells[size].by_low.remove((low, block))
            self._cells[size].by_high.remove((high, block))
            if not self._cells[size].by_low:
                del self._cells[size]
            self._free.append(block)
        self._low[blocks] = _NOT_USED

    def _put_in(self, low: Integers, high: Integers) -> Integers:
        reused = [self._free.pop() for _ in range(min(low.size, len(self._free)))]
        blocks = np.concatenate((np.array(reused, np.int64), self._more_numbers(low.size - len(reused))))
        self._low[blocks], self._high[blocks] = low, high
        for begin, end in zip(low.tolist(), high.tolist(), strict=True):
            self.overlap_sum += 2 * self.count(begin, end)
            self._lows.add(begin)
            self._highs.add(end)
        self._put_into_cells(blocks)
        return blocks

    def _more_numbers(self, count: int) -> Integers:
        """Return numbers that were never used. Amortised O(1) each, since the arrays grow by half at least."""
        if count > 0:
            old = self._low.size
            grown = max(count, old // 2)
            self._low = np.concatenate((self._low, np.full(grown, _NOT_USED, np.int64)))
            self._high = np.concatenate((self._high, np.zeros(grown, np.int64)))
            self._depth = np.concatenate((self._depth, np.zeros(grown, np.int64)))
            self._free.extend(range(old + grown - 1, old + count - 1, -1))
            return np.arange(old, old + count)
        return np.empty(0, np.int64)

    def _put_into_cells(self, blocks: Integers) -> None:
        # Sorting in numpy first takes a third of the time: Python then gets its tuples in order.
        for name, ends in (("by_low", self._low), ("by_high", self._high)):
            ordered = blocks[np.argsort(ends[blocks], kind="stable")]
            for bits, members in _groups(self._bits(ordered), ordered):
                kept = getattr(self._cells.setdefault(bits, _Cells()), name)
                kept.update(zip(ends[members].tolist(), members, strict=True))

    def _bits(self, blocks: Integers) -> Integers:
        """Return the k of each block's cell: the bits of low and high from the first that differs to the last."""
        differ = self._low[blocks] ^ self._high[blocks]
        for shift in (1, 2, 4, 8, 16, 32):
            differ |= differ >> shift
        bits: Integers = np.bitwise_count(differ).astype(np.int64)
        return bits

    def _check_numbers(self, blocks: Integers) -> None:
        known = (blocks >= 0) & (blocks < self._low.size)
        known[known] = self._low[blocks[known]] != _NOT_USED
        if not known.all():
            raise KeyError(f"there is no block {blocks[int(known.argmin())]} in the index")
        if np.unique(blocks).size < blocks.size:
            raise KeyError("a block is named twice")

    def _check(self) -> None:
        """Raise AssertionError if the parts contradict each other. O(n log n)."""
        used = np.flatnonzero(self._low != _NOT_USED)
        low, high = self._low[used], self._high[used]
        assert sorted([*used.tolist(), *self._free]) == list(range(self._low.size))
        assert (list(self._lows), list(self._highs)) == (sorted(low.tolist()), sorted(high.tolist()))
        for part in (self._lows, self._highs):
            part._check()  # noqa: SLF001 - what sortedcontainers offers for this
        kept = []
        for bits, cells in self._cells.items():
            cells.by_low._check()  # noqa: SLF001
            cells.by_high._check()  # noqa: SLF001
            blocks = sorted(block for _, block in cells.by_low)
            assert blocks, "a size of cells without blocks"
            assert list(cells.by_low) == sorted((int(self._low[block]), block) for block in blocks)
            assert list(cells.by_high) == sorted((int(self._high[block]), block) for block in blocks)
            for begin, end in zip(self._low[blocks].tolist(), self._high[blocks].tolist(), strict=True):
                assert begin >> bits == end >> bits, "it fits into no cell"
                assert bits == 0 or begin >> (bits - 1) != end >> (bits - 1), "it fits into a smaller cell"
            kept += blocks
        assert sorted(kept) == used.tolist()
        depth = depths(low, high)
        assert self._depth[used].tolist() == depth.tolist()
        assert self.overlap_sum == int(overlaps(low, high).sum())
        assert self.depth_sum == int(depth.sum())


def _check_ranks(low: Integers, high: Integers) -> None:
    check_ranges(low, high)
    if (low < 0).any():
        block = int((low < 0).argmax())
        raise ValueError(f"block {block} has its low at {low[block]}; ranks in an index must not be negative")


def _union(low: Integers, high: Integers) -> tuple[Integers, Integers]:
    """Return the first and last points of the ascending, disjoint regions that the ranges cover together."""
    order = np.argsort(low, kind="stable")
    first, reach = low[order], np.maximum.accumulate(high[order])
    cuts = np.flatnonzero(first[1:] > reach[:-1])
    return first[np.concatenate(([0], cuts + 1))[: low.size]], reach[
        np.append(cuts, low.size - 1)[: low.size]
    ]


def _groups(keys: Integers, blocks: Integers) -> Iterator[tuple[int, list[int]]]:
    """Yield each key, ascending, with its blocks in their given order."""
    order = np.argsort(keys, kind="stable")
    found, begins = np.unique(keys[order], return_index=True)
    for key, members in zip(found.tolist(), np.split(blocks[order], begins[1:]), strict=False):
        yield key, members.tolist()
