"""Curves through a grid of 2 to 4 columns: the z-order and the Hilbert curve. Pure arithmetic.

A cell has a place on each axis, from 0 to 2**bits - 1. Its z-order number interleaves their bits: first the highest of
each, the first axis first, then the next. Read by digits of one bit an axis, it descends from the grid to a half of
it on each axis, to a quarter, .. Along the Hilbert curve the same halves are visited in another order, which depends on
the *state* of the curve in the cube that is being halved: an entry corner and an axis (Hamilton, Compact Hilbert
Indices, 2006, section 2).

So a Hilbert number is the z-order number translated digit by digit by a table of states, several digits in one step.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.uint64]
Places: TypeAlias = npt.NDArray[np.int64]

_STATE_BITS = 8
_DIGITS_A_STEP = {2: 5, 3: 3, 4: 2}
"""By axes: so that a table of steps has at most 16,384 entries of 4 bytes, and stays in the processor's cache."""


def interleaved(axis: int, axes: int, places: npt.ArrayLike) -> Numbers:
    """Return for each place on one axis its share of the z-order number: its bits, `axes` apart. O(n)."""
    given = np.asarray(places).astype(np.uint64)
    found = np.zeros(given.shape, np.uint64)
    for bit in range(64 // axes):
        found |= ((given >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * axes + axes - 1 - axis)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _Steps:
    """How the Hilbert curve visits the cubes of one level, in each state of the cube that they are parts of.

    Attributes:
        index: by state and digit of the z-order number: which of the parts it is on the curve.
        digit: the inverse, by state and index.
        following: by state and digit: the state in that part. State 0 is that of the whole grid.
    """

    index: npt.NDArray[np.int64]
    digit: npt.NDArray[np.int64]
    following: npt.NDArray[np.int64]


@functools.lru_cache
def _steps(axes: int) -> _Steps:
    """Return the steps of a number of axes. A state is the entry corner and the axis along which it is left."""
    count = 1 << axes
    states = {(0, 0): 0}
    rows: list[list[tuple[int, int]]] = []
    while len(rows) < len(states):
        entry, axis = list(states)[len(rows)]
        row = []
        for digit in range(count):
            index = _from_gray(_rotated(digit ^ entry, -(axis + 1), axes))
            inner = entry ^ _rotated(_entry(index), axis + 1, axes)
            following = inner, (axis + _axis(index, axes) + 1) % axes
            row.append((index, states.setdefault(following, len(states))))
        rows.append(row)
    table = np.array(rows, np.int64)
    return _Steps(index=table[:, :, 0], digit=np.argsort(table[:, :, 0], axis=1), following=table[:, :, 1])


def _rotated(word: int, left: int, bits: int) -> int:
    """Return a word of some bits, rotated to the left."""
    left %= bits
    return ((word << left) | (word >> (bits - left))) & ((1 << bits) - 1)


def _from_gray(code: int) -> int:
    number = 0
    while code:
        number ^= code
        code >>= 1
    return number


def _entry(index: int) -> int:
    """Return the corner by which the curve enters its part of that index."""
    below = 2 * ((index - 1) // 2) if index else 0
    return below ^ (below >> 1)


def _axis(index: int, axes: int) -> int:
    """Return the axis along which the curve crosses its part of that index: the number of trailing ones."""
    if index == 0:
        return 0
    odd = index if index % 2 else index - 1
    ones = (~odd & (odd + 1)).bit_length() - 1
    return ones % axes


@functools.lru_cache
def _table(axes: int, digits: int) -> npt.NDArray[np.uint32]:
    """Return, by state and then z-order digits, the Hilbert digits and below them the state that follows."""
    steps = _steps(axes)
    index, following = steps.index, steps.following
    for _ in range(digits - 1):
        high = steps.index[:, :, None] << np.int64(axes * _levels(index, axes))
        index = (high | index[steps.following]).reshape(len(index), -1)
        following = following[steps.following].reshape(len(following), -1)
    return ((index << _STATE_BITS) | following).astype(np.uint32).ravel()


def _levels(index: npt.NDArray[np.int64], axes: int) -> int:
    return (int(index.shape[1]).bit_length() - 1) // axes


def hilbert_numbers(interleaved_places: Numbers, *, axes: int, bits: int) -> Numbers:
    """Return the places on the Hilbert curve of cells that are given by their z-order numbers. O(n)."""
    found = np.zeros(len(interleaved_places), np.uint64)
    state = np.zeros(len(interleaved_places), np.int64)
    left = bits
    while left:
        digits = left % _DIGITS_A_STEP[axes] or _DIGITS_A_STEP[axes]
        left -= digits
        width = axes * digits
        here = (interleaved_places >> np.uint64(axes * left)) & np.uint64((1 << width) - 1)
        step = _table(axes, digits)[(state << width) + here.astype(np.int64)]
        found = (found << np.uint64(width)) | (step >> _STATE_BITS).astype(np.uint64)
        state = (step & ((1 << _STATE_BITS) - 1)).astype(np.int64)
    return found


@functools.lru_cache
def _first_parts(axes: int, *, last: bool) -> npt.NDArray[np.int64]:
    """Return, by state and by which halves of each axis count, the index of the first part there (or the last).

    The halves are two bits for each axis, the last axis lowest: 1 for the lower half, 2 for the upper one.
    """
    steps = _steps(axes)
    count = 1 << axes
    found = np.zeros((len(steps.digit), 1 << (2 * axes)), np.int64)
    order = range(count) if last else range(count - 1, -1, -1)
    halves = np.arange(1 << (2 * axes))
    for index in order:  # later ones replace earlier ones
        for state, digit in enumerate(steps.digit[:, index].tolist()):
            bits = [(digit >> axis) & 1 for axis in range(axes)]
            needed = sum((1 + bit) << (2 * axis) for axis, bit in enumerate(bits))
            found[state, (halves & needed) == needed] = index
    return found


def hilbert_bound(low: Sequence[Places], high: Sequence[Places], *, bits: int, last: bool) -> Numbers:
    """Return the first (or last) place on the Hilbert curve of any cell in each of n boxes. Exact. O(n bits).

    Args:
        low: for each axis the least places of the boxes.
        high: the greatest, none of them below.
        bits: of a place.
        last: whether the last place is meant.
    """
    axes, count = len(low), len(low[0])
    steps, parts = _steps(axes), _first_parts(axes, last=last)
    corner = [np.zeros(count, np.int64) for _ in range(axes)]
    state, found = np.zeros(count, np.int64), np.zeros(count, np.uint64)
    for level in range(bits - 1, -1, -1):
        halves = np.zeros(count, np.int64)
        for axis in range(axes):
            middle = corner[axis] + (1 << level)
            meets = (low[axis] < middle) + 2 * (high[axis] >= middle)
            halves = (halves << 2) | meets
        index = parts[state, halves]
        digit = steps.digit[state, index]
        found = (found << np.uint64(axes)) | index.astype(np.uint64)
        state = steps.following[state, digit]
        for axis in range(axes):
            corner[axis] += ((digit >> (axes - 1 - axis)) & 1) << level
    return found
