"""Keys and blocks of very different sizes: tasks stay about equal, and very many small blocks are read once."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from arrow_rows import canonical

from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.presort.sort_tasks import sort_tasks
from tblctl.tableformat.parquet.block_reader import ParquetBlockReader
from tblctl.tableformat.parquet.reader import BlockFile

from .blocks import LEVEL, lake

TASKS = 16
COLUMNS = "k: int64, n: int64"


def table(keys):
    return pa.table({"k": keys, "n": range(len(keys))})


def half_of_one_key(chance):
    return [[50 if chance.random() < 0.5 else chance.randrange(100) for _ in range(400)] for _ in range(8)]


def zipf(chance):
    keys = range(1, 1_000)
    return [chance.choices(keys, [1 / key for key in keys], k=400) for _ in range(8)]


def many_tiny(chance):
    return [[chance.randrange(1_000) for _ in range(4)] for _ in range(800)]


def one_huge_and_many_small(chance):
    return [[chance.randrange(1_000) for _ in range(2_700)], *many_tiny(chance)[:125]]


SHAPES = [half_of_one_key, zipf, many_tiny, one_huge_and_many_small]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_sixteen_tasks_take_about_the_same(shape, ordered):
    with lake(COLUMNS, "k", block_rows=50) as here:
        for keys in shape(random.Random(7)):
            (here.add if ordered else here.unordered)(table(keys))
        tasks = here.cut(tasks=TASKS)
        assert len(tasks) == TASKS
        for size in (lambda task: task.rows, lambda task: task.size_bytes):
            sizes = [size(task) for task in tasks]
            assert max(sizes) <= 2 * min(sizes)
        expected = canonical(here.expected())
        found = []
        LocalEngine().run(here.io, tasks, found.append, title="a test")
        found.sort(key=lambda item: item.number)
        assert canonical(here.rows_of([record for item in found for record in item.records])) == expected


def test_tasks_are_about_the_same_where_blocks_have_fewer_samples_than_cuts():
    with lake(COLUMNS, "k", block_rows=50) as here:
        for keys in many_tiny(random.Random(7)):
            here.add(table(keys))
        sizes = [task.rows for task in here.cut(tasks=TASKS, sampled_keys=100)]
        assert len(sizes) == TASKS
        assert max(sizes) <= 1.5 * min(sizes)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_run_of_one_key_becomes_constant_blocks_in_several_tasks(ordered):
    with lake(COLUMNS, "k", block_rows=50) as here:
        for keys in half_of_one_key(random.Random(7)):
            (here.add if ordered else here.unordered)(table(keys))
        constant = [sum(record.level == -1 for record in here.run([task])) for task in here.cut(tasks=TASKS)]
        run = sum(keys.count(50) for keys in half_of_one_key(random.Random(7)))
        assert sum(constant) >= run // 50 - 2
        assert sum(map(bool, constant)) >= TASKS // 2 - 1


def test_very_many_small_blocks_are_sorted_together_and_opened_once(monkeypatch):
    opened, whole = [], []
    real, real_rows = BlockFile.__init__, ParquetBlockReader.rows
    with lake(COLUMNS, "k", block_rows=100) as here:
        for keys in many_tiny(random.Random(3))[:400]:
            here.add(table(keys))
        tasks = here.cut(tasks=TASKS, many_blocks=100)
        assert not any(task.is_streamed for task in tasks)
        assert len(sort_tasks(tasks)) == 1
        monkeypatch.setattr(
            BlockFile,
            "__init__",
            lambda file, *more, **coded: opened.append(file) or real(file, *more, **coded),
        )
        monkeypatch.setattr(
            ParquetBlockReader,
            "rows",
            lambda reader, groups: whole.append(reader) or real_rows(reader, groups),
        )
        found = []
        LocalEngine().run(here.io, tasks, found.append, title="a test")
        assert (len(opened), len(whole)) == (400, 400)
        monkeypatch.undo()
        found.sort(key=lambda item: item.number)
        records = [record for item in found for record in item.records]
        assert canonical(here.rows_of(records)) == canonical(here.expected())
        assert {record.level for record in records} == {LEVEL}


def test_large_blocks_among_very_many_small_ones_are_streamed():
    with lake(COLUMNS, "k", block_rows=100) as here:
        here.add(table(range(300)))
        for keys in many_tiny(random.Random(3))[:20]:
            here.add(table(keys))
        (task,) = here.cut(many_blocks=10, small_block_bytes=100)
        assert [item.is_streamed for item in task.splits] == [True] + [False] * 20
        assert canonical(here.rows_of(here.run([task]))) == canonical(here.expected())


@pytest.mark.parametrize(("tasks", "is_read_once"), [(7, False), (8, True)])
def test_blocks_that_many_tasks_take_rows_of_are_read_once(monkeypatch, tasks, is_read_once):
    read = []
    real_rows, real_batches = ParquetBlockReader.rows, ParquetBlockReader.batches
    with lake(COLUMNS, "k", block_rows=60, row_group_rows=300) as here:
        for start in range(3):
            here.add(table(range(start, 900, 3)))
        here.add(table(range(890, 990)))
        found, planned = [], here.cut(tasks=tasks)
        *shared, last = {item.place: item.is_streamed for task in planned for item in task.splits}.values()
        assert (shared, last) == ([not is_read_once] * 3, True), "few tasks take rows of the last"
        monkeypatch.setattr(
            ParquetBlockReader,
            "rows",
            lambda reader, groups: read.extend(groups) or real_rows(reader, groups),
        )
        monkeypatch.setattr(
            ParquetBlockReader,
            "batches",
            lambda reader, group, rows: read.append(group) or real_batches(reader, group, rows),
        )
        LocalEngine().run(here.io, planned, found.append, title="a test")
        assert (len(read) <= 3 + 2) == is_read_once, read
        monkeypatch.undo()
        found.sort(key=lambda item: item.number)
        records = [record for item in found for record in item.records]
        assert canonical(here.rows_of(records)) == canonical(here.expected())
