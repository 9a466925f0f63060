"""Manifests say of new files what PyIceberg says of the same Parquet files, and bounds that it lacks are true."""

from __future__ import annotations

import math
import random
import struct
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

import tblctl
from tblctl.tableformat.iceberg.own_files import parse_name
from tblctl.tableformat.iceberg.writing.metrics import Mode, Primitive, _bounds, mode_of, modes_of

from .lake import Lake, append
from .values import VALUES

METRICS = "write.metadata.metrics."
MAPS = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
KINDS = {name: kind for name, (kind, _) in VALUES.items()}
NESTED = StructType(
    NestedField(11, "number", DoubleType(), required=False),
    NestedField(12, "name", StringType(), required=False),
)
COLUMNS = Schema(  # with the ids that a catalog gives
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "floats", ListType(8, FloatType(), element_required=False), required=False),
    NestedField(3, "map", MapType(9, StringType(), 10, DoubleType(), value_required=False), required=False),
    NestedField(4, "inner", NESTED, required=False),
    NestedField(5, "deep", ListType(13, ListType(14, IntegerType(), False), False), required=False),
    NestedField(6, "number", DoubleType(), required=False),
    NestedField(7, "text", StringType(), required=False),
)


def merged(table: Table, **how: Any) -> list[Any]:
    """Recluster a table, and return its new data files."""
    tblctl.from_iceberg(table).recluster(**{"cluster_by": "id", "final": True, **how})
    found = [task.file for task in table.refresh().scan().plan_files()]
    assert found
    assert all(parse_name(file.file_path) for file in found)
    return found


def local(file: Any) -> str:
    return str(file.file_path.removeprefix("file://"))


def theirs(table: Table, file: Any) -> Any:
    """Return what PyIceberg says of a Parquet file."""
    schema = table.schema()
    return data_file_statistics_from_parquet_metadata(
        pq.read_metadata(local(file)),
        compute_statistics_plan(schema, table.properties),
        parquet_path_to_id_mapping(schema),
    ).to_serialized_dict()


def maps(found: Any) -> dict[str, dict[int, Any]]:
    read = found.get if isinstance(found, dict) else lambda name: getattr(found, name)
    return {name: dict(read(name) or {}) for name in MAPS}


def typed(lake: Lake, **properties: str) -> Table:
    """Return a table of all types, two files."""
    fields = [NestedField(100, "id", LongType(), required=False)]
    fields += [
        NestedField(place, name, kind, required=False) for place, (name, kind) in enumerate(KINDS.items(), 1)
    ]
    table = lake.create("t", Schema(*fields), properties=properties)
    rng = random.Random(3)
    for begin in (0, 20):
        rows: dict[str, list[Any]] = {"id": list(range(begin, begin + 20))}
        for name, (_, values) in VALUES.items():
            usable = [one for one in values if not (isinstance(one, float) and math.isnan(one))]
            rows[name] = [rng.choice([*usable, None]) for _ in range(20)]
        append(table, **rows)
    return table


def nested(lake: Lake, **properties: str) -> Table:
    table = lake.create("t", COLUMNS, properties=properties)
    nan = math.nan
    for begin in (0, 4):
        append(
            table,
            id=list(range(begin, begin + 4)),
            floats=[[1.0, nan, None], None, [], [nan, nan]],
            map=[[("a", nan), ("b", None)], None, [], [("c", 1.0), ("d", nan)]],
            inner=[{"number": nan, "name": "x" * 40}, None, {"number": -0.0, "name": None}, {"number": 2.0}],
            deep=[[[1, None], []], None, [None, [2]], []],
            number=[nan, None, 0.0, -0.0],
            text=["b" * 30, None, "a" * 30, ""],
        )
    return table


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(3)", "truncate(16)", "full", None])
def test_metrics_of_all_types_are_those_of_pyiceberg(lake: Lake, mode: str | None) -> None:
    table = typed(
        lake, **({f"{METRICS}default": mode, f"{METRICS}column.id": mode} if mode is not None else {})
    )
    (file,) = merged(table)
    ours, expected = maps(file), maps(theirs(table, file))
    assert ours == expected
    assert file.split_offsets == theirs(table, file)["split_offsets"]


def test_counts_inside_lists_and_maps_are_those_of_pyiceberg(lake: Lake) -> None:
    table = nested(lake)
    (file,) = merged(table)
    ours, expected = maps(file), maps(theirs(table, file))
    for name in ("column_sizes", "value_counts", "null_value_counts"):
        assert ours[name] == expected[name]
        assert set(ours[name]) == {1, 6, 7, 8, 9, 10, 11, 12, 14}
    assert ours["value_counts"][8] == 14
    assert ours["null_value_counts"][8] == 6
    assert file.nan_value_counts == {6: 2, 8: 6, 10: 4, 11: 2}


def test_columns_in_lists_and_maps_have_no_bounds_and_those_in_structs_have(lake: Lake) -> None:
    (file,) = merged(nested(lake))
    assert set(file.lower_bounds) == set(file.upper_bounds) == {1, 6, 7, 11, 12}
    assert struct.unpack("<d", file.lower_bounds[11]) == (0.0,)
    assert struct.unpack("<d", file.upper_bounds[11]) == (2.0,)
    assert file.lower_bounds[12] == b"x" * 16
    assert file.upper_bounds[12] == b"x" * 15 + b"y"


def test_copied_row_groups_leave_no_wrong_nan_counts(lake: Lake) -> None:
    """NaN inside lists of row groups that are copied undecoded are not seen: then nothing is said of them."""
    table = nested(lake)
    merged(table)
    append(
        table,
        **{field.name: [None] for field in COLUMNS.fields[1:]},
        id=[1_000],
    )
    outcome = tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    (file,) = [task.file for task in table.refresh().scan().plan_files()]
    assert outcome.commits
    counted = file.nan_value_counts
    assert counted[6] == 2
    assert counted.get(8) in (None, 6)
    assert counted.get(10) in (None, 4)


def test_bounds_of_zeros_have_the_signs_that_hold_for_both(lake: Lake) -> None:
    table = nested(lake)
    (file,) = merged(table)
    assert file.lower_bounds[6] == struct.pack("<d", -0.0)
    assert file.upper_bounds[6] == struct.pack("<d", 0.0)


def test_column_of_nothing_but_nan_has_no_bounds(lake: Lake) -> None:
    table = lake.create("t", COLUMNS)
    for begin in (0, 2):
        rows: dict[str, list[Any]] = {field.name: [None, None] for field in COLUMNS.fields}
        append(table, **{**rows, "id": [begin, begin + 1], "number": [math.nan] * 2})
    (file,) = merged(table)
    assert 6 not in file.lower_bounds
    assert 6 not in file.upper_bounds
    assert file.nan_value_counts[6] == 4
    assert file.value_counts[6] == 4


def test_cluster_key_columns_without_a_mode_have_whole_bounds(lake: Lake) -> None:
    table = nested(lake)
    (file,) = merged(table, cluster_by="text, id")
    assert (file.lower_bounds[7], file.upper_bounds[7]) == (b"", b"b" * 30)
    assert file.upper_bounds[12] == b"x" * 15 + b"y"


def test_mode_of_a_cluster_key_column_is_kept(lake: Lake) -> None:
    table = nested(lake, **{f"{METRICS}column.text": "truncate(4)", f"{METRICS}column.id": "none"})
    (file,) = merged(table, cluster_by="text, id")
    assert file.upper_bounds[7] == b"bbbc"
    assert 1 not in file.lower_bounds
    assert 1 not in file.value_counts
    assert file.column_sizes[1] > 0


def test_modes_of_nested_columns_are_named_with_dots(lake: Lake) -> None:
    wanted = {"inner.name": "full", "floats.element": "none", "map.key": "none", "inner.number": "counts"}
    table = nested(lake, **{f"{METRICS}column.{name}": mode for name, mode in wanted.items()})
    (file,) = merged(table)
    assert file.upper_bounds[12] == b"x" * 40
    assert not {8, 9} & set(file.value_counts)
    assert 8 not in file.nan_value_counts
    assert 11 in file.value_counts
    assert 11 not in file.lower_bounds


def test_columns_after_the_hundredth_have_no_metrics_by_default() -> None:
    columns = [
        Primitive(id=place, name=f"c{place}", type=pa.int32(), is_repeated=False, depth=0)
        for place in range(120)
    ]
    found = modes_of({}, columns, {110})
    assert found[99] == Mode(length=16)
    assert found[100] == Mode(counts=False, length=0)
    assert found[110].length
    most = modes_of({f"{METRICS}max-inferred-column-defaults": "3"}, columns, ())
    assert [id_ for id_, mode in most.items() if mode.counts] == [0, 1, 2]
    assert modes_of({f"{METRICS}default": "full"}, columns, ())[119] == Mode()


def test_modes_are_read_as_iceberg_reads_them() -> None:
    assert mode_of("TRUNCATE(7)") == Mode(length=7)
    assert mode_of("Full") == Mode()
    assert mode_of("counts") == Mode(length=0)
    assert mode_of("none") == Mode(counts=False, length=0)
    assert [mode_of(text) for text in ("", "truncate(0)", "truncate(-1)", "truncate", "all")] == [None] * 5


UPPER = {
    "last point": ("\U0010ffff" * 5, None),
    "point before the last": ("a\U0010ffff\U0010ffff\U0010ffff", "b"),
    "before surrogates": ("ab\ud7ffz", "ab\ue000"),
    "bytes": (b"a\xff\xff\xff", b"b"),
    "no byte above": (b"\xff" * 4, None),
    "short": ("abc", "abc"),
    "short last points": ("\U0010ffff" * 3, "\U0010ffff" * 3),
}


@pytest.mark.parametrize("case", UPPER)
def test_truncated_upper_bound_is_the_next_value_or_absent(case: str) -> None:
    value, expected = UPPER[case]
    _, high = _bounds(pa.scalar(value), pa.scalar(value), 3)
    assert high == (expected.encode() if isinstance(expected, str) else expected)


TEXT = st.text(st.sampled_from("ab\u00fc\ud7ff\ue000\U0010ffff") | st.characters(codec="utf-8"), max_size=8)
BYTES = st.binary(max_size=8) | st.lists(st.sampled_from([0, 97, 254, 255]), max_size=8).map(bytes)


@given(values=st.lists(TEXT, min_size=1) | st.lists(BYTES, min_size=1), length=st.integers(1, 5))
@settings(max_examples=cases(70))
def test_truncated_bounds_of_text_and_bytes_are_true_bounds(values: list[Any], length: int) -> None:
    low, high = _bounds(pa.scalar(min(values)), pa.scalar(max(values)), length)
    stored = [value.encode() if isinstance(value, str) else value for value in values]
    assert low is not None
    assert low <= min(stored)
    assert high is None or high >= max(stored)
    whole = [
        bound.decode() if isinstance(values[0], str) else bound for bound in (low, high) if bound is not None
    ]
    assert all(len(bound) <= length for bound in whole)
    if high is None:
        assert set(max(values)[:length]) <= {"\U0010ffff", 255}


@given(
    value=st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**30), max_value=10**30)
)
@settings(max_examples=cases(70))
def test_decimals_come_back_from_their_bounds(value: Decimal) -> None:
    from pyiceberg.conversions import to_bytes
    from pyiceberg.types import DecimalType

    kind = DecimalType(38, 4)
    low, high = _bounds(pa.scalar(value, pa.decimal128(38, 4)), pa.scalar(value, pa.decimal128(38, 4)), 16)
    assert low is not None
    assert low == high == to_bytes(kind, value)
    assert from_bytes(kind, low) == value


@given(st.lists(st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0]), min_size=1))
@settings(max_examples=cases(70))
def test_bounds_of_floats_hold_in_icebergs_order_of_zeros(values: list[float]) -> None:
    low, high = _bounds(pa.scalar(min(values)), pa.scalar(max(values)), 16)
    assert low is not None
    assert high is not None
    ends = [struct.unpack("<d", end)[0] for end in (low, high)]

    def order(value: float) -> tuple[float, float]:
        return value, math.copysign(1.0, value)

    assert all(order(ends[0]) <= order(value) <= order(ends[1]) for value in values)


def test_uuids_and_fixed_values_are_not_truncated() -> None:
    value = pa.scalar(uuid.UUID(int=2**128 - 1).bytes, pa.binary(16))
    assert _bounds(value, value, 3) == (b"\xff" * 16, b"\xff" * 16)
