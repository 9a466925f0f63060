"""The states of a group: only the steps of the table in group_run.py exist, and what they allow to delete."""

from __future__ import annotations

import itertools

import pytest

from tblctl.merger.round.group_run import GroupRun, State
from tblctl.selector.plan import Group
from tblctl.tableformat.errors import InternalError

WAYS = {  # how to reach each state
    State.WAITING: (),
    State.MERGING: (State.MERGING,),
    State.MERGED: (State.MERGING, State.MERGED),
    State.PUBLISHING: (State.MERGING, State.MERGED, State.PUBLISHING),
    State.COMMITTED: (State.MERGING, State.MERGED, State.PUBLISHING, State.COMMITTED),
    State.CONFLICTED: (State.CONFLICTED,),
    State.FAILED: (State.FAILED,),
    State.LEFT: (State.LEFT,),
}
STEPS = {
    (State.WAITING, State.MERGING),
    (State.WAITING, State.CONFLICTED),
    (State.WAITING, State.FAILED),
    (State.WAITING, State.LEFT),
    (State.MERGING, State.MERGED),
    (State.MERGING, State.FAILED),
    (State.MERGING, State.CONFLICTED),
    (State.MERGED, State.PUBLISHING),
    (State.PUBLISHING, State.MERGED),
    (State.PUBLISHING, State.COMMITTED),
    (State.PUBLISHING, State.CONFLICTED),
}


def run_in(state: State) -> GroupRun:
    group = Group(
        number=0,
        blocks=("a", "b"),
        sort_id=1,
        output_level=1,
        why="a test",
        rows=2,
        size_bytes=2,
        decoded_bytes=2,
        same_key_rows=None,
        depth_before=None,
        depth_after=1.0,
    )
    run = GroupRun(group, round_number=1)
    for step in WAYS[state]:
        run.move(step)
    return run


@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, State)))
def test_a_group_takes_the_steps_that_exist_and_no_others(before: State, after: State) -> None:
    run = run_in(before)
    if (before, after) in STEPS:
        run.move(after, "why")
        assert (run.state, run.error) == (after, "why")
        return
    with pytest.raises(InternalError, match=f"cannot become {after}: it is {before}"):
        run.move(after, "why")
    assert (run.state, run.error) == (before, None)


@pytest.mark.parametrize("state", State)
def test_a_group_counts_as_committed_from_when_its_record_is_written(state: State) -> None:
    expected = {State.MERGED: "committed", State.PUBLISHING: "committed"}.get(state, str(state))
    assert run_in(state).outcome().status == expected
