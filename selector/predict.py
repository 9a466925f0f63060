"""What overlap and depth will be once a plan is carried out: a guess, and bounds that no keys can break.

A merge of n rows cuts [0, n) into m pieces of ascending, disjoint row positions, each of at most as many rows as fit
on average (`cut.py`). A piece whose rows turn out larger than `block_bytes` (B) becomes several blocks, each filled
until the next row does not fit.

- So any two blocks of a piece that follow each other exceed B together, however large a row is. A piece of e + 1 blocks
  has ceil(e / 2) such pairs apart from each other, so more than ceil(e / 2) B bytes; and a merge of D bytes, into
  whichever pieces they fall, has at most 2 (ceil(D / B) - 1) *extra* blocks: none if it has at most B bytes. So has a
  piece, D being what the inputs have that it may meet.
- D is that of the inputs and a quarter more: what rows take depends a little on what is written with them (offsets and
  validity of every window, dictionaries). A column added since, or widened, may make it more.

What is not known is where the keys lie between an input's bounds. Two keys can be bounded at a position q of the sorted
rows, though:

    key(q) <= the smallest x such that the inputs with high <= x have more than q rows in all
    key(q) >= the largest x such that the inputs with low < x have at most q rows in all

So each piece lies within an *outer* interval and contains an *inner* one (or nothing that is certain). Overlaps and
depths only grow when intervals do: measuring the blocks that stay together with the outer intervals gives upper bounds,
and with the inner ones, lower bounds. A block without an inner interval still has all its depth at one point at least,
so at least the smallest depth over the outer interval; so has every block of a merge that may have extra ones, since
what a piece covers, its blocks need not. An average with extra blocks is at most, or least, that without them and any
number of the highest, or lowest, contributions of one.

The upper bound is wide where many inputs overlap: all of them may consist of one key but for their ends, and then the
outputs do too, and overlap as before. Only statistics of how often keys repeat could tell. So the guess is apart:

- The rows of an input are taken as spread evenly over the ranks between its bounds, and as of one width; the cuts
  follow from that.
- Whether two neighbours of a merge share the key at the cut decides between depth 1 and 2 of the result. It is guessed
  from how often ends of blocks coincide in the table: E ends with C coinciding pairs are drawn from about
  V = E^2 / 2C possible keys. Of these, N rows hold V (1 - exp(-N / V)), and so many of N places to cut part two keys.
  No coincidence: all keys are taken to differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tblctl.metrics.intervals import overlaps_and_depths, range_maxima, rounded_mean
from tblctl.selector.blocks import Candidates, Integers, Mask, joined
from tblctl.selector.draft import Draft, output_counts
from tblctl.selector.plan import Prediction, Range
from tblctl.tableformat.model.block import FULL_SHARE
from tblctl.tableformat.model.options import TableOptions

Floats = npt.NDArray[np.float64]

_DENSE_SPAN = 8
"""Ranks that span more than so many times the number of blocks are renumbered first."""

_GROWTH = 1.25
"""Rows that are merged take at most so many times the bytes that they took."""

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The prediction for a table, and for each group the average depth of its inputs now and of its outputs then."""

    prediction: Prediction
    group_depth_before: tuple[float | None, ...]
    group_depth_after: tuple[float, ...]


def forecast(blocks: Candidates, drafts: Sequence[Draft], options: TableOptions) -> Forecast:
    """Predict what `drafts`, which share no block, make of the table. O(n log n) for n blocks and outputs, in numpy."""
    measured = ~(blocks.unclustered | blocks.unknown)
    axis = _axis(blocks)
    low, high = axis.low[measured], axis.high[measured]
    overlap, depth = overlaps_and_depths(low, high)
    before = _Sums(overlaps=int(overlap.sum()), depths=int(depth.sum()), count=low.size)
    if not drafts:
        return Forecast(
            prediction=_prediction(before, before, before, before),
            group_depth_before=(),
            group_depth_after=(),
        )
    work = _Work.of(axis, blocks, drafts)
    overlap_and_depth = np.zeros((2, len(blocks)), np.int64)
    overlap_and_depth[:, measured] = overlap, depth
    stays = measured.copy()
    stays[work.blocks] = False
    rest = _Rest.of(axis, np.flatnonzero(stays), work, overlap_and_depth)
    tiles = _tiles(work, options)
    upper = _upper(rest, tiles)
    lower = _lower(rest, tiles, axis.size)
    guess, tile_depth = _guess(rest, work, tiles, _shared_cuts(axis, blocks))
    every_depth = np.where(measured, overlap_and_depth[1], -1)
    return Forecast(
        prediction=_prediction(before, lower, guess, upper),
        group_depth_before=_means(every_depth[work.blocks], work.group, len(drafts)),
        group_depth_after=tuple(mean or 0.0 for mean in _means(tile_depth, tiles.group, len(drafts))),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums:
    """Overlaps and depths of `count` blocks in all, and what each extra block adds to them."""

    overlaps: int
    depths: int
    count: int
    extra_overlaps: Integers = field(default_factory=_NONE.copy)
    extra_depths: Integers = field(default_factory=_NONE.copy)


def _prediction(before: _Sums, lower: _Sums, guess: _Sums, upper: _Sums) -> Prediction:
    count = guess.count
    return Prediction(
        average_depth_before=rounded_mean(before.depths, before.count),
        average_depth_after=_range(
            (lower.depths, lower.extra_depths), guess.depths, (upper.depths, upper.extra_depths), count
        ),
        average_overlaps_before=rounded_mean(before.overlaps, before.count),
        average_overlaps_after=_range(
            (lower.overlaps, lower.extra_overlaps),
            guess.overlaps,
            (upper.overlaps, upper.extra_overlaps),
            count,
        ),
        block_count_before=before.count,
        block_count_after=Range(low=count, expected=count, high=count + upper.extra_depths.size),
    )


def _range(low: tuple[int, Integers], expected: int, high: tuple[int, Integers], count: int) -> Range:
    """Return averages to four decimals: the bounds rounded outwards, so that they hold a rounded average too.

    `low` and `high` are sums over `count` blocks, and what each extra block adds; there may be any number of these.
    """
    if count == 0:
        return Range(low=0.0, expected=0.0, high=0.0)
    mean = rounded_mean(expected, count)
    if low[0] == high[0] and not high[1].size:
        exact = rounded_mean(low[0], count)
        return Range(low=exact, expected=exact, high=exact)
    least = _sums_with(low[0], np.sort(low[1])) * 10_000
    most = _sums_with(high[0], np.sort(high[1])[::-1]) * 10_000
    counts = count + np.arange(most.size)
    bottom, top = int((least // counts).min()) / 10_000, int((-(-most // counts)).max()) / 10_000
    return Range(low=bottom, expected=min(max(mean, bottom), top), high=top)


def _sums_with(total: int, extra: Integers) -> Integers:
    """Return the total with the first 0, 1, 2, .. of `extra` added."""
    sums: Integers = total + np.concatenate(([0], np.cumsum(extra)))
    return sums


def _means(values: Integers, group: Integers, count: int) -> tuple[float | None, ...]:
    """Return the mean of each group's values; None where one of them is unknown (-1)."""
    sums = np.bincount(group, values, minlength=count).astype(np.int64).tolist()
    counts = np.bincount(group, minlength=count).tolist()
    unknown = np.bincount(group, values < 0, minlength=count).tolist()
    return tuple(
        None if missing else rounded_mean(total, size)
        for total, size, missing in zip(sums, counts, unknown, strict=True)
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Axis:
    """The blocks' bounds as dense ranks: known ones are 1 to size - 2, unknown ones 0 and size - 1."""

    low: Integers
    high: Integers
    size: int


def _axis(blocks: Candidates) -> _Axis:
    known = ~blocks.unknown
    low, high = blocks.low[known], blocks.high[known]
    if low.size == 0:
        return _Axis(low=np.zeros(len(blocks), np.int64), high=np.ones(len(blocks), np.int64), size=2)
    least, most = int(low.min()), int(high.max())
    if most - least >= _DENSE_SPAN * low.size:
        points, places = np.unique(np.concatenate((low, high)), return_inverse=True)
        low, high, size = places[: low.size] + 1, places[low.size :] + 1, points.size + 2
    else:
        low, high, size = low - least + 1, high - least + 1, most - least + 3
    every_low, every_high = np.zeros(len(blocks), np.int64), np.full(len(blocks), size - 1)
    every_low[known], every_high[known] = low, high
    return _Axis(low=every_low, high=every_high, size=size)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Work:
    """The blocks to merge, group by group.

    Each group has an axis of its own: number x size is added to its ranks, so that one sort or search serves all
    groups, and their rows are numbered through.
    """

    blocks: Integers
    group: Integers
    low: Integers
    high: Integers
    rows: Integers
    decoded_bytes: Integers
    size: int

    @classmethod
    def of(cls, axis: _Axis, blocks: Candidates, drafts: Sequence[Draft]) -> _Work:
        chosen = joined(draft.blocks for draft in drafts)
        group = np.repeat(np.arange(len(drafts)), [draft.blocks.size for draft in drafts])
        return cls(
            blocks=chosen,
            group=group,
            low=axis.low[chosen] + group * axis.size,
            high=axis.high[chosen] + group * axis.size,
            rows=blocks.row_count[chosen],
            decoded_bytes=blocks.decoded_bytes[chosen],
            size=axis.size,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tiles:
    """The pieces, in order of group and key: `cut` is where each is expected to begin, in rows numbered through.

    `extra`, one a group, is how many blocks it may become beside one a piece; `extra_here` how many of these each piece
    may have.
    """

    group: Integers
    extra: Integers
    extra_here: Integers
    cut: Integers
    outer_low: Integers
    outer_high: Integers
    inner_low: Integers
    inner_high: Integers


def expected_cuts(rows: Integers, most: Integers, counts: Integers) -> Integers:
    """Return where each output begins, counted from its group's first row, group by group.

    As rows are cut when they are written: full blocks, and if the last one would then not be full, all of even size.
    """
    group = np.repeat(np.arange(rows.size), counts)
    number = np.arange(group.size) - np.repeat(np.cumsum(counts) - counts, counts)
    rest = rows - (counts - 1) * most
    spread = (counts > 1) & (rest < FULL_SHARE * most)
    size, more = np.divmod(rows, counts)
    even = number * size[group] + np.minimum(number, more[group])
    cuts: Integers = np.where(spread[group], even, number * most[group])
    return cuts


@dataclass(frozen=True, kw_only=True, eq=False)
class _Weights:
    """Weights that lie on closed intervals: those that begin by a point, less those that end before another."""

    low: Integers
    high: Integers
    by_low: Integers
    by_high: Integers

    @classmethod
    def of(cls, low: Integers, high: Integers, weight: Integers) -> _Weights:
        begin, end = np.argsort(low, kind="stable"), np.argsort(high, kind="stable")
        return cls(
            low=low[begin],
            high=high[end],
            by_low=np.concatenate(([0], np.cumsum(weight[begin]))),
            by_high=np.concatenate(([0], np.cumsum(weight[end]))),
        )

    def meeting(self, low: Integers, high: Integers) -> Integers:
        """Return the weight of what intersects each of these intervals."""
        begun = self.by_low[np.searchsorted(self.low, high, side="right")]
        ended = self.by_high[np.searchsorted(self.high, low)]
        found: Integers = begun - ended
        return found


def most_extra(rows: Integers, decoded_bytes: Integers, counts: Integers, options: TableOptions) -> Integers:
    """Return into how many blocks groups may be cut beyond `counts`, however wide each row is (see the module)."""
    filled = np.ceil(_GROWTH * decoded_bytes / options.block_bytes).astype(np.int64)
    extra: Integers = np.minimum(2 * np.maximum(filled - 1, 0), rows - counts)
    return extra


def _tiles(work: _Work, options: TableOptions) -> _Tiles:
    rows = np.bincount(work.group, work.rows).astype(np.int64)
    decoded = np.bincount(work.group, work.decoded_bytes).astype(np.int64)
    counts, most = output_counts(rows, decoded, options)
    group = np.repeat(np.arange(rows.size), counts)
    number = np.arange(group.size) - np.repeat(np.cumsum(counts) - counts, counts)
    base = (np.cumsum(rows) - rows)[group]
    total, size, left = rows[group], most[group], counts[group] - number
    # m blocks of 1 to `size` rows: what the others can hold bounds the first and the last row of each.
    first_least = base + np.maximum(number, total - left * size)
    first_most = base + np.minimum(number * size, total - left)
    last_least = base + np.maximum(number + 1, total - (left - 1) * size) - 1
    last_most = base + np.minimum((number + 1) * size, total - (left - 1)) - 1
    by_low, by_high = np.argsort(work.low, kind="stable"), np.argsort(work.high, kind="stable")
    rows_by_low, rows_by_high = np.cumsum(work.rows[by_low]), np.cumsum(work.rows[by_high])
    own_axis = group * work.size

    def least_key(position: Integers) -> Integers:
        found: Integers = work.low[by_low][np.searchsorted(rows_by_low, position, side="right")] - own_axis
        return found

    def most_key(position: Integers) -> Integers:
        found: Integers = work.high[by_high][np.searchsorted(rows_by_high, position, side="right")] - own_axis
        return found

    extra = most_extra(rows, decoded, counts, options)
    outer_low, outer_high = least_key(first_least), most_key(last_most)
    there = _Weights.of(work.low, work.high, work.decoded_bytes).meeting(
        outer_low + own_axis, outer_high + own_axis
    )
    return _Tiles(
        group=group,
        extra=extra,
        extra_here=np.minimum(most_extra(size, there, np.ones_like(size), options), extra[group]),
        cut=base + expected_cuts(rows, most, counts),
        outer_low=outer_low,
        outer_high=outer_high,
        inner_low=most_key(first_most),
        inner_high=least_key(last_least),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rest:
    """The blocks that stay.

    What does not meet what the merged blocks span, from the least to the greatest key of a group, keeps its overlaps
    and its depth: `same` has their sums. The others may change: the first `changing` of `low` and `high`, which end
    with what meets any of these, so that they can be measured without the rest of the table.
    """

    low: Integers
    high: Integers
    changing: int
    same: _Sums

    @classmethod
    def of(cls, axis: _Axis, stay: Integers, work: _Work, overlap_and_depth: Integers) -> _Rest:
        """Return the blocks `stay`, given what they have now. O(n) for n blocks and ranks."""
        low, high = axis.low[stay], axis.high[stay]
        begins = np.flatnonzero(np.diff(work.group, prepend=-1))
        shift = work.group[begins] * work.size
        spans = np.minimum.reduceat(work.low, begins) - shift, np.maximum.reduceat(work.high, begins) - shift
        changing = _meet(low, high, *spans, size=axis.size)
        near = _meet(low, high, low[changing], high[changing], size=axis.size) & ~changing
        overlap, depth = overlap_and_depth[:, stay[~changing]]
        return cls(
            low=np.concatenate((low[changing], low[near])),
            high=np.concatenate((high[changing], high[near])),
            changing=int(changing.sum()),
            same=_Sums(overlaps=int(overlap.sum()), depths=int(depth.sum()), count=depth.size),
        )

    def measured_with(self, low: Integers, high: Integers) -> tuple[Integers, Integers]:
        """Return overlaps and depths of the blocks that may change, and after them those of others that join."""
        overlap, depth = overlaps_and_depths(
            np.concatenate((self.low, low)), np.concatenate((self.high, high))
        )
        counted = np.concatenate((np.arange(self.changing), np.arange(self.low.size, depth.size)))
        return overlap[counted], depth[counted]

    def sums(self, overlap: Integers, depth: Integers) -> _Sums:
        """Return the sums of what `measured_with` gave, and of the blocks that keep theirs."""
        return _Sums(
            overlaps=self.same.overlaps + int(overlap.sum()),
            depths=self.same.depths + int(depth.sum()),
            count=self.same.count + depth.size,
        )


def _meet(low: Integers, high: Integers, others_low: Integers, others_high: Integers, *, size: int) -> Mask:
    """Return which closed intervals of ranks below `size` meet any of some others."""
    covered = np.cumsum(
        np.bincount(others_low, minlength=size + 1) - np.bincount(others_high + 1, minlength=size + 1)
    )
    points = np.concatenate(([0], np.cumsum(covered > 0)))
    found: Mask = points[high + 1] > points[low]
    return found


def _upper(rest: _Rest, tiles: _Tiles) -> _Sums:
    """Return upper bounds: from outer intervals.

    An extra block lies within the outer interval of a piece. It meets at most the blocks that this does, the piece's
    own, and the extra ones of the pieces and of the groups that this meets. It adds two overlaps for each of the
    certain ones and one for each of the extra ones; and its own depth, and 1 to that of each of the certain ones.
    """
    low, high = tiles.outer_low, tiles.outer_high
    every_overlap, every_depth = rest.measured_with(low, high)
    begins = np.flatnonzero(np.diff(tiles.group, prepend=-1))
    in_groups = _Weights.of(np.minimum.reduceat(low, begins), np.maximum.reduceat(high, begins), tiles.extra)
    in_pieces = _Weights.of(low, high, tiles.extra_here)
    near = np.minimum(in_groups.meeting(low, high), in_pieces.meeting(low, high))
    met, depth = every_overlap[rest.changing :] + 1, every_depth[rest.changing :]
    return replace(
        rest.sums(every_overlap, every_depth),
        extra_overlaps=np.repeat(np.maximum.reduceat(2 * met + near - 1, begins), tiles.extra),
        extra_depths=np.repeat(np.maximum.reduceat(met + depth + near, begins), tiles.extra),
    )


def _lower(rest: _Rest, tiles: _Tiles, size: int) -> _Sums:
    """Return lower bounds: from inner intervals; for blocks that have none, from the shallowest place they may lie."""
    certain = (tiles.inner_low <= tiles.inner_high) & (tiles.extra == 0)[tiles.group]
    overlap, depth = rest.measured_with(tiles.inner_low[certain], tiles.inner_high[certain])
    first, last = tiles.outer_low[~certain], tiles.outer_high[~certain]
    stops = np.bincount(rest.high, minlength=size)
    at_point = np.cumsum(np.bincount(rest.low, minlength=size)) - np.cumsum(stops) + stops
    shallowest = -range_maxima(-(at_point - stops), first, np.maximum(last - 1, first))  # between points
    shallowest = np.where(first == last, at_point[first], shallowest)
    within = int(shallowest.sum())
    group = tiles.group[~certain]
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    least = np.minimum.reduceat(shallowest, begins) if begins.size else shallowest
    extra = np.repeat(least, tiles.extra[group[begins]])
    sums = rest.sums(overlap, depth)
    return _Sums(
        overlaps=sums.overlaps + 2 * within,
        depths=sums.depths + within + shallowest.size,
        count=sums.count + shallowest.size,
        extra_overlaps=2 * extra,
        extra_depths=extra + 1,
    )


def _shared_cuts(axis: _Axis, blocks: Candidates) -> float:
    """Return the share of cuts that are expected to part rows of one key (see the module)."""
    known = ~blocks.unknown
    several = known & (axis.low < axis.high)
    ends = np.bincount(axis.low[known], minlength=axis.size) + np.bincount(
        axis.high[several], minlength=axis.size
    )
    pairs = int((ends * (ends - 1) // 2).sum())
    if pairs == 0:
        return 0.0
    possible = int(ends.sum()) ** 2 / (2 * pairs)
    rows = int(blocks.row_count[known].sum())
    return min(1.0, max(0.0, 1.0 + possible * math.expm1(-rows / possible) / rows))


def _guess(rest: _Rest, work: _Work, tiles: _Tiles, shared_share: float) -> tuple[_Sums, Integers]:
    """Return the expected sums, and the expected depth of every output."""
    begins = _places(work, tiles.cut) - tiles.group * work.size
    first = np.concatenate(([True], tiles.group[1:] != tiles.group[:-1]))
    last = np.concatenate((first[1:], [True]))
    groups = tiles.group[first]
    hull_low = (
        np.minimum.reduceat(work.low, np.flatnonzero(np.diff(work.group, prepend=-1))) - groups * work.size
    )
    hull_high = (
        np.maximum.reduceat(work.high, np.flatnonzero(np.diff(work.group, prepend=-1))) - groups * work.size
    )
    at_rank = begins == np.floor(begins)
    inner = np.unique(begins[~first & ~at_rank])
    shift = 2 * np.searchsorted(
        inner, np.arange(work.size)
    )  # two places before the next rank for every cut between
    number = np.searchsorted(inner, begins)
    floor = np.floor(begins).astype(np.int64)
    left = np.where(at_rank, floor + shift[floor], floor + 1 + 2 * number)  # where the output before ends
    turn = np.arange(begins.size)
    shared = at_rank | (np.floor((turn + 1) * shared_share) > np.floor(turn * shared_share))
    low, high = left + ~shared, np.roll(left, -1)
    low[first] = hull_low + shift[hull_low]
    high[last] = hull_high + shift[hull_high]
    shifted = replace(rest, low=rest.low + shift[rest.low], high=rest.high + shift[rest.high])
    overlap, depth = shifted.measured_with(low, np.maximum(low, high))
    return rest.sums(overlap, depth), depth[rest.changing :]


def _places(work: _Work, positions: Integers) -> Floats:
    """Return where on the axis of all groups the rows of some positions are expected, a block's rows spread evenly."""
    spread = work.high > work.low
    points, place = np.unique(np.concatenate((work.low, work.high)), return_inverse=True)
    from_point, to_point = place[: work.low.size], place[work.low.size :]
    rate = work.rows / np.maximum(work.high - work.low, 1) * spread
    rates = np.cumsum(
        np.bincount(from_point, rate, minlength=points.size)
        - np.bincount(to_point, rate, minlength=points.size)
    )
    several = np.bincount(from_point[spread], minlength=points.size) - np.bincount(
        to_point[spread], minlength=points.size
    )
    rates = np.where(
        np.cumsum(several) > 0, rates, 0.0
    )  # what rounding leaves between groups would add up there
    jumps = np.bincount(from_point, work.rows * ~spread, minlength=points.size)
    until = np.concatenate(([0.0], np.cumsum(rates[:-1] * np.diff(points)))) + np.cumsum(jumps) - jumps
    reached = np.stack((until, until + jumps), axis=1).ravel()
    places: Floats = np.interp(positions, reached, np.repeat(points, 2).astype(np.float64))
    return places
