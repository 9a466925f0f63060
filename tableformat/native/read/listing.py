"""List a snapshot's blocks with the bounds of their keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.log.segment_reader import python_values
from tblctl.tableformat.native.read.key_ranges import fetch_key_ranges
from tblctl.tableformat.native.read.metadata import BlockMetadata
from tblctl.tableformat.storage import Storage

Bounds = tuple[tuple[Any, ...], tuple[Any, ...]]


def list_blocks(storage: Storage, snapshot: Snapshot, limit: int | None) -> list[tuple[Block, Bounds]]:
    """Return the first `limit` blocks (all for None), each with the least and greatest key it may hold.

    Reads only the segments that list them.
    """
    wanted = snapshot.block_count if limit is None else max(0, min(limit, snapshot.block_count))
    segments, count = [], 0
    for segment in snapshot.segments:
        if count >= wanted:
            break
        segments.append(segment)
        count += segment.block_count
    metadata = BlockMetadata(storage, segments, snapshot.schema, snapshot.sorts.values())
    rows = np.arange(wanted)
    return list(zip(metadata.blocks(rows), _bounds(metadata, snapshot, wanted), strict=True))


def _bounds(metadata: BlockMetadata, snapshot: Snapshot, count: int) -> list[Bounds]:
    """Return the least and greatest key that each of the first blocks may hold; None for a term if unknown."""
    sort = snapshot.sort
    if sort is None:
        return [((), ())] * count
    ranges = fetch_key_ranges(metadata, sort)
    lows, highs = (
        list(zip(*(python_values(column.slice(0, count)) for column in ends.columns), strict=True))
        for ends in (ranges.low, ranges.high)
    )
    return list(zip(lows, highs, strict=True))
