"""Where in key order outputs are predicted to begin and end: their intervals of ranks."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tblctl.metrics.intervals import Integers
from tblctl.metrics.order import distinct
from tblctl.selector.predict.inputs import DENSE_SPAN, Axis, Inputs
from tblctl.selector.predict.outputs import Outputs
from tblctl.selector.table_view import TableView

Floats: TypeAlias = npt.NDArray[np.float64]


def rows_of_a_key(axis: Axis, view: TableView) -> float:
    """Return how many rows a key of the table is expected to have.

    This is estimated from how often ends of blocks coincide. E ends with C coinciding pairs are drawn from about
    V = E^2 / 2C possible keys. N rows have V (1 - exp(-N / V)) of these. Without a pair all keys count as distinct.
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


def output_intervals(
    inputs: Inputs, outputs: Outputs, rows_of_a_key: float
) -> tuple[Integers, Integers, Integers]:
    """Return the bounds of every output, and the new place of each rank of the table's axis.

    If an output is expected to begin between two ranks, two new ranks are inserted there: the end of the output before,
    and the output's own begin.
    """
    places = _places(inputs, outputs.begin) - outputs.group * inputs.size
    below = np.floor(places).astype(np.int64)
    at_rank = places == below
    between = np.unique(places[~outputs.is_first & ~at_rank])
    ranks = np.arange(inputs.size)
    stretch = ranks + 2 * np.searchsorted(between, ranks)
    end_before = np.where(at_rank, stretch[below], below + 1 + 2 * np.searchsorted(between, places))
    parted = np.maximum(0, 1 - (outputs.slack + 1) / rows_of_a_key)  # the share of cuts that split a key
    turns = np.diff(np.floor(np.cumsum(parted * outputs.may_share)), prepend=0) > 0
    shares_key = outputs.may_share & (at_rank | turns)
    low, high = end_before + ~shares_key, np.roll(end_before, -1)
    span_low, span_high = inputs.spans
    low[outputs.is_first] = stretch[span_low]
    high[outputs.is_last] = stretch[span_high]
    return low, np.maximum(low, high), stretch


def _places(inputs: Inputs, rows: Integers) -> Floats:
    """Return where rows are expected on the groups' axes, if each input's rows spread evenly over its range."""
    is_spread = inputs.high > inputs.low
    points, begin, end = _ends(inputs.low, inputs.high)
    rate = inputs.rows / np.maximum(inputs.high - inputs.low, 1) * is_spread  # rows a rank
    rates = np.cumsum(
        np.bincount(begin, rate, minlength=points.size) - np.bincount(end, rate, minlength=points.size)
    )
    begun, ended = (begin, end) if is_spread.all() else (begin[is_spread], end[is_spread])
    open_inputs = np.cumsum(
        np.bincount(begun, minlength=points.size) - np.bincount(ended, minlength=points.size)
    )
    rates = np.where(open_inputs > 0, rates, 0.0)  # else rounding errors would add up
    until = np.concatenate(([0.0], np.cumsum(rates[:-1] * np.diff(points))))
    if begun is begin:  # no input is of one key: none adds rows at a point
        spread: Floats = np.interp(rows, until, points.astype(np.float64))
        return spread
    jumps = np.bincount(begin, inputs.rows * ~is_spread, minlength=points.size)  # rows of one key
    until = until + np.cumsum(jumps) - jumps
    reached = np.stack((until, until + jumps), axis=1).ravel()
    places: Floats = np.interp(rows, reached, np.repeat(points, 2).astype(np.float64))
    return places


def _ends(low: Integers, high: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the ascending ranks where intervals begin or end, and for each interval the numbers of its two ranks."""
    if (span := int(high.max()) + 1) >= DENSE_SPAN * low.size:
        points, places = distinct(np.concatenate((low, high)))
        return points, places[: low.size], places[low.size :]
    used = np.zeros(span, np.bool_)
    used[low] = used[high] = True
    number = np.cumsum(used) - 1
    return np.flatnonzero(used), number[low], number[high]
