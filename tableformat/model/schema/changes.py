"""Changes of a schema whose fields carry ids. Pure; data is never touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.errors import InvalidSchemaError, UnknownColumnError
from tblctl.tableformat.model.schema.field_ids import numbered, plain_field
from tblctl.tableformat.model.schema.types import (
    can_widen,
    check_supported,
    child_fields,
    type_to_text,
    with_child_fields,
)

_Path = tuple[str, ...]
_Change = Callable[[pa.Field], pa.Field | None]


def add(
    schema: pa.Schema, path: str | Sequence[str], data_type: pa.DataType, *, after: int
) -> tuple[pa.Schema, int]:
    """Return the schema with a nullable field added at the end of its parent, and the last id given."""
    parent, name = _split_new(schema, path)
    shown = ".".join((*parent, name))
    if not name:
        raise InvalidSchemaError("a new column needs a name")
    if "key" in parent:
        _refuse_in_map_key(schema, parent, "add a field to")
    check_supported(data_type, shown)
    (field,), last = numbered([plain_field(pa.field(name, data_type))], after=after)
    if not parent:
        if name in schema.names:
            raise InvalidSchemaError(f"column {name!r} already exists")
        return schema.append(field), last

    def append(struct: pa.Field) -> pa.Field:
        if not pt.is_struct(struct.type):
            raise InvalidSchemaError(f"cannot add {shown!r}: {'.'.join(parent)!r} is not a struct")
        if struct.type.get_field_index(name) >= 0:
            raise InvalidSchemaError(f"field {shown!r} already exists")
        return struct.with_type(pa.struct([*struct.type, field]))

    return _change(schema, parent, append), last


def rename(schema: pa.Schema, path: str | Sequence[str], new_name: str) -> pa.Schema:
    """Return the schema in which the field at `path` is called `new_name`."""
    found = find(schema, path)
    _refuse_fixed(schema, found, "rename")
    if not new_name:
        raise InvalidSchemaError(f"column {'.'.join(found)!r} needs a new name that is not empty")
    return _change(schema, found, lambda field: field.with_name(new_name))


def drop(schema: pa.Schema, path: str | Sequence[str]) -> pa.Schema:
    """Return the schema without the field at `path`."""
    found = find(schema, path)
    _refuse_fixed(schema, found, "drop")
    return _change(schema, found, lambda _: None)


def widen(schema: pa.Schema, path: str | Sequence[str], data_type: pa.DataType) -> pa.Schema:
    """Return the schema in which the field at `path` has a wider type."""
    found = find(schema, path)
    name = ".".join(found)
    check_supported(data_type, name)
    _refuse_in_map_key(schema, found, "widen")

    def change(field: pa.Field) -> pa.Field:
        old = plain_field(field).type
        new = plain_field(pa.field(name, data_type)).type
        if not can_widen(old, new):
            raise InvalidSchemaError(
                f"column {name!r} cannot be widened from {type_to_text(old)} to {type_to_text(new)}: "
                f"{_why_not_wider(old, new)}; add a column and fill it instead"
            )
        children = child_fields(field.type)  # a list keeps its element with its id
        return field.with_type(with_child_fields(data_type, children) if children else data_type)

    return _change(schema, found, change)


def find(schema: pa.Schema, path: str | Sequence[str]) -> _Path:
    """Return the steps to the field with a dotted name, or check a path that is given as steps.

    Raises:
        UnknownColumnError: there is no such field; the nearest name is given.
    """
    known = {".".join(steps): steps for steps in _all_paths(tuple(schema), ())}
    name = path if isinstance(path, str) else ".".join(path)
    steps = known.get(name)
    if steps is None or (not isinstance(path, str) and tuple(path) != steps):
        raise unknown_column(name, tuple(known))
    return steps


def _all_paths(fields: Sequence[pa.Field], parents: _Path) -> list[_Path]:
    paths: list[_Path] = []
    for field in fields:
        path = (*parents, field.name)
        paths += [path, *_all_paths(child_fields(field.type), path)]
    return paths


def _split_new(schema: pa.Schema, path: str | Sequence[str]) -> tuple[_Path, str]:
    """Return the parent's steps and the name of a field to add. In text, the longest known parent counts."""
    if not isinstance(path, str):
        *parent, name = path
        return (find(schema, parent) if parent else ()), name
    parent_name, dot, name = path.rpartition(".")
    if not dot:
        return (), path
    return find(schema, parent_name), name


def _change(schema: pa.Schema, path: _Path, change: _Change) -> pa.Schema:
    fields = _change_in(tuple(schema), path, change)
    if not fields:
        raise InvalidSchemaError(f"column {path[0]!r} is the last one, a table needs at least one column")
    return pa.schema(fields)


def _change_in(fields: tuple[pa.Field, ...], path: _Path, change: _Change) -> tuple[pa.Field, ...]:
    changed: list[pa.Field] = []
    for field in fields:
        if field.name != path[0]:
            changed.append(field)
            continue
        if len(path) == 1:
            new = change(field)
            changed += [new] if new is not None else []
            continue
        children = _change_in(child_fields(field.type), path[1:], change)
        if not children:
            raise InvalidSchemaError(
                f"field {path[1]!r} is the last one of struct {field.name!r}; drop the struct instead"
            )
        changed.append(field.with_type(with_child_fields(field.type, children)))
    return tuple(changed)


def _refuse_fixed(schema: pa.Schema, path: _Path, verb: str) -> None:
    """Refuse to rename or drop anything but a named field of a struct, and anything inside a map's key."""
    _refuse_in_map_key(schema, path, verb)
    if len(path) > 1 and not pt.is_struct(_type_at(schema, path[:-1])):
        raise InvalidSchemaError(f"cannot {verb} {'.'.join(path)!r}: it is part of {'.'.join(path[:-1])!r}")


def _refuse_in_map_key(schema: pa.Schema, path: _Path, verb: str) -> None:
    """Refuse a change of a map's keys: two keys that differed might become equal."""
    for depth in range(1, len(path)):
        if path[depth] == "key" and pt.is_map(_type_at(schema, path[:depth])):
            raise InvalidSchemaError(f"cannot {verb} {'.'.join(path)!r}: the keys of a map do not change")


def _type_at(schema: pa.Schema, path: _Path) -> pa.DataType:
    first, *rest = path
    found = schema.field(first)
    for step in rest:
        found = next(child for child in child_fields(found.type) if child.name == step)
    return found.type


def _why_not_wider(old: pa.DataType, new: pa.DataType) -> str:
    if old == new:
        return "it has that type already"
    if pt.is_timestamp(new) and new.unit == "ns":
        return "nanoseconds end in the year 2262, later values would be lost"
    return "not every old value has the same value in the new type"


def unknown_column(name: str, known: Sequence[str]) -> UnknownColumnError:
    """Return the error for a name that no column has, with the nearest name or the first names."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    more = f" and {len(known) - 8} more" if len(known) > 8 else ""  # noqa: PLR2004
    hint = f"did you mean {near[0]!r}?" if near else f"columns are {', '.join(known[:8])}{more}"
    return UnknownColumnError(f"no column {name!r}; {hint}", column=name)
