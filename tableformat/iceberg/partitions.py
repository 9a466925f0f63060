"""Partitions of files, as texts: `region=eu/ts_day=2024-01-01`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.iceberg.avro.columns import Decoder, Slices, Sparse, Value
from tblctl.tableformat.iceberg.avro.container import Container
from tblctl.tableformat.iceberg.entries import FileEntries

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema as IcebergSchema

_PARTITION_ID = 102


@dataclass(frozen=True, kw_only=True, eq=False)
class Partitions:
    """The partition of each of n files.

    Attributes:
        code: the place of each file's partition in `texts`.
        texts: the partitions; empty text for the files of a table without partitions.
    """

    code: np.ndarray
    texts: tuple[str, ...]


def partitions_of(
    files: FileEntries,
    layouts: Sequence[Any],
    specs: Mapping[int, PartitionSpec],
    schema: IcebergSchema,
    current: int,
) -> Partitions:
    """Return the partitions of files. Each distinct one is decoded once.

    Files of two specs are in two partitions, even if the values are the same. A partition of another spec than the
    table's current one says so.

    Args:
        files: the files.
        layouts: the Avro schemas of entries.
        specs: the table's specs by id.
        schema: the table's current schema.
        current: the id of the table's current spec.
    """
    code = np.zeros(len(files), np.int64)
    texts: dict[str, int] = {}
    pairs, which = np.unique(np.stack((files.spec_id, files.layout)), axis=1, return_inverse=True)
    for number, (spec_id, layout) in enumerate(pairs.T.tolist()):
        rows = np.flatnonzero(which == number)
        distinct = pc.dictionary_encode(files.partition.take(pa.array(rows)).fill_null(b""))
        spec = specs.get(spec_id)
        if spec is None or not spec.fields:
            named = [""] * len(distinct.dictionary)
        else:
            named = _texts(distinct.dictionary, _partition_layout(layouts[layout]), spec, schema)
        if spec_id != current:
            named = [f"{name} (spec {spec_id})".strip() for name in named]
        places = np.array([texts.setdefault(text, len(texts)) for text in named], np.int64)
        code[rows] = places[np.asarray(distinct.indices)]
    return Partitions(code=code, texts=tuple(texts) or ("",))


def _partition_layout(entry_schema: Any) -> Any:
    """Return how a manifest encodes partitions: the Avro schema of that field of its entries."""
    for field in entry_schema["fields"]:
        if field.get("field-id") == 2 or field["name"] == "data_file":  # noqa: PLR2004
            for inner in field["type"]["fields"]:
                if inner.get("field-id") == _PARTITION_ID or inner["name"] == "partition":
                    return inner["type"]
    return None


def _texts(encoded: pa.Array, layout: Any, spec: PartitionSpec, schema: IcebergSchema) -> list[str]:
    blocks = tuple(encoded.to_pylist())
    container = Container(
        schema=layout, schema_text=b"", metadata={}, blocks=blocks, counts=(1,) * len(blocks)
    )
    selection = {field.field_id: Value() for field in spec.fields} | {
        field.name: Value() for field in spec.fields
    }
    values: dict[int, list[Any]] = {field.field_id: [] for field in spec.fields}
    for count, found, _ in Decoder(layout, selection).decode([container]):
        for field in spec.fields:
            held = found.get(field.field_id, found.get(field.name))
            values[field.field_id] += _python(held, count)
    columns = [[_human(field, value, schema) for value in values[field.field_id]] for field in spec.fields]
    return ["/".join(parts) for parts in zip(*columns, strict=True)]


def _python(held: Any, count: int) -> list[Any]:
    """Return decoded values as Python values, None for null."""
    if held is None:
        return [None] * count
    if isinstance(held, Sparse):
        found: list[Any] = [None] * count
        if held.values is not None:
            for row, value in zip(held.rows.tolist(), _python(held.values, len(held.rows)), strict=True):
                found[row] = value
        return found
    values: list[Any] = (held.to_arrow() if isinstance(held, Slices) else held).tolist()
    return values


def _human(field: PartitionField, value: Any, schema: IcebergSchema) -> str:
    """Return a value of a partition field, as people read it."""
    if value is None:
        return f"{field.name}=null"
    try:
        source = schema.find_type(field.source_id)
        result = field.transform.result_type(source)
        return f"{field.name}={field.transform.to_human_string(source, _typed(value, result))}"
    except (
        ValueError,
        TypeError,
        OverflowError,
        AttributeError,
    ):  # the column was dropped, or the transform is unknown
        return f"{field.name}={value!r}" if isinstance(value, bytes) else f"{field.name}={value}"


def _typed(value: Any, result: Any) -> Any:
    """Return a decoded value as PyIceberg has it in partitions of a type."""
    from pyiceberg.types import BooleanType, DecimalType, StringType, UUIDType

    if isinstance(result, StringType) and isinstance(value, bytes):
        return value.decode()
    if isinstance(result, DecimalType) and isinstance(value, bytes):
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-result.scale)
    if isinstance(result, UUIDType) and isinstance(value, bytes):
        return UUID(bytes=value)
    if isinstance(result, BooleanType):
        return bool(value)
    return value
