"""A plan that was made before: its figures are counted again, and nobody believes those that it came with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tblctl.selector.again import estimated_again
from tblctl.selector.plan import Group, Plan
from tblctl.selector.pricing.rates import DEFAULT_RATES
from tblctl.selector.simulate import SimulatedTable


def two_pairs() -> SimulatedTable:
    """Return a table of two pairs of blocks that overlap, far from each other, and a block beside them."""
    table = SimulatedTable(block_rows=8)
    for start in (0, 1, 100, 101):
        table.append(range(start, start + 16, 2))
    return table.append(range(500, 508))


def again(plan: Plan, table: SimulatedTable) -> Plan:
    return estimated_again(plan, table.view(), DEFAULT_RATES)


@pytest.mark.parametrize(
    ("policy", "options", "groups"),
    [("levels", {"threshold": 1}, 2), ("runs", {"target_depth": 1}, 2), ("full", {}, 1)],
)
def test_a_plan_of_the_same_table_keeps_its_figures(
    policy: str, options: dict[str, int], groups: int
) -> None:
    table = two_pairs()
    plan = table.plan(policy, **options)
    assert len(plan.groups) == groups
    assert again(plan, table) == plan


def test_a_plan_for_another_sort_keeps_its_figures() -> None:
    table = two_pairs().append(range(600, 608), unclustered=True)
    plan = table.plan("sort-one")
    assert len(plan.groups) == 1
    assert again(plan, table) == plan


def test_a_plan_without_groups_keeps_its_figures() -> None:
    table = SimulatedTable(block_rows=8).append(range(8))
    plan = table.plan("levels", threshold=1)
    assert again(plan, table) == plan
    assert again(SimulatedTable(block_rows=8).plan(), SimulatedTable(block_rows=8)).groups == ()


def test_edited_figures_are_replaced() -> None:
    table = two_pairs()
    plan = table.plan("levels", threshold=1)

    def edited(group: Group) -> Group:
        assert group.price is not None
        price = replace(group.price, seconds=0.0, requests=10**9, suggested_bytes=10**9)
        return replace(group, same_key_rows=1, depth_before=99.0, depth_after=98.0, price=price)

    predicted = replace(plan.predicted, average_depth_before=97.0, average_depth_after=96.0)
    assert plan.bill is not None
    bill = replace(plan.bill, total=replace(plan.bill.total, seconds=0.0), measured_runs=5)
    groups = tuple(edited(group) for group in plan.groups)
    assert again(replace(plan, groups=groups, predicted=predicted, bill=bill), table) == plan


def test_a_group_has_the_figures_of_its_blocks_that_are_left() -> None:
    table = two_pairs()
    plan = table.plan("levels", threshold=1)
    first, second = plan.groups
    table.blocks = [block for block in table.blocks if block.path not in {first.blocks[0], *second.blocks}]
    found = again(plan, table)
    assert [group.blocks for group in found.groups] == [first.blocks, second.blocks]
    assert found.groups[0].depth_before == 1
    assert found.groups[0].price is not None
    assert found.groups[0].price.blocks == 1
    assert (found.groups[1].depth_before, found.groups[1].depth_after, found.groups[1].price) == (None,) * 3
    assert found.bill is not None
    assert found.bill.total == found.groups[0].price


def test_a_group_of_a_sort_that_ended_or_of_two_partitions_has_no_price() -> None:
    table = two_pairs()
    plan = table.plan("levels", threshold=1)
    strange = replace(plan, groups=(replace(plan.groups[0], sort_id=7), plan.groups[1]))
    assert [group.price is None for group in again(strange, table).groups] == [True, False]
    table.blocks[0] = replace(table.blocks[0], partition=1)
    assert [group.price is None for group in again(plan, table).groups] == [True, False]
