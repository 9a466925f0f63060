"""Curves: their arithmetic against slow definitions, and keys of all types against a model of plain Python values."""

from __future__ import annotations

import bisect
import functools
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from arrow_rows import arrays
from hypothesis import given
from hypothesis import strategies as st

from tblctl.tableformat.keys.boundaries import divided, successor, with_bounds
from tblctl.tableformat.keys.curves import hilbert_bound, hilbert_numbers, interleaved
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.keys.linear import to_statistic
from tblctl.tableformat.keys.numbers import has_value
from tblctl.tableformat.keys.order import key_table
from tblctl.tableformat.keys.places import spread_places, weighted_places
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.curve import CURVES, Ranges, most_boundaries, ranges_of
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import can_widen, read_type, statistic_type
from tblctl.tableformat.model.statistics import ColumnStatistics

from .test_keys import ORDERABLE, model_values

GRIDS = [(2, 1), (2, 2), (2, 5), (2, 6), (3, 1), (3, 3), (3, 4), (4, 1), (4, 2), (4, 3)]


def cells_of(axes: int, bits: int) -> np.ndarray:
    """Return the places of all cells of a grid, one row for each axis."""
    return np.indices((1 << bits,) * axes).reshape(axes, -1)


def zorder_of(places: np.ndarray) -> np.ndarray:
    shares = [interleaved(axis, len(places), each) for axis, each in enumerate(places)]
    return np.bitwise_or.reduce(shares)


def hilbert_of(places: np.ndarray, bits: int) -> np.ndarray:
    return hilbert_numbers(zorder_of(places), axes=len(places), bits=bits)


def slow_zorder(places: list[int], bits: int) -> int:
    digits = [str(place >> bit & 1) for bit in range(bits - 1, -1, -1) for place in places]
    return int("".join(digits), 2)


def slow_hilbert(places: list[int], bits: int) -> int:
    """Return the number by Hamilton's definition: a bit of each axis at a time, in a frame that turns."""
    axes, entry, axis, number = len(places), 0, 0, 0
    gray = [index ^ (index >> 1) for index in range(1 << axes)]

    def turned(word: int, left: int) -> int:
        digits = f"{word:0{axes}b}"
        return int(digits[left % axes :] + digits[: left % axes], 2)

    for bit in range(bits - 1, -1, -1):
        digit = int("".join(str(place >> bit & 1) for place in places), 2)
        index = gray.index(turned(digit ^ entry, -(axis + 1)))
        number = (number << axes) | index
        entry ^= turned(gray[max(2 * ((index - 1) // 2), 0)], axis + 1)
        odd = index - (index % 2 == 0)
        ones = len(f"{odd:b}") - len(f"{odd:b}".rstrip("1")) if index else 0
        axis = (axis + ones % axes + 1) % axes
    return number


@pytest.mark.parametrize(("axes", "bits"), GRIDS)
def test_curves_visit_each_cell_once(axes: int, bits: int) -> None:
    cells = cells_of(axes, bits)
    for numbers in (zorder_of(cells), hilbert_of(cells, bits)):
        assert np.array_equal(np.sort(numbers), np.arange(1 << (axes * bits), dtype=np.uint64))


@pytest.mark.parametrize(("axes", "bits"), GRIDS)
def test_neighbours_on_the_hilbert_curve_differ_by_1_on_one_axis(axes: int, bits: int) -> None:
    cells = cells_of(axes, bits)
    steps = np.diff(cells[:, np.argsort(hilbert_of(cells, bits))], axis=1)
    assert np.array_equal(np.abs(steps).sum(axis=0), np.ones(cells.shape[1] - 1))


@given(
    st.integers(2, 4).flatmap(lambda axes: st.lists(st.integers(0, 2**16 - 1), min_size=axes, max_size=axes))
)
def test_numbers_of_64_bits_are_those_of_the_slow_definitions(places: list[int]) -> None:
    given_places = np.array([[place] for place in places])
    assert zorder_of(given_places).tolist() == [slow_zorder(places, 16)]
    assert hilbert_of(given_places, 16).tolist() == [slow_hilbert(places, 16)]


@pytest.mark.parametrize(("axes", "bits"), [(2, 4), (3, 3), (4, 2)])
def test_the_ends_of_a_box_on_the_hilbert_curve_are_exact(axes: int, bits: int) -> None:
    cells = cells_of(axes, bits)
    numbers = hilbert_of(cells, bits)
    rng = np.random.default_rng(7)
    ends = rng.integers(0, 1 << bits, (2, axes, 60))
    low, high = ends.min(axis=0), ends.max(axis=0)
    first, last = (hilbert_bound(low, high, bits=bits, last=last) for last in (False, True))
    for box in range(low.shape[1]):
        inside = ((cells >= low[:, [box]]) & (cells <= high[:, [box]])).all(axis=0)
        assert (numbers[inside].min(), numbers[inside].max()) == (first[box], last[box])


@given(
    st.integers(2, 16).flatmap(
        lambda bits: st.tuples(st.just(bits), st.integers(1, most_boundaries(bits) + 1))
    )
)
def test_ranges_are_spread_over_the_axis_below_nan_and_null(case: tuple[int, int]) -> None:
    bits, ranges = case
    places = spread_places(ranges, bits)
    assert len(places) == ranges
    assert places[0] == 0
    assert (np.diff(places) > 0).all()
    assert places[-1] < (1 << bits) - 2
    assert ranges == 1 or places[-1] >= (1 << (bits - 1)) - 3


@given(
    st.integers(2, 10).flatmap(
        lambda bits: st.tuples(
            st.just(bits),
            st.lists(st.integers(0, 1000), min_size=1, max_size=min(most_boundaries(bits) + 1, 60)).filter(
                any
            ),
        )
    )
)
def test_places_ascend_and_each_range_has_of_the_axis_what_it_has_of_the_rows(
    case: tuple[int, list[int]],
) -> None:
    bits, weights = case
    places = weighted_places(np.array(weights, np.float64), bits)
    whole = (1 << bits) - 2
    assert (np.diff(places) > 0).all()
    assert 0 <= places[0] <= places[-1] < whole
    through = np.cumsum(weights) / sum(weights)
    middles = (through - np.array(weights) / 2 / sum(weights)) * whole
    assert np.abs(places - middles).max() <= len(weights), "as far as others leave it room"


def test_a_heavy_value_takes_half_of_the_axis_if_it_has_half_of_the_rows() -> None:
    weights = np.concatenate(([1000.0], np.ones(1000)))
    boundaries, places = divided(pa.array(np.arange(1001)), weights, bits=8)
    assert boundaries[:2].to_pylist() == [0, 1], "a range of its own"
    assert places[1] in range(60, 68), "in the middle of the lower half"
    later = np.array(places[2:])
    assert (later[0] >= 124, len(later) > 100) == (True, True), "the others have the upper half"
    assert np.diff(later).max() <= 2


# -- boundaries ---------------------------------------------------------------------------------------------------


def weighed(values: pa.Array, bits: int = 4) -> list[Any]:
    return divided(values, np.ones(len(values)), bits=bits)[0].to_pylist()


def test_few_values_have_a_range_each_with_nothing_beside_them() -> None:
    assert weighed(pa.array([10, 30, 10, None])) == [10, 11, 30, 31]
    assert weighed(pa.array([True, False])) == [False, True]
    assert weighed(pa.array(["DE", "US"])) == ["DE", "DE\0", "US", "US\0"]


def test_many_values_are_cut_into_ranges_of_equal_weight() -> None:
    found = np.array(weighed(pa.array(np.arange(1000)), bits=6))
    assert len(found) == most_boundaries(6)
    assert (found[0], found[-1]) == (0, 1000)
    assert np.ptp(np.diff(found)) <= 1


def test_a_heavy_value_has_a_range_of_its_own() -> None:
    values = np.concatenate((np.arange(1000), np.full(500, 333)))
    found = weighed(pa.array(values), bits=6)
    assert {333, 334} <= set(found)
    sizes = np.diff(np.searchsorted(np.sort(values), found))
    assert sorted(sizes.tolist())[-2] <= 25


def test_texts_are_cut_to_what_tells_them_apart() -> None:
    values = pa.array([f"the same beginning {number:03d} and more" for number in range(300)])
    found = weighed(values, bits=6)
    assert all(len(text) <= len("the same beginning 000") for text in found[1:-1])
    assert all(
        len(text) <= 64 for text in weighed(pa.array(["x" * 100 + str(number) for number in range(9)]), 6)
    )


def test_one_odd_value_does_not_move_the_outer_ranges() -> None:
    found = weighed(pa.array([*range(20_000), 10**15]), bits=6)
    assert found[-1] < 21_000


def test_blocks_that_were_not_read_count_by_their_bounds() -> None:
    sample = pa.array([0, 1, 2, 3, 4, 5, 6, 7])
    low, high, rows = pa.array([100, 0, None]), pa.array([200, 7, 9]), np.array([6.0, 10.0, 5.0])
    values, weights = with_bounds(sample, np.ones(8), low, high, rows)
    found = dict(zip(values.to_pylist()[8:], weights[8:].tolist(), strict=False))
    assert {100: 3.0, 200: 3.0}.items() <= found.items(), "none of the sample lies there"
    assert weights[:8].tolist() == [2.0] * 8, "the sample is like the rows of the second block"
    assert weights.sum() == pytest.approx(8 + 16)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (5, pa.int8(), 6),
        (127, pa.int8(), None),
        (2**64 - 1, pa.uint64(), None),
        (float("inf"), pa.float64(), None),
        ("a", pa.string(), "a\0"),
        (b"\xff\xff", pa.binary(2), None),
        (b"\x00\xff", pa.binary(2), b"\x01\x00"),
        (True, pa.bool_(), None),
    ],
)
def test_the_successor_is_the_next_value_of_the_type(value: Any, kind: pa.DataType, expected: Any) -> None:
    found = successor(pa.scalar(value, kind))
    assert (found.as_py() if isinstance(found, pa.Scalar) else found) == expected


# -- keys ---------------------------------------------------------------------------------------------------------


@st.composite
def curve_rows(draw: Any, kinds: Any = ORDERABLE) -> tuple[pa.Table, Sort, Schema]:
    """Rows of two to four columns, and a curve whose boundaries come from some of them: the others may lie outside."""
    chosen = draw(st.lists(kinds, min_size=2, max_size=4))
    fields = [pa.field(f"c{place}", kind) for place, kind in enumerate(chosen)]
    schema = Schema.create(pa.schema(fields))
    count = draw(st.integers(1, 12))
    columns = {}
    for field in fields:
        values = draw(arrays(field, count))
        if pa.types.is_dictionary(values.type):
            values = values.dictionary.cast(read_type(values.dictionary.type)).take(values.indices)
        columns[field.name] = values.cast(read_type(values.type))
    rows = pa.table(columns)
    bits = draw(st.integers(2, 16))
    seen = draw(st.integers(0, count))
    boundaries, places = zip(
        *(
            divided(to_statistic(column.slice(0, seen)).combine_chunks(), np.ones(seen), bits=bits)
            for column in rows.columns
        ),
        strict=True,
    )
    terms = tuple(Term(column_id=leaf.id) for leaf in schema.leaves)
    parameters = Ranges(bits=bits, boundaries=boundaries, places=places).to_parameters()
    return rows, Sort(id=1, kind=draw(st.sampled_from(CURVES)), terms=terms, parameters=parameters), schema


def place_of(value: Any, boundaries: list[Any], places: tuple[int, ...], bits: int) -> int:
    """Return where a model value lies on its axis: by counting boundaries."""
    if value is None:
        return (1 << bits) - 1
    if isinstance(value, tuple) and value[0]:
        return (1 << bits) - 2  # NaN
    passed = bisect.bisect_right(boundaries, value)
    return int((places or spread_places(len(boundaries) + 1, bits))[passed])


@given(curve_rows())
def test_keys_are_those_of_the_model(case: tuple[pa.Table, Sort, Schema]) -> None:
    rows, sort, schema = case
    ranges = ranges_of(sort.parameters)
    places = [
        [
            place_of(value, model_values(bounds), own, ranges.bits)
            for value in model_values(column.combine_chunks())
        ]
        for column, bounds, own in zip(rows.columns, ranges.boundaries, ranges.places, strict=True)
    ]
    slow = slow_zorder if sort.kind == "zorder" else slow_hilbert
    expected = [slow(list(cell), ranges.bits) for cell in zip(*places, strict=True)]
    keys = key_table(rows, sort, schema)
    assert keys.schema.field("0").type == pa.uint64()
    assert keys.column("0").to_pylist() == expected


@given(curve_rows(), st.data())
def test_bounds_from_statistics_contain_all_keys(case: tuple[pa.Table, Sort, Schema], data: Any) -> None:
    rows, sort, schema = case
    cut = data.draw(st.integers(0, rows.num_rows))
    blocks = [part for part in (rows.slice(0, cut), rows.slice(cut)) if part.num_rows]
    found = key_maker(sort).bounds(statistics_of(blocks, schema, data.draw(st.booleans())), schema)
    for place, block in enumerate(blocks):
        keys = key_table(block, sort, schema).column("0").to_pylist()
        assert found.known[place]
        assert found.low[0][place].as_py() <= min(keys)
        assert found.high[0][place].as_py() >= max(keys)
        assert not found.exact[place] or len(set(keys)) == 1


def statistics_of(blocks: list[pa.Table], schema: Schema, counts_nan: bool) -> Any:
    """Return the statistics of blocks; without counts of NaN if these are unknown."""

    def column(leaf: Any) -> ColumnStatistics:
        values = [to_statistic(block.column(leaf.name)).combine_chunks() for block in blocks]
        kind = statistic_type(leaf.type)
        present = [each.filter(pa.array(has_value(each))) for each in values]
        ordered = [sorted(each, key=lambda value: model_values(pa.array([value], kind))) for each in present]
        nan = np.array(
            [len(each) - each.null_count - len(some) for each, some in zip(values, present, strict=True)]
        )
        return ColumnStatistics(
            min=pa.array([each[0] if each else pa.scalar(None, kind) for each in ordered], kind),
            max=pa.array([each[-1] if each else pa.scalar(None, kind) for each in ordered], kind),
            null_count=np.array([each.null_count for each in values]),
            nan_count=(nan if counts_nan or not all(map(len, present)) else np.full(len(nan), -1))
            if pa.types.is_floating(kind)
            else None,
        )

    rows = np.array([block.num_rows for block in blocks])
    return SimpleNamespace(row_count=rows, column=functools.cache(column), is_exact=lambda _: rows > 0)


def test_a_block_without_statistics_of_a_column_has_unknown_bounds() -> None:
    schema = Schema.create(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    sort = curve("hilbert", pa.array([1, 5]), pa.array([2]))
    nothing = SimpleNamespace(row_count=np.array([3, 4]), column=lambda _: None, is_exact=lambda _: None)
    found = key_maker(sort).bounds(nothing, schema)
    assert (found.known.tolist(), len(found.low[0]), len(found.high[0])) == ([False, False], 2, 2)


def curve(kind: str, *boundaries: pa.Array, bits: int = 4) -> Sort:
    terms = tuple(Term(column_id=number) for number in range(1, len(boundaries) + 1))
    return Sort(
        id=1,
        kind=kind,
        terms=terms,
        parameters=Ranges(bits=bits, boundaries=boundaries, places=((),) * len(boundaries)).to_parameters(),
    )


WIDENINGS = [
    (pa.int8(), pa.int64()),
    (pa.uint32(), pa.uint64()),
    (pa.uint32(), pa.int64()),
    (pa.float16(), pa.float32()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(9, 2), pa.decimal128(30, 2)),
    (pa.date32(), pa.timestamp("us")),
    (pa.time32("s"), pa.time64("us")),
    (pa.timestamp("s"), pa.timestamp("ms")),
    (pa.string(), pa.large_string()),
]


@given(st.sampled_from(WIDENINGS), st.data())
def test_keys_stay_when_a_column_gets_a_wider_type(kinds: tuple[pa.DataType, pa.DataType], data: Any) -> None:
    narrow, wide = kinds
    assert can_widen(narrow, wide)
    values = data.draw(arrays(pa.field("a", narrow), 6)).cast(read_type(narrow))
    boundaries, _ = divided(to_statistic(pa.chunked_array([values])).combine_chunks(), np.ones(6), bits=4)
    sort = curve("zorder", boundaries, pa.array([1]))
    rows = pa.table({"a": values, "b": pa.array([0] * 6)})
    before, after = (Schema.create(pa.schema([("a", kind), ("b", pa.int64())])) for kind in (narrow, wide))
    if key_maker(sort).widening_problem(before.leaf("a"), after.leaf("a")):
        return
    widened = rows.set_column(0, "a", rows.column("a").cast(read_type(wide)))
    assert key_table(widened, sort, after) == key_table(rows, sort, before)


def test_a_seam_between_chunks_changes_no_key() -> None:
    schema = Schema.create(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    sort = curve("hilbert", pa.array([1, 5]), pa.array(["b"]))
    rows = pa.table({"a": [0, 1, 5, 9, None], "b": ["a", "b", None, "c", "a"]})
    parts = pa.concat_tables([rows.slice(0, 2), rows.slice(2)])
    assert key_table(parts, sort, schema) == key_table(rows, sort, schema)
    assert key_table(rows.slice(0, 0), sort, schema).num_rows == 0


def test_a_lookup_of_numbers_far_apart_is_as_exact_as_a_search() -> None:
    rng = np.random.default_rng(3)
    exact = np.unique(
        np.concatenate((rng.integers(-(2**63), 2**63 - 1, 50), np.arange(-30, 30), [-(2**63), 2**63 - 1]))
    )
    schema = Schema.create(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    sort = curve("zorder", pa.array(exact), pa.array([0]), bits=8)
    near = np.concatenate((exact, exact[1:] - 1, exact[:-1] + 1, rng.integers(-(2**63), 2**63 - 1, 500)))
    keys = key_table(pa.table({"a": near, "b": np.zeros(len(near), np.int64)}), sort, schema)
    order = np.argsort(near, kind="stable")
    passed = np.searchsorted(exact, near, side="right")
    expected = interleaved(0, 2, spread_places(len(exact) + 1, 8)[passed]) | interleaved(
        1, 2, [spread_places(2, 8)[1]]
    )
    assert np.array_equal(keys.column("0").to_numpy(), expected)
    assert (np.diff(passed[order]) >= 0).all()


def test_blocks_beyond_the_boundaries_are_told() -> None:
    schema = Schema.create(pa.schema([("a", pa.int64()), ("b", pa.float64())]))
    sort = curve("hilbert", pa.array([10, 20]), pa.array([1.0]))
    ends = [(0, 9), (0, 10), (19, 20), (20, 30), (None, None)]
    blocks = [pa.table({"a": pa.array(pair, pa.int64()), "b": [0.0, 1.0]}) for pair in ends]
    found = key_maker(sort).outside(statistics_of(blocks, schema, True), schema)
    assert {name: blocks.tolist() for name, blocks in found.items()} == {
        "a": [True, False, False, True, False],
        "b": [False] * 5,
    }


@pytest.mark.parametrize("kind", CURVES)
def test_each_column_alone_orders_rows_by_its_ranges(kind: str) -> None:
    values = pa.array([-5, 0, 3, 9])
    schema = Schema.create(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    sort = curve(kind, values, values)
    pairs = list(itertools.product([-9, *values.to_pylist(), 99], repeat=2))
    cells = pa.table({"a": [pair[0] for pair in pairs], "b": [pair[1] for pair in pairs]})
    assert pc.count_distinct(key_table(cells, sort, schema).column("0")).as_py() == 25
