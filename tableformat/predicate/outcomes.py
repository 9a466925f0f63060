"""Sets of outcomes: what a condition may be for some rows, as three bits. AND, OR and NOT map sets to sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

TRUE, FALSE, NULL = 1, 2, 4
"""The bits of a set."""

ANY = TRUE | FALSE | NULL

BITS = {True: TRUE, False: FALSE, None: NULL}

Sets = npt.NDArray[np.uint8]


def _and_rows(left: int, right: int) -> int:
    """AND of two outcomes: false wins over NULL, NULL over true."""
    return FALSE if FALSE in (left, right) else max(left, right)


def _table(combine: Any) -> Sets:
    """Return the 64 results of `combine` over all pairs of sets, since any two of their outcomes may occur together."""
    bits = (TRUE, FALSE, NULL)
    pairs = [(a, b) for a in range(8) for b in range(8)]
    results = [
        sum(
            {combine(x, y) for x in bits if x & a for y in bits if y & b}
        )  # distinct bits: their sum is their union
        for a, b in pairs
    ]
    return np.array(results, np.uint8)


NOT: Sets = np.array([bits & NULL | (bits & TRUE) << 1 | (bits & FALSE) >> 1 for bits in range(8)], np.uint8)
"""The negation of each set."""

IS: dict[bool | None, Sets] = {
    value: np.array([bool(bits & bit) * TRUE | bool(bits & ~bit) * FALSE for bits in range(8)], np.uint8)
    for value, bit in BITS.items()
}
"""Of each set, whether an outcome is TRUE, FALSE, or NULL as None."""

_AND = _table(_and_rows)
_OR = _table(lambda x, y: int(NOT[_and_rows(int(NOT[x]), int(NOT[y]))]))


def both(left: Sets, right: Sets) -> Sets:
    """Return the sets of ANDs."""
    return np.take(_AND, left << 3 | right)


def either(left: Sets, right: Sets) -> Sets:
    """Return the sets of ORs."""
    return np.take(_OR, left << 3 | right)
