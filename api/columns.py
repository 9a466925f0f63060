"""The columns of a table to be created, from what people have at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tblctl.tableformat.errors import InvalidSchemaError
from tblctl.tableformat.model.frames import with_index
from tblctl.tableformat.model.schema.schema import parse_schema
from tblctl.tableformat.model.schema.types import type_from_text


def columns_of(given: Any) -> pa.Schema:
    """Return the columns that a text, a schema, a mapping of names to types, or a table in memory describes.

    Raises:
        InvalidSchemaError: it describes none; or names every column whose type is none.
    """
    if isinstance(given, str):
        return parse_schema(given)
    if isinstance(given, pa.Schema):
        return given
    if hasattr(given, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(with_index(given)).schema.remove_metadata()
    if hasattr(given, "__arrow_c_schema__"):
        return pa.schema(given)
    if isinstance(given, Mapping):
        return _of_mapping(given)
    kind = f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("builtins.")
    raise InvalidSchemaError(f"{_EXPECTED}, got {kind}")


_EXPECTED = (
    'expected columns as text ("a: int64 not null, b: string"), a pyarrow schema, a dict of names and types, or a '
    "table in memory (pyarrow, pandas, Polars)"
)


def _of_mapping(given: Mapping[Any, Any]) -> pa.Schema:
    if given and all(isinstance(value, list) for value in given.values()):
        return pa.table(dict(given)).schema
    fields, problems = [], []
    for name, kind in given.items():
        try:
            fields.append(
                pa.field(str(name), kind if isinstance(kind, pa.DataType) else type_from_text(kind))
            )
        except (TypeError, AttributeError):
            problems.append(f"{name!r}: expected a type such as 'int64' or 'string', got {kind!r}")
        except InvalidSchemaError as error:
            problems.append(f"{name!r}: {error}")
    if problems or not fields:
        raise InvalidSchemaError("; ".join(problems) or f"{_EXPECTED}, got a dict without columns")
    return pa.schema(fields)
