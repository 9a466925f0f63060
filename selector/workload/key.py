"""Which cluster key the queries of a window call for: a what-if on the whole table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tblctl.selector.workload.asked import Asked, Ints, Key, Mask
from tblctl.selector.workload.choose import DEFAULT_ALPHA, SIZES, WORTH_MORE, Split
from tblctl.selector.workload.replay import Blocks, read_cost


@dataclass(frozen=True, kw_only=True)
class KeyCost:
    """What a table costs by a key, in seconds.

    Attributes:
        reading: of the window's queries, once all blocks are in its order.
        rewriting: of the blocks that are not.
    """

    reading: float
    rewriting: float

    def total(self, alpha: float) -> float:
        """Return both, a second of rewriting as `alpha`."""
        return self.reading + alpha * self.rewriting


def cost_of_key(
    blocks: Blocks,
    asked: Asked,
    key: Key,
    in_order: Mask,
    *,
    block_rows: float,
    partition: Ints | None = None,
) -> KeyCost:
    """Return what a table costs by a key. Blocks are sorted by it, up to 1,024 together.

    Those that are in its order already are merged where that pays, as blocks of appends that overlap: otherwise the
    present key would count with its overlaps, and every other one without.

    By a key of no column, which stands for one that no query asks by, nothing is rewritten. O(boxes x blocks).
    """
    reads = read_cost(blocks, asked)
    if not key:
        return KeyCost(reading=float(reads.sum()), rewriting=0.0)
    split = Split(blocks, asked, reads, block_rows, DEFAULT_ALPHA, 0.0, partition)
    groups = split.groups(np.flatnonzero(~in_order), key, SIZES[-1])
    overlapping = split.groups(np.flatnonzero(in_order), key, SIZES[-1])
    groups += [group for group in overlapping if group.before - group.after > DEFAULT_ALPHA * group.price]
    return KeyCost(
        reading=float(reads.sum()) - sum(group.before - group.after for group in groups),
        rewriting=sum(group.price for group in groups),
    )


def better_key(present: KeyCost, others: Sequence[KeyCost], alpha: float = DEFAULT_ALPHA) -> int | None:
    """Return which of other keys costs least, if the present one costs more than 1.1 times as much; else None."""
    if not others:
        return None
    best = min(range(len(others)), key=lambda number: others[number].total(alpha))
    return best if others[best].total(alpha) * WORTH_MORE < present.total(alpha) else None
