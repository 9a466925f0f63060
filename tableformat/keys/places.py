"""Where values of a column lie on an axis of a curve's grid.

Ranges are spread over the whole axis, so that few of them are told apart by its high bits, and a heavy one takes as
much of the axis as it has of the rows. The last two places are those of NaN and of NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.keys.numbers import order_numbers
from tblctl.tableformat.model.curve import PLACES_APART
from tblctl.tableformat.older_arrow import search_sorted

Numbers = npt.NDArray[np.uint64]

_TABLE_BITS = 16
"""A table tells the ranges of 2**16 cells of equal width, 0.5 MB. A binary search in 1,000 boundaries takes ten times
as long as a look into it, and is needed for cells with a boundary inside."""

_MOST = np.int64(2**63 - 1)


def spread_places(ranges: int, bits: int) -> npt.NDArray[np.int64]:
    """Return the ascending places of so many ranges: as far apart as can be, below those of NaN and NULL."""
    number = np.arange(ranges, dtype=np.int64)
    latest = (1 << bits) - PLACES_APART - ranges + number
    return np.asarray(np.minimum((number << np.int64(bits)) // ranges, latest), np.int64)


def weighted_places(weights: npt.NDArray[np.float64], bits: int) -> npt.NDArray[np.int64]:
    """Return the ascending places of ranges of these weights: in the middle of what each has of the axis."""
    number = np.arange(len(weights))
    whole = (1 << bits) - PLACES_APART
    through = np.cumsum(weights)
    middle = ((through - weights / 2) / through[-1] * whole).astype(np.int64)
    ascending = np.maximum.accumulate(middle - number) + number
    return np.asarray(np.minimum(ascending, whole - len(weights) + number), np.int64)


class Axis:
    """One axis of a grid. Threads may share one.

    Args:
        boundaries: ascending, in the type of the values.
        places: of the ranges; () if they are as far apart as can be.
        bits: of a place.
        images: what stands for each place, 2**bits numbers.
    """

    def __init__(self, boundaries: pa.Array, places: Sequence[int], *, bits: int, images: Numbers) -> None:
        self._nan, self._null = images[-2:]
        self._images = images[
            np.array(places, np.int64) if places else spread_places(len(boundaries) + 1, bits)
        ]
        self._bounds = order_numbers(boundaries)
        self._floats = pt.is_floating(boundaries.type)
        self._base = self._end = np.int64(0)
        if isinstance(self._bounds, np.ndarray) and len(self._bounds):
            self._fill_table(self._bounds)

    def _fill_table(self, bounds: npt.NDArray[np.int64]) -> None:
        lowest = np.iinfo(np.int64).min
        self._base = bounds[0] - np.int64(bounds[0] > lowest)
        self._end = bounds[-1]
        width = int(self._end) - int(self._base)
        self._shift = np.uint64(max(width.bit_length() - _TABLE_BITS, 0))
        cells = np.arange((width >> int(self._shift)) + 1, dtype=np.uint64) << self._shift
        offsets = (bounds - self._base).view(np.uint64)
        at_start = np.searchsorted(offsets, cells, side="right")
        at_end = np.searchsorted(
            offsets, cells + ((np.uint64(1) << self._shift) - np.uint64(1)), side="right"
        )
        self._table = self._images[at_start]
        self._is_cut = at_end > at_start if (at_end > at_start).any() else None

    def images(self, values: pa.Array) -> Numbers:
        """Return the image of each value's place. O(n)."""
        numbers = order_numbers(values)
        found: Numbers
        if not isinstance(numbers, np.ndarray):
            found = self._images[search_sorted(self._bounds, _filled(numbers), "right")]
        elif len(self._bounds):
            found = self._looked_up(numbers)
        else:
            found = np.full(len(values), self._images[0], np.uint64)
        if self._floats:
            found[np.isnan(values.to_numpy(zero_copy_only=False))] = self._nan  # nulls too
        if values.null_count:
            found[values.is_null().to_numpy(zero_copy_only=False)] = self._null
        return found

    def _looked_up(self, numbers: npt.NDArray[np.int64]) -> Numbers:
        within = np.clip(numbers, self._base, self._end)
        cells = ((within - self._base).view(np.uint64) >> self._shift).view(np.int64)
        found = self._table[cells]
        if self._is_cut is not None:
            unsure = np.flatnonzero(self._is_cut[cells])
            found[unsure] = self._images[np.searchsorted(self._bounds, numbers[unsure], side="right")]
        return found


def _filled(values: pa.Array) -> pa.Array:
    return values.fill_null(b"" if pt.is_binary(values.type) or pt.is_large_binary(values.type) else "")
