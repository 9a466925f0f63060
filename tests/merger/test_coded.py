"""Text is merged as the dictionaries that it is stored with: the same files, byte for byte, as if it were decoded."""

from __future__ import annotations

import random
from unittest import mock

import pyarrow as pa
import pytest
from arrow_rows import canonical
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tblctl.merger import run
from tblctl.merger.verify import Fingerprint
from tblctl.tableformat.native import statistics
from tblctl.tableformat.native.block_file import BlockFile
from tblctl.tableformat.native.dictionaries import decoded_bytes

from .blocks import lake

MANY = settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
COLUMNS = "k: int64, s: string, b: binary, n: int64"
WORDS = ["AIR", "", "MAIL", "é", "z" * 40, None]


def decoded():
    """Return a context in which nothing is coded."""
    return mock.patch.object(BlockFile, "small_dictionaries", return_value={})


def rows(keys, words):
    chance = random.Random(len(keys))
    text = [chance.choice(words) for _ in keys]
    code = [None if word is None else word.encode() for word in text]
    columns = {"s": pa.array(text, pa.string()), "b": pa.array(code, pa.binary())}
    return pa.table({"k": keys, **columns, "n": range(len(keys))})


def written(here, tasks, **more):
    """Return what tasks wrote: the files, and their records without their names."""
    records = here.run(tasks, **more)
    figures = [(record.row_count, record.size_bytes, record.columns, record.level) for record in records]
    return [here.storage.read(record.path) for record in records], figures


def gathered(here, tasks):
    """Return the types of the columns of every window."""
    seen = []
    add = run._added

    def spy(table, groups):
        seen.append([str(kind) for kind in table.schema.types])
        return add(table, groups)

    with mock.patch.object(run, "_added", spy):
        here.run(tasks)
    return seen


@given(st.data())
@MANY
def test_coded_text_becomes_the_same_file_as_text(data):
    options = {"row_group_rows": data.draw(st.sampled_from([3, 10, 1_000])), "block_rows": 40}
    with lake(COLUMNS, data.draw(st.sampled_from(["k", "s, k", "b desc"])), **options) as here:
        for _ in range(data.draw(st.integers(1, 4))):
            keys = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=60))
            words = data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6))
            here.add(rows(keys, words))
        tasks = here.split(tasks=data.draw(st.integers(1, 3)))
        found = written(here, tasks, threads=data.draw(st.sampled_from([1, 2])))
        with decoded():
            assert written(here, tasks) == found
        records = here.run(tasks)
        assert canonical(here.rows_of(records)) == canonical(here.expected())
        assert here.problems(records) == []


def test_text_stays_coded_from_the_file_to_the_file():
    with lake(COLUMNS, "k") as here:
        for start in (0, 1):
            here.add(rows(range(start, 200, 2), WORDS[:3]))
        coded = ["dictionary<values=string, indices=int32, ordered=0>"]
        coded.append(coded[0].replace("string", "binary"))
        assert gathered(here, here.split()) == [["int64", *coded, "int64"]]
        with decoded():
            assert gathered(here, here.split()) == [["int64", "string", "binary", "int64"]]


def test_where_one_block_has_no_dictionary_the_others_are_decoded():
    with lake(COLUMNS, "k") as here:
        here.add(rows(range(0, 400, 2), WORDS[:3]))
        here.add(rows(range(1, 400, 2), [f"unique {n}" for n in range(100_000)]))
        assert gathered(here, here.split()) == [["int64", "string", "binary", "int64"]]
        records = here.run(here.split())
        assert canonical(here.rows_of(records)) == canonical(here.expected())


@pytest.mark.parametrize("first", ["coded", "plain"])
def test_windows_of_one_block_may_be_coded_and_not(first):
    """Small windows: of the first half of the keys all inputs have few words, of the second not."""
    coded, plain = rows(range(0, 400, 2), WORDS[:3]), rows(range(1, 400, 2), WORDS[:3])
    late = rows(range(1_000, 1_200), [f"unique {n}" for n in range(100_000)])
    if first == "plain":
        late = late.set_column(0, "k", pa.array(range(-1_000, -800)))
    with lake(COLUMNS, "k", row_group_rows=50) as here:
        for block in (coded, plain, late):
            here.add(block)
        (task,) = here.split(memory_bytes=1 << 19)
        nothing = mock.patch.object(run, "plan_copies", return_value=())
        with nothing, mock.patch.object(run, "_window_bytes", return_value=6_000):
            kinds = {tuple(types[1:3]) for types in gathered(here, [task])}
            assert len(kinds) == 2
            records = here.run([task])
        assert canonical(here.rows_of(records)) == canonical(here.expected())
        assert here.problems(records) == []


def test_a_block_of_an_older_schema_gives_its_text_as_the_new_one_has_it():
    with lake("k: int64, s: string", "k") as here:
        here.add(pa.table({"k": [1, 3], "s": ["a", "b"]}))
        here.set_schema(here.schema.rename_column("s", "t").widen_column("t", pa.large_string()))
        here.add(pa.table({"k": [2, 4], "t": ["c", "a"]}))
        assert canonical(here.rows_of(here.run(here.split()))) == canonical(here.expected())


def test_the_size_of_coded_text_is_that_of_the_text():
    for words in (WORDS, WORDS[:5]):
        plain = rows(range(1_000), words)
        coded = plain.set_column(1, "s", plain["s"].dictionary_encode())
        exact = decoded_bytes(plain, plain.schema)
        assert decoded_bytes(coded, plain.schema) == pytest.approx(exact, abs=130)
        half = coded.slice(0, 500)
        assert decoded_bytes(half, plain.schema) == pytest.approx(
            decoded_bytes(plain.slice(0, 500), plain.schema), abs=130
        )


def test_the_fingerprint_of_coded_text_is_that_of_the_text():
    for words in (WORDS, WORDS[:5], [None]):
        plain = rows(range(100), words)
        coded = pa.table({name: plain[name].dictionary_encode() for name in ("s", "b")})
        assert Fingerprint.of(coded) == Fingerprint.of(plain.select(["s", "b"]))
        spare = pa.chunked_array([coded["s"].chunk(0).slice(50)])
        assert Fingerprint.of(pa.table({"s": spare})) == Fingerprint.of(plain.select(["s"]).slice(50))


def test_bounds_of_long_coded_text_are_right():
    long = ["x" * (statistics._FOOTER_BYTES + extra) for extra in (1, 2)]
    with lake("k: int64, s: string", "k") as here:
        for start in (0, 1):
            here.add(pa.table({"k": range(start, 200, 2), "s": long * 50}))
        records = here.run(here.split())
        assert here.problems(records) == []
        assert canonical(here.rows_of(records)) == canonical(here.expected())


@pytest.mark.parametrize("memory_bytes", [1 << 17, 1 << 30])
def test_coded_text_may_wait_in_the_scratch_folder(memory_bytes):
    with lake(COLUMNS, "k", row_group_rows=100) as here:
        for start in range(40):
            here.add(rows(range(start, 40_000, 100), WORDS))
        records = here.run(here.split(memory_bytes=memory_bytes))
        assert canonical(here.rows_of(records)) == canonical(here.expected())
        assert here.problems(records) == []
