"""How groups share the tasks of a round: as few as make the slots end together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.merger.round.balance import schedule_length, tasks_per_group

PLENTY = 10**6


@pytest.mark.parametrize(
    ("sizes", "parallelism", "expected"),
    [
        ([], 4, []),
        ([10], 4, [4]),
        ([10, 10], 2, [1, 1]),
        ([10, 10, 10], 2, [2, 2, 2]),  # one each would leave a slot idle for a third of the time
        ([30, 10], 4, [3, 1]),
        ([10] * 1000, 100, [1] * 1000),
        ([10] * 101, 100, [4] * 101),  # one each would take twice as long as needed
    ],
)
def test_groups_get_their_share_of_the_slots_and_finer_ones_where_these_would_idle(
    sizes: list[int], parallelism: int, expected: list[int]
) -> None:
    assert tasks_per_group(sizes, most=[PLENTY] * len(sizes), parallelism=parallelism) == expected


def test_a_group_is_not_cut_into_more_tasks_than_it_has_blocks() -> None:
    assert tasks_per_group([100, 100], most=[2, 50], parallelism=20) == [2, 10]


def test_a_schedule_ends_with_its_last_task() -> None:
    assert schedule_length([6, 2], [2, 1], 2) == 5
    assert schedule_length([6, 2], [3, 1], 4) == 2
    assert schedule_length([], [], 3) == 0


@given(
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=60),
    parallelism=st.integers(1, 40),
)
def test_no_slot_waits_for_more_than_a_task_of_a_quarter_share(sizes: list[int], parallelism: int) -> None:
    sizes = sorted(sizes, reverse=True)
    counts = tasks_per_group(sizes, most=[PLENTY] * len(sizes), parallelism=parallelism)
    even = sum(sizes) / parallelism
    assert min(counts) >= 1
    assert schedule_length(sizes, counts, parallelism) <= 1.25 * even + 1e-6
    assert sum(counts) <= 4 * parallelism + len(sizes)
