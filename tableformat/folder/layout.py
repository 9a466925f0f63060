"""The columns of files of other writers, and one schema for files that differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.errors import InvalidSchemaError, SchemaMismatchError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import (
    can_widen,
    child_fields,
    is_orderable,
    map_children,
    read_type,
    statistic_type,
    strip_extension,
    type_problems,
)
from tblctl.tableformat.parquet.statistics import parquet_columns

Path = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StoredLeaf:
    """A column of a file with statistics: where its column chunks are, and the type of its bounds."""

    path: Path
    place: int
    kind: pa.DataType


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """The columns of some files.

    Attributes:
        stored: the schema of the files, without metadata.
        first: the name of one of the files, for messages.
    """

    stored: pa.Schema
    first: str

    @cached_property
    def columns(self) -> pa.Schema:
        """The columns as a table has them: without extensions, dictionaries and large types, all nullable."""
        plain = [pa.field(item.name, _plain(item.type)) for item in self.stored]
        return pa.schema([item for item in plain if not type_problems(item.type, item.name)])

    @cached_property
    def leaves(self) -> tuple[StoredLeaf, ...]:
        """The columns with bounds, in order."""
        return tuple(_leaves(self.stored, (), 0))

    @cached_property
    def paths(self) -> frozenset[Path]:
        """All columns reached through structs, lists and maps among them."""
        return frozenset(leaf.path for leaf in _schema_of(self).leaves)


def _leaves(fields: Sequence[pa.Field], above: Path, place: int) -> Iterator[StoredLeaf]:
    for item in fields:
        kind = strip_extension(item.type)
        path = (*above, item.name)
        if pt.is_struct(kind):
            yield from _leaves(list(kind), path, place)
        elif is_orderable(kind) and not pt.is_float16(kind) and not type_problems(kind, item.name):
            yield StoredLeaf(path=path, place=place, kind=statistic_type(kind))
        place += parquet_columns(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    kind = read_type(strip_extension(kind))
    if pt.is_dictionary(kind):
        kind = kind.value_type
    if pt.is_large_string(kind):
        return pa.string()
    if pt.is_large_binary(kind):
        return pa.binary()
    return (
        map_children(kind, lambda child: pa.field(child.name, _plain(child.type)))
        if _is_struct(kind)
        else kind
    )


def _is_struct(kind: pa.DataType) -> bool:
    return bool(pt.is_struct(kind)) and bool(child_fields(kind))


def _schema_of(layout: Layout) -> Schema:
    try:
        return Schema.create(layout.columns)
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f"{layout.first}: {error}") from error


def unified(layouts: Sequence[Layout], location: str) -> pa.Schema:
    """Return the columns of all files: each with the type that holds the values of all, in the order of the first.

    `location` is for messages.

    Raises:
        InvalidSchemaError: a file has two columns of one name, or none that tblctl can read; names it.
        SchemaMismatchError: a column has types of which none holds the other's values; names file and column.
    """
    found: dict[str, pa.Field] = {}
    origin: dict[str, str] = {}
    for layout in layouts:
        _schema_of(layout)
        for item in layout.columns:
            mine = found.get(item.name)
            both = item.type if mine is None else wider(mine.type, item.type)
            if mine is not None and both is None:
                difference = (
                    f"{item.name} is {item.type} in {layout.first}, and {mine.type} in {origin[item.name]}"
                )
                msg = f"files of {location} have different schemas: {difference}; name files of one schema by a glob"
                raise SchemaMismatchError(msg, differences=(difference,))
            if mine is None or both != mine.type:
                origin[item.name] = layout.first
            found[item.name] = pa.field(item.name, both)
    return pa.schema(list(found.values()))


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both; None if neither does."""
    if one == other:
        return one
    if _is_struct(one) and _is_struct(other):
        children = {child.name: child.type for child in child_fields(one)}
        for child in child_fields(other):
            both = wider(children[child.name], child.type) if child.name in children else child.type
            if both is None:
                return None
            children[child.name] = both
        return pa.struct(list(children.items()))
    return other if can_widen(one, other) else one if can_widen(other, one) else None


def absent(layouts: Sequence[Layout], schema: Schema) -> list[tuple[Layout, list[str]]]:
    """Return the layouts that lack columns, with the names of these."""
    missing = [
        (item, [leaf.name for leaf in schema.leaves if leaf.path not in item.paths]) for item in layouts
    ]
    return [(item, names) for item, names in missing if names]
