"""Columns whose values repeat get a Parquet dictionary, others do not; nested ones are found by their paths."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.tableformat.native.encoding import dictionary_paths


def encodings(rows: pa.Table) -> dict[str, bool]:
    """Write `rows` as a block is; return for each Parquet column whether it has a dictionary."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, use_dictionary=dictionary_paths(rows))
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


def test_values_that_repeat_in_stretches_are_seen_as_repeating():
    rows = pa.table({"sorted": np.repeat(np.arange(500), 200)})
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
        assert pq.write_table(rows, io.BytesIO(), use_dictionary=dictionary_paths(rows)) is None
