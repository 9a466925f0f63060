"""Cuts into blocks: sizes, and the slack within which a cut may move back to where a key ends."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tblctl.tableformat.model.cut import cut_rows, leaf_cuts, rows_back, slack_rows


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


def test_blocks_are_of_one_size_where_every_cut_then_has_the_slack_that_keys_need():
    assert cut_rows(490, 100) == cut_rows(490, 100, 1) == (100, 100, 100, 100, 90)
    assert cut_rows(490, 100, 3) == (98,) * 5
    assert slack_rows((98,) * 5, 100) == (2,) * 4, "a key of three rows ends at most two rows before"


def test_one_block_more_is_made_where_that_gives_every_cut_the_slack_that_keys_need():
    assert cut_rows(500, 100, 2) == (84, 84, 83, 83, 83, 83)
    assert cut_rows(500, 100, 5) == (100,) * 5, "six blocks would not all stay full"
    assert cut_rows(1_000, 100, 6) == (91,) * 10 + (90,)
    assert cut_rows(1_000, 100, 7) == (100,) * 10, "a cut moves by 5 % at most"
    assert cut_rows(400, 100, 2) == (100,) * 4, "five blocks would not stay full"
    assert cut_rows(100, 100, 2) == (100,), "nothing is cut"


@given(st.integers(1, 20_000), st.integers(1, 1_500), st.integers(1, 100))
def test_making_room_for_keys_keeps_blocks_full(rows, block_rows, same_key_rows):
    plain, sizes = cut_rows(rows, block_rows), cut_rows(rows, block_rows, same_key_rows)
    assert sum(sizes) == rows
    assert max(sizes) <= block_rows
    if sizes != plain:
        assert max(sizes) - min(sizes) <= 1
        assert min(slack_rows(sizes, block_rows)) >= same_key_rows - 1
        assert len(sizes) == len(plain) or (
            len(sizes) == len(plain) + 1 and min(sizes) >= math.floor(0.8 * block_rows)
        )


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_cut_moves_to_the_nearest_end_of_a_key_or_not_at_all(changes):
    back = rows_back(np.array(changes))
    if any(changes):
        assert changes[-1 - back]
        assert not any(itertools.islice(reversed(changes), back))
    else:
        assert back == 0


def test_blocks_of_a_tree_end_where_leaves_end():
    assert leaf_cuts((100, 250, 90), 100) == (100, 84, 83, 83, 90)
    assert leaf_cuts((40, 50, 170, 95), 100) == (90, 85, 85, 95), "small leaves share a block"
    assert leaf_cuts((0, 100, 0, 0, 100, 0), 100) == (100, 100)


def test_a_leaf_that_does_not_fill_its_blocks_shares_the_last_one():
    assert leaf_cuts((130, 50, 100), 100) == (90, 90, 100)
    assert leaf_cuts((100, 20), 100) == (60, 60)
    assert leaf_cuts((20, 10), 100) == (30,)
    assert leaf_cuts((0, 7), 1) == (1,) * 7
    assert leaf_cuts((), 100) == leaf_cuts((0, 0), 100) == ()


@given(st.lists(st.integers(0, 400), max_size=20), st.integers(1, 150))
def test_blocks_of_a_tree_are_no_smaller_than_other_blocks(leaf_rows, block_rows):
    sizes, rows = leaf_cuts(leaf_rows, block_rows), sum(leaf_rows)
    assert sum(sizes) == rows
    assert max(sizes, default=0) <= block_rows
    assert len(sizes) <= max(1, -(-rows // max(1, math.floor(0.8 * block_rows))) + 1) or not rows
    small = [size for size in sizes if size < math.floor(0.8 * block_rows)]
    ends = {0, *itertools.accumulate(leaf_rows)}
    begin = rows - sum(small)
    assert sizes[len(sizes) - len(small) :] == tuple(small), "only the last part"
    assert not small or begin in ends
    assert all(one + other > block_rows for one, other in itertools.pairwise(sizes))
