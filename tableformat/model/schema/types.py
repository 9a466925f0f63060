"""Column types: how they are read, compared and widened, and which are refused.

Three views of one type:
- logical: what the table's schema says;
- read: what a scan returns. Views become large types (pyarrow 26 can neither take, filter nor compare views),
  small decimals become decimal128, dictionaries have an unordered int32 index;
- statistic: the type of stored bounds: the read type without its dictionary, half as float32 (no min/max kernel).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.errors import UnsupportedTypeError
from tblctl.tableformat.model.schema.type_text import (
    ELEMENT_NAME,
    MAX_NESTING_DEPTH,
    is_zone_name,
    type_from_text,
    type_to_text,
)

__all__ = [
    "MAX_NESTING_DEPTH",
    "accepts",
    "can_widen",
    "check_supported",
    "child_fields",
    "is_any_binary",
    "is_any_list",
    "is_any_string",
    "is_orderable",
    "map_children",
    "read_type",
    "statistic_type",
    "strip_extension",
    "type_from_text",
    "type_problems",
    "type_to_text",
    "with_child_fields",
]

_UNIT_ORDER = {"s": 0, "ms": 1, "us": 2, "ns": 3}


def is_any_string(data_type: pa.DataType) -> bool:
    """Return whether the type is string, large_string or string_view."""
    return bool(pt.is_string(data_type) or pt.is_large_string(data_type) or pt.is_string_view(data_type))


def is_any_binary(data_type: pa.DataType) -> bool:
    """Return whether the type is binary, large_binary or binary_view (not fixed-size binary)."""
    return bool(pt.is_binary(data_type) or pt.is_large_binary(data_type) or pt.is_binary_view(data_type))


def is_small_decimal(data_type: pa.DataType) -> bool:
    """Return whether blocks store the values as whole numbers: decimals of at most 18 digits."""
    return bool(pt.is_decimal128(data_type) and data_type.precision <= 18)  # noqa: PLR2004


def is_any_list(data_type: pa.DataType) -> bool:
    """Return whether the type is one of the five list kinds (a map is not)."""
    return _is_variable_list(data_type) or bool(pt.is_fixed_size_list(data_type))


def _is_variable_list(data_type: pa.DataType) -> bool:
    return bool(
        pt.is_list(data_type)
        or pt.is_large_list(data_type)
        or pt.is_list_view(data_type)
        or pt.is_large_list_view(data_type)
    )


def child_fields(data_type: pa.DataType) -> tuple[pa.Field, ...]:
    """Return the fields nested directly in a type: a struct's, a list's element, a map's key and value."""
    if not pt.is_nested(data_type):
        return ()
    if pt.is_struct(data_type):
        return tuple(data_type)
    if pt.is_map(data_type):
        return (data_type.key_field, data_type.item_field)
    if is_any_list(data_type):
        return (data_type.value_field,)
    return ()


def with_child_fields(data_type: pa.DataType, children: tuple[pa.Field, ...]) -> pa.DataType:
    """Return the same kind of type with other children (as many as `child_fields` gives)."""
    if pt.is_struct(data_type):
        return pa.struct(children)
    if pt.is_map(data_type):
        key, value = children
        return pa.map_(key, value, keys_sorted=data_type.keys_sorted)
    (element,) = children
    if pt.is_fixed_size_list(data_type):
        return pa.list_(element, data_type.list_size)
    if pt.is_large_list(data_type):
        return pa.large_list(element)
    if pt.is_list_view(data_type):
        return pa.list_view(element)
    if pt.is_large_list_view(data_type):
        return pa.large_list_view(element)
    return pa.list_(element)


def map_children(data_type: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Return the type with `change` applied to each directly nested field."""
    children = child_fields(data_type)
    if not children:
        return data_type
    return with_child_fields(data_type, tuple(change(child) for child in children))


def read_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type that a scan gives for a column of this logical type, nested types included.

    A dictionary's index always becomes int32: blocks merge, and the values of two blocks with int8 indices may not fit
    one. The dictionary is unordered, since the order of its values is not kept on disk. A dictionary of halffloat
    becomes plain: pyarrow 26 unifies two of them with wrong values (1.5 becomes 15872.0).
    """
    if pt.is_string_view(data_type):
        return pa.large_string()
    if pt.is_binary_view(data_type):
        return pa.large_binary()
    if pt.is_decimal(data_type) and data_type.bit_width < 128:  # noqa: PLR2004
        return pa.decimal128(data_type.precision, data_type.scale)
    if pt.is_dictionary(data_type):
        values = read_type(data_type.value_type)
        return values if pt.is_float16(values) else pa.dictionary(pa.int32(), values)
    if not child_fields(data_type):
        return data_type
    changed = map_children(data_type, lambda child: child.with_type(read_type(child.type)))
    if pt.is_list_view(data_type):
        return pa.list_(changed.value_field)
    if pt.is_large_list_view(data_type):
        return pa.large_list(changed.value_field)
    return changed


def statistic_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which the bounds of a column of this logical type are kept."""
    plain = read_type(data_type)
    if pt.is_dictionary(plain):
        return statistic_type(plain.value_type)
    return pa.float32() if pt.is_float16(plain) else plain


def is_orderable(data_type: pa.DataType) -> bool:
    """Return whether values have an order, so that the type can be a key or have bounds."""
    if pt.is_dictionary(data_type):
        return is_orderable(data_type.value_type)
    return not (child_fields(data_type) or pt.is_null(data_type))


def strip_extension(data_type: pa.DataType) -> pa.DataType:
    """Return the type with known extension types, nested ones too, turned into plain types.

    uuid becomes fixed_size_binary[16], json its string type, bool8 bool, a fixed-shape tensor its list. Unknown
    extensions stay, and `check_supported` refuses them: their storage type alone would lose their meaning.
    """
    if isinstance(data_type, pa.BaseExtensionType):
        if data_type.extension_name == "arrow.bool8":
            return pa.bool_()
        if data_type.extension_name in ("arrow.uuid", "arrow.json", "arrow.fixed_shape_tensor"):
            return strip_extension(data_type.storage_type)
        return data_type
    if pt.is_dictionary(data_type):
        value_type = strip_extension(data_type.value_type)
        return pa.dictionary(data_type.index_type, value_type, data_type.ordered)
    return map_children(data_type, lambda child: child.with_type(strip_extension(child.type)))


def check_supported(data_type: pa.DataType, path: str) -> None:
    """Raise unless the type, with all nested types, can be stored.

    Raises:
        UnsupportedTypeError: names the column path and lists every problem.
    """
    problems = type_problems(data_type, path)
    if problems:
        raise UnsupportedTypeError("; ".join(problems))


def type_problems(data_type: pa.DataType, path: str, *, depth: int = 1) -> tuple[str, ...]:
    """Return why the type cannot be stored: one text for each problem, with its path; empty if it can."""
    if depth > MAX_NESTING_DEPTH:
        return (f"{path}: types may be nested {MAX_NESTING_DEPTH} deep, this is deeper",)
    if pt.is_dictionary(data_type):
        return _dictionary_problems(data_type, path)
    if pt.is_fixed_size_list(data_type) and not data_type.list_size:
        return (f"{path}: a fixed-size list of 0 elements cannot be stored in Parquet",)
    children = child_fields(data_type)
    if children:
        names = _child_names(data_type)
        return tuple(
            problem
            for child, name in zip(children, names, strict=True)
            for problem in type_problems(child.type, f"{path}.{name}", depth=depth + 1)
        )
    problem = _flat_problem(data_type)
    return (f"{path}: {problem}",) if problem else ()


def _child_names(data_type: pa.DataType) -> tuple[str, ...]:
    if pt.is_struct(data_type):
        return tuple(field.name for field in data_type)
    return ("key", "value") if pt.is_map(data_type) else (ELEMENT_NAME,)


def _dictionary_problems(data_type: pa.DataType, path: str) -> tuple[str, ...]:
    value_type = data_type.value_type
    if child_fields(value_type) or pt.is_dictionary(value_type) or pt.is_null(value_type):
        return (f"{path}: a dictionary of {value_type} cannot be stored; use {value_type} itself",)
    problem = _flat_problem(value_type)
    return (f"{path}: {problem}",) if problem else ()


def _flat_problem(data_type: pa.DataType) -> str | None:
    if pt.is_struct(data_type):
        return "a struct without fields cannot be stored in Parquet"
    if pt.is_decimal(data_type) and not 0 <= data_type.scale <= data_type.precision:
        return f"type {data_type} cannot be stored in Parquet; its scale must lie between 0 and its precision"
    if pt.is_fixed_size_binary(data_type) and not data_type.byte_width:
        return "fixed-size binary of 0 bytes cannot be stored in Parquet"
    if pt.is_timestamp(data_type) and data_type.tz and not is_zone_name(data_type.tz):
        return f"{data_type.tz!r} is not the name of a time zone"
    try:
        type_to_text(data_type)
    except UnsupportedTypeError as cause:
        return f"{cause}; cast the column to a type that can"
    return None


def can_widen(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether `new` holds every value of `old` unchanged, so that old blocks can be read as `new`.

    Nothing widens to nanoseconds: they end in 2262, and 9999-12-31 is a common date.
    """
    if pt.is_null(old):
        return not (child_fields(new) or pt.is_null(new))
    if pt.is_dictionary(old) and pt.is_dictionary(new):
        same = old.value_type == new.value_type
        return (same and can_widen(old.index_type, new.index_type)) or (
            old.index_type == new.index_type and can_widen(old.value_type, new.value_type)
        )
    if pt.is_timestamp(new) and new.unit == "ns":
        return False
    return (
        _is_wider_integer(old, new)
        or _is_wider_float(old, new)
        or _is_wider_decimal(old, new)
        or _is_wider_time(old, new)
        or _is_wider_binary(old, new)
        or _is_wider_list(old, new)
    )


def accepts(column: pa.DataType, data: pa.DataType) -> bool:
    """Return whether data of a type may be appended to a column of another without losing anything.

    Nested fields are not checked here, only the kind of the outer type. If values might not fit (seconds as
    nanoseconds), the cast checks each. Columns of seconds accept finer units if the values are whole seconds: Parquet
    has no seconds, so otherwise no file could be appended to them, not even a block of the table.
    """
    if pt.is_dictionary(data):
        data = data.value_type
    if pt.is_dictionary(column):
        column = column.value_type
    if pt.is_null(data) or column == data or can_widen(data, column):
        return True
    if is_any_string(column):
        return is_any_string(data)
    if is_any_binary(column):
        return is_any_binary(data) or bool(pt.is_fixed_size_binary(data))
    if pt.is_fixed_size_list(column):
        return bool(pt.is_fixed_size_list(data)) and column.list_size == data.list_size
    if is_any_list(column):
        return is_any_list(data)
    if pt.is_decimal(column) and pt.is_decimal(data):
        whole_digits = data.precision - data.scale
        return bool(column.scale >= data.scale and column.precision - column.scale >= whole_digits)
    if pt.is_timestamp(column):
        if pt.is_timestamp(data):
            coarser = _UNIT_ORDER[data.unit] <= _UNIT_ORDER[column.unit]
            return bool(column.tz) == bool(data.tz) and (coarser or column.unit == "s")
        return bool(pt.is_date(data)) and not column.tz
    if pt.is_time(column) and pt.is_time(data):
        return bool(column.unit == "s")
    return bool((pt.is_struct(column) and pt.is_struct(data)) or (pt.is_map(column) and pt.is_map(data)))


def can_cast(column: pa.DataType, data: pa.DataType) -> bool:
    """Return whether incoming data of a type is cast to a column's. A value that does not fit is an error.

    Besides what `accepts` says: integers of any width and sign, and timestamps and times of any unit.
    """
    if accepts(column, data):
        return True
    data = data.value_type if pt.is_dictionary(data) else data
    column = column.value_type if pt.is_dictionary(column) else column
    if pt.is_timestamp(column) and pt.is_timestamp(data):
        return bool(column.tz) == bool(data.tz)
    return bool((pt.is_integer(column) and pt.is_integer(data)) or (pt.is_time(column) and pt.is_time(data)))


def _is_wider_integer(old: pa.DataType, new: pa.DataType) -> bool:
    if not (pt.is_integer(old) and pt.is_integer(new)) or old.bit_width >= new.bit_width:
        return False
    return bool(pt.is_signed_integer(new) or pt.is_unsigned_integer(old))


def _is_wider_float(old: pa.DataType, new: pa.DataType) -> bool:
    return bool(pt.is_floating(old) and pt.is_floating(new) and old.bit_width < new.bit_width)


def _is_wider_decimal(old: pa.DataType, new: pa.DataType) -> bool:
    if not (pt.is_decimal(old) and pt.is_decimal(new)) or old.scale != new.scale or old == new:
        return False
    return bool(old.precision <= new.precision and old.bit_width <= new.bit_width)


def _is_wider_time(old: pa.DataType, new: pa.DataType) -> bool:
    if pt.is_date32(old) and pt.is_date64(new):
        return True
    if pt.is_date(old) and pt.is_timestamp(new):
        return not new.tz
    finer_times = pt.is_time(old) and pt.is_time(new)
    finer_timestamps = pt.is_timestamp(old) and pt.is_timestamp(new) and old.tz == new.tz
    return bool((finer_times or finer_timestamps) and _UNIT_ORDER[old.unit] < _UNIT_ORDER[new.unit])


def _is_wider_binary(old: pa.DataType, new: pa.DataType) -> bool:
    if is_any_string(old):
        return old != new and bool(pt.is_large_string(new) or pt.is_string_view(new))
    if is_any_binary(old):
        return old != new and bool(pt.is_large_binary(new) or pt.is_binary_view(new))
    return False


def _is_wider_list(old: pa.DataType, new: pa.DataType) -> bool:
    if not (_is_variable_list(old) and _is_variable_list(new)) or old == new:
        return False
    return old.value_type == new.value_type and bool(pt.is_large_list(new) or pt.is_large_list_view(new))
