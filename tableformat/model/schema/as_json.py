"""A schema as JSON: what snapshots store (`docs/FORMAT.md`, "Schema"). Reading is strict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.errors import InvalidSchemaError
from tblctl.tableformat.model.schema.field_ids import field_id, with_id
from tblctl.tableformat.model.schema.type_text import (
    ELEMENT_NAME,
    MAX_NESTING_DEPTH,
    type_from_text,
    type_to_text,
)
from tblctl.tableformat.model.schema.types import child_fields

MAX_COLUMN_ID = 2**31 - 1
"""Parquet's field ids are signed 32-bit numbers."""

_LISTS: dict[str, Callable[[pa.Field], pa.DataType]] = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
}


def to_json(schema: pa.Schema, last_column_id: int) -> dict[str, Any]:
    """Return the JSON object of a schema whose fields carry ids."""
    return {"last_column_id": last_column_id, "columns": [_named_to_json(field) for field in schema]}


def from_json(value: object) -> tuple[pa.Schema, int]:
    """Return the Arrow schema with ids, and the last column id.

    Raises:
        ValueError: the object is not exactly as described; names where.
    """
    found = _object(value, "schema", ("last_column_id", "columns"))
    last_column_id = _integer(found["last_column_id"], "schema.last_column_id", MAX_COLUMN_ID)
    columns = _array(found["columns"], "schema.columns")
    reader = _Reader(last_column_id)
    return pa.schema(
        [reader.named(one, f"schema.columns[{i}]", 1) for i, one in enumerate(columns)]
    ), last_column_id


def _named_to_json(field: pa.Field) -> dict[str, Any]:
    return {
        "id": field_id(field),
        "name": field.name,
        "type": _type_to_json(field.type),
        "nullable": field.nullable,
    }


def _unnamed_to_json(field: pa.Field) -> dict[str, Any]:
    return {"id": field_id(field), "type": _type_to_json(field.type), "nullable": field.nullable}


def _type_to_json(data_type: pa.DataType) -> str | dict[str, Any]:
    if pt.is_struct(data_type):
        return {"kind": "struct", "fields": [_named_to_json(field) for field in data_type]}
    if pt.is_map(data_type):
        return {
            "kind": "map",
            "key": _unnamed_to_json(data_type.key_field),
            "value": _unnamed_to_json(data_type.item_field),
            "keys_sorted": data_type.keys_sorted,
        }
    if pt.is_dictionary(data_type):
        return {
            "kind": "dictionary",
            "index": type_to_text(data_type.index_type),
            "value": type_to_text(data_type.value_type),
            "ordered": data_type.ordered,
        }
    if not child_fields(data_type):
        return type_to_text(data_type)
    element = _unnamed_to_json(data_type.value_field)
    if pt.is_fixed_size_list(data_type):
        return {"kind": "fixed_size_list", "length": data_type.list_size, "element": element}
    kind = type_to_text(data_type).partition("<")[0]
    return {"kind": kind, "element": element}


class _Reader:
    """Reads fields, and checks that no id comes twice."""

    def __init__(self, last_column_id: int) -> None:
        self._last_column_id = last_column_id
        self._place_of_id: dict[int, str] = {}

    def named(self, value: object, place: str, depth: int) -> pa.Field:
        found = _object(value, place, ("id", "name", "type", "nullable"))
        name = found["name"]
        if not isinstance(name, str):
            raise _wrong(f"{place}.name", "a string", name)
        return self._field(found, name, place, depth)

    def unnamed(self, value: object, name: str, place: str, depth: int) -> pa.Field:
        return self._field(_object(value, place, ("id", "type", "nullable")), name, place, depth)

    def _field(self, found: dict[str, Any], name: str, place: str, depth: int) -> pa.Field:
        id_ = _integer(found["id"], f"{place}.id", self._last_column_id)
        other = self._place_of_id.setdefault(id_, place)
        if other != place:
            raise ValueError(f"{place}.id: {id_} is also the id of {other}")
        nullable = _boolean(found["nullable"], f"{place}.nullable")
        data_type = self._type(found["type"], f"{place}.type", depth)
        try:
            return with_id(pa.field(name, data_type, nullable=nullable), id_)
        except UnicodeEncodeError as cause:
            raise ValueError(f"{place}.name: {name!r} is not Unicode text") from cause

    def _type(self, value: object, place: str, depth: int) -> pa.DataType:
        if depth > MAX_NESTING_DEPTH:
            raise ValueError(f"{place}: types may be nested {MAX_NESTING_DEPTH} deep, this is deeper")
        if isinstance(value, str):
            return _flat_type(value, place)
        kind = value.get("kind") if isinstance(value, dict) else None
        if kind == "struct":
            fields = _array(_object(value, place, ("kind", "fields"))["fields"], f"{place}.fields")
            return pa.struct(
                [self.named(one, f"{place}.fields[{i}]", depth + 1) for i, one in enumerate(fields)]
            )
        if isinstance(kind, str) and kind in _LISTS:
            found = _object(value, place, ("kind", "element"))
            return _LISTS[kind](self.unnamed(found["element"], ELEMENT_NAME, f"{place}.element", depth + 1))
        if kind == "fixed_size_list":
            found = _object(value, place, ("kind", "element", "length"))
            element = self.unnamed(found["element"], ELEMENT_NAME, f"{place}.element", depth + 1)
            return pa.list_(element, _integer(found["length"], f"{place}.length", 2**31 - 1))
        if kind == "map":
            return self._map(value, place, depth)
        if kind == "dictionary":
            return _dictionary(value, place)
        raise _wrong(place, "a type's name or an object with a known kind", value)

    def _map(self, value: object, place: str, depth: int) -> pa.DataType:
        found = _object(value, place, ("kind", "key", "value", "keys_sorted"))
        key = self.unnamed(found["key"], "key", f"{place}.key", depth + 1)
        if key.nullable:
            raise ValueError(f"{place}.key.nullable: a map's keys are never null, expected false")
        item = self.unnamed(found["value"], "value", f"{place}.value", depth + 1)
        return pa.map_(key, item, keys_sorted=_boolean(found["keys_sorted"], f"{place}.keys_sorted"))


def _dictionary(value: object, place: str) -> pa.DataType:
    found = _object(value, place, ("kind", "index", "value", "ordered"))
    index = _flat_type(found["index"], f"{place}.index")
    if not pt.is_integer(index):
        raise _wrong(f"{place}.index", "an integer type", found["index"])
    value_type = _flat_type(found["value"], f"{place}.value")
    return pa.dictionary(index, value_type, _boolean(found["ordered"], f"{place}.ordered"))


def _flat_type(value: object, place: str) -> pa.DataType:
    """Read a type that has no ids inside; only the one canonical spelling is accepted."""
    if not isinstance(value, str):
        raise _wrong(place, "a type's name", value)
    try:
        data_type = type_from_text(value)
    except InvalidSchemaError as cause:
        raise ValueError(f"{place}: {cause}") from cause
    if child_fields(data_type) or pt.is_dictionary(data_type) or type_to_text(data_type) != value:
        raise _wrong(place, "a type's name as tblctl writes it", value)
    return data_type


def _object(value: object, place: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(place, "an object", value)
    if set(value) != set(keys):
        raise _wrong(place, f"the keys {', '.join(keys)}", list(value))
    return value


def _array(value: object, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(place, "an array", value)
    return value


def _integer(value: object, place: str, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise _wrong(place, f"a whole number from 1 to {most}", value)
    return value


def _boolean(value: object, place: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(place, "true or false", value)
    return value


def _wrong(place: str, expected: str, value: object) -> ValueError:
    return ValueError(f"{place}: expected {expected}, got {_shown(value)}")


def _shown(value: object) -> str:
    """Return a value for an error text, truncated: it comes from a file that may hold anything."""
    if isinstance(value, (dict, list)) and len(value) > 20:  # noqa: PLR2004
        return f"{type(value).__name__} of {len(value)}"
    text = (
        ascii(value)
        if not isinstance(value, (dict, list))
        else type(value).__name__ + " " + ascii(list(value))
    )
    return text if len(text) <= 100 else text[:100] + "..."  # noqa: PLR2004
