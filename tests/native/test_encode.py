"""Blocks written window by window have the same statistics, sizes, levels and dictionaries as if written at once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from arrow_rows import canonical, tables
from faults import Faults, inject
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.tableformat.errors import InternalError, StorageError
from tblctl.tableformat.keys.order import BOUND_LENGTH, KEY_LENGTH, sort_indices
from tblctl.tableformat.model.cut import cut_rows
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.parquet import statistics
from tblctl.tableformat.parquet.block_writer import BlockEncoder

from ..merger.blocks import RUN, block_of, lake
from ..model.strategies import SCHEMAS

MANY = settings(max_examples=cases(25), suppress_health_check=list(HealthCheck))


def add(builder, rows):
    builder.adding(rows, cut_rows(rows.num_rows, builder._layout.options.row_group_rows))()


def build(here, *windows, sort=None, level=2):
    """Write windows of rows (anything that is a table of the schema's columns) and return the records."""
    builder = here.io.build(sort=sort, level=level, run_id=RUN)
    for rows in windows:
        add(builder, here.conformed(rows))
    return builder.finish()


def assert_told_right(here, records, windows):
    """Assert that blocks hold the windows' rows, and that their statistics are what measuring these gives."""
    assert canonical(here.rows_of(records)) == [
        row for rows in windows for row in canonical(here.conformed(rows))
    ]
    assert here.problems(records) == []


# -- statistics -------------------------------------------------------------------------------------------------------


@given(st.data())
@MANY
def test_statistics_of_windows_are_those_of_all_rows(data):
    columns = data.draw(SCHEMAS)
    schema = Schema.create(columns)
    with lake(schema, (), row_group_rows=data.draw(st.sampled_from([1, 3, 100]))) as here:
        windows = data.draw(st.lists(tables(schema.logical, min_rows=1), min_size=1, max_size=3))
        records = build(here, *windows)
        assert len(records) == 1
        assert_told_right(here, records, windows)


LIMIT = statistics.FOOTER_BYTES
SHORT, MARGINAL, LONG = "m" * 5, "k" * LIMIT, "p" * (LIMIT + 1)
TEXTS = {
    "short in all windows": [["b", "a"], ["d", "c"]],
    "as long as the footer takes": [[MARGINAL, "b"], ["z" * LIMIT]],
    "one byte longer": [[LONG], [LONG]],
    "least in a long window, greatest in a short one": [["a" * 5_000], [SHORT, "z"]],
    "least in a short window, greatest in a long one": [[SHORT, "a"], ["z" * 5_000, "b"]],
    "long in the middle": [["m"], ["a", "z" * 4_100], ["n"]],
    "empty": [["", ""], [""]],
    "empty and others": [["b"], ["", "c"]],
    "only nulls": [[None, None], [None]],
    "nulls, then text": [[None], ["x", None]],
    "long text, then nulls": [["x" * 9_000], [None]],
    "not ASCII": [["é", "\ud7ff", "z"], ["\U0010ffff", "\ue000"]],
    "not ASCII, as long as the footer takes in bytes": [["é" * (LIMIT // 2)], ["a"]],
    "not ASCII, longer in bytes alone": [["é" * (LIMIT // 2 + 1)], ["a"]],
    "longer than bounds are": [["x" * (BOUND_LENGTH + 1)], ["x" * BOUND_LENGTH]],
    "bytes above letters": [["Z", "a"], ["\x7f", "\x80"]],
}  # fmt: skip


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("windows", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("row_group_rows", [1, 100])
def test_bounds_of_text_are_right_whether_the_footer_has_them_or_not(kind, windows, row_group_rows):
    if "binary" in str(kind):
        windows = [[None if text is None else text.encode() for text in window] for window in windows]
    fields = [pa.field("s", kind), pa.field("t", pa.struct([("s", kind)]))]
    with lake(pa.schema(fields), (), row_group_rows=row_group_rows) as here:
        given = [
            pa.table(
                {"s": pa.array(window, kind), "t": [{"s": text} for text in window]},
                schema=here.schema.logical,
            )
            for window in windows
        ]
        (record,) = build(here, *given)
        assert_told_right(here, [record], given)
        values = [text for window in windows for text in window if text is not None]
        values.sort(key=lambda text: text if isinstance(text, bytes) else text.encode())
        for leaf in here.schema.leaves:
            column = record.columns[leaf.id]
            low, high = column.min.as_py(), column.max.as_py()
            if not values:
                assert (low, high) == (None, None)
            else:
                assert low == values[0][:BOUND_LENGTH]
                assert column.exact == (max(len(values[0]), len(values[-1])) <= BOUND_LENGTH)
                assert (
                    (high == values[-1])
                    if len(values[-1]) <= BOUND_LENGTH
                    else (high > values[-1][:BOUND_LENGTH])
                )


@pytest.mark.parametrize("precision", [5, 15, 18, 19])
@pytest.mark.parametrize("windows", [[[-5, None], [7]], [[None], [None]], [[None], [3, -3]]])
def test_bounds_of_decimals_are_right_whether_the_footer_has_them_or_not(precision, windows):
    kind = pa.decimal128(precision, 2)
    fields = [pa.field("d", kind), pa.field("t", pa.struct([("d", kind)]))]
    with lake(pa.schema(fields), (), row_group_rows=2) as here:
        given = [
            pa.table({"d": window, "t": [{"d": number} for number in window]}, schema=here.schema.logical)
            for window in ([None if n is None else Decimal(n) / 4 for n in window] for window in windows)
        ]
        (record,) = records = build(here, *given)
        assert_told_right(here, records, given)
        numbers = [Decimal(n) / 4 for window in windows for n in window if n is not None]
        for leaf in here.schema.leaves:
            column = record.columns[leaf.id]
            assert column.min.as_py() == min(numbers, default=None)
            assert column.max.as_py() == max(numbers, default=None)


def test_long_text_is_measured_since_the_footer_leaves_it_out():
    with lake("s: string", ()) as here:
        for text, in_footer in ((MARGINAL, True), (LONG, False)):
            rows = here.conformed(pa.table({"s": [text]}))
            (found,) = statistics.measure(rows, here.schema.leaves, before_writing=True).values()
            assert (found.in_footer, found.min.is_valid) == (in_footer, not in_footer)


# -- rows of one key --------------------------------------------------------------------------------------------------

KEYS = pa.schema([("a", pa.float64()), ("b", pa.string())])


@pytest.mark.parametrize("terms", ["a", "a desc nulls first, b", "b, a", "bucket(2, b)"])
@given(st.data())
@MANY
def test_the_most_rows_of_one_key_are_counted_across_windows(terms, data):
    values = st.tuples(
        st.sampled_from([None, float("nan"), -0.0, 0.0, 1.5]), st.sampled_from([None, "", "x", "y"])
    )
    rows = data.draw(st.lists(values, min_size=1, max_size=30))
    with lake(KEYS, terms) as here:
        table = here.conformed(pa.table(dict(zip("ab", zip(*rows, strict=True), strict=True)), schema=KEYS))
        keys = here.keys(table)
        order = sort_indices(keys, here.sort)
        ends = data.draw(st.sets(st.integers(1, len(rows))))
        windows = [table.take(order[start:end]) for start, end in pairwise(sorted({0, *ends, len(rows)}))]
        (record,) = build(here, *windows, sort=here.sort)
        counts = Counter(
            tuple(0.0 if value == 0 else str(value) for value in row.values()) for row in keys.to_pylist()
        )
        assert record.same_key_rows == max(counts.values())
        assert here.problems([record]) == []


@pytest.mark.parametrize(("length", "known"), [(KEY_LENGTH, 2), (KEY_LENGTH + 1, None)])
def test_rows_of_keys_that_bounds_cannot_tell_apart_are_not_counted(length, known):
    with lake("k: string, n: int64", "k") as here:
        given = [pa.table({"k": ["a", "a"], "n": [1, 2]}), pa.table({"k": ["b" * length, "c"], "n": [3, 4]})]
        (record,) = build(here, *given, sort=here.sort)
        assert record.same_key_rows == known
        assert here.problems([record]) == []


def test_without_an_order_rows_of_one_key_are_not_counted():
    with lake("k: int64", "k") as here:
        (record,) = build(here, pa.table({"k": [1, 1]}), sort=None)
        assert record.same_key_rows is None


@pytest.mark.parametrize("said", [1, 3])
def test_check_tells_of_a_wrong_number_of_rows_of_one_key(said):
    with lake("k: int64", "k") as here:
        (record,) = build(here, pa.table({"k": [1, 1, 2, 3]}), sort=here.sort)
        assert here.problems([replace(record, same_key_rows=said)]) == [
            f"{record.path}: same_key_rows is 2, metadata says {said}"
        ]
        assert here.problems([replace(record, same_key_rows=None)]) == [], "written before it was counted"


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_the_sizes_of_a_block_are_those_of_its_windows_together():
    with lake("n: int64, s: string", (), row_group_rows=10) as here:
        windows = [
            pa.table({"n": range(25), "s": ["x" * 10] * 25}),
            pa.table({"n": range(7), "s": ["y"] * 7}),
        ]
        (record,) = build(here, *windows)
        assert record.row_count == 32
        assert record.size_bytes == len(here.storage.read(record.path))
        assert record.decoded_bytes == 32 * 8 + 32 * 4 + 25 * 10 + 7, "numbers, offsets and text"
        assert here.row_groups(record) == (9, 8, 8, 7), "a row group ends where its window does"


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_very_different_sizes_never_exceed_the_bytes_of_a_block(seed):
    chance = random.Random(seed)
    with lake("k: int64, s: string", "k", block_bytes=10_000, row_group_rows=5) as here:
        sizes = [chance.choice([1, 10, 100, 3_000, 12_000]) for _ in range(120)]
        rows = pa.table({"k": range(120), "s": ["x" * size for size in sizes]})
        cuts = sorted(chance.sample(range(1, 120), 6))
        windows = [
            rows.slice(start, stop - start) for start, stop in zip([0, *cuts], [*cuts, 120], strict=True)
        ]
        records = build(here, *windows, sort=here.sort)
        assert_told_right(here, records, windows)
        for record in records:
            assert record.row_count == 1 or record.decoded_bytes <= 10_000
        assert any(record.decoded_bytes > 10_000 for record in records), (
            "a row that is larger alone is one block"
        )
        assert all(record.run_id == RUN for record in records)


def test_a_dictionary_that_few_rows_use_is_no_reason_for_more_blocks():
    words = [f"{n:0100d}" for n in range(1_000)]
    with lake(pa.schema([("w", pa.dictionary(pa.int32(), pa.string()))]), (), block_bytes=50_000) as here:
        column = pa.array(words).dictionary_encode()
        windows = [pa.table({"w": column.slice(start, 100)}) for start in range(0, 300, 100)]
        (record,) = build(here, *windows)
        assert_told_right(here, [record], windows)
        assert record.uncompressed_bytes < 2 * 300 * 104


# -- keys and levels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "level", "found"),
    [
        ([[1] * 4, [1] * 4], 2, -1),  # constant, and full from eight of ten rows on
        ([[1] * 4, [1] * 3], 2, 2),
        ([[1] * 4, [1] * 3 + [2]], 2, 2),
        ([[1] * 4, [1] * 3 + [2]], -1, 0),
        ([[None] * 5, [None] * 5], 2, -1),
    ],
)
def test_the_key_range_spans_all_windows_and_decides_the_level(keys, level, found):
    with lake("k: int64", "k", block_rows=10) as here:
        windows = [pa.table({"k": pa.array(some, pa.int64())}) for some in keys]
        (record,) = build(here, *windows, sort=here.sort, level=level)
        assert record.level == found
        assert [value.as_py() for value in record.key_min] == keys[0][:1]
        assert [value.as_py() for value in record.key_max] == keys[-1][-1:]
        assert (record.cluster_key_id, record.run_id) == (here.sort.id, RUN)
        assert_told_right(here, [record], windows)


def test_long_keys_are_bounded_and_marked():
    with lake("k: string", "k") as here:
        (record,) = build(
            here, pa.table({"k": ["a" * 4_096]}), pa.table({"k": ["b" * 4_096]}), sort=here.sort
        )
        assert record.key_min[0].as_py() == "a" * KEY_LENGTH
        assert record.key_max[0].as_py() == "b" * (KEY_LENGTH - 1) + "c"
        assert not record.key_exact
        assert here.problems([record]) == []


def test_without_a_sort_a_block_has_no_key_and_the_level_of_its_merge():
    with lake("k: int64", "k") as here:
        (record,) = build(here, pa.table({"k": [3, 1]}), level=5)
        assert (record.cluster_key_id, record.key_min, record.key_max, record.level) == (None, (), (), 5)


def test_the_file_says_which_columns_it_is_sorted_by():
    import pyarrow.parquet as pq

    columns = "s: struct<a: int32, b: int32>, k: int64, f: double"
    row = {"s": [{"a": 1, "b": 2}], "k": [1], "f": [1.0]}
    for key, expected in (
        ("k desc nulls first", [pq.SortingColumn(2, descending=True, nulls_first=True)]),
        ("k, f", [pq.SortingColumn(2)]),  # Parquet leaves the place of NaN open
        ("bucket(2, k)", []),
        ("s.a, k", []),
    ):
        with lake(columns, key) as here:
            (record,) = build(here, pa.table(row, schema=here.schema.logical), sort=here.sort)
            footer = pq.read_metadata(pa.BufferReader(here.storage.read(record.path)))
            assert list(footer.row_group(0).sorting_columns) == expected, key


# -- builders ---------------------------------------------------------------------------------------------------------


def test_a_builder_without_rows_stores_nothing():
    with lake("k: int64", "k") as here:
        assert build(here) == ()
        assert here.stored() == set()


def test_an_encoder_without_rows_is_refused():
    with lake("k: int64", "k") as here, pytest.raises(InternalError, match=r"data/x\.parquet has no rows"):
        BlockEncoder(here.io.layout, None).store(here.storage, "data/x.parquet", level=0, run_id=None)


def test_nothing_is_stored_before_a_block_is_complete_and_discard_deletes_all():
    with lake("k: int64", "k", block_bytes=100) as here:
        builder = here.io.build(sort=here.sort, level=1, run_id=RUN)
        add(builder, here.conformed(pa.table({"k": range(12)})))
        assert here.stored() == set()
        add(builder, here.conformed(pa.table({"k": [20]})))
        assert len(here.stored()) == 1
        records = builder.finish()
        assert here.stored() == {record.path for record in records}
        assert [block_of(record).row_count for record in records] == [12, 1]
        builder.discard()
        assert here.stored() == set()


def test_discard_does_not_raise_and_warns_of_what_stays(caplog):
    with lake("k: int64", "k") as here:
        builder = here.io.build(sort=here.sort, level=1, run_id=RUN)
        add(builder, here.conformed(pa.table({"k": [1]})))
        builder.finish()
        faults = Faults()
        faults.fail(StorageError("no answer"), operation="delete")
        with inject(faults):
            builder.discard()
        assert "could not be deleted, gc will: no answer" in caplog.text
        assert len(here.stored()) == 1


def test_a_block_whose_write_failed_after_all_is_discarded_too():
    with lake("k: int64", "k") as here:
        builder = here.io.build(sort=here.sort, level=1, run_id=RUN)
        add(builder, here.conformed(pa.table({"k": [1]})))
        faults = Faults()
        faults.fail(operation="write", at="after")
        with inject(faults), pytest.raises(StorageError):
            builder.finish()
        assert len(here.stored()) == 1
        builder.discard()
        assert here.stored() == set()
