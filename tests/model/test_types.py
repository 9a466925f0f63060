from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given

from tblctl.tableformat.errors import InvalidSchemaError, UnsupportedTypeError
from tblctl.tableformat.model.schema.types import (
    accepts,
    can_widen,
    check_supported,
    is_orderable,
    read_type,
    statistic_type,
    strip_extension,
    type_from_text,
    type_problems,
    type_to_text,
)

from .strategies import TYPES


@given(TYPES)
def test_every_supported_type_comes_back_from_its_text(data_type):
    text = type_to_text(data_type)
    again = type_from_text(text)
    assert again.equals(data_type, check_metadata=True), text
    assert type_to_text(again) == text


@given(TYPES)
def test_every_generated_type_is_supported_and_its_read_type_is_stable(data_type):
    check_supported(data_type, "c")
    read = read_type(data_type)
    assert read_type(read) == read
    assert statistic_type(read) == statistic_type(data_type)
    assert "view" not in type_to_text(read)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("str", pa.string()),
        ("BIGINT", pa.int64()),
        ("long", pa.int64()),
        ("double", pa.float64()),
        ("float", pa.float32()),
        ("date", pa.date32()),
        ("date32[day]", pa.date32()),
        ("bytes", pa.binary()),
        ("boolean", pa.bool_()),
        ("timestamp", pa.timestamp("us")),
        ("timestamptz", pa.timestamp("us", "UTC")),
        (" timestamp [ ns , tz = America/New_York ] ", pa.timestamp("ns", "America/New_York")),
        ("decimal(12,2)", pa.decimal128(12, 2)),
        ("decimal(40)", pa.decimal256(40, 0)),
        ("list<item: int64>", pa.list_(pa.int64())),
        ("map<string, int8 not null>", pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False))),
        (
            'struct<"a b": int8 not null, c: str>',
            pa.struct([pa.field("a b", pa.int8(), nullable=False), ("c", pa.string())]),
        ),
    ],
)
def test_types_are_read_as_people_write_them(text, expected):
    assert type_from_text(text) == expected


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("intt", 0, "did you mean int"),
        ("struct<a int8>", 9, "expected :"),
        ("list<int8", 9, "expected >"),
        ("", 0, "expected a type"),
        ("struct<>", 7, "column's name"),
        ("decimal(99, 2)", 8, "from 1 to 76"),
        ("timestamp[min]", 10, "s or ms or us or ns"),
        ("int8 int8", 5, "nothing more"),
        ('struct<"a: int8>', 7, "never closed"),
        ("map<string>", 10, "expected ,"),
        ("dictionary<string, string>", 11, "integer type"),
        ("binary[(4]", 7, "whole number"),
        ("list<" * 70 + "int8" + ">" * 70, 320, "64 deep"),
    ],
)
def test_wrong_type_text_names_position_and_problem(text, position, words):
    with pytest.raises(InvalidSchemaError, match=words) as caught:
        type_from_text(text)
    assert caught.value.details["position"] == position


@pytest.mark.parametrize("text", ["duration[s]", "interval", "union<int8>", "run_end_encoded<int32, int8>"])
def test_types_that_cannot_be_stored_are_refused_by_name(text):
    with pytest.raises(UnsupportedTypeError, match="cannot be stored"):
        type_from_text(text)


@pytest.mark.parametrize(
    "data_type",
    [
        pa.struct([]),
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.opaque(pa.string(), "a", "b"),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.dictionary(pa.int8(), pa.list_(pa.int8())),
        pa.dictionary(pa.int8(), pa.null()),
        pa.decimal128(5, -2),
        pa.decimal128(5, 7),
        pa.list_(pa.int8(), 0),
        pa.binary(0),
        pa.timestamp("us", "a zone]"),
    ],
)
def test_unsupported_types_are_found_at_any_depth(data_type):
    assert type_problems(data_type, "c")[0].startswith("c: ")
    nested = pa.struct([("x", pa.list_(pa.field("item", data_type)))])
    with pytest.raises(UnsupportedTypeError, match=r"^c\.x\.element"):
        check_supported(nested, "c")


def test_type_nested_too_deep_is_refused_not_a_recursion_error():
    data_type = pa.int8()
    for _ in range(200):
        data_type = pa.list_(data_type)
    with pytest.raises(UnsupportedTypeError, match="64 deep"):
        check_supported(data_type, "c")


def test_read_types_replace_views_small_decimals_and_dictionary_indices():
    nested = pa.struct(
        [("v", pa.list_view(pa.string_view())), ("d", pa.dictionary(pa.int8(), pa.binary_view(), True))]
    )
    assert read_type(nested) == pa.struct(
        [("v", pa.list_(pa.large_string())), ("d", pa.dictionary(pa.int32(), pa.large_binary()))]
    )
    assert read_type(pa.decimal32(5, 2)) == pa.decimal128(5, 2)
    assert read_type(pa.large_list_view(pa.int8())) == pa.large_list(pa.int8())
    assert statistic_type(pa.dictionary(pa.int8(), pa.float16())) == pa.float32()


def test_only_flat_types_are_orderable():
    assert is_orderable(pa.dictionary(pa.int8(), pa.string()))
    assert is_orderable(pa.bool_())
    for data_type in (
        pa.null(),
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
        pa.map_(pa.int8(), pa.int8()),
    ):
        assert not is_orderable(data_type)


def test_known_extensions_become_plain_types_also_nested():
    given_type = pa.struct([("u", pa.uuid()), ("j", pa.list_(pa.json_())), ("b", pa.bool8())])
    assert strip_extension(given_type) == pa.struct(
        [("u", pa.binary(16)), ("j", pa.list_(pa.string())), ("b", pa.bool_())]
    )


WIDER = [
    ("int8", "int64"), ("uint8", "int16"), ("uint32", "int64"), ("uint8", "uint64"),
    ("float16", "float32"), ("float32", "float64"),
    ("decimal32(5, 2)", "decimal128(5, 2)"), ("decimal128(12, 2)", "decimal256(50, 2)"),
    ("date32", "timestamp[us]"), ("date32", "date64"), ("date64", "timestamp[ms]"),
    ("time32[s]", "time64[ns]"), ("timestamp[s, tz=UTC]", "timestamp[us, tz=UTC]"),
    ("string", "large_string"), ("string_view", "large_string"), ("binary", "binary_view"),
    ("list<int8>", "large_list<int8>"), ("null", "string"),
    ("dictionary<int8, string>", "dictionary<int32, string>"),
]  # fmt: skip
NOT_WIDER = [
    ("int64", "int32"), ("int8", "uint16"), ("uint64", "int64"), ("int32", "float64"), ("int8", "int8"),
    ("float64", "float32"), ("decimal128(12, 2)", "decimal128(14, 3)"), ("decimal256(12, 2)", "decimal128(38, 2)"),
    ("date32", "timestamp[us, tz=UTC]"), ("date32", "timestamp[ns]"), ("timestamp[us]", "timestamp[ns]"),
    ("timestamp[us]", "timestamp[ms]"), ("timestamp[s]", "timestamp[us, tz=UTC]"), ("large_string", "string"),
    ("string", "binary"), ("list<int8>", "large_list<int16>"), ("null", "list<int8>"), ("string", "int64"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), WIDER)
def test_type_widens_where_every_value_stays(old, new):
    assert can_widen(type_from_text(old), type_from_text(new))
    assert accepts(type_from_text(new), type_from_text(old))


@pytest.mark.parametrize(("old", "new"), NOT_WIDER)
def test_type_does_not_widen_where_a_value_could_change(old, new):
    assert not can_widen(type_from_text(old), type_from_text(new))
