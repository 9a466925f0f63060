"""How many tasks the groups of a round are cut into, so that all processors end at about the same time.

Two things are traded. More tasks balance better: three equal groups on two processors leave one processor idle for a
quarter of the time; six halves do not. Fewer tasks cost less: for each cut the group's keys are read first, and row
groups across it are read twice. So groups get their share of one task for each processor. They get more tasks only if
the schedule would otherwise be more than a tenth longer than possible.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

_LONGER = 1.1
"""A schedule is good enough if it takes at most this many times as long as an even one."""

_FINEST = 4
"""Most tasks for each processor. With four, an uneven last task costs at most a quarter of the time, usually less."""


def tasks_per_group(sizes: Sequence[int], *, most: Sequence[int], parallelism: int) -> list[int]:
    """Return the number of tasks for each group.

    Args:
        sizes: the groups' bytes in memory, in the order in which they begin, largest first.
        most: how many tasks each can be cut into.
        parallelism: how many tasks run at once.
    """
    even = max(sum(sizes), 1) / parallelism
    found: list[tuple[float, list[int]]] = []
    for finer in range(1, _FINEST + 1):
        counts = [
            min(largest, max(1, math.ceil(size * finer / even)))
            for size, largest in zip(sizes, most, strict=True)
        ]
        length = schedule_length(sizes, counts, parallelism)
        if length <= _LONGER * even:
            return counts
        found.append((length, counts))
    return min(found)[1]


def schedule_length(sizes: Sequence[int], counts: Sequence[int], parallelism: int) -> float:
    """Return when the last task ends if each begins as soon as one of `parallelism` slots is free. O(n log n)."""
    ends = [0.0] * parallelism
    for size, count in zip(sizes, counts, strict=True):
        for _ in range(count):
            heapq.heapreplace(ends, ends[0] + size / count)
    return max(ends)
