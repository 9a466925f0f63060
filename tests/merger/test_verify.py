"""Every change of a column's values is noticed, and no other order of them is."""

from __future__ import annotations

import datetime
import math
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from arrow_rows import tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.merger.task import verify
from tblctl.merger.task.verify import Fingerprint, VerificationError
from tblctl.tableformat.errors import InternalError
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.record import BlockRecord, ColumnRecord
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.projection import conform

from ..model.strategies import SCHEMAS

RECORD = BlockRecord(
    path="data/1", row_count=1, size_bytes=1, uncompressed_bytes=1, decoded_bytes=1, schema_id=1, level=1, run_id=None,
    cluster_key_id=1,
)  # fmt: skip
PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
PAIR_OF_FLAGS = pa.list_(pa.field("flag", pa.bool_(), nullable=False), 2)
DAY, TIME = datetime.date(2024, 2, 29), datetime.time(1, 2, 3)
INSTANT = datetime.datetime(2024, 2, 29, 1, 2, 3)

VALUES = {  # different values of each type, first the one that lies in memory as zeros, or takes none
    pa.bool_(): [False, True],
    pa.int8(): [0, 1, -1],
    pa.uint16(): [0, 1, 65_535],
    pa.int32(): [0, 1, -1],
    pa.int64(): [0, 1, -(2**63)],
    pa.uint64(): [0, 1, 2**64 - 1],
    pa.float16(): [0.0, 1.5, math.nan],
    pa.float32(): [0.0, -0.0, 1.5, math.nan],
    pa.float64(): [0.0, -0.0, 1.5, math.inf, math.nan],
    pa.string(): ["", "a", "b", "aa"],
    pa.large_string(): ["", "a", "é", "x" * 5_000],
    pa.binary(): [b"", b"\0", b"\1", b"\0\0"],
    pa.large_binary(): [b"", b"\0", b"\xff"],
    pa.binary(1): [b"\0", b"\1"],
    pa.binary(6): [b"\0" * 6, b"abcdef", b"abcdeg"],
    pa.binary(16): [b"\0" * 16, b"x" * 16],
    pa.date32(): [datetime.date(1970, 1, 1), DAY],
    pa.date64(): [datetime.date(1970, 1, 1), DAY],
    pa.time32("s"): [datetime.time(0), TIME],
    pa.time64("us"): [datetime.time(0), TIME],
    pa.timestamp("us"): [datetime.datetime(1970, 1, 1), INSTANT],
    pa.timestamp("ns", "UTC"): [datetime.datetime(1970, 1, 1), INSTANT],
    pa.decimal128(38, 2): [Decimal("0.00"), Decimal("0.01"), Decimal("-0.01"), Decimal(10) ** 30],
    pa.decimal256(60, 0): [Decimal(0), Decimal(1), Decimal(-1), Decimal(10) ** 50],
    pa.dictionary(pa.int32(), pa.string()): ["", "a", "bb"],
    pa.list_(pa.int32()): [[], [0], [1], [0, 0], [None]],
    pa.large_list(pa.string()): [[], [""], ["a"], [None], ["", ""]],
    pa.list_(pa.int64(), 2): [[0, 0], [0, 1], [0, None]],
    pa.list_(pa.list_(pa.int8())): [[], [[]], [[0]], [None], [[], []]],
    PAIR: [{"a": 0, "b": ""}, {"a": 1, "b": ""}, {"a": None, "b": ""}, {"a": 0, "b": None}, {"a": None, "b": None}],
    pa.list_(PAIR): [[], [{"a": 0, "b": ""}], [{"a": None, "b": ""}], [None]],
    pa.map_(pa.string(), pa.int32()): [[], [("", 0)], [("", None)], [("a", 0)], [("", 0), ("a", 0)]],
    pa.map_(pa.string(), PAIR_OF_FLAGS): [[], [("", None)], [("", [False, False])], [("", [False, True])]],
}  # fmt: skip


def require_equal(read, merged, where):
    verify.require_equal(
        Fingerprint.of(pa.table({"v": read})), Fingerprint.of(pa.table({"v": merged})), where
    )


def with_slices(values, kind):
    """Return the values as they are, as a slice of a longer array, and in chunks."""
    whole = pa.array(values, kind)
    around = pa.concat_arrays([whole, whole, whole]).slice(len(values), len(values))
    cut = len(values) // 2
    return whole, around, pa.chunked_array([around.slice(0, cut), whole.slice(cut), whole.slice(0, 0)])


def changes(values):
    """Yield what could go wrong: a row lost, one twice, or one that became another value or null."""
    for place, value in enumerate(values):
        yield values[:place] + values[place + 1 :]
        yield [*values, value]
        for other in range(len(values)):
            if other != place:
                yield [*values[:place], values[other], *values[place + 1 :]]


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_a_lost_doubled_or_altered_value_of_any_type_is_noticed(kind):
    values = [None, *VALUES[kind]]
    read = with_slices(values, kind)
    for array in read:
        for same in with_slices(values[::-1], kind):
            require_equal(array, same, "here")
    for changed in changes(values):
        for place, merged in enumerate(with_slices(changed, kind)):
            with pytest.raises(VerificationError):
                require_equal(read[place], merged, f"{changed} for {values}")


def test_a_lost_null_is_noticed_where_nothing_else_is():
    for kind in (pa.null(), pa.int8(), pa.string(), PAIR, pa.list_(pa.null())):
        require_equal(pa.nulls(3, kind), pa.nulls(3, kind), "here")
        with pytest.raises(VerificationError):
            require_equal(pa.nulls(3, kind), pa.nulls(2, kind), "here")


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_empty_arrays_are_equal_and_differ_from_one_row(kind):
    empty = pa.array([], kind)
    sliced = pa.array(VALUES[kind], kind).slice(1, 0)
    require_equal(empty, sliced, "here")
    require_equal(sliced, pa.chunked_array([], kind), "here")
    with pytest.raises(VerificationError):
        require_equal(empty, pa.array(VALUES[kind][:1], kind), "here")


def test_what_lies_under_a_null_does_not_count():
    hidden = pa.Array.from_buffers(pa.int32(), 2, [pa.py_buffer(b"\1"), pa.py_buffer(b"\5\0\0\0\7\0\0\0")])
    assert hidden.to_pylist() == [5, None]
    require_equal(hidden, pa.array([5, None], pa.int32()), "here")
    mask = pa.array([False, True])
    for made in (
        pa.StructArray.from_arrays([pa.array([5, 7])], ["x"], mask=mask),
        pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array([5, 7]), mask=mask),
        pa.FixedSizeListArray.from_arrays(pa.array([5, 7]), 1, mask=mask),
    ):
        require_equal(made, pa.array(made.to_pylist(), made.type), "here")


def test_dictionaries_are_compared_by_what_they_mean():
    def words(indices, *values):
        return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(values))

    require_equal(words([0, 1, None], "a", "b"), words([1, None, 2], "c", "b", "a"), "here")
    with pytest.raises(VerificationError):
        require_equal(words([0, 1], "a", "b"), words([0, 1], "a", "c"), "here")


@given(st.lists(st.text(max_size=3), unique=True, min_size=1), st.data())
def test_text_that_is_coded_has_the_fingerprint_of_what_it_says(words, data):
    start = data.draw(st.integers(0, len(words) - 1))
    some = pa.array(words).slice(start)
    indices = data.draw(st.lists(st.one_of(st.none(), st.integers(0, len(some) - 1))))
    coded = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), some)
    for one in (coded, coded.slice(1), coded.slice(0, 1)):
        assert Fingerprint.of(pa.table({"a": one})) == Fingerprint.of(
            pa.table({"a": one.dictionary_decode()})
        )


@given(SCHEMAS, st.data())
@settings(max_examples=cases(30), suppress_health_check=list(HealthCheck))
def test_rows_of_any_type_in_any_order_are_equal(columns, data):
    schema = Schema.create(columns)
    rows = conform(data.draw(tables(schema.logical)), schema)
    start = data.draw(st.integers(0, rows.num_rows))
    rows = rows.slice(start, data.draw(st.integers(0, rows.num_rows - start)))
    order = data.draw(st.permutations(range(rows.num_rows)))
    for name in rows.column_names:
        read = rows[name].combine_chunks()
        require_equal(read, read.take(pa.array(order, pa.int64())), name)
        require_equal(rows[name], pa.chunked_array([read.slice(1), read.slice(0, 1)]), name)


def test_the_error_says_where_and_that_it_is_a_bug():
    with pytest.raises(InternalError) as caught:
        require_equal(pa.array([1, None]), pa.array([1, 2]), "group 3")
    assert str(caught.value).startswith(
        "group 3: the values read and merged differ in 'v' ('v': 2 with 1 nulls"
    )
    assert "please report it" in str(caught.value)


def test_the_rows_of_a_task_are_compared_over_all_its_windows():
    rows = pa.table({"a": [1, 2, 3, None], "b": ["x", "y", "z", ""]})
    parts = [Fingerprint.of(rows.slice(0, 1)), Fingerprint.of(rows.slice(1))]
    assert Fingerprint.total(parts) == Fingerprint.of(rows) != Fingerprint.total(parts[:1])
    columns = [Fingerprint.of(rows.select([name])) for name in rows.column_names]
    assert Fingerprint.total(columns) == Fingerprint.of(rows)
    with pytest.raises(VerificationError, match="differ in 'b'"):
        verify.require_equal(Fingerprint.of(rows), columns[0], "here")


def test_rows_out_of_order_and_blocks_that_overlap_are_refused():
    term = Term(column_id=1, transform="identity", descending=False, nulls_first=False)
    sort = Sort(id=1, terms=(term,))
    parts = [pa.table({"0": [1, 2]}), pa.table({"0": [2, 3]})]
    verify.require_sorted(parts, sort, "here")
    with pytest.raises(VerificationError, match="here: merged rows are not in key order"):
        verify.require_sorted(parts[::-1], sort, "here")

    def record(low, high, *, exact=True):
        ends = {"key_min": (pa.scalar(low),), "key_max": (pa.scalar(high),)}
        return replace(RECORD, path=f"data/{low}", key_exact=exact, **ends)

    verify.require_order([record(1, 2), record(2, 2), record(2, 5)], sort, "here")
    verify.require_order([record(1, 3, exact=False), record(2, 5)], sort, "here")
    with pytest.raises(VerificationError, match="here: data/1 and data/2 overlap"):
        verify.require_order([record(1, 3), record(2, 5)], sort, "here")


@pytest.mark.parametrize(
    ("told", "copied", "fine"), [(2, 0, True), (1, 0, False), (3, 0, False), (3, 1, True), (4, 1, False)]
)
def test_statistics_that_tell_other_numbers_of_nulls_than_were_merged_are_refused(told, copied, fine):
    schema = Schema.create(pa.schema([("a", pa.int64()), ("s", pa.struct([("b", pa.int64())]))]))
    rows = pa.table({"a": [1, None, None], "s": [None] * 3}, schema=schema.written)
    (leaf, _) = schema.leaves

    def record(nulls):
        column = ColumnRecord(
            min=pa.scalar(1), max=pa.scalar(1), exact=True, null_count=nulls, nan_count=None, compressed_bytes=1,
            uncompressed_bytes=1,
        )  # fmt: skip
        return replace(RECORD, columns={leaf.id: column})

    records = [record(told - 1), record(1)]
    with (
        nullcontext()
        if fine
        else pytest.raises(VerificationError, match=f"here: statistics of 'a' count {told} ")
    ):
        verify.require_null_counts(records, Fingerprint.of(rows), schema, rows_copied=copied, where="here")


def test_statistics_that_a_table_format_does_not_keep_are_not_asked_for():
    schema = Schema.create(pa.schema([("a", pa.int64())]))
    rows = pa.table({"a": [None]}, schema=schema.written)
    verify.require_null_counts([RECORD], Fingerprint.of(rows), schema, rows_copied=0, where="here")
