"""Random types, schemas and values for the model's tests."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

from tblctl.tableformat.errors import InvalidSchemaError
from tblctl.tableformat.model.schema.schema import Schema

NAMES = st.text(min_size=1, max_size=6).filter(lambda text: text.isprintable() and "." not in text)
UNITS = st.sampled_from(["s", "ms", "us", "ns"])
ZONES = st.sampled_from([None, "UTC", "Europe/Paris", "+02:00", "Etc/GMT-3"])

FLAT_TYPES = st.one_of(
    st.sampled_from(
        [
            pa.null(),
            pa.bool_(),
            *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
            pa.float16(),
            pa.float32(),
            pa.float64(),
            pa.string(),
            pa.large_string(),
            pa.string_view(),
            pa.binary(),
            pa.large_binary(),
            pa.binary_view(),
            pa.date32(),
            pa.date64(),
            pa.time32("s"),
            pa.time32("ms"),
            pa.time64("us"),
            pa.time64("ns"),
        ]
    ),
    st.builds(pa.timestamp, UNITS, ZONES),
    st.integers(1, 40).map(pa.binary),
    st.one_of(
        *(
            st.integers(1, digits).flatmap(
                lambda precision, make=make: st.integers(0, precision).map(
                    lambda scale: make(precision, scale)
                )
            )
            for make, digits in (
                (pa.decimal32, 9),
                (pa.decimal64, 18),
                (pa.decimal128, 38),
                (pa.decimal256, 76),
            )
        )
    ),
)

DICTIONARY_TYPES = st.builds(
    pa.dictionary,
    st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32()]),
    FLAT_TYPES.filter(lambda one: not pa.types.is_null(one)),
    st.booleans(),
)


def fields(types):
    return st.builds(
        lambda name, one, nullable: pa.field(name, one, nullable=nullable or pa.types.is_null(one)),
        NAMES,
        types,
        st.booleans(),
    )


def _named(name, types):
    return fields(types).map(lambda field: field.with_name(name))


def _nested(types):
    element = _named("element", types)
    return st.one_of(
        st.lists(fields(types), min_size=1, max_size=4, unique_by=lambda field: field.name).map(pa.struct),
        element.map(pa.list_),
        element.map(pa.large_list),
        element.map(pa.list_view),
        element.map(pa.large_list_view),
        st.builds(pa.list_, element, st.integers(1, 4)),
        st.builds(
            lambda key, value, ordered: pa.map_(key, value, keys_sorted=ordered),
            types.filter(lambda one: not pa.types.is_null(one)),
            _named("value", types),
            st.booleans(),
        ),
    )


TYPES = st.recursive(st.one_of(FLAT_TYPES, DICTIONARY_TYPES), _nested, max_leaves=6)


def _can_be_created(columns):
    try:
        Schema.create(columns)
    except InvalidSchemaError as error:
        if "a fixed_size_list" not in error.message:
            raise
        return False
    return True


SCHEMAS = (
    st.lists(fields(TYPES), min_size=1, max_size=5, unique_by=lambda field: field.name)
    .map(pa.schema)
    .filter(_can_be_created)
)
