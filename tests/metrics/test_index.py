"""The interval index against the bulk path and a plain model, edit after edit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases
from sortedcontainers import SortedList

from tblctl.metrics import index
from tblctl.metrics.index import BULK_SHARE, IntervalIndex
from tblctl.metrics.intervals import depths, overlaps

HIGHEST = 2**63 - 1
NONE = np.empty(0, np.int64)


@pytest.fixture(autouse=True)
def _small_lists(monkeypatch):
    """Lists split after a few entries, so that small tables have many."""
    monkeypatch.setattr(SortedList, "DEFAULT_LOAD_FACTOR", 4)


@pytest.fixture(params=["as it decides", "never in bulk", "always in bulk"])
def bulk_share(request):
    """Which way depths are kept up to date."""
    return {"as it decides": BULK_SHARE, "never in bulk": 0, "always in bulk": 10**9}[request.param]


# Fixtures only set what stays the same for all examples.
examples = partial(settings, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ranges(ranks):
    return st.lists(st.tuples(ranks, ranks).map(sorted), max_size=12)


# Few ranks make blocks touch, nest and repeat; powers of two are where cells end; the highest must not overflow.
RANKS = st.one_of(
    st.integers(0, 6),
    st.integers(0, 60),
    st.integers(0, 62).map(lambda bits: 2**bits),
    st.integers(0, HIGHEST),
    st.just(HIGHEST),
)
EDITS = st.lists(st.tuples(ranges(RANKS), st.sets(st.integers(0, 11))), min_size=1, max_size=6)


def arrays(pairs):
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    return ends[:, 0].copy(), ends[:, 1].copy()


def check_against_bulk(found, blocks):
    """`blocks` has the ends by number, which the index must have too."""
    found._check()
    low, high = arrays([blocks[number] for number in sorted(blocks)])
    assert len(found) == len(blocks)
    assert found.overlap_sum == overlaps(low, high).sum()
    assert found.depth_sum == depths(low, high).sum()


def check_queries(found, blocks, low, high):
    inside = sorted(number for number, (begin, end) in blocks.items() if begin <= high and low <= end)
    assert sorted(found.overlapping(low, high).tolist()) == inside
    assert found.count(low, high) == len(inside)
    at_low = sorted(number for number, (begin, end) in blocks.items() if begin <= low <= end)
    assert sorted(found.overlapping(low, low).tolist()) == at_low
    assert found.count(low, low) == len(at_low)


@examples(max_examples=cases(50))
@given(start=ranges(RANKS), edits=EDITS, asked=st.lists(st.tuples(RANKS, RANKS).map(sorted), max_size=5))
def test_after_any_edits_the_index_is_what_the_bulk_path_makes_of_the_blocks(bulk_share, start, edits, asked):
    found = IntervalIndex(*arrays(start), bulk_share=bulk_share)
    blocks = dict(enumerate(start))
    check_against_bulk(found, blocks)
    for added, picked in edits:
        present = sorted(blocks)
        removed = [present[place] for place in picked if place < len(present)]
        numbers = found.replace(np.array(removed, np.int64), *arrays(added))
        for number in removed:
            del blocks[number]
        assert not blocks.keys() & set(numbers.tolist())
        blocks |= dict(zip(numbers.tolist(), added, strict=True))
        check_against_bulk(found, blocks)
    points = [pair for block in blocks.values() for pair in (block, block[::-1][:1] * 2)]
    for low, high in [*asked, *points, (0, HIGHEST)]:
        check_queries(found, blocks, low, high)


@examples()
@given(start=ranges(RANKS), low=RANKS, high=RANKS)
def test_a_block_that_is_added_and_removed_leaves_no_trace(bulk_share, start, low, high):
    found = IntervalIndex(*arrays(start), bulk_share=bulk_share)
    before = (found.overlap_sum, found.depth_sum)
    number = found.add(min(low, high), max(low, high))
    check_against_bulk(found, dict(enumerate(start)) | {number: (min(low, high), max(low, high))})
    found.remove(number)
    assert (found.overlap_sum, found.depth_sum) == before
    check_against_bulk(found, dict(enumerate(start)))


@pytest.mark.parametrize("seed", range(4))
def test_a_long_life_of_merges_and_arrivals(bulk_share, seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 4000, 400)
    found = IntervalIndex(low, low + rng.integers(0, 60, low.size), bulk_share=bulk_share)
    blocks = dict(enumerate(zip(low.tolist(), found._high.tolist(), strict=True)))
    for step in range(40):
        point = int(rng.integers(0, 4000))
        removed = found.overlapping(point, point + 20)
        cuts = np.unique(rng.integers(point, point + 30, 5))
        added = arrays(list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)))
        if step % 10 == 5:  # a small append: one block over everything
            added = arrays([(0, 4100)])
        numbers = found.replace(removed, *added)
        for number in removed.tolist():
            del blocks[number]
        blocks |= dict(
            zip(numbers.tolist(), zip(*(part.tolist() for part in added), strict=True), strict=True)
        )
        check_against_bulk(found, blocks)


def test_numbers_that_became_free_are_given_again_so_that_a_long_life_needs_no_more_memory():
    found = IntervalIndex(*arrays([(0, 1)] * 10))
    for _ in range(100):
        found.remove(found.add(3, 4))
    assert found._low.size == 15


@pytest.fixture
def looked_up(monkeypatch):
    """How many blocks are measured in each call."""
    sizes = []

    def counting(low, high):
        sizes.append(low.size)
        return depths(low, high)

    monkeypatch.setattr(index, "depths", counting)
    return sizes


def test_an_edit_looks_only_at_the_blocks_that_it_touches(looked_up):
    low = np.arange(0, 100_000, 10)
    found = IntervalIndex(low, low + 15)
    looked_up.clear()
    found.replace(np.array([50, 7000]), *arrays([(503, 512), (70_000, 70_005)]))
    assert max(looked_up) <= 6
    found._check()


def test_blocks_that_lie_in_the_range_of_an_edit_as_a_whole_are_looked_at_once(looked_up):
    low = np.arange(0, 100_000, 10)
    found = IntervalIndex(np.append(low, 500), np.append(low + 5, 605))
    looked_up.clear()
    found.remove(low.size)
    assert looked_up == [12, 11]  # before and after
    assert found.depth_sum == len(found)  # none overlaps another any more


def test_a_block_over_everything_is_looked_at_again_only_if_its_deepest_point_went(looked_up):
    low = np.arange(0, 100_000, 10)
    deep = arrays([(0, 100_000), (77_000, 77_001), (77_000, 77_002), (77_000, 77_003)])
    found = IntervalIndex(np.concatenate((low, deep[0])), np.concatenate((low + 5, deep[1])))
    assert found._depth.max() == 5
    looked_up.clear()
    found.remove(50)
    assert max(looked_up) <= 2
    assert found._depth.max() == 5
    looked_up.clear()
    for number in (1, 2, 3):
        found.remove(low.size + number)
    assert looked_up[-1] == len(found)
    assert found._depth.max() == 2
    found._check()


def test_without_blocks_everything_is_zero():
    found = IntervalIndex(NONE, NONE)
    found._check()
    assert (len(found), found.overlap_sum, found.depth_sum, found.count(5, 5)) == (0, 0, 0, 0)
    assert found.overlapping(0, HIGHEST).tolist() == []
    assert found.replace(NONE, NONE, NONE).size == 0
    assert found.add(2, 2) == 0
    found.remove(0)
    found._check()


@pytest.mark.parametrize(
    ("removed", "added", "error", "message"),
    [
        ([0, 2], [], KeyError, "no block 2"),
        ([-1], [], KeyError, "no block -1"),
        ([1], [], KeyError, "no block 1"),  # it was removed before
        ([0, 0], [], KeyError, "named twice"),
        ([0], [(4, 3)], ValueError, "block 0 has its low 4 above its high 3"),
        ([0], [(0, 1), (-1, 3)], ValueError, "block 1 has its low at -1"),
    ],
)
def test_an_edit_that_is_refused_changes_nothing(removed, added, error, message):
    found = IntervalIndex(*arrays([(1, 5), (2, 3)]))
    found.remove(1)
    with pytest.raises(error, match=message):
        found.replace(np.array(removed), *arrays(added))
    check_against_bulk(found, {0: (1, 5)})


def test_negative_ranks_are_refused_at_construction():
    with pytest.raises(ValueError, match="must not be negative"):
        IntervalIndex(np.array([-3]), np.array([4]))


def test_the_arrays_given_may_change_afterwards():
    low, high = arrays([(1, 5), (2, 3)])
    found = IntervalIndex(low, high)
    low[:], high[:] = 0, 0
    check_against_bulk(found, {0: (1, 5), 1: (2, 3)})


@pytest.mark.parametrize("broken", ["_low", "overlap_sum", "depth_sum", "_depth", "_lows", "_cells"])
def test_check_notices_a_part_that_is_wrong(broken):
    found = IntervalIndex(*arrays([(1, 5), (2, 3), (9, 9)]))
    if broken in {"_low", "_depth"}:
        getattr(found, broken)[0] += 1
    elif broken in {"_lows", "_cells"}:
        getattr(found, broken).clear()
    else:
        setattr(found, broken, 99)
    with pytest.raises(AssertionError):
        found._check()
