"""Row groups that nothing interleaves with are copied: the same rows and blocks, and no ever smaller row groups."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from arrow_rows import canonical
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.merger.task import merge, order
from tblctl.merger.task.block_input import BlockInput, RowGroupRange
from tblctl.merger.task.copying import Copy, between, plan_copies
from tblctl.merger.task.merge import run_task
from tblctl.merger.task.spec import InputSplit
from tblctl.merger.task.verify import VerificationError

from .blocks import lake
from .memory_port import block_of

MANY = settings(max_examples=cases(12), suppress_health_check=list(HealthCheck), deadline=None)


def merged(here, tasks, **more):
    """Return the records of what tasks wrote, and how many rows they copied."""
    results = [run_task(here.io, task, **more) for task in tasks]
    return [record for result in results for record in result.records], sum(
        result.rows_copied for result in results
    )


def assert_no_slivers(here, records):
    """Assert that no row group is smaller than half of what is allowed, but for blocks that are smaller."""
    least = here.io.options.row_group_rows / 2
    for record in records:
        groups = here.row_groups(record)
        assert min(groups) >= least or len(groups) == 1, groups


# -- the decision -----------------------------------------------------------------------------------------------------


def part(*groups, start=0, copyable=True, stored_bytes=1):
    ranges = tuple(
        RowGroupRange(
            row_bytes=1,
            stored_bytes=stored_bytes,
            group=number,
            start=start,
            stop=start + rows,
            is_copyable=copyable,
        )
        for number, rows in enumerate(groups)
    )
    split = InputSplit(place=0, block=SimpleNamespace(path="b"), start=0, stop=sum(groups), is_ordered=True)
    return BlockInput(split=split, ranges=ranges, group_bytes=1, stored_bytes=1, footer_bytes=0)


def planned(order, parts, cuts, *, group_rows=4, most_bytes=10):
    found = plan_copies(np.array(order, np.uint32), parts, cuts, group_rows=group_rows, most_bytes=most_bytes)
    ends = list(itertools.accumulate(cuts, initial=0))
    parts = [part for start, stop in itertools.pairwise(ends) for part in between(found, range(start, stop))]
    return [(part.input, part.groups, part.start, part.stop) for part in parts if isinstance(part, Copy)]


def test_row_groups_that_follow_each_other_are_one_copy():
    assert planned(range(12), [part(4, 4, 4)], [12]) == [(0, (0, 1, 2), 0, 12)]


def test_row_groups_of_parts_that_follow_each_other_are_copied_part_by_part():
    order = [*range(8, 12), *range(8)]
    assert planned(order, [part(4, 4), part(4)], [12]) == [(1, (0,), 0, 4), (0, (0, 1), 4, 12)]


def test_a_row_group_that_another_row_lies_in_is_decoded():
    order = [0, 1, 8, *range(2, 8), *range(9, 12)]
    assert planned(order, [part(4, 4), part(4)], [12]) == [(0, (1,), 5, 9)], (
        "of the second part three rows are left"
    )


def test_a_row_group_across_two_blocks_is_decoded():
    assert planned(range(12), [part(4, 4, 4)], [6, 6]) == [(0, (0,), 0, 4), (0, (2,), 8, 12)]


def test_copies_do_not_reach_across_blocks():
    assert planned(range(8), [part(4, 4)], [4, 4]) == [(0, (0,), 0, 4), (0, (1,), 4, 8)]


@pytest.mark.parametrize("rows", [1, 5])
def test_row_groups_under_half_the_size_and_over_it_are_decoded(rows):
    assert planned(range(8 + rows), [part(4, rows, 4)], [8 + rows]) == (
        [(0, (0,), 0, 4), (0, (2,), 9, 13)] if rows == 5 else [(0, (2,), 5, 9)]
    )


def test_a_neighbour_is_decoded_where_what_is_left_between_would_be_too_small():
    assert planned(range(12), [part(4, 4, 1, 3)], [12]) == [(0, (0, 1), 0, 8)], "the smaller neighbour"
    assert planned(range(9), [part(4, 4, 1)], [9]) == [(0, (0,), 0, 4)]
    assert planned(range(9), [part(1, 4, 4)], [9]) == [(0, (2,), 5, 9)]


def test_row_groups_that_do_not_fit_memory_or_another_schema_are_decoded():
    assert planned(range(4), [part(4, stored_bytes=11)], [4]) == []
    assert planned(range(4), [part(4, copyable=False)], [4]) == []


def test_what_is_left_between_copies_and_they_are_every_row_once():
    copies = [Copy(input=0, block=None, groups=(0,), start=start, stop=start + 2) for start in (3, 5, 9)]
    assert list(between(copies, range(1, 12))) == [
        range(1, 3), copies[0], copies[1], range(7, 9), copies[2], range(11, 12),
    ]  # fmt: skip
    assert list(between(copies, range(3, 7))) == copies[:2]
    assert list(between([], range(3, 7))) == [range(3, 7)]


# -- merges -----------------------------------------------------------------------------------------------------------


@st.composite
def overlapping(draw):
    """Blocks of ascending keys. Each overlaps the next ones by a little, by much, or not at all."""
    blocks, start = [], 0
    for _ in range(draw(st.integers(1, 5))):
        size = draw(st.integers(1, 60))
        step = draw(st.sampled_from([1, 1, 2, 0]))
        blocks.append([start + place * step for place in range(size)])
        start = max(0, start + size * step - draw(st.sampled_from([0, 0, 3, 10, 100])))
    return draw(st.permutations(blocks))


def fill(here, blocks):
    for number, keys in enumerate(blocks):
        here.add(
            pa.table(
                {
                    "k": keys,
                    "n": [number * 1_000 + place for place in range(len(keys))],
                    "f": [0.5] * len(keys),
                }
            )
        )


@given(
    blocks=overlapping(),
    block_rows=st.sampled_from([7, 30, 1_000]),
    group_rows=st.sampled_from([1, 4, 10]),
    data=st.data(),
)
@MANY
def test_blocks_are_the_same_as_without_copying(blocks, block_rows, group_rows, data):
    options = {"block_rows": block_rows, "row_group_rows": group_rows}
    with lake("k: int64, n: int64, f: float64", "k", **options) as here:
        fill(here, blocks)
        tasks = here.cut(data.draw(st.integers(1, 3)))
        records, copied = merged(here, tasks, threads=data.draw(st.integers(1, 3)))
        assert canonical(here.rows_of(records)) == canonical(here.expected())
        assert here.problems(records) == []
        assert_no_slivers(here, records)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(order, "plan_copies", lambda *_, **__: ())
            others, none = merged(here, tasks)
        assert none == 0
        assert [record.row_count for record in records] == [record.row_count for record in others]
        if (
            blocks == sorted(blocks)
            and len(blocks) == 1
            and block_rows == 1_000
            and len(blocks[0]) % group_rows == 0
        ):
            assert copied == len(blocks[0])


@given(seed=st.integers(0, 1 << 30), group_rows=st.sampled_from([2, 5, 8]))
@settings(max_examples=cases(6), suppress_health_check=list(HealthCheck), deadline=None)
def test_row_groups_do_not_become_ever_smaller_over_many_merges(seed, group_rows):
    rng = random.Random(seed)
    with lake("k: int64, n: int64, f: float64", "k", block_rows=60, row_group_rows=group_rows) as here:
        fill(here, [list(range(200))])
        for _ in range(6):
            start = rng.randrange(200)
            fill(
                here,
                [sorted(rng.choices(range(start, start + rng.randrange(1, 60)), k=rng.randrange(1, 40)))],
            )
            rows = here.rows
            records, copied = merged(here, here.cut(2))
            assert copied > 0
            assert here.problems(records) == []
            assert_no_slivers(here, records)
            here.splits = [
                InputSplit(
                    block=block_of(record), start=0, stop=record.row_count, is_ordered=True, place=place
                )
                for place, record in enumerate(records)
            ]
            assert here.rows == rows


def test_a_row_group_that_is_neither_copied_nor_decoded_is_noticed(monkeypatch):
    with lake("k: int64, n: int64, f: float64", "k", block_rows=60, row_group_rows=10) as here:
        fill(here, [list(range(30))])
        (task,) = here.cut()
        monkeypatch.setattr(merge, "between", lambda copies, places: list(between(copies, places))[:-1])
        with pytest.raises(VerificationError, match="were merged"):
            run_task(here.io, task)
        assert here.stored() == set()
