"""Partitions of files, as texts: `region=eu/ts_day=2024-01-01`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.iceberg.avro.chunk import Slices
from tblctl.tableformat.iceberg.avro.columns import Decoder, Sparse, Value
from tblctl.tableformat.iceberg.avro.container import Container
from tblctl.tableformat.iceberg.entries import FileEntries
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.types import IcebergType

_PARTITION_ID = 102
_UUID_BYTES = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Partitions:
    """The partition of each of n files.

    Attributes:
        code: the place of each file's partition in `texts`.
        texts: the partitions, all different; empty text for the files of a table without partitions.
        spec_ids: the spec of each partition.
        values: the values of each partition's fields, as PyIceberg has them.
    """

    code: np.ndarray
    texts: tuple[str, ...]
    spec_ids: tuple[int, ...] = ()
    values: tuple[tuple[Any, ...], ...] = ()


def partitions_of(
    files: FileEntries,
    layouts: Sequence[Any],
    specs: Mapping[int, PartitionSpec],
    schema: IcebergSchema,
    current: int,
) -> Partitions:
    """Return the partitions of files. Each distinct one is decoded once.

    Files of two specs are in two partitions, even if the values are the same. A partition of another spec than the
    table's current one says so. Files of an unknown spec are together only if their encoded partitions are equal.

    Args:
        files: the files.
        layouts: the Avro schemas of entries.
        specs: the table's specs by id.
        schema: the table's current schema.
        current: the id of the table's current spec.
    """
    code = np.zeros(len(files), np.int64)
    known: dict[_Key, int] = {}
    names: list[str] = []
    held: list[tuple[Any, ...]] = []
    pairs, which = np.unique(np.stack((files.spec_id, files.layout)), axis=1, return_inverse=True)
    for number, (spec_id, layout) in enumerate(pairs.T.tolist()):
        rows = np.flatnonzero(which == number)
        distinct = pc.dictionary_encode(files.partition.take(pa.array(rows)))
        spec = specs.get(spec_id)
        values: list[tuple[Any, ...]]
        if spec is None:
            values = [(value,) for value in distinct.dictionary.to_pylist()]
            named = [""] * len(values)
        elif not spec.fields:
            values, named = [() for _ in distinct.dictionary], [""] * len(distinct.dictionary)
        else:
            values, named = _values(distinct.dictionary, _partition_layout(layouts[layout]), spec, schema)
        if spec_id != current:
            named = [f"{name} (spec {spec_id})".strip() for name in named]
        places = []
        for value, name in zip(values, named, strict=True):
            key = (spec_id, tuple(map(repr, value)))  # NaN equals itself, and 0.0 is not -0.0
            if key not in known:
                known[key] = len(names)
                names.append(name)
                held.append(value)
            places.append(known[key])
        code[rows] = np.array(places, np.int64)[np.asarray(distinct.indices)]
    return Partitions(
        code=code,
        texts=_told_apart(names, list(known)) or ("",),
        spec_ids=tuple(spec_id for spec_id, _ in known),
        values=tuple(held),
    )


def identity_values(
    leaf: Leaf, partitions: Partitions, specs: Mapping[int, PartitionSpec]
) -> tuple[pa.Array, np.ndarray] | None:
    """Return the value that all rows of each file have of a column, where files are partitioned by the column itself.

    Returns:
        values of the column's statistic type, one for each file, and where there is one; None if there is none at all.
    """
    return values_of(leaf.id, "identity", statistic_type(leaf.type), partitions, specs)


_TIMES = ("year", "month", "day", "hour")


def values_of(
    column_id: int,
    transform: str,
    kind: pa.DataType,
    partitions: Partitions,
    specs: Mapping[int, PartitionSpec],
) -> tuple[pa.Array, np.ndarray] | None:
    """Return the value that all rows of each file have of a transform of a column, where files are partitioned by it.

    Times before 1970 are left out: old writers rounded them up.

    Returns:
        values of the type `kind`, one for each file, and where there is one; None if there is none at all.
    """
    places = {
        spec_id: place
        for spec_id, spec in specs.items()
        for place, field in enumerate(spec.fields)
        if field.source_id == column_id and str(field.transform) == transform
    }
    held = np.array([spec_id in places for spec_id in partitions.spec_ids], bool)
    if not held.any():
        return None
    found = [
        values[places[spec_id]] if spec_id in places else None
        for spec_id, values in zip(partitions.spec_ids, partitions.values, strict=True)
    ]
    try:
        typed = _arrow(found, kind)
    except (pa.ArrowException, TypeError, OverflowError):  # a value from before the column got another type
        return None
    if pa.types.is_floating(kind):
        held &= ~np.asarray(pc.fill_null(pc.is_nan(typed), fill_value=False), bool)
    if transform in _TIMES:
        held &= np.array([value is None or value >= 0 for value in found], bool)
    return typed.take(pa.array(partitions.code)), held[partitions.code]


def partition_scalar(value: Any, leaf: Leaf) -> pa.Scalar | None:
    """Return a partition's value as one of the column that files are partitioned by; None if it was of another type."""
    kind = statistic_type(leaf.type)
    try:
        return _arrow([value], kind)[0]
    except (pa.ArrowException, TypeError, OverflowError):
        return None


def _arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values of a partition field as Arrow has them. Dates and times are whole numbers."""
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)  # noqa: PLR2004
    return pa.array([value.bytes if isinstance(value, UUID) else value for value in values], kind)


_Key = tuple[int, tuple[str, ...]]
"""The identity of a partition: its spec, and its values."""


def _told_apart(names: Sequence[str], keys: Sequence[_Key]) -> tuple[str, ...]:
    """Return the names. Those of several partitions have a hash of the values added: null, and the text `null`."""
    times = Counter(names)
    return tuple(
        name
        if times[name] == 1
        else f"{name} #{blake2b(repr(key).encode(), digest_size=6).hexdigest()}".strip()
        for name, key in zip(names, keys, strict=True)
    )


def _partition_layout(entry_schema: Any) -> Any:
    """Return how a manifest encodes partitions: the Avro schema of that field of its entries."""
    for field in entry_schema["fields"]:
        if field.get("field-id") == 2 or field["name"] == "data_file":  # noqa: PLR2004
            for inner in field["type"]["fields"]:
                if inner.get("field-id") == _PARTITION_ID or inner["name"] == "partition":
                    return inner["type"]
    return None


def _values(
    encoded: pa.Array, layout: Any, spec: PartitionSpec, schema: IcebergSchema
) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Return the values of encoded partitions, and their names."""
    blocks = tuple(encoded.to_pylist())
    container = Container(
        schema=layout, schema_text=b"", metadata={}, blocks=blocks, counts=(1,) * len(blocks)
    )
    selection = {key: Value() for field in spec.fields for key in (field.field_id, field.name)}
    values: dict[int, list[Any]] = {field.field_id: [] for field in spec.fields}
    for count, found, _ in Decoder(layout, selection).decode([container]):
        for field in spec.fields:
            held = found.get(field.field_id, found.get(field.name))
            values[field.field_id] += _python(held, count)
    named = []
    for field in spec.fields:
        source = source_of(field, schema)
        values[field.field_id] = [_typed(value, field, source) for value in values[field.field_id]]
        named.append(
            [f"{field.name}={human_value(value, field, source)}" for value in values[field.field_id]]
        )
    names = ["/".join(parts) for parts in zip(*named, strict=True)]
    return list(zip(*(values[field.field_id] for field in spec.fields), strict=True)), names


def source_of(field: PartitionField, schema: IcebergSchema) -> IcebergType | None:
    """Return the type of the column that a field is made of; None if it was dropped."""
    try:
        return schema.find_type(field.source_id)
    except ValueError:
        return None


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


def human_value(value: Any, field: PartitionField, source: IcebergType | None) -> str:
    """Return the text of a value of a partition field, as people read it."""
    from pyiceberg.types import UnknownType

    try:
        return str(field.transform.to_human_string(source or UnknownType(), value))
    except (ValueError, TypeError, OverflowError):  # a time that Python has not
        return str(value)


def _typed(value: Any, field: PartitionField, source: IcebergType | None) -> Any:
    """Return a decoded value as PyIceberg has it in partitions. Of a dropped column, bytes that are text are."""
    from pyiceberg.types import BooleanType, DecimalType, StringType, UUIDType

    if value is None:
        return None
    result = None if source is None else field.transform.result_type(source)
    if isinstance(value, bytes):
        if isinstance(result, DecimalType):
            return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-result.scale)
        if isinstance(result, UUIDType) and len(value) == _UUID_BYTES:
            return UUID(bytes=value)
        if result is None or isinstance(result, StringType):
            return _text(value)
    return bool(value) if isinstance(result, BooleanType) else value


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def constants_of(
    partitions: Partitions, row: int, specs: Mapping[int, PartitionSpec], schema: Schema
) -> tuple[tuple[int, object], ...]:
    """Return the values of columns that a file, by its row, is partitioned by as they are, by id."""
    code = int(partitions.code[row])
    spec = specs.get(partitions.spec_ids[code]) if partitions.spec_ids else None
    found = []
    for place, field in enumerate(spec.fields if spec is not None else ()):
        leaf = schema.leaf_by_id(field.source_id)
        if leaf is not None and str(field.transform) == "identity":
            found.append((leaf.id, partition_scalar(partitions.values[code][place], leaf)))
    return tuple(found)
