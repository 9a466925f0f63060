"""Arrow types in which Spark gets a table's columns. A type whose values Spark cannot hold is refused. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.errors import InvalidDataError, UnsupportedTypeError
from tblctl.tableformat.model.schema.types import (
    accepts,
    child_fields,
    is_any_binary,
    is_any_list,
    is_any_string,
    map_children,
    read_type,
)

_PLAIN = frozenset(
    {
        pa.null(),
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
    }
)
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_MOST_DIGITS = 38


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in which Spark gets the rows of a table.

    Raises:
        UnsupportedTypeError: Spark lacks the type of a column. The message lists every such column.
    """
    fields, problems = [], []
    for field in schema:
        try:
            fields.append(field.with_type(spark_type(field.type, field.name)))
        except UnsupportedTypeError as error:
            problems.append(str(error))
    if problems:
        advice = 'read the other columns: .option("columns", "a,b")'
        raise UnsupportedTypeError(f"{'; '.join(problems)}; {advice}")
    return pa.schema(fields)


def spark_type(data_type: pa.DataType, path: str) -> pa.DataType:
    """Return the type in which Spark gets the values of a column.

    Unsigned integers become wider signed ones, half floats become floats, other units of time become microseconds.

    Raises:
        UnsupportedTypeError: Spark has no type that holds all values of the column. The message names the column.
    """
    if pt.is_dictionary(data_type):
        return spark_type(data_type.value_type, path)
    if data_type in _PLAIN:
        return data_type
    if data_type in _WIDER:
        return _WIDER[data_type]
    if is_any_string(data_type):
        return pa.string()
    if is_any_binary(data_type) or pt.is_fixed_size_binary(data_type):
        return pa.binary()
    if pt.is_time(data_type):
        return pa.time64("ns")
    if pt.is_timestamp(data_type) and data_type.unit != "ns":
        return pa.timestamp("us", tz="UTC" if data_type.tz else None)
    if pt.is_decimal(data_type) and data_type.precision <= _MOST_DIGITS:
        return pa.decimal128(data_type.precision, data_type.scale)
    if child_fields(data_type):
        inner = map_children(
            data_type, lambda child: child.with_type(spark_type(child.type, f"{path}.{child.name}"))
        )
        return pa.list_(inner.value_field) if is_any_list(data_type) else inner
    reason = (
        "Spark's moments end at microseconds" if getattr(data_type, "unit", "") == "ns" else "Spark has none"
    )
    raise UnsupportedTypeError(f"column {path} has type {data_type}: {reason}")


def returned_type(column: pa.DataType, data: pa.DataType) -> pa.DataType:
    """Return the type that data from Spark is cast to, value by value, before it is appended to a column.

    If the data has the type in which Spark got the column, and an append would refuse it (`int16` for a `uint8`
    column), the result is the column's own type. Otherwise it is the data's. Half floats stay refused, because a cast
    to them rounds instead of checking.
    """
    if child_fields(column) and child_fields(data):
        return _returned_children(column, data)
    if accepts(column, data) or pt.is_float16(column) or child_fields(column):
        return data
    try:
        shown = spark_type(column, "")
    except UnsupportedTypeError:
        return data
    same = data == shown or (
        pt.is_timestamp(data) and pt.is_timestamp(shown) and bool(data.tz) == bool(shown.tz)
    )
    return read_type(column) if same else data


def _returned_children(column: pa.DataType, data: pa.DataType) -> pa.DataType:
    if pt.is_struct(column) and pt.is_struct(data):
        known = {field.name: field.type for field in column}
        return map_children(
            data, lambda field: field.with_type(returned_type(known.get(field.name, field.type), field.type))
        )
    mine, theirs = child_fields(column), child_fields(data)
    if (
        len(mine) != len(theirs)
        or pt.is_map(column) != pt.is_map(data)
        or pt.is_struct(column)
        or pt.is_struct(data)
    ):
        return data
    inner = iter(mine)
    inside = map_children(data, lambda field: field.with_type(returned_type(next(inner).type, field.type)))
    return pa.list_(inside.value_field, column.list_size) if pt.is_fixed_size_list(column) else inside


def returned_schema(table: pa.Schema, data: pa.Schema) -> pa.Schema:
    """Return the schema that data from Spark is cast to before it is appended."""
    known = {field.name: field.type for field in table}
    return pa.schema(
        [field.with_type(returned_type(known.get(field.name, field.type), field.type)) for field in data]
    )


def cast_columns(table: pa.Table, target: pa.Schema) -> pa.Table:
    """Return the rows with the column types of `target`, by position. Columns that have the type are not copied.

    Raises:
        InvalidDataError: a value does not fit. The message names the column.
    """
    columns: Sequence[pa.ChunkedArray] = [
        _cast(column, field) for column, field in zip(table.columns, target, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=target)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowException, OverflowError) as error:
        msg = f"column {field.name}: a value of {column.type} does not fit {field.type}: {str(error)[:200]}"
        raise InvalidDataError(msg, column=field.name) from error
