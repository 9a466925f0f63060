"""Random Arrow data of every type, and rows as plain comparable values.

canonical(table)     the rows as tuples that compare and hash by content: NaN equals NaN, -0.0 differs from 0.0,
                     times are their counts, so that no Python type narrows them
multiset(table)      how often each row is there
tables(schema)       a strategy of tables of a schema
memory_table(...)    a table in memory that is gone when the context ends
"""

from __future__ import annotations

import contextlib
import math
import uuid
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

import tblctl
from tblctl.tableformat.model.schema.types import child_fields, is_any_binary, is_any_list, is_any_string


@contextlib.contextmanager
def memory_table(schema, **arguments) -> Iterator[tblctl.Table]:
    from fsspec.implementations.memory import MemoryFileSystem

    name = uuid.uuid4().hex
    try:
        yield tblctl.create(f"memory://{name}/table", schema, **arguments)
    finally:
        for path in [path for path in MemoryFileSystem.store if path.startswith(f"/{name}/")]:
            del MemoryFileSystem.store[path]


def canonical(table: pa.Table) -> list[tuple]:
    columns = [
        [value for chunk in column.chunks for value in canonical_values(chunk)] for column in table.columns
    ]
    return list(zip(*columns, strict=True))


def multiset(table: pa.Table) -> Counter:
    return Counter(canonical(table))


def canonical_values(array: pa.Array) -> list:
    kind = array.type
    if pa.types.is_null(kind):
        return [None] * len(array)
    if pa.types.is_dictionary(kind):
        words = canonical_values(array.dictionary)
        return [None if place is None else words[place] for place in array.indices.to_pylist()]
    if pa.types.is_struct(kind):
        fields = [canonical_values(array.field(place)) for place in range(kind.num_fields)]
        rows = list(zip(*fields, strict=True))
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_map(kind) or is_any_list(kind):
        return [tuple(canonical_values(item.values)) if item.is_valid else None for item in array]
    if pa.types.is_temporal(kind):
        return array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    if pa.types.is_floating(kind):
        return [None if value is None else repr(float(value)) for value in array.to_pylist()]
    return array.to_pylist()


@st.composite
def tables(draw, schema, *, min_rows=0, max_rows=8) -> pa.Table:
    count = draw(st.integers(min_rows, max_rows))
    return pa.table([draw(arrays(field, count)) for field in schema], schema=schema)


@st.composite
def arrays(draw, field, count) -> pa.Array:
    kind = field.type
    missing = st.booleans() if field.nullable else st.just(False)
    gone = draw(st.lists(missing, min_size=count, max_size=count))
    mask = pa.array(gone, pa.bool_())
    if pa.types.is_null(kind):
        return pa.nulls(count)
    if pa.types.is_dictionary(kind):
        words = draw(arrays(pa.field("", kind.value_type, nullable=False), 3))
        picks = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
        indices = [None if no else pick for no, pick in zip(gone, picks, strict=True)]
        return pa.DictionaryArray.from_arrays(
            pa.array(indices, kind.index_type), words, ordered=kind.ordered, safe=False
        )
    if pa.types.is_struct(kind):
        children = [draw(arrays(child, count)) for child in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_fixed_size_list(kind):
        values = draw(arrays(kind.value_field, count * kind.list_size))
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)
    if child_fields(kind):
        return draw(_lists(kind, count, mask))
    return draw(_flat(kind, gone))


@st.composite
def _lists(draw, kind, count, mask) -> pa.Array:
    sizes = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    offsets = [sum(sizes[:place]) for place in range(count + 1)]
    if pa.types.is_map(kind):
        keys = draw(arrays(kind.key_field, offsets[-1]))
        items = draw(arrays(kind.item_field, offsets[-1]))
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=kind, mask=mask)
    values = draw(arrays(kind.value_field, offsets[-1]))
    large = pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind)
    numbers = pa.int64() if large else pa.int32()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = pa.LargeListArray if large else pa.ListArray
        return made.from_arrays(pa.array(offsets, numbers), values, type=kind, mask=mask)
    made = pa.LargeListViewArray if large else pa.ListViewArray
    return made.from_arrays(
        pa.array(offsets[:-1], numbers), pa.array(sizes, numbers), values, type=kind, mask=mask
    )


LONG = st.sampled_from(["x" * 128, "x" * 129, "\ud7ff" * 130, "\U0010ffff" * 140, "a" * 127 + "é" * 5_000])


def values_of(kind: pa.DataType) -> st.SearchStrategy:
    """Values of a flat type that Python has exactly; not of dates and times."""
    if is_any_string(kind):
        return st.one_of(st.text(max_size=4), LONG)
    if is_any_binary(kind):
        return st.one_of(st.binary(max_size=4), st.sampled_from([b"\xff" * 130, b"a" * 200, b"\0" * 129]))
    if pa.types.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_floating(kind):
        usual = st.floats(width=kind.bit_width)
        return st.one_of(usual, st.sampled_from([math.nan, -0.0, 0.0, math.inf, -math.inf]))
    if pa.types.is_integer(kind):
        bits, signed = kind.bit_width, pa.types.is_signed_integer(kind)
        return st.integers(-(2 ** (bits - 1)) if signed else 0, 2 ** (bits - signed) - 1)
    assert pa.types.is_decimal(kind), kind
    top = 10**kind.precision - 1
    return st.integers(-top, top).map(
        lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -kind.scale))
    )


@st.composite
def _flat(draw, kind, gone) -> pa.Array:
    if not pa.types.is_temporal(kind):
        values = [None if no else draw(values_of(kind)) for no in gone]
        if pa.types.is_float16(kind):
            return pa.array(values, pa.float32()).cast(kind)
        return pa.array(values, kind)
    step = 86_400_000 if pa.types.is_date64(kind) else 1
    most = {"s": 86_399, "ms": 86_399_999, "us": 86_399_999_999, "ns": 86_399_999_999_999}
    if pa.types.is_time(kind):
        numbers = st.integers(0, most[kind.unit])
    elif pa.types.is_date(kind):
        numbers = st.integers(-700_000, 2_900_000)
    else:
        numbers = st.one_of(st.integers(-(10**6), 10**6), st.integers(-(2**53), 2**53))
    counts = [None if no else draw(numbers) * step for no in gone]
    return pa.array(counts, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
