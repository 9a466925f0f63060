"""Dictionary columns on their way into blocks: a dictionary belongs to no row, so it is cut to what rows use.

A slice of a dictionary array, or rows taken from one, keep the whole dictionary. Its size then says nothing of the
rows (a block cut in halves until it is small enough would end at one row), and pyarrow writes all of it into every row
group: 600,000 rows over 300,000 words became 232 MB before compression, where the words alone are 22 MB.

*Coded* text is text of the schema, not a dictionary, that comes from other blocks as their small dictionaries: it is
merged and written without ever being decoded. The file becomes the same, byte for byte, as from the text.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.model.types import child_fields, map_children
from tblctl.tableformat.reshape import Shape, fill_hidden, plan_shape, reshape_column


def decoded_bytes(table: pa.Table, schema: pa.Schema) -> int:
    """Return what the rows of `schema` take in memory.

    Of a dictionary that is longer than its column, as many values as rows; of coded text, what the text would.
    """
    size: int = table.nbytes
    for item, column in zip(schema, table.columns, strict=True):
        if is_coded(column.type, item.type):
            size += sum(_text_bytes(chunk) for chunk in column.chunks) - column.nbytes
            continue
        for array in _dictionary_arrays(column):
            surplus = max(0, len(array.dictionary) - len(array))
            if surplus:
                size -= array.dictionary.nbytes * surplus // len(array.dictionary)
    return size


def _text_bytes(coded: pa.DictionaryArray) -> int:
    """Return what text takes as a plain array: an offset of 4 bytes each, its bytes, and a bit if one is null."""
    lengths = np.asarray(pc.binary_length(coded.dictionary), dtype=np.int64)
    bits = -(-len(coded) // 8) if coded.null_count else 0
    return int(dictionary_counts(coded) @ lengths) + 4 * (len(coded) + 1) + bits


def dictionary_counts(array: pa.DictionaryArray) -> np.ndarray:
    """Return how many rows have each value of the dictionary."""
    indices = array.indices.drop_null() if array.null_count else array.indices
    return np.bincount(np.asarray(indices), minlength=len(array.dictionary))


def is_coded(given: pa.DataType, written: pa.DataType) -> bool:
    """Tell whether a column of type `given` is coded text of the schema's type `written`."""
    return pa.types.is_dictionary(given) and not pa.types.is_dictionary(written)


def as_given(schema: pa.Schema, rows: pa.Table) -> pa.Schema:
    """Return the schema with the types of coded text as `rows` has it."""
    return with_coded(schema, rows.schema, schema.names)


def with_coded(schema: pa.Schema, given: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return the schema with the types of some columns as `given` has them, if they are coded there."""
    return pa.schema(
        [
            item.with_type(other.type) if is_coded(other.type, item.type) and item.name in names else item
            for item, other in zip(schema, given, strict=True)
        ]
    )


def as_wanted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table whose text is coded where it is in `schema`, and not where it is not."""
    columns = [
        column if column.type == item.type else _as_wanted(column, item.type)
        for column, item in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _as_wanted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if is_coded(column.type, kind):
        return column.cast(kind)
    return column.dictionary_encode() if is_coded(kind, column.type) else column


def with_own_order(group: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a row group whose coded text has dictionaries as encoding the text would make them."""
    for place, (item, written) in enumerate(zip(group.schema, schema, strict=True)):
        if is_coded(item.type, written.type):
            values = _in_order_of_appearance(group.column(place).combine_chunks())
            group = group.set_column(place, item, values)
    return group


def _in_order_of_appearance(coded: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return coded text with a dictionary of the values that its rows have, each where it first appears."""
    values = len(coded.dictionary)
    mask = np.asarray(coded.is_null()) if coded.null_count else None
    indices = np.asarray(coded.indices.fill_null(values))
    order = _appearing(indices[:_MANY_ROWS], values)
    if len(order) < values:  # most often all of them are among the first rows
        order = _appearing(indices, values)
    numbers = np.zeros(values + 1, dtype=np.int32)
    numbers[order] = np.arange(len(order))
    return pa.DictionaryArray.from_arrays(
        pa.array(numbers[indices], mask=mask), coded.dictionary.take(pa.array(order))
    )


def _appearing(indices: np.ndarray, values: int) -> np.ndarray:
    """Return which of the numbers below `values` there are, each where it first appears."""
    rows = len(indices)
    first = np.full(values + 1, rows)
    first[indices[::-1]] = np.arange(rows - 1, -1, -1)  # of several, the last one written stays
    order = np.argsort(first[:values], kind="stable")
    found: np.ndarray = order[: np.count_nonzero(first[:values] < rows)]
    return found


_MANY_ROWS = 4_096


def with_own_dictionaries(table: pa.Table, group_rows: Sequence[int], *, share: float) -> pa.Table:
    """Return the table with dictionaries made anew for groups of its rows, so that they hold only what these use.

    Columns whose dictionaries have at most `share` times as many values as a group has rows stay as they are.
    """
    most = share * max(group_rows)
    for place, item in enumerate(table.schema):
        column = table.column(place)
        if any(len(array.dictionary) > most for array in _dictionary_arrays(column)):
            starts = itertools.accumulate(group_rows, initial=0)
            groups = [column.slice(*place) for place in zip(starts, group_rows, strict=False)]
            table = table.set_column(place, item, _encoded_anew(groups, item))
    return table


def without_nested_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table as `plain_inside` has its schema."""
    for place, (item, plain) in enumerate(zip(table.schema, plain_inside(table.schema), strict=True)):
        if item.type != plain.type:
            values = reshape_column(table.column(place), _shape(item.type, plain.type, item.name))
            filled = pa.chunked_array([fill_hidden(chunk) for chunk in values.chunks], plain.type)
            table = table.set_column(place, plain, filled)
    return table


def plain_inside(schema: pa.Schema) -> pa.Schema:
    """Return the schema with plain values where dictionaries stand inside structs, lists or maps.

    pyarrow 26 cannot read nested dictionaries from more than one row group ("Nested data conversions not implemented
    for chunked array outputs").
    """
    return pa.schema(
        [
            item
            if pa.types.is_dictionary(item.type) or not _has_dictionary(item.type)
            else item.with_type(_without_dictionaries(item.type))
            for item in schema
        ]
    )


def _encoded_anew(groups: Sequence[pa.ChunkedArray], item: pa.Field) -> pa.ChunkedArray:
    plain = _without_dictionaries(item.type)
    decode, encode = _shape(item.type, plain, item.name), _shape(plain, item.type, item.name)
    chunks: list[pa.Array] = []
    for group in groups:
        values = reshape_column(group, decode).combine_chunks()
        again = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
        chunks += [fill_hidden(chunk) for chunk in reshape_column(again, encode).chunks]
    return pa.chunked_array(chunks, item.type)


def _shape(source: pa.DataType, target: pa.DataType, name: str) -> Shape:
    return plan_shape(
        source, target, lambda field, fields: [one.name for one in fields].index(field.name), name
    )


def _without_dictionaries(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return map_children(kind, lambda child: child.with_type(_without_dictionaries(child.type)))


def _dictionary_arrays(column: pa.ChunkedArray) -> Iterator[pa.DictionaryArray]:
    """Yield the dictionary arrays in a column, those inside nested values too."""
    if _has_dictionary(column.type):
        for chunk in column.chunks:
            yield from _inside(chunk)


def _has_dictionary(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or any(_has_dictionary(child.type) for child in child_fields(kind))


def _inside(array: pa.Array) -> Iterator[pa.DictionaryArray]:
    if pa.types.is_dictionary(array.type):
        yield array
    elif pa.types.is_struct(array.type):
        for place in range(array.type.num_fields):
            yield from _inside(array.field(place))
    elif pa.types.is_map(array.type):
        yield from _inside(array.keys)
        yield from _inside(array.items)
    elif child_fields(array.type):
        yield from _inside(array.flatten())
