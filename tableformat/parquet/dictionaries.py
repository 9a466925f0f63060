"""Dictionary columns that are written into blocks: a dictionary is cut to the values that rows use.

A slice of a dictionary array, or rows taken from one, keep the whole dictionary. Then its size says nothing about the
rows (a block that is halved until it is small enough would end at one row), and pyarrow writes all of it into every row
group: 600,000 rows over 300,000 words became 232 MB before compression, while the words alone are 22 MB.

*Coded* text is a text column of the schema, not a dictionary, that is read from blocks with their small dictionaries.
It is merged and written without being decoded. The file is the same, byte for byte, as from decoded text, unless the
words of a row group take more than 1 MiB. At this size Parquet's writers stop using a dictionary of text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.model.schema.types import child_fields, is_any_binary, is_any_string, map_children
from tblctl.tableformat.reshape import Shape, fill_hidden, plan_shape, reshape_column


def decoded_bytes(table: pa.Table, schema: pa.Schema) -> int:
    """Return the memory of rows of `schema`.

    Text counts its bytes and 4 more for each row, coded or not, and in any chunks. If a dictionary is longer than its
    column, only as many values count as there are rows.
    """
    size = 0
    for item, column in zip(schema, table.columns, strict=True):
        if is_coded(column.type, item.type) or pa.types.is_string(item.type) or pa.types.is_binary(item.type):
            size += sum(_text_bytes(chunk) for chunk in column.chunks)
            continue
        size += column.nbytes
        for array in _dictionary_arrays(column):
            surplus = max(0, len(array.dictionary) - len(array))
            if surplus:
                size -= array.dictionary.nbytes * surplus // len(array.dictionary)
    return size


def value_bytes(column: pa.ChunkedArray) -> int:
    """Return the most bytes that a value of a column takes, also nested values; text also if coded."""
    return max((_largest_bytes(array) for array in leaf_arrays(column) if len(array)), default=0)


def _largest_bytes(array: pa.Array) -> int:
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if is_any_string(kind) or is_any_binary(kind):
        values = array.dictionary if pa.types.is_dictionary(array.type) else array
        return pc.max(pc.binary_length(values)).as_py() or 0
    return int(array.nbytes / len(array))


def _text_bytes(text: pa.Array) -> int:
    rows = len(text)
    if not rows:
        return 0
    if pa.types.is_dictionary(text.type):
        lengths = pc.take(pc.binary_length(text.dictionary), text.indices, boundscheck=False)
        content = pc.sum(lengths).as_py() or 0
    else:
        ends = pa.Array.from_buffers(pa.int32(), rows + 1, [None, text.buffers()[1]], offset=text.offset)
        content = ends[rows].as_py() - ends[0].as_py()
    return content + 4 * rows


# -- coded text --------------------------------------------------------------------------------------------------------

MANY_ROWS = 4_096
"""A sample of rows that usually has all words of coded text."""


def is_coded(given: pa.DataType, written: pa.DataType) -> bool:
    """Return whether a column of type `given` is coded text of the schema's type `written`."""
    return pa.types.is_dictionary(given) and not pa.types.is_dictionary(written)


def coded_schema(schema: pa.Schema, rows: pa.Table, names: Collection[str]) -> pa.Schema:
    """Return the schema with the coded types of `rows` for some columns."""
    return pa.schema(
        [
            item.with_type(column.type) if is_coded(column.type, item.type) and item.name in names else item
            for item, column in zip(schema, rows.columns, strict=True)
        ]
    )


def with_words_in_order(group: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a row group whose coded text has the dictionaries that encoding the text would make."""
    for place, (column, item) in enumerate(zip(group.columns, schema, strict=True)):
        if is_coded(column.type, item.type):
            coded = pa.chunked_array([_in_order_of_appearance(column.combine_chunks())])
            group = group.set_column(place, group.schema.field(place), coded)
    return group


def as_written(group: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a row group in the types of a file's schema. Coded text that the schema does not code is decoded."""
    columns = [
        column.cast(item.type) if is_coded(column.type, item.type) else column
        for column, item in zip(group.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _in_order_of_appearance(coded: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return coded text with a dictionary of the values in its rows, in order of first appearance."""
    values = len(coded.dictionary)
    indices = np.asarray(coded.indices.fill_null(values))
    order = _appearing(indices[:MANY_ROWS], values)
    if len(order) < values:
        order = _appearing(indices, values)
    numbers = np.zeros(values, dtype=np.int32)
    numbers[order] = np.arange(len(order))
    return pa.DictionaryArray.from_arrays(
        pc.take(pa.array(numbers), coded.indices, boundscheck=False),
        coded.dictionary.take(pa.array(order)),
        safe=False,
    )


def _appearing(indices: np.ndarray, values: int) -> np.ndarray:
    """Return which of the numbers below `values` occur, in order of first appearance."""
    rows = len(indices)
    first = np.full(values + 1, rows)
    first[indices[::-1]] = np.arange(rows - 1, -1, -1)  # with several writes to one place, the last one stays
    order = np.argsort(first[:values], kind="stable")
    found: np.ndarray = order[: np.count_nonzero(first[:values] < rows)]
    return found


# -- dictionaries of the schema ----------------------------------------------------------------------------------------


def with_own_dictionaries(group: pa.Table, *, share: float) -> pa.Table:
    """Return rows with new dictionaries that have only the values in use.

    Columns whose dictionaries have at most `share` times as many values as there are rows stay as they are.
    """
    for place, item in enumerate(group.schema):
        column = group.column(place)
        if any(len(array.dictionary) > share * group.num_rows for array in _dictionary_arrays(column)):
            group = group.set_column(place, item, _encoded_anew(column, item))
    return group


def without_nested_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table in the types of `plain_inside`."""
    for place, (item, plain) in enumerate(zip(table.schema, plain_inside(table.schema), strict=True)):
        if item.type != plain.type:
            values = reshape_column(table.column(place), _shape(item.type, plain.type, item.name))
            filled = pa.chunked_array([fill_hidden(chunk) for chunk in values.chunks], plain.type)
            table = table.set_column(place, plain, filled)
    return table


def plain_inside(schema: pa.Schema) -> pa.Schema:
    """Return the schema with plain values instead of dictionaries inside structs, lists or maps.

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


def _encoded_anew(column: pa.ChunkedArray, item: pa.Field) -> pa.ChunkedArray:
    plain = _without_dictionaries(item.type)
    decode, encode = _shape(item.type, plain, item.name), _shape(plain, item.type, item.name)
    values = reshape_column(column, decode).combine_chunks()
    again = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
    chunks = [fill_hidden(chunk) for chunk in reshape_column(again, encode).chunks]
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
    """Yield the dictionary arrays in a column, also inside nested values."""
    if _has_dictionary(column.type):
        for array in leaf_arrays(column):
            if pa.types.is_dictionary(array.type):
                yield array


def _has_dictionary(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or any(_has_dictionary(child.type) for child in child_fields(kind))


def leaf_arrays(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield the arrays that hold a column's values, also inside nested values."""
    for chunk in column.chunks:
        yield from _inside(chunk)


def _inside(array: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(array.type):
        for place in range(array.type.num_fields):
            yield from _inside(array.field(place))
    elif pa.types.is_map(array.type):
        yield from _inside(array.keys)
        yield from _inside(array.items)
    elif child_fields(array.type):
        yield from _inside(array.flatten())
    else:
        yield array
