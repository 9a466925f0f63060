"""Tasks take every row of a group once, in one order, and begin where blocks of the output do."""

from __future__ import annotations

import pickle
import random

import pyarrow as pa
import pytest
from arrow_rows import canonical
from faults import storage_calls
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.merger.cutting import cuts
from tblctl.merger.presort.decide import THRESHOLDS, Thresholds
from tblctl.merger.task.merge import run_task
from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.cut import cut_rows, leaf_cuts
from tblctl.tableformat.model.tree import LEAF, LESS, TREE, Cut, Tree
from tblctl.tableformat.parquet.block_reader import ParquetBlockReader

from .blocks import LARGE_BYTES, LEVEL, RUN, lake

COLUMNS = pa.schema([("k", pa.int64()), ("n", pa.int64())])


def add(here, *blocks, ordered=True):
    """Add a block for each list of keys; `n` numbers all rows as they come."""
    for keys in blocks:
        first = here.rows
        data = pa.table({"k": keys, "n": range(first, first + len(keys))}, schema=here.schema.logical)
        (here.add if ordered else here.unordered)(data)


def places(tasks):
    """Return what tasks take: for each its splits as (path, start, stop)."""
    return [[(item.block.path, item.start, item.stop) for item in task.splits] for task in tasks]


def assert_exact(here, tasks, block_rows):
    """Assert that the tasks take all rows once, in the order of (key, place of block, place in block), cut alike."""
    assert [size for task in tasks for size in task.cuts] == list(cut_rows(here.rows, block_rows))
    assert [task.number for task in tasks] == list(range(len(tasks)))
    in_order, order = [], canonical(here.expected())
    for item in here.splits:
        mine = {row[-1] for row in canonical(here.block_rows(item.block))}
        in_order.append([row for row in order if row[-1] in mine])
    taken = [0] * len(here.splits)
    numbers = {item.block.path: number for number, item in enumerate(here.splits)}
    start = 0
    for task, splits in zip(tasks, places(tasks), strict=True):
        assert list(map(numbers.get, (path for path, _, _ in splits))) == sorted(
            map(numbers.get, (path for path, _, _ in splits))
        )
        rows = []
        for path, low, high in splits:
            number = numbers[path]
            assert taken[number] == low < high
            taken[number] = high
            rows += in_order[number][low:high]
        assert len(rows) == task.rows
        assert set(rows) == set(order[start : start + task.rows])
        start += task.rows
    assert taken == [item.block.row_count for item in here.splits]


@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.none() | st.integers(0, 12), min_size=1, max_size=25)),
        min_size=1,
        max_size=7,
    ),
    st.integers(1, 9),
    st.sampled_from([1, 3, 10, 1_000]),
    st.sampled_from([1, 5, 40, 65_536]),
    st.sampled_from(["k", "k desc nulls first", "bucket(3, k), n desc"]),
)
@settings(max_examples=cases(30))
def test_any_blocks_are_split_at_exact_ranks(blocks, tasks, block_rows, samples, key):
    with lake(COLUMNS, key, block_rows=block_rows, row_group_rows=4) as here:
        for ordered, keys in blocks:
            add(here, keys, ordered=ordered)
        found = here.cut(tasks, sampled_keys=samples)
        assert len(found) == min(tasks, len(cut_rows(here.rows, block_rows)))
        assert_exact(here, found, block_rows)


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param([[5] * 10] * 6, id="one key only"),
        pytest.param([[1, 2, 2, 2, 9], [0, 2, 2, 2, 3], [2, 2, 2, 2, 2]] * 3, id="one key in every block"),
        pytest.param([[n % 7] for n in range(40)], id="blocks of one row"),
        pytest.param([[None] * 8, [None, 3, None], [1, None, 2]], id="null keys"),
        pytest.param([list(range(40)), [20], list(range(10, 30))], id="one inside another"),
        pytest.param([list(range(n * 10, n * 10 + 10)) for n in range(8)], id="disjoint"),
    ],
)
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("samples", [1, 7, 65_536])
def test_hard_shapes_are_split_at_exact_ranks(blocks, ordered, samples):
    with lake(COLUMNS, "k", block_rows=5) as here:
        add(here, *blocks, ordered=ordered)
        assert_exact(here, here.cut(tasks=4, sampled_keys=samples), 5)


def test_long_text_keys_are_compared_in_full():
    start = "x" * 4_096
    with lake("k: string, n: int64", "k", block_rows=10, row_group_rows=3) as here:
        for block in range(4):
            keys = [f"{start}{(row * 7 + block) % 16:02d}" for row in range(20)]
            add(here, keys)
        assert_exact(here, here.cut(tasks=5), 10)


def test_floats_with_nan_are_split_in_their_total_order():
    nan, inf = float("nan"), float("inf")
    with lake("k: double, n: int64", "k", block_rows=4) as here:
        add(here, [nan, 0.0, -0.0, inf], [-inf, nan, nan, None], [-0.0, 0.0, 1.5, nan])
        assert_exact(here, here.cut(tasks=3), 4)


def test_a_thousand_tiny_blocks_are_split_at_exact_ranks():
    with lake(COLUMNS, "k", block_rows=500) as here:
        add(here, *([(n * 7919) % 1_000, (n * 31) % 1_000] for n in range(1_000)))
        tasks = here.cut(tasks=3)
        assert len(tasks) == 3
        assert_exact(here, tasks, 500)


def test_one_task_that_fits_reads_nothing():
    with lake(COLUMNS, "k", block_rows=5) as here:
        add(here, [3, 1, 2], [4, 1], [9, 9, 9, 9])
        calls = storage_calls(lambda: here.cut(tasks=1))
        assert calls == []
        (task,) = here.cut(tasks=1)
        assert task.splits == tuple(here.splits)
        assert (task.cuts, task.level, task.run_id, task.memory_bytes) == ((5, 4), LEVEL, RUN, LARGE_BYTES)
        assert (task.group, task.number, task.sort) == (7, 0, here.sort)


def test_a_group_whose_keys_exceed_a_quarter_of_the_memory_becomes_more_tasks():
    with lake("k: string, n: int64", "k", block_rows=100) as here:
        add(here, *([f"{n:0500d}" for n in range(start, 1_000, 5)] for start in range(5)))
        key_bytes = 500 + 4 + 24  # the text and its offset, and ordering
        for wanted in (2, 5, 10):
            tasks = here.cut(tasks=1, memory_bytes=4 * 1_000 * key_bytes // wanted + 100)
            assert len(tasks) == wanted
            assert_exact(here, tasks, 100)
        assert len(here.cut(tasks=1, memory_bytes=1)) == 10  # no task writes less than a block


def test_blocks_of_the_output_are_cut_by_bytes_too():
    with lake("k: int64, s: string", "k", block_bytes=10_000, block_rows=1_000) as here:
        here.add(
            pa.table({"k": range(110), "s": ["x" * 888] * 110})
        )  # 900 bytes a row: 10.6 fit 0.95 of a block
        (task,) = here.cut()
        assert task.cuts == (10,) * 11


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_about_one_size_do_not_overflow_the_blocks_that_bytes_bound(seed):
    chance = random.Random(seed)
    with lake("k: int64, s: string", "k", block_bytes=200_000, row_group_rows=200) as here:
        for _ in range(3):
            texts = ["x" * chance.randrange(10, 210) for _ in range(1_538)]  # 122 bytes a row: three blocks
            here.add(pa.table({"k": [chance.randrange(10**9) for _ in texts], "s": texts}))
        for memory_bytes in (LARGE_BYTES, 400_000):
            records = here.run(here.cut(memory_bytes=memory_bytes))
            assert len(records) == 3
            assert min(record.decoded_bytes for record in records) > 0.8 * 200_000, "they are full"


def test_a_block_that_lies_about_its_order_is_named():
    with lake(COLUMNS, "k", block_rows=3) as here:
        add(here, [1, 2, 3])
        liar = here.unordered(pa.table({"k": [5, 4, 6], "n": [0, 1, 2]}), is_said_to_be_ordered=True)
        with pytest.raises(CorruptTableError, match=liar.block.path) as caught:
            here.cut(tasks=2)
        assert caught.value.details["name"] == liar.block.path


def test_a_missing_block_is_named():
    with lake(COLUMNS, "k", block_rows=3) as here:
        add(here, [1, 2, 3], [4, 5, 6])
        path = here.splits[1].block.path
        here.storage.delete([path])
        with pytest.raises(CorruptTableError, match="is missing") as caught:
            here.cut(tasks=2)
        assert caught.value.details["name"] == path


@pytest.mark.parametrize("is_kept_in_memory", [True, False])
def test_keys_of_blocks_in_another_order_are_read_once_whatever_the_number_of_cuts(
    monkeypatch, is_kept_in_memory
):
    read = []
    real = ParquetBlockReader.keys

    def counted(reader, groups, sort):
        read.append((reader.path, len(groups)))
        return real(reader, groups, sort)

    with lake(COLUMNS, "k", block_rows=10, row_group_rows=8) as here:
        add(here, *([(n * 37 + seed) % 60 for n in range(60)] for seed in range(4)), ordered=False)
        add(here, list(range(60)))
        divisor = {} if is_kept_in_memory else {"keys_divisor": LARGE_BYTES}
        monkeypatch.setattr(ParquetBlockReader, "keys", counted)
        tasks = here.cut(tasks=12, key_piece_rows=7, **divisor)
        whole = sorted(path for path, groups in read if groups == 8)
        monkeypatch.undo()
        assert whole == sorted(item.block.path for item in here.splits), (
            "each once, and row groups for a look"
        )
        assert len(tasks) == (12 if is_kept_in_memory else 30)
        assert_exact(here, tasks, 10)


@pytest.mark.parametrize("ordered", [True, False])
def test_tasks_share_the_bytes_where_rows_differ_in_width_with_the_key(ordered):
    schema = "k: int64, s: string"
    with lake(schema, "k", block_rows=100, row_group_rows=50) as here:
        for start in range(4):
            keys = [start + 4 * number for number in range(400)]
            texts = [f"{key:04}" * (1 if key < 800 else 100) for key in keys]  # none twice: no dictionary
            data = pa.table({"k": keys, "s": texts}, schema=here.schema.logical)
            if ordered:
                here.add(data)
            else:
                here.unordered(data.sort_by([("k", "descending")]))
        tasks = here.cut(tasks=4)
        assert [task.rows for task in tasks] == ([1000, 200, 200, 200] if ordered else [400] * 4)
        assert sum(len(task.cuts) for task in tasks) == 16
        narrow = here.cut(
            tasks=4, memory_bytes=THRESHOLDS.keys_divisor * 450 * 32
        )  # holds the keys of 450 rows
        assert max(task.rows for task in narrow) <= 500


@pytest.mark.parametrize(
    ("weights", "tasks", "firsts"),
    [
        ([1], 4, [0]),
        ([1] * 8, 1, [0]),
        ([1] * 8, 4, [0, 2, 4, 6]),
        ([1] * 8, 20, list(range(8))),
        ([9, 1, 1, 1], 3, [0, 1, 2]),
        ([1, 1, 1, 9], 3, [0, 2, 3]),
        ([1, 1, 1, 1, 8, 8, 8, 8], 4, [0, 5, 6, 7]),
        ([0, 0, 0], 2, [0, 1]),
    ],
)
def test_every_task_gets_blocks_and_about_as_many_bytes(weights, tasks, firsts):
    assert cuts._shared_out(weights, tasks) == firsts


@given(weights=st.lists(st.integers(0, 1000), min_size=1, max_size=40), tasks=st.integers(1, 20))
def test_no_task_has_more_than_its_share_and_a_block(weights, tasks):
    firsts = cuts._shared_out(weights, tasks)
    count = min(tasks, len(weights))
    assert firsts[0] == 0
    assert firsts == sorted(set(firsts))
    assert len(firsts) == count
    shares = [
        sum(weights[start:stop]) for start, stop in zip(firsts, [*firsts[1:], len(weights)], strict=True)
    ]
    assert max(shares) <= sum(weights) / count + 2 * max(weights)


# -- what is presorted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [1, 3])
def test_blocks_that_overlap_too_many_others_are_presorted(tasks):
    """Eight blocks of the same keys, and eight that follow each other: a task has room for three row groups."""
    with lake("k: int64, s: string", "k", block_rows=300, row_group_rows=50) as here:
        for start in range(8):
            here.add(text_rows(range(start, 1_600, 8)))
        for start in range(2_000, 3_600, 200):
            here.add(text_rows(range(start, start + 200)))
        group_bytes = here.splits[0].block.decoded_bytes // 4
        expected = canonical(here.expected())
        for memory_bytes, crowded in ((3 * group_bytes * 4, True), (17 * group_bytes * 4, False)):
            planned = here.cut(tasks, memory_bytes=memory_bytes, useful_piece_bytes=1)
            found = {item.place: item.is_presorted for task in planned for item in task.splits}
            assert found == {place: crowded and place < 8 for place in range(16)}
            assert canonical(here.rows_of(here.run(planned))) == expected


def test_pieces_that_would_be_too_small_are_not_presorted():
    with lake("k: int64, s: string", "k", block_rows=300, row_group_rows=50) as here:
        for start in range(8):
            here.add(text_rows(range(start, 1_600, 8)))
        assert all(task.is_streamed for task in here.cut(memory_bytes=here.splits[0].block.decoded_bytes))


def test_more_blocks_than_may_be_open_are_presorted():
    with lake("k: int64, s: string", "k", block_rows=300, row_group_rows=50) as here:
        for start in range(8):
            here.add(text_rows(range(start, 1_600, 8)))
        (task,) = here.cut(open_blocks=7)
        assert all(item.is_presorted for item in task.splits)


def text_rows(keys):
    return pa.table({"k": list(keys), "s": [f"{key:01000d}" for key in keys]})


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_tasks_that_memory_asks_for_come_in_whole_waves(tasks):
    with lake("k: int64, s: string", "k", block_rows=10) as here:
        here.add(text_rows(range(500)))
        counts = {len(here.cut(tasks, memory_bytes=memory)) for memory in range(10_000, 40_000, 1_000)}
        assert len(counts) >= 3
        assert all(count % tasks == 0 for count in counts)


def test_where_new_blocks_have_a_few_old_keys_the_old_blocks_are_streamed_and_copied():
    with lake("k: int64, s: string", "k", block_rows=300, row_group_rows=50) as here:
        for start in range(0, 3_000, 200):
            here.add(text_rows(range(start, start + 200)))
        for number in range(5):
            here.add(text_rows([number, *range(3_000 + number, 3_500, 5)]))
        group_bytes = here.splits[0].block.decoded_bytes // 4
        (task,) = here.cut(memory_bytes=4 * group_bytes * 4, useful_piece_bytes=1)
        assert {item.place for item in task.splits if item.is_presorted} == {15, 16, 17, 18, 19}
        assert run_task(here.io, task).rows_copied >= 1_800


def to_cut(here, *, tasks, memory_bytes):
    output = cuts.Output(sort=here.sort, level=LEVEL, run_id=RUN, memory_bytes=memory_bytes)
    return cuts.CutTask(group=7, splits=tuple(here.splits), output=output, tasks=tasks)


@settings(max_examples=cases(20), deadline=None)
@given(
    blocks=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    tasks=st.integers(1, 3),
    block_rows=st.integers(5, 100),
    memory_bytes=st.integers(1_000, 40_000),
    ordered=st.booleans(),
    most_open=st.integers(1, 6),
)
def test_a_group_that_reads_no_keys_is_cut_without_a_request(
    blocks, tasks, block_rows, memory_bytes, ordered, most_open
):
    thresholds = Thresholds(open_blocks=most_open, useful_piece_bytes=1)
    with lake("k: int64, n: int64", "k", block_rows=block_rows) as here:
        for number, rows in enumerate(blocks):
            add(here, range(number, number + rows), ordered=ordered)
        group = to_cut(here, tasks=tasks, memory_bytes=memory_bytes)
        calls = storage_calls(lambda: cuts.find_cuts(here.io, group, thresholds))
        if cuts.reads_no_keys(here.io, group, thresholds):
            assert calls == []


@pytest.mark.parametrize(
    ("rows", "tasks", "memory_bytes", "expected"),
    [
        (100, 1, LARGE_BYTES, True),
        (100, 2, LARGE_BYTES, False),
        (10, 2, LARGE_BYTES, True),  # one block, so one task
        (100, 1, 4_000, False),  # more rows than a task can hold
        (10, 1, 400, False),  # more row groups than it can hold
    ],
)
def test_one_task_that_can_hold_all_rows_reads_no_keys(rows, tasks, memory_bytes, expected):
    with lake("k: int64, n: int64", "k", block_rows=20) as here:
        add(here, range(rows // 2), range(rows // 2))
        group = to_cut(here, tasks=tasks, memory_bytes=memory_bytes)
        thresholds = Thresholds(useful_piece_bytes=1)
        assert cuts.reads_no_keys(here.io, group, thresholds) == expected
        assert (storage_calls(lambda: cuts.find_cuts(here.io, group, thresholds)) == []) == expected


def test_tasks_put_together_elsewhere_are_those_of_one_process():
    with lake("k: int64, n: int64", "k", block_rows=20) as here:
        add(here, [1] * 50, range(60))
        add(here, range(0, 80, 2), [5, 4, 3], ordered=False)
        group = to_cut(here, tasks=3, memory_bytes=LARGE_BYTES)
        found = pickle.loads(pickle.dumps(cuts.find_cuts(here.io, group)))
        assert cuts.tasks_of(group, found, here.io.options) == here.cut(tasks=3)


def by_leaf(here, *least):
    """Order the blocks by a tree with a leaf from each number of `k` to the next; NULL and the rest come last."""
    column = here.schema.leaf("k")
    tests = tuple(
        Cut(column_id=column.id, operator=LESS, values=pa.array([value], pa.int64())) for value in least
    )
    nodes = [node for number in range(len(least)) for node in (number, LEAF)]
    tree = Tree(text="qdtree(workload)", columns=((column.id, pa.int64()),), cuts=tests, nodes=(*nodes, LEAF))
    terms = (Term(column_id=column.id),)
    here.sort = Sort(id=1, kind=TREE, terms=terms, parameters=tree.to_parameters())


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("memory_bytes", [2_000, LARGE_BYTES])
def test_blocks_of_a_tree_end_at_the_same_leaves_whatever_the_number_of_tasks(ordered, memory_bytes):
    expected = leaf_cuts((33, 9, 40, 21, 17), 10)
    assert expected != cut_rows(120, 10)
    with lake("k: int64, n: int64", "n", block_rows=10, row_group_rows=4) as here:
        by_leaf(here, 33, 42, 82, 103)
        add(here, *(range(number, 120, 7) for number in range(7)), ordered=ordered)
        for tasks in (1, 2, 5):
            found = here.cut(tasks, memory_bytes=memory_bytes, sampled_keys=20)
            assert tuple(size for task in found for size in task.cuts) == expected
            group = to_cut(here, tasks=tasks, memory_bytes=memory_bytes)
            assert not cuts.reads_no_keys(here.io, group)
            records = here.run(found)
            assert tuple(record.row_count for record in records) == expected
            one_leaf = [record.key_min == record.key_max for record in records]
            assert one_leaf.count(False) == 1, "the second leaf fills no block, so one has rows of two"


def test_a_group_that_becomes_one_block_of_a_tree_reads_nothing():
    with lake("k: int64, n: int64", "n", block_rows=100) as here:
        by_leaf(here, 5)
        add(here, range(10), range(10))
        assert storage_calls(lambda: here.cut(tasks=2)) == []
