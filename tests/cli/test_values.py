"""Arrow values become JSON without loss."""

from __future__ import annotations

import datetime
import decimal
import json

import pyarrow as pa
import pytest

from tblctl.cli.show import values

D = decimal.Decimal
CASES = [
    (pa.array([1, None, -(2**63)], pa.int64()), [1, None, -(2**63)]),
    (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
    (pa.array([1.5, float("nan"), float("inf"), -float("inf"), -0.0, None]),
     [1.5, "NaN", "Infinity", "-Infinity", -0.0, None]),
    (pa.array([1.5, None], pa.float16()), [1.5, None]),
    (pa.array([D("1.50"), None, D("-0.01")], pa.decimal128(12, 2)), ["1.50", None, "-0.01"]),
    (pa.array([D("0.0000000001")], pa.decimal256(60, 10)), ["0.0000000001"]),
    (pa.array([True, None]), [True, None]),
    (pa.array(["é\n", None], pa.large_string()), ["é\n", None]),
    (pa.array([b"\x00\xff", None], pa.large_binary()), ["00ff", None]),
    (pa.array([b"ab"], pa.binary(2)), ["6162"]),
    (pa.array([0, -1, None], pa.date32()), ["1970-01-01", "1969-12-31", None]),
    (pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), ["5881580-07-11"]),
    (pa.array([-86_400_000], pa.date64()), ["1969-12-31"]),
    (pa.array([1, None], pa.timestamp("ns")), ["1970-01-01T00:00:00.000000001", None]),
    (pa.array([0], pa.timestamp("s")), ["1970-01-01T00:00:00"]),
    (pa.array([-1], pa.timestamp("us", tz="Europe/Berlin")), ["1969-12-31T23:59:59.999999Z"]),
    (pa.array([3723, None], pa.time32("s")), ["01:02:03", None]),
    (pa.array([1], pa.time64("ns")), ["00:00:00.000000001"]),
    (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    (pa.nulls(2), [None, None]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("array", "expected"), CASES, ids=lambda x: str(x.type) if isinstance(x, pa.Array) else ""
)
def test_a_value_keeps_all_it_says(array: pa.Array, expected: list) -> None:
    assert values.to_json(array) == expected
    json.dumps(values.to_json(array), allow_nan=False)


@pytest.mark.parametrize("array", [array for array, _ in CASES], ids=lambda x: str(x.type))
@pytest.mark.parametrize("kind", ["list", "large_list", "fixed", "struct", "map"])
def test_a_value_inside_another_is_the_same_and_slices_see_only_their_part(
    array: pa.Array, kind: str
) -> None:
    plain = values.to_json(array)
    count = len(array)
    if kind in {"list", "large_list"}:
        make = pa.ListArray if kind == "list" else pa.LargeListArray
        nested = make.from_arrays([0, 0, count], array)
        expected = [[], plain]
    elif kind == "fixed":
        nested = pa.FixedSizeListArray.from_arrays(array, count)
        expected = [plain]
    elif kind == "struct":
        nested = pa.StructArray.from_arrays([array, pa.array(range(count))], names=["a", "b"])
        expected = [{"a": value, "b": i} for i, value in enumerate(plain)]
    else:
        nested = pa.MapArray.from_arrays([0, count], pa.array(range(count)), array)
        expected = [[[i, value] for i, value in enumerate(plain)]]
    assert values.to_json(nested) == expected
    assert values.to_json(nested.slice(len(nested) - 1)) == expected[-1:]
    assert values.to_json(pa.concat_arrays([nested, nested]).slice(len(nested))) == expected


def test_nulls_of_nested_types_are_null() -> None:
    assert values.to_json(pa.array([None, {"a": 1}], pa.struct([("a", pa.int64())]))) == [None, {"a": 1}]
    assert values.to_json(pa.array([None, [1]], pa.list_(pa.int64()))) == [None, [1]]
    assert values.to_json(pa.array([None, [1, 2]], pa.list_(pa.int64(), 2))) == [None, [1, 2]]
    assert values.to_json(pa.array([None, [("k", 1)]], pa.map_(pa.string(), pa.int64()))) == [
        None,
        [["k", 1]],
    ]


def test_rows_of_a_batch_without_columns_are_counted() -> None:
    batch = pa.record_batch({"a": [1, 2]})
    assert values.rows_to_json(batch.select([])) == [(), ()]
    assert values.rows_to_json(batch) == [(1,), (2,)]


def test_dates_and_times_agree_with_python() -> None:
    moment = datetime.datetime(2024, 2, 29, 23, 59, 59, 123456)
    assert values.to_json(pa.array([moment])) == [moment.isoformat()]
    assert values.to_json(pa.array([moment.date()])) == [moment.date().isoformat()]
    assert values.to_json(pa.array([moment.time()])) == [moment.time().isoformat()]
