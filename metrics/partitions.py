"""Place blocks of different partitions apart, so that one computation measures all of them.

No block and no merge crosses partitions. So overlaps and depths count the blocks of one partition only. Ranks that are
ordered by partition first and key second give that: blocks of different partitions share no point, and within a
partition nothing changes.
"""

from __future__ import annotations

import numpy as np

from tblctl.metrics.intervals import Integers

TABLE, MATCHING = "table", "partitions that may match"
"""What figures are of: all blocks; or, given a condition, those of partitions that may hold matching rows."""


def ranks_by_partition(low: Integers, high: Integers, partition: Integers) -> tuple[Integers, Integers]:
    """Return ranks that order the ends of blocks by partition first, then as `low` and `high` do.

    The ranks are dense, from 0; equal ends of one partition share a rank. With one partition, `low` and `high` are
    returned unchanged. O(n log n).

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
