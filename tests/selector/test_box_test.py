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
from tblctl.selector.planner import plan
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


def test_a_policy_is_asked_a_limited_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_test, "MOST_ROUNDS", 2)
    table = SimulatedTable(block_rows=ROWS)
    for count, start in ((5, 0), (4, 100), (3, 200)):
        table.append(*(range(start + at, start + at + 50, 5) for at in range(count)))
    apart = [(2 * at, 2 * at + 1) for at in range(12)]
    assert planned(with_boxes(table, *apart[:9], *((50, 60),) * 3), "levels").groups == ()


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
