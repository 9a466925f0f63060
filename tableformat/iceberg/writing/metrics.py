"""What a manifest says of the columns of a new file: counts and bounds, as the table's properties ask for them.

Modes of columns follow Iceberg's own writers (class MetricsConfig): `write.metadata.metrics.column.NAME`, else
`write.metadata.metrics.default`. Without that default, columns from the 101st on
(`write.metadata.metrics.max-inferred-column-defaults`) have no metrics. A cluster key column without a mode of its own
gets the bounds that its keys need.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from tblctl.tableformat.iceberg.bounds import TRUNCATION
from tblctl.tableformat.iceberg.options import METRICS
from tblctl.tableformat.iceberg.writing.single_values import encoded
from tblctl.tableformat.keys.order import KEY_LENGTH, shorten
from tblctl.tableformat.model.schema.field_ids import field_id
from tblctl.tableformat.model.schema.types import child_fields, is_any_binary, is_any_string

_DEFAULT = f"{METRICS}default"
_COLUMN = f"{METRICS}column."
_MOST_INFERRED = f"{METRICS}max-inferred-column-defaults"
_INFERRED = 100
_TRUNCATE = re.compile(r"truncate\((\d{1,9})\)")

Ends: TypeAlias = tuple[pa.Scalar, pa.Scalar]
"""The least and greatest value of a column; nulls if there is none."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """What is recorded of a column.

    Attributes:
        counts: values, nulls and NaN are counted.
        length: bounds have at most this many characters or bytes; 0 for no bounds, None for any length.
    """

    counts: bool = True
    length: int | None = None


_USUAL = Mode(length=TRUNCATION)
_KEY = Mode(length=KEY_LENGTH)
"""Of cluster key columns. Keys are no longer, either."""


@dataclass(frozen=True, kw_only=True)
class Primitive:
    """One column of a Parquet file.

    Attributes:
        id, name, type: of the field; the name is dotted.
        is_repeated: it is inside a list or map.
        depth: how many fields are around it.
    """

    id: int
    name: str
    type: pa.DataType
    is_repeated: bool
    depth: int


@dataclass(frozen=True, kw_only=True)
class FileMetrics:
    """The metrics of a file by column id; see `DataFileRecord`."""

    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_counts: Mapping[int, int]
    nan_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]


def primitives(fields: Sequence[pa.Field]) -> tuple[Primitive, ...]:
    """Return the columns that some fields, which have ids, take in a Parquet file, in its order."""
    return tuple(item for field in fields for item in _inside(field, field.name, is_repeated=False, depth=0))


def _inside(field: pa.Field, name: str, *, is_repeated: bool, depth: int) -> Iterator[Primitive]:
    children = child_fields(field.type)
    if not children:
        id_ = field_id(field)
        assert id_ is not None  # schemas have them all
        yield Primitive(id=id_, name=name, type=field.type, is_repeated=is_repeated, depth=depth)
    repeats = is_repeated or not pt.is_struct(field.type)
    for child in children:
        yield from _inside(child, f"{name}.{child.name}", is_repeated=repeats, depth=depth + 1)


def mode_of(text: str) -> Mode | None:
    """Return the mode that a property names; None if it names none."""
    word = text.strip().lower()
    truncate = _TRUNCATE.fullmatch(word)
    if truncate is not None and int(truncate[1]):
        return Mode(length=int(truncate[1]))
    return {"none": Mode(counts=False, length=0), "counts": Mode(length=0), "full": Mode()}.get(word)


def modes_of(
    properties: Mapping[str, str], columns: Sequence[Primitive], key_ids: Collection[int]
) -> dict[int, Mode]:
    """Return the mode of each column by its id. A property that names no mode counts as not set, as in Iceberg.

    Args:
        properties: of the table.
        columns: all that files have.
        key_ids: of the columns that keys are made of.
    """
    default = mode_of(properties.get(_DEFAULT, ""))
    inferred = {item.id for item in _first(columns, _most_inferred(properties))}
    found: dict[int, Mode] = {}
    for item in columns:
        usual = default or (_USUAL if item.id in inferred else Mode(counts=False, length=0))
        if item.id in key_ids:
            usual = _KEY
        found[item.id] = mode_of(properties.get(_COLUMN + item.name, "")) or usual
    return found


def _most_inferred(properties: Mapping[str, str]) -> int:
    text = properties.get(_MOST_INFERRED, "")
    return int(text) if text.isdecimal() else _INFERRED


def _first(columns: Sequence[Primitive], count: int) -> list[Primitive]:
    """Return the first columns: those of the schema itself before nested ones."""
    return sorted(columns, key=lambda item: item.depth > 0)[:count]


def file_metrics(
    columns: Sequence[Primitive],
    modes: Mapping[int, Mode],
    footer: pq.FileMetaData,
    ends: Mapping[int, Ends],
    nans: Mapping[int, int],
) -> FileMetrics:
    """Return the metrics of a file.

    Args:
        columns: of the file, in its order.
        modes: by column id.
        footer: of the file.
        ends: of columns that are in no list or map, by id; never NaN.
        nans: how many NaN a column of floating-point numbers has, by id.
    """
    sizes: dict[int, int] = {}
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    for place, item in enumerate(columns):
        chunks = [footer.row_group(group).column(place) for group in range(footer.num_row_groups)]
        sizes[item.id] = sum(chunk.total_compressed_size for chunk in chunks)
        if modes[item.id].counts:
            values[item.id] = sum(chunk.num_values for chunk in chunks)
            found = [chunk.statistics for chunk in chunks]
            if all(one is not None and one.has_null_count for one in found):
                nulls[item.id] = sum(one.null_count for one in found)
    bounds = {
        item.id: _bounds(*ends[item.id], modes[item.id].length)
        for item in columns
        if item.id in ends and not item.is_repeated and modes[item.id].length != 0
    }
    return FileMetrics(
        column_sizes=sizes,
        value_counts=values,
        null_counts=nulls,
        nan_counts={id_: count for id_, count in nans.items() if modes[id_].counts},
        lower_bounds={id_: low for id_, (low, _) in bounds.items() if low is not None},
        upper_bounds={id_: high for id_, (_, high) in bounds.items() if high is not None},
    )


def _bounds(low: pa.Scalar, high: pa.Scalar, length: int | None) -> tuple[bytes | None, bytes | None]:
    """Return the encoded bounds, text of at most `length`; None where there is none.

    Zero has two signs, which compare as equal. So it is the negative one below, and the positive one above.
    """
    if not (low.is_valid and high.is_valid):
        return None, None
    kind = low.type
    if pt.is_floating(kind):
        ends = [
            pa.scalar(zero, kind) if end.as_py() == 0 else end for zero, end in ((-0.0, low), (0.0, high))
        ]
        return encoded(ends[0]), encoded(ends[1])
    if length is None or not (is_any_string(kind) or is_any_binary(kind)):
        return encoded(low), encoded(high)
    short = shorten(high, up=True, length=length).value
    above = None if len(short.as_py()) > length else encoded(short)
    return encoded(shorten(low, up=False, length=length).value), above


def repeated_nans(rows: pa.Table, columns: Sequence[Primitive]) -> dict[int, int]:
    """Return how many NaN columns of floating-point numbers have that are inside lists and maps, by id.

    Args:
        rows: the schema's columns.
        columns: those of a file, in its order.
    """
    if not any(item.is_repeated and pt.is_floating(item.type) for item in columns):
        return {}
    arrays = (values for column in rows.columns for values in _leaf_values(column))
    return {
        item.id: pc.sum(pc.is_nan(values)).as_py() or 0
        for item, values in zip(columns, arrays, strict=True)
        if item.is_repeated and pt.is_floating(item.type)
    }


def _leaf_values(column: pa.ChunkedArray | pa.Array) -> Iterator[pa.Array]:
    """Yield the values of each Parquet column that a column becomes, without those of null lists and structs."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pt.is_struct(values.type):
        for child in values.flatten():
            yield from _leaf_values(child)
    elif pt.is_map(values.type):
        entries = values.filter(values.is_valid()) if values.null_count else values
        start, stop = (entries.offsets[0].as_py(), entries.offsets[-1].as_py()) if len(entries) else (0, 0)
        for child in (entries.keys, entries.items):
            yield from _leaf_values(child.slice(start, stop - start))
    elif child_fields(values.type):
        yield from _leaf_values(values.flatten())
    else:
        yield values
