"""Groups along a curve that would not let ranges read fewer blocks are left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tblctl.metrics.boxes import Boxes
from tblctl.selector import box_test
from tblctl.selector.budget import Budget
from tblctl.selector.draft import Draft
from tblctl.selector.plan import Plan
from tblctl.selector.planner import Planned, plan
from tblctl.selector.policy import Decision
from tblctl.selector.registry import policy_named
from tblctl.selector.simulate import SimulatedTable
from tblctl.selector.table_view import TableView

ROWS = 10


def blocks_that_overlap(*starts: int, rows: int = ROWS) -> SimulatedTable:
    """Return a table with four blocks at each start that overlap on the curve."""
    table = SimulatedTable(block_rows=ROWS)
    for start in starts:
        table.append(*(range(start + at, start + at + 4 * rows, 4) for at in range(4)))
    return table


def with_boxes(table: SimulatedTable, *ends: tuple[int, int]) -> TableView:
    """Return the view of a table along a curve of two columns, by which all blocks have these ends."""
    view = table.view()
    low, high = (np.array(side) for side in zip(*ends, strict=True))

    def boxes_of(blocks: Any) -> Boxes:
        return Boxes(
            low=(low[blocks],) * 2,
            high=(high[blocks],) * 2,
            row_count=view.row_count[blocks],
            partition=view.partition[blocks],
        )

    return replace(view, boxes_of=boxes_of)


def planned(view: TableView, name: str, **options: Any) -> Plan:
    policy = policy_named(name)
    return plan(
        view,
        policy,
        policy.options(**options),
        Budget(target_depth=1 if name == "runs" else None),
        memory_bytes=1 << 30,
        now=0.0,
        rng=lambda: 0.5,
        with_advice=False,
    ).plan


APART = tuple((2 * at, 2 * at + 1) for at in range(4))
"""Boxes along the diagonal: a range of a column meets one of them, and two of a grid of four."""
EVERYWHERE = ((0, 9),) * 4
BY_DEPTH = {"levels": {}, "runs": {}, "depth": {"clustering_depth": 1.0}}


@pytest.mark.parametrize("name", BY_DEPTH)
def test_blocks_whose_boxes_are_apart_are_left_alone_though_they_overlap_on_the_curve(name: str) -> None:
    found = planned(with_boxes(blocks_that_overlap(0), *APART), name, **BY_DEPTH[name])
    assert found.groups == ()
    (left,) = [item for item in found.rejected if item.rule == "good_boxes"]
    assert (left.blocks, left.size_bytes) == (4, 4 * ROWS)
    assert "a 1 % range of one column reads 1.0 of them on average, at best 2.0" in left.why
    assert left.why in found.note


@pytest.mark.parametrize("name", BY_DEPTH)
def test_blocks_whose_boxes_hold_everything_are_merged(name: str) -> None:
    (group,) = planned(with_boxes(blocks_that_overlap(0), *EVERYWHERE), name, **BY_DEPTH[name]).groups
    assert len(group.blocks) == 4


def test_policies_that_do_not_bring_down_depth_take_them() -> None:
    (group,) = planned(with_boxes(blocks_that_overlap(0), *APART), "full").groups
    assert len(group.blocks) == 4


def test_another_key_than_a_curve_has_no_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_test, "worth_reading", None)
    monkeypatch.setattr("tblctl.selector.planner.worth_reading", None)
    assert len(planned(blocks_that_overlap(0).view(), "levels").groups) == 1


def test_small_blocks_are_put_together_all_the_same() -> None:
    view = with_boxes(blocks_that_overlap(0, rows=ROWS // 2), *APART)
    (group,) = planned(view, "levels").groups
    assert len(group.blocks) == 4


def test_blocks_without_a_bound_are_merged() -> None:
    view = replace(with_boxes(blocks_that_overlap(0), *APART), boxes_of=lambda _: None)
    assert len(planned(view, "levels").groups) == 1


def test_the_next_deepest_range_is_taken_where_the_deepest_is_left_alone() -> None:
    table = blocks_that_overlap(0)
    table.append(range(100, 120, 2), range(101, 121, 2), range(105, 125, 2))
    view = with_boxes(table, *APART, *((100, 109),) * 3)
    found = planned(view, "levels")
    assert [len(group.blocks) for group in found.groups] == [3]
    (left,) = [item for item in found.rejected if item.rule == "good_boxes"]
    assert left.blocks == 4


def clusters(*depths: int) -> tuple[SimulatedTable, list[tuple[int, int]]]:
    """Return a table with a cluster of so many blocks at each place, and boxes that are good but in the last one."""
    table = SimulatedTable(block_rows=ROWS)
    boxes = []
    for place, depth in enumerate(depths):
        start = 1_000 * place
        table.append(*(range(start + at, start + at + depth * ROWS, depth) for at in range(depth)))
        boxes += [(2 * at, 2 * at + 1) for at in range(depth)]
    return table, [*boxes[: -depths[-1]], *((50, 60),) * depths[-1]]


def test_one_look_at_the_ranges_finds_what_is_worth_it_below_many_that_are_not() -> None:
    table, boxes = clusters(*range(28, 3, -1), 3)
    (group,) = planned(with_boxes(table, *boxes), "levels").groups
    assert len(group.blocks) == 3


def resumed(view: TableView, policy: Any, state: Any = None) -> Planned:
    return plan(
        view,
        policy,
        policy.options(),
        Budget(),
        memory_bytes=1 << 30,
        state=state,
        now=0.0,
        rng=lambda: 0.5,
    )


def rules(found: Planned) -> set[str]:
    return {item.rule for item in found.plan.rejected}


def test_a_plan_whose_work_is_spent_says_so_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_test, "MOST_WORK", 2 * 400)
    table, boxes = clusters(9, 8, 7, 6, 3)
    view, levels = with_boxes(table, *boxes), policy_named("levels")
    first = resumed(view, levels)
    assert first.plan.groups == ()
    assert rules(first) == {"good_boxes", "not_looked_at"}
    assert first.plan.note.startswith("nothing to do so far: ")
    assert "not looked at yet" in first.plan.note
    second = resumed(view, levels, first.state)
    assert second.plan.groups == ()
    third = resumed(view, levels, second.state)
    assert [len(group.blocks) for group in third.plan.groups] == [3]
    assert third.state is None
    (before, *_) = [item for item in third.plan.rejected if item.rule == "good_boxes"]
    assert before.blocks == 9 + 8 + 7 + 6


class OneCluster:
    """Chooses the first blocks that may be chosen, and does not ask which are spared."""

    name, options, lowers_depth = "one-cluster", policy_named("levels").options, True

    def __init__(self) -> None:
        self.asked = 0

    def decide(self, view: TableView, *_: Any, state: Any, **__: Any) -> Decision:
        self.asked += 1
        chosen = np.flatnonzero(view.selectable)
        chosen = chosen[view.low[chosen] // 1_000 == view.low[chosen[:1]] // 1_000]
        drafts = (Draft(blocks=chosen, output_level=1, why="a test"),) if chosen.size else ()
        return Decision(drafts=drafts, state=state or "mine")


def test_a_policy_is_asked_a_limited_number_of_times_in_one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_test, "MOST_ROUNDS", 2)
    table, boxes = clusters(4, 4, 4)
    ranks = with_boxes(table, *boxes)
    starts = np.repeat(np.arange(3) * 1_000, 4)
    view = replace(ranks, low=starts, high=starts + 500)
    policy = OneCluster()
    first = resumed(view, policy)
    assert (first.plan.groups, policy.asked) == ((), 2)
    assert rules(first) == {"good_boxes", "not_looked_at"}
    second = resumed(view, policy, first.state)
    assert [len(group.blocks) for group in second.plan.groups] == [4]
    assert second.state == "mine"


def test_what_is_known_of_a_group_is_what_ranges_read_of_it_now_and_at_best() -> None:
    view = with_boxes(blocks_that_overlap(0), *APART)
    draft = Draft(blocks=np.arange(4), output_level=1, why="a test")
    reads = box_test.reads_of(view, draft)
    assert reads is not None
    assert reads.now == pytest.approx(4 * (1 / 4 + 0.01))
    assert reads.best == pytest.approx(4 * (1 / 2 + 0.01))
    assert reads.are_good
    assert not box_test.Reads(now=2.7, best=2.0).are_good
    assert box_test.Reads(now=2.6, best=2.0).are_good
    assert box_test.reads_of(view, replace(draft, blocks=np.arange(1))) is None
    other = replace(next(iter(view.sorts.values())), id=2)
    assert box_test.reads_of(view, replace(draft, sort=other)) is None
    unclustered = blocks_that_overlap().append(*(range(at, at + ROWS) for at in range(4)), unclustered=True)
    assert box_test.reads_of(with_boxes(unclustered, *APART), draft) is None


def many_groups(seed: int, most: int = 12) -> tuple[TableView, list[np.ndarray]]:
    """Return a view, and groups of its blocks: of one block and more, some with a block in no order or no bounds."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most, 60)
    table = SimulatedTable(block_rows=ROWS)
    for place, size in enumerate(sizes.tolist()):
        rows = ROWS if place % 4 else 2
        runs = [range(1_000 * place + at, 1_000 * place + at + size * rows, size) for at in range(size)]
        table.append(*runs, unclustered=not place % 9)
    lows = rng.integers(0, 50, sizes.sum())
    ends = zip(lows.tolist(), (lows + rng.integers(0, 30, sizes.sum())).tolist(), strict=True)
    view = with_boxes(table, *ends)
    groups = np.split(np.arange(len(view)), np.cumsum(sizes)[:-1])
    unknown = {int(groups[number][-1]) for number in (5, 17)}
    known = view.boxes_of
    assert known is not None
    return replace(
        view, boxes_of=lambda blocks: None if unknown & {*blocks.tolist()} else known(blocks)
    ), groups


@pytest.mark.parametrize("seed", range(5))
def test_groups_measured_together_have_the_figures_of_each(seed: int) -> None:
    view, groups = many_groups(seed)
    found = box_test.reads_of_groups(view, groups)
    drafts = [Draft(blocks=blocks, output_level=1, why="a test") for blocks in groups]
    assert found == [box_test.reads_of(view, draft) for draft in drafts]
    assert {None} < {*found}
    assert {reads.are_good for reads in found if reads} == {False, True}


@pytest.mark.parametrize("name", BY_DEPTH)
def test_plans_that_measure_groups_together_are_those_of_one_by_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, _ = many_groups(7)
    together = planned(view, name, **BY_DEPTH[name])
    monkeypatch.setattr(box_test._Tests, "may_ask", lambda *_: None)
    one_by_one = planned(view, name, **BY_DEPTH[name])
    assert together == one_by_one
    assert together.groups
    assert "good_boxes" in {item.rule for item in together.rejected}


@pytest.mark.parametrize("name", ["levels", "depth"])
def test_the_boxes_of_many_groups_are_asked_for_together(name: str) -> None:
    table, ends = clusters(*[3] * 50)
    view = with_boxes(table, *ends)
    asked = []

    def boxes_of(blocks: Any) -> Boxes | None:
        asked.append(blocks)
        return with_boxes(table, *ends).boxes_of(blocks)  # type: ignore[misc]

    planned(replace(view, boxes_of=boxes_of), name, **BY_DEPTH[name])
    assert [blocks.size for blocks in asked] == [150]
