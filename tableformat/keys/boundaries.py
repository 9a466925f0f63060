"""Boundaries that divide a column into ranges of about equal weight, and the places of values between them.

Boundaries are chosen from values that were seen, each with a weight: how many rows it stands for. A value that is
heavier than two ranges gets a range of its own, from it to the least value above it; so does every value if they are
few. Others get as many ranges as they have of the weight. The outer ranges lie beyond what was seen, but for one row in
10,000 at each end: a single odd date does not hide that later ones are new.
"""

from __future__ import annotations

from decimal import Context
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tblctl.tableformat.keys.numbers import has_value, order_numbers
from tblctl.tableformat.keys.places import spread_places, weighted_places
from tblctl.tableformat.model.curve import most_boundaries
from tblctl.tableformat.model.schema.types import is_any_binary, is_any_string
from tblctl.tableformat.older_arrow import search_sorted

Weights = npt.NDArray[np.float64]

MOST_LENGTH = 64
"""Characters or bytes of a boundary. Longer ones are cut."""

_ODD_SHARE = 1e-4
_EXACT = Context(prec=100)
_LAST_CHARACTER = chr(0x10FFFF)


def divided(values: pa.Array, weights: Weights, *, bits: int) -> tuple[pa.Array, tuple[int, ...]]:
    """Return at most `most_boundaries(bits)` ascending boundaries between values, and the places of the ranges.

    The places are () if they are as far apart as can be. O(n log n).

    Args:
        values: in any order, of a statistic type; nulls and NaN do not count.
        weights: how many rows each value stands for.
        bits: of a place.
    """
    present = has_value(values)
    values, weights = values.filter(pa.array(present)), weights[present]
    if not len(values):
        return values, ()
    values, weights = _distinct(values, weights)
    boundaries = _boundaries(values, weights, most_boundaries(bits))
    # A value at a boundary is above it.
    ranges = _places(order_numbers(boundaries), values, "right")
    found = np.bincount(ranges, weights, len(boundaries) + 1).astype(np.float64)
    places = weighted_places(found, bits)
    is_even = np.array_equal(places, spread_places(len(places), bits))
    return boundaries, () if is_even else tuple(places.tolist())


def _boundaries(values: pa.Array, weights: Weights, most: int) -> pa.Array:
    total = weights.sum()
    through = np.cumsum(weights)
    inside = (through >= _ODD_SHARE * total) & (through - weights <= (1 - _ODD_SHARE) * total)
    first, last = np.flatnonzero(inside)[[0, -1]]
    own = inside & (weights >= 2 * total / most)
    if 2 * (last - first + 1) <= most:
        own = inside
    light = np.where(own, 0, weights)
    light[:first] = light[last + 1 :] = 0
    room = min(most - 2 * int(own.sum()) - 2, int(np.ceil(most * light.sum() / total)))
    cuts = np.union1d(_quantiles(light, max(room, 0)), [first])
    whole = np.flatnonzero(own)
    ends = np.union1d(whole, [last])
    found = [
        *(_between(values, place) for place in np.setdiff1d(cuts, whole).tolist()),
        *(_at_most(values[place]) for place in whole.tolist()),
        *(successor(values[place]) for place in ends.tolist()),
    ]
    made = _array([value for value in found if value is not None], values.type)
    return _distinct(made, np.ones(len(made)))[0].slice(0, most)


def with_bounds(
    values: pa.Array, weights: Weights, low: pa.Array, high: pa.Array, rows: Weights
) -> tuple[pa.Array, Weights]:
    """Return sampled values together with blocks that were not read, as far as their bounds tell: values and weights.

    The rows of such a block are taken to be like the sample between its bounds. If none of it is there, all lie at the
    bounds. Blocks with a bound that is null are left out.

    Args:
        values: the sample, in any order; a statistic type.
        weights: how many rows each value stands for.
        low: the least values of blocks that were not read.
        high: the greatest.
        rows: how many rows each of these has.
    """
    present, is_bounded = has_value(values), has_value(low) & has_value(high)
    values, weights = _distinct(values.filter(pa.array(present)), weights[present])
    low, high = (end.filter(pa.array(is_bounded)) for end in (low, high))
    rows = rows[is_bounded]
    if not len(rows):
        return values, weights
    numbers = order_numbers(values)
    first, last = _places(numbers, low, "left"), _places(numbers, high, "right")
    share = rows / (last - first + 2)
    changes = np.zeros(len(values) + 1)
    np.add.at(changes, first, share)
    np.add.at(changes, last, -share)
    everything = pa.concat_arrays([values, low.cast(values.type), high.cast(values.type)])
    return everything, np.concatenate((weights + np.cumsum(changes)[:-1], share, share))


def _places(
    ordered: npt.NDArray[np.int64] | pa.Array, values: pa.Array, side: Literal["left", "right"]
) -> npt.NDArray[np.int64]:
    numbers = order_numbers(values)
    if isinstance(ordered, np.ndarray):
        found = np.searchsorted(ordered, np.asarray(numbers), side=side)
    else:
        found = search_sorted(ordered, numbers, side)
    return np.asarray(found, np.int64)


def _distinct(values: pa.Array, weights: Weights) -> tuple[pa.Array, Weights]:
    """Return the values in order, each once, with the sum of their weights."""
    if not len(values):
        return values, weights
    numbers = order_numbers(values)
    order = (
        np.argsort(numbers, kind="stable")
        if isinstance(numbers, np.ndarray)
        else pc.sort_indices(numbers).to_numpy()
    )
    if isinstance(numbers, np.ndarray):
        changes = np.diff(numbers[order]) != 0
    else:
        given = numbers.take(pa.array(order))
        changes = pc.not_equal(given.slice(0, len(given) - 1), given.slice(1)).to_numpy(zero_copy_only=False)
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    return values.take(pa.array(order[starts])), np.add.reduceat(weights[order], starts)


def _quantiles(weights: Weights, count: int) -> npt.NDArray[np.int64]:
    """Return the places of at most `count` values that cut the values into parts of about equal weight."""
    through = np.cumsum(weights)
    marks = through[-1] * np.arange(1, count + 1) / (count + 1)
    found = np.unique(np.searchsorted(through, marks))
    return found[found < len(weights)] if through[-1] > 0 else found[:0]


def _between(values: pa.Array, place: int) -> Any:
    """Return a boundary below the value at a place, or at it, and above the one before: the shortest text."""
    value = values[place]
    if not _is_text(value.type) or not place:
        return _at_most(value)
    text, before = value.as_py(), values[place - 1].as_py()
    differ = (at for at, pair in enumerate(zip(before, text, strict=False)) if pair[0] != pair[1])
    return text[: min(next(differ, len(before)) + 1, MOST_LENGTH)]


def _at_most(value: pa.Scalar) -> Any:
    """Return the value, or the beginning of a long one."""
    return value.as_py()[:MOST_LENGTH] if _is_text(value.type) else value


def successor(value: pa.Scalar) -> Any:
    """Return the least value of the type above a value, or a bit more if it is long; None if there is none."""
    kind = value.type
    if _is_text(kind):
        return _text_after(value.as_py())
    if pt.is_boolean(kind):
        return pa.scalar(value=True) if value.as_py() is False else None
    if pt.is_fixed_size_binary(kind):
        following = int.from_bytes(value.as_py(), "big") + 1
        return following.to_bytes(kind.byte_width, "big") if following < 256**kind.byte_width else None
    if pt.is_floating(kind):
        number = np.nextafter(value.as_py(), np.inf, dtype=kind.to_pandas_dtype())
        return pa.scalar(number, kind) if number > value.as_py() else None
    if pt.is_decimal(kind):
        return _scalar((value.as_py().scaleb(kind.scale, _EXACT) + 1).scaleb(-kind.scale, _EXACT), kind)
    if pt.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()  # noqa: PLR2004
        count = _scalar(value.value + 1, width)
        return None if count is None else pa.array([count], width).cast(kind)[0]
    return _scalar(value.as_py() + 1, kind)


def _text_after(text: Any) -> Any:
    if len(text) < MOST_LENGTH:
        return text + ("\0" if isinstance(text, str) else b"\0")
    return text[: MOST_LENGTH - 1] + (_LAST_CHARACTER if isinstance(text, str) else b"\xff")


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowInvalid, OverflowError):
        return None


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pt.is_floating(kind):  # -0.0 is 0.0
        return pa.array([value.as_py() + 0.0 for value in values], kind)
    return pa.array(values, kind)


def _is_text(kind: pa.DataType) -> bool:
    """Return whether values have any length."""
    return is_any_string(kind) or is_any_binary(kind)
