"""Which blocks to sort together, and by what: those of which the window's queries would then read enough less.

A what-if on bounds. It trades seconds of queries against seconds of rewriting; `alpha` is what a second of rewriting
has to save. The window weighs a query by how many followed it, so that what it saves is what is expected of as many
queries again as the window counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tblctl.selector.workload.asked import Asked, Floats, Ints, Key
from tblctl.selector.workload.outputs import Groups, predicted_cost, sorted_groups
from tblctl.selector.workload.replay import Blocks, read_cost, wasted

SIZES = (64, 256, 1024)
"""Blocks of a group: a larger one needs more memory, and is lost as a whole to another writer."""

WORTH_MORE = 1.1
"""Larger groups are made only where queries and rewriting would else cost so many times as much."""

DEFAULT_ALPHA = 1.3
"""Seconds that a second of rewriting has to save."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Regroup:
    """Blocks to sort together.

    Attributes:
        blocks: their numbers.
        key: the columns.
        before, after: seconds that the window's queries take to read them, and to read what they become.
        price: seconds that it takes.
    """

    blocks: Ints
    key: Key
    before: float
    after: float
    price: float

    def net(self, alpha: float) -> float:
        """Return the seconds that it gains."""
        return self.before - self.after - alpha * self.price


def regroups(
    blocks: Blocks,
    asked: Asked,
    *,
    block_rows: float,
    keys: Sequence[Key] | None = None,
    alpha: float = DEFAULT_ALPHA,
    group_seconds: float = 0.0,
    sizes: Sequence[int] = SIZES,
    partition: Ints | None = None,
) -> list[Regroup]:
    """Return the groups whose rewrite pays, the most gainful per second first. They share no block.

    Each block goes with the key whose group gains most for it. O(keys x boxes x blocks).

    Args:
        blocks: those that may be rewritten.
        asked: the queries of the window.
        block_rows: rows of a full block.
        keys: that may be chosen; None for all that the queries suggest.
        alpha: what a second of rewriting has to save.
        group_seconds: what a group costs besides its blocks.
        sizes: blocks of a group, ascending.
        partition: of each block; None for one. No group crosses partitions.
    """
    keys = asked.candidate_keys() if keys is None else keys
    if not (keys and len(blocks)):
        return []
    reads = read_cost(blocks, asked)
    worth = np.flatnonzero(reads > alpha * blocks.rewrite_seconds)  # of the others no key can save enough
    blocks, reads = blocks.pick(worth), reads[worth]
    partition = None if partition is None else partition[worth]
    waste = wasted(blocks, asked, keys)
    split = Split(blocks, asked, reads, block_rows, alpha, group_seconds, partition)
    best, choice = np.full(len(blocks), -np.inf), np.full(len(blocks), -1)
    for number, key in enumerate(keys):
        for group in split.groups(
            np.flatnonzero(waste[number] > alpha * blocks.rewrite_seconds), key, sizes[0]
        ):
            gain = group.net(alpha) / len(group.blocks)
            better = group.blocks[gain > best[group.blocks]]
            best[better], choice[better] = gain, number
    found = [
        group
        for number, key in enumerate(keys)
        for group in split.best_sized(np.flatnonzero(choice == number), key, sizes)
    ]
    found.sort(key=lambda group: -group.net(alpha) / max(group.price, 1e-12))
    return [replace(group, blocks=worth[group.blocks]) for group in found]


@dataclass(frozen=True, eq=False)
class Split:
    """Blocks, cut into groups by key."""

    blocks: Blocks
    asked: Asked
    reads: Floats
    block_rows: float
    alpha: float
    group_seconds: float
    partition: Ints | None

    def groups(self, candidates: Ints, key: Key, size: int) -> list[Regroup]:
        """Return groups of neighbours by the key's low bound, `size` together, whether they pay or not."""
        return [
            group for members in self._members(candidates, key, size) for group in self._priced(members, key)
        ]

    def best_sized(self, candidates: Ints, key: Key, sizes: Sequence[int]) -> list[Regroup]:
        """Return the groups that pay, of the smallest size that a larger one does not clearly beat."""
        best: list[Regroup] = []
        now = left = float(self.reads[candidates].sum())
        for place, size in enumerate(sizes):
            if place and candidates.size <= sizes[place - 1]:
                break
            found = [group for group in self.groups(candidates, key, size) if group.net(self.alpha) > 0]
            then = now - sum(group.net(self.alpha) for group in found)
            if then * WORTH_MORE < left or not place:
                best, left = found, then
        return best

    def _members(self, candidates: Ints, key: Key, size: int) -> Iterator[Ints]:
        """Yield groups of equal size, one a row; what is left of a partition is a group by itself."""
        low = self.blocks.low[key[0], candidates]
        if self.partition is None:
            parts = [candidates[np.argsort(low, kind="stable")]]
        else:
            place = self.partition[candidates]
            order = np.lexsort((low, place))
            parts = np.split(candidates[order], np.flatnonzero(np.diff(place[order])) + 1)
        for part in parts:
            whole = part.size // size * size
            if whole:
                yield part[:whole].reshape(-1, size)
            if part.size - whole > 1:
                yield part[whole:].reshape(1, -1)

    def _priced(self, members: Ints, key: Key) -> list[Regroup]:
        groups: Groups = sorted_groups(self.blocks, members, key, self.block_rows)
        after = predicted_cost(groups, self.asked)
        before = self.reads[members].sum(axis=1)
        price = self.blocks.rewrite_seconds[members].sum(axis=1) + self.group_seconds
        return [
            Regroup(blocks=chosen, key=key, before=float(b), after=float(a), price=float(p))
            for chosen, b, a, p in zip(members, before, after, price, strict=True)
        ]
