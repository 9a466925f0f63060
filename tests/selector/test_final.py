"""`--final` stops on every table and leaves it well clustered, and every plan keeps the rules."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.selector.draft import most_rows
from tblctl.selector.predict.outputs import expected_cuts
from tblctl.selector.simulate import ROW_BYTES
from tblctl.selector.table_view import MOST_LEVEL
from tblctl.tableformat.model.cut import block_counts, cut_rows
from tblctl.tableformat.model.options import TableOptions

from .tables import SimTable


def spread(low, high, count):
    return [low + (high - low) * number // (count - 1) for number in range(count)]


ADVERSARIES = {  # name: block_rows, appended blocks, rounds that it may take
    "all equal keys, full": (10, [[5] * 10] * 30, 0),
    "all equal keys, slivers": (10, [[5]] * 95, 3),
    "all equal keys, more than half full": (1000, [[5] * 700] * 9, 3),
    "two alternating keys": (10, [[1, 2] * 5] * 40, 3),
    "two keys in turn": (10, [[1] * 5, [2] * 5] * 20, 3),
    "nested ranges": (10, [spread(n, 1000 - n, 10) for n in range(40)], 4),
    "blocks one row over the limit": (10, [spread(n, 900 + n, 11) for n in range(30)], 4),
    "equal keys one row over the limit": (10, [[5] * 11] * 30, 0),
    "two keys one row over the limit": (10, [[1] * 5 + [2] * 6] * 30, 4),
    "every block full range": (10, [[0, *range(n + 1, n + 9), 1000] for n in range(50)], 4),
    "a run around a heavy key": (1000, [[1] + [7] * 699, [7] * 700, [7] * 699 + [9]], 0),
    "a run around a heavy key, small middle": (4, [[1, 7, 7, 7], [7, 7], [7, 7, 7, 9]], 3),
    "constant slivers of many keys": (10, [[n // 3] * 4 for n in range(90)], 5),
    "touching chain": (10, [spread(9 * n, 9 * n + 9, 10) for n in range(40)], 0),
    "stairs": (10, [spread(5 * n, 5 * n + 9, 10) for n in range(60)], 5),
}


@pytest.mark.parametrize("name", ADVERSARIES)
@pytest.mark.parametrize("policy", ["levels", "full", "runs"])
def test_adversarial_tables_are_done_in_a_few_rounds(name, policy):
    block_rows, blocks, rounds = ADVERSARIES[name]
    table = SimTable(block_rows=block_rows).append(*blocks)
    plans = table.final(policy, most_rounds=rounds, **DEEPEST.get(policy, {}))
    print(f"{policy}, {name}: {len(plans)} rounds, {len(blocks)} -> {len(table.blocks)} blocks")
    assert sorted(key for block in table.blocks for key in block.keys) == sorted(itertools.chain(*blocks))


@pytest.mark.parametrize("every_range", [False, True])
@pytest.mark.parametrize("name", ADVERSARIES)
def test_adversarial_tables_are_done_within_tight_limits_of_a_group(name, every_range):
    block_rows, blocks, _ = ADVERSARIES[name]
    table = SimTable(block_rows=block_rows).append(*blocks)
    limits = {"max_group_bytes": 5 * block_rows * ROW_BYTES, "most_rounds": 33 * len(blocks) // 2}
    plans = table.final(**limits, every_range=every_range)
    print(f"{name}: {len(plans)} rounds of at most 5 blocks a group")


@pytest.mark.parametrize("name", ADVERSARIES)
def test_adversarial_tables_are_parted_by_runs_one_group_at_a_time_within_tight_limits(name):
    block_rows, blocks, _ = ADVERSARIES[name]
    table = SimTable(block_rows=block_rows).append(*blocks, level=MOST_LEVEL)
    most = table.covered_gaps
    plans = table.final("runs", target_depth=1, max_group_bytes=3 * block_rows * ROW_BYTES, max_groups=1)
    print(f"{name}: {len(plans)} rounds of at most 3 blocks, {most} gaps")
    assert len(plans) <= most


DEEPEST = {"runs": {"target_depth": 1}}
"""So that each policy has work to do until nothing overlaps."""

WIDTHS = {
    "wide rows in the middle": lambda key: 300 if 400 <= key < 450 else 2,
    "wider and wider": lambda key: 1 + key // 8,
    "every second hundred": lambda key: 90 if key // 100 % 2 else 3,
    "few rows above block_bytes": lambda key: 5000 if key % 97 == 0 else 4,
    "one side empty": lambda key: 120 if key < 300 else 0,
}


def small_enough(table, keys):
    """Return keys as lists, each of no more bytes than a block may have."""
    parts = [[]]
    for key in keys:
        if parts[-1] and table.decoded_bytes([*parts[-1], key]) > table.block_bytes:
            parts.append([])
        parts[-1].append(key)
    return parts


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("policy", ["levels", "full", "runs"])
def test_rows_of_uneven_width_are_done_in_a_few_rounds(width, policy):
    rng = random.Random(1)
    table = SimTable(block_rows=200, block_bytes=1000, width=WIDTHS[width])
    for _ in range(20):
        table.append(*small_enough(table, sorted(rng.randrange(1000) for _ in range(50))))
    before = len(table.blocks)
    plans = table.final(policy, most_rounds=5, **DEEPEST.get(policy, {}))
    print(f"{policy}, {width}: {len(plans)} rounds, {before} -> {len(table.blocks)} blocks")
    run = sorted(table.blocks, key=lambda block: block.keys)
    if policy == "full":
        assert not any(fit_together(table, *pair) for pair in itertools.pairwise(run))


def fit_together(table, one, other):
    size = table.decoded_bytes(one.keys + other.keys)
    rows = len(one.keys + other.keys)
    return (
        min(one.level, other.level) >= 0
        and rows <= table.block_rows
        and max(size, rows) < 0.95 * table.block_bytes
    )


def test_of_a_sorted_run_only_neighbours_that_fit_into_one_block_are_merged():
    table = SimTable(block_rows=10).append(*[[n] * 7 for n in range(30)], [40] * 3, [41], [42] * 7)
    assert table.ranges_of(table.plan("full")) == [[(29, 29), (40, 40)], [(41, 41), (42, 42)]]
    assert len(table.plan("full", max_groups=1).groups) == 1
    assert {item.rule: item.blocks for item in table.plan("full", max_groups=1).rejected} == {
        "max_groups": 2,
        "no_gain": 29,
    }


def test_constant_blocks_of_one_key_are_packed():
    table = SimTable(block_rows=10).append(*[[5] * 3] * 11)
    table.final(most_rounds=1)
    assert [entry[2:] for entry in table.listed()] == [[-1, 9], [-1, 9], [-1, 9], [1, 6]]
    table = SimTable(block_rows=1000).append(*[[5] * 600] * 5)
    assert not table.final()


keys = st.one_of(st.integers(0, 3), st.integers(0, 40), st.integers(0, 10**6))
block_lists = st.integers(2, 12).flatmap(
    lambda rows: st.tuples(
        st.just(rows),
        st.lists(
            st.tuples(
                st.lists(keys, min_size=1, max_size=rows + 1),
                st.sampled_from([0, 0, 0, 1, 2, 31, 32]),
                st.sampled_from(["clustered"] * 6 + ["unclustered", "unknown", "both"]),
            ),
            max_size=25,
        ),
    )
)
options = st.fixed_dictionaries(
    {},
    optional={
        "threshold": st.sampled_from([1, 1.5, 2, 4]),
        "max_group_bytes": st.integers(1, 600),
        "max_bytes": st.integers(1, 80),
        "max_blocks": st.integers(1, 12),
        "max_groups": st.integers(1, 3),
        "target_depth": st.sampled_from([1, 1.5, 3]),
        "include_unclustered": st.booleans(),
    },
)
policies = st.sampled_from(["levels", "full", "runs"])


def table_from(rows, blocks):
    table = SimTable(block_rows=rows)
    for block_keys, level, kind in blocks:
        table.append(
            block_keys,
            level=level,
            unclustered=kind in {"unclustered", "both"},
            unknown=kind in {"unknown", "both"},
        )
    return table


@settings(max_examples=cases(100), deadline=None)
@given(block_lists, options, policies, st.data())
def test_every_plan_keeps_the_rules(blocks, chosen_options, policy, data):
    table = table_from(*blocks)
    count = len(table.blocks)
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    plan = table.plan(policy, restricted=allowed, **chosen_options)
    by_path = {block.path: (block, bool(fine)) for block, fine in zip(table.blocks, allowed, strict=True)}
    taken = [by_path[path] for group in plan.groups for path in group.blocks]
    assert len({block.path for block, _ in taken}) == len(taken), "no block in two groups"
    assert all(fine for _, fine in taken), "only what `where` allows"
    for block, _ in taken:
        assert block.unclustered or 0 <= block.level < MOST_LEVEL or policy == "runs"
        assert chosen_options.get("include_unclustered", policy == "full") or not block.unclustered
    for group in plan.groups:
        members = [by_path[path][0] for path in group.blocks]
        highest = max(0 if b.unclustered else b.level for b in members)
        assert group.output_level == highest + (highest < MOST_LEVEL)
        assert group.rows == sum(len(block.keys) for block in members)
        assert len(members) > 1 or members[0].unclustered
        assert group.decoded_bytes <= chosen_options.get("max_group_bytes", 10**9)
    assert len(taken) <= chosen_options.get("max_blocks", 10**9)
    assert sum(group.size_bytes for group in plan.groups) <= chosen_options.get("max_bytes", 10**9)
    assert len(plan.groups) <= chosen_options.get("max_groups", 10**9)
    left = sum(item.blocks for item in plan.rejected)
    assert policy == "levels" or left + len(taken) == count, (
        "full: every block is taken or left out for a reason"
    )
    assert bool(plan.groups) != plan.note.startswith("nothing to do")


@settings(max_examples=cases(70), deadline=None)
@given(block_lists, options, policies)
def test_final_stops_within_the_bound(blocks, chosen_options, policy):
    table = table_from(*blocks)
    bound = table.work_left // 2 + table.covered_gaps
    plans = table.final(policy, **chosen_options)  # asserts what decreases each round
    assert len(plans) <= bound


@settings(max_examples=cases(30), deadline=None)
@given(block_lists, st.sampled_from([1, 1.5, 3]))
def test_without_limits_final_leaves_every_level_clustered_or_unchangeable(blocks, threshold):
    table = table_from(*blocks)
    table.final(threshold=threshold, include_unclustered=True)
    assert not any(block.unclustered for block in table.blocks)
    rules = {item.rule for item in table.plan(threshold=threshold, include_unclustered=True).rejected}
    assert rules <= {"constant", "max_level", "too_few_blocks", "well_clustered", "no_gain"}


@given(
    st.lists(
        st.tuples(st.integers(1, 900), st.integers(1, 120), st.integers(1, 9) | st.just(-1)),
        min_size=1,
        max_size=8,
    )
)
def test_cuts_are_expected_as_rows_are_cut(groups):
    rows, most, same = (np.array(column, np.int64) for column in zip(*groups, strict=True))
    begins = [
        list(np.cumsum((0, *cut_rows(*group, None if known < 0 else known)))[:-1]) for *group, known in groups
    ]
    found = expected_cuts(rows, most, *block_counts(rows, most, same))
    assert found.tolist() == [begin for group in begins for begin in group]


def test_the_most_rows_of_a_block_follow_from_rows_or_from_bytes():
    options_ = TableOptions(block_rows=1000, block_bytes=100_000)
    most = most_rows(np.array([2500, 2500]), np.array([25_000, 500_000]), options_)
    assert most.tolist() == [1000, 475]  # planned to fill 0.95 of the bytes
