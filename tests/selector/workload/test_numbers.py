"""Values as numbers: the order of any two values is kept, or they become one."""

from __future__ import annotations

import datetime
import decimal
import math

import pyarrow as pa
import pytest

from tblctl.selector.workload.numbers import Numbers

DAY = datetime.date(2024, 1, 31)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [-(2**40), 0, 7]),
        (pa.float32(), [-0.5, 0.25]),
        (pa.date32(), [DAY, DAY + datetime.timedelta(days=1)]),
        (pa.timestamp("us"), [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 0, 0, 0, 1)]),
        (pa.decimal128(10, 2), [decimal.Decimal("1.25"), decimal.Decimal("1.50")]),
        (pa.bool_(), [False, True]),
        (pa.string(), ["user-0001", "user-0002", "user-1", "user-1a"]),
        (pa.binary(), [b"\x00", b"\x00\x01", b"\xff"]),
    ],
)
def test_values_that_ascend_become_numbers_that_ascend(kind, values):
    bounds = pa.array(values, kind)
    found = Numbers.of(bounds, bounds).array(bounds).tolist()
    assert found == sorted(set(found))
    assert [Numbers.of(bounds, bounds).scalar(value) for value in bounds] == found


def test_texts_that_do_not_begin_as_all_bounds_do_lie_below_or_above_them():
    bounds = pa.array(["user-3", "user-7"])
    numbers = Numbers.of(bounds, bounds)
    places = [numbers.scalar(pa.scalar(text)) for text in ("a", "user-3", "user-5", "user-7", "zebra")]
    assert places == sorted(places)
    assert len(set(places)) == 5


def test_nulls_and_types_without_an_order_have_no_number():
    assert math.isnan(Numbers().array(pa.array([None], pa.int64()))[0])
    assert math.isnan(Numbers().array(pa.array([None, "a"]))[0])
    assert Numbers().scalar(pa.scalar([1])) is None


@pytest.mark.parametrize(
    "kind", [pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.duration("us"), pa.timestamp("ns")]
)
@pytest.mark.parametrize("number", [-(2**63) + 1, 2**63 - 1, 1_700_000_000_000_000_001])
def test_times_that_python_cannot_hold_have_a_number_all_the_same(kind, number):
    value = pa.array([number], pa.int64()).cast(kind)[0]
    assert Numbers().scalar(value) == float(number)
    assert Numbers().scalar(pa.scalar(None, kind)) is None
