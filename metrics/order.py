"""Stable orders of whole numbers, several times as fast as `np.argsort` and `np.lexsort`."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]

_FEW = 256
"""So few keys take longer to put together than to sort. In a table of many partitions all are few."""

_MOST_BITS = 63
"""Of a signed whole number."""


def stable_order(*keys: Integers) -> Integers:
    """Return the places of values in ascending order, by the first key first; equal values stay in their order.

    All keys, and the place, become one number, and the numbers are sorted themselves: numpy sorts numbers with vector
    instructions, but not their places. A million take 10 ms, with `np.argsort` 90. Where 63 bits do not hold them,
    `np.lexsort` does it. O(n log n).
    """
    count = keys[0].size
    if count < _FEW:
        return np.lexsort(keys[::-1])
    least = [int(key.min()) for key in keys]
    bits = [(int(key.max()) - low).bit_length() for key, low in zip(keys, least, strict=True)]
    place_bits = (count - 1).bit_length()
    if sum(bits) + place_bits > _MOST_BITS:
        return np.lexsort(keys[::-1])
    together = np.zeros(count, np.int64)
    for key, low, width in zip(keys, least, bits, strict=True):
        together = (together << width) | (key - low)
    together = (together << place_bits) | np.arange(count)
    together.sort()
    return together & ((1 << place_bits) - 1)


def distinct(values: Integers) -> tuple[Integers, Integers]:
    """Return the values, ascending and each once, and for each place the number of its value among them. O(n log n)."""
    order = stable_order(values)
    ascending = values[order]
    is_new = np.diff(ascending, prepend=ascending[:1] - 1) != 0
    numbers = np.empty(values.size, np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return ascending[is_new], numbers


def distinct_within(groups: Integers, values: Integers) -> Integers:
    """Return for each place the number of its value among the different ones of its group. O(n log n)."""
    order = stable_order(groups, values)
    group, ascending = groups[order], values[order]
    begins = np.diff(group, prepend=group[:1] - 1) != 0
    is_new = begins | (np.diff(ascending, prepend=ascending[:1]) != 0)
    counted = np.cumsum(is_new)
    numbers = np.empty(values.size, np.int64)
    numbers[order] = counted - np.repeat(
        counted[begins], np.diff(np.append(np.flatnonzero(begins), values.size))
    )
    return numbers
