"""`full` sorts blocks of other writers, of whose rows no order is known, though they overlap nothing: once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tblctl.selector.budget import Budget
from tblctl.selector.planner import plan
from tblctl.selector.policies.full import Full, FullOptions
from tblctl.selector.policies.levels import Levels, LevelsOptions
from tblctl.selector.table_view import NO_SORT, TableView

from .tables import SimTable

KEYS = (range(10), range(10, 20), range(20, 30), [30] * 10)


def foreign(*blocks: int) -> TableView:
    """Return four full blocks that overlap nothing, the last of one key; of some no order is known (Iceberg)."""
    view = SimTable(block_rows=10).append(*KEYS).view()
    sort_ids = np.where(np.isin(np.arange(4), blocks), NO_SORT, view.sort_id)
    return dataclasses.replace(view, sort_ids=sort_ids)


def groups(view: TableView, **options: bool) -> list[list[int]]:
    decision = Full().decide(view, Budget(), FullOptions(**options))
    return [draft.blocks.tolist() for draft in decision.drafts]


@pytest.mark.parametrize(
    ("unknown", "expected"),
    [
        ((), []),
        ((1,), [[1]]),
        ((0, 2), [[0], [2]]),
        ((0, 1, 2), [[0], [1], [2]]),
        ((3,), []),  # rows of one key are in any order
    ],
)
def test_blocks_of_unknown_order_are_sorted_and_those_in_order_stay(
    unknown: tuple[int, ...], expected: list[list[int]]
) -> None:
    assert groups(foreign(*unknown)) == expected


def test_without_unclustered_blocks_their_bounds_alone_count() -> None:
    view = foreign(0, 2)
    assert groups(view, include_unclustered=False) == []
    decision = Full().decide(view, Budget(), FullOptions(include_unclustered=False))
    (left,) = [item for item in decision.rejections if item.rule == "no_gain"]
    assert (left.blocks, "in 2 of them rows may be in another order" in left.why) == (3, True)


def test_levels_measures_them_as_any_other_block() -> None:
    assert Levels().decide(foreign(0, 1, 2), Budget(), LevelsOptions(include_unclustered=True)).drafts == ()


def test_they_come_last_and_take_what_room_is_left() -> None:
    view = SimTable(block_rows=10).append(range(10), range(20, 40, 2), range(21, 41, 2), range(50, 60)).view()
    mixed = dataclasses.replace(view, sort_ids=np.full(4, NO_SORT))
    assert groups(mixed) == [[1, 2], [0], [3]]
    for budget, rule in (
        (Budget(max_groups=2), "max_groups"),
        (Budget(max_blocks=3), "max_blocks"),
        (Budget(max_bytes=int(view.size_bytes[:3].sum())), "max_bytes"),
    ):
        decision = Full().decide(mixed, budget, FullOptions())
        assert [draft.blocks.tolist() for draft in decision.drafts] == [[1, 2], [0]]
        assert [(item.rule, item.blocks) for item in decision.rejections] == [(rule, 1)]
    small = Full().decide(mixed, Budget(), FullOptions(max_group_bytes=1))
    assert small.drafts == ()
    assert [(item.rule, item.blocks) for item in small.rejections] == [("max_group_bytes", 4)]


def test_a_target_depth_does_without_them() -> None:
    view = SimTable(block_rows=10).append(range(10), range(20, 40, 2), range(21, 41, 2)).view()
    foreign_ = dataclasses.replace(view, sort_ids=np.full(3, NO_SORT))
    budget = Budget(target_depth=1.0)
    found = plan(foreign_, Full(), FullOptions(), budget, memory_bytes=2**30, now=0.0, rng=lambda: 0.5)
    assert [group.blocks for group in found.plan.groups] == [tuple(view.names(np.array([1, 2])))]


def test_a_block_of_unknown_keys_that_is_alone_is_sorted() -> None:
    view = SimTable(block_rows=10).append(range(10), unknown=True).view()
    assert groups(view) == []
    assert groups(dataclasses.replace(view, sort_ids=np.array([NO_SORT]))) == [[0]]
