"""Column ids on Arrow fields, in the field metadata `PARQUET:field_id` as Parquet has them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.model.schema.type_text import ELEMENT_NAME
from tblctl.tableformat.model.schema.types import child_fields, map_children, with_child_fields

FIELD_ID_KEY = b"PARQUET:field_id"


def field_id(field: pa.Field) -> int | None:
    """Return the id that a field carries, or None."""
    text = (field.metadata or {}).get(FIELD_ID_KEY)
    return int(text) if text is not None and text.isdigit() else None


def ids_in(fields: Iterable[pa.Field]) -> frozenset[int]:
    """Return the ids of fields and of the fields nested in them, at every depth."""
    found: set[int] = set()
    waiting = list(fields)
    while waiting:
        item = waiting.pop()
        id_ = field_id(item)
        if id_ is not None:
            found.add(id_)
        waiting += child_fields(item.type)
    return frozenset(found)


def with_id(field: pa.Field, id_: int) -> pa.Field:
    """Return the field with this id as its only metadata."""
    return field.with_metadata({FIELD_ID_KEY: str(id_).encode()})


def plain_field(field: pa.Field) -> pa.Field:
    """Return the field without metadata, nested fields too; children of lists and maps get Parquet's names."""
    return field.remove_metadata().with_type(_plain_type(field.type))


def _plain_type(data_type: pa.DataType) -> pa.DataType:
    children = tuple(plain_field(child) for child in child_fields(data_type))
    if not children:
        return data_type
    return with_child_fields(data_type, named_children(data_type, children))


def named_children(data_type: pa.DataType, children: tuple[pa.Field, ...]) -> tuple[pa.Field, ...]:
    """Return the children of a list or map under the names that Parquet gives them; a struct's unchanged."""
    if pt.is_struct(data_type):
        return children
    if pt.is_map(data_type):
        key, value = children
        return (key.with_name("key"), value.with_name("value"))
    return (children[0].with_name(ELEMENT_NAME),)


def numbered(fields: Iterable[pa.Field], *, after: int) -> tuple[list[pa.Field], int]:
    """Give every field an id, parents before children, left to right, from `after` + 1.

    Returns the fields and the last id given.
    """
    last = after

    def number(field: pa.Field) -> pa.Field:
        nonlocal last
        last += 1
        id_ = last
        return with_id(field.with_type(map_children(field.type, number)), id_)

    return [number(field) for field in fields], last
