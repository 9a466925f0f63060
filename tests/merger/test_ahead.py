"""Read-ahead of a merge: the next row groups are fetched while the present one is merged, within one budget."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from tblctl.merger.task.block_input import BlockInput, RowGroupRange
from tblctl.merger.task.inputs import _BlockSource, _ReadAhead

ROWS, GROUPS, STORED = 10, 6, 100


class Reader:
    """A block whose row groups take 100 bytes each in the file. Records the order of events."""

    group_bytes = (1_000,) * GROUPS

    def __init__(self, log):
        self.log = log

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.log.append("closed")

    def will_need(self, groups):
        self.log.append(f"fetch {','.join(map(str, groups))}")
        return STORED * len(groups)

    def rows(self, groups):
        self.log.append(f"read {groups[0]}")
        return pa.table({"k": range(ROWS)})

    def batches(self, group, most_rows):
        self.log.append(f"read {group} in pieces")
        for start in range(0, ROWS, most_rows):
            yield pa.table({"k": range(start, min(start + most_rows, ROWS))})


def tables(ahead, log, *, each_bytes):
    ranges = tuple(
        RowGroupRange(row_bytes=100.0, stored_bytes=STORED, group=group, start=0, stop=ROWS)
        for group in range(GROUPS)
    )
    block = BlockInput(
        split=SimpleNamespace(block=None),
        ranges=ranges,
        group_bytes=1_000,
        stored_bytes=STORED,
        footer_bytes=0,
    )
    io = SimpleNamespace(open=lambda _, coded: Reader(log))
    return _BlockSource(io, block, each_bytes, ahead, frozenset()).tables()


def merged(log, tables):
    for _ in tables:
        log.append("merged")
    return [entry for entry in log if entry != "closed"]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (
            STORED,
            ["fetch 0", "read 0", "fetch 1", "merged", "read 1", "fetch 2", "merged", "read 2"],
        ),
        (
            3 * STORED,
            ["fetch 0,1,2", "read 0", "merged", "read 1", "merged", "read 2", "fetch 3,4,5", "merged"],
        ),
        (STORED - 1, ["read 0", "merged", "read 1", "merged", "read 2", "merged"]),
    ],
)
def test_the_next_row_groups_are_fetched_before_the_present_one_is_merged(budget, expected):
    log = []
    found = merged(log, tables(_ReadAhead(budget, 1), log, each_bytes=1_000))
    assert found[: len(expected)] == expected
    assert [entry for entry in found if entry.startswith("read")] == [f"read {n}" for n in range(GROUPS)]


def test_a_row_group_that_is_read_in_pieces_is_followed_by_the_next_all_the_same():
    log = []
    found = merged(log, tables(_ReadAhead(STORED, 1), log, each_bytes=999))  # of 4, 4 and 2 rows
    assert found[:7] == ["fetch 0", "read 0 in pieces", "fetch 1", *["merged"] * 3, "read 1 in pieces"]


def test_all_streams_together_hold_no_more_than_the_budget():
    ahead = _ReadAhead(3 * STORED, 2)
    logs = [], [], []
    streams = [tables(ahead, log, each_bytes=1_000) for log in logs]
    for one in streams:
        next(one)
    assert [log[0] for log in logs] == ["fetch 0", "fetch 0", "fetch 0"], "an even share of two holds one"
    fourth = []
    next(tables(ahead, fourth, each_bytes=1_000))
    assert fourth[0] == "read 0", "there is no room for a fourth"
    for one in streams:
        one.close()
    again = []
    next(tables(ahead, again, each_bytes=1_000))
    assert again[0] == "fetch 0", "what was closed gave its room back"
    assert all(log[-1] == "closed" for log in logs)
