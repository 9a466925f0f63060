"""Key order and key ranges against a model that compares plain Python values."""

from __future__ import annotations

import functools
import math
from itertools import pairwise

import pyarrow as pa
import pytest
from arrow_rows import arrays, canonical_values, memory_table
from hypothesis import given
from hypothesis import strategies as st

from tblctl.tableformat.keys.order import (
    BOUND_LENGTH,
    KEY_LENGTH,
    is_sorted,
    key_range,
    key_ranks,
    key_table,
    shorten,
    sort_indices,
)
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.cut import cut_rows
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import read_type
from tblctl.tableformat.model.term_values import transform_array

from ..model.strategies import DICTIONARY_TYPES, FLAT_TYPES

ORDERABLE = st.one_of(FLAT_TYPES.filter(lambda kind: not pa.types.is_null(kind)), DICTIONARY_TYPES)


def model_values(array: pa.Array) -> list:
    """Return a column's values as model values; floats as (is NaN, number), so that NaN is above infinity."""
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    values = canonical_values(array)
    if pa.types.is_floating(kind):
        numbers = [None if value is None else float(value) for value in values]
        return [
            None if value is None else (True, 0.0) if math.isnan(value) else (False, value)
            for value in numbers
        ]
    return [value.encode() if isinstance(value, str) else value for value in values]


def compare_keys(terms, one, other) -> int:
    for term, left, right in zip(terms, one, other, strict=True):
        if left is None or right is None:
            if left is right:
                continue
            return -1 if (left is None) == term.nulls_first else 1
        if left != right:
            return -1 if (left < right) != term.descending else 1
    return 0


def model_order(terms, columns) -> list[int]:
    """Return the row numbers in key order; Python's sort is stable, as ours must be."""
    keys = list(zip(*columns, strict=True))
    compare = functools.cmp_to_key(lambda one, other: compare_keys(terms, keys[one], keys[other]))
    return sorted(range(len(keys)), key=compare)


@st.composite
def keyed_rows(draw, kinds=ORDERABLE):
    """A table of one to three columns of orderable types in read types, and a sort by all of them."""
    count = draw(st.integers(1, 12))
    chosen = draw(st.lists(kinds, min_size=1, max_size=3))
    fields = [pa.field(f"c{place}", kind) for place, kind in enumerate(chosen)]
    schema = Schema.create(pa.schema(fields))
    columns = {}
    for field in fields:
        pool = draw(arrays(field, 4))  # few different values, so that later terms decide
        picks = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
        if pa.types.is_dictionary(field.type):
            # Views have no take (pyarrow 26), which decoding needs.
            pool = pool.dictionary.cast(read_type(pool.dictionary.type)).take(pool.indices)
        as_read = pool.cast(read_type(pool.type)) if pool.type != read_type(pool.type) else pool
        columns[field.name] = as_read.take(pa.array(picks))
    terms = tuple(
        Term(
            column_id=leaf.id,
            transform="identity",
            descending=draw(st.booleans()),
            nulls_first=draw(st.booleans()),
        )
        for leaf in schema.leaves
    )
    return pa.table(columns), Sort(id=1, terms=terms), schema


@given(keyed_rows())
def test_rows_are_sorted_as_the_model_sorts_them(case):
    rows, sort, schema = case
    keys = key_table(rows, sort, schema)
    expected = model_order(sort.terms, [model_values(column.combine_chunks()) for column in rows.columns])
    assert sort_indices(keys, sort).to_pylist() == expected
    assert is_sorted(keys.take(pa.array(expected)), sort)
    assert is_sorted(keys, sort) == (expected == list(range(len(expected))))


@given(keyed_rows())
def test_ranks_are_the_places_of_distinct_keys_in_the_models_order(case):
    rows, sort, schema = case
    columns = [model_values(column.combine_chunks()) for column in rows.columns]
    keys = list(zip(*columns, strict=True))
    expected, place = [0] * len(keys), 0
    order = model_order(sort.terms, columns)
    for before, row in pairwise(order):
        place += compare_keys(sort.terms, keys[before], keys[row]) != 0
        expected[row] = place
    of_rows = key_table(rows, sort, schema)
    half = len(keys) // 2
    low, high = key_ranks(of_rows.slice(0, half), of_rows.slice(half), sort)
    assert [*low.tolist(), *high.tolist()] == expected


def test_keys_that_are_equal_share_a_rank_nan_and_zeros_and_nulls_too():
    keys = pa.table({"0": pa.array([math.nan, None, -0.0, math.nan, None, 0.0])})
    low, high = key_ranks(keys, keys, Sort(id=1, terms=(Term(column_id=1),)))
    assert low.tolist() == high.tolist() == [1, 2, 0, 1, 2, 0]


@given(keyed_rows())
def test_the_range_of_sorted_rows_bounds_every_key(case):
    rows, sort, schema = case
    keys = key_table(rows, sort, schema)
    keys = keys.take(sort_indices(keys, sort))
    found = key_range(keys, sort)
    low, high = (
        [model_values(pa.array([value], value.type))[0] for value in end] for end in (found.min, found.max)
    )
    columns = [model_values(column.combine_chunks()) for column in keys.columns]
    every = list(zip(*columns, strict=True))
    assert all(
        compare_keys(sort.terms, low, key) <= 0 <= compare_keys(sort.terms, high, key) for key in every
    )
    assert found.constant == (compare_keys(sort.terms, every[0], every[-1]) == 0)
    if found.exact:
        assert compare_keys(sort.terms, low, every[0]) == compare_keys(sort.terms, high, every[-1]) == 0
    else:
        assert any(isinstance(value, bytes) and len(value) > KEY_LENGTH for key in every for value in key)


TEXTS = st.text(
    st.sampled_from(["a", "é", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]),
    min_size=BOUND_LENGTH - 2,
    max_size=BOUND_LENGTH + 3,
)


@given(TEXTS | st.text(st.just("\U0010ffff"), min_size=120, max_size=140), st.booleans())
def test_shortened_text_bounds_the_text_and_is_marked(text, up):
    bound = shorten(pa.scalar(text), up=up)
    short = bound.value.as_py()
    short.encode()  # no lone surrogate
    assert (short.encode() >= text.encode()) if up else (short.encode() <= text.encode())
    assert bound.exact == (short == text)
    if len(text) <= BOUND_LENGTH:
        assert bound.exact
    elif not (up and set(text[:BOUND_LENGTH]) == {"\U0010ffff"}):
        assert len(short) <= BOUND_LENGTH


@given(st.binary(max_size=3), st.sampled_from([b"\xff", b"\0", b"ab"]), st.booleans())
def test_shortened_bytes_bound_the_bytes_and_are_marked(start, filler, up):
    content = start + filler * 140
    bound = shorten(pa.scalar(content), up=up)
    short = bound.value.as_py()
    assert short >= content if up else short <= content
    assert bound.exact == (short == content)


def test_the_upper_bound_steps_over_the_surrogates():
    bound = shorten(pa.scalar("\ud7ff" * 200), up=True)
    assert bound.value.as_py() == "\ud7ff" * 127 + "\ue000"


TRANSFORMS = [
    ("year", pa.timestamp("us", "UTC")),
    ("month", pa.date32()),
    ("day", pa.timestamp("s")),
    ("hour", pa.timestamp("ns")),
    ("truncate[3]", pa.int32()),
    ("truncate[2]", pa.large_string()),
    ("truncate[10]", pa.decimal128(9, 2)),
    ("bucket[4]", pa.int64()),
    ("bucket[4]", pa.string_view()),
]


@pytest.mark.parametrize(("transform", "kind"), TRANSFORMS)
@given(data=st.data())
def test_transformed_keys_sort_by_the_transforms_values(transform, kind, data):
    field = pa.field("c", kind)
    schema = Schema.create(pa.schema([field]))
    values = data.draw(arrays(field, 8))
    values = values.cast(read_type(kind)) if kind != read_type(kind) else values
    term = Term(
        column_id=1,
        transform=transform,
        descending=data.draw(st.booleans()),
        nulls_first=data.draw(st.booleans()),
    )
    sort = Sort(id=1, terms=(term,))
    keys = key_table(pa.table({"c": values}), sort, schema)
    expected = model_order(sort.terms, [model_values(transform_array(term, values, kind))])
    assert sort_indices(keys, sort).to_pylist() == expected


def test_nan_is_greatest_and_nulls_stand_where_the_term_says():
    data = pa.table({"f": [math.nan, None, -0.0, 0.0, math.inf, -math.inf, 1.0], "n": list(range(7))})
    orders = {
        "f": [5, 2, 3, 6, 4, 0, 1],
        "f nulls first": [1, 5, 2, 3, 6, 4, 0],
        "f desc": [0, 4, 6, 2, 3, 5, 1],
        "f desc nulls first": [1, 0, 4, 6, 2, 3, 5],
    }
    for key, order in orders.items():
        with memory_table(data.schema, cluster_by=key) as table:
            table.append(data)
            assert table.scan().to_arrow()["n"].to_pylist() == order, key


# -- blocks -----------------------------------------------------------------------------------------------------------


def ranges_of(table):
    return sorted((block.min, block.max) for block in table.files())


@given(st.lists(st.integers(0, 30), min_size=1, max_size=80), st.integers(1, 20))
def test_blocks_of_one_append_form_one_run_and_touch_at_most_at_their_ends(keys, block_rows):
    data = pa.table({"k": keys, "n": range(len(keys))})
    with memory_table(data.schema, cluster_by="k", options={"block_rows": block_rows}) as table:
        table.append(data)
        blocks = table.files()
        assert len({block.run for block in blocks}) == 1
        assert None not in {block.run for block in blocks}
        ranges = ranges_of(table)
        assert all(before[1] <= after[0] for before, after in pairwise(ranges))
        assert sorted(block.rows for block in blocks) == sorted(cut_rows(len(keys), block_rows))


def test_with_sort_scope_block_every_block_is_a_run_of_its_own_in_arrival_order():
    data = pa.table({"k": [9, 1, 8, 2, 7, 3, 6, 4]})
    with memory_table(data.schema, cluster_by="k", options={"block_rows": 4, "sort_scope": "block"}) as table:
        table.append(data)
        assert ranges_of(table) == [((1,), (9,)), ((3,), (7,))]
        assert len({block.run for block in table.files()}) == 2
        assert table.check(deep=True).ok


def test_a_budget_too_small_for_all_rows_makes_several_runs_each_disjoint():
    data = pa.table({"k": [(i * 7919) % 10_000 for i in range(10_000)], "s": ["x" * 50] * 10_000})
    with memory_table(data.schema, cluster_by="k", options={"block_rows": 500}) as table:
        table.append(data, memory_bytes=400_000)
        runs = {}
        for block in table.files():
            runs.setdefault(block.run, []).append((block.min, block.max))
        assert 2 <= len(runs) <= 8
        for ranges in runs.values():
            ranges.sort()
            assert all(before[1] <= after[0] for before, after in pairwise(ranges))
        assert sorted(table.scan().to_arrow()["k"].to_pylist()) == list(range(10_000))


@pytest.mark.parametrize(("rows", "level"), [(7, 0), (8, -1), (9, -1), (10, -1)])
def test_a_block_of_one_key_is_constant_from_floor_of_eight_tenths_of_block_rows(rows, level):
    with memory_table("k: int64, n: int64", cluster_by="k", options={"block_rows": 10}) as table:
        table.append(pa.table({"k": [1] * rows, "n": range(rows)}))
        assert [block.level for block in table.files()] == [level]


def test_floor_of_eight_tenths_rounds_down():
    with memory_table("k: int64", cluster_by="k", options={"block_rows": 7}) as table:  # 0.8 x 7 = 5.6
        table.append(pa.table({"k": [1] * 5}))
        assert [block.level for block in table.files()] == [-1]


def test_a_full_block_of_two_keys_is_not_constant_although_its_transform_may_be():
    data = pa.table({"k": [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]})
    for key, level in (("k", 0), ("truncate(10, k)", -1)):
        with memory_table(data.schema, cluster_by=key, options={"block_rows": 10}) as table:
            table.append(data)
            assert [block.level for block in table.files()] == [level], key


def test_a_full_block_of_nulls_or_nan_is_constant():
    for value in (None, math.nan):
        with memory_table("k: double", cluster_by="k", options={"block_rows": 10}) as table:
            table.append(pa.table({"k": pa.array([value] * 10, pa.float64())}))
            assert [block.level for block in table.files()] == [-1]


def test_rows_without_a_key_keep_their_order_and_have_no_run():
    with memory_table("n: int64", options={"block_rows": 4}) as table:
        table.append(pa.table({"n": [3, 1, 2, 9, 5, 4, 7, 0]}))
        assert table.scan().to_arrow()["n"].to_pylist() == [3, 1, 2, 9, 5, 4, 7, 0]
        assert [(block.run, block.cluster_key_id, block.min, block.level) for block in table.files()] == [
            (None, None, (), 0)
        ] * 2


@given(st.integers(0, 5_000), st.integers(1, 300))
def test_cutting_keeps_every_row_and_leaves_no_sliver(rows, block_rows):
    sizes = cut_rows(rows, block_rows)
    assert sum(sizes) == rows
    assert all(0 < size <= block_rows for size in sizes)
    assert len(sizes) == math.ceil(rows / block_rows)
    if len(sizes) > 1 and min(sizes) < 0.8 * block_rows:
        assert max(sizes) - min(sizes) <= 1, "the last rows are spread evenly"


def test_long_keys_are_compared_in_full_though_their_bounds_are_short():
    start = "a" * 1_200
    data = pa.table({"k": [start + last for last in "dbca"], "n": [3, 1, 2, 0]})
    with memory_table(data.schema, cluster_by="k", options={"block_rows": 2}) as table:
        table.append(data)
        assert table.scan().to_arrow()["n"].to_pylist() == [0, 1, 2, 3]
        for block in table.files():
            assert block.min == ("a" * 1_024,)
            assert block.max == ("a" * 1_023 + "b",)
        assert table.scan(f"k = '{start}b'").to_arrow()["n"].to_pylist() == [1]
        assert table.check(deep=True).ok


@pytest.mark.parametrize("policy", ["levels", "full"])
def test_keys_that_differ_after_their_bounds_end_are_clustered_in_one_round(policy):
    """Nothing in the metadata tells these blocks apart, except that one merge wrote them."""
    keys = [f"{'a' * 1_200}{number:05}" for number in range(100)]
    with memory_table(pa.schema([("k", pa.string())]), cluster_by="k", options={"block_rows": 10}) as table:
        for first in range(4):
            table.append(pa.table({"k": keys[first::4]}))
        assert table.recluster(policy=policy, final=True).rounds == 1
        assert len({(block.min, block.max) for block in table.files()}) == 1
        assert table.info().average_depth == 10.0, "as far as their bounds tell"
        assert table.scan().to_arrow()["k"].to_pylist() == keys
        assert table.recluster(policy=policy, final=True).commits == 0
        table.append(pa.table({"k": [keys[5], keys[95]]}))
        outcome = table.recluster(policy="full", final=True)
        assert (outcome.rounds, outcome.rows) == (1, 102), "of another run: nobody knows where its keys lie"
        assert table.scan().to_arrow()["k"].to_pylist() == sorted([*keys, keys[5], keys[95]])


def test_keys_that_share_a_long_beginning_are_clustered_in_one_round():
    keys = [f"https://example.org/{'a/' * 100}{number:05}" for number in range(400)]
    with memory_table(pa.schema([("k", pa.string())]), cluster_by="k", options={"block_rows": 50}) as table:
        for first in range(4):
            table.append(pa.table({"k": keys[first::4]}))
        outcome = table.recluster(final=True)
        assert (outcome.rounds, outcome.depth_after) == (1, 1.0)
        assert table.check(deep=True).ok
