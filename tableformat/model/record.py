"""A new block, with every statistic that a table format keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa


class _Picklable:
    """Dataclasses of scalars, or tuples of these, that can be pickled with any values.

    Scalars are pickled as Python values. Some times have none (years after 9999), and some nulls cannot be restored
    from it. So times are pickled as numbers, and nulls as their type.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (type(self), {name: _packed(value) for name, value in vars(self).items()})


class _Time(NamedTuple):
    units: int
    type: pa.DataType


def _packed(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_packed, value))
    if not isinstance(value, pa.Scalar):
        return value
    if not value.is_valid:
        return value.type
    return _Time(value.value, value.type) if pa.types.is_temporal(value.type) else value


def _unpacked(kind: type, values: Mapping[str, Any]) -> Any:
    return kind(**{name: _scalars(value) for name, value in values.items()})


def _scalars(value: Any) -> Any:
    if isinstance(value, _Time):
        units = pa.int32() if value.type.bit_width == 32 else pa.int64()  # noqa: PLR2004
        return pa.array([value.units], units).view(value.type)[0]
    if isinstance(value, pa.DataType):
        return pa.nulls(1, value)[0]
    if isinstance(value, tuple):
        return tuple(map(_scalars, value))
    return value


@dataclass(frozen=True, kw_only=True)
class ColumnRecord(_Picklable):
    """Statistics of one column of one block; `min` and `max` are null scalars if unknown."""

    min: pa.Scalar
    max: pa.Scalar
    exact: bool
    null_count: int
    nan_count: int | None
    compressed_bytes: int
    uncompressed_bytes: int


@dataclass(frozen=True, kw_only=True)
class BlockRecord(_Picklable):
    """A block and its statistics, as collected while writing.

    Attributes (the others are those of `Block`):
        key_min, key_max, key_exact: the keys of the first and last row, and whether they are not truncated.
        same_key_rows: the most rows that have one key; None if unknown, or if bounds do not distinguish all keys.
        footer_bytes, footer_checksum: those of its `Seal`; None for none.
        columns: by column id.
    """

    path: str
    row_count: int
    size_bytes: int
    uncompressed_bytes: int
    decoded_bytes: int
    schema_id: int
    level: int
    run_id: str | None
    cluster_key_id: int | None
    key_min: tuple[pa.Scalar, ...] = ()
    key_max: tuple[pa.Scalar, ...] = ()
    key_exact: bool = True
    same_key_rows: int | None = None
    footer_bytes: int | None = None
    footer_checksum: int | None = None
    columns: Mapping[int, ColumnRecord] = field(default_factory=dict)
    partition: str = ""
