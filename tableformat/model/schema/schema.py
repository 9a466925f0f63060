"""A table's schema: named, typed columns with ids that outlive their names.

A schema is a `pa.Schema` of logical types. Every field, also nested, has its column id in the field metadata
`PARQUET:field_id`, so a ParquetWriter writes the ids. A table never uses an id twice: a column dropped and added again
is a new column, and old blocks have no values for it.

Dotted names: `a.b` is field b of struct a. Inside lists and maps the steps are `element`, `key` and `value`. No two
fields of a schema may have the same dotted name, so a dotted name never means two things.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat import older_arrow
from tblctl.tableformat.errors import InvalidSchemaError, UnknownColumnError, UnsupportedTypeError
from tblctl.tableformat.model.schema import as_json, changes
from tblctl.tableformat.model.schema.field_ids import field_id, ids_in, numbered, plain_field
from tblctl.tableformat.model.schema.type_text import ELEMENT_NAME, fields_from_text
from tblctl.tableformat.model.schema.types import (
    can_cast,
    child_fields,
    is_any_list,
    is_any_string,
    read_type,
    strip_extension,
    type_problems,
    type_to_text,
)

__all__ = ["Leaf", "Schema", "parse_schema", "schema_differences"]


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A column that statistics are kept for: reached through structs only; lists and maps are leaves.

    `type` is logical. `nullable` is true if the field or any struct around it is.
    """

    id: int
    path: tuple[str, ...]
    type: pa.DataType
    nullable: bool

    @property
    def name(self) -> str:
        """The dotted name, unique in the schema."""
        return ".".join(self.path)


@dataclass(frozen=True, kw_only=True, eq=False)
class Schema:
    """Columns with ids. `last_column_id` is the highest id ever given in the table, dropped columns included.

    Raises:
        InvalidSchemaError: at construction: a rule is broken; lists every problem.
    """

    arrow: pa.Schema
    last_column_id: int

    def __post_init__(self) -> None:
        _raise_problems(self.arrow)
        ids = [field_id(field) for _, field in _walk(self.arrow)]
        known = {id_ for id_ in ids if id_ is not None and 1 <= id_ <= self.last_column_id}
        if len(known) < len(ids):
            raise InvalidSchemaError(
                f"every field needs a unique id from 1 to {self.last_column_id}, found {ids}"
            )

    @classmethod
    def create(cls, columns: pa.Schema) -> Schema:
        """Return the schema of a new table. Ids count from 1, a struct before its fields, left to right.

        Extension types that only name another type (uuid, json, bool8) become that type; other metadata is dropped.

        Raises:
            UnsupportedTypeError: types that cannot be stored are the only problems.
            InvalidSchemaError: there are no columns, a name is given twice, or a dotted name is ambiguous.
        """
        plain = pa.schema([plain_field(field.with_type(strip_extension(field.type))) for field in columns])
        _raise_problems(plain)
        fields, last = numbered(plain, after=0)
        return cls(arrow=pa.schema(fields), last_column_id=last)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return self.last_column_id == other.last_column_id and bool(
            self.arrow.equals(other.arrow, check_metadata=True)
        )

    def __hash__(self) -> int:
        return hash((tuple(self.arrow.names), self.last_column_id))

    def __reduce__(self) -> tuple[Any, ...]:
        # pyarrow 26's own pickling loses a map's keys_sorted, and metadata (so ids) inside fixed-size lists
        return (Schema.from_json, (self.to_json(),))

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """All leaves, depth first in column order."""
        return tuple(leaf for field in self.arrow for leaf in _leaves(field, (), nullable=False))

    @cached_property
    def ids(self) -> frozenset[int]:
        """The ids of all columns and of the fields nested in them, at every depth."""
        return ids_in(self.arrow)

    @property
    def names(self) -> tuple[str, ...]:
        """The top-level columns' names, in order."""
        return tuple(self.arrow.names)

    @cached_property
    def logical(self) -> pa.Schema:
        """The logical types without ids."""
        return pa.schema([plain_field(field) for field in self.arrow])

    @cached_property
    def read_schema(self) -> pa.Schema:
        """The schema of a full scan: read types, without ids."""
        return pa.schema([field.with_type(read_type(field.type)) for field in self.logical])

    @cached_property
    def written(self) -> pa.Schema:
        """The schema that blocks are written with: read types, with ids."""
        return pa.schema([field.with_type(read_type(field.type)) for field in self.arrow])

    def leaf(self, name: str) -> Leaf:
        """Return the leaf with a dotted name. O(1) after the first call.

        Raises:
            UnknownColumnError: there is none (the nearest name is given), or the name is a struct's.
        """
        leaf = self._leaf_by_name.get(name)
        if leaf is not None:
            return leaf
        inside = [other.name for other in self.leaves if other.name.startswith(name + ".")]
        if inside:
            raise UnknownColumnError(
                f"column {name!r} is a struct, name one of its fields: {', '.join(inside[:8])}", column=name
            )
        raise changes.unknown_column(name, tuple(self._leaf_by_name))

    def leaf_by_id(self, id_: int) -> Leaf | None:
        """Return the leaf with an id, or None. O(1) after the first call."""
        return self._leaf_by_id.get(id_)

    @cached_property
    def _leaf_by_name(self) -> Mapping[str, Leaf]:
        return {leaf.name: leaf for leaf in self.leaves}

    @cached_property
    def _leaf_by_id(self) -> Mapping[int, Leaf]:
        return {leaf.id: leaf for leaf in self.leaves}

    def add_column(self, path: str | Sequence[str], data_type: pa.DataType) -> Schema:
        """Return the schema with a new nullable column at the end, or field at the end of a struct (`a.b`).

        Old rows read as null there.

        Raises:
            InvalidSchemaError: the name is taken, or `a` is not a struct.
            UnsupportedTypeError: the type cannot be stored.
        """
        arrow, last = changes.add(self.arrow, path, strip_extension(data_type), after=self.last_column_id)
        return Schema(arrow=arrow, last_column_id=last)

    def rename_column(self, path: str | Sequence[str], new_name: str) -> Schema:
        """Return the schema in which the field at `path` is called `new_name`, in the same struct.

        Raises:
            UnknownColumnError: no field has the path.
            InvalidSchemaError: the new name is taken, or the field is a list's element or a map's key or value.
        """
        return self._with_arrow(changes.rename(self.arrow, path, new_name))

    def drop_column(self, path: str | Sequence[str]) -> Schema:
        """Return the schema without the field at `path`.

        Raises:
            UnknownColumnError: no field has the path.
            InvalidSchemaError: it is the last column, the last field of a struct, or inside a map's key.
        """
        return self._with_arrow(changes.drop(self.arrow, path))

    def widen_column(self, path: str | Sequence[str], data_type: pa.DataType) -> Schema:
        """Return the schema in which the field at `path` has a wider type, one that holds all its values.

        Raises:
            UnknownColumnError: no field has the path.
            InvalidSchemaError: the type is not wider.
        """
        return self._with_arrow(changes.widen(self.arrow, path, data_type))

    def to_json(self) -> dict[str, Any]:
        """Return the object that a snapshot stores (`docs/FORMAT.md`, "Schema")."""
        return as_json.to_json(self.arrow, self.last_column_id)

    @classmethod
    def from_json(cls, value: object) -> Schema:
        """Return the schema of a stored object; strict.

        Raises:
            ValueError: anything is wrong; names where.
        """
        arrow, last_column_id = as_json.from_json(value)
        try:
            return cls(arrow=arrow, last_column_id=last_column_id)
        except InvalidSchemaError as cause:
            raise ValueError(f"schema: {cause}") from cause

    def _with_arrow(self, arrow: pa.Schema) -> Schema:
        return Schema(arrow=arrow, last_column_id=self.last_column_id)


def parse_schema(text: str) -> pa.Schema:
    """Parse `a: int64 not null, b: string`.

    Raises:
        InvalidSchemaError: names the position. What columns may not be is checked by `Schema.create`.
    """
    return pa.schema(fields_from_text(text))


def schema_differences(table: Schema, data: pa.Schema) -> tuple[str, ...]:
    """Return every reason why data of a schema cannot be appended to the table; empty if it can.

    Columns are matched by name, in any order. One that may be null may be absent: it is null then. Types are accepted
    if a cast loses nothing (`types.can_cast`); for others the cast to write is named, if there is one in SQL. Nullable
    data is accepted for a column that is not nullable: nulls are looked for in the data itself.
    """
    return tuple(_field_differences("", tuple(table.arrow), tuple(data)))


def _leaves(field: pa.Field, parents: tuple[str, ...], *, nullable: bool) -> Iterator[Leaf]:
    path = (*parents, field.name)
    nullable = nullable or field.nullable
    if pt.is_struct(field.type):
        for child in field.type:
            yield from _leaves(child, path, nullable=nullable)
        return
    id_ = field_id(field)
    assert id_ is not None  # the constructor checked it
    yield Leaf(id=id_, path=path, type=plain_field(field).type, nullable=nullable)


def _walk(schema: pa.Schema) -> Iterator[tuple[str, pa.Field]]:
    """Yield every field with its dotted name, parents before children."""

    def walk(prefix: str, fields: Sequence[pa.Field]) -> Iterator[tuple[str, pa.Field]]:
        for field in fields:
            yield prefix + field.name, field
            yield from walk(f"{prefix}{field.name}.", child_fields(field.type))

    return walk("", tuple(schema))


def _raise_problems(schema: pa.Schema) -> None:
    if not len(schema):
        raise InvalidSchemaError("a table needs at least one column")
    of_types = [problem for field in schema for problem in type_problems(field.type, field.name)]
    others: list[str] = []
    if not any("nested" in problem for problem in of_types):  # the walk below recurses
        others = _name_problems(schema)
    if not of_types and not others:
        return
    kind = InvalidSchemaError if others else UnsupportedTypeError
    problems = [*others, *of_types]
    raise kind("; ".join(problems), problems=tuple(problems))


def _name_problems(schema: pa.Schema) -> list[str]:
    fields = list(_walk(schema))
    problems = [
        f"the name {path!r} is used by {count} columns or fields, names must differ"
        for path, count in Counter(path for path, _ in fields).items()
        if count > 1
    ]
    problems += [f"field {path!r} has no name" for path, field in fields if not field.name]
    problems += [
        f"{path}: a column of type null must be nullable"
        for path, field in fields
        if pt.is_null(field.type) and not field.nullable
    ]
    return problems + [
        problem for field in schema for problem in _unreadable_lists(field, field.name, hidden=False)
    ]


def _unreadable_lists(field: pa.Field, path: str, *, hidden: bool) -> Iterator[str]:
    """Yield what is wrong with non-nullable fixed-size lists inside nullable fields.

    pyarrow 26 writes them and then fails to read them: "Expected all lists to be of size=2 but index 1 had size=0".
    Older ones cannot read those that may be null either.
    """
    is_fixed = bool(pt.is_fixed_size_list(field.type))
    if is_fixed and hidden and not field.nullable:
        yield f"{path}: a fixed_size_list inside a nullable field must be nullable itself, pyarrow cannot read it back"
    elif is_fixed and field.nullable and not older_arrow.READS_NULL_FIXED_SIZE_LISTS:
        yield (
            f"{path}: pyarrow {pa.__version__} cannot read back a fixed_size_list that may be null: "
            "use list, or pyarrow 26"
        )
    inside = (hidden or field.nullable) and (is_fixed or bool(pt.is_struct(field.type)))
    for child in child_fields(field.type):
        yield from _unreadable_lists(child, f"{path}.{child.name}", hidden=inside)


def _field_differences(prefix: str, table: Sequence[pa.Field], data: Sequence[pa.Field]) -> Iterator[str]:
    given = {field.name: field for field in data}
    for name, count in Counter(field.name for field in data).items():
        if count > 1:
            yield f"{prefix}{name}: given {count} times"
    for field in table:
        path = prefix + field.name
        other = given.pop(field.name, None)
        if other is not None:
            yield from _type_differences(path, field.type, strip_extension(other.type))
        elif not field.nullable:
            yield f"{path}: missing, expected {_expected(field)}"
    by_folded = {field.name.casefold(): field.name for field in table}
    for name in given:
        near = by_folded.get(name.casefold())
        hint = "" if near is None else f"; {prefix}{near} is: rename it"
        yield f"{prefix}{name}: not a column of the table{hint}"


def _type_differences(path: str, table: pa.DataType, data: pa.DataType) -> Iterator[str]:
    if not can_cast(table, data):
        cast = _sql_cast(path, table, data)
        hint = f"; if that loses nothing that you need, give {cast}" if cast else ""
        yield f"{path}: expected {type_to_text(table)}, got {_given(data)}{hint}"
        return
    if pt.is_null(data):
        return
    if pt.is_struct(table):
        yield from _field_differences(path + ".", tuple(table), tuple(data))
    elif pt.is_map(table):
        yield from _type_differences(path + ".key", table.key_type, strip_extension(data.key_type))
        yield from _type_differences(path + ".value", table.item_type, strip_extension(data.item_type))
    elif is_any_list(table):
        yield from _type_differences(
            f"{path}.{ELEMENT_NAME}", table.value_type, strip_extension(data.value_type)
        )


_SQL = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float32": "REAL",
    "float64": "DOUBLE",
    "date32": "DATE",
    "string": "VARCHAR",
}
"""How types are called in SQL, by their texts here."""


def _sql_cast(path: str, table: pa.DataType, data: pa.DataType) -> str | None:
    """Return a cast in SQL to a column's type; None if there is none from that type, or the name needs quotes."""
    if not path.isidentifier() or child_fields(table) or child_fields(data) or pt.is_duration(data):
        return None
    table = table.value_type if pt.is_dictionary(table) else table
    if pt.is_timestamp(table):
        name = "TIMESTAMP WITH TIME ZONE" if table.tz else "TIMESTAMP"
    elif pt.is_decimal(table):
        name = f"DECIMAL({table.precision}, {table.scale})"
    else:
        name = _SQL.get("string" if is_any_string(table) else type_to_text(table), "")
    return f"CAST({path} AS {name})" if name else None


def _expected(field: pa.Field) -> str:
    return type_to_text(field.type) + ("" if field.nullable else " not null")


def _given(data_type: pa.DataType) -> str:
    try:
        return type_to_text(data_type)
    except UnsupportedTypeError:
        return str(data_type)
