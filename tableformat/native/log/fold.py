"""Decide which small segments to rewrite as one, so that a table never has many.

This trades rewritten metadata against segments that every scan reads. Segments are kept in tiers whose sizes are four
times apart. Four segments of one tier become one of the next, as in a log-structured merge tree. So a block's row is
rewritten at most log4(10,000) = 7 times, and a table of n blocks has at most 21 small segments besides n / 5,000 large
ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

SEGMENT_BLOCKS = 10_000
"""Blocks of a full segment (measured: reading 100 such files takes 0.1 s locally, 1 to 2 s from MinIO)."""

FAN_IN = 4


def fold_plan(block_counts: Sequence[int], *, capacity: int = SEGMENT_BLOCKS) -> tuple[tuple[int, ...], ...]:
    """Return groups of two or more segments, by their place in `block_counts`, each to be rewritten as one.

    No group has more than `capacity` blocks; segments of half the capacity or more stay as they are. O(n log n).
    """
    tiers: dict[int, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
    for place, count in enumerate(block_counts):
        if count < capacity / 2:
            tiers[_tier(count)].append((count, (place,)))
    done: list[tuple[int, ...]] = []
    for tier in range(_tier(capacity) + 1):
        entries = tiers.pop(tier, [])
        while len(entries) >= FAN_IN:
            total = 0
            places: tuple[int, ...] = ()
            while entries and total + entries[0][0] <= capacity:
                count, more = entries.pop(0)
                total, places = total + count, places + more
                if _tier(total) > tier and len(places) >= FAN_IN:
                    break
            if _tier(total) > tier and total < capacity / 2:
                tiers[_tier(total)].append((total, places))
            else:
                done.append(places)
        done.extend(places for _, places in entries)
    return tuple(tuple(sorted(places)) for places in done if len(places) > 1)


def _tier(count: int) -> int:
    return int(math.log(count, FAN_IN) + 1e-9)
