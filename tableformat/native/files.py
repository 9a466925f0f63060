"""List a snapshot's blocks with the bounds of their keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort, monotonic, transform_array
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.model.values import python_value
from tblctl.tableformat.native.metadata import BlockMetadata
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
    metadata = BlockMetadata(storage, segments, snapshot.schema)
    blocks = metadata.blocks(np.arange(wanted))
    others = [
        row
        for row, block in enumerate(blocks)
        if not block.cluster or block.cluster.cluster_key_id != snapshot.cluster_key_id
    ]
    rebuilt = (
        column_bounds(metadata, snapshot.sort, np.array(others, dtype=np.int64))
        if snapshot.sort and others
        else []
    )
    bounds = dict(zip(others, rebuilt, strict=False))
    result = []
    for row, block in enumerate(blocks):
        own = (block.cluster.min, block.cluster.max) if block.cluster and row not in bounds else ((), ())
        result.append((block, bounds.get(row, own if snapshot.sort else ((), ()))))
    return result


def column_bounds(metadata: BlockMetadata, sort: Sort, rows: np.ndarray) -> list[Bounds]:
    """Return what column statistics say of the least and greatest key of some blocks, term by term; None is unknown.

    A transform that keeps order turns bounds into bounds; a bucket does not. Column statistics leave out nulls and NaN,
    which have their place in key order: where there may be any, they are the bound on their side.
    """
    chosen = pa.array(rows)
    lows, highs = [], []
    for term in sort.terms:
        leaf = metadata.schema.leaf_by_id(term.column_id)
        statistics = metadata.column(leaf) if leaf and monotonic(term) else None
        if leaf is None or statistics is None:
            lows.append([None] * len(rows))
            highs.append([None] * len(rows))
            continue
        ends = [bound.take(chosen) for bound in (statistics.min, statistics.max)]
        if term.transform != "identity":
            ends = [transform_array(term, bound, leaf.type) for bound in ends]
        if statistics.nan_count is not None:
            nan = pa.scalar(math.nan, ends[1].type)
            ends[1] = pc.if_else(pa.array(statistics.nan_count[rows] != 0), nan, ends[1])
        if term.descending:
            ends.reverse()
        nulls = pa.array(statistics.null_count[rows] != 0)
        side = 0 if term.nulls_first else 1
        ends[side] = pc.if_else(nulls, pa.scalar(None, ends[side].type), ends[side])
        lows.append([python_value(value) for value in ends[0]])
        highs.append([python_value(value) for value in ends[1]])
    return list(zip(zip(*lows, strict=True), zip(*highs, strict=True), strict=True))
