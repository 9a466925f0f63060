"""A column's values as numbers that keep their order, so that bounds and literals compare as floats."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tblctl.selector.workload.asked import Floats
from tblctl.tableformat.model.schema.types import is_any_binary, is_any_string

_BYTES = 6
"""Bytes of a text after what all share: their number is exact as a float."""

_TIMES = (pt.is_date, pt.is_time, pt.is_timestamp, pt.is_duration)


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """How values of one column become numbers. Values that differ in what a float cannot hold become one.

    Attributes:
        shared: of texts: the bytes that all bounds begin with.
    """

    shared: bytes = b""

    @classmethod
    def of(cls, low: pa.Array, high: pa.Array) -> Numbers:
        """Return how values between bounds are told apart best."""
        if not _is_text(low.type):
            return cls()
        ends = [pc.min_max(pc.cast(array, _binary(array.type))) for array in (low, high)]
        known = [item.as_py() for end in ends for item in end.values() if item.is_valid]
        return cls(shared=_shared(min(known), max(known)) if known else b"")

    def array(self, values: pa.Array) -> Floats:
        """Return the number of each value; NaN for nulls, and for values of a type that has none."""
        kind = values.type
        if _is_text(kind):
            return self._texts(values)
        if any(is_time(kind) for is_time in _TIMES):
            values = values.cast(pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64())
        elif not (pt.is_boolean(kind) or pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)):
            return np.full(len(values), math.nan)
        found: Floats = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(float)
        return found

    def scalar(self, value: pa.Scalar) -> float | None:
        """Return the number of a value; None if it has none."""
        number = float(self.array(pa.repeat(value, 1))[0])
        return None if math.isnan(number) else number

    def _texts(self, values: pa.Array) -> Floats:
        """Return the bytes after the shared ones as a number; values that do not begin so lie below or above all."""
        known = pc.fill_null(pc.cast(values, _binary(values.type)), b"")
        start, width = len(self.shared), len(self.shared) + _BYTES
        cells = np.array(known.to_pylist(), dtype=f"S{width}") if len(known) else np.empty(0, f"S{width}")
        digits = np.ascontiguousarray(cells).view(np.uint8).reshape(-1, width)
        found: Floats = digits[:, start:].astype(float) @ 256.0 ** np.arange(_BYTES - 1, -1, -1)
        begins = np.ascontiguousarray(digits[:, :start]).view(f"S{start}").ravel() if start else None
        if begins is not None:
            found = np.where(begins < self.shared, -1.0, np.where(begins > self.shared, 256.0**_BYTES, found))
        found[values.is_null().to_numpy(zero_copy_only=False)] = math.nan
        return found


def _shared(one: bytes, other: bytes) -> bytes:
    """Return the bytes that both begin with."""
    same = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    return one[: min(len(one), len(other)) if same is None else same]


def _is_text(kind: pa.DataType) -> bool:
    return is_any_string(kind) or is_any_binary(kind)


def _binary(kind: pa.DataType) -> pa.DataType:
    return pa.large_binary() if pt.is_large_string(kind) or pt.is_large_binary(kind) else pa.binary()
