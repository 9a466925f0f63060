"""Queries replayed on the bounds of blocks: which blocks they read, and how much of that is for nothing."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tblctl.selector.workload.asked import Asked, Floats, Ints, Key, Mask


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks:
    """Blocks as queries see them.

    Attributes:
        low, high: closed bounds of each column, of shape (columns, blocks), all finite: bounds that are not known are
            as wide as all others, and all that queries ask for.
        rows: of each block.
        read_seconds: what reading all of a block takes.
        rewrite_seconds: what it adds to the price of a group.
    """

    low: Floats
    high: Floats
    rows: Floats
    read_seconds: Floats
    rewrite_seconds: Floats

    def __len__(self) -> int:
        return len(self.rows)

    def pick(self, chosen: Ints) -> Blocks:
        """Return some of the blocks."""
        return Blocks(
            low=self.low[:, chosen],
            high=self.high[:, chosen],
            rows=self.rows[chosen],
            read_seconds=self.read_seconds[chosen],
            rewrite_seconds=self.rewrite_seconds[chosen],
        )


def read_cost(blocks: Blocks, asked: Asked) -> Floats:
    """Return the seconds that all queries together take to read each block. O(boxes x blocks)."""
    found = np.zeros(len(blocks))
    for part in asked.parts(len(blocks)):
        found += part.cost @ part.of_queries(_met(blocks, part), np.logical_or)
    return found * blocks.read_seconds


def wasted(blocks: Blocks, asked: Asked, keys: Sequence[Key]) -> Floats:
    """Return the seconds that queries read each block beyond what they need, were rows sorted by each of the keys.

    Of shape (keys, blocks). Needed is the share of a block's rows that the query asks for on the columns of the key,
    rows taken to spread evenly between the bounds. O(keys x boxes x blocks).
    """
    found = np.zeros((len(keys), len(blocks)))
    columns = sorted({column for key in keys for column in key})
    for part in asked.parts(len(blocks)):
        met = _met(blocks, part)
        chosen = np.flatnonzero(met.any(axis=0))
        if not chosen.size:
            continue
        read = part.of_queries(met[:, chosen], np.logical_or)
        shares = {column: _share(blocks, part, column, chosen) for column in columns}
        for number, key in enumerate(keys):
            share = functools.reduce(np.multiply, (shares[column] for column in key))
            needed = part.of_queries(share, np.add)
            found[number, chosen] += part.cost @ (read * (1 - np.minimum(needed, 1)))
    return found * blocks.read_seconds


def _met(blocks: Blocks, asked: Asked) -> Mask:
    """Return which blocks each box meets, of shape (boxes, blocks)."""
    found = np.ones((len(asked.query), len(blocks)), np.bool_)
    for column in np.flatnonzero(asked.limits.any(axis=0)):
        found &= blocks.high[column] >= asked.low[:, column, None]
        found &= blocks.low[column] <= asked.high[:, column, None]
    return found


def _share(blocks: Blocks, asked: Asked, column: int, chosen: Ints) -> Floats:
    """Return which share of the rows of some blocks each box asks for on one column, of shape (boxes, blocks)."""
    if not asked.limits[:, column].any():
        return np.ones((len(asked.query), 1))
    low, high = blocks.low[column, chosen], blocks.high[column, chosen]
    width = np.minimum(high, asked.high[:, column, None]) - np.maximum(low, asked.low[:, column, None])
    one_value = high == low
    found: Floats = np.clip(width / np.where(one_value, 1, high - low), 0, 1)
    return np.where(one_value & (width >= 0), 1.0, found)
