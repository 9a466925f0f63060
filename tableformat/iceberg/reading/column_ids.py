"""Give the columns of files their ids, where the writer wrote none.

Files that other programs wrote (and `add_files` added) have no ids. The table's name mapping says which id a name has
(Apache Iceberg specification, "Column Projection"). Elements of lists, and keys and values of maps, need no name: plain
Spark writes no ids there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.errors import InvalidDataError, InvalidOptionError
from tblctl.tableformat.model.schema.field_ids import field_id, ids_in
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import child_fields, with_child_fields

if TYPE_CHECKING:
    from pyiceberg.table.name_mapping import MappedField

NAME_MAPPING = "schema.name-mapping.default"

_ELEMENT, _KEY, _VALUE = "element", "key", "value"


@dataclass(frozen=True)
class NameMapping:
    """The ids that names of columns have.

    Attributes:
        id: of the column; None for the table itself, and for groups that have none.
        children: the columns inside it, by each of their names.
    """

    id: int | None
    children: Mapping[str, NameMapping]

    @classmethod
    def parse(cls, text: str) -> NameMapping:
        """Return the mapping that a table's property has.

        Raises:
            InvalidOptionError: it is not valid.
        """
        from pyiceberg.table.name_mapping import parse_mapping_from_json

        try:
            return cls(None, _children(parse_mapping_from_json(text).root))
        except (
            Exception
        ) as error:  # of a text in memory: PyIceberg raises TypeError as well as ValidationError
            msg = f"the table's property {NAME_MAPPING} is no name mapping: {text!r:.200}"
            raise InvalidOptionError(msg) from error


def _children(fields: Sequence[MappedField]) -> dict[str, NameMapping]:
    return {
        name: NameMapping(field.field_id, _children(field.fields)) for field in fields for name in field.names
    }


def with_ids(
    file: pa.Schema, has_int96: bool, *, schema: Schema, mapping: NameMapping | None, path: str
) -> pa.Schema:
    """Return a file's schema in which each column that the table has carries its id.

    INT96 timestamps say nothing of a zone. They are in UTC, as all readers take them, if the table's column has a zone.

    Args:
        file: the schema, maybe of some of the columns.
        has_int96: timestamps are stored as INT96.
        schema: the table's columns.
        mapping: the table's name mapping; None if it has none.
        path: of the file, for errors.

    Raises:
        InvalidDataError: the file has no ids, and the table no mapping; or a struct inside has none.
    """
    known = {field_id(column): column for column in schema.arrow}
    found = _numbered_columns(list(file), known, mapping, path)
    return pa.schema([_in_zone(field, known.get(field_id(field))) for field in found] if has_int96 else found)


def _numbered_columns(
    fields: Sequence[pa.Field],
    known: Mapping[int | None, pa.Field],
    mapping: NameMapping | None,
    path: str,
) -> list[pa.Field]:
    if not ids_in(fields) and fields:
        if mapping is None:
            msg = (
                f"{path} has no column ids, so its columns cannot be told: set the table's property {NAME_MAPPING} "
                "(PyIceberg's add_files and Spark's add_files procedure do), or rewrite the file with an engine"
            )
            raise InvalidDataError(msg)
        return [_mapped(field, mapping.children.get(field.name), None, path) for field in fields]
    found = []
    for field in fields:
        id_ = field_id(field)
        found.append(field if id_ is None else _mapped(field, _by_id(mapping, id_), known.get(id_), path))
    return found


def _in_zone(field: pa.Field, column: pa.Field | None) -> pa.Field:
    """Return a field whose timestamps are in UTC where those of the table's column have a zone."""
    if column is None:
        return field
    kind, wanted = field.type, column.type
    if pt.is_timestamp(kind) and pt.is_timestamp(wanted) and wanted.tz and not kind.tz:
        return field.with_type(pa.timestamp(kind.unit, "UTC"))
    children, columns = child_fields(kind), child_fields(wanted)
    if not children or not columns:
        return field
    matches = list(columns)
    if pt.is_struct(kind):
        by_id = {field_id(item): item for item in columns}
        matches = [by_id.get(field_id(child)) for child in children]
    zoned = tuple(_in_zone(child, match) for child, match in zip(children, matches, strict=True))
    return field.with_type(with_child_fields(kind, zoned))


def _by_id(mapping: NameMapping | None, id_: int) -> NameMapping | None:
    children = [] if mapping is None else mapping.children.values()
    return next((child for child in children if child.id == id_), None)


def _mapped(field: pa.Field, mapping: NameMapping | None, column: pa.Field | None, path: str) -> pa.Field:
    """Return a field with an id, its own if it has one, and its children with theirs.

    Args:
        field: of the file.
        mapping: of the field, if the table has one.
        column: the table's column of this id, if the field has ids of its own.
        path: of the file.
    """
    children = child_fields(field.type)
    if children:
        mapped = [
            _child(child, place, field.type, mapping, column, path) for place, child in enumerate(children)
        ]
        field = field.with_type(with_child_fields(field.type, tuple(mapped)))
    if field_id(field) is not None:
        return field
    id_ = mapping.id if mapping is not None else None
    if id_ is None and column is not None:
        id_ = field_id(column)
    return field if id_ is None else _numbered(field, id_)


def _child(  # noqa: PLR0917 (the place, and what is known of the parent)
    child: pa.Field,
    place: int,
    parent: pa.DataType,
    mapping: NameMapping | None,
    column: pa.Field | None,
    path: str,
) -> pa.Field:
    if pt.is_struct(parent):
        name = child.name
        columns = [] if column is None else child_fields(column.type)
        own = field_id(child)
        match = next((item for item in columns if own is not None and field_id(item) == own), None)
        found = None if mapping is None else mapping.children.get(name)
        if own is None and found is None and column is not None:
            msg = (
                f"{path}: field {name!r} inside a column has no id: set the table's property {NAME_MAPPING}, or "
                "rewrite the file with an engine"
            )
            raise InvalidDataError(msg)
        return _mapped(child, found, match, path)
    name = (_KEY, _VALUE)[place] if pt.is_map(parent) else _ELEMENT
    columns = [] if column is None else child_fields(column.type)
    match = columns[place] if place < len(columns) else None
    found = None if mapping is None else mapping.children.get(name)
    return _mapped(child, found, match, path)


def _numbered(field: pa.Field, id_: int) -> pa.Field:
    return field.with_metadata({**(field.metadata or {}), b"PARQUET:field_id": str(id_).encode()})
