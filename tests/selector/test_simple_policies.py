"""`size`, `sort-one`, `depth`, `newdata`: every plan keeps the rules, and `--final` stops as each policy proves."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.selector import planner
from tblctl.selector.budget import Budget
from tblctl.selector.policies.size import Size, SizeOptions
from tblctl.selector.table_view import MOST_LEVEL, NO_SORT
from tblctl.tableformat.model.cluster_key import AS_LISTED
from tblctl.tableformat.model.statistics import Deletions

from .test_final import ADVERSARIES, SimTable, block_lists, spread, table_from


def stretches(table):
    """Return the lengths of all blocks, in stretches between neighbouring keys of the table, added up."""
    keys = sorted({key for block in table.blocks for key in block.keys})
    place = {key: number for number, key in enumerate(keys)}
    return sum(place[block.keys[-1]] - place[block.keys[0]] for block in table.blocks if block.is_measured)


DECREASES = {  # policy: options, and what falls with every group, as its file proves
    "size": ({}, lambda table: len(table.blocks)),
    "sort-one": ({}, lambda table: sum(block.sort_id == NO_SORT for block in table.blocks)),
    "depth": ({"clustering_depth": 1, "include_unclustered": True}, lambda table: table.work_left),
    "newdata": (
        {"cube_bytes": 40, "include_unclustered": True},
        lambda table: sum(block.unclustered or block.level == 0 for block in table.blocks),
    ),
}
ROUNDS = {"size": 6, "sort-one": 1, "depth": 12, "newdata": 3}
"""That any of the adversarial tables may take."""


@pytest.mark.parametrize("name", ADVERSARIES)
@pytest.mark.parametrize("policy", DECREASES)
def test_adversarial_tables_are_done_in_a_few_rounds(name, policy):
    block_rows, blocks, _ = ADVERSARIES[name]
    table = SimTable(block_rows=block_rows).append(*blocks, unclustered=policy == "sort-one")
    chosen, left = DECREASES[policy]
    for done, plan in enumerate(table.rounds(policy, **chosen), 1):
        before = left(table)
        assert done <= ROUNDS[policy]
        merged = table.copy()
        merged.merge(plan)
        assert left(merged) <= before - len(plan.groups)
    assert sorted(key for block in table.blocks for key in block.keys) == sorted(itertools.chain(*blocks))


@settings(max_examples=cases(50), deadline=None)
@given(block_lists, st.sampled_from(sorted(DECREASES)), st.data())
def test_final_stops_on_any_table_and_what_the_policy_names_falls_with_every_group(blocks, policy, data):
    table = table_from(*blocks)
    chosen, left = DECREASES[policy]
    limits = data.draw(st.sampled_from([{}, {"max_blocks": 5}, {"max_groups": 1}, {"max_bytes": 30}]))
    bound = table.work_left
    for done, plan in enumerate(table.rounds(policy, **chosen, **limits), 1):
        assert done <= bound
        merged = table.copy()
        merged.merge(plan)
        assert left(merged) <= left(table) - len(plan.groups)
        assert merged.work_left <= table.work_left - sum(group.rows for group in plan.groups)


LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "max_bytes": st.integers(1, 80),
        "max_blocks": st.integers(1, 12),
        "max_groups": st.integers(1, 3),
        "include_unclustered": st.booleans(),
    },
)
OWN = {
    "size": {
        "small_file_bytes": st.integers(1, 8),
        "min_input_files": st.integers(2, 5),
        "max_group_bytes": st.integers(1, 400),
    },
    "sort-one": {},
    "depth": {
        "clustering_depth": st.sampled_from([1, 1.5, 3]),
        "most_blocks": st.integers(2, 5),
        "max_group_bytes": st.integers(1, 400),
    },
    "newdata": {"cube_bytes": st.integers(1, 60)},
}


@settings(max_examples=cases(70), deadline=None)
@given(block_lists, LIMITS, st.sampled_from(sorted(OWN)), st.data())
def test_every_plan_keeps_the_rules(blocks, limits, policy, data):
    chosen = limits | data.draw(st.fixed_dictionaries({}, optional=OWN[policy]))
    table = table_from(*blocks)
    count = len(table.blocks)
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    plan = table.plan(policy, restricted=allowed, **chosen)
    by_path = {block.path: (block, bool(fine)) for block, fine in zip(table.blocks, allowed, strict=True)}
    taken = [path for group in plan.groups for path in group.blocks]
    assert set(taken) <= set(by_path), "only blocks of the table"
    assert len(set(taken)) == len(taken), "no block twice"
    assert all(by_path[path][1] for path in taken), "only what `where` allows"
    assert len(taken) <= chosen.get("max_blocks", count)
    assert sum(group.size_bytes for group in plan.groups) <= chosen.get("max_bytes", 10**9)
    assert len(plan.groups) <= chosen.get("max_groups", 10**9)
    for group in plan.groups:
        members = [by_path[path][0] for path in group.blocks]
        assert (
            max(0 if block.unclustered else block.level for block in members)
            < group.output_level
            <= MOST_LEVEL
        )
        assert policy == "sort-one" or len(members) > 1 or members[0].unclustered
        assert policy not in {"depth", "size"} or group.decoded_bytes <= chosen.get("max_group_bytes", 10**9)
    if policy in {"depth", "newdata"} and not chosen.get("include_unclustered", False):
        assert not any(by_path[path][0].unclustered for path in taken)
    left = sum(item.blocks for item in plan.rejected)
    assert left + len(taken) == count, "every block is taken or left out for a reason"
    assert bool(plan.groups) != plan.note.startswith("nothing to do")


@pytest.mark.parametrize("policy", DECREASES)
def test_blocks_of_several_partitions_are_never_merged_together(policy):
    table = SimTable(block_rows=10)
    for partition in range(3):
        table.append(*[range(5)] * 4, partition=partition, unclustered=policy == "sort-one")
    plan = table.plan(policy, **DECREASES[policy][0])
    partition_of = {block.path: block.partition for block in table.blocks}
    of_groups = [{partition_of[path] for path in group.blocks} for group in plan.groups]
    assert set.union(*of_groups) == {0, 1, 2}
    assert all(len(found) == 1 for found in of_groups)


@pytest.mark.parametrize("policy", DECREASES)
def test_blocks_in_the_order_of_another_live_sort_are_left_in_it(policy):
    table = SimTable(block_rows=10).append(*[range(5)] * 4)
    view = table.view()
    assert not any(item.rule == "other_sort" for item in table.plan(policy, **DECREASES[policy][0]).rejected)
    table.blocks = [type(block)(**{**vars(block), "sort_id": 2}) for block in table.blocks]
    table.sorts[2] = type(view.sorts[1])(id=2, terms=view.sorts[1].terms)
    plan = table.plan(policy, **DECREASES[policy][0])
    assert not plan.groups
    assert {item.rule: item.blocks for item in plan.rejected} == {"other_sort": 4}


def test_a_group_of_depth_shortens_blocks_that_share_a_stretch():
    table = SimTable(block_rows=10).append(*[spread(n, 1000 - n, 10) for n in range(40)])
    for plan in table.rounds("depth", clustering_depth=1):
        before = stretches(table)
        merged = table.copy()
        merged.merge(plan)
        assert stretches(merged) <= before - len(plan.groups)


def worn_view(table, deletes, *, keyless):
    """Return the view of a table with so many files of deletes for each block, each of which deletes half of it."""
    view, files = table.view(), np.array([deletes.get(block.path, 0) for block in table.blocks], np.int64)
    rows = view.row_count * np.minimum(files / 2, 1)
    changed = {"deletions_of": lambda: Deletions(files=files, rows=rows)}
    if keyless:
        every = np.ones(len(view), np.bool_)
        none = np.zeros(len(view), np.bool_)
        changed |= {"sort_id": AS_LISTED.id, "sorts": {}, "sort_ids": np.zeros(len(view), np.int64)}
        changed |= {"unknown": every, "constant": none, "unclustered": none}
    return replace(view, **changed)


def planned_by_size(view, options, **limits):
    return planner.plan(
        view, Size(), options, Budget(**limits), memory_bytes=1 << 20, now=0.0, rng=lambda: 0.5
    ).plan


def test_blocks_with_too_many_deletes_are_rewritten_alone_even_if_finished_or_merged_most_often():
    table = (
        SimTable(block_rows=4).append([7] * 4, [8] * 4).append([1, 2, 3, 4], [3, 4, 5, 6], level=MOST_LEVEL)
    )
    one, two = (table.blocks[place].path for place in (0, 2))
    plan = planned_by_size(worn_view(table, {one: 1, two: 1}, keyless=False), SizeOptions())
    assert {group.blocks: group.output_level for group in plan.groups} == {(one,): 1, (two,): MOST_LEVEL}
    assert {item.rule: item.blocks for item in plan.rejected} == {"constant": 1, "max_level": 1}


def test_a_block_that_is_rewritten_for_its_deletes_alone_stays_in_its_level():
    table = SimTable(block_rows=4).append([1, 2, 3, 4], level=5)
    path = table.blocks[0].path
    (group,) = planned_by_size(worn_view(table, {path: 1}, keyless=False), SizeOptions()).groups
    assert group.output_level == 5


@settings(max_examples=cases(50), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3), st.integers(0, 2)), max_size=25),
    st.booleans(),
    st.sampled_from([{}, {"max_blocks": 5}, {"max_groups": 1}]),
)
def test_size_ends_with_deletes_and_without_a_key_since_deletes_or_else_blocks_fall(blocks, keyless, limits):
    table = SimTable(block_rows=10)
    for rows, _, partition in blocks:
        table.append(range(rows), partition=partition)
    deletes = {block.path: files for block, (_, files, _) in zip(table.blocks, blocks, strict=True)}
    left = sum(deletes.values()), len(table.blocks)
    options = SizeOptions(delete_file_threshold=2)
    for _ in range(1 + sum(left) + sum(rows for rows, *_ in blocks)):
        view = worn_view(table, deletes, keyless=keyless)
        plan = planned_by_size(view, options, **limits)
        if not plan.groups:
            break
        assert all(group.sort_id == view.sort_id for group in plan.groups)
        assert all(len(group.blocks) > 1 or deletes[group.blocks[0]] for group in plan.groups)
        groups = tuple(replace(group, sort_id=1) for group in plan.groups)  # its view says which it is
        table.merge(replace(plan, groups=groups))
        deletes = {block.path: deletes.get(block.path, 0) for block in table.blocks}
        before, left = left, (sum(deletes.values()), len(table.blocks))
        assert left < before
    else:
        raise AssertionError("it did not end")
    assert not any(files >= 2 for files in deletes.values())
