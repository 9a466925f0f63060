"""The task function: the rows of the blocks in key order, in blocks of the sizes asked for, however it is run."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from arrow_rows import canonical, memory_table, tables
from faults import Faults, inject
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.merger.cutting.cuts import Output, cut_into_tasks, whole_splits
from tblctl.merger.task import order as order_module
from tblctl.merger.task.inputs import RowStream
from tblctl.merger.task.merge import Cancelled, Hooks, run_task, windows
from tblctl.merger.task.verify import VerificationError
from tblctl.tableformat.errors import InternalError, StorageError
from tblctl.tableformat.model.cluster_key import Term, transform_problem
from tblctl.tableformat.model.cut import cut_rows, slack_rows
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import is_orderable
from tblctl.tableformat.native.block_io import NativeBlockIO
from tblctl.tableformat.native.blocks import layout_of
from tblctl.tableformat.native.port import NativePort
from tblctl.tableformat.native.read.metadata import block_metadata
from tblctl.tableformat.parquet import statistics
from tblctl.tableformat.port import Replacement

from ..model.strategies import SCHEMAS
from .blocks import LARGE_BYTES, LEVEL, RUN, lake, merge_threads

MANY = settings(max_examples=cases(15), suppress_health_check=list(HealthCheck))
NUMBER = pa.field("row number", pa.int64(), nullable=False)
TRANSFORMS = [("day", None), ("year", None), ("truncate", 3), ("bucket", 4)]


def transforms_of(leaf):
    fitting = [(name, width) for name, width in TRANSFORMS if transform_problem(name, leaf) is None]
    return ["identity"] + [name if width is None else f"{name}[{width}]" for name, width in fitting]


@st.composite
def schemas_and_terms(draw):
    """A random schema with a last column that numbers the rows, and one to three terms of a key."""
    columns = draw(SCHEMAS.filter(lambda schema: NUMBER.name not in schema.names))
    schema = Schema.create(columns.append(NUMBER))
    leaves = [leaf for leaf in schema.leaves if is_orderable(leaf.type)]
    chosen = draw(st.lists(st.sampled_from(leaves[:-1] or leaves), min_size=1, max_size=3, unique=True))
    terms = tuple(
        Term(
            column_id=leaf.id,
            transform=draw(st.sampled_from(transforms_of(leaf))),
            descending=draw(st.booleans()),
            nulls_first=draw(st.booleans()),
        )
        for leaf in chosen
    )
    return schema, terms


@st.composite
def lakes_of_blocks(draw, here):
    """Add one to five blocks of few different rows, in key order or not."""
    some = pa.schema(list(here.schema.logical)[:-1])
    pool = draw(tables(some.append(NUMBER), min_rows=3, max_rows=6))
    pool = here.conformed(pool).drop_columns([NUMBER.name])
    for _ in range(draw(st.integers(1, 5))):
        picks = draw(st.lists(st.integers(0, pool.num_rows - 1), min_size=1, max_size=14))
        numbers = pa.array(range(here.rows, here.rows + len(picks)), pa.int64())
        columns = [*pool.take(pa.array(picks)).columns, numbers]
        rows = pa.Table.from_arrays(columns, schema=here.schema.read_schema)
        (here.add if draw(st.booleans()) else here.unordered)(rows)


@given(st.data())
@MANY
def test_any_rows_are_merged_as_a_stable_sort_orders_them(data):
    schema, terms = data.draw(schemas_and_terms())
    options = {
        "block_rows": data.draw(st.sampled_from([1, 4, 7, 1_000])),
        "row_group_rows": data.draw(st.sampled_from([1, 2, 3, 1_000])),
    }
    with lake(schema, terms, **options) as here:
        data.draw(lakes_of_blocks(here))
        expected = canonical(here.expected())
        sizes = None
        for memory_bytes in (1 << 30, data.draw(st.sampled_from([1, 100, 1_000, 10_000, 100_000]))):
            tasks = here.cut(data.draw(st.integers(1, 5)), memory_bytes=memory_bytes)
            records = here.run(tasks, threads=data.draw(st.integers(1, 3)))
            assert canonical(here.rows_of(records)) == expected
            assert here.problems(records) == []
            assert [record.row_count for record in records] == [size for task in tasks for size in task.cuts]
            assert sizes in (None, [record.row_count for record in records])
            sizes = [record.row_count for record in records]


def assert_merged(here, records, *, level=LEVEL):
    assert canonical(here.rows_of(records)) == canonical(here.expected())
    assert here.problems(records) == []
    assert {record.run_id for record in records} == {RUN}
    assert {record.level for record in records} <= {level, -1}


# -- the same output with any settings --------------------------------------------------------------------------------


def facts(here, records):
    """Return what blocks say of their rows, and their row groups."""
    return [
        (
            record.row_count, record.level, record.run_id, record.key_exact,
            [value.as_py() for value in (*record.key_min, *record.key_max)],
            [(item.min, item.max, item.exact, item.null_count, item.nan_count) for item in record.columns.values()],
            here.row_groups(record),
        )
        for record in records
    ]  # fmt: skip


def test_tasks_threads_and_memory_change_neither_rows_nor_blocks_nor_row_groups():
    with lake("k: int64, n: int64, s: string", "k", block_rows=700, row_group_rows=100) as here:
        for start in range(5):
            keys = [(n * 7919 + start) % 500 for n in range(900)]
            data = pa.table({"k": keys, "n": range(900), "s": [f"{n:020d}" for n in range(900)]})
            (here.unordered if start == 3 else here.add)(data)
        found = []
        for tasks, threads, memory_bytes in (
            (1, 1, LARGE_BYTES), (3, 2, LARGE_BYTES), (7, 3, LARGE_BYTES), (1, 3, 120_000), (2, 1, 120_000),
        ):  # fmt: skip
            records = here.run(here.cut(tasks, memory_bytes=memory_bytes), threads=threads)
            assert_merged(here, records)
            found.append(facts(here, records))
        assert found[0][0][0] == 639, "4,500 rows spread over 7 blocks, 9 of a key"
        for other in found[1:]:
            assert other == found[0]


def ends_between_keys(keys, block_rows):
    """Return the rows of each block that sorted keys make, said in plain Python."""
    sizes = cut_rows(len(keys), block_rows)
    ends = [0, *itertools.accumulate(sizes)]
    for place, slack in enumerate(slack_rows(sizes, block_rows), start=1):
        end = ends[place]
        ends[place] = next((to for to in range(end, end - slack - 1, -1) if keys[to - 1] != keys[to]), end)
    return [end - start for start, end in itertools.pairwise(ends)]


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.integers(1, 90), st.integers(1, 60), st.sampled_from([0.0, 1.0, float("nan")])
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([20, 41, 100]),
    st.sampled_from(["a", "b, a desc nulls first", "c desc", "c, b"]),
    st.data(),
)
@MANY
def test_blocks_end_between_keys_alike_however_they_are_merged(blocks, block_rows, terms, data):
    with lake(
        "a: int64, b: string, c: double, n: int64", terms, block_rows=block_rows, row_group_rows=8
    ) as here:
        for ordered, rows, several, number in blocks:
            key = [(place * 7919) % several for place in range(rows)]
            columns = {
                "a": [None if one == 3 else one for one in key],
                "b": [str(one // 4) for one in key],
                "c": [number * one for one in key],
                "n": range(here.rows, here.rows + rows),
            }
            (here.add if ordered else here.unordered)(pa.table(columns))
        expected = here.expected()
        sizes = ends_between_keys(canonical(here.keys(expected)), block_rows)
        for memory_bytes in (LARGE_BYTES, data.draw(st.sampled_from([1, 1_000, 10_000]))):
            tasks = here.cut(data.draw(st.integers(1, 9)), memory_bytes=memory_bytes)
            records = here.run(tasks, threads=data.draw(st.integers(1, 3)))
            assert [record.row_count for record in records] == sizes
            assert canonical(here.rows_of(records)) == canonical(expected)
            assert here.problems(records) == []


def test_neighbours_share_a_key_only_where_it_has_more_rows_than_the_slack():
    with lake("k: int64, n: int64", "k", block_rows=1_000) as here:
        for start in range(4):
            keys = [*(n // 10 for n in range(600)), *[60] * 100, *(n // 10 for n in range(700, 925))]
            here.add(pa.table({"k": keys, "n": range(start * 925, start * 925 + 925)}))
        records = here.run(here.cut(tasks=2))  # 3,700 rows in 4 blocks of 925, 50 of slack
        assert_merged(here, records)
        ranges = [(record.key_min[0].as_py(), record.key_max[0].as_py()) for record in records]
        assert ranges == [(0, 22), (23, 45), (46, 60), (60, 92)], "key 60 has 400 rows"


def test_windows_smaller_than_a_row_group_change_the_row_groups_alone():
    with lake("k: int64, n: int64", "k", block_rows=1_000, row_group_rows=500) as here:
        for start in range(3):
            here.add(pa.table({"k": range(start, 3_000, 3), "n": range(1_000)}))
        many, few = (
            here.run([replace(here.cut()[0], memory_bytes=memory_bytes)])
            for memory_bytes in (LARGE_BYTES, 20_000)
        )
        assert [here.row_groups(record) for record in many] == [(500, 500)] * 3
        assert max(max(here.row_groups(record)) for record in few) < 500
        assert [one[:-1] for one in facts(here, few)] == [one[:-1] for one in facts(here, many)]


# -- keys -------------------------------------------------------------------------------------------------------------


def test_a_heavily_repeated_key_is_cut_into_constant_blocks():
    with lake("k: int64, n: int64", "k", block_rows=10) as here:
        for start in range(6):
            here.add(pa.table({"k": [1] + [5] * 18 + [9], "n": range(start * 20, start * 20 + 20)}))
        for tasks in (1, 4):
            records = here.run(here.cut(tasks))
            assert_merged(here, records)
            assert [record.row_count for record in records] == [10] * 12
            assert [record.level for record in records] == [LEVEL] + [-1] * 10 + [LEVEL]


@pytest.mark.parametrize("key", ["k", "k desc", "k nulls first", "k desc nulls first, n desc"])
def test_nulls_and_nan_have_their_places(key):
    values = [math.nan, None, 0.0, -0.0, math.inf, -math.inf, 1.5, None, math.nan]
    with lake("k: double, n: int64", key, block_rows=7) as here:
        for start in range(4):
            rows = pa.table({"k": values[start:] + values[:start], "n": range(start * 9, start * 9 + 9)})
            (here.add if start % 2 else here.unordered)(rows)
        for tasks in (1, 3):
            assert_merged(here, here.run(here.cut(tasks), threads=2))


@pytest.mark.parametrize("memory_bytes", [LARGE_BYTES, 500_000])
def test_text_of_4_kib_is_merged_as_key_and_as_value(memory_bytes):
    chance = random.Random(3)
    start = "x" * 4_096
    with lake("k: string, v: string, n: int64", "k", block_rows=60, row_group_rows=20) as here:
        for place in range(4):
            keys = [start + f"{chance.randrange(90):03d}" for _ in range(50)]
            values = [chr(97 + chance.randrange(26)) * 4_096 for _ in keys]
            add = here.unordered if place == 2 else here.add
            add(pa.table({"k": keys, "v": values, "n": range(place * 50, place * 50 + 50)}))
        for threads in (1, 2):
            records = here.run(here.cut(2, memory_bytes=memory_bytes), threads=threads)
            assert_merged(here, records)
            assert not any(record.key_exact for record in records)


def test_rows_of_very_different_sizes_make_more_blocks_where_bytes_ask_for_them():
    chance = random.Random(5)
    with lake("k: int64, s: string", "k", block_bytes=20_000, row_group_rows=10) as here:
        for _ in range(4):
            sizes = [chance.choice([1, 10, 100, 25_000 if chance.random() < 0.02 else 1]) for _ in range(300)]
            here.add(
                pa.table({"k": [chance.randrange(1_000) for _ in sizes], "s": ["x" * size for size in sizes]})
            )
        for tasks, memory_bytes in ((1, LARGE_BYTES), (3, LARGE_BYTES), (1, 10_000)):
            split = here.cut(tasks, memory_bytes=memory_bytes)
            records = here.run(split, threads=2)
            assert_merged(here, records)
            assert len(records) > sum(len(task.cuts) for task in split)
            assert all(record.row_count == 1 or record.decoded_bytes <= 20_000 for record in records)


# -- older schemas ----------------------------------------------------------------------------------------------------


def table_slices(table):
    """Return what merges a table's blocks: I/O, sort, splits in the order of the metadata, and the port's version."""
    port = NativePort(table._native)
    version = port.newest()
    metadata = block_metadata(table._native.storage, version.snapshot)
    blocks = metadata.blocks(np.arange(len(metadata)))
    io = NativeBlockIO(
        storage=table._native.storage,
        env=table._native.env,
        layout=layout_of(version.snapshot),
        column_ids=version.snapshot.column_ids,
    )
    return port, version, io, whole_splits(version, version.sort, blocks)


def merge_table(table, *, tasks=1, threads=1, memory_bytes=LARGE_BYTES):
    """Merge all blocks of a table into one run, and commit it."""
    port, version, io, splits = table_slices(table)
    output = Output(sort=version.sort, level=1, run_id=RUN, memory_bytes=memory_bytes)
    results = [
        run_task(io, task, threads=threads) for task in cut_into_tasks(io, 0, splits, output, tasks=tasks)
    ]
    records = tuple(record for result in results for record in result.records)
    port.replace(version, Replacement(removed=frozenset(item.block.path for item in splits), added=records))
    return [item.is_ordered for item in splits]


@pytest.mark.parametrize(("tasks", "threads", "memory_bytes"), [(1, 1, LARGE_BYTES), (3, 2, 30_000)])
def test_blocks_of_older_schemas_are_merged_into_the_newest(tasks, threads, memory_bytes):
    schema = "k: int32, a: string, gone: int64, s: struct<x: int32>"
    with memory_table_of(schema, cluster_by="k", options={"block_rows": 25, "row_group_rows": 4}) as table:

        def append(start, row):
            rows = [{"k": n, **row(n)} for n in range(start, 60, 3)]
            table.append(pa.Table.from_pylist(rows, schema=table.schema))

        append(0, lambda n: {"a": f"a{n}", "gone": n, "s": {"x": n}})
        table.drop_cluster_key()
        table.widen_column("k", "int64")
        table.widen_column("s.x", "int64")
        table.set_cluster_key("k")
        table.add_column("s.y", "string")
        append(1, lambda n: {"a": f"b{n}", "gone": -n, "s": {"x": -n, "y": f"y{n}"}})
        table.rename_column("a", "b")
        table.drop_column("gone")
        table.add_column("late", "double")
        append(2, lambda n: {"b": f"c{n}", "s": None, "late": n / 2})
        before = table.scan().to_arrow()
        merge_table(table, tasks=tasks, threads=threads, memory_bytes=memory_bytes)
        after = table.scan().to_arrow()
        assert canonical(after) == sorted(canonical(before))
        assert [block.rows for block in table.files()] == [20] * 3
        assert table.check(deep=True).ok


def memory_table_of(schema, **arguments):
    from tblctl.tableformat.model.schema.type_text import fields_from_text

    return memory_table(pa.schema(fields_from_text(schema)), **arguments)


def test_blocks_from_before_the_key_are_sorted_and_merged_with_those_after():
    with memory_table_of("k: int64, n: int64", options={"block_rows": 40, "row_group_rows": 7}) as table:
        table.append(pa.table({"k": [(n * 37) % 50 for n in range(40)], "n": range(40)}))
        table.set_cluster_key("k desc")
        table.append(pa.table({"k": [(n * 11) % 50 for n in range(40)], "n": range(40, 80)}))
        table.add_column("new", "int64")
        table.set_cluster_key("new nulls first, k")
        table.append(pa.table({"k": [1, 2], "n": [80, 81], "new": [None, 5]}))
        rows = table.scan().to_arrow().to_pylist()
        assert merge_table(table, tasks=2, memory_bytes=20_000) == [False, False, True]
        expected = sorted(rows, key=lambda row: (row["new"] is not None, row["new"] or 0, row["k"]))
        assert table.scan().to_arrow().to_pylist() == expected
        assert table.check(deep=True).ok


def test_windows_of_a_block_are_about_equal():
    numbers, row_bytes = np.arange(700), np.full(700, 16.0)
    found = list(
        windows(numbers, row_bytes, most_bytes=600 * 16, group_rows=100)
    )  # six of seven row groups fit
    assert [window.groups for window in found] == [(100,) * 4, (100,) * 3]
    assert np.concatenate([window.numbers for window in found]).tolist() == numbers.tolist()


@pytest.mark.parametrize("threads", [1, 2])
def test_windows_of_several_row_groups_make_the_blocks_that_one_window_makes(threads):
    with lake("k: int64, n: int64", "k", block_rows=700, row_group_rows=100) as here:
        for start in range(3):
            here.add(pa.table({"k": range(start, 2_100, 3), "n": range(700)}))
        (task,) = here.cut()
        records = here.run([task], threads=threads, most_window_bytes=600 * 16)
        assert facts(here, records) == facts(here, here.run([task]))
        assert canonical(here.rows_of(records)) == canonical(here.expected())


# -- when something goes wrong ----------------------------------------------------------------------------------------


@pytest.fixture
def here():
    """300 rows in three blocks, to be merged into six."""
    with lake("k: int64, n: int64", "k", block_rows=50, row_group_rows=20) as found:
        for start in range(3):
            found.add(pa.table({"k": range(start, 300, 3), "n": range(100)}))
        yield found
    assert merge_threads() == []


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("place", [0, 70, 298])
def test_rows_that_are_gathered_wrongly_are_noticed_and_nothing_stays(here, monkeypatch, threads, place):
    real = order_module.sort_indices

    def wrong(keys, sort):
        order = real(keys, sort).to_numpy().copy()
        order[place] = order[
            place + 3 if place < 200 else place - 3
        ]  # of the same block: lost, and there twice
        return pa.array(order)

    (task,) = here.cut()
    monkeypatch.setattr(order_module, "sort_indices", wrong)
    with pytest.raises(
        VerificationError, match=r"group 7, task 0: (of '[kn]'|merged rows are not in key order)"
    ):
        run_task(here.io, task, threads=threads)
    assert here.stored() == set()


def test_statistics_that_tell_of_nulls_that_are_none_are_noticed_and_nothing_stays(here, monkeypatch):
    real = statistics._measured

    def wrong(table, leaf, **rest):
        return replace(real(table, leaf, **rest), null_count=1)

    (task,) = here.cut()
    monkeypatch.setattr(statistics, "_measured", wrong)
    with pytest.raises(
        VerificationError, match=r"group 7, task 0: statistics of 'k' count \d+ nulls, but 0 were"
    ):
        run_task(here.io, task, threads=2)
    assert here.stored() == set()


def test_rows_that_would_be_gathered_from_nowhere_are_noticed_and_nothing_stays(here, monkeypatch):
    real = order_module.sort_indices
    monkeypatch.setattr(
        order_module, "sort_indices", lambda keys, sort: pa.array(real(keys, sort).to_numpy()[::-1])
    )
    (task,) = here.cut()
    with pytest.raises(InternalError, match="group 7, task 0"):
        run_task(here.io, task)
    assert here.stored() == set()


def test_rows_that_are_handed_out_wrongly_are_noticed_and_nothing_stays(here, monkeypatch):
    real = RowStream.take

    def wrong(self, count):
        whole = pa.concat_tables(real(self, count))
        first = whole.slice(0, 1)
        return [first, first, whole.slice(2)] if count > 1 else [whole]

    (task,) = here.cut()
    monkeypatch.setattr(RowStream, "take", wrong)
    with pytest.raises(VerificationError, match="group 7, task 0"):
        run_task(here.io, task)
    assert here.stored() == set()


def test_a_task_whose_slices_are_not_its_cuts_is_refused(here):
    (task,) = here.cut()
    with pytest.raises(InternalError, match=r"group 7, task 0 has splits of 300 rows for cuts of 299"):
        run_task(here.io, replace(task, cuts=(299,)))
    assert here.stored() == set()


@pytest.mark.parametrize("nth", [1, 3, 6])
@pytest.mark.parametrize("at", ["before", "after"])
def test_a_failed_write_leaves_nothing_and_stops_the_task_at_once(here, nth, at):
    (task,) = here.cut()
    for threads in (1, 3):
        advanced = []
        hooks = Hooks(advance=advanced.append, cancelled=lambda: False)
        faults = Faults()
        faults.fail(operation="write", name="data/", nth=nth, at=at)
        with inject(faults), pytest.raises(StorageError, match="injected"):
            run_task(here.io, task, threads=threads, hooks=hooks)
        assert here.stored() == set()
        if threads == 1:
            assert sum(advanced) == nth * 50, "no rows were read in vain"


@pytest.mark.parametrize("threads", [1, 3])
def test_a_cancelled_task_deletes_what_it_stored(here, threads):
    advanced = []
    hooks = Hooks(advance=advanced.append, cancelled=lambda: len(advanced) == 4)
    (task,) = here.cut()
    with pytest.raises(Cancelled):
        run_task(here.io, task, threads=threads, hooks=hooks)
    assert sum(advanced) == 200
    assert here.stored() == set()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_what_was_merged_is_told_and_adds_up(here, threads):
    advanced = []
    result = run_task(
        here.io,
        here.cut()[0],
        threads=threads,
        hooks=Hooks(advance=advanced.append, cancelled=lambda: False),
    )
    assert sum(advanced) == result.rows == 300
    assert result.bytes_written == sum(record.size_bytes for record in result.records)
    assert result.bytes_read > 0


@pytest.mark.parametrize(
    ("order", "rows", "at_once"),
    [
        ([0, 1, 2, 3, 4, 5], [2, 2, 2], 1),
        ([0, 2, 4, 1, 3, 5], [2, 2, 2], 3),
        ([0, 2, 1, 3, 4, 5], [2, 2, 2], 2),
        ([3, 0, 1, 2], [1, 1, 1, 1], 1),
        ([0, 2, 3, 4, 1], [2, 3], 2),
    ],
)
def test_how_many_inputs_are_under_way_at_once(order, rows, at_once):
    assert order_module._at_once(np.array(order, np.uint32), rows) == at_once
