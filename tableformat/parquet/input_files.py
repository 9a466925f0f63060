"""Read Parquet files of any writer: all rows in batches, or some from all over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.tableformat.parquet.dictionaries import plain_inside

_T = TypeVar("_T")
_BATCH_ROWS = 65_536
_SAMPLED = 64  # files, and row groups of each, that a sample is taken from


def batches_of(source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    """Yield all rows of an open file. Raises pyarrow's errors."""
    file = pq.ParquetFile(source)
    every = range(file.num_row_groups)
    # pyarrow 26 cannot read dictionaries inside other types from several row groups at once.
    is_plain = plain_inside(file.schema_arrow).equals(file.schema_arrow)
    for groups in [every] if is_plain else [[group] for group in every]:
        yield from file.iter_batches(batch_size=_BATCH_ROWS, row_groups=list(groups))


def skimmed(source: pa.NativeFile, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the existing ones of some columns, of rows of some row groups of an open file. Raises pyarrow's errors."""
    file = pq.ParquetFile(source)
    own = [name for name in columns if name in file.schema_arrow.names]
    for group in evenly(range(file.num_row_groups)):
        for batch in file.iter_batches(_BATCH_ROWS, [group], columns=own):
            yield pa.Table.from_batches([batch]).select(own)


def evenly(items: Sequence[_T]) -> list[_T]:
    """Return at most `_SAMPLED` of the items, evenly spread."""
    step = max(-(-len(items) // _SAMPLED), 1)
    return list(items[step // 2 :: step]) or list(items)
