"""Rows are read little by little, within a budget; what cannot be is spilled; nothing stays open or on disk."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace

import pyarrow as pa
import pytest
from arrow_rows import canonical
from faults import Faults, inject

from tblctl.merger.presort.decide import Thresholds
from tblctl.merger.presort.spill import SpillFolder
from tblctl.merger.task.block_input import look_at
from tblctl.merger.task.inputs import open_streams
from tblctl.merger.task.merge import Hooks
from tblctl.tableformat.errors import CorruptTableError, StorageError
from tblctl.tableformat.model.block import ClusterStatistics
from tblctl.tableformat.parquet.block_reader import ParquetBlockReader
from tblctl.tableformat.parquet.opened import IdleBlocks
from tblctl.tableformat.parquet.reader import BlockFile

from .blocks import lake, merge_threads

COLUMNS = "k: int64, n: int64, s: string"
ROW_BYTES = 8 + 8 + 100 + 4


def rows(start, count, step=1):
    """Return `count` rows of 120 bytes, keys in no order."""
    keys = [start + (n * 7) % count * step for n in range(count)]
    return pa.table({"k": keys, "n": range(count), "s": [f"{n:0100d}" for n in range(count)]})


class Spy:
    """Records of inputs: rows of each piece read, pieces spilled, blocks open at once."""

    def __init__(self, monkeypatch, folder):
        self.whole, self.pieces, self.spilled = [], [], []
        self.open = self.most_open = self.opened = 0
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        for owner, name, replacement in (
            (ParquetBlockReader, "rows", self._rows),
            (ParquetBlockReader, "batches", self._batches),
            (SpillFolder, "write", self._write),
            (BlockFile, "__init__", self._init),
            (BlockFile, "__exit__", self._exit),
        ):
            setattr(self, f"_real{replacement.__name__}", getattr(owner, name))
            monkeypatch.setattr(owner, name, _function(replacement))

    def _rows(self, reader, groups):
        self.whole.append(sum(reader.group_rows[group] for group in groups))
        return self._real_rows(reader, groups)

    def _batches(self, reader, group, most_rows):
        for batch in self._real_batches(reader, group, most_rows):
            self.pieces.append(batch.num_rows)
            yield batch

    def _write(self, scratch, tables):
        found = self._real_write(scratch, tables)
        self.spilled.append(len(found))
        return found

    def _init(self, file, *given, **more):
        self._real_init(file, *given, **more)
        self.open += 1
        self.opened += 1
        self.most_open = max(self.most_open, self.open)

    def _exit(self, file, *given):
        self.open -= 1
        return self._real_exit(file, *given)


def _function(method):
    """Return what calls a method of the spy; in a class it is given the instance too."""

    def call(*given, **more):
        return method(*given, **more)

    return call


@pytest.fixture
def spy(monkeypatch, tmp_path):
    return Spy(monkeypatch, tmp_path)


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path):
    yield
    assert list(tmp_path.iterdir()) == []
    assert merge_threads() == []


def test_small_slices_are_read_whole_and_nothing_is_spilled(spy):
    with lake(COLUMNS, "k", row_group_rows=50) as here:
        here.add(rows(0, 200))
        here.unordered(rows(5, 100))
        expected = canonical(here.expected())
        spy.whole.clear()
        assert canonical(here.rows_of(here.run(here.cut()))) == expected
        assert (spy.whole[:2], spy.pieces) == ([100, 150], []), "the row group that nothing reaches is copied"
        assert (spy.spilled, spy.open) == ([], 0)


@pytest.mark.parametrize("threads", [1, 3])
def test_larger_slices_are_read_a_row_group_at_a_time_and_larger_groups_in_pieces(spy, threads):
    with lake(COLUMNS, "k", row_group_rows=1_000) as here:
        for start in range(2):
            here.add(rows(start, 4_000, 2))
        expected = canonical(here.expected())
        # The quarter for reading ahead is for two streams: 1,200 rows each, then 600, half of it for pages.
        (task,) = here.cut()
        for share, whole, pieces in ((1_200, [1_000] * 8, 0), (600, [], 300)):
            spy.whole.clear()
            records = here.run([replace(task, memory_bytes=share * ROW_BYTES * 2 * 4)], threads=threads)
            assert spy.whole == whole
            assert pieces * 0.9 <= max(spy.pieces, default=0) <= pieces
            assert spy.spilled == []
            assert spy.open == 0
            assert canonical(here.rows_of(records)) == expected


@pytest.mark.parametrize("threads", [1, 3])
def test_unordered_rows_that_exceed_the_budget_are_spilled_in_pieces(spy, threads, tmp_path):
    seen = []
    with lake(COLUMNS, "k", row_group_rows=500) as here:
        here.unordered(rows(0, 2_000))
        here.add(rows(3, 300))
        expected = canonical(here.expected())
        (task,) = here.cut()
        task = replace(task, memory_bytes=400_000)
        hooks = Hooks(advance=lambda _: seen.extend(tmp_path.glob("*/*")), cancelled=lambda: False)
        records = here.run([task], threads=threads, hooks=hooks)
        assert len(spy.spilled) == 5, "portions: a budget of 66,666 bytes sorts 500 rows at once"
        assert max(spy.pieces) <= 498, "not two row groups at once"
        assert seen, "they were on disk meanwhile"
        assert canonical(here.rows_of(records)) == expected
        assert spy.open == 0


@pytest.mark.parametrize("most", [2, 5])
def test_no_more_blocks_are_open_at_once_than_allowed(spy, most):
    with lake(COLUMNS, "k", row_group_rows=100) as here:
        for start in range(8):
            here.add(rows(start, 400, 8))
        expected = canonical(here.expected())
        (task,) = here.cut()
        task = replace(task, memory_bytes=45 * ROW_BYTES * 8 * 4 * 8)
        spy.most_open = 0
        records = here.run([task], thresholds=Thresholds(open_blocks=most))
        assert len(spy.spilled) == 8 - most
        assert most <= spy.most_open <= most + 1, "one more while it is spilled"
        assert canonical(here.rows_of(records)) == expected


def test_blocks_that_do_not_fit_the_budget_open_are_spilled(spy):
    with lake(COLUMNS, "k", row_group_rows=10) as here:  # footers of 100 row groups: 150 KB each
        for start in range(4):
            here.add(rows(start, 1_000, 4))
        expected = canonical(here.expected())
        (task,) = here.cut()
        records = here.run([replace(task, memory_bytes=400_000)])
        assert len(spy.spilled) == 4
        assert canonical(here.rows_of(records)) == expected


def test_only_row_groups_that_a_slice_touches_are_read(spy):
    with lake(COLUMNS, "k", row_group_rows=100, block_rows=250) as here:
        for start in (0, 1_000):
            here.add(rows(start, 1_000))
        tasks = here.cut(tasks=8)
        assert [(item.start, item.stop) for item in tasks[1].splits] == [(250, 500)]
        spy.whole.clear()
        here.run([tasks[1]])
        assert spy.whole == [100], "group 2 of 10; 3 and 4 are copied"


def test_a_block_that_lies_about_its_order_is_named_and_nothing_is_stored(spy):
    with lake(COLUMNS, "k") as here:
        here.add(rows(0, 20))
        liar = here.unordered(rows(0, 10), is_said_to_be_ordered=True)
        (task,) = here.cut()
        for threads in (1, 3):
            with pytest.raises(CorruptTableError, match=f"{liar.block.path} is not in the order") as caught:
                here.run([task], threads=threads)
            assert caught.value.details["name"] == liar.block.path
            assert (here.stored(), spy.open) == (set(), 0)


@pytest.mark.parametrize("end", ["min", "max"])
def test_a_block_with_other_keys_than_its_metadata_says_is_named(spy, end):
    with lake(COLUMNS, "k") as here:
        here.add(rows(0, 20))
        (task,) = here.cut()
        (item,) = task.splits
        true = {"min": (0,), "max": (19,)}
        cluster = ClusterStatistics(
            cluster_key_id=here.sort.id, exact=True, level=0, **(true | {end: (1_000,)})
        )
        lying = replace(item, block=replace(item.block, cluster=cluster))
        with pytest.raises(
            CorruptTableError, match=f"{item.block.path} (begins|ends) with the key"
        ) as caught:
            here.run([replace(task, splits=(lying,))])
        assert caught.value.details["name"] == item.block.path
        assert here.stored() == set()


def test_a_file_of_another_size_is_no_block(spy):
    with lake(COLUMNS, "k") as here:
        block = here.add(rows(0, 20)).block
        (task,) = here.cut()
        with pytest.raises(CorruptTableError, match=rf"block {block.path} has \d+ bytes, expected 1$"):
            here.run([replace(task, splits=(replace(task.splits[0], block=replace(block, size_bytes=1)),))])


def test_a_missing_block_is_named_and_nothing_is_stored(spy):
    with lake(COLUMNS, "k") as here:
        here.add(rows(0, 20))
        gone = here.add(rows(0, 10)).block.path
        (task,) = here.cut()
        here.storage.delete([gone])
        with pytest.raises(CorruptTableError, match="is missing") as caught:
            here.run([task], threads=2)
        assert caught.value.details["name"] == gone
        assert (here.stored(), spy.open) == (set(), 0)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("memory_bytes", [1 << 30, 1_000_000, 60_000])
def test_readers_and_the_disk_are_let_go_after_any_failure(spy, threads, memory_bytes):
    with lake(COLUMNS, "k", row_group_rows=100, block_rows=500) as here:
        for start in range(3):
            here.add(rows(start, 700, 3))
            here.unordered(rows(start, 300, 3))
        (task,) = here.cut()
        task = replace(task, memory_bytes=memory_bytes)
        for operation, nth in (("open", 2), ("open", 5), ("open", 6), ("write", 1), ("write", 3)):
            faults = Faults()
            faults.fail(operation=operation, name="data/", nth=nth, times=1_000)
            here.io = replace(here.io, idle=IdleBlocks())  # those that the last run left open count as opened
            with inject(faults), pytest.raises(StorageError, match="injected"):
                here.run([task], threads=threads)
            assert faults.fired
            assert here.stored() == set()
            assert spy.open == 0
            assert merge_threads() == []


@pytest.mark.parametrize("threads", [1, 3])
def test_a_damaged_page_is_named_while_other_blocks_stream(spy, threads):
    with lake(COLUMNS, "k", row_group_rows=100, compression="none") as here:
        for start in range(3):
            here.add(rows(start, 700, 3))
        path = here.splits[1].block.path
        data = bytearray(here.storage.read(path))
        place = data.index(f"{345:0100d}".encode())
        data[place : place + 9] = b"y" * 9
        here.storage.write(path, bytes(data))
        (task,) = here.cut()
        for memory_bytes in (1 << 30, 100_000):
            with pytest.raises(CorruptTableError) as caught:
                here.run([replace(task, memory_bytes=memory_bytes)], threads=threads)
            assert path in str(caught.value)
            assert (here.stored(), spy.open) == (set(), 0)


def test_closing_an_input_before_it_was_asked_opens_nothing(spy):
    with lake(COLUMNS, "k") as here, SpillFolder() as folder:
        here.add(rows(0, 20))
        _, item = look_at(here.io, here.splits[0], here.sort)
        opened = spy.opened
        (one,) = open_streams(here.io, [item], folder, budget_bytes=1, at_once=1)
        with contextlib.closing(one):
            assert one.rows == 20
        assert spy.opened == opened


def test_an_input_that_was_taken_whole_holds_nothing(spy):
    """Pairs of blocks that overlap follow each other, each larger than its share: at most two pairs are open."""
    with lake(COLUMNS, "k", block_rows=10_000, row_group_rows=100) as here:
        for start in range(0, 6_000, 300):
            for parity in range(2):
                here.add(rows(start + parity, 150, 2))
        (task,) = here.cut()
        spy.most_open = 0
        records = here.run([replace(task, memory_bytes=50 * ROW_BYTES * 2 * 4 * 8)], threads=2)
        assert canonical(here.rows_of(records)) == canonical(here.expected())
        assert 2 <= spy.most_open <= 5
