"""Windows and sorts count bytes, not rows: of rows of many columns, of large values, of lists of any length."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from arrow_rows import canonical

from tblctl.merger.presort import portions
from tblctl.merger.presort.decide import THRESHOLDS
from tblctl.merger.task.merge import window_bytes
from tblctl.tableformat.parquet.block_builder import ParquetBlockBuilder

from .blocks import lake

MEMORY_BYTES = 4 << 20
ROWS = 90


def wide(chance):
    return {f"c{number}": pa.array([chance.randrange(1 << 40) for _ in range(ROWS)]) for number in range(300)}


def large_texts(chance):
    return {"s": pa.array([chr(97 + chance.randrange(26)) * 40_000 for _ in range(ROWS)])}


def lists(chance):
    rows = [[{"a": n, "b": [1.0] * (n % 3)} for n in range(chance.randrange(600))] for _ in range(ROWS)]
    return {"l": pa.array(rows, pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))])))}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("shape", [wide, large_texts, lists])
def test_windows_and_sorts_of_any_shape_stay_within_their_bytes(monkeypatch, shape, ordered):
    chance = random.Random(11)
    rows = [pa.table({"k": [chance.randrange(50) for _ in range(ROWS)], **shape(chance)}) for _ in range(3)]
    gathered, sorted_ = [], []
    real_adding, real_in_order = ParquetBlockBuilder.adding, portions._in_order

    def adding(builder, rows, groups):
        gathered.append(rows.nbytes)
        return real_adding(builder, rows, groups)

    def in_order(rows, *more):
        sorted_.append(sum(column.nbytes for column in rows._columns))
        return real_in_order(rows, *more)

    with lake(rows[0].schema, "k", row_group_rows=30) as here:
        for table in rows:
            (here.add if ordered else here.unordered)(table)
        (task,) = here.cut(memory_bytes=MEMORY_BYTES)
        monkeypatch.setattr(ParquetBlockBuilder, "adding", adding)
        monkeypatch.setattr(portions, "_in_order", in_order)
        records = here.run([task], threads=2)
        largest = max(table.nbytes / table.num_rows for table in rows)
        assert len(gathered) > 1
        assert max(gathered) <= 1.6 * window_bytes(MEMORY_BYTES), (
            "rows differ in size, and their mean is known"
        )
        assert bool(sorted_) != ordered
        assert max(sorted_, default=0) <= 1.6 * max(MEMORY_BYTES / THRESHOLDS.sort_divisor, largest)
        assert canonical(here.rows_of(records)) == canonical(here.expected())
