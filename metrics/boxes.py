"""How well blocks separate several columns at once: boxes, how many share a place, and what ranges of columns read.

Pure: ranks in, figures out. The *box* of a block is the product of its closed ranges [low, high] of two or more
columns, in rank space: a bound's rank is its place among all bounds of the column. For rows on a space-filling curve
the depth of key ranges says little about these: blocks that are disjoint on the curve may have boxes that cover each
other.

*Box depth* of a block: the number of boxes that contain the centre of its own box, itself included. Blocks of different
partitions do not count for each other. Blocks are weighted by their rows.

*Share read*: the share of all blocks that a range of a column meets on average, if it holds a given share of the rows
(`selectivity`) and may begin anywhere. A block holds some share of the column's rows in its range, its *width*
(`row_places`), and a range meets it with the probability min(1, width + selectivity). (A range that would pass the
last row goes on at the first, so that all places count alike.) Ranges of several columns are independent of each other:
the probabilities are multiplied.

Cost of the depths of m centres among n boxes in d columns: O((n + m) d log m), then n / 64 steps, each of O(d m) at
most; m is at most `EXACT_CENTRES`. Memory: about 35 bytes a block and column beyond the ranks (8 x 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tblctl.metrics.cuts import Floats
from tblctl.metrics.intervals import Integers, check_ranges, known_mean
from tblctl.metrics.order import distinct_within, stable_order

EXACT_CENTRES = 100_000
"""Up to this many blocks, the box depth of each is counted. Of more, samples are."""

SAMPLED_CENTRES = 20_000
"""The standard error of their mean is the spread of depths divided by 141. With a confidence of 95 %, their 99th
percentile is between the true 98.86th and 99.14th."""

SELECTIVITY = 0.01
"""The share of the rows that ranges hold for which `info` says what they read."""

Words = npt.NDArray[np.uint64]

_STEPS = 5
"""If rows are unsorted, the share read of a column is found 29 % too small without a step, 9 % with 5, 3 % with 20. But
each step puts more rows where many boxes meet: along a curve the share is found 10 % too small without a step, up to
6 % too great with 5, up to 14 % with 20 (196 and 2,500 blocks in two columns)."""

_WORD = 64  # bits
_BITS = np.tile(np.left_shift(np.uint64(1), np.arange(_WORD, dtype=np.uint64)), 2)
_NO_BITS = np.zeros(1, np.uint64)
_BATCH = 512  # words prepared at once: about a megabyte a column


@dataclass(frozen=True, kw_only=True)
class BoxDepth:
    """Box depths, weighted by rows: 0 without blocks, None if no block is measured.

    Attributes:
        mean: to four decimals, half up.
        p99: the least depth such that blocks of at most this depth have 99 % of the rows.
        max: the greatest; if sampled, of the samples.
        sampled: how many blocks were drawn, in proportion to their rows; None if all are counted.
        standard_error: of the sampled mean; None if all are counted.
    """

    mean: float | None
    p99: int | None
    max: int | None
    sampled: int | None = None
    standard_error: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class RangeShare:
    """The share of the blocks that ranges read: one range on each of `columns`, none on the others.

    Attributes:
        columns: which columns have a range.
        share: now, from 0 to 1; None if no block is measured.
        best: the least that is possible for so many blocks of equal rows that separate all columns alike, if columns
            do not depend on each other; see `best_share`. If they do, `share` may be less.
    """

    columns: tuple[str, ...]
    share: float | None
    best: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the shares as JSON values."""
        return {"columns": list(self.columns), "share": self.share, "best": self.best}


@dataclass(frozen=True, kw_only=True)
class BoxFigures:
    """How well blocks separate some columns.

    Attributes:
        columns: the columns, as text.
        total_block_count: all blocks, including the next count.
        unknown_block_count: blocks that lack a bound of a column. No other figure counts them.
        depth: box depths of the others, in any order and at any level.
        selectivity: the share of the rows that the ranges of `reads` hold.
        reads: for a range on each column alone, in order, then for ranges on all together.
    """

    columns: tuple[str, ...]
    total_block_count: int
    unknown_block_count: int
    depth: BoxDepth
    selectivity: float
    reads: tuple[RangeShare, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {
            "columns": list(self.columns),
            "total_block_count": self.total_block_count,
            "unknown_block_count": self.unknown_block_count,
            "depth": self.depth.to_dict(),
            "selectivity": self.selectivity,
            "reads": [read.to_dict() for read in self.reads],
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Boxes:
    """The boxes of n blocks in d columns.

    Attributes:
        low, high: d arrays of n ranks each; equal bounds of a column have equal ranks.
        row_count: rows of each block.
        partition: a number for each block.

    Raises:
        ValueError: the arrays differ in length, or a block's low is above its high.
    """

    low: tuple[Integers, ...]
    high: tuple[Integers, ...]
    row_count: Integers
    partition: Integers

    def __post_init__(self) -> None:
        for low, high in zip(self.low, self.high, strict=True):
            check_ranges(low, high)
        shapes = {array.shape for array in (*self.low, self.row_count, self.partition)}
        if len(shapes) > 1:
            msg = f"the arrays must be of one length; their shapes are {sorted(shapes)}"
            raise ValueError(msg)


def box_figures(
    columns: Sequence[str],
    boxes: Boxes,
    *,
    unknown: int = 0,
    selectivity: float = SELECTIVITY,
    exact: int = EXACT_CENTRES,
    samples: int = SAMPLED_CENTRES,
) -> BoxFigures:
    """Measure boxes.

    Args:
        columns: their names.
        boxes: of the blocks whose bounds are known.
        unknown: how many other blocks there are.
        selectivity: the share of the rows that ranges hold, above 0 and at most 1.
        exact: of more boxes than this, the depths of `samples` are counted, and shares are those of `exact` of them.
        samples: how many.
    """
    known = boxes.row_count.size
    names, count = tuple(columns), known + unknown
    nothing = None if count else 0.0
    best = [
        nothing if not known else best_share(known, len(names), some, selectivity) for some in (1, len(names))
    ]
    shares = [*range_shares(_thinned(boxes, exact), selectivity)] if known else [nothing] * (len(names) + 1)
    reads = [
        RangeShare(columns=(name,), share=share, best=best[0])
        for name, share in zip(names, shares[:-1], strict=True)
    ]
    return BoxFigures(
        columns=names,
        total_block_count=count,
        unknown_block_count=unknown,
        depth=_all_depths(boxes, count) if known <= exact else _sampled_depths(boxes, samples),
        selectivity=selectivity,
        reads=(*reads, RangeShare(columns=names, share=shares[-1], best=best[1])),
    )


def best_share(blocks: int, columns: int, ranged: int, selectivity: float) -> float:
    """Return the least share of the blocks that ranges on `ranged` of the `columns` can read.

    A grid of N blocks has n = N^(1/d) slices in each of d columns. A range that holds the share s of the rows meets
    s n + 1 of the n slices on average, at most all n. The share is the product over the columns of min(n, s n + 1),
    divided by N; for a column without a range s is 1. Source: the issue that asked for z-order and Hilbert keys (part
    L). For independent columns and blocks of equal rows no boxes read less for ranges on all columns.
    """
    slices: float = blocks ** (1 / columns)
    return (min(slices, selectivity * slices + 1) / slices) ** ranged


def range_shares(boxes: Boxes, selectivity: float) -> list[float]:
    """Return the share of the blocks that a range on each column reads, then what ranges on all columns read.

    There is at least one block. O(d n log n).
    """
    shares: list[float] = shares_of_groups(boxes, boxes.row_count.size, selectivity)[0].tolist()
    return shares


def shares_of_groups(boxes: Boxes, size: int, selectivity: float) -> Floats:
    """Return `range_shares` of each of g groups of `size` boxes that follow each other, bit for bit.

    Returns:
        [g, d + 1].
    """
    rows = np.maximum(boxes.row_count, 1).astype(np.float64).reshape(-1, size)
    total = rows.sum(axis=1, keepdims=True)
    shares = []
    together = np.ones(rows.shape)
    for low, high in zip(boxes.low, boxes.high, strict=True):
        begin, end = _row_places(low.reshape(rows.shape), high.reshape(rows.shape), rows)
        met = np.minimum(1.0, (end - begin) / total + selectivity)
        shares.append(met.mean(axis=1))
        together *= met
    return np.stack([*shares, together.mean(axis=1)], axis=1)


def row_places(low: Integers, high: Integers, row_count: Floats) -> tuple[Floats, Floats]:
    """Estimate for each block how many rows of all blocks come before its range, and up to its end, from ranges alone.

    First the rows of a block are spread evenly over the gaps between the bounds in its range; those of a block of one
    value are there. That finds too few rows where all blocks hold nearly everything, since most bounds then lie at the
    edges. So `_STEPS` times each block spreads its rows anew, in proportion to what all blocks put where. These are the
    first steps towards the self-consistent estimate of a distribution of which only intervals were observed (Turnbull,
    "The empirical distribution function with arbitrarily grouped, censored and truncated data", JRSS B 38, 1976).
    `benchmarks/boxes.py` compares it with counted rows. O(n log n).
    """
    begin, end = _row_places(low[None], high[None], row_count[None])
    return begin[0], end[0]


def _row_places(low: Integers, high: Integers, row_count: Floats) -> tuple[Floats, Floats]:
    """Do `row_places` for the blocks of each group: all arrays are [groups, blocks]."""
    groups, size = low.shape
    number = np.repeat(np.arange(groups), 2 * size)
    places = distinct_within(number, np.concatenate((low, high), axis=1).reshape(-1)).reshape(groups, -1)
    first, last = 2 * places[:, :size], 2 * places[:, size:]  # cells: bound, gap, bound, gap, .. bound
    count = int(last.max(initial=-2)) + 2
    alone = first == last
    rate = np.divide(row_count, (last - first) // 2, out=np.zeros(low.shape), where=~alone)
    cells = _sums(first, last, rate, count)
    cells[:, ::2] = _added(first // 2, np.where(alone, row_count, 0.0), count // 2)
    for _ in range(_STEPS):
        before = _before(cells)
        held = np.take_along_axis(before, last + 1, 1) - np.take_along_axis(before, first, 1)
        within = np.maximum(held, row_count)  # sums of floats are inexact
        cells *= _sums(first, last + 1, row_count / within, count)
    before = _before(cells)
    return np.take_along_axis(before, first, 1), np.take_along_axis(before, last + 1, 1)


def _before(cells: Floats) -> Floats:
    """Return for each group the sums of its cells before each, and of all."""
    sums = np.zeros((cells.shape[0], cells.shape[1] + 1))
    np.cumsum(cells, axis=1, out=sums[:, 1:])
    return sums


def _added(at: Integers, values: Floats, count: int) -> Floats:
    """Return for each group, and each of `count` cells, the sum of the values at it."""
    groups = at.shape[0]
    cells = at + (np.arange(groups) * count)[:, None]
    sums: Floats = np.bincount(cells.reshape(-1), values.reshape(-1), groups * count).astype(np.float64)
    return sums.reshape(groups, count)


def _sums(begin: Integers, end: Integers, values: Floats, count: int) -> Floats:
    """Return for each group, and each of `count` cells, the sum of the values whose range [begin, end) holds it."""
    steps = _added(begin, values, count) - _added(end, values, count)
    sums: Floats = np.maximum(np.cumsum(steps, axis=1), 0)
    return sums


def _all_depths(boxes: Boxes, blocks: int) -> BoxDepth:
    depths = box_depths(boxes, np.arange(boxes.row_count.size))
    if not depths.size:
        nothing = None if blocks else 0
        return BoxDepth(mean=known_mean(0, 0, blocks), p99=nothing, max=nothing)
    rows = np.maximum(boxes.row_count, 1)
    total = int(rows.sum())
    rows_of_depth = np.zeros(int(depths.max()) + 1, np.int64)
    np.add.at(rows_of_depth, depths, rows)
    return BoxDepth(
        mean=known_mean(int(depths @ rows), total, total),
        p99=int(np.searchsorted(np.cumsum(rows_of_depth), -(-99 * total // 100))),
        max=int(depths.max()),
    )


def _thinned(boxes: Boxes, most: int) -> Boxes:
    """Return at most `most` of the boxes, each with the same chance."""
    count = boxes.row_count.size
    if count <= most:
        return boxes
    chosen = _drawn(np.arange(1, count + 1), most)
    return Boxes(
        low=tuple(low[chosen] for low in boxes.low),
        high=tuple(high[chosen] for high in boxes.high),
        row_count=boxes.row_count[chosen],
        partition=boxes.partition[chosen],
    )


def _sampled_depths(boxes: Boxes, samples: int) -> BoxDepth:
    """Measure the blocks of `samples` rows.

    The mean has no bias. The stated standard error is that of as many independent draws; the true one is not greater.
    """
    drawn = _drawn(np.cumsum(np.maximum(boxes.row_count, 1)), samples)
    centres, times = np.unique(drawn, return_counts=True)
    depths = np.sort(np.repeat(box_depths(boxes, centres), times))
    return BoxDepth(
        mean=known_mean(int(depths.sum()), samples, samples),
        p99=int(depths[-(-99 * samples // 100) - 1]),
        max=int(depths[-1]),
        sampled=samples,
        standard_error=round(float(depths.std()) / samples**0.5, 4),
    )


def _drawn(ends: Integers, samples: int) -> Integers:
    """Draw one of each of `samples` equal parts of all rows; return their blocks, of which each ends before `ends`."""
    rows = (np.arange(samples) + _noise(samples)) * (int(ends[-1]) / samples)
    return np.minimum(np.searchsorted(ends, rows, side="right"), ends.size - 1)


def _noise(count: int) -> Floats:
    """Return numbers from 0 to below 1 without a pattern; always the same ones, so that figures can be compared.

    They are the first outputs of SplitMix64 with the seed 0 (Steele, Lea, Flood, "Fast splittable pseudorandom number
    generators", OOPSLA 2014).
    """
    mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    for shift, factor in ((30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    found: Floats = (mixed >> np.uint64(11)) / 2.0**53
    return found


def box_depths(boxes: Boxes, centres: Integers) -> Integers:
    """Return the box depth of each of the blocks whose numbers are `centres`, each given once.

    64 boxes are taken at a time, and one bit stands for each. In the order of the centres of one column, a box holds
    those of a range of places. So the 64 boxes that hold each place change at 128 places at most. One word for each
    centre and column tells which boxes hold it; the bits that all columns share are counted.
    """
    spans = _spans(boxes, centres)
    held = np.flatnonzero(np.logical_and.reduce([span.first < span.behind for span in spans]))
    # Boxes of neighbouring places together, by the column in which they are narrowest: then a word matters for few.
    spans.sort(key=lambda span: int((span.behind - span.first)[held].sum()))
    held = held[stable_order(spans[0].first[held])]
    line = spans[0].order
    places = [span.place[line] for span in spans[1:]]
    found = np.zeros(centres.size, np.int64)
    for start in range(0, held.size, _WORD * _BATCH):
        some = held[start : start + _WORD * _BATCH]
        batch = [_changes(span.first[some], span.behind[some]) for span in spans]
        for (at, bits), *others in zip(*batch, strict=True):
            begin, end = int(at[0]), int(at[-1])
            words = _words(at, bits, begin, end)
            for place, (other_at, other_bits) in zip(places, others, strict=True):
                words &= _words(other_at, other_bits, 0, centres.size)[place[begin:end]]
            found[begin:end] += np.bitwise_count(words)
    depths = np.empty(centres.size, np.int64)
    depths[line] = found
    return depths


@dataclass(frozen=True, kw_only=True, eq=False)
class _Span:
    """Which centres each box holds in one column, if these are put in order.

    Attributes:
        order: the numbers of the centres by their place in the order.
        place: the place of each centre.
        first: the first place that each box holds.
        behind: the place after the last one.
    """

    order: Integers
    place: Integers
    first: Integers
    behind: Integers


def _spans(boxes: Boxes, centres: Integers) -> list[_Span]:
    """Return the centres that boxes hold by each column, and by the partition if there are several."""
    lows, highs = list(boxes.low), list(boxes.high)
    if (boxes.partition != boxes.partition[:1]).any():
        lows, highs = [*lows, boxes.partition], [*highs, boxes.partition]
    spans = []
    for low, high in zip(lows, highs, strict=True):
        twice = low[centres] + high[centres]  # a centre may lie between two ranks
        order = stable_order(twice)
        place = np.empty(order.size, np.int64)
        place[order] = np.arange(order.size)
        ordered = twice[order]
        first = np.searchsorted(ordered, 2 * low, side="left")
        behind = np.searchsorted(ordered, 2 * high, side="right")
        spans.append(_Span(order=order, place=place, first=first, behind=behind))
    return spans


def _changes(first: Integers, behind: Integers) -> list[tuple[Integers, Words]]:
    """Return for every 64 boxes the places from which on others hold the centres, and those that do, as bits."""
    missing = -first.size % _WORD
    ends = np.concatenate(
        [np.pad(side, (0, missing), mode="edge").reshape(-1, _WORD) for side in (first, behind)], axis=1
    )
    bits = np.broadcast_to(_BITS, ends.shape).copy()
    if missing:
        bits[-1, _WORD - missing : _WORD] = bits[-1, 2 * _WORD - missing :] = 0
    order = np.argsort(ends, axis=1)
    at = np.take_along_axis(ends, order, axis=1)
    words = np.bitwise_xor.accumulate(np.take_along_axis(bits, order, axis=1), axis=1)
    return list(zip(at, words, strict=True))


def _words(at: Integers, bits: Words, begin: int, end: int) -> Words:
    """Return the bits of each place from `begin` to before `end`; before the first change there are none."""
    lengths = np.diff(at, prepend=begin, append=end)
    return np.repeat(np.concatenate((_NO_BITS, bits)), lengths)
