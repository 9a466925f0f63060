"""What overlap and depth will be once a plan is carried out: a guess, and bounds that no keys can break.

A merge of n rows cuts [0, n) into m pieces of ascending, disjoint row positions. Where each cut is planned is known,
and that it may move back by its slack (`cut.py`). A piece whose rows turn out larger than `block_bytes` (B) becomes
several blocks, each filled until the next row does not fit.

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

Outer intervals of one merge overlap widely, its pieces hardly: two of them meet only in a key that both have, and then
all between them consist of it. Inputs tell how many rows one key has in them at most, so those that may hold a key
bound its rows in the merge: R at most over all keys. A cut with slack s parts a key only if R >= s + 2, else it finds
an end of it; and since it then stays where it was planned, at most 2 + (R - 2) / (rows of the smallest piece) pieces
share one key. Where an input does not tell, R is all rows.

The guess is apart:

- The rows of an input are taken as spread evenly over the ranks between its bounds, and as of one width; the cuts
  follow from that.
- Whether two neighbours of a merge share a key, where they may, decides between depth 1 and 2 of the result. It is
  guessed from how often ends of blocks coincide in the table: E ends with C coinciding pairs are drawn from about
  V = E^2 / 2C possible keys, of which N rows hold V (1 - exp(-N / V)). So a key has L rows, and a cut with slack s
  parts it in 1 - (s + 1) / L of all places. No coincidence: all keys are taken to differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tblctl.metrics.intervals import known_mean, overlaps_and_depths, range_maxima, rounded_mean
from tblctl.selector.candidates import Candidates, Integers, Mask, joined
from tblctl.selector.draft import Draft, most_rows
from tblctl.selector.plan import Prediction, Range
from tblctl.tableformat.model.cut import block_counts, cut_slack
from tblctl.tableformat.model.options import TableOptions

Floats = npt.NDArray[np.float64]

_DENSE_SPAN = 8
"""Ranks that span more than so many times the number of blocks are renumbered first."""

_GROWTH = 1.25
"""Rows that are merged take at most so many times the bytes that they took."""

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The prediction for a table, and for each group the average depth of its inputs now and of its outputs then.

    `group_same_key_rows`: no key has more rows of the group; None if that is not known.
    """

    prediction: Prediction
    group_same_key_rows: tuple[int | None, ...]
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
            prediction=_prediction(before, before, before, before, len(blocks)),
            group_same_key_rows=(),
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
    upper = _upper(rest, tiles, axis.size)
    lower = _lower(rest, tiles, axis.size)
    guess, tile_depth = _guess(rest, work, tiles, _rows_of_a_key(axis, blocks))
    every_depth = np.where(measured, overlap_and_depth[1], -1)
    return Forecast(
        prediction=_prediction(before, lower, guess, upper, len(blocks)),
        group_same_key_rows=tuple(most if most > 0 else None for most in work.same_key_rows.tolist()),
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


def _prediction(before: _Sums, lower: _Sums, guess: _Sums, upper: _Sums, blocks: int) -> Prediction:
    count = guess.count
    depths = (lower.depths, lower.extra_depths), guess.depths, (upper.depths, upper.extra_depths)
    overlaps = (lower.overlaps, lower.extra_overlaps), guess.overlaps, (upper.overlaps, upper.extra_overlaps)
    return Prediction(
        average_depth_before=known_mean(before.depths, before.count, blocks),
        average_depth_after=_range(*depths, count, blocks),
        average_overlaps_before=known_mean(before.overlaps, before.count, blocks),
        average_overlaps_after=_range(*overlaps, count, blocks),
        block_count_before=before.count,
        block_count_after=Range(low=count, expected=count, high=count + upper.extra_depths.size),
    )


def _range(
    low: tuple[int, Integers], expected: int, high: tuple[int, Integers], count: int, blocks: int
) -> Range | None:
    """Return averages to four decimals: the bounds rounded outwards, so that they hold a rounded average too.

    `low` and `high` are sums over `count` blocks, and what each extra block adds; there may be any number of these.
    None where there are `blocks`, but none of them counts.
    """
    if count == 0:
        return None if blocks else Range(low=0.0, expected=0.0, high=0.0)
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
    groups, and their rows are numbered through. `order` is that by `low` and that by `high`. `same_key_rows`, one a
    group: no key has more of its rows; -1 if that is not known.
    """

    blocks: Integers
    group: Integers
    low: Integers
    high: Integers
    order: tuple[Integers, Integers]
    rows: Integers
    decoded_bytes: Integers
    same_key_rows: Integers
    size: int

    @classmethod
    def of(cls, axis: _Axis, blocks: Candidates, drafts: Sequence[Draft]) -> _Work:
        chosen = joined(draft.blocks for draft in drafts)
        group = np.repeat(np.arange(len(drafts)), [draft.blocks.size for draft in drafts])
        low, high = axis.low[chosen] + group * axis.size, axis.high[chosen] + group * axis.size
        rows, same = blocks.row_count[chosen], blocks.same_key_rows[chosen]
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        order = _orders(low, high)
        begun = low[order[0]]  # group by group too; places in sorted arrays are found fastest in their order
        most = np.maximum.reduceat(_Weights.of(low, high, same, order).meeting(begun, begun), begins)
        known = np.minimum.reduceat(same, begins) > 0
        return cls(
            blocks=chosen,
            group=group,
            low=low,
            high=high,
            order=order,
            rows=rows,
            decoded_bytes=blocks.decoded_bytes[chosen],
            same_key_rows=np.where(known, np.minimum(most, np.add.reduceat(rows, begins)), -1),
            size=axis.size,
        )

    @property
    def hulls(self) -> tuple[Integers, Integers]:
        """What each group spans, on the axis of the table."""
        begins = np.flatnonzero(np.diff(self.group, prepend=-1))
        shift = self.group[begins] * self.size
        return np.minimum.reduceat(self.low, begins) - shift, np.maximum.reduceat(self.high, begins) - shift


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tiles:
    """The pieces, in order of group and key.

    Attributes:
        group: of each piece.
        extra: one a group: how many blocks it may become beside one a piece; `extra_here`: how many of these each piece
            may have.
        cut: where each is planned to begin, in rows numbered through; `slack`: how far before that it may.
        key_before, key_after: how many pieces before and after each may share a key with it, all between included.
        outer_low, outer_high, inner_low, inner_high: see the module.
    """

    group: Integers
    extra: Integers
    extra_here: Integers
    cut: Integers
    slack: Integers
    key_before: Integers
    key_after: Integers
    outer_low: Integers
    outer_high: Integers
    inner_low: Integers
    inner_high: Integers


def expected_cuts(rows: Integers, most: Integers, counts: Integers, evenly: Mask) -> Integers:
    """Return where each output is planned to begin, counted from its group's first row, group by group."""
    group = np.repeat(np.arange(rows.size), counts)
    number = np.arange(group.size) - np.repeat(np.cumsum(counts) - counts, counts)
    size, more = np.divmod(rows, counts)
    even = number * size[group] + np.minimum(number, more[group])
    cuts: Integers = np.where(evenly[group], even, number * most[group])
    return cuts


@dataclass(frozen=True, kw_only=True, eq=False)
class _Weights:
    """Weights that lie on closed intervals: those that begin by a point, less those that end before another.

    `order` is that by low and that by high, for those who have them.
    """

    low: Integers
    high: Integers
    by_low: Integers
    by_high: Integers

    @classmethod
    def of(
        cls, low: Integers, high: Integers, weight: Integers, order: tuple[Integers, Integers] | None = None
    ) -> _Weights:
        begin, end = order or _orders(low, high)
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


def _orders(low: Integers, high: Integers) -> tuple[Integers, Integers]:
    return np.argsort(low, kind="stable"), np.argsort(high, kind="stable")


def most_extra(rows: Integers, decoded_bytes: Integers, counts: Integers, options: TableOptions) -> Integers:
    """Return into how many blocks groups may be cut beyond `counts`, however wide each row is (see the module)."""
    filled = np.ceil(_GROWTH * decoded_bytes / options.block_bytes).astype(np.int64)
    extra: Integers = np.minimum(2 * np.maximum(filled - 1, 0), rows - counts)
    return extra


def _tiles(work: _Work, options: TableOptions) -> _Tiles:
    rows = np.bincount(work.group, work.rows).astype(np.int64)
    decoded = np.bincount(work.group, work.decoded_bytes).astype(np.int64)
    most = most_rows(rows, decoded, options)
    counts, evenly = block_counts(rows, most, work.same_key_rows)
    group = np.repeat(np.arange(rows.size), counts)
    cut = (np.cumsum(rows) - rows)[group] + expected_cuts(rows, most, counts, evenly)
    end = np.append(cut[1:], rows.sum())
    size = end - cut
    first = np.diff(group, prepend=-1) > 0
    slack = np.where(first, 0, cut_slack(np.roll(size, 1), size, most[group]))
    slack_after = np.append(slack[1:], 0)
    by_low, by_high = work.order
    rows_by_low, rows_by_high = np.cumsum(work.rows[by_low]), np.cumsum(work.rows[by_high])
    own_axis = group * work.size

    def least_key(position: Integers) -> Integers:
        found: Integers = work.low[by_low[np.searchsorted(rows_by_low, position, side="right")]] - own_axis
        return found

    def most_key(position: Integers) -> Integers:
        found: Integers = work.high[by_high[np.searchsorted(rows_by_high, position, side="right")]] - own_axis
        return found

    extra = most_extra(rows, decoded, counts, options)
    outer_low, outer_high = least_key(cut - slack), most_key(end - 1)
    there = _Weights.of(work.low, work.high, work.decoded_bytes, work.order).meeting(
        outer_low + own_axis, outer_high + own_axis
    )
    same = np.where(work.same_key_rows < 0, rows, work.same_key_rows)[group]
    # A cut that parts a key stays where it was planned, since all rows of its slack have that key.
    parts_key = ~first & (same >= slack + 2)
    parts_key &= least_key(cut) <= most_key(np.maximum(cut - slack - 1, 0))
    key_before, key_after = _sharing(parts_key)
    # Between the first and the last piece with rows of a key, all rows have it.
    least_size = np.minimum.reduceat(size, np.flatnonzero(first))[group]
    others = 1 + (same - 2) // least_size
    return _Tiles(
        group=group,
        extra=extra,
        extra_here=np.minimum(most_extra(size, there, np.ones_like(size), options), extra[group]),
        cut=cut,
        slack=slack,
        key_before=np.minimum(key_before, others),
        key_after=np.minimum(key_after, others),
        outer_low=outer_low,
        outer_high=outer_high,
        inner_low=most_key(cut),
        inner_high=least_key(end - slack_after - 1),
    )


def _sharing(parts_key: Mask) -> tuple[Integers, Integers]:
    """Return how many cuts in a row may part a key, up to the one that each piece begins with, and from its end on."""
    number = np.arange(parts_key.size)
    before = number - np.maximum.accumulate(np.where(parts_key, 0, number))
    clean = np.append(np.where(parts_key, parts_key.size, number)[1:], parts_key.size)
    after = np.minimum.accumulate(clean[::-1])[::-1] - number - 1
    return before, after


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
        changing = _meet(low, high, *work.hulls, size=axis.size)
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


def _upper(rest: _Rest, tiles: _Tiles, size: int) -> _Sums:
    """Return upper bounds: from outer intervals, as far as pieces of one group may share a key.

    An extra block lies within the outer interval of a piece. It meets at most the blocks that this does, the piece's
    own, and the extra ones of the pieces and of the groups that this meets. It adds two overlaps for each of the
    certain ones and one for each of the extra ones; and its own depth, and 1 to that of each of the certain ones.
    """
    low, high = tiles.outer_low, tiles.outer_high
    overlap, _ = rest.measured_with(low, high)
    surplus = _never_met(tiles, size)
    overlap[rest.changing :] -= surplus
    depth = _most_depths(rest, tiles, size)
    begins = np.flatnonzero(np.diff(tiles.group, prepend=-1))
    in_groups = _Weights.of(np.minimum.reduceat(low, begins), np.maximum.reduceat(high, begins), tiles.extra)
    in_pieces = _Weights.of(low, high, tiles.extra_here)
    near = np.minimum(in_groups.meeting(low, high), in_pieces.meeting(low, high))
    met = overlap[rest.changing :] + 1
    return replace(
        rest.sums(overlap, depth),
        extra_overlaps=np.repeat(np.maximum.reduceat(2 * met + near - 1, begins), tiles.extra),
        extra_depths=np.repeat(np.maximum.reduceat(met + depth[rest.changing :] + near, begins), tiles.extra),
    )


def _never_met(tiles: _Tiles, size: int) -> Integers:
    """Return how many pieces of its own group each one's outer interval meets, though they cannot share a key."""
    shift = tiles.group * size
    low, high = tiles.outer_low + shift, tiles.outer_high + shift  # both ascend
    number = np.arange(low.size)
    after = np.searchsorted(low, high, side="right") - 1 - number
    before = number - np.searchsorted(high, low)
    found: Integers = np.maximum(after - tiles.key_after, 0) + np.maximum(before - tiles.key_before, 0)
    return found


def _most_depths(rest: _Rest, tiles: _Tiles, size: int) -> Integers:
    """Return upper bounds of the depths of the blocks that stay and may change, and of the pieces.

    Of a group, no point is in more outer intervals than there are pieces that may share one key.
    """
    begins = np.flatnonzero(np.diff(tiles.group, prepend=-1))
    together = 1 + np.maximum.reduceat(tiles.key_after, begins)
    at = np.concatenate((tiles.outer_low, tiles.outer_high + 1))
    group = np.tile(tiles.group, 2)
    order = np.lexsort((at, group))
    inside = np.cumsum(np.repeat((1, -1), tiles.group.size)[order])  # 0 where a group ends
    steps = np.diff(np.minimum(inside, together[group[order]]), prepend=0)
    of_groups = np.bincount(at[order], steps, minlength=size + 1).astype(np.int64)
    of_rest = np.bincount(rest.low, minlength=size + 1) - np.bincount(rest.high + 1, minlength=size + 1)
    low, high = (
        np.concatenate((ends[: rest.changing], outer))
        for ends, outer in ((rest.low, tiles.outer_low), (rest.high, tiles.outer_high))
    )
    return range_maxima(np.cumsum(of_groups + of_rest), low, high)


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


def _rows_of_a_key(axis: _Axis, blocks: Candidates) -> float:
    """Return how many rows of the table a key is expected to have (see the module)."""
    known = ~blocks.unknown
    several = known & (axis.low < axis.high)
    ends = np.bincount(axis.low[known], minlength=axis.size) + np.bincount(
        axis.high[several], minlength=axis.size
    )
    pairs = int((ends * (ends - 1) // 2).sum())
    if pairs == 0:
        return 1.0
    possible = int(ends.sum()) ** 2 / (2 * pairs)
    rows = int(blocks.row_count[known].sum())
    return max(1.0, rows / (-possible * math.expm1(-rows / possible)))


def _guess(rest: _Rest, work: _Work, tiles: _Tiles, rows_of_a_key: float) -> tuple[_Sums, Integers]:
    """Return the expected sums, and the expected depth of every output."""
    begins = _places(work, tiles.cut) - tiles.group * work.size
    first = np.concatenate(([True], tiles.group[1:] != tiles.group[:-1]))
    last = np.concatenate((first[1:], [True]))
    hull_low, hull_high = work.hulls
    at_rank = begins == np.floor(begins)
    inner = np.unique(begins[~first & ~at_rank])
    shift = 2 * np.searchsorted(inner, np.arange(work.size))  # two places before a rank for each cut
    number = np.searchsorted(inner, begins)
    floor = np.floor(begins).astype(np.int64)
    left = np.where(at_rank, floor + shift[floor], floor + 1 + 2 * number)  # where the output before ends
    may_share = tiles.key_before > 0
    share = np.maximum(0, 1 - (tiles.slack + 1) / rows_of_a_key)
    turns = np.floor(np.cumsum(share * may_share))
    shared = may_share & (at_rank | (np.diff(turns, prepend=0) > 0))
    low, high = left + ~shared, np.roll(left, -1)
    low[first] = hull_low + shift[hull_low]
    high[last] = hull_high + shift[hull_high]
    shifted = replace(rest, low=rest.low + shift[rest.low], high=rest.high + shift[rest.high])
    overlap, depth = shifted.measured_with(low, np.maximum(low, high))
    return rest.sums(overlap, depth), depth[rest.changing :]


def _ends(low: Integers, high: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the ranks where intervals begin or end, ascending, and the numbers of each one's own among them."""
    if (span := int(high.max()) + 1) >= _DENSE_SPAN * low.size:
        points, places = np.unique(np.concatenate((low, high)), return_inverse=True)
        return points, places[: low.size], places[low.size :]
    used = np.zeros(span, np.bool_)
    used[low] = used[high] = True
    number = np.cumsum(used) - 1
    return np.flatnonzero(used), number[low], number[high]


def _places(work: _Work, positions: Integers) -> Floats:
    """Return where on the axis of all groups the rows of some positions are expected, a block's rows spread evenly."""
    spread = work.high > work.low
    points, from_point, to_point = _ends(work.low, work.high)
    rate = work.rows / np.maximum(work.high - work.low, 1) * spread
    rates = np.cumsum(
        np.bincount(from_point, rate, minlength=points.size)
        - np.bincount(to_point, rate, minlength=points.size)
    )
    several = np.bincount(from_point[spread], minlength=points.size) - np.bincount(
        to_point[spread], minlength=points.size
    )
    rates = np.where(np.cumsum(several) > 0, rates, 0.0)  # or what rounding leaves would add up there
    jumps = np.bincount(from_point, work.rows * ~spread, minlength=points.size)
    until = np.concatenate(([0.0], np.cumsum(rates[:-1] * np.diff(points)))) + np.cumsum(jumps) - jumps
    reached = np.stack((until, until + jumps), axis=1).ravel()
    places: Floats = np.interp(positions, reached, np.repeat(points, 2).astype(np.float64))
    return places
