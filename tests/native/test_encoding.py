"""Columns whose values repeat get a Parquet dictionary, others do not; nested ones are found by their paths."""

from __future__ import annotations

import io
from decimal import Decimal

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tblctl
from tblctl.tableformat.native.log.names import block_path
from tblctl.tableformat.parquet.block_writer import BlockEncoder, PreparedRows
from tblctl.tableformat.parquet.encodings import NUMBERS, TEXT, choose_encodings
from tblctl.tableformat.parquet.footer import raw_group, read_footer
from tblctl.tableformat.parquet.thrift import read_struct

from ..merger.blocks import block_of, lake


def encodings(rows: pa.Table) -> dict[str, bool]:
    """Write `rows` as a block is; return for each Parquet column whether it has a dictionary."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, use_dictionary=choose_encodings(rows, rows.schema).dictionaries)
    group = pq.read_metadata(sink).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {column.path_in_schema: column.has_dictionary_page for column in columns}


def test_a_dictionary_is_built_where_values_repeat_and_not_where_most_differ():
    numbers = np.random.default_rng(1).permutation(50_000)
    rows = pa.table(
        {
            "key": numbers,
            "comment": [f"comment {number}" for number in numbers],
            "day": pa.array(numbers % 2_526, pa.int32()).cast(pa.date32()),
            "mode": pa.array(["AIR", "MAIL"] * 25_000),
            "empty": pa.nulls(50_000, pa.string()),
            "sparse": pa.array([None if number % 100 else int(number) for number in numbers]),
        }
    )
    assert [name for name, has in encodings(rows).items() if has] == ["day", "mode", "empty"]


def test_numbers_that_differ_are_written_as_differences_and_text_as_lengths_and_bytes():
    chance = np.random.default_rng(1)
    numbers = chance.permutation(50_000)
    rows = pa.table(
        {
            "key": numbers,
            "small": pa.array(numbers % 30_011, pa.int32()),
            "when": pa.array(numbers * 1_000_003, pa.timestamp("us")),
            "price": pa.array([Decimal(int(number)) for number in numbers], pa.decimal128(18, 0)),
            "wide": pa.array([Decimal(int(number)) for number in numbers], pa.decimal128(19, 0)),
            "share": numbers / 7,
            "hash": chance.integers(-(2**63), 2**63 - 1, 50_000),
            "hash32": pa.array(chance.integers(0, 2**32, 50_000), pa.uint32()),
            "text": [f"text {number}" for number in numbers],
            "bytes": pa.array([b"%d" % number for number in numbers], pa.large_binary()),
            "words": ["AIR", "MAIL"] * 25_000,
        }
    )
    numbers, text = "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY"
    assert choose_encodings(rows, rows.schema).named == {
        "key": numbers,
        "small": numbers,
        "when": numbers,
        "price": numbers,
        "text": text,
        "bytes": text,
    }


def test_numbers_that_repeat_are_written_as_differences_where_that_is_smaller():
    chance = np.random.default_rng(1)
    numbers = chance.integers(0, 10_000, 30_000)
    rows = pa.table(
        {
            "supplier": numbers,
            "price": pa.array([Decimal(int(number)) for number in numbers], pa.decimal128(15, 2)),
            "with nulls": pa.array(numbers, mask=numbers % 7 == 0),
            "far apart": (numbers % 3_000 + 1) * 987_654_321_987,
            "skewed, of many": np.minimum(chance.zipf(1.1, 30_000), 10**6),
            "skewed": np.minimum(chance.zipf(1.2, 30_000), 100_000),
            "few": numbers % 300,
            "days": pa.array(numbers % 5_000, pa.int32()).cast(pa.date32()),
        }
    )
    chosen = choose_encodings(rows, rows.schema)
    assert set(chosen.named) == {"supplier", "price", "with nulls", "days"}
    for name in rows.column_names:
        sizes = {}
        for encoding in (None, NUMBERS):
            sink = io.BytesIO()
            how = {"use_dictionary": False, "column_encoding": {name: encoding}} if encoding else {}
            pq.write_table(
                rows.select([name]), sink, compression="zstd", store_decimal_as_integer=True, **how
            )
            sizes[encoding] = sink.tell()
        if name != "few":  # that is not even tried
            assert (name in chosen.named) == (sizes[NUMBERS] < sizes[None]), (name, sizes)


def test_values_that_repeat_in_stretches_are_seen_as_repeating():
    rows = pa.table({"sorted": np.repeat(np.arange(500) / 7, 200)})
    assert encodings(rows) == {"sorted": True}


def test_nested_columns_and_arrow_dictionaries_keep_their_dictionaries():
    inner = pa.struct([("odd.name", pa.string()), ("numbers", pa.list_(pa.int64()))])
    value = {"odd.name": "x", "numbers": [1, 2]}
    rows = pa.table(
        {
            "struct": pa.array([value, None], inner),
            "large": pa.array([["a"], []], pa.large_list(pa.string())),
            "fixed": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
            "map": pa.array([[("k", [1])], []], pa.map_(pa.string(), pa.list_(pa.int32()))),
            "words": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    assert encodings(rows) == dict.fromkeys(
        [
            "struct.odd.name",
            "struct.numbers.list.element",
            "large.list.element",
            "fixed.list.element",
            "map.key_value.key",
            "map.key_value.value.list.element",
            "words",
        ],
        True,
    )


def test_one_row_and_no_rows_can_be_written():
    for count in (0, 1):
        rows = pa.table(
            {"a": pa.array(range(count), pa.int64()), "b": pa.array([None] * count, pa.float64())}
        )
        assert (
            pq.write_table(
                rows, io.BytesIO(), use_dictionary=choose_encodings(rows, rows.schema).dictionaries
            )
            is None
        )


def stored_encodings(path) -> dict[str, set[str]]:
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {column.path_in_schema: set(column.encodings) & {NUMBERS, TEXT} for column in columns}


def made_table(folder):
    numbers = np.random.default_rng(2).permutation(5_000)
    rows = pa.table(
        {
            "k": pa.array(np.sort(numbers), mask=numbers == 7),
            "price": pa.array([Decimal(int(number)) / 100 for number in numbers], pa.decimal128(12, 2)),
            "day": pa.array(numbers, pa.int32()).cast(pa.date32()),
            "text": [None if number % 10 == 0 else f"text {number}" for number in numbers],
            "mode": ["AIR", "MAIL"] * 2_500,
        }
    )
    table = tblctl.create(folder, rows.schema, cluster_by="k", options={"row_group_rows": 1_000})
    table.append(rows)
    (block,) = table.files()
    return rows, table, f"{folder}/{block.path}"


def test_other_engines_read_what_is_written_as_differences(tmp_path):
    rows, table, path = made_table(tmp_path)
    found = stored_encodings(path)
    assert found == {"k": {NUMBERS}, "price": {NUMBERS}, "day": {NUMBERS}, "text": {TEXT}, "mode": set()}
    expected = rows.sort_by("text").to_pydict()
    assert table.scan().to_arrow().sort_by("text").to_pydict() == expected
    by_duckdb = duckdb.read_parquet(path).to_arrow_table().sort_by("text")
    assert by_duckdb.cast(rows.schema).to_pydict() == expected
    by_polars = polars.read_parquet(path).to_arrow().cast(rows.schema)
    assert by_polars.sort_by("text").to_pydict() == expected


def test_rows_behind_a_copied_row_group_are_encoded_as_it_is(tmp_path):
    rows, table, _ = made_table(tmp_path)
    late = rows.slice(0, 300).set_column(0, "k", pa.array(range(4_700, 5_000)))
    table.append(late)
    outcome = table.recluster(policy="full", engine="local")
    assert outcome.groups[0].rows_copied > 0
    (block,) = table.files()
    footer = pq.read_metadata(f"{tmp_path}/{block.path}")
    for group in range(footer.num_row_groups):
        for place, expected in ((0, NUMBERS), (3, TEXT)):
            assert expected in footer.row_group(group).column(place).encodings


# -- pages ------------------------------------------------------------------------------------------------------------

KIB = 1 << 10
LARGE = [f"{number:03}" * 100 * KIB for number in range(40)]  # of 300 KiB


def page_bytes(data: bytes) -> list[int]:
    """Return the sizes of all data pages of a file, uncompressed."""
    footer = pq.read_metadata(pa.BufferReader(data))
    sizes = []
    for group in (footer.row_group(number) for number in range(footer.num_row_groups)):
        for chunk in (group.column(place) for place in range(group.num_columns)):
            start = chunk.data_page_offset
            stop = _start(chunk) + chunk.total_compressed_size
            while start < stop:
                header, size = read_struct(data[start:])
                sizes.append(header[2][1])
                start += size + header[3][1]
    return sizes


def _start(chunk) -> int:
    return min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)


@pytest.mark.parametrize(
    "values",
    [
        pa.array(LARGE),
        pa.array([text.encode() for text in LARGE], pa.large_binary()),
        pa.array([{"a": text} for text in LARGE]),
        pa.array([[text] * 2 for text in LARGE]),
    ],
)
def test_pages_of_large_values_hold_few_of_them(tmp_path, values):
    table = tblctl.create(tmp_path / "t", pa.schema([("k", pa.int64()), ("v", values.type)]), cluster_by="k")
    table.append(pa.table({"k": range(len(values)), "v": values}))
    (path,) = (tmp_path / "t" / "data").glob("*.parquet")
    assert max(page_bytes(path.read_bytes())) < 2 * 1024 * KIB
    assert table.scan().to_arrow().column("v").combine_chunks().equals(values)


def test_batches_of_values_depend_on_their_size_and_not_on_whether_text_is_coded():
    def batch(values) -> int:
        rows = pa.table({"k": range(len(values)), "v": values})
        schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
        return choose_encodings(rows, schema).batch_values

    assert batch(pa.array(["x" * 5 * KIB] * 10)) == 204
    assert batch(pa.array(["x" * 5 * KIB] + ["x"] * 1_000)) == 204
    assert batch(pa.array(["x" * 1_000] * 10)) == 256
    assert batch(pa.array(LARGE)) == 3
    assert batch(pa.array(["x" * (2 << 20)])) == 1
    words = pa.array(["x" * 5_000, None, "y"] * 10)
    assert batch(words) == batch(words.dictionary_encode())
    assert batch(pa.array([], pa.string())) == 256


def test_a_row_group_that_is_copied_first_decides_the_same_batches(tmp_path):
    table = tblctl.create(tmp_path / "t", "k: int64, v: string", cluster_by="k")
    table.append(pa.table({"k": range(len(LARGE)), "v": LARGE}))
    (path,) = (tmp_path / "t" / "data").glob("*.parquet")
    data = path.read_bytes()
    size = pq.read_metadata(path).serialized_size
    footer = read_footer(data[-8 - size : -8])
    group, _ = raw_group(footer, 0, lambda start, count: data[start : start + count])
    assert group.encodings().batch_values == 3


def test_choosing_encodings_copies_little_of_large_values():
    rows = pa.table({"v": [f"{number:04}" * 256 * KIB for number in range(64)]})  # 64 MiB
    assert most_held(lambda: choose_encodings(rows, rows.schema)) < rows.nbytes, (
        "a sample, and its distinct values"
    )


def test_writing_and_reading_large_values_takes_little_beside_them():
    rows = pa.table({"k": range(64), "v": [f"{number:04}" * 64 * KIB for number in range(64)]})  # 16 MiB
    with lake(rows.schema, "k") as here:
        window = PreparedRows.of(here.conformed(rows), [64], here.io.layout, here.sort)
        encoder = BlockEncoder(here.io.layout, here.sort)
        encoder.add(window)
        assert most_held(lambda: encoder.add(window)) < rows.nbytes / 2
        record = encoder.store(here.storage, block_path("0" * 32), level=0, run_id=None)
        with here.io.open(block_of(record)) as reader:
            assert most_held(lambda: [batch.num_rows for batch in reader.batches(0, 1)]) < rows.nbytes / 2


COUNTED = []
"""Pools that stay, since what was allocated from one is given back to it, whenever that is."""


def most_held(work) -> int:
    """Return the most bytes that Arrow held for some work in this thread."""
    usual = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(usual)
    COUNTED.append(counted)
    pa.set_memory_pool(counted)
    try:
        work()
    finally:
        pa.set_memory_pool(usual)
    return int(counted.max_memory())
