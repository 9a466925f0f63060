"""The figures of a plan: overlap and depth now, and as predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tblctl.metrics.intervals import Integers, Mask, known_mean, overlaps_and_depths, rounded_mean
from tblctl.selector.draft import Draft, most_rows, sort_id_of
from tblctl.selector.plan import Prediction
from tblctl.selector.predict.inputs import Axis, Inputs, axis_of
from tblctl.selector.predict.intervals import output_intervals, rows_of_a_key
from tblctl.selector.predict.outputs import Outputs
from tblctl.selector.table_view import TableView
from tblctl.tableformat.model.cluster_key import AS_LISTED
from tblctl.tableformat.model.cut import block_counts


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The prediction for a table, and for each group the average depth of its inputs now and of its outputs.

    `group_same_key_rows`: no key has more rows of the group; None if that is not known. Of a group that gets another
    sort than the current one, neither this nor the depth of its outputs is known.
    """

    prediction: Prediction
    group_same_key_rows: tuple[int | None, ...]
    group_depth_before: tuple[float | None, ...]
    group_depth_after: tuple[float | None, ...]

    def of_nothing(self) -> Forecast:
        """Return the forecast for the same table if none of the groups is merged."""
        here = self.prediction
        prediction = replace(
            here,
            average_depth_after=here.average_depth_before,
            average_overlaps_after=here.average_overlaps_before,
            block_count_after=here.block_count_before,
        )
        return Forecast(
            prediction=prediction, group_same_key_rows=(), group_depth_before=(), group_depth_after=()
        )


Meets: TypeAlias = Callable[[Integers, Integers, Integers, Integers, int], Mask]


def meets_any(low: Integers, high: Integers, others_low: Integers, others_high: Integers, size: int) -> Mask:
    """Return which closed intervals of ranks below `size` meet any of the others. O(n) for n intervals and ranks."""
    covered = np.cumsum(
        np.bincount(others_low, minlength=size + 1) - np.bincount(others_high + 1, minlength=size + 1)
    )
    points = np.concatenate(([0], np.cumsum(covered > 0)))
    found: Mask = points[high + 1] > points[low]
    return found


def forecast(view: TableView, drafts: Sequence[Draft], *, meets: Meets = meets_any) -> Forecast:
    """Predict the table after `drafts`, which share no block. O(n log n) for n blocks and outputs, in numpy.

    `meets` returns which blocks a merge reaches. These are measured again; measuring more than these does no harm.
    """
    measured = ~(view.unclustered | view.unknown)
    axis = axis_of(view)
    overlap, depth = overlaps_and_depths(axis.low[measured], axis.high[measured])
    before = _Sums.of(overlap, depth)
    if not drafts:
        return Forecast(
            prediction=_prediction(view, before, before, len(view)),
            group_same_key_rows=(),
            group_depth_before=(),
            group_depth_after=(),
        )
    figures = np.full((2, len(view)), -1, np.int64)  # overlaps and depths; -1 where there are none
    figures[0, measured], figures[1, measured] = overlap, depth
    inputs = Inputs.of(axis, view, drafts)
    # Without a cluster key nothing is known of the keys of outputs, either.
    by_key = np.array([sort_id_of(view, draft) == view.sort_id != AS_LISTED.id for draft in drafts])
    numbers = np.flatnonzero(by_key).tolist()
    if len(numbers) == len(drafts):
        outputs = _ExpectedOutputs.of(axis, view, inputs)
    elif numbers:
        outputs = _ExpectedOutputs.of(axis, view, Inputs.of(axis, view, [drafts[at] for at in numbers]))
    else:
        outputs = _ExpectedOutputs.none(axis)
    staying = measured.copy()
    staying[inputs.blocks] = False
    after, output_depth = _measured(
        axis, np.flatnonzero(staying), inputs.spans, figures, outputs, meets=meets
    )
    others = [draft for draft, known in zip(drafts, by_key.tolist(), strict=True) if not known]
    expected = outputs.low.size + _count_of_other_sorts(axis, view, others)
    same_key_rows = np.where(by_key, inputs.same_key_rows, -1).tolist()
    depth_after = dict(zip(numbers, _means(output_depth, outputs.group, len(numbers)), strict=True))
    return Forecast(
        prediction=_prediction(view, before, after, len(view) - inputs.blocks.size + expected),
        group_same_key_rows=tuple(most if most > 0 else None for most in same_key_rows),
        group_depth_before=_means(figures[1, inputs.blocks], inputs.group, len(drafts)),
        group_depth_after=tuple(depth_after.get(number) for number in range(len(drafts))),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _ExpectedOutputs:
    """The bounds of what groups become, the group of each, and where each rank of the axis moves to make room."""

    low: Integers
    high: Integers
    group: Integers
    stretch: Integers

    @classmethod
    def of(cls, axis: Axis, view: TableView, inputs: Inputs) -> _ExpectedOutputs:
        """Return what groups become that all get the current sort."""
        outputs = Outputs.of(inputs, view.table_options)
        low, high, stretch = output_intervals(inputs, outputs, rows_of_a_key(axis, view))
        return cls(low=low, high=high, group=outputs.group, stretch=stretch)

    @classmethod
    def none(cls, axis: Axis) -> _ExpectedOutputs:
        """Return that there are none: no group gets the current sort."""
        nothing = np.empty(0, np.int64)
        return cls(low=nothing, high=nothing, group=nothing, stretch=np.arange(axis.size))


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


def _prediction(view: TableView, before: _Sums, after: _Sums, blocks_after: int) -> Prediction:
    blocks = len(view)
    return Prediction(
        average_depth_before=known_mean(before.depths, before.count, blocks),
        average_depth_after=known_mean(after.depths, after.count, blocks),
        average_overlaps_before=known_mean(before.overlaps, before.count, blocks),
        average_overlaps_after=known_mean(after.overlaps, after.count, blocks),
        block_count_before=blocks,
        block_count_after=blocks_after,
        unknown_block_count=0
        if view.sort_id == AS_LISTED.id
        else int(np.count_nonzero(view.unknown & ~view.unclustered)),
        inexact_block_count=0 if view.inexact is None else int(np.count_nonzero(view.inexact)),
        figures_of=view.figures_of,
    )


def _count_of_other_sorts(axis: Axis, view: TableView, drafts: Sequence[Draft]) -> int:
    """Return how many blocks groups become that get other sorts. By these, nothing is known of their keys."""
    if not drafts:
        return 0
    inputs = Inputs.of(axis, view, drafts)
    rows = np.bincount(inputs.group, inputs.rows).astype(np.int64)
    decoded = np.bincount(inputs.group, inputs.decoded_bytes).astype(np.int64)
    most = most_rows(rows, decoded, view.table_options)
    counts, _ = block_counts(rows, most, np.full(rows.size, -1))
    return int(counts.sum())


def _means(values: Integers, group: Integers, count: int) -> tuple[float | None, ...]:
    """Return the mean of each group's values; None if one of them is unknown (-1)."""
    sums = np.bincount(group, values, minlength=count).astype(np.int64).tolist()
    counts = np.bincount(group, minlength=count).tolist()
    unknown = np.bincount(group, values < 0, minlength=count).tolist()
    return tuple(
        None if missing else rounded_mean(total, size)
        for total, size, missing in zip(sums, counts, unknown, strict=True)
    )


def _measured(
    axis: Axis,
    staying: Integers,
    spans: tuple[Integers, Integers],
    figures: Integers,
    outputs: _ExpectedOutputs,
    *,
    meets: Meets,
) -> tuple[_Sums, Integers]:
    """Return the predicted sums over outputs and blocks that stay, and the depth of every output.

    A block that meets no group's span keeps its `figures`: overlaps and depth now. Only the others are measured,
    together with all blocks that they meet.
    """
    low, high = axis.low[staying], axis.high[staying]
    changing = meets(low, high, *spans, axis.size)
    low_changing, high_changing = low[changing], high[changing]
    near = meets(low, high, low_changing, high_changing, axis.size) & ~changing
    stretch = outputs.stretch
    overlap, depth = overlaps_and_depths(
        np.concatenate((stretch[low_changing], outputs.low, stretch[low[near]])),
        np.concatenate((stretch[high_changing], outputs.high, stretch[high[near]])),
    )
    measured = low_changing.size + outputs.low.size
    same = staying[~changing]
    sums = _Sums.of(figures[0, same], figures[1, same]) + _Sums.of(overlap[:measured], depth[:measured])
    return sums, depth[low_changing.size : measured]
