"""Decoding ahead: the next rows of inputs are decoded in another thread, within one budget for all inputs."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import pyarrow as pa
import pytest
from arrow_rows import canonical

from tblctl.merger.presort.spill import SpillFolder
from tblctl.merger.task.block_input import look_at
from tblctl.merger.task.decode_ahead import DecodeAhead
from tblctl.merger.task.inputs import open_streams

from .blocks import lake

COLUMNS = "k: int64, s: string"
GROUP = 50


class Ahead:
    """Another thread, by hand: what was begun runs when `run` is called."""

    def __init__(self):
        self.begun = []

    def begin(self, decode):
        future = Future()
        self.begun.append((decode, future))
        return future

    def run(self):
        for decode, future in self.begun:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(decode())
                except OSError as error:
                    future.set_exception(error)
        self.begun.clear()


def rows(start, count):
    return pa.table({"k": range(start, start + 2 * count, 2), "s": [f"{n:090d}" for n in range(count)]})


def numbers(*values):
    return pa.table({"n": values})


@pytest.fixture
def ahead():
    return Ahead()


def opened(here, folder, ahead, *, budget_bytes, at_once=2):
    items = [look_at(here.io, split, here.sort)[1] for split in here.splits]
    return open_streams(
        here.io, items, folder, budget_bytes=budget_bytes, at_once=at_once, begin=ahead and ahead.begin
    )


def group_bytes(here):
    return look_at(here.io, here.splits[0], here.sort)[1].group_bytes


@pytest.fixture
def two_blocks():
    with lake(COLUMNS, "k", row_group_rows=GROUP) as here, SpillFolder() as folder:
        for start in range(2):
            here.add(rows(start, 4 * GROUP))
        yield here, folder


@pytest.mark.parametrize("runs", ["before it is needed", "never"])
def test_the_next_row_group_is_decoded_while_rows_of_this_one_are_taken(two_blocks, ahead, runs):
    here, folder = two_blocks
    streams = opened(here, folder, ahead, budget_bytes=4 * group_bytes(here))
    expected = sorted(canonical(pa.concat_tables([rows(0, 4 * GROUP), rows(1, 4 * GROUP)])))
    taken, begun = [], []
    for _ in range(8):
        for stream in streams:
            taken += stream.take(GROUP // 2)
        begun.append(len(ahead.begun))
        if runs != "never":
            ahead.run()
    for stream in streams:
        stream.close()
    assert sorted(canonical(pa.concat_tables(taken))) == expected
    if runs != "never":
        assert begun == [2, 0, 2, 0, 2, 0, 0, 0], "one row group of each ahead, none after the last"


@pytest.mark.parametrize(("groups", "begun"), [(2, 0), (2.5, 0), (3, 1), (4, 2), (40, 2)])
def test_what_is_decoded_ahead_and_what_is_merged_fit_the_budget_together(two_blocks, ahead, groups, begun):
    here, folder = two_blocks
    streams = opened(here, folder, ahead, budget_bytes=int(groups * group_bytes(here)))
    if groups == 40:  # then blocks are small enough to be read whole
        begun = 0
    for stream in streams:
        stream.take(1)
    assert len(ahead.begun) == begun
    for stream in streams:
        stream.close()


def test_room_is_free_again_after_rows_were_taken_or_given_up(ahead):
    decoding = DecodeAhead(100, ahead.begin)
    first, second = (decoding.begin(lambda n=n: numbers(n), 50) for n in range(2))
    assert decoding.begin(lambda: numbers(2), 1) is None
    ahead.run()
    assert first.take() == numbers(0)
    second.stop()
    assert decoding.begin(lambda: numbers(3), 100) is not None


def test_rows_that_nobody_began_to_decode_are_decoded_where_they_are_needed(ahead):
    coming = DecodeAhead(100, ahead.begin).begin(lambda: numbers(1), 50)
    assert coming.take() == numbers(1)
    ahead.run()  # finds it cancelled


def test_a_failure_is_raised_where_rows_are_needed_and_frees_its_room(ahead):
    def fail():
        raise OSError("the disk is gone")

    decoding = DecodeAhead(100, ahead.begin)
    for runs in (True, False):
        coming = decoding.begin(fail, 100)
        if runs:
            ahead.run()
        with pytest.raises(OSError, match="the disk is gone"):
            coming.take()
    assert decoding.begin(fail, 100) is not None


def test_stopping_waits_for_a_thread_that_decodes_and_hides_its_failure():
    started, may_end = Event(), Event()
    ended = []

    def slow():
        started.set()
        may_end.wait(60)
        ended.append(True)
        raise OSError("too late")

    with ThreadPoolExecutor(2) as pool:
        coming = DecodeAhead(100, pool.submit).begin(slow, 50)
        assert started.wait(60)
        stopping = pool.submit(coming.stop)
        with pytest.raises(TimeoutError):
            stopping.result(0.05)
        may_end.set()
        stopping.result(60)
        assert ended == [True]


def test_without_a_thread_nothing_is_decoded_ahead(two_blocks):
    here, folder = two_blocks
    assert DecodeAhead(100, None).begin(lambda: numbers(1), 1) is None
    streams = opened(here, folder, None, budget_bytes=4 * group_bytes(here))
    taken = [table for stream in streams for table in stream.take(4 * GROUP)]
    assert pa.concat_tables(taken).num_rows == 8 * GROUP
