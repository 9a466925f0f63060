"""Which blocks `sort-one` sorts: one rule a test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tblctl.selector import draft
from tblctl.selector.budget import Budget
from tblctl.selector.policies import sort_one
from tblctl.selector.policies.sort_one import SortOne, SortOneOptions
from tblctl.selector.table_view import NO_SORT

from .tables import SimTable


def mixed():
    return (
        SimTable(block_rows=10)
        .append(range(9), range(3, 12))
        .append(range(5, 14), range(6, 15), unclustered=True)
    )


def test_each_block_in_no_order_is_a_group_of_its_own():
    table = mixed()
    plan = table.plan("sort-one")
    assert [group.blocks for group in plan.groups] == [(block.path,) for block in table.blocks[2:]]
    assert {group.output_level for group in plan.groups} == {1}


def test_sorted_blocks_are_left_alone_however_they_overlap():
    plan = mixed().plan("sort-one")
    assert {item.rule: item.blocks for item in plan.rejected} == {"sorted": 2}


def test_a_block_is_sorted_once():
    table = mixed()
    table.merge(table.plan("sort-one"))
    assert not any(block.unclustered for block in table.blocks)
    assert table.plan("sort-one").note == "nothing to do: 4 blocks: in the order of the key already"


def test_files_of_other_writers_whose_order_is_not_known_are_sorted_too():
    view = SimTable(block_rows=10).append(range(9), range(3, 12)).view()
    foreign = replace(view, sort_ids=np.array([NO_SORT, view.sort_id]))
    decision = SortOne().decide(foreign, Budget(), SortOneOptions())
    assert [item.blocks.tolist() for item in decision.drafts] == [[0]]


def test_a_plan_has_no_more_groups_than_any(monkeypatch):
    assert sort_one.MOST_GROUPS == draft.MOST_GROUPS
    monkeypatch.setattr(sort_one, "MOST_GROUPS", 1)
    plan = mixed().plan("sort-one")
    assert len(plan.groups) == 1
    assert {item.rule: item.blocks for item in plan.rejected} == {"max_groups": 1, "sorted": 2}


def test_a_budget_takes_as_many_blocks_as_fit():
    assert len(mixed().plan("sort-one", max_bytes=10).groups) == 1
    assert len(mixed().plan("sort-one", max_blocks=2).groups) == 2
