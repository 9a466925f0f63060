"""Where a table is worst clustered: the ranges of keys that most blocks share.

Pure: ranks in, ranges of ranks out. A range begins at the deepest point that no earlier range holds. It extends to both
sides while the depth stays above half of that: one range a hill, not one for every bump of its top. Between two points
where blocks begin or end, only blocks that go on count. So neighbours of a sorted run that share one key make a range
of that key alone.

If all blocks of a range also reach into an earlier one, the range is left out: rewriting the earlier one resolves both.
This leaves out the shoulders of a hill, where the depth falls below half of its top. Each side has at most one shoulder
for each halving, since the depth of blocks that share a range can only fall with the distance from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tblctl.metrics.intervals import Integers, depth_curve


@dataclass(frozen=True, kw_only=True)
class DeepRange:
    """A range of keys that many blocks share.

    Attributes:
        min, max: its first and last key, one value a term.
        depth: the number of blocks that may hold its deepest key.
        blocks: how many blocks may hold a key of it. A rewrite that separates them rewrites all of these.
        rows, bytes: of these blocks. A block may be in several ranges.
        partition: of these blocks; None in a table without partitions.
    """

    min: tuple[Any, ...]
    max: tuple[Any, ...]
    depth: int
    blocks: int
    rows: int
    bytes: int
    partition: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the range as JSON values, if `min` and `max` are."""
        found = {
            "min": list(self.min),
            "max": list(self.max),
            "depth": self.depth,
            "blocks": self.blocks,
            "rows": self.rows,
            "bytes": self.bytes,
        }
        return found if self.partition is None else {**found, "partition": self.partition}


@dataclass(frozen=True, kw_only=True, eq=False)
class Hill:
    """A range of ranks, its greatest depth, and a mask of the blocks that overlap it."""

    low: int
    high: int
    depth: int
    blocks: npt.NDArray[np.bool_]


def deepest_hills(low: Integers, high: Integers, limit: int) -> list[Hill]:
    """Return at most `limit` disjoint ranges in which blocks overlap, deepest first, equally deep ones in key order.

    Blocks overlap where a point is in at least two of them. A range without a block of its own is left out.
    O(n log n + limit x n log n).

    Raises:
        ValueError: the arrays differ in length, or a block's low is above its high.
    """
    curve = depth_curve(low, high)
    stops = np.diff(np.searchsorted(np.sort(high), curve.points, side="right"), prepend=0)
    # Point, gap after it, next point, ..: the depth of a gap is the number of blocks that go on from the point before.
    steps = np.stack((curve.depths, curve.depths - stops), axis=1).ravel()
    hills: list[Hill] = []
    while len(hills) < limit and steps.size:
        peak = 2 * int(steps[::2].argmax())  # a gap that is left over between two ranges has no key to name
        depth = int(steps[peak])
        if depth < 2:  # noqa: PLR2004 - one block: nothing overlaps there
            break
        lower = np.flatnonzero(steps * 2 <= depth)
        place = int(np.searchsorted(lower, peak))
        first = int(lower[place - 1]) + 1 if place else 0
        last = int(lower[place]) - 1 if place < lower.size else steps.size - 1
        begin, end = int(curve.points[(first + 1) // 2]), int(curve.points[last // 2])
        blocks = (low <= end) & (high >= begin)
        if all(np.any(blocks & ~hill.blocks) for hill in hills):
            hills.append(Hill(low=begin, high=end, depth=depth, blocks=blocks))
        steps[first : last + 1] = 0
    return hills
