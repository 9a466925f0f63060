"""Columns whose values repeat get a Parquet dictionary, others do not; nested ones are found by their paths."""

from __future__ import annotations

import io
from decimal import Decimal

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq

import tblctl
from tblctl.tableformat.native.encoding import NUMBERS, TEXT, choose_encodings


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
            "skewed": np.minimum(chance.zipf(1.2, 30_000), 100_000),
            "few": numbers % 300,
            "days": pa.array(np.sort(numbers), pa.int32()).cast(pa.date32()),
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
