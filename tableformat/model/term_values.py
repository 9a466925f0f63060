"""The values of a cluster key's terms: columns, or transforms of these.

Transforms are Iceberg's, computed by PyIceberg. Importing it costs 0.3 s, so it is imported only where values are
transformed. Its kernels deviate from Iceberg's specification for zones, coarse units, and overflow at the ends of a
type. There the input is first converted to a form that they handle correctly, see `_transform_input`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.model.cluster_key import TIME_TRANSFORMS, Term, leaf_of_term, transform_problem
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import is_any_binary, is_any_string, statistic_type
from tblctl.tableformat.model.transform_limits import clamp, in_micros, without_overflow

_DAY_MICROS = 86_400_000_000
_MAX_DAYS = 89_000_000
"""About 243,000 years on either side of 1970. Beyond these, PyIceberg's kernels return null years, and hours that wrap
around. Times are clamped here, so that order and bounds hold."""

_ALIGNMENT = 16  # bytes, of the widest values: decimals


def term_type(term: Term, schema: Schema) -> pa.DataType:
    """Return the type of the term's values, a statistic type; see `_result_type`.

    Raises:
        InvalidKeyError: the schema has no leaf with the term's column id.
    """
    return _result_type(term, leaf_of_term(term, schema).type)


def monotonic(term: Term) -> bool:
    """Return whether a <= b gives transform(a) <= transform(b), so that a column's bounds bound the term."""
    return term.function != "bucket"


def widening_problem(term: Term, before: Leaf, after: Leaf) -> str | None:
    """Return why blocks would leave the order of `term` if the column got a wider type, or None.

    A wider type has the same values in the same order. So only transforms matter that count, cut or hash values
    differently in the wider type.
    """
    problem = transform_problem(term.function, after)
    if problem is not None or term.function in ("identity", *TIME_TRANSFORMS):
        return problem
    old, new = statistic_type(before.type), statistic_type(after.type)
    if term.function == "bucket":
        apart = pt.is_date(old) and pt.is_timestamp(new)
        return "a date and the same moment have different buckets" if apart else None
    differ = _result_type(term, before.type) != _result_type(term, after.type) and pt.is_integer(old)
    return f"{term.transform} rounds the least values of {old} differently in {new}" if differ else None


def transform_array(term: Term, array: pa.Array, source_type: pa.DataType) -> pa.Array:
    """Return the term's values, of `term_type`, for a column's values; nulls stay null. O(n).

    Args:
        term: what to compute.
        array: the column's values, in its logical, read or statistic type.
        source_type: the column's logical type.
    """
    result_type = _result_type(term, source_type)
    if term.function == "identity":
        return array if array.type == result_type else array.cast(result_type)
    prepared = _transform_input(term, array, source_type)
    if is_any_binary(prepared.type) and term.function == "truncate":
        import pyarrow.compute as pc

        return pc.binary_slice(prepared, 0, term.width)  # PyIceberg has no kernel for large_binary
    transformed = _kernel(term, prepared)
    if term.function == "truncate" and not is_any_string(prepared.type):
        transformed = without_overflow(transformed, prepared)
    return transformed if transformed.type == result_type else transformed.cast(result_type)


def _kernel(term: Term, array: pa.Array) -> pa.Array:
    from pyiceberg.transforms import parse_transform
    from pyiceberg.types import UnknownType

    # The kernels use the array's own type and ignore the requested Iceberg type.
    return parse_transform(term.transform).pyarrow_transform(UnknownType())(_aligned(array))


def _aligned(array: pa.Array) -> pa.Array:
    """Return the array, or a copy if its values are not aligned: the kernels, in Rust, would end the process."""
    if any(buffer is not None and buffer.address % _ALIGNMENT for buffer in array.buffers()):
        return pa.concat_arrays([array, array.slice(0, 0)])
    return array


def _result_type(term: Term, source_type: pa.DataType) -> pa.DataType:
    """Return the type of a term's values.

    identity: the statistic type. year, month, hour: int32, counted from 1970 in UTC. day: date32. bucket: int32.
    truncate: text and binary as the statistic type; int32 up to 32 bits (uint32: int64), int64; decimal128(38, s),
    since rounding down may need one more digit than the column has.
    """
    plain = statistic_type(source_type)
    if term.function == "identity":
        return plain
    if term.function == "day":
        return pa.date32()
    if term.function != "truncate":
        return pa.int32()
    if pt.is_decimal(plain):
        return pa.decimal128(38, plain.scale)
    return _wide_integer(plain) if pt.is_integer(plain) else plain


def _wide_integer(data_type: pa.DataType) -> pa.DataType:
    small = data_type.bit_width < 32 or pt.is_int32(data_type)  # noqa: PLR2004
    return pa.int32() if small else pa.int64()


def _transform_input(term: Term, array: pa.Array, source_type: pa.DataType) -> pa.Array:
    """Return the values in a type that PyIceberg's kernels handle as Iceberg specifies.

    The kernels take years in the array's own zone (Iceberg: UTC). Only microseconds work in all transforms. They lack
    8 and 16 bit integers, unsigned integers, date64 and views.
    """
    plain = statistic_type(source_type)
    if array.type != plain:
        array = array.cast(plain)
    if pt.is_integer(plain):
        return array.cast(_wide_integer(plain))
    if pt.is_decimal(plain) and term.function == "truncate":
        return array.cast(pa.decimal128(38, plain.scale))
    if pt.is_date64(plain):
        array = array.cast(pa.date32())
    if pt.is_time(plain):
        return in_micros(array).cast(pa.time64("us"))
    by_calendar = term.function in TIME_TRANSFORMS
    if pt.is_timestamp(plain):
        micros = in_micros(array)
        return (clamp(micros, _MAX_DAYS * _DAY_MICROS) if by_calendar else micros).cast(pa.timestamp("us"))
    if pt.is_date(plain) and by_calendar and term.function != "day":
        return clamp(array.cast(pa.int32()), _MAX_DAYS).cast(pa.date32())
    return array
