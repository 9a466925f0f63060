"""Text is merged as the dictionaries that it is stored with: the same files, byte for byte, as if it were decoded."""

from __future__ import annotations

import base64
import random
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_rows import canonical
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.merger.task.row_ranges import own
from tblctl.merger.task.verify import Fingerprint
from tblctl.tableformat.parquet import dictionaries, statistics
from tblctl.tableformat.parquet.block_builder import ParquetBlockBuilder
from tblctl.tableformat.parquet.dictionaries import decoded_bytes
from tblctl.tableformat.parquet.reader import BlockFile

from .blocks import lake

MANY = settings(max_examples=cases(12), suppress_health_check=list(HealthCheck), deadline=None)
COLUMNS = "k: int64, s: string, b: binary, n: int64"
WORDS = ["AIR", "", "MAIL", "é", "z" * 40, None]


def decoded():
    """Return a context in which nothing is coded."""
    return mock.patch.object(BlockFile, "codable", frozenset())


def rows(keys, words):
    chance = random.Random(len(keys))
    text = [chance.choice(words) for _ in keys]
    code = [None if word is None else word.encode() for word in text]
    columns = {"s": pa.array(text, pa.string()), "b": pa.array(code, pa.binary())}
    return pa.table({"k": keys, **columns, "n": range(len(keys))})


def written(here, tasks, **more):
    """Return what tasks wrote: the files, and their records without their names."""
    records = here.run(tasks, **more)
    figures = [
        (record.row_count, record.size_bytes, record.decoded_bytes, record.columns, record.level)
        for record in records
    ]
    return [here.storage.read(record.path) for record in records], figures


def gathered(here, tasks):
    """Return the types of the columns of every window."""
    seen = []
    adding = ParquetBlockBuilder.adding

    def spy(builder, table, groups):
        seen.append([str(kind) for kind in table.schema.types])
        return adding(builder, table, groups)

    with mock.patch.object(ParquetBlockBuilder, "adding", spy):
        here.run(tasks)
    return seen


@given(st.data())
@MANY
def test_coded_text_becomes_the_same_file_as_text(data):
    options = {
        "row_group_rows": data.draw(st.sampled_from([20, 50, 1_000])),
        "block_rows": data.draw(st.sampled_from([60, 1_000])),
        "block_bytes": data.draw(st.sampled_from([1_500, 1 << 20])),
    }
    first_rows = mock.patch.object(dictionaries, "MANY_ROWS", data.draw(st.sampled_from([2, 4_096])))
    with first_rows, lake(COLUMNS, data.draw(st.sampled_from(["k", "s, k", "b desc"])), **options) as here:
        for _ in range(data.draw(st.integers(1, 4))):
            begin = data.draw(st.sampled_from([0, 0, 1_000]))  # some row groups are copied
            keys = range(begin, begin + data.draw(st.integers(1, 150)))
            words = data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6))
            here.add(rows(keys, words))
        tasks = here.cut(tasks=data.draw(st.integers(1, 3)))
        most = data.draw(st.sampled_from([5_000, 1 << 30]))
        found = written(here, tasks, threads=data.draw(st.sampled_from([1, 2])), most_window_bytes=most)
        with decoded():
            assert written(here, tasks, most_window_bytes=most) == found
        records = here.run(tasks)
        assert canonical(here.rows_of(records)) == canonical(here.expected())
        assert here.problems(records) == []


def test_the_files_do_not_depend_on_windows_of_whole_row_groups():
    """The first row group decides a block's encodings, and every window has one."""
    with lake("k: int64, s: string, n: int64", "k", row_group_rows=100) as here:
        for start in (0, 1):
            keys = range(start, 2_000, 2)
            here.add(
                pa.table(
                    {
                        "k": keys,
                        "s": [f"text {key if key < 200 else key % 3}" for key in keys],
                        "n": [key if key < 200 else key % 3 for key in keys],
                    }
                )
            )
        tasks = here.cut()
        sizes = (4_000, 20_000, 1 << 30)
        found = [written(here, tasks, most_window_bytes=most)[0] for most in sizes]
        assert found[0] == found[1] == found[2]


def test_text_stays_coded_from_the_file_to_the_file():
    with lake(COLUMNS, "k") as here:
        for start in (0, 1):
            here.add(rows(range(start, 200, 2), WORDS[:3]))
        coded = ["dictionary<values=string, indices=int32, ordered=0>"]
        coded.append(coded[0].replace("string", "binary"))
        assert gathered(here, here.cut()) == [["int64", *coded, "int64"]]
        with decoded():
            assert gathered(here, here.cut()) == [["int64", "string", "binary", "int64"]]


def test_where_one_block_has_no_dictionary_the_others_are_decoded():
    with lake(COLUMNS, "k") as here:
        here.add(rows(range(0, 400, 2), WORDS[:3]))
        here.add(rows(range(1, 400, 2), [f"unique {n}" for n in range(100_000)]))
        assert gathered(here, here.cut()) == [["int64", "string", "binary", "int64"]]
        records = here.run(here.cut())
        assert canonical(here.rows_of(records)) == canonical(here.expected())


def test_coded_rows_behind_a_copied_row_group_are_decoded():
    with lake(COLUMNS, "k", row_group_rows=50) as here:
        here.add(rows(range(100), WORDS[:3]))
        for start in (100, 101):
            here.add(rows(range(start, 300, 2), WORDS[:3]))
        assert len(gathered(here, here.cut())) == 1
        found = written(here, here.cut())
        with decoded():
            assert written(here, here.cut()) == found
        records = here.run(here.cut())
        assert canonical(here.rows_of(records)) == canonical(here.expected())


def test_a_few_rows_do_not_hold_the_words_of_all_the_others():
    words = pa.array([f"word {n}" for n in range(100)]).dictionary_encode()
    few = own(pa.table({"s": words, "n": range(100)}), 10, 13)
    assert few["s"].to_pylist() == ["word 10", "word 11", "word 12"]
    assert [len(chunk.dictionary) for chunk in few["s"].chunks] == [3]


def test_a_file_has_the_ids_of_its_own_schema_though_another_one_equals_it():
    found = []
    for again in (False, True):
        with lake("k: int64, n: int64", "k") as here:
            if again:
                here.set_schema(here.schema.drop_column("n").add_column("n", pa.int64()))
            here.add(pa.table({"k": [1], "n": [2]}))
            (record,) = here.run(here.cut())
            footer = pq.read_metadata(pa.BufferReader(here.storage.read(record.path)))
            stored = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(footer.metadata[b"ARROW:schema"])))
            found.append([int(item.metadata[b"PARQUET:field_id"]) for item in stored])
    assert found == [[1, 2], [1, 3]]


def test_a_block_of_an_older_schema_gives_its_text_as_the_new_one_has_it():
    with lake("k: int64, s: string", "k") as here:
        here.add(pa.table({"k": [1, 3], "s": ["a", "b"]}))
        here.set_schema(here.schema.rename_column("s", "t").widen_column("t", pa.large_string()))
        here.add(pa.table({"k": [2, 4], "t": ["c", "a"]}))
        assert canonical(here.rows_of(here.run(here.cut()))) == canonical(here.expected())


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
    long = ["x" * (statistics.FOOTER_BYTES + extra) for extra in (1, 2)]
    with lake("k: int64, s: string", "k") as here:
        for start in (0, 1):
            here.add(pa.table({"k": range(start, 200, 2), "s": long * 50}))
        records = here.run(here.cut())
        assert here.problems(records) == []
        assert canonical(here.rows_of(records)) == canonical(here.expected())


@pytest.mark.parametrize("memory_bytes", [1 << 17, 1 << 30])
def test_coded_text_may_wait_in_the_scratch_folder(memory_bytes):
    with lake(COLUMNS, "k", row_group_rows=100) as here:
        for start in range(40):
            here.add(rows(range(start, 40_000, 100), WORDS))
        records = here.run(here.cut(memory_bytes=memory_bytes))
        assert canonical(here.rows_of(records)) == canonical(here.expected())
        assert here.problems(records) == []
