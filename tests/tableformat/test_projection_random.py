"""Random schemas, values and schema changes, against a plain model: rows as Python values, keyed by column id."""

from __future__ import annotations

import decimal
import io

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.tableformat.model.schema.field_ids import field_id
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import child_fields, is_any_binary, is_any_list, is_any_string
from tblctl.tableformat.projection import Projection, conform

from ..model.strategies import FLAT_TYPES, SCHEMAS

RANDOM = settings(max_examples=cases(50), deadline=None, suppress_health_check=list(HealthCheck))


def array_of(draw, field, count):
    """Draw an array of a field's logical type, built from the inside out; dates and times as their counts."""
    data_type = field.type
    nulls = st.booleans() if field.nullable else st.just(False)
    missing = draw(st.lists(nulls, min_size=count, max_size=count))
    mask = pa.array(missing, pa.bool_())
    if pa.types.is_null(data_type):
        return pa.nulls(count)
    if pa.types.is_dictionary(data_type):
        words = array_of(draw, pa.field("", data_type.value_type, nullable=False), 2)
        picks = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
        indices = pa.array(
            [None if gone else pick for pick, gone in zip(picks, missing, strict=True)], data_type.index_type
        )
        return pa.DictionaryArray.from_arrays(indices, words, ordered=data_type.ordered)
    if pa.types.is_struct(data_type):
        children = [array_of(draw, child, count) for child in data_type]
        return pa.StructArray.from_arrays(children, fields=list(data_type), mask=mask)
    if pa.types.is_fixed_size_list(data_type):
        values = array_of(draw, data_type.value_field, count * data_type.list_size)
        return pa.FixedSizeListArray.from_arrays(values, type=data_type, mask=mask)
    if child_fields(data_type):
        return _variable_list(draw, data_type, count, mask)
    return _flat(draw, data_type, missing)


def _variable_list(draw, data_type, count, mask):
    sizes = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    offsets = [sum(sizes[:place]) for place in range(count + 1)]
    if pa.types.is_map(data_type):
        keys = array_of(draw, data_type.key_field, offsets[-1])
        items = array_of(draw, data_type.item_field, offsets[-1])
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=data_type, mask=mask)
    values = array_of(draw, data_type.value_field, offsets[-1])
    large = pa.types.is_large_list(data_type) or pa.types.is_large_list_view(data_type)
    numbers = pa.int64() if large else pa.int32()
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        kind = pa.LargeListArray if large else pa.ListArray
        return kind.from_arrays(pa.array(offsets, numbers), values, type=data_type, mask=mask)
    kind = pa.LargeListViewArray if large else pa.ListViewArray
    starts, lengths = pa.array(offsets[:-1], numbers), pa.array(sizes, numbers)
    return kind.from_arrays(starts, lengths, values, type=data_type, mask=mask)


def _flat(draw, data_type, missing):
    if is_any_string(data_type):
        values = st.text(max_size=4)
    elif is_any_binary(data_type):
        values = st.binary(max_size=4)
    elif pa.types.is_fixed_size_binary(data_type):
        values = st.binary(min_size=data_type.byte_width, max_size=data_type.byte_width)
    elif pa.types.is_boolean(data_type):
        values = st.booleans()
    elif pa.types.is_floating(data_type):
        values = st.floats(width=data_type.bit_width, allow_nan=False)
    elif pa.types.is_integer(data_type):
        bits, signed = data_type.bit_width, pa.types.is_signed_integer(data_type)
        values = st.integers(-(2 ** (bits - 1)) if signed else 0, 2 ** (bits - signed) - 1)
    elif pa.types.is_decimal(data_type):
        top = 10**data_type.precision - 1
        values = st.integers(-top, top).map(
            lambda n: decimal.Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -data_type.scale))
        )
    else:
        return _time(draw, data_type, missing)
    drawn = [None if gone else draw(values) for gone in missing]
    return pa.array(drawn, data_type)


def _time(draw, data_type, missing):
    step = 86_400_000 if pa.types.is_date64(data_type) else 1
    most = {"s": 86_399, "ms": 86_399_999, "us": 86_399_999_999, "ns": 86_399_999_999_999}
    low, high = (0, most[data_type.unit]) if pa.types.is_time(data_type) else (-20_000, 20_000)
    numbers = [None if gone else draw(st.integers(low, high)) * step for gone in missing]
    return pa.array(numbers, pa.int32() if data_type.bit_width == 32 else pa.int64()).cast(data_type)


def by_id(value, data_type):
    """Return a value with struct fields keyed by column id instead of name; comparable by repr."""
    if value is None:
        return None
    if pa.types.is_struct(data_type):
        return {field_id(child): by_id(value[child.name], child.type) for child in data_type}
    if pa.types.is_map(data_type):
        return [(by_id(key, data_type.key_type), by_id(item, data_type.item_type)) for key, item in value]
    if is_any_list(data_type):
        return [by_id(one, data_type.value_type) for one in value]
    return value


def expected_value(value, data_type):
    """Return what a value keyed by id reads as under a later type: the ids it has, else null."""
    if value is None:
        return None
    if pa.types.is_struct(data_type):
        return {child.name: expected_value(value.get(field_id(child)), child.type) for child in data_type}
    if pa.types.is_map(data_type):
        return [
            (expected_value(key, data_type.key_type), expected_value(item, data_type.item_type))
            for key, item in value
        ]
    if is_any_list(data_type):
        return [expected_value(one, data_type.value_type) for one in value]
    return value


def struct_paths(schema):
    """Yield the paths of top-level columns and of fields reached through structs, lists and map values."""

    def walk(fields, path):
        for field in fields:
            yield (*path, field.name), field
            if pa.types.is_struct(field.type):
                yield from walk(field.type, (*path, field.name))
            elif is_any_list(field.type) and pa.types.is_struct(field.type.value_type):
                yield from walk(field.type.value_type, (*path, field.name, "element"))

    return list(walk(schema.arrow, ()))


def change(draw, schema, number):
    """Return the schema after one random change that is possible."""
    from tblctl.tableformat.errors import InvalidSchemaError

    path, field = draw(st.sampled_from(struct_paths(schema)))
    kind = draw(st.sampled_from(["add", "rename", "drop", "again"]))
    try:
        if kind == "add":
            parent = path if pa.types.is_struct(field.type) else path[:-1]
            return schema.add_column((*parent, f"new {number}"), draw(FLAT_TYPES))
        if kind == "rename":
            return schema.rename_column(path, f"renamed {number}")
        dropped = schema.drop_column(path)
        return dropped if kind == "drop" else dropped.add_column(path, field.type)
    except InvalidSchemaError:
        return schema


@RANDOM
@given(st.data(), SCHEMAS, st.integers(0, 7), st.booleans(), st.integers(0, 3))
def test_any_data_reads_right_after_any_schema_changes(data, columns, count, store_schema, change_count):
    schema = Schema.create(columns)
    drawn = [array_of(data.draw, field, count) for field in schema.logical]
    given_table = pa.Table.from_arrays(drawn, schema=schema.logical)
    cut = data.draw(st.integers(0, count))
    given_table = pa.concat_tables([given_table.slice(0, cut), given_table.slice(cut)])
    conformed = conform(given_table, schema)
    conformed.validate(full=True)
    assert conformed.schema.equals(schema.read_schema)
    for name in schema.names:
        assert repr(conformed[name].to_pylist()) == repr(given_table[name].to_pylist())

    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, conformed.schema, store_schema=store_schema) as writer:
        writer.write_table(conformed, row_group_size=3)
    file = pq.ParquetFile(buffer)
    later = schema
    for number in range(change_count):
        later = change(data.draw, later, number)
    projection = Projection.plan(file.schema_arrow, later)
    # One by one: pyarrow 26 reads no dictionaries inside lists whose values differ from row group to row group.
    groups = [file.read_row_group(number, projection.file_columns) for number in range(file.num_row_groups)]
    raw = pa.concat_tables(groups) if groups else file.read(projection.file_columns)
    result = projection.apply(raw, row_count=count)
    result.validate(full=True)
    assert result.schema.equals(later.read_schema)

    values = {
        field_id(field): [by_id(value, field.type) for value in given_table[field.name].to_pylist()]
        for field in schema.arrow
    }
    for field in later.arrow:
        old = values.get(field_id(field), [None] * count)
        wanted = [expected_value(value, field.type) for value in old]
        assert repr(result[field.name].to_pylist()) == repr(wanted), field.name
