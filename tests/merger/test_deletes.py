"""Blocks some of whose rows are deleted: a merge writes the rows that are left, and conflicts with later deletes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.round.round import RoundOutcome, merge_round
from tblctl.selector.plan import Plan

from .blocks import TwinLake
from .memory_port import GROUP_ROWS, MemoryPort
from .subjects import SCHEMA, Meddling, Twin, blocks_of, plan_of


def overlapping() -> Twin:
    """Make two blocks that overlap: rows 0 to 3 with keys 0, 2, 4, 6, and rows 4 to 7 with 1, 3, 5, 7."""
    subject = Twin(MemoryPort(SCHEMA, "k", block_rows=4))
    subject.append(0.0, 2.0, 4.0, 6.0)
    subject.append(1.0, 3.0, 5.0, 7.0)
    return subject


def run(subject: Twin, plan: Plan | None = None, **words: Any) -> RoundOutcome:
    engine = words.pop("engine", LocalEngine())
    return merge_round(subject.port, subject.port.newest(), plan or plan_of(subject), engine, **words)


def test_rows_that_are_deleted_are_gone_once_their_blocks_are_merged() -> None:
    subject = overlapping()
    subject.port.mark_deleted("n", 0)  # the first of its block, whose bounds promise it
    subject.port.mark_deleted("n", 6)
    rows = subject.rows()
    outcome = run(subject)
    (group,) = outcome.groups
    assert (group.status, group.rows) == ("committed", 6)
    assert subject.rows() == rows
    assert [number for _, number in rows] == [4, 1, 5, 2, 3, 7]
    assert [block[0] for block in blocks_of(subject)] == [1.0, 4.0]


def test_a_plan_from_before_a_delete_merges_what_is_left() -> None:
    subject = overlapping()
    plan = plan_of(subject)
    subject.port.mark_deleted("n", 2)
    assert [group.status for group in run(subject, plan).groups] == ["committed"]
    assert len(subject.rows()) == 7


@pytest.mark.parametrize("moment", ["before", "after"])
def test_rows_that_are_deleted_while_their_block_is_merged_are_a_conflict(moment: str) -> None:
    subject = overlapping()
    stored = subject.stored()
    engine = Meddling(**{moment: lambda: subject.port.mark_deleted("n", 2)})
    (group,) = run(subject, engine=engine).groups
    assert group.status == "conflicted"
    assert (len(subject.rows()), subject.stored()) == (7, stored)


def test_a_group_without_any_row_left_is_committed_as_nothing() -> None:
    subject = overlapping()
    for number in range(8):
        subject.port.mark_deleted("n", number)
    progress: list[tuple[int, int | None, str]] = []
    outcome = run(subject, progress=lambda *event: progress.append(event))
    (group,) = outcome.groups
    assert (group.status, group.rows, group.blocks_in, group.blocks_out) == ("committed", 0, 2, 0)
    assert (subject.rows(), blocks_of(subject)) == ([], [])
    assert progress == [(1, 1, "groups")]


def test_a_block_without_any_row_left_is_merged_with_others() -> None:
    subject = overlapping()
    subject.append(2.5, 3.5)
    for number in (8, 9):
        subject.port.mark_deleted("n", number)
    (group,) = run(subject).groups
    assert (group.status, group.rows, group.blocks_in) == ("committed", 8, 3)
    assert len(subject.rows()) == 8


def test_row_groups_of_a_block_with_deleted_rows_are_never_copied() -> None:
    def copied(deleted: int | None) -> int:
        subject = Twin(MemoryPort(SCHEMA, "k", block_rows=100, row_group_rows=GROUP_ROWS))
        subject.append(*map(float, range(30)))
        subject.append(29.0, *map(float, range(30, 60)))
        if deleted is not None:
            subject.port.mark_deleted("n", deleted)
        (group,) = run(subject, plan_of(subject, "full")).groups
        assert group.status == "committed"
        return group.rows_copied

    assert copied(None) > copied(deleted=4) > 0


@given(
    st.lists(st.lists(st.sampled_from([*map(float, range(9)), None]), min_size=1, max_size=12), max_size=6),
    st.data(),
)
def test_whatever_is_deleted_a_merge_keeps_the_other_rows(
    blocks: list[list[Any]], data: st.DataObject
) -> None:
    subject = Twin(MemoryPort(SCHEMA, "k", block_rows=5))
    for keys in blocks:
        subject.append(*keys)
    for number in data.draw(st.sets(st.integers(0, max(subject.numbered.next_number - 1, 0)))):
        subject.port.mark_deleted("n", number)
    rows = subject.rows()
    outcome = run(subject, plan_of(subject, "full", include_unclustered=True))
    assert {group.status for group in outcome.groups} <= {"committed"}
    assert subject.rows() == rows


BLOCKS = st.lists(
    st.tuples(st.booleans(), st.lists(st.none() | st.integers(0, 12), min_size=1, max_size=25)),
    min_size=1,
    max_size=6,
)


@given(BLOCKS, st.sampled_from(["k", "k desc nulls first", "bucket(3, k), n desc"]), st.data())
def test_tasks_merge_the_rows_that_are_left_whatever_their_order_and_memory(
    blocks: list[tuple[bool, list[Any]]], terms: str, data: st.DataObject
) -> None:
    here = TwinLake("k: int64, n: int64", terms, block_rows=data.draw(st.sampled_from([1, 4, 7, 1_000])))
    for number, (ordered, keys) in enumerate(blocks):
        rows = pa.table({"k": pa.array(keys, pa.int64()), "n": [100 * number + n for n in range(len(keys))]})
        deleted = data.draw(st.sets(st.integers(0, len(keys) - 1)))
        (here.add if ordered else here.unordered)(rows, deleted)
    if not here.splits:
        return
    tasks = here.cut(data.draw(st.integers(1, 4)), memory_bytes=data.draw(st.sampled_from([1, 500, 1 << 30])))
    records = here.run(tasks, threads=data.draw(st.integers(1, 2)))
    assert here.rows_of(records).to_pydict() == here.expected().to_pydict()
    assert here.problems(records) == []
    assert [record.row_count for record in records] == [size for task in tasks for size in task.cuts]
    assert {record.partition for record in records} == {"all"}
