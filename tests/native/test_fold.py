"""Which small segments are rewritten as one: few are left, and the metadata written stays bounded."""

from __future__ import annotations

import math

import pyarrow as pa
from arrow_rows import memory_table
from hypothesis import given
from hypothesis import strategies as st
from profiles import THOROUGH

from tblctl.tableformat.native.log.fold import FAN_IN, SEGMENT_BLOCKS, fold_plan

APPENDS = 1_000 if THOROUGH else 200


def folded(counts, capacity=SEGMENT_BLOCKS):
    """Return the segments' sizes after one plan, and the blocks rewritten for it."""
    groups = fold_plan(counts, capacity=capacity)
    chosen = {place for group in groups for place in group}
    sums = [sum(counts[place] for place in group) for group in groups]
    return [count for place, count in enumerate(counts) if place not in chosen] + sums, sum(sums)


@given(st.lists(st.integers(1, 500), max_size=200), st.integers(4, 500))
def test_a_plan_names_every_segment_once_and_fills_none_beyond_its_capacity(counts, capacity):
    groups = fold_plan(counts, capacity=capacity)
    places = [place for group in groups for place in group]
    assert len(places) == len(set(places))
    assert set(places) <= set(range(len(counts)))
    for group in groups:
        assert len(group) >= 2
        assert sum(counts[place] for place in group) <= capacity
        assert all(counts[place] < capacity / 2 for place in group), "segments half full stay"


@given(st.lists(st.integers(1, 20_000), max_size=300))
def test_few_small_segments_remain(counts):
    left, _ = folded(counts)
    assert sum(left) == sum(counts)
    small = [count for count in left if count < SEGMENT_BLOCKS / 2]
    tiers = math.floor(math.log(SEGMENT_BLOCKS, FAN_IN)) + 1
    assert len(small) <= (FAN_IN - 1) * tiers


def test_ten_thousand_appends_of_one_block_rewrite_each_row_at_most_seven_times():
    segments, written, most = [], 0, 0
    for number in range(1, 10_001):
        segments, rewritten = folded([*segments, 1])
        written += max(rewritten, 1)
        most = max(most, len(segments))
        assert sum(segments) == number
    assert most <= 3 * 7
    assert written <= 7 * 10_000 + 10_000


def test_appends_of_mixed_sizes_stay_amortised():
    segments, written, blocks = [], 0, 0
    for number in range(3_000):
        size = [1, 1, 7, 40, 900][number % 5]
        blocks += size
        segments, rewritten = folded([*segments, size])
        written += max(rewritten, size)
    assert written <= 8 * blocks
    assert len(segments) <= blocks / (SEGMENT_BLOCKS / 2) + 21


def test_full_segments_are_never_touched():
    assert fold_plan([SEGMENT_BLOCKS] * 100 + [1]) == ()
    assert fold_plan([5_000] * 50) == ()


def test_many_appends_of_one_row_leave_few_segments_and_every_row():
    with memory_table("n: int64, s: string", cluster_by="n") as table:
        for number in range(APPENDS):
            table.append(pa.table({"n": [number], "s": [f"row {number}"]}))
        segments = table._native.head().segments
        assert len(segments) < 20
        assert sum(segment.block_count for segment in segments) == APPENDS
        assert table.scan().to_arrow().sort_by("n")["n"].to_pylist() == list(range(APPENDS))
        assert table.scan("n = 177").to_arrow()["s"].to_pylist() == ["row 177"]
        explained = table.scan("n = 177").explain()
        assert explained.blocks_read == 1
        assert explained.segments_pruned >= len(segments) - 1
        storage = table._native.storage
        written = list(storage.list("metadata/segments/"))
        assert len(written) == APPENDS  # one object for each append, with or without folding
        assert sum(item.size_bytes for item in written) < APPENDS * 16_000
        assert table.check().ok
