"""Blocks in another order are sorted once for all tasks of a group; the output is the same in any case."""

from __future__ import annotations

import os
import pickle
import random
import tempfile
import threading
from dataclasses import replace

import pyarrow as pa
import pytest
from arrow_rows import canonical
from faults import Faults, inject
from hypothesis import given
from hypothesis import strategies as st

from tblctl.merger.cutting.key_cuts import SplitKeys
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.engines.spark import on_worker
from tblctl.merger.engines.spark.on_worker import WorkerSetup
from tblctl.merger.presort import portions as portions_module
from tblctl.merger.presort import presorter
from tblctl.merger.presort.decide import THRESHOLDS, Thresholds, deal
from tblctl.merger.presort.presorter import presort
from tblctl.merger.presort.sort_tasks import sort_tasks
from tblctl.merger.presort.spill import Pieces, SpillFolder
from tblctl.merger.task.merge import run_task
from tblctl.merger.task.spec import TaskFailure, TaskResult
from tblctl.merger.task.verify import VerificationError
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import CorruptTableError, StorageError
from tblctl.tableformat.parquet.block_reader import ParquetBlockReader

from .blocks import LARGE_BYTES, lake, merge_threads
from .test_merge import MANY, assert_merged, facts, lakes_of_blocks, schemas_and_terms

COLUMNS = "k: int64, n: int64, s: string"


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert list(tmp_path.iterdir()) == []
    assert merge_threads() == []


def spilled_files(folder):
    """Count what is spilled. `os.walk`, since the last task of a unit removes its folder while others look."""
    return sum(name.endswith(".arrow") for _, _, names in os.walk(folder) for name in names)


def rows(seed, count, most=50):
    chance = random.Random(seed)
    return pa.table(
        {
            "k": [chance.randrange(most) for _ in range(count)],
            "n": range(count),
            "s": [f"{seed}-{n:040d}" for n in range(count)],
        }
    )


def presorted(tasks, places):
    """Return tasks whose blocks in these places are presorted, whether they are in order or not."""
    return tuple(
        replace(
            task,
            splits=tuple(replace(one, is_presorted=one.place in places) for one in task.splits),
            presorted_tasks=len(tasks),
        )
        for task in tasks
    )


def sorting_one_block(here):
    """Return thresholds by which one block is sorted at once, and not two."""
    most = max(item.block.decoded_bytes for item in here.splits) * 3 // 2
    return Thresholds(most_sort_bytes=most, sort_divisor=1, least_sort_divisor=1)


def mapped(work, items):
    return [work(item) for item in items]


def run_sorted_beforehand(here, tasks):
    """Run tasks one after the other, their blocks in another order sorted once for all of them."""
    sharing = [task for task in tasks if not task.is_streamed]
    with SpillFolder() as folder:
        found = presort(here.io, sharing, folder, mapped) if sharing else {}
        results = [run_task(here.io, task, portions=found.get(task.number, ())) for task in tasks]
    return [record for result in results for record in result.records]


# -- the same output with any presorting -------------------------------------------------------------------------------


@given(st.data())
@MANY
def test_any_blocks_sorted_beforehand_are_merged_as_a_stable_sort_orders_them(data):
    schema, terms = data.draw(schemas_and_terms())
    options = {
        "block_rows": data.draw(st.sampled_from([1, 4, 7])),
        "row_group_rows": data.draw(st.sampled_from([1, 2, 3, 1_000])),
    }
    with lake(schema, terms, **options) as here:
        data.draw(lakes_of_blocks(here))
        expected = canonical(here.expected())
        memory_bytes = data.draw(st.sampled_from([1, 1_000, 20_000, 1 << 30]))
        tasks = here.cut(data.draw(st.integers(1, 5)), memory_bytes=memory_bytes)
        tasks = presorted(tasks, data.draw(st.sets(st.integers(0, len(here.splits)))))
        assert canonical(here.rows_of(here.run(tasks))) == expected
        assert canonical(here.rows_of(run_sorted_beforehand(here, tasks))) == expected
        assert canonical(here.rows_of(merge_packed(here, tasks))) == expected
        assert canonical(here.rows_of(run_by_neighbours(here, tasks, workers=2))) == expected


def pickled(io, thresholds=THRESHOLDS):
    class IO:
        def __reduce__(self):
            return _io, ()

    global _IO  # noqa: PLW0603 (a lake in memory cannot be pickled)
    _IO = io
    return pickle.dumps(WorkerSetup(io=IO(), thresholds=thresholds))


def outcomes_of_neighbours(here, tasks, *, workers, thresholds=THRESHOLDS, **more):
    """Run tasks as Spark's workers do that sort for themselves what these take."""
    setup, shares = pickled(here.io, thresholds), deal(tasks, workers, thresholds)
    found = [one for share in shares for one in on_worker.run_pickled(setup, pickle.dumps(share), **more)]
    return [pickle.loads(one) for one in found]


def run_by_neighbours(here, tasks, **more):
    return records_of(outcomes_of_neighbours(here, tasks, **more))


def records_of(outcomes):
    failed = [one.error for one in outcomes if isinstance(one, TaskFailure)]
    if failed:
        raise failed[0]
    return [record for one in sorted(outcomes, key=lambda one: one.number) for record in one.records]


def merge_packed(here, tasks):
    """Run tasks as Spark's workers do after its shuffle, all in one partition; the last two sort for themselves."""
    io = pickled(here.io)
    sharing = [task for task in tasks if not task.is_streamed]
    carried, together = (sharing[:-2], tuple(sharing[-2:])) if len(sharing) > 3 else (sharing, ())
    shares = [(task,) for task in tasks if task not in together] + [together] * bool(together)
    numbers = {task.number: task.number for task in tasks}
    portions = [
        row
        for sort in (sort_tasks(carried) if carried else ())
        for row in on_worker.sort_pickled(io, pickle.dumps((sort, numbers)))
    ]
    described = [(share[0].number, pickle.dumps(share), None) for share in shares]
    incoming = [*portions[::2], *described, *portions[1::2]]
    held_bytes = tasks[0].memory_bytes // THRESHOLDS.held_divisor
    return records_of([pickle.loads(one) for one in on_worker.merge_pickled(io, incoming, held_bytes)])


_IO = None


def _io():
    return _IO


@pytest.mark.parametrize("memory_bytes", [LARGE_BYTES, 300_000])
def test_sorting_beforehand_changes_no_block(memory_bytes):
    with lake(COLUMNS, "k", block_rows=300, row_group_rows=100) as here:
        for seed in range(6):
            (here.add if seed == 2 else here.unordered)(rows(seed, 500))
        alone = here.run(here.cut(1, memory_bytes=LARGE_BYTES))
        assert_merged(here, alone)
        for count in (2, 5):
            tasks = here.cut(count, memory_bytes=memory_bytes)
            for records in (
                here.run(tasks),
                run_sorted_beforehand(here, tasks),
                merge_packed(here, tasks),
                run_by_neighbours(here, tasks, workers=2),
            ):
                assert facts(here, records) == facts(here, alone)


def test_a_worker_reads_a_block_once_for_all_its_tasks_and_its_disk_is_free_again_as_they_end(
    monkeypatch, tmp_path
):
    read, left = [], []
    real, real_run = ParquetBlockReader.rows, on_worker.run
    monkeypatch.setattr(
        ParquetBlockReader,
        "rows",
        lambda reader, groups: read.append(reader.path) or real(reader, groups),
    )

    def run_and_look(*given, **more):
        left.append(spilled_files(tmp_path))
        return real_run(*given, **more)

    with lake(COLUMNS, "k", block_rows=300) as here:
        for seed in range(6):
            here.unordered(rows(seed, 300))
        tasks = [replace(task, memory_bytes=100_000) for task in here.cut(tasks=6)]
        records = run_by_neighbours(
            here, tasks, workers=2, function=run_and_look, thresholds=sorting_one_block(here)
        )
        assert sorted(read) == sorted(2 * [item.block.path for item in here.splits])
        assert_merged(here, records)
    for mine in (left[:3], left[3:]):
        assert mine[0] > mine[1] > mine[2] > 0


def test_a_block_that_a_worker_cannot_sort_fails_all_its_tasks_and_one_task_only_itself():
    def failing(io, task, *more, **others):
        if task.number == 1:
            raise OSError("no such luck")
        return on_worker.run(io, task, *more, **others)

    with lake(COLUMNS, "k", block_rows=300) as here:
        for seed in range(3):
            lost = here.unordered(rows(seed, 300))
        tasks = here.cut(tasks=3)
        found = outcomes_of_neighbours(here, tasks, workers=1, function=failing)
        assert [isinstance(item, TaskFailure) for item in found] == [False, True, False]
        here.storage.delete([lost.block.path])
        found = outcomes_of_neighbours(here, tasks, workers=1)
        assert [item.error.details["name"] for item in found] == [lost.block.path] * 3


def test_rows_of_1_mb_and_lists_are_sorted_a_few_at_a_time(monkeypatch):
    most = []
    real = portions_module._in_order

    def in_order(rows, *more):
        most.append(sum(column.nbytes for column in rows._columns))
        return real(rows, *more)

    monkeypatch.setattr(portions_module, "_in_order", in_order)
    with lake("k: int64, s: string, l: list<int64>", "k", block_rows=6) as here:
        for seed in range(2):
            keys = [(seed + n * 7) % 11 for n in range(12)]
            texts = [chr(97 + n) * (1 << 20) for n in range(12)]
            here.unordered(pa.table({"k": keys, "s": texts, "l": [list(range(n * 50)) for n in range(12)]}))
        records = run_sorted_beforehand(here, here.cut(4, memory_bytes=96 << 20))
        assert_merged(here, records)
        assert max(most) <= 5 << 20, "3 MiB at once, by the rows' average"


def test_of_blocks_in_order_only_the_rows_that_are_taken_are_read(monkeypatch):
    read = []
    real = ParquetBlockReader.rows
    with lake(COLUMNS, "k", block_rows=100, row_group_rows=100) as here:
        for seed in range(3):
            here.add(rows(seed, 1_000, most=10_000))
        tasks = presorted(here.cut(tasks=5), {0, 1, 2})
        (sort,) = sort_tasks([tasks[2]])
        assert [(item.start, item.stop) for item in sort.splits] == [
            (item.start, item.stop) for item in tasks[2].splits
        ]
        assert [(item.task, item.start, item.stop) for item in sort.ranges] == [(2, 0, tasks[2].rows)]
        monkeypatch.setattr(
            ParquetBlockReader,
            "rows",
            lambda reader, groups: read.append(len(groups)) or real(reader, groups),
        )
        records = here.run([tasks[2]])
        assert sum(read) <= 3 * 4, "200 rows of 1,000, and the row groups at their ends"
        monkeypatch.undo()
        assert facts(here, records) == facts(
            here, here.run([replace(tasks[2], splits=here.cut(5)[2].splits)])
        )


@pytest.mark.parametrize("large", [False, True])
def test_presorted_text_of_few_values_stays_as_it_is_stored(monkeypatch, large):
    """Unless a piece would be full of its values, or a block does not store it as a dictionary."""
    kept = []
    real = presorter.sorted_portions

    def sorted_portions(*given):
        for taker, one in real(*given):
            kept.append(one)
            yield taker, one

    words = [f"word {n}" for n in range(60)]
    with lake("k: int64, s: string, t: string", "k", block_rows=1_000, row_group_rows=1_000) as here:
        for seed in range(4):
            chance = random.Random(seed)
            keys = [chance.randrange(500) for _ in range(1_000)]
            texts = [chance.choice(words) for _ in keys]
            others = [f"{seed} {n}" if seed == 3 else "one" for n in range(1_000)]
            here.unordered(pa.table({"k": keys, "s": texts, "t": others}))
        (task,) = here.cut()
        expected = facts(here, here.run([task]))
        monkeypatch.setattr(presorter, "sorted_portions", sorted_portions)
        thresholds = replace(sorting_one_block(here), dictionary_divisor=1 << 20 if large else 16)
        records = here.run([replace(task, memory_bytes=4_000_000)], thresholds=thresholds)
        assert facts(here, records) == expected
    types = [{name: pa.types.is_dictionary(portion.content[name].type) for name in "st"} for portion in kept]
    assert {one["s"] for one in types} == {not large}
    assert {one["t"] for one in types} == {False, not large}, "the last block's differ in each row"
    assert all(bool(portion.codable) == any(one.values()) for portion, one in zip(kept, types, strict=True))


# -- in this process ---------------------------------------------------------------------------------------------------


@pytest.fixture
def here():
    """1,800 rows in six blocks in another order, to be merged by six tasks."""
    with lake(COLUMNS, "k", block_rows=300) as found:
        for seed in range(6):
            found.unordered(rows(seed, 300))
        yield found


def run(here, tasks, *, thresholds=THRESHOLDS, **more):
    outcomes = []
    engine = LocalEngine(thresholds=thresholds, processors=lambda: 4)
    engine.run(here.io, tasks, more.pop("done", outcomes.append), title="a test", **more)
    return sorted(outcomes, key=lambda item: (item.group, item.number))


def test_each_block_is_read_once_for_all_tasks(here, monkeypatch):
    read = []
    real = ParquetBlockReader.rows

    def counted(reader, groups):
        read.append(reader.path)
        return real(reader, groups)

    tasks = here.cut(tasks=6)
    monkeypatch.setattr(ParquetBlockReader, "rows", counted)
    found = run(here, tasks)
    assert sorted(read) == sorted(item.block.path for item in here.splits)
    monkeypatch.undo()
    assert_merged(here, [record for item in found for record in item.records])
    assert sum(item.bytes_read for item in found) <= sum(item.block.size_bytes for item in here.splits)


def test_what_tasks_sort_together_leaves_the_disk_as_they_end(here, tmp_path):
    left = []
    tasks = [replace(task, memory_bytes=100_000) for task in here.cut(tasks=6)]
    run(here, tasks, done=lambda _: left.append(spilled_files(tmp_path)))
    assert left[0] > 0
    assert sorted(left, reverse=True) == left
    assert left[-1] == 0


def test_portions_in_memory_are_let_go_of_with_their_group(monkeypatch):
    """Eight groups of 1.6 MB are merged one after the other."""
    monkeypatch.setattr(LocalEngine, "parallelism", 0)  # one task at a time, and none to fill in
    held = []
    with lake(COLUMNS, "k", block_rows=2_000) as here:
        for seed in range(4):
            here.unordered(
                pa.table({"k": range(2_000, 0, -1), "n": range(2_000), "s": [f"{seed:0200d}"] * 2_000})
            )
        tasks = here.cut(tasks=4)
        before = pa.total_allocated_bytes()
        groups = [replace(task, group=group) for group in range(8) for task in tasks]
        run(here, groups, done=lambda _: held.append(pa.total_allocated_bytes() - before))
    assert len(held) == 32
    assert max(held[16:]) <= 2 * max(held[:4])


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_whatever_ends_sorting_ends_the_run(here, monkeypatch, error):
    def interrupted(*_):
        raise error

    monkeypatch.setattr(presorter, "sorted_portions", interrupted)
    with pytest.raises(error):
        run(here, here.cut(tasks=6))


def test_tasks_that_wait_for_sorted_rows_take_part_in_sorting(here, monkeypatch):
    """Four sort tasks. Each waits until a thread of another task has begun another one."""
    together = threading.Barrier(4, timeout=20)
    real = presorter.sorted_portions

    def slow(*given):
        together.wait()
        yield from real(*given)

    monkeypatch.setattr(presorter, "sorted_portions", slow)
    del here.splits[4:]
    found = run(here, here.cut(tasks=4), thresholds=sorting_one_block(here))
    assert [type(item) for item in found] == [TaskResult] * 4


def test_the_time_that_sorting_takes_is_that_of_the_tasks_that_do_it(here, monkeypatch):
    mine, passed = threading.local(), []
    real = presorter.sorted_portions

    def a_second_long(*given):
        mine.seconds = getattr(mine, "seconds", 0.0) + 1
        passed.append(1)
        yield from real(*given)

    still = Environment(elapsed=lambda: float(len(passed)), cpu=lambda: getattr(mine, "seconds", 0.0))
    monkeypatch.setattr(presorter, "sorted_portions", a_second_long)
    found = []
    engine = LocalEngine(thresholds=sorting_one_block(here), processors=lambda: 4)
    engine.run(replace(here.io, env=still), here.cut(tasks=6), found.append, title="a test")
    assert len(passed) > 1
    assert sum(item.cpu_seconds for item in found) == len(passed)
    assert sum(item.wall_seconds for item in found) >= len(passed)


def test_a_block_that_cannot_be_sorted_fails_its_group_alone(here):
    tasks = here.cut(tasks=6)
    lost = here.unordered(rows(9, 300))
    broken = [replace(task, group=8) for task in here.cut(tasks=6)]
    here.splits.pop()
    here.storage.delete([lost.block.path])
    here.io = pickle.loads(pickle.dumps(here.io))  # holds no open file of the lost block
    found = run(here, [*broken, *tasks])
    assert [type(item) for item in found] == [TaskResult] * 6 + [TaskFailure] * len(broken)
    for item in found[6:]:
        assert isinstance(item.error, CorruptTableError)
        assert item.error.details["name"] == lost.block.path
    assert here.stored() == {record.path for item in found[:6] for record in item.records}


def test_a_full_disk_fails_the_group_and_leaves_nothing(here, monkeypatch):
    tasks = [replace(task, memory_bytes=100_000) for task in here.cut(tasks=6)]
    real = pa.OSFile
    monkeypatch.setattr(pa, "OSFile", lambda path, mode: real("/dev/full" if mode == "wb" else path, mode))
    found = run(here, tasks)
    assert {type(item.error) for item in found} == {StorageError}
    assert all("No space left on device" in str(item.error) for item in found)
    assert here.stored() == set()


@pytest.mark.parametrize("memory_bytes", [LARGE_BYTES, 100_000])
def test_an_interrupt_while_blocks_are_sorted_or_merged_leaves_nothing(here, memory_bytes):
    tasks = [replace(task, memory_bytes=memory_bytes) for task in here.cut(tasks=6)]

    told = []

    def interrupted(item):
        told.append(item)
        raise KeyboardInterrupt

    for when in ("advance", "done"):
        with pytest.raises(KeyboardInterrupt):
            run(here, tasks, **{when: interrupted})
        reported = {record.path for item in told if isinstance(item, TaskResult) for record in item.records}
        assert here.stored() == reported, "what was reported is the caller's"
        here.storage.delete(list(reported))


def test_the_disk_is_free_again_before_the_next_group_is_done(here, tmp_path):
    tasks = [replace(task, memory_bytes=100_000) for task in here.cut(tasks=6)]
    seen = {}

    def done(item):
        seen.setdefault(item.group, []).append(len(list(tmp_path.iterdir())))

    run(here, [*tasks, *(replace(task, group=8) for task in tasks)], done=done)
    assert seen[7][0] > 0, "portions exceed the budget"
    assert seen[8][-1] == 0


@pytest.mark.parametrize("nth", [1, 4])
def test_a_write_that_fails_fails_its_task_alone(here, nth):
    faults = Faults()
    faults.fail(operation="write", name="data/", nth=nth)
    tasks = here.cut(tasks=6)
    with inject(faults):
        found = run(here, tasks)
    assert sorted(type(item).__name__ for item in found) == ["TaskFailure"] + ["TaskResult"] * 5
    assert here.stored() == {
        record.path for item in found if isinstance(item, TaskResult) for record in item.records
    }


# -- verified ----------------------------------------------------------------------------------------------------------


def test_rows_that_are_presorted_wrongly_are_noticed(here, monkeypatch):
    real = portions_module.sort_indices

    def wrong(keys, sort):
        order = real(keys, sort).to_numpy().copy()
        order[5] = order[6]
        return pa.array(order)

    tasks = here.cut(tasks=6)
    monkeypatch.setattr(portions_module, "sort_indices", wrong)
    with pytest.raises(VerificationError, match="group 7, sorting data/"):
        run_sorted_beforehand(here, tasks)
    assert here.stored() == set()


@pytest.mark.parametrize(
    "tamper",
    [
        lambda t: t.slice(1),
        lambda t: pa.concat_tables([t.slice(1), t]),
        lambda t: t.set_column(1, "n", pa.array([9] * t.num_rows)),
    ],
)
@pytest.mark.parametrize("kept", [(), (0,)], ids=["keys too", "rows alone"])
def test_portions_that_are_altered_on_their_way_are_noticed(here, monkeypatch, tamper, kept):
    tasks = [replace(task, memory_bytes=100_000) for task in here.cut(tasks=6)]
    real = Pieces.read
    monkeypatch.setattr(
        Pieces,
        "read",
        lambda pieces, piece: real(pieces, piece) if piece in kept else tamper(real(pieces, piece)),
    )
    with pytest.raises(
        Exception, match=r"values read and merged differ|has splits of|not in key order|nowhere|too early"
    ):
        run_sorted_beforehand(here, tasks)
    assert here.stored() == set()


# -- on Spark's workers ------------------------------------------------------------------------------------------------


def test_portions_beyond_the_budget_wait_on_the_workers_disk(here, tmp_path, monkeypatch):
    kept = []
    real = SpillFolder.keep
    monkeypatch.setattr(
        SpillFolder, "keep", lambda folder, pieces: kept.append(len(pieces)) or real(folder, pieces)
    )
    tasks = here.cut(tasks=6)
    assert_merged(here, merge_packed(here, tasks))
    assert kept == []
    assert_merged(here, merge_packed(here, [replace(task, memory_bytes=100_000) for task in tasks]))
    assert len(kept) > 6


def test_a_failure_on_the_way_is_that_of_the_merge_tasks(here, monkeypatch):
    tasks = [replace(task, memory_bytes=100_000) for task in here.cut(tasks=6)]
    real = pa.OSFile
    with monkeypatch.context() as patched:
        patched.setattr(pa, "OSFile", lambda path, mode: real("/dev/full" if mode == "wb" else path, mode))
        with pytest.raises(StorageError, match="No space left on device"):
            merge_packed(here, tasks)
    here.storage.delete([here.splits[3].block.path])
    with pytest.raises(CorruptTableError, match="is missing"):
        merge_packed(here, tasks)
    assert here.stored() == set()


def test_blocks_that_happen_to_be_in_key_order_are_streamed():
    """Nobody said so, such as of files that Spark sorted: whoever cuts reads all keys anyway."""
    with lake("k: int64", "k", block_rows=10) as here:
        here.unordered(pa.table({"k": [*range(0, 80, 2), 80, 80]}))
        here.unordered(pa.table({"k": [*range(50), 0]}))
        tasks = here.cut(2)
        assert len(tasks) == 2
        streamed = {item.place: item.is_streamed for task in tasks for item in task.splits}
        assert streamed == {0: True, 1: False}
        records = here.run(tasks)
        assert canonical(here.rows_of(records)) == canonical(here.expected())
        assert here.problems(records) == []


def test_a_single_task_streams_blocks_that_happen_to_be_in_key_order():
    with lake("k: int64, pad: string", "k", block_rows=10, row_group_rows=5) as here:
        pad = ["p" * 1_000] * 40
        here.unordered(pa.table({"k": range(0, 80, 2), "pad": pad}))
        here.unordered(pa.table({"k": [*range(39), 0], "pad": pad}))  # its first row group is in order
        (task,) = here.cut(1, memory_bytes=200_000)
        assert [item.is_streamed for item in task.splits] == [True, False]
        records = here.run([task])
        assert canonical(here.rows_of(records)) == canonical(here.expected())
        assert here.problems(records) == []


def test_blocks_that_do_not_begin_in_key_order_are_not_read_before_a_single_task(monkeypatch):
    with lake("k: int64, pad: string", "k", block_rows=10, row_group_rows=5) as here:
        for _ in range(2):
            here.unordered(pa.table({"k": [9, *range(39)], "pad": ["p" * 1_000] * 40}))
        read = []
        real = SplitKeys.read
        monkeypatch.setattr(SplitKeys, "read", lambda keys, place: read.append(place) or real(keys, place))
        (task,) = here.cut(1, memory_bytes=200_000)
        assert not task.is_streamed
        assert read == []
