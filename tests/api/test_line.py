"""Values as points and back: values between two points are bounded by the values of these points."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.advise.number_line import line_of

TEXTS = st.lists(st.text(max_size=12), min_size=4, max_size=8, unique=True)


@given(texts=TEXTS)
def test_text_between_the_ends_of_a_block_stays_between_its_bounds(texts: list[str]) -> None:
    texts = sorted(texts, key=str.encode)
    low, high = pa.array(texts[0::2][: len(texts) // 2]), pa.array(texts[1::2])
    line = line_of(low, high)
    assert line.prefix is not None, "as many bounds as there can be"
    assert (line.low <= line.high).all()
    least, most = line.bounds(line.low, line.high)
    for bounds in zip(least.to_pylist(), low.to_pylist(), high.to_pylist(), most.to_pylist(), strict=True):
        assert list(bounds) == sorted(bounds, key=str.encode)


@given(values=st.lists(st.binary(max_size=10), min_size=4, max_size=8, unique=True))
def test_binary_is_bounded_as_text_is(values: list[bytes]) -> None:
    values.sort()
    low, high = pa.array(values[0::2][: len(values) // 2]), pa.array(values[1::2])
    line = line_of(low, high)
    least, most = line.bounds(line.low, line.high)
    for bounds in zip(least.to_pylist(), low.to_pylist(), high.to_pylist(), most.to_pylist(), strict=True):
        assert list(bounds) == sorted(bounds)


def test_text_of_few_bounds_has_a_place_for_each_and_one_between_any_two() -> None:
    line = line_of(pa.array(["AIR"] * 3), pa.array(["AIR", "TRUCK", "TRUCK"]))
    assert (line.low.tolist(), line.high.tolist(), line.discrete) == ([0, 0, 0], [0, 2, 2], True)
    least, most = line.bounds(np.arange(3.0), np.arange(3.0))
    assert (least.to_pylist(), most.to_pylist()) == (["AIR", "AIR", "TRUCK"], ["AIR", "TRUCK", "TRUCK"])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.date32(), [0, 5, 9]),
        (pa.timestamp("ns"), [0, 50, 90]),
        (pa.time32("s"), [0, 5, 9]),
        (pa.int8(), [-128, 0, 127]),
        (pa.bool_(), [False, False, True]),
        (pa.float32(), [-0.5, 0.0, 1.5]),
    ],
)
def test_bounds_of_points_are_their_values(kind: pa.DataType, values: list[float]) -> None:
    array = pa.array(values)
    if pa.types.is_temporal(kind):
        array = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    array = array.cast(kind)
    line = line_of(array, array)
    assert line.bounds(line.low, line.high) == (array, array)
