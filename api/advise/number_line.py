"""A column's values as points on a line of floats, and points as values again.

A value becomes a point in one of three ways:

- Numbers, dates and times are their own distance from 0.
- Text and binary drop the prefix that all values share; the next bytes are read as a number.
- Everything else is numbered: known bounds get the even points 0, 2, 4, .. in ascending order, and an odd point stands
  for all values between two neighbours. So is text with fewer different bounds than blocks: it probably has few values,
  and a number made of its bytes would claim a precision that nothing supports.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tblctl.metrics.cuts import Floats
from tblctl.metrics.intervals import Integers
from tblctl.tableformat.keys.order import key_ranks
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.schema.types import is_any_binary, is_any_string

_MOST_FLOAT = float(np.finfo(np.float64).max) / 4
_TEXT_BYTES = 6  # a float holds 53 bits


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """The bounds of n blocks as points, and what turns points into values again.

    Attributes:
        low, high: [n] the points of each block's bounds.
        discrete: whether points are whole numbers.
        kind: type of the values.
        scale: digits after the decimal point, for decimals: a point counts units of 10^-scale.
        values: what the even points stand for if values are numbered; None otherwise.
        prefix: what all text begins with if text is read as a number; None otherwise.
    """

    low: Floats
    high: Floats
    discrete: bool
    kind: pa.DataType
    scale: int = 0
    values: pa.Array | None = None
    prefix: bytes | None = None

    def bounds(self, low: Floats, high: Floats) -> tuple[pa.Array, pa.Array]:
        """Return values that bound everything between the points `low` and `high`, pair by pair."""
        if self.values is not None:
            first, last = low.astype(np.int64) // 2, (high.astype(np.int64) + 1) // 2
            return self.values.take(pa.array(first)), self.values.take(pa.array(last))
        if self.prefix is not None:
            return (
                pa.array([self._text(int(point), up=False) for point in low.tolist()], self.kind),
                pa.array([self._text(int(point) + 1, up=True) for point in high.tolist()], self.kind),
            )
        return self._values(low), self._values(high)

    def _text(self, number: int, *, up: bool) -> str | bytes:
        """Return a lower bound (`up`: an upper bound) of all text whose point is `number`."""
        assert self.prefix is not None
        above = number >= 1 << 8 * _TEXT_BYTES
        tail = b"\xff" * (_TEXT_BYTES + 1) if above else number.to_bytes(_TEXT_BYTES, "big").rstrip(b"\0")
        content = self.prefix + tail
        if is_any_binary(self.kind):
            return content
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            return content[: error.start].decode() + ("\U0010ffff" if up else "")

    def _values(self, points: Floats) -> pa.Array:
        within = np.clip(points, self.low.min(), self.high.max()).tolist()
        if pt.is_floating(self.kind):
            return pa.array(within, pa.float64()).cast(self.kind, safe=False)
        if pt.is_boolean(self.kind):
            return pa.array([bool(point) for point in within])
        if pt.is_decimal(self.kind):
            return pa.array([Decimal(int(point)).scaleb(-self.scale) for point in within], self.kind)
        carrier = _counts(self.kind)
        limits = np.iinfo(carrier.to_pandas_dtype())  # a float rounds 2^63 - 1 up
        whole = [min(max(int(point), int(limits.min)), int(limits.max)) for point in within]
        return pa.array(whole, carrier).cast(self.kind)


def line_of(low: pa.Array, high: pa.Array) -> Line:
    """Return the bounds of blocks as points. There must be at least one block."""
    if _is_measurable(low.type):
        return _measured(low, high)
    numbered = _numbered(low, high)
    assert numbered.values is not None
    has_bytes = is_any_string(low.type) or is_any_binary(low.type)
    has_many_values = len(numbered.values) >= len(low) > 1
    return _bytes_as_numbers(low, high) if has_bytes and has_many_values else numbered


def _bytes_as_numbers(low: pa.Array, high: pa.Array) -> Line:
    lows, highs = (
        [value.encode() if isinstance(value, str) else value for value in side.to_pylist()]
        for side in (low, high)
    )
    prefix = _common_prefix(min(lows), max(highs))

    def to_points(values: list[bytes]) -> Floats:
        tails = (value[len(prefix) :][:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0") for value in values)
        return np.array([float(int.from_bytes(tail, "big")) for tail in tails])

    return Line(low=to_points(lows), high=to_points(highs), discrete=False, kind=low.type, prefix=prefix)


def _common_prefix(one: bytes, other: bytes) -> bytes:
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return one[: sum(1 for _ in equal)]


def _is_measurable(kind: pa.DataType) -> bool:
    """Return whether values have distances, and few enough digits for a float."""
    if pt.is_decimal(kind):
        return bool(kind.precision <= 15)  # noqa: PLR2004 - the digits that a float holds
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_temporal(kind) or pt.is_boolean(kind))


def _measured(low: pa.Array, high: pa.Array) -> Line:
    kind = low.type
    scale = kind.scale if pt.is_decimal(kind) else 0

    def to_points(values: pa.Array) -> Floats:
        if pt.is_temporal(kind):
            values = values.cast(_counts(kind))
        found = np.asarray(values.cast(pa.float64(), safe=False)) * 10.0**scale
        points: Floats = np.clip(np.rint(found) if scale else found, -_MOST_FLOAT, _MOST_FLOAT)
        return points

    return Line(
        low=to_points(low), high=to_points(high), discrete=not pt.is_floating(kind), kind=kind, scale=scale
    )


def _counts(kind: pa.DataType) -> pa.DataType:
    """Return the integer type that stores values of an integer or temporal type."""
    if pt.is_integer(kind):
        return kind
    return pa.int32() if kind.bit_width == 32 else pa.int64()  # noqa: PLR2004


def _numbered(low: pa.Array, high: pa.Array) -> Line:
    lows, highs, values = ranked(low, high)
    ends = (2 * lows).astype(np.float64), (2 * highs).astype(np.float64)
    return Line(low=ends[0], high=ends[1], discrete=True, kind=low.type, values=values)


def ranked(low: pa.Array, high: pa.Array) -> tuple[Integers, Integers, pa.Array]:
    """Return the bounds as ranks, and the ascending values that the ranks stand for."""
    any_sort = Sort(id=1, terms=(Term(column_id=1),))
    lows, highs = key_ranks(pa.table({"0": low}), pa.table({"0": high}), any_sort)
    _, rows = np.unique(np.concatenate((lows, highs)), return_index=True)
    return lows, highs, pa.concat_arrays([low, high]).take(pa.array(rows))
