"""Files that a task ends by what it has written: sizes near the target, cut where keys end, however many threads."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from arrow_rows import canonical
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.merger.task import merge, order
from tblctl.merger.task.copying import Copy
from tblctl.merger.task.file_ends import FileEnds
from tblctl.merger.task.file_sizes import FileSizes, Span, Weights
from tblctl.merger.task.merge import run_task
from tblctl.tableformat.native.block_io import NativeBlockIO

from .blocks import lake

# -- where files end, by what is known --------------------------------------------------------------------------------


def files_of(*, rows, target, guess, bytes_of):
    """Return the weights of each file's spans, if weight `a` to `b` takes `bytes_of(a, b)`, known two spans later."""
    sizes = FileSizes(weight=rows, target_bytes=target, guess=guess)
    files, place, waiting, ends = [[]], 0.0, [], False
    while not (ends and place >= rows - 1e-6):
        while len(waiting) > 1 or (waiting and sizes.must_know):
            sizes.wrote(bytes_of(*waiting.pop(0)))
        weight, ends = sizes.next()
        assert 0 <= weight <= rows - place + 1e-6
        sizes.took(Span(weight, ends))
        waiting.append((place, place + weight))
        files[-1].append(weight)
        place += weight
        if ends and place < rows - 1e-6:
            files.append([])
    return files


@given(
    files=st.floats(0.01, 30),
    wrong=st.floats(0.1, 4),
)
@settings(max_examples=cases(30), deadline=None)
def test_all_files_are_near_the_target(files, wrong):
    target = 1_000_000
    weight = files * target / 7
    found = files_of(
        rows=weight,
        target=target,
        guess=7 * wrong,
        bytes_of=lambda start, stop: round((stop - start) * 7),
    )
    sizes = [sum(spans) * 7 / target for spans in found]
    assert max(sizes) <= max(1.25, 1 / wrong / 8)
    assert len(found) <= max(1, round(1.2 * files + 0.9))


def test_the_guess_follows_what_compresses_worse():
    """The second half of the weight takes three times as much."""

    def bytes_of(start, stop):
        half = 500_000
        return round(10 * (min(stop, half) - min(start, half)) + 30 * (max(stop, half) - max(start, half)))

    found = files_of(rows=1_000_000, target=1_000_000, guess=50, bytes_of=bytes_of)
    ends = list(itertools.accumulate(sum(spans) for spans in found))
    sizes = [bytes_of(start, stop) for start, stop in itertools.pairwise([0, *ends])]
    assert min(sizes) > 750_000
    assert max(sizes) < 1_250_000


@pytest.mark.parametrize("guess", [0.5, 1, 4])
def test_a_span_is_a_quarter_of_a_file_by_the_worse_of_guess_and_finding(guess):
    sizes = FileSizes(weight=1_000_000, target_bytes=100_000, guess=guess)
    first = sizes.next()
    assert first == Span(100_000 / guess / 8, ends_file=False)
    sizes.took(first)
    assert sizes.must_know
    sizes.wrote(round(first.weight))  # a unit of weight takes one byte
    assert not sizes.must_know
    assert sizes.next() == Span(100_000 / max(guess, 1) / 4, ends_file=False)


def test_weights_are_those_of_rows_in_their_order():
    rng = np.random.default_rng(1)
    row_bytes = rng.integers(1, 1_000, 20_000).astype(np.float32)
    order = rng.permutation(20_000)
    weights = Weights(row_bytes, order)
    exact = np.concatenate([[0], np.cumsum(row_bytes[order].astype(np.float64))])
    for place in (0, 4_096, 8_192, 20_000):
        assert weights.before(place) == pytest.approx(exact[place])
        assert weights.place(exact[place]) == place
    for place in (1, 5_000, 19_999):
        assert weights.before(place) == pytest.approx(exact[place], abs=20_000)


# -- places -----------------------------------------------------------------------------------------------------------


def ends_of(keys, copies=(), least=1):
    table = pa.table({"0": keys})
    return FileEnds(
        table,
        np.argsort(keys, kind="stable"),
        [Copy(input=0, block=None, groups=(0,), start=start, stop=stop) for start, stop in copies],
        least=least,
    )


def test_files_end_where_the_nearest_key_does():
    ends = ends_of([place // 10 for place in range(1_000)])
    assert ends.nearest(504, file_rows=500, after=0) == 500
    assert ends.nearest(507, file_rows=500, after=0) == 510
    assert ends.nearest(504, file_rows=20, after=0) == 504, "none within 5 %"
    assert ends.nearest(504, file_rows=500, after=500) == 510
    assert ends.nearest(996, file_rows=500, after=0) == 1_000
    assert ends.nearest(1_000, file_rows=500, after=0) == 1_000


def test_files_do_not_end_inside_copies():
    ends = ends_of(list(range(100)), [(10, 20), (20, 30), (50, 90)])
    assert [ends.outside_copies(place, 0) for place in (5, 10, 14, 15, 16, 20, 50, 60, 80, 90)] == (
        [5, 10, 10, 10, 20, 20, 50, 50, 90, 90]
    )
    assert ends.outside_copies(14, 10) == 20
    assert ends.nearest(27, file_rows=200, after=0) == 30
    assert ends.nearest(22, file_rows=200, after=0) == 20
    assert ends.nearest(60, file_rows=20, after=0) == 50, "no end of a key near by"


def test_no_small_row_group_is_left_beside_a_copy():
    ends = ends_of(list(range(100)), [(10, 20), (40, 50), (80, 90)], least=8)
    assert [ends.outside_copies(place, 10) for place in (21, 23, 26, 27, 30, 33, 38)] == [
        20,
        20,
        28,
        28,
        30,
        32,
        40,
    ]
    assert [ends.nearest(place, file_rows=200, after=10) for place in (21, 26, 30, 38)] == [20, 28, 30, 40]
    assert ends.outside_copies(22, 20) == 28
    assert ends.outside_copies(34, 28) == 40, "one more of 8 rows does not fit"
    assert ends.outside_copies(93, 90) == 100
    ends = ends_of([0] * 100, [(10, 20), (40, 50)], least=8)
    assert ends.nearest(26, file_rows=200, after=10) == 28


@given(st.data())
@settings(max_examples=cases(25), deadline=None)
def test_ends_of_keys_are_found_whatever_the_chunks(data):
    keys = sorted(data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=60)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tblctl.merger.task.file_ends._AT_ONCE", data.draw(st.integers(1, 20)))
        ends = ends_of(keys)
    wanted = data.draw(st.integers(1, len(keys)))
    found = ends.nearest(wanted, file_rows=10_000, after=0)
    places = [place for place in range(1, len(keys)) if keys[place] != keys[place - 1]] + [len(keys)]
    best = min(abs(place - wanted) for place in places)
    assert found == wanted == len(keys) or abs(found - wanted) == best


# -- merges -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sized(NativeBlockIO):
    """Blocks that have a size on storage."""

    target: int = 20_000

    @property
    def file_bytes(self):
        return self.target


def sized(here, target):
    io = here.io
    here.io = Sized(storage=io.storage, env=io.env, layout=io.layout, column_ids=io.column_ids, target=target)


def overlapping(rng, *, blocks, rows, keys):
    for _ in range(blocks):
        yield pa.table(
            {
                "k": sorted(rng.choices(range(keys), k=rows)),
                "n": [rng.randrange(1 << 60) for _ in range(rows)],
            }
        )


@given(
    seed=st.integers(0, 1 << 30),
    keys=st.sampled_from([3, 200, 1 << 40]),
    group_rows=st.sampled_from([50, 300, 5_000]),
    target=st.sampled_from([3_000, 12_000, 40_000, 1 << 30]),
    tasks=st.integers(1, 3),
)
@settings(max_examples=cases(10), suppress_health_check=list(HealthCheck), deadline=None)
def test_rows_are_those_of_a_sort_and_files_do_not_depend_on_threads(seed, keys, group_rows, target, tasks):
    with lake("k: int64, n: int64", "k", row_group_rows=group_rows) as here:
        for rows in overlapping(random.Random(seed), blocks=4, rows=700, keys=keys):
            here.add(rows)
        sized(here, target)
        cut = here.cut(tasks)
        records = here.run(cut)
        assert canonical(here.rows_of(records)) == canonical(here.expected())
        assert here.problems(records) == []
        for threads in (2, 4):
            others = here.run(cut, threads=threads)
            assert [record.row_count for record in others] == [record.row_count for record in records]
        copies = pytest.MonkeyPatch()
        with copies.context() as patch:
            patch.setattr(order, "plan_copies", lambda *_, **__: ())
            assert canonical(here.rows_of(here.run(cut))) == canonical(here.expected())


@pytest.mark.parametrize("guess", [0.2, 1, 5])
def test_files_have_their_size_however_wrong_the_guess_is(guess, monkeypatch):
    """What the manifest says of the inputs is off by a factor."""
    with lake("k: int64, n: int64", "k", row_group_rows=100) as here:
        for rows in overlapping(random.Random(1), blocks=8, rows=4_000, keys=1 << 40):
            here.add(rows)
        sized(here, 60_000)
        (task,) = here.cut()
        monkeypatch.setattr(
            merge,
            "FileSizes",
            lambda **known: FileSizes(**{**known, "guess": known["guess"] * guess}),
        )
        records = here.run([task])
        sizes = [record.size_bytes / 60_000 for record in records]
        assert len(sizes) > 4
        assert min(sizes) > 0.8
        assert max(sizes) < 1.2
        ends = [(record.key_min[0].as_py(), record.key_max[0].as_py()) for record in records]
        assert all(before[1] < after[0] for before, after in itertools.pairwise(ends))


def test_row_groups_are_copied_into_several_files():
    with lake("k: int64, n: int64", "k", row_group_rows=100) as here:
        rng = random.Random(2)
        for start in (0, 1 << 40):
            here.add(
                pa.table(
                    {
                        "k": [start + place for place in range(4_000)],
                        "n": [rng.randrange(1 << 60) for _ in range(4_000)],
                    }
                )
            )
        (size, _) = [item.block.size_bytes for item in here.splits]
        sized(here, size // 3)
        (task,) = here.cut()
        result = run_task(here.io, task)
        assert result.rows_copied == 8_000
        pages = [
            sum(column.compressed_bytes for column in record.columns.values()) for record in result.records
        ]
        assert len(pages) > 4
        assert max(pages) < 1.3 * size // 3
        assert canonical(here.rows_of(result.records)) == canonical(here.expected())
        assert here.problems(result.records) == []


def test_row_groups_that_are_large_for_a_file_are_not_copied():
    """The target was lowered: files get the new size all the same."""
    with lake("k: int64, n: int64", "k", row_group_rows=1_000) as here:
        rng = random.Random(3)
        rows = {"k": list(range(10_000)), "n": [rng.randrange(1 << 60) for _ in range(10_000)]}
        here.add(pa.table(rows))
        here.add(pa.table({"k": [7], "n": [7]}))
        sized(here, here.splits[0].block.size_bytes // 5)
        here.set_options(row_group_rows=1_000)
        (task,) = here.cut()
        result = run_task(here.io, task)
        assert result.rows_copied == 0
        sizes = [record.row_count for record in result.records]
        assert len(sizes) == 5
        assert min(sizes) > 1_600
        assert canonical(here.rows_of(result.records)) == canonical(here.expected())


def test_large_rows_after_small_ones_make_no_large_file():
    """The guess comes from all rows together."""
    with lake("k: int64, s: string", "k", row_group_rows=2_000) as here:
        rng = random.Random(4)
        for part in range(2):
            here.add(
                pa.table(
                    {
                        "k": [2 * place + part for place in range(22_000)],
                        "s": [rng.randbytes(1 if place < 20_000 else 400).hex() for place in range(22_000)],
                    }
                )
            )
        target = sum(item.block.size_bytes for item in here.splits) // 8
        sized(here, target)
        (task,) = here.cut()
        records = here.run([task])
        sizes = [record.size_bytes / target for record in records]
        assert len(sizes) > 4
        assert max(sizes) < 2.5
        assert canonical(here.rows_of(records)) == canonical(here.expected())
