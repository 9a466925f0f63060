"""How rows are cut into blocks.

Rows in key order are first cut into blocks of planned sizes. Then each cut may move back by a few rows, its *slack*, to
where a key ends. Then neighbours share no key, and a query for it reads one of them. Each cut is decided from the keys
around it alone. So several tasks, without knowing each other's cuts, write the same blocks as one task would. (Files of
Iceberg tables are ended by their size on storage instead: `merger/task/file_sizes.py`.)

Blocks in the order of a tree end where leaves end, as far as they are full then (`leaf_cuts`): a block of rows of two
leaves is read by the queries of both. That follows from how many rows each leaf has, so keys are read
before the first cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tblctl.tableformat.model.block import FULL_SHARE
from tblctl.tableformat.model.options import TableOptions

Integers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

ROOM = 0.95
"""Blocks that `block_bytes` limits are planned to fill this share of it on average. If they were planned to fill all of
it, every second one would slightly exceed it and become two."""


SLACK_SHARE = 0.05
"""A cut moves by at most this part of a block. More would keep longer runs of one key together, but make blocks less
even in size."""


def most_rows(options: TableOptions, row_bytes: float) -> int:
    """Return how many rows a block is planned to hold, if each takes about `row_bytes` decoded bytes."""
    return max(1, min(options.block_rows, math.floor(ROOM * options.block_bytes / max(row_bytes, 1))))


def cut_rows(row_count: int, block_rows: int, same_key_rows: int | None = None) -> tuple[int, ...]:
    """Return the sizes of the blocks that `row_count` rows are cut into, each at most `block_rows`.

    See `block_counts`; `same_key_rows` is None if unknown.
    """
    known = -1 if same_key_rows is None else same_key_rows
    counts, evenly = block_counts(*(np.array([number]) for number in (row_count, block_rows, known)))
    count = int(counts[0])
    if evenly[0]:
        return _even(row_count, count)
    full, rest = divmod(row_count, block_rows)
    return (block_rows,) * full + ((rest,) if rest else ())


def block_counts(rows: Integers, block_rows: Integers, same_key_rows: Integers) -> tuple[Integers, Mask]:
    """Return for each merge how many blocks it is cut into, and whether these have one size.

    Blocks have one size (give or take a row) in two cases: if the last block would otherwise be a sliver, under
    0.8 x `block_rows`; or if one size, possibly with one block more and all blocks full, leaves enough slack for every
    cut to reach the end of a key. Else all blocks but the last have `block_rows` rows.

    Args:
        rows: of each merge.
        block_rows: most rows of a block of each merge.
        same_key_rows: most rows that any key has in each merge; -1 if unknown.
    """
    counts = -(-rows // block_rows)
    evenly = (counts > 1) & (rows - (counts - 1) * block_rows < FULL_SHARE * block_rows)

    def leaves_slack(count: Integers) -> Mask:
        least, most = rows // np.maximum(count, 1), -(-rows // np.maximum(count, 1))
        slack = np.minimum(cut_slack(least, most, block_rows), cut_slack(most, most, block_rows))
        found: Mask = (counts > 1) & (same_key_rows > 1) & (slack >= same_key_rows - 1)
        return found

    enough = leaves_slack(counts)
    stay_full = rows // (counts + 1) >= np.floor(FULL_SHARE * block_rows)
    with_one_more = ~enough & stay_full & leaves_slack(counts + 1)
    return counts + with_one_more, evenly | enough | with_one_more


def cut_slack(before: Integers, after: Integers, block_rows: Integers) -> Integers:
    """Return how many rows cuts between blocks of these sizes may move back.

    Within this slack no cut, however others move, makes a block larger than `block_rows`, or a full block less than
    full. Blocks that are planned to have `block_rows` leave no slack.
    """
    full = np.floor(FULL_SHARE * block_rows).astype(np.int64)
    most = np.floor(SLACK_SHARE * block_rows).astype(np.int64)
    to_spare = np.where(before >= full, before - full, before - 1)
    slack: Integers = np.maximum(0, np.minimum(np.minimum(most, block_rows - after), to_spare))
    return slack


def slack_rows(sizes: Sequence[int], block_rows: int) -> tuple[int, ...]:
    """Return `cut_slack` of each cut between blocks of these sizes."""
    rows = np.array(sizes, np.int64)
    return tuple(cut_slack(rows[:-1], rows[1:], np.array(block_rows)).tolist())


def rows_back(key_changes: np.ndarray) -> int:
    """Return by how many rows a cut moves back, to the nearest place where the key changes; 0 if there is none.

    Args:
        key_changes: whether a key ends at each place where the cut may be; the planned place is the last.
    """
    ends = np.flatnonzero(key_changes)
    return int(len(key_changes) - 1 - ends[-1]) if ends.size else 0


def leaf_cuts(leaf_rows: Sequence[int], block_rows: int) -> tuple[int, ...]:
    """Return the sizes of the blocks that rows in the order of a tree are cut into, each at most `block_rows`.

    Leaves are taken in order. Blocks end with a leaf if the leaves since the last such end fill blocks of equal size,
    as few as hold them. What is left after the last end goes to the blocks before it. So blocks are full, and no two
    neighbours fit into one, as far as there are rows for that. O(leaves).

    Args:
        leaf_rows: rows of each leaf, in order.
        block_rows: the most rows of a block.
    """
    full = max(1, math.floor(FULL_SHARE * block_rows))
    parts: list[int] = []
    rest = 0
    for rows in leaf_rows:
        rest += rows
        if rest // -(-max(rest, 1) // block_rows) >= full:
            parts.append(rest)
            rest = 0
    if rest:
        parts[-1:] = [sum(parts[-1:]) + rest]
    return tuple(size for part in parts for size in _even(part, -(-part // block_rows)))


def _even(rows: int, count: int) -> tuple[int, ...]:
    size, more = divmod(rows, count)
    return (size + 1,) * more + (size,) * (count - more)
