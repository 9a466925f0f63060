"""Find files whose columns are not those of the table: a column that is not found by its id would be read as null."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tblctl.tableformat.errors import CorruptTableError, InvalidDataError
from tblctl.tableformat.iceberg.reading.data_file import DataFile
from tblctl.tableformat.model.schema.field_ids import field_id
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.parquet.reader import BlockFile


def require_columns(file: BlockFile, block: DataFile, schema: Schema, *, last_id: int) -> None:
    """Compare a file's columns with the table's, and their nulls with those that its manifest counts.

    Args:
        file: the open file.
        block: its entry in the manifest.
        schema: the columns to read.
        last_id: the highest id that the table ever gave.

    Raises:
        CorruptTableError: a column differs: maybe it was written with other ids, and would be read as null.
        InvalidDataError: the file lacks a field of a struct that it is partitioned by.
    """
    _require_ids(file, block, schema, last_id)
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
        if expected < 0 or pa.types.is_nested(leaf.type):
            continue
        found = _nulls(file, block, leaf, is_constant=leaf.id in constants)
        if found is not None and found != expected:
            msg = (
                f"{block.path}: {found} nulls would be read of column {leaf.name!r} (id {leaf.id}), and its "
                f"manifest counts {expected}; nothing was changed. Were its columns written with other ids?"
            )
            raise CorruptTableError(msg, name=block.path)


def _nulls(file: BlockFile, block: DataFile, leaf: Leaf, *, is_constant: bool) -> int | None:
    """Return how many nulls reading a column would give; None if that is not known."""
    if leaf.id not in file.leaf_ids:
        return None if is_constant else block.stored_rows
    if len(leaf.path) > 1:  # how nulls inside structs are counted differs among writers
        return None
    return file.stored_nulls(range(file.metadata.num_row_groups), leaf)


def _require_ids(file: BlockFile, block: DataFile, schema: Schema, last_id: int) -> None:
    """Refuse a file that has a column of the table's name by an id that the table never gave."""
    ids = {field.name: field_id(field) for field in file.schema}
    there = set(ids.values())
    for column in schema.arrow:
        wanted, given = field_id(column), ids.get(column.name)
        if wanted not in there and given is not None and given > last_id:
            msg = (
                f"{block.path}: its column {column.name!r} has id {given}, which the table never gave; the table's has "
                f"id {wanted}, and would be read as null; nothing was changed. Rewrite the file with an engine"
            )
            raise CorruptTableError(msg, name=block.path)
