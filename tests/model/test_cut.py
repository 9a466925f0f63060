"""Where blocks are cut: sizes, and the slack within which a cut may move back to where a key ends."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tblctl.tableformat.model.cut import cut_rows, rows_back, slack_rows


@given(st.integers(1, 20_000), st.integers(1, 1_500), st.data())
def test_no_cut_that_moves_makes_a_block_too_large_or_no_longer_full(rows, block_rows, data):
    sizes = cut_rows(rows, block_rows)
    slack = slack_rows(sizes, block_rows)
    assert len(slack) == len(sizes) - 1
    assert all(0 <= most <= 0.05 * block_rows for most in slack)
    moves = [data.draw(st.sampled_from([0, most // 2, most])) for most in slack]
    full = math.floor(0.8 * block_rows)
    for planned, before, after in zip(sizes, [0, *moves], [*moves, 0], strict=True):
        moved = planned + before - after
        assert 1 <= moved <= block_rows
        assert moved >= min(planned, full) or planned < full


def test_blocks_of_less_than_20_rows_and_blocks_planned_to_be_filled_leave_no_slack():
    assert slack_rows(cut_rows(100, 19), 19) == (0,) * 5
    assert slack_rows(cut_rows(500, 100), 100) == (0,) * 4
    assert slack_rows(cut_rows(490, 100), 100) == (0, 0, 0, 5), "only the last has room"


def test_slack_is_5_percent_at_most_and_what_the_block_behind_has_room_for():
    assert slack_rows((900, 900, 900), 1000) == (50, 50)
    assert slack_rows((980, 980, 979), 1000) == (20, 21)
    assert slack_rows((810, 810), 1000) == (10,), "the block before stays full"
    assert slack_rows((510, 510), 1000) == (50,), "it is not full anyway"


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_cut_moves_to_the_nearest_end_of_a_key_or_not_at_all(changes):
    back = rows_back(np.array(changes))
    if any(changes):
        assert changes[-1 - back]
        assert not any(itertools.islice(reversed(changes), back))
    else:
        assert back == 0
