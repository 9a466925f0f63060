"""Blocks whose truncated keys overlap, but which one merge wrote, are a sorted run: no policy merges them again."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tblctl.selector.draft import worth_merging
from tblctl.selector.table_view import NO_SORT, TableView

from .tables import SimTable


def truncated(runs: list[int] | None) -> TableView:
    """Return three full blocks in which all keys look alike: their bounds are wider than the keys."""
    view = SimTable(block_rows=10).append(*[range(10)] * 3).view()
    return dataclasses.replace(view, truncated_run=None if runs is None else np.array(runs))


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (None, [[0, 1, 2]]),
        ([-1, -1, -1], [[0, 1, 2]]),
        ([0, 0, 0], []),
        ([0, 0, 1], [[0, 1, 2]]),
        ([0, 0, -1], [[0, 1, 2]]),
    ],
)
def test_blocks_of_one_run_are_not_merged_again(runs: list[int] | None, expected: list[list[int]]) -> None:
    parts = worth_merging(truncated(runs), np.arange(3))
    assert [part.tolist() for part in parts] == expected


def test_a_run_by_another_sort_says_nothing_of_this_one() -> None:
    view = truncated([0, 0, 0])
    foreign = dataclasses.replace(view, sort_ids=np.full(3, NO_SORT))
    assert [part.size for part in worth_merging(foreign, np.arange(3))] == [3]


def test_small_neighbours_of_a_run_are_still_packed() -> None:
    view = SimTable(block_rows=10).append([1, 2], [1, 2], [1, 2]).view()
    packed = worth_merging(dataclasses.replace(view, truncated_run=np.zeros(3, np.int64)), np.arange(3))
    assert [part.size for part in packed] == [3]
