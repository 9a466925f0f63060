"""Find files whose columns are not those of the table: a column that is not found by its id would be read as null.

By Iceberg's rules a column that a file lacks is null in all its rows: it was added later. So where the manifest counts
no nulls of it, nothing contradicts a file whose writer had ids of its own. Then everything else that is known decides:

- The manifest has a bound of the column, or counts values or bytes of it. So the file has it, by another id.
- The file has a column of the same name by another id. That is right only if some schema of the table gave this id to
  this name: the column was dropped or renamed later, and the name given anew.
- The file has a column of the same name without id, which the name mapping does not name.

Such a file is refused. What is left is a file that gives no sign at all: every reader takes the column for null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.errors import CorruptTableError, InvalidDataError
from tblctl.tableformat.iceberg.reading.column_ids import NAME_MAPPING
from tblctl.tableformat.iceberg.reading.data_file import DataFile
from tblctl.tableformat.iceberg.reading.given_ids import GivenIds
from tblctl.tableformat.model.schema.field_ids import field_id
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import child_fields
from tblctl.tableformat.parquet.reader import BlockFile

_ALLOWED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def require_columns(file: BlockFile, block: DataFile, schema: Schema, *, given: GivenIds) -> None:
    """Compare a file's columns with the table's, and their nulls with those that its manifest counts.

    Args:
        file: the open file.
        block: its entry in the manifest.
        schema: the columns to read.
        given: the ids that the table gave.

    Raises:
        CorruptTableError: a column differs: maybe it was written with other ids, and would be read as null.
        InvalidDataError: the file lacks a field of a struct that it is partitioned by, or the name mapping a name.
    """
    counted: Mapping[int, int] = dict(block.null_counts)
    constants = dict(block.constants)
    for leaf in schema.leaves:
        if leaf.id in constants and leaf.id not in file.leaf_ids and len(leaf.path) > 1:
            msg = (
                f"{block.path}: it lacks {leaf.name!r}, a field of a struct that the table is partitioned by; rewrite "
                "the file with an engine"
            )
            raise InvalidDataError(msg)
        expected = counted.get(leaf.id, -1)
        if expected < 0 or pt.is_nested(leaf.type):
            continue
        found = _nulls(file, block, leaf, is_constant=leaf.id in constants)
        if found is not None and found != expected:
            msg = (
                f"{block.path}: {found} nulls would be read of column {leaf.name!r} (id {leaf.id}), and its "
                f"manifest counts {expected}; nothing was changed. Were its columns written with other ids?"
            )
            raise CorruptTableError(msg, name=block.path)
    for missing in _missing(list(schema.arrow), list(file.schema), ()):
        _require_absent(missing, block, given)


def primitive_ids(fields: Iterable[pa.Field]) -> frozenset[int]:
    """Return the ids of fields and of those nested in them that have values of their own, at every depth."""
    found: set[int] = set()
    waiting = list(fields)
    while waiting:
        item = waiting.pop()
        children = child_fields(item.type)
        waiting += children
        id_ = field_id(item)
        if id_ is not None and not children:
            found.add(id_)
    return frozenset(found)


def _nulls(file: BlockFile, block: DataFile, leaf: Leaf, *, is_constant: bool) -> int | None:
    """Return how many nulls reading a column would give; None if that is not known."""
    if leaf.id not in file.leaf_ids:
        return None if is_constant else block.stored_rows
    if len(leaf.path) > 1:  # how nulls inside structs are counted differs among writers
        return None
    return file.stored_nulls(range(file.metadata.num_row_groups), leaf)


@dataclass(frozen=True)
class _Missing:
    """A column of the table, or a field inside one, that a file lacks by its id.

    Attributes:
        field: the table's.
        path: the names that lead to it.
        others: the fields that the file has in its place.
    """

    field: pa.Field
    path: tuple[str, ...]
    others: Sequence[pa.Field]


def _missing(
    columns: Sequence[pa.Field], fields: Sequence[pa.Field], path: tuple[str, ...]
) -> Iterator[_Missing]:
    """Yield the columns of a table that a file lacks; of a column that it lacks as a whole, nothing inside."""
    by_id = {field_id(field): field for field in fields}
    for column in columns:
        here = (*path, column.name)
        match = by_id.get(field_id(column))
        if match is None:
            yield _Missing(column, here, fields)
        else:
            yield from _missing_inside(column.type, match.type, here)


def _missing_inside(wanted: pa.DataType, kind: pa.DataType, path: tuple[str, ...]) -> Iterator[_Missing]:
    if pt.is_struct(wanted) and pt.is_struct(kind):
        yield from _missing(child_fields(wanted), child_fields(kind), path)
        return
    for inner, other in zip(child_fields(wanted), child_fields(kind), strict=False):  # found by their place
        yield from _missing_inside(inner.type, other.type, (*path, inner.name))


def _require_absent(missing: _Missing, block: DataFile, given: GivenIds) -> None:
    """Refuse a file that lacks a column, although something says that it has it."""
    column, name = missing.field, ".".join(missing.path)
    wanted = field_id(column)
    known = primitive_ids([column]) - {id_ for id_, _ in block.constants}
    if known.intersection(block.stored_ids):
        msg = (
            f"{block.path}: its manifest has values of column {name!r} (id {wanted}), and the file no column of that "
            "id: it would be read as null; nothing was changed. Were its columns written with other ids?"
        )
        raise CorruptTableError(msg, name=block.path)
    if wanted in dict(block.constants):  # it is taken from the partition, whatever the file calls so
        return
    names = {column.name, _as_written(column.name)}
    for other in missing.others:
        if other.name not in names:
            continue
        own = field_id(other)
        if own is None:
            msg = (
                f"{block.path}: its column {name!r} has no id, and is not found by the table's property "
                f"{NAME_MAPPING}: it would be read as null; nothing was changed. If none of its columns has an id, add "
                f"the name to the mapping (id {wanted}); or rewrite the file with an engine"
            )
            raise InvalidDataError(msg)
        objection = given.objection(column.name, own)
        if objection is not None:
            msg = (
                f"{block.path}: its column {name!r} has id {own}, {objection}; the table's has id {wanted}, and would "
                "be read as null; nothing was changed. Rewrite the file with an engine"
            )
            raise CorruptTableError(msg, name=block.path)


def _as_written(name: str) -> str:
    """Return how Iceberg's writers call a column in files: names that Avro does not allow are changed."""
    if _ALLOWED.fullmatch(name):
        return name  # without PyIceberg, which workers need not have
    from pyiceberg.schema import make_compatible_name

    return make_compatible_name(name) if name else name
