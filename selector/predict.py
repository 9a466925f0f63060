"""What overlap and depth are expected to be once a plan is carried out.

The keys of rows are not read; only the bounds, rows and bytes of blocks are known. So this is an estimate, in steps:

1. **Outputs.** How many blocks a group becomes, and with which of its rows, counted in key order, each begins, follows
   from the rows and bytes of its inputs (`cut.py`). All rows are taken to be of one width.
2. **Keys.** The rows of an input are taken as spread evenly between its bounds. Adding up the inputs tells at which
   place in key order each output begins. That place may lie between two of the known bounds.
3. **Shared keys.** Two outputs that follow each other share a key if the cut between them parts the rows of one. A cut
   may move back by its *slack*, so it parts only keys with more rows than that. Where it may happen, it is taken to
   happen as often as keys of average size have it (`_rows_of_a_key`). That decides between depth 1 and 2.
4. **Figures.** The outputs are intervals then. They are measured together with the blocks that stay.

Ranks of different partitions lie apart on the axis on which all this is done, so that nothing meets across partitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tblctl.metrics.intervals import known_mean, overlaps_and_depths, rounded_mean
from tblctl.selector.draft import Draft, most_rows
from tblctl.selector.plan import Prediction
from tblctl.selector.table_view import Integers, Mask, TableView, joined
from tblctl.tableformat.model.cut import block_counts, cut_slack
from tblctl.tableformat.model.options import TableOptions

Floats = npt.NDArray[np.float64]

_DENSE_SPAN = 8
"""Ranks that span more than so many times the number of blocks are renumbered first."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The prediction for a table, and for each group the average depth of its inputs now and of its outputs then.

    `group_same_key_rows`: no key has more rows of the group; None if that is not known.
    """

    prediction: Prediction
    group_same_key_rows: tuple[int | None, ...]
    group_depth_before: tuple[float | None, ...]
    group_depth_after: tuple[float, ...]


Meets: TypeAlias = Callable[[Integers, Integers, Integers, Integers, int], Mask]


def meets_any(low: Integers, high: Integers, others_low: Integers, others_high: Integers, size: int) -> Mask:
    """Return which closed intervals of ranks below `size` meet any of some others. O(n) for n intervals and ranks."""
    covered = np.cumsum(
        np.bincount(others_low, minlength=size + 1) - np.bincount(others_high + 1, minlength=size + 1)
    )
    points = np.concatenate(([0], np.cumsum(covered > 0)))
    found: Mask = points[high + 1] > points[low]
    return found


def forecast(view: TableView, drafts: Sequence[Draft], *, meets: Meets = meets_any) -> Forecast:
    """Predict what `drafts`, which share no block, make of the table. O(n log n) for n blocks and outputs, in numpy.

    `meets` tells which blocks a merge reaches, and so which need to be measured again; more than these does no harm.
    """
    measured = ~(view.unclustered | view.unknown)
    axis = _axis(view)
    overlap, depth = overlaps_and_depths(axis.low[measured], axis.high[measured])
    before = _Sums.of(overlap, depth)
    if not drafts:
        return Forecast(
            prediction=_prediction(before, before, len(view)),
            group_same_key_rows=(),
            group_depth_before=(),
            group_depth_after=(),
        )
    figures = np.full((2, len(view)), -1, np.int64)  # overlaps and depths; -1 where there are none
    figures[0, measured], figures[1, measured] = overlap, depth
    inputs = _Inputs.of(axis, view, drafts)
    outputs = _Outputs.of(inputs, view.table_options)
    low, high, stretch = _intervals(inputs, outputs, _rows_of_a_key(axis, view))
    staying = measured.copy()
    staying[inputs.blocks] = False
    after, output_depth = _measured(
        axis, np.flatnonzero(staying), inputs, figures, (low, high, stretch), meets=meets
    )
    return Forecast(
        prediction=_prediction(before, after, len(view)),
        group_same_key_rows=tuple(most if most > 0 else None for most in inputs.same_key_rows.tolist()),
        group_depth_before=_means(figures[1, inputs.blocks], inputs.group, len(drafts)),
        group_depth_after=tuple(mean or 0.0 for mean in _means(output_depth, outputs.group, len(drafts))),
    )


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """Overlaps and depths of `count` blocks in all."""

    overlaps: int
    depths: int
    count: int

    @classmethod
    def of(cls, overlap: Integers, depth: Integers) -> _Sums:
        return cls(overlaps=int(overlap.sum()), depths=int(depth.sum()), count=depth.size)

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            overlaps=self.overlaps + other.overlaps,
            depths=self.depths + other.depths,
            count=self.count + other.count,
        )


def _prediction(before: _Sums, after: _Sums, blocks: int) -> Prediction:
    return Prediction(
        average_depth_before=known_mean(before.depths, before.count, blocks),
        average_depth_after=known_mean(after.depths, after.count, blocks),
        average_overlaps_before=known_mean(before.overlaps, before.count, blocks),
        average_overlaps_after=known_mean(after.overlaps, after.count, blocks),
        block_count_before=before.count,
        block_count_after=after.count,
    )


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
    """The blocks' bounds as dense ranks below `size`.

    Each partition has a section of its own. A block of unknown bounds has the whole section; the section's first and
    last ranks are no other block's.
    """

    low: Integers
    high: Integers
    size: int


def _axis(view: TableView) -> _Axis:
    known = ~view.unknown
    partition, partitions = _numbered(view)
    if not known.any():
        return _Axis(low=2 * partition, high=2 * partition + 1, size=2 * partitions)
    low, high = view.low[known], view.high[known]
    least, most = int(low.min()), int(high.max())
    span = most - least + 1
    section = partition[known] if partitions > 1 else 0
    low, high = low - least + section * span, high - least + section * span
    first, last = np.arange(partitions) * span, np.arange(1, partitions + 1) * span
    if partitions * span > _DENSE_SPAN * low.size:
        points, places = np.unique(np.concatenate((low, high)), return_inverse=True)
        low, high = places[: low.size], places[low.size :]
        first, last = np.searchsorted(points, first), np.searchsorted(points, last)
    edges = 2 * np.arange(partitions)  # two ranks more for each partition before: its first and its last
    every_low, every_high = (first + edges)[partition], (last + edges + 1)[partition]
    every_low[known], every_high[known] = low + 2 * section + 1, high + 2 * section + 1
    return _Axis(low=every_low, high=every_high, size=int(last[-1]) + 2 * partitions)


def _numbered(view: TableView) -> tuple[Integers, int]:
    """Return the partition of each block, numbered from 0 without gaps, and how many there are."""
    if not view.is_partitioned:
        return np.zeros(len(view), np.int64), 1
    values, numbers = np.unique(view.partition, return_inverse=True)
    return numbers, values.size


@dataclass(frozen=True, kw_only=True, eq=False)
class _Inputs:
    """The blocks to merge, group by group.

    Each group has an axis of its own: number x `size` is added to its ranks, so that one sort or search serves all
    groups, and their rows are numbered through.

    Attributes:
        blocks: their numbers in the table.
        group: of each.
        low, high: their bounds, on the axis of their group.
        by_low, by_high: their places in order of these.
        rows, decoded_bytes: of each.
        same_key_rows: one a group: no key has more of its rows; -1 if that is not known.
        size: ranks of the table's axis.
    """

    blocks: Integers
    group: Integers
    low: Integers
    high: Integers
    by_low: Integers
    by_high: Integers
    rows: Integers
    decoded_bytes: Integers
    same_key_rows: Integers
    size: int

    @classmethod
    def of(cls, axis: _Axis, view: TableView, drafts: Sequence[Draft]) -> _Inputs:
        chosen = joined(draft.blocks for draft in drafts)
        group = np.repeat(np.arange(len(drafts)), [draft.blocks.size for draft in drafts])
        low, high = axis.low[chosen] + group * axis.size, axis.high[chosen] + group * axis.size
        rows, same = view.row_count[chosen], view.same_key_rows[chosen]
        by_low, by_high = np.argsort(low, kind="stable"), np.argsort(high, kind="stable")
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        most = np.maximum.reduceat(_weight_at_lows(low, high, same, by_low, by_high), begins)
        known = np.minimum.reduceat(same, begins) > 0
        return cls(
            blocks=chosen,
            group=group,
            low=low,
            high=high,
            by_low=by_low,
            by_high=by_high,
            rows=rows,
            decoded_bytes=view.decoded_bytes[chosen],
            same_key_rows=np.where(known, np.minimum(most, np.add.reduceat(rows, begins)), -1),
            size=axis.size,
        )

    @property
    def hulls(self) -> tuple[Integers, Integers]:
        """What each group spans, on the axis of the table."""
        begins = np.flatnonzero(np.diff(self.group, prepend=-1))
        shift = self.group[begins] * self.size
        return np.minimum.reduceat(self.low, begins) - shift, np.maximum.reduceat(self.high, begins) - shift


def _weight_at_lows(
    low: Integers, high: Integers, weight: Integers, by_low: Integers, by_high: Integers
) -> Integers:
    """Return for each interval, in order of `low`, the weight of all that contain its low, itself among them."""
    begun = np.concatenate(([0], np.cumsum(weight[by_low])))
    ended = np.concatenate(([0], np.cumsum(weight[by_high])))
    lows, highs = low[by_low], high[by_high]  # places in sorted arrays are found fastest in their order
    found: Integers = begun[np.searchsorted(lows, lows, side="right")] - ended[np.searchsorted(highs, lows)]
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _Outputs:
    """The blocks that groups are cut into, in order of group and key.

    Attributes:
        group: of each.
        is_first, is_last: of its group.
        begin: the row, numbered through, with which it is planned to begin.
        slack: by how many rows that may move back, to where a key begins.
        may_share: it may share a key with the one before.
    """

    group: Integers
    is_first: Mask
    is_last: Mask
    begin: Integers
    slack: Integers
    may_share: Mask

    @classmethod
    def of(cls, inputs: _Inputs, options: TableOptions) -> _Outputs:
        rows = np.bincount(inputs.group, inputs.rows).astype(np.int64)
        decoded = np.bincount(inputs.group, inputs.decoded_bytes).astype(np.int64)
        most = most_rows(rows, decoded, options)
        counts, evenly = block_counts(rows, most, inputs.same_key_rows)
        group = np.repeat(np.arange(rows.size), counts)
        begin = (np.cumsum(rows) - rows)[group] + expected_cuts(rows, most, counts, evenly)
        size = np.diff(begin, append=rows.sum())
        is_first = np.diff(group, prepend=-1) > 0
        slack = np.where(is_first, 0, cut_slack(np.roll(size, 1), size, most[group]))
        same = np.where(inputs.same_key_rows < 0, rows, inputs.same_key_rows)[group]
        return cls(
            group=group,
            is_first=is_first,
            is_last=np.roll(is_first, -1),
            begin=begin,
            slack=slack,
            may_share=~is_first & (same >= slack + 2) & _may_be_one_key(inputs, begin - slack - 1, begin),
        )


def _may_be_one_key(inputs: _Inputs, one: Integers, other: Integers) -> Mask:
    """Return whether two rows of a group, given by their numbers in key order, may have one key.

    A row's key is at least the greatest low that has no more rows of inputs before it than the row's number, and at
    most the smallest high that more rows of inputs are up to.
    """
    rows_by_low, rows_by_high = np.cumsum(inputs.rows[inputs.by_low]), np.cumsum(inputs.rows[inputs.by_high])
    least = inputs.low[inputs.by_low[np.searchsorted(rows_by_low, other, side="right")]]
    most = inputs.high[inputs.by_high[np.searchsorted(rows_by_high, np.maximum(one, 0), side="right")]]
    found: Mask = least <= most
    return found


def expected_cuts(rows: Integers, most: Integers, counts: Integers, evenly: Mask) -> Integers:
    """Return where each output is planned to begin, counted from its group's first row, group by group."""
    group = np.repeat(np.arange(rows.size), counts)
    number = np.arange(group.size) - np.repeat(np.cumsum(counts) - counts, counts)
    size, more = np.divmod(rows, counts)
    even = number * size[group] + np.minimum(number, more[group])
    cuts: Integers = np.where(evenly[group], even, number * most[group])
    return cuts


def _rows_of_a_key(axis: _Axis, view: TableView) -> float:
    """Return how many rows of the table a key is expected to have.

    It is guessed from how often ends of blocks coincide: E ends with C coinciding pairs are drawn from about
    V = E^2 / 2C possible keys, of which N rows have V (1 - exp(-N / V)). Without a pair all keys are taken to differ.
    """
    known = ~view.unknown
    several = known & (axis.low < axis.high)
    ends = np.bincount(axis.low[known], minlength=axis.size) + np.bincount(
        axis.high[several], minlength=axis.size
    )
    pairs = int((ends * (ends - 1) // 2).sum())
    if pairs == 0:
        return 1.0
    possible = int(ends.sum()) ** 2 / (2 * pairs)
    rows = int(view.row_count[known].sum())
    return max(1.0, rows / (-possible * math.expm1(-rows / possible)))


def _intervals(
    inputs: _Inputs, outputs: _Outputs, rows_of_a_key: float
) -> tuple[Integers, Integers, Integers]:
    """Return the bounds of every output, and where each rank of the table's axis moves to make room for them.

    Where an output is expected to begin between two ranks, two new ranks are put there, one for the end of the output
    before, and one for its own begin.
    """
    places = _places(inputs, outputs.begin) - outputs.group * inputs.size
    below = np.floor(places).astype(np.int64)
    at_rank = places == below
    between = np.unique(places[~outputs.is_first & ~at_rank])
    ranks = np.arange(inputs.size)
    stretch = ranks + 2 * np.searchsorted(between, ranks)
    end_before = np.where(at_rank, stretch[below], below + 1 + 2 * np.searchsorted(between, places))
    parted = np.maximum(0, 1 - (outputs.slack + 1) / rows_of_a_key)  # the share of places that part a key
    turns = np.diff(np.floor(np.cumsum(parted * outputs.may_share)), prepend=0) > 0
    shares_key = outputs.may_share & (at_rank | turns)
    low, high = end_before + ~shares_key, np.roll(end_before, -1)
    hull_low, hull_high = inputs.hulls
    low[outputs.is_first] = stretch[hull_low]
    high[outputs.is_last] = stretch[hull_high]
    return low, np.maximum(low, high), stretch


def _places(inputs: _Inputs, rows: Integers) -> Floats:
    """Return where on the axes of the groups some rows are expected, each input's rows spread evenly over its range."""
    is_spread = inputs.high > inputs.low
    points, begin, end = _ends(inputs.low, inputs.high)
    rate = inputs.rows / np.maximum(inputs.high - inputs.low, 1) * is_spread  # rows a rank
    rates = np.cumsum(
        np.bincount(begin, rate, minlength=points.size) - np.bincount(end, rate, minlength=points.size)
    )
    open_inputs = np.cumsum(
        np.bincount(begin[is_spread], minlength=points.size)
        - np.bincount(end[is_spread], minlength=points.size)
    )
    rates = np.where(open_inputs > 0, rates, 0.0)  # or what rounding leaves would add up there
    jumps = np.bincount(begin, inputs.rows * ~is_spread, minlength=points.size)  # rows of one key
    until = np.concatenate(([0.0], np.cumsum(rates[:-1] * np.diff(points)))) + np.cumsum(jumps) - jumps
    reached = np.stack((until, until + jumps), axis=1).ravel()
    places: Floats = np.interp(rows, reached, np.repeat(points, 2).astype(np.float64))
    return places


def _ends(low: Integers, high: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the ranks where intervals begin or end, ascending, and the numbers of each one's own among them."""
    if (span := int(high.max()) + 1) >= _DENSE_SPAN * low.size:
        points, places = np.unique(np.concatenate((low, high)), return_inverse=True)
        return points, places[: low.size], places[low.size :]
    used = np.zeros(span, np.bool_)
    used[low] = used[high] = True
    number = np.cumsum(used) - 1
    return np.flatnonzero(used), number[low], number[high]


def _measured(
    axis: _Axis,
    staying: Integers,
    inputs: _Inputs,
    figures: Integers,
    outputs: tuple[Integers, Integers, Integers],
    *,
    meets: Meets,
) -> tuple[_Sums, Integers]:
    """Return the expected sums over blocks that stay and outputs, and the depth of every output.

    A block that does not meet what a group spans keeps its `figures`: overlaps and depth now. Only the others are
    measured, together with all blocks that any of these meets.
    """
    low, high = axis.low[staying], axis.high[staying]
    changing = meets(low, high, *inputs.hulls, axis.size)
    low_changing, high_changing = low[changing], high[changing]
    near = meets(low, high, low_changing, high_changing, axis.size) & ~changing
    output_low, output_high, stretch = outputs
    overlap, depth = overlaps_and_depths(
        np.concatenate((stretch[low_changing], output_low, stretch[low[near]])),
        np.concatenate((stretch[high_changing], output_high, stretch[high[near]])),
    )
    measured = low_changing.size + output_low.size
    same = staying[~changing]
    sums = _Sums.of(figures[0, same], figures[1, same]) + _Sums.of(overlap[:measured], depth[:measured])
    return sums, depth[low_changing.size : measured]
