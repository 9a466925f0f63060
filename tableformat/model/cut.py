"""How rows are cut into blocks.

Rows in key order are first cut into blocks of planned sizes. Then each cut may move back by a few rows, its *slack*, to
where a key ends, so that neighbours share no key and a query for it reads one of them. Every cut is decided alone, from
the keys around it: so tasks that know of no other cut together write what one would.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tblctl.tableformat.model.block import FULL_SHARE
from tblctl.tableformat.model.options import TableOptions

ROOM = 0.95
"""Blocks that `block_bytes` bounds are planned to fill so much of it on average: planned to fill it, every second one
would exceed it by a little, and become two."""


SLACK_SHARE = 0.05
"""A cut moves by at most this part of a block. More would end longer runs of one key, in blocks of more uneven size."""


def most_rows(options: TableOptions, row_bytes: float) -> int:
    """Return how many rows of about `row_bytes` decoded bytes each a block is planned to hold."""
    return max(1, min(options.block_rows, math.floor(ROOM * options.block_bytes / max(row_bytes, 1))))


def cut_rows(row_count: int, block_rows: int) -> tuple[int, ...]:
    """Return the sizes of the blocks that `row_count` rows are cut into, each at most `block_rows`.

    A last block under 0.8 x `block_rows` is not left as a sliver: the rows are then spread evenly.
    """
    full, rest = divmod(row_count, block_rows)
    if full == 0 or rest == 0 or rest >= FULL_SHARE * block_rows:
        return (block_rows,) * full + ((rest,) if rest else ())
    count = full + 1
    size, more = divmod(row_count, count)
    return (size + 1,) * more + (size,) * (count - more)


def slack_rows(sizes: Sequence[int], block_rows: int) -> tuple[int, ...]:
    """Return for each cut between blocks of these sizes how many rows it may move back.

    However other cuts move, none that moves so far makes a block larger than `block_rows`, or one that would have been
    full no longer full. Blocks that are planned to have `block_rows` leave no slack.
    """
    full = math.floor(FULL_SHARE * block_rows)
    most = math.floor(SLACK_SHARE * block_rows)
    return tuple(
        max(0, min(most, block_rows - after, before - full if before >= full else before - 1))
        for before, after in itertools.pairwise(sizes)
    )


def rows_back(key_changes: np.ndarray) -> int:
    """Return by how many rows a cut moves back: to the nearest place where the key changes; 0 if there is none.

    Args:
        key_changes: for each place where the cut may be, the one that was planned last, whether a key ends there.
    """
    ends = np.flatnonzero(key_changes)
    return int(len(key_changes) - 1 - ends[-1]) if ends.size else 0
