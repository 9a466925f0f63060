"""How rows are cut into blocks."""

from __future__ import annotations

import math

from tblctl.tableformat.model.block import FULL_SHARE
from tblctl.tableformat.model.options import TableOptions

ROOM = 0.95
"""Blocks that `block_bytes` bounds are planned to fill so much of it on average: planned to fill it, every second one
would exceed it by a little, and become two."""


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
