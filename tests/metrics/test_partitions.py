"""Blocks of several partitions, measured at once: each partition's figures, combined."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.metrics.information import ClusteringFigures, RankedBlocks, clustering_info
from tblctl.metrics.intervals import known_mean, overlaps_and_depths, selection_depths
from tblctl.metrics.partitions import ranks_by_partition
from tblctl.metrics.worst import deepest_hills

INT64 = (-(2**63), 2**63 - 1)


@st.composite
def partitioned(draw):
    """Return low, high and partition of blocks: few ranks touch, nest and repeat; many and far ones are sorted."""
    ranks = draw(st.sampled_from([st.integers(0, 6), st.integers(-50, 50), st.integers(*INT64)]))
    codes = draw(st.sampled_from([st.integers(0, 2), st.integers(0, 20), st.integers(*INT64)]))
    blocks = draw(st.lists(st.tuples(ranks, ranks, codes), max_size=30))
    ends = np.array([sorted(block[:2]) for block in blocks], np.int64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1], np.array([block[2] for block in blocks], np.int64)


def members(partition):
    """Return the numbers of the blocks of each partition, in order."""
    return [np.flatnonzero(partition == code) for code in np.unique(partition)]


@given(partitioned())
def test_overlaps_and_depths_are_those_within_each_partition(blocks):
    low, high, partition = blocks
    ends = ranks_by_partition(low, high, partition)
    found = [*overlaps_and_depths(*ends), selection_depths(*ends)]
    for chosen in members(partition):
        alone = [*overlaps_and_depths(low[chosen], high[chosen]), selection_depths(low[chosen], high[chosen])]
        for every, own in zip(found, alone, strict=True):
            assert every[chosen].tolist() == own.tolist()


@given(partitioned())
def test_ranks_order_by_partition_then_by_key_and_have_no_gaps(blocks):
    low, high, partition = blocks
    codes = np.unique(partition, return_inverse=True)[1]
    before = list(zip(np.tile(codes, 2).tolist(), np.concatenate((low, high)).tolist(), strict=True))
    after = np.concatenate(ranks_by_partition(low, high, partition)).tolist()
    if len(set(partition.tolist())) > 1:
        places = {end: place for place, end in enumerate(sorted(set(before)))}
        assert after == [places[end] for end in before]
    else:
        assert after == [end for _, end in before]


@given(partitioned(), st.integers(0, 6))
def test_the_deepest_ranges_are_the_deepest_of_all_partitions(blocks, limit):
    low, high, partition = blocks
    ends = ranks_by_partition(low, high, partition)
    found = [(hill.depth, np.flatnonzero(hill.blocks).tolist()) for hill in deepest_hills(*ends, limit)]
    every = [
        (hill.depth, chosen[hill.blocks].tolist())
        for chosen in members(partition)
        for hill in deepest_hills(low[chosen], high[chosen], len(low))
    ]
    every.sort(key=lambda hill: -hill[0])
    assert found == every[:limit]


def arrays(low, high, levels, marks):
    unclustered, unknown = marks & 1 == 1, marks & 2 == 2
    return RankedBlocks(
        low=low,
        high=high,
        level=levels,
        row_count=np.arange(low.size) + 1,
        size_bytes=np.arange(low.size) * 10,
        constant=(low == high) & ~unclustered,
        unclustered=unclustered,
        unknown=unknown,
    )


def combined(parts: list[ClusteringFigures], depths: list[int]) -> dict:
    """Return the figures of all partitions together, given each one's, and the depths of all measured blocks."""

    def summed(name):
        return sum(getattr(part, name) for part in parts)

    blocks = summed("total_block_count")
    buckets: Counter[str] = Counter()
    for part in parts:
        buckets.update(dict(part.block_depth_histogram))
    ordered = sorted(depths)
    return {
        "total_block_count": blocks,
        "constant_block_count": summed("constant_block_count"),
        "unclustered_block_count": summed("unclustered_block_count"),
        "unknown_block_count": summed("unknown_block_count"),
        "rows": summed("rows"),
        "bytes": summed("bytes"),
        "block_depth_histogram": dict(sorted(buckets.items())),
        "average_depth": known_mean(sum(depths), len(depths), blocks),
        "p50": ordered[-(-50 * len(ordered) // 100) - 1] if ordered else (None if blocks else 0),
        "max": ordered[-1] if ordered else (None if blocks else 0),
    }


@given(partitioned(), st.data())
def test_the_figures_of_a_table_are_those_of_its_partitions_combined(blocks, data):
    low, high, partition = blocks
    numbers = st.lists(st.integers(0, 2), min_size=low.size, max_size=low.size)
    levels = np.array(data.draw(numbers), np.int64)
    marks = np.array(data.draw(st.lists(st.integers(0, 9), min_size=low.size, max_size=low.size)), np.int64)
    marks[marks > 3] = 0
    found = clustering_info(["k"], arrays(*ranks_by_partition(low, high, partition), levels, marks))
    whole = arrays(low, high, levels, marks)
    parts, depths, overlaps = [], [], 0
    for chosen in members(partition):
        parts.append(clustering_info(["k"], whole.pick(chosen)))
        measured = chosen[marks[chosen] == 0]
        overlap, depth = overlaps_and_depths(low[measured], high[measured])
        depths += depth.tolist()
        overlaps += int(overlap.sum())
    told = found.to_dict() | {"p50": found.depth.p50, "max": found.depth.max}
    expected = combined(parts, depths)
    assert {name: told[name] for name in expected} == expected
    assert found.average_overlaps == known_mean(overlaps, len(depths), low.size)
    for level, figures in found.levels:
        levels_of = [dict(part.levels).get(level) for part in parts]
        alone = [part for part in levels_of if part is not None]
        assert figures.total_block_count == sum(part.total_block_count for part in alone)
        assert dict(figures.block_depth_histogram) == combined(alone, [])["block_depth_histogram"]


@pytest.mark.parametrize("spread", [1, 10**6])
def test_blocks_of_one_partition_keep_their_ranks(spread):
    low = np.array([3, 1]) * spread
    high = np.array([5, 4]) * spread
    found = ranks_by_partition(low, high, np.array([7, 7]))
    assert [part.tolist() for part in found] == [low.tolist(), high.tolist()]
