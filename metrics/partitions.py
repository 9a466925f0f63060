"""Blocks of different partitions apart from each other, so that one computation measures all of them.

A partition is a part of a table that no block crosses, and no merge: what blocks of another one hold does not matter to
a block. So overlaps and depths are those among the blocks of one partition. Ranks by partition first and key second say
just that: blocks of different partitions then share no point, and within a partition nothing changes.
"""

from __future__ import annotations

import numpy as np

from tblctl.metrics.intervals import Integers


def ranks_by_partition(low: Integers, high: Integers, partition: Integers) -> tuple[Integers, Integers]:
    """Return ranks that order the ends of blocks by partition first, then as `low` and `high` do.

    They are dense, from 0: equal ends of one partition share one. O(n log n). Without a second partition, `low` and
    `high` themselves.

    Args:
        low: where each block begins.
        high: where it ends.
        partition: a number for each block.
    """
    if not partition.size or (partition == partition[0]).all():
        return low, high
    ends = np.concatenate((low, high))
    least, most = int(ends.min()), int(ends.max())
    _, number = np.unique(partition, return_inverse=True)
    count = int(number.max()) + 1
    if (most - least + 1) * count > np.iinfo(np.int64).max:
        ends, least = np.unique(ends, return_inverse=True)[1], 0
        most = int(ends.max())
    apart = ends - least + np.tile(number, 2) * (most - least + 1)
    ranks = np.unique(apart, return_inverse=True)[1].astype(np.int64)
    return ranks[: low.size], ranks[low.size :]
