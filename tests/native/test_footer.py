"""Row groups move between Parquet files undecoded, with all that belongs to them."""

from __future__ import annotations

import io

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.tableformat.parquet.footer import (
    PageError,
    SortColumn,
    end_with_copies,
    footer_start,
    raw_group,
    read_footer,
)
from tblctl.tableformat.parquet.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRUCT,
    TRUE,
    UUID,
    ThriftError,
    read_struct,
    write_struct,
)  # fmt: skip

ROWS = pa.table(
    {"k": range(1_000), "s": [f"text {n % 7}" for n in range(1_000)], "l": [[n, None] for n in range(1_000)]}
)


# -- Thrift -----------------------------------------------------------------------------------------------------------

INTEGERS = {I16: 15, I32: 31, I64: 63}
FLAT = st.one_of(
    *(st.tuples(st.just(kind), st.integers(-(2**bits), 2**bits - 1)) for kind, bits in INTEGERS.items()),
    st.tuples(st.just(BYTE), st.integers(0, 255)),
    st.tuples(st.just(BINARY), st.binary(max_size=200)),
    st.tuples(st.just(DOUBLE), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just(UUID), st.binary(min_size=16, max_size=16)),
    st.sampled_from([(TRUE, True), (FALSE, False)]),
)


def items(kinds):
    """Lists, sets and maps whose elements are alike: all of them integers, or structs."""
    structs = st.lists(kinds, max_size=20).map(lambda found: (STRUCT, found))
    numbers = st.lists(st.integers(-5, 5), max_size=20).map(lambda found: (I32, found))
    pairs = st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=3)), min_size=1, max_size=5)
    return st.one_of(
        st.tuples(st.sampled_from([LIST, SET]), structs | numbers),
        st.tuples(st.just(MAP), pairs.map(lambda found: (I64, BINARY, found))),
    )


STRUCTS = st.recursive(
    st.dictionaries(st.integers(-9, 300), FLAT, max_size=4),
    lambda inner: st.dictionaries(
        st.integers(-9, 300), FLAT | items(inner) | st.tuples(st.just(STRUCT), inner), max_size=4
    ),
    max_leaves=6,
)


@given(STRUCTS)
def test_any_thrift_struct_is_written_as_it_was_read(struct):
    data = write_struct(struct)
    assert read_struct(b"xx" + data + b"yy", 2) == (struct, len(data) + 2)


@given(STRUCTS, st.data())
def test_thrift_that_is_cut_short_is_refused(struct, data):
    whole = write_struct(struct)
    with pytest.raises(ThriftError):
        read_struct(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x1c" * 100, "nested"),
        (b"\x16" + b"\xff" * 11 + b"\0", "64 bits"),
        (b"\x1f\0", "not a Thrift type"),
        (b"\x19\xf5\xff\xff\xff\xff\x0f", "does not end"),
        (bytes([0x19]) + bytes([0x19]) * 3_000, "nested more than 32 deep"),  # lists of lists
        (bytes([0x1B]) + bytes([1, 0xBB]) * 3_000, "nested more than 32 deep"),  # maps of maps
    ],
    ids=["deep", "long", "unknown type", "a list longer than the file", "deep lists", "deep maps"],
)
def test_bytes_that_are_no_thrift_are_refused(data, problem):
    with pytest.raises(ThriftError, match=problem):
        read_struct(data)


# -- files ------------------------------------------------------------------------------------------------------------


def written(rows=ROWS, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=100, write_page_checksum=True, **options)
    return sink.getvalue()


def footer_of(data):
    data = bytes(data)
    return read_footer(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])


def group_of(data, number):
    return raw_group(footer_of(data), number, data.slice)


def mixed(source, **options):
    """Return a file of 50 rows encoded, groups 3 and 9 of a file copied, 60 encoded; and the rows it should have."""
    sink = pa.BufferOutputStream()
    groups = [None]
    with pq.ParquetWriter(sink, ROWS.schema, **options) as writer:
        writer.write_table(ROWS.slice(0, 50))
        for number in (3, 9):
            raw, pages = group_of(source, number)
            groups.append((raw, sink.tell()))
            sink.write(pages)
        writer.write_table(ROWS.slice(500, 60))
        groups.append(None)
    expected = [ROWS.slice(0, 50), ROWS.slice(300, 100), ROWS.slice(900, 100), ROWS.slice(500, 60)]
    data = sink.getvalue()
    start = footer_start(data)
    sorting = [SortColumn(place=0, descending=False, nulls_first=False)]
    end = end_with_copies(data[start:], start, groups, sorting)
    return bytes(data[:start]) + bytes(end), pa.concat_tables(expected)


WRITERS = {
    "plain": {},
    "page index": {"write_page_index": True},
    "page index and bloom filters": {"write_page_index": True, "bloom_filter_options": {"k": True}},
    "second page version": {"data_page_version": "2.0", "compression": "zstd"},
    "no dictionary, no compression": {"use_dictionary": False, "compression": "none"},
    "small pages": {"write_page_index": True, "max_rows_per_page": 7},
}


@pytest.mark.parametrize("own", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("copied", WRITERS.values(), ids=WRITERS)
def test_every_engine_reads_a_file_of_row_groups_of_two_writers(own, copied, tmp_path):
    data, expected = mixed(written(**copied), **own)
    file = tmp_path / "mixed.parquet"
    file.write_bytes(data)
    assert pq.read_table(file, page_checksum_verification=True).equals(expected)
    assert pl.read_parquet(file).equals(pl.from_arrow(expected))
    assert duckdb.sql(f"from '{file}'").to_arrow_table().cast(expected.schema).equals(expected)
    some = expected.filter((pa.compute.field("k") >= 340) & (pa.compute.field("k") < 360))
    assert (
        duckdb.sql(f"from '{file}' where k >= 340 and k < 360")
        .to_arrow_table()
        .cast(some.schema)
        .equals(some)
    )
    assert (
        pl.scan_parquet(file)
        .filter((pl.col("k") >= 340) & (pl.col("k") < 360))
        .collect()
        .equals(pl.from_arrow(some))
    )


def test_page_index_and_bloom_filters_move_along():
    options = WRITERS["page index and bloom filters"]
    source = written(**options)
    data, _ = mixed(source)  # the writer of the others has none
    before, after = footer_of(source), footer_of(data)
    for there, here in ((3, 1), (9, 2)):
        old, new = (footer[4][1][1][number] for footer, number in ((before, there), (after, here)))
        chunk, moved = old[1][1][1][0], new[1][1][1][0]
        shift = moved[3][1][9][1] - chunk[3][1][9][1]
        for offset, length in ((6, 7), (4, 5)):
            found, again = (
                bytes(file[one[offset][1] : one[offset][1] + one[length][1]])
                for file, one in ((source, chunk), (data, moved))
            )
            if offset == 6:
                assert again == found, "the column index has no offsets"
            else:
                pages, pages_again = (read_struct(one)[0][1][1][1] for one in (found, again))
                assert [page[1][1] + shift for page in pages] == [page[1][1] for page in pages_again]
        meta, meta_again = chunk[3][1], moved[3][1]
        assert (
            bytes(source[meta[14][1] : meta[14][1] + meta[15][1]])
            == data[meta_again[14][1] :][: meta_again[15][1]]
        )
    assert 4 not in after[4][1][1][0][1][1][1][0], "no offset index where none was written"


def test_unknown_fields_of_a_footer_survive():
    source = bytes(written())
    footer = footer_of(source)
    entry = footer[4][1][1][3]
    entry[77] = BINARY, b"of a row group"
    entry[1][1][1][1][3][1][99] = I32, 5
    tail = write_struct(footer)
    source = pa.py_buffer(
        source[: -8 - int.from_bytes(source[-8:-4], "little")]
        + tail
        + len(tail).to_bytes(4, "little")
        + b"PAR1"
    )
    data, expected = mixed(source)
    made = footer_of(data)[4][1][1][1]
    assert made[77] == (BINARY, b"of a row group")
    assert made[1][1][1][1][3][1][99] == (I32, 5)
    assert [group[7] for group in footer_of(data)[4][1][1]] == [(I16, number) for number in range(4)]
    assert pq.read_table(io.BytesIO(data)).equals(expected)


def test_column_chunks_with_gaps_between_are_refused():
    source = written()
    footer = footer_of(source)
    meta = footer[4][1][1][3][1][1][1][0][3][1]
    meta[7] = I64, meta[7][1] - 1
    with pytest.raises(PageError, match="do not follow"):
        raw_group(footer, 3, source.slice)
