"""Dictionary columns on their way into blocks: a dictionary belongs to no row, so it is cut to what rows use.

A slice of a dictionary array, or rows taken from one, keep the whole dictionary. Its size then says nothing of the
rows (a block cut in halves until it is small enough would end at one row), and pyarrow writes all of it into every row
group: 600,000 rows over 300,000 words became 232 MB before compression, where the words alone are 22 MB.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pyarrow as pa

from tblctl.tableformat.model.types import child_fields, map_children
from tblctl.tableformat.reshape import Shape, fill_hidden, plan_shape, reshape_column


def decoded_bytes(table: pa.Table) -> int:
    """Return what the rows take in memory: of a dictionary that is longer than its column, as many values as rows."""
    size: int = table.nbytes
    for column in table.columns:
        for array in _dictionary_arrays(column):
            surplus = max(0, len(array.dictionary) - len(array))
            if surplus:
                size -= array.dictionary.nbytes * surplus // len(array.dictionary)
    return size


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
