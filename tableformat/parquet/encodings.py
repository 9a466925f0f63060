"""Decide how the columns of a block are encoded: with a Parquet dictionary, as differences, or plain.

A dictionary pays off if values repeat. If most differ (keys, prices, comments), it is built and hashed for nothing: at
1 MiB the writer drops it, or it stays and is larger than the values. Whole numbers are then written as differences in
as few bits as they need: on lineitem that halves the time of writing and reading against plain numbers, and takes 4 to
24 % fewer bytes. Text is written as lengths, then bytes: 7 to 11 % fewer bytes in the same time
(benchmarks/results/encode.txt). Whole numbers with some thousand distinct values may still be smaller as differences,
and these take half the time. So both are tried on a part of the first row group.

The cost is a sample: on lineitem's blocks of 100,000 rows it takes 3 ms of processor time. Choosing dictionaries saves
14 of 62 ms and 17 % of the file, and reading is as fast or faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pat

from tblctl.tableformat.model.schema.types import child_fields, is_any_binary, is_any_string, is_small_decimal
from tblctl.tableformat.parquet.dictionaries import value_bytes

SAMPLE_ROWS = 4_096
SAMPLE_BYTES = 16 << 20
"""A sample of large values has fewer rows, because the sample and its distinct values are copied."""

DISTINCT_SHARE = 0.8
"""A column with a larger share of distinct values in the sample, about 9,000 in all, gets no dictionary.

Measured on lineitem: l_partkey (0.99) and l_comment (0.97) get smaller and faster without one. For l_suppkey (10,000
values, 0.82) it makes no difference.
"""

MAY_BE_DIFFERENCES = 0.5
"""Whole numbers with a larger distinct share than this, about 2,500 values, may be smaller as differences: both are
tried."""

TRIED_ROWS = 16_384
"""Rows of the first row group to try. More take too long, fewer make dictionaries look larger than they are."""

NUMBERS, TEXT = "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY"
"""Parquet's names of encodings."""

_WIDE_BITS, _RANDOM_BITS = 32, 4
"""Integers that use all but this many bits of a wide type, such as hashes, stay plain: differences take longer."""

_MOST_BATCH, _PAGE_BYTES = 256, 1 << 20
"""Parquet's writers check after each batch of values whether a page is full, at 1 MiB. 1,024 values (pyarrow's default)
of 1 MB would be one page of 1 GB. That takes 4 GB to write, and 2 GB to read a single row of it. Batches of 256 take no
longer than of 1,024, and batches of 64 take 3 % longer. Large values may also begin after the row group that decides.
"""


@dataclass(frozen=True, kw_only=True)
class Encodings:
    """How columns are encoded, by their paths in the file: with a dictionary, by a named encoding, or else plain.

    `batch_values`: number of values between two checks whether a page is full.
    """

    dictionaries: Sequence[str]
    named: Mapping[str, str]
    batch_values: int = _MOST_BATCH


def choose_encodings(rows: pa.Table, schema: pa.Schema, *, differences: bool = True) -> Encodings:
    """Return how to encode the Parquet columns of a block of `schema` whose first row group is `rows`.

    Nested columns and Arrow dictionaries always get a dictionary. Text may be coded. Without `differences`, columns
    have dictionaries or are plain.
    """
    dictionaries: list[str] = []
    named: dict[str, str] = {}
    doubtful: dict[str, pa.ChunkedArray] = {}
    sizes = [value_bytes(column) for column in rows.columns]
    for item, column, size_bytes in zip(schema, rows.columns, sizes, strict=True):
        sample = _sampled(column, size_bytes).cast(item.type) if _is_sampled(item.type) else None
        share = 0.0 if sample is None else _distinct_share(sample)
        may_differ = sample is not None and share > MAY_BE_DIFFERENCES
        is_number = may_differ and _is_whole(item.type) and not _is_random(sample)
        if differences and is_number and share <= DISTINCT_SHARE:
            doubtful[item.name] = column
        elif share <= DISTINCT_SHARE:
            dictionaries.extend(_paths(item.name, item.type))
        elif not differences:
            continue
        elif is_any_string(item.type) or is_any_binary(item.type):
            named[item.name] = TEXT
        elif is_number:
            named[item.name] = NUMBERS
    for name, is_smaller in _smaller_as_differences(doubtful).items():
        if is_smaller:
            named[name] = NUMBERS
        else:
            dictionaries.append(name)
    return Encodings(dictionaries=dictionaries, named=named, batch_values=batch_values(max(sizes, default=0)))


def batch_values(size_bytes: float) -> int:
    """Return how many values a writer takes at once, if the largest known value has `size_bytes`."""
    return max(1, min(_MOST_BATCH, int(_PAGE_BYTES / max(size_bytes, 1))))


def _sampled(column: pa.ChunkedArray, size_bytes: int) -> pa.ChunkedArray:
    """Return values at even distances; the largest have `size_bytes`."""
    rows = max(1, min(SAMPLE_ROWS, int(SAMPLE_BYTES / max(size_bytes, 1))))
    return column.take(pa.array(np.arange(0, len(column), max(1, len(column) // rows))))


def _is_sampled(kind: pa.DataType) -> bool:
    return bool(
        pat.is_integer(kind)
        or pat.is_float32(kind)
        or pat.is_float64(kind)
        or pat.is_temporal(kind)
        or pat.is_decimal128(kind)
        or pat.is_string(kind)
        or pat.is_large_string(kind)
        or pat.is_binary(kind)
        or pat.is_large_binary(kind)
    )


def _distinct_share(sample: pa.ChunkedArray) -> float:
    distinct: int = pc.count_distinct(sample, mode="only_valid").as_py()
    return float(distinct / max(len(sample) - sample.null_count, 1))


def _smaller_as_differences(columns: Mapping[str, pa.ChunkedArray]) -> dict[str, bool]:
    """Return for columns of whole numbers whether they are smaller as differences than with dictionaries."""
    if not columns:
        return {}
    names = [str(place) for place in range(len(columns))]
    rows = pa.table(list(columns.values()), names).slice(0, TRIED_ROWS)
    sizes = [
        _encoded_bytes(rows, use_dictionary=False, column_encoding=dict.fromkeys(names, NUMBERS)),
        _encoded_bytes(rows, use_dictionary=True),
    ]
    return {name: one < other for name, one, other in zip(columns, *sizes, strict=True)}


def _encoded_bytes(rows: pa.Table, **how: Any) -> list[int]:
    """Return the bytes of each column in a row group, compressed with zstd whatever the table's codec is."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        row_group_size=rows.num_rows,
        compression="zstd",
        compression_level=1,
        store_decimal_as_integer=True,
        write_statistics=False,
        **how,
    )
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    return [group.column(place).total_compressed_size for place in range(rows.num_columns)]


def _is_whole(kind: pa.DataType) -> bool:
    """Return whether Parquet stores the values as whole numbers."""
    return bool(pat.is_integer(kind) or pat.is_temporal(kind) or is_small_decimal(kind))


def _is_random(sample: pa.ChunkedArray) -> bool:
    """Return whether integers spread over nearly all values of a type that is wide enough to matter."""
    if not pat.is_integer(sample.type) or sample.type.bit_width < _WIDE_BITS:
        return False
    ends = pc.min_max(sample).as_py()
    return bool((ends["max"] - ends["min"]).bit_length() > sample.type.bit_width - _RANDOM_BITS)


def _paths(path: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the paths of the Parquet columns that an Arrow column becomes."""
    children = child_fields(kind)
    if not children:
        yield path
    elif pat.is_struct(kind):
        for child in children:
            yield from _paths(f"{path}.{child.name}", child.type)
    elif pat.is_map(kind):
        for name, child in zip(("key", "value"), children, strict=True):
            yield from _paths(f"{path}.key_value.{name}", child.type)
    else:
        yield from _paths(f"{path}.list.element", children[0].type)
