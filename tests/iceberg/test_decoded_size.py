"""How much memory rows of foreign files will take is known from their footers, however well they are compressed."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, StringType

from tblctl.tableformat.parquet.decoded_size import decoded_bytes

from .lake import Lake, fields
from .merging import numbered, opened
from .position_deletes import commit, data_file

ROWS = 20_000
COLUMNS: dict[str, Any] = {
    "repeated long": pa.array([7] * ROWS, pa.int64()),
    "random double": pa.array([(place * 7919 % 10_007) / 3 for place in range(ROWS)]),
    "int": pa.array(range(ROWS), pa.int32()),
    "boolean": pa.array([place % 3 == 0 for place in range(ROWS)]),
    "decimal": pa.array([Decimal(place % 9).scaleb(-2) for place in range(ROWS)], pa.decimal128(9, 2)),
    "repeated text": pa.array([f"a rather long text {place % 3}" for place in range(ROWS)]),
    "unique text": pa.array([f"text {place * 7919 % 100_003}" for place in range(ROWS)]),
    "mostly null": pa.array([f"text {place % 5}" if place % 50 == 0 else None for place in range(ROWS)]),
    "bytes": pa.array([bytes(16)] * ROWS, pa.binary(16)),
    "list": pa.array([[place % 4] * 5 for place in range(ROWS)]),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"write_statistics": False}], ids=str)
def test_memory_of_rows_is_estimated_by_the_values_of_a_footer(name: str, options: dict[str, Any]) -> None:
    rows = pa.table({"c": COLUMNS[name]})
    written = pa.BufferOutputStream()
    pq.write_table(rows, written, row_group_size=3_000, **options)
    found = decoded_bytes(pq.read_metadata(pa.BufferReader(written.getvalue())))
    guessed = name == "mostly null" and "write_statistics" in options  # its nulls are not known
    assert 0.5 * rows.nbytes < found < (5 if guessed else 1.5) * rows.nbytes, (found, rows.nbytes)


def test_a_reader_knows_the_memory_of_rows_that_compress_a_hundredfold(lake: Lake) -> None:
    table = lake.create("t", fields(id=LongType(), text=StringType()))
    rows = pa.table({"id": [5] * ROWS, "text": ["the same text in all of the rows"] * ROWS})
    file = data_file(table, numbered(rows, (1, 2)))
    assert file.file_size_in_bytes * 100 < rows.nbytes
    commit(table, [file])
    io, (block,) = opened(table)
    with io.open(block) as reader:
        (estimate,) = reader.group_bytes
    assert 0.9 * rows.nbytes < estimate < 1.1 * rows.nbytes
