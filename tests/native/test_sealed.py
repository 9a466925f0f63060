"""Every byte of blocks and segments is covered by a checksum that is verified before the bytes are believed."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import pickle

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from arrow_rows import memory_table
from tables import as_stored

import tblctl
from tblctl.errors import CorruptTableError
from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.native.log.segment_reader import read_segment
from tblctl.tableformat.native.log.segment_rows import encode_segment
from tblctl.tableformat.parquet.checksum import checksum
from tblctl.tableformat.parquet.footer import footer_start, read_footer
from tblctl.tableformat.parquet.sealed import seal
from tblctl.tableformat.parquet.thrift import write_struct
from tblctl.tableformat.storage import Storage

NAN = math.nan


@contextlib.contextmanager
def table_of(blocks):
    """Yield a table of blocks of 10 rows in 2 row groups; half of `v` is null."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("s", pa.struct([("x", pa.int32())]))])
    with memory_table(schema, cluster_by="k", options={"block_rows": 10, "row_group_rows": 5}) as made:
        for first in range(blocks):
            ids = range(first, 30, 3)
            columns = {
                "k": list(ids),
                "v": [f"v{n}" if n % 2 else None for n in ids],
                "s": [{"x": n} for n in ids],
            }
            made.append(pa.table(columns, schema=schema))
        yield made


@pytest.fixture
def table():
    with table_of(blocks=3) as made:
        yield made


def storage_of(table) -> Storage:
    return table._native.storage


def snapshot_name(table) -> str:
    return f"metadata/snapshots/{table.snapshot.sequence:020d}.json"


def without_checksums(table, changed=lambda _name, data: data):
    """Make a table what an older tblctl would have written; `changed` returns what a block's file is then."""
    storage = storage_of(table)
    document = json.loads(storage.read(snapshot_name(table)))
    for segment, ref in zip(document["segments"], table._native.head().segments, strict=True):
        rows = read_segment(storage, ref)
        for name in rows["path"].to_pylist():
            data = storage.read(name)
            storage.write(name, changed(name, data))
            assert len(storage.read(name)) == len(data), "the segment has its size"
        sink = io.BytesIO()
        pq.write_table(rows.drop_columns(["footer_bytes", "footer_checksum"]), sink, store_schema=False)
        storage.write(ref.path, sink.getvalue())
        segment["size_bytes"] = len(sink.getvalue())
        del segment["footer_bytes"], segment["footer_checksum"]
    storage.write(snapshot_name(table), as_stored(document))
    return tblctl.open(table.location)


def with_other_id(old: int, new: int):
    """Return what gives the columns of one id another in a block's footer, which has as many bytes then."""

    def changed(_name, data):
        stop = len(data) - 8
        start = stop - int.from_bytes(data[stop : stop + 4], "little")
        footer = read_footer(data[start:stop])
        for element in footer[2][1][1]:
            if 9 in element and element[9][1] == old:
                element[9] = element[9][0], new
        again = write_struct(footer)
        assert len(again) == stop - start
        return data[:start] + again + data[stop:]

    return changed


# -- what is covered --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["block", "segment"])
def test_no_bit_of_a_file_can_change_unnoticed(kind):
    with table_of(blocks=1) as table:
        assert_every_change_is_noticed(table, kind)


def assert_every_change_is_noticed(table, kind):
    storage, head = storage_of(table), table._native.head()
    name = table.files()[0].path if kind == "block" else head.segments[0].path
    data = storage.read(name)

    def read():
        return table.scan().to_arrow() if kind == "block" else read_segment(storage, head.segments[0])

    for place in range(len(data)):
        storage.write(name, data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        with pytest.raises(CorruptTableError, match=name):
            read()


def test_the_checksums_are_where_the_format_says(table):
    """A reader in another language can verify them: the reader here uses only docs/FORMAT.md."""
    storage = storage_of(table)
    rows = pq.read_table(io.BytesIO(storage.read(table._native.head().segments[0].path)))
    for row in rows.select(["path", "footer_bytes", "footer_checksum"]).to_pylist():
        data = storage.read(row["path"])
        end = data[-row["footer_bytes"] :]
        assert checksum(end) == row["footer_checksum"]
        footer = pq.read_metadata(io.BytesIO(end))
        count = footer.num_row_groups * footer.num_columns
        stop = len(end) - 8 - int.from_bytes(end[-8:-4], "little")
        entries = np.frombuffer(end[stop - 16 * count : stop], "<u8").reshape(count, 2).tolist()
        start = 0
        for chunk_stop, expected in entries:
            assert checksum(data[start:chunk_stop]) == expected
            start = chunk_stop
        assert start == len(data) - len(end)


def test_a_column_that_is_not_read_is_not_verified(tmp_path):
    """Columns can still be read alone: damage of one does not stop those who do without it."""
    data = pa.table({"k": range(30), "v": [f"v{n}" for n in range(30)]})
    table = tblctl.create(tmp_path / "table", data.schema)
    table.append(data)
    path = tmp_path / "table" / table.files()[0].path
    content = bytearray(path.read_bytes())
    content[pq.read_metadata(path).row_group(0).column(1).data_page_offset + 1] ^= 1
    path.write_bytes(content)
    assert table.scan(columns=["k"]).to_arrow()["k"].to_pylist() == list(range(30))
    with pytest.raises(CorruptTableError, match="checksum"):
        table.scan(columns=["v"]).to_arrow()


def test_a_block_in_the_place_of_another_is_damage(table):
    storage, (one, other, *_) = storage_of(table), [file.path for file in table.files()]
    storage.write(one, storage.read(other))
    with pytest.raises(CorruptTableError, match=one):
        table.scan().to_arrow()


def test_other_readers_of_parquet_read_blocks_as_before(table, tmp_path):
    data = storage_of(table).read(table.files()[0].path)
    (tmp_path / "block.parquet").write_bytes(data)
    path = str(tmp_path / "block.parquet")
    expected = pq.read_table(io.BytesIO(data))["k"].to_pylist()
    assert duckdb.sql(f"select k from '{path}' order by k").fetchall() == [(k,) for k in expected]
    assert polars.read_parquet(path)["k"].to_list() == expected


@pytest.mark.parametrize("figures", [(None, 1), (100, None), (11, 1), (100, -1), (100, 1 << 64)])
def test_half_a_seal_or_an_impossible_one_is_refused(figures):
    with pytest.raises(ValueError, match="footer"):
        Seal.of(*figures)
    assert Seal.of(None, None) is None


def test_a_seal_survives_pickling_with_its_block(table):
    head = table._native.head()
    assert pickle.loads(pickle.dumps(head.segments[0])).seal == head.segments[0].seal
    assert head.segments[0].seal is not None


# -- blocks without checksums -----------------------------------------------------------------------------------------


def test_a_table_without_checksums_is_read_and_gets_them_when_written_on(table):
    expected = table.scan().to_arrow().sort_by("k")
    older = without_checksums(table)
    assert older.scan().to_arrow().sort_by("k").equals(expected)
    assert older.check(deep=True).ok
    older.delete("k = 0")
    older.recluster(policy="full")
    rows = [read_segment(storage_of(older), ref) for ref in older._native.head().segments]
    assert all(part["footer_checksum"].null_count == 0 for part in rows)
    assert older.scan().to_arrow().sort_by("k").equals(expected.slice(1))
    assert older.check(deep=True).ok


@pytest.mark.parametrize(("id_", "column"), [(2, "v"), (4, "x in s")])
@pytest.mark.parametrize(
    "act",
    [
        lambda table: table.scan().to_arrow(),
        lambda table: table.to_dataset().to_table(),
        lambda table: table.delete("k < 9"),
        lambda table: table.update("v = 'y'", "k < 9"),
        lambda table: table.update("k = 1", "k < 9"),
    ],
    ids=["scan", "to_dataset", "delete", "update", "update the key"],
)
def test_a_block_without_an_id_of_its_schema_is_damage_not_null(table, act, id_, column):
    older = without_checksums(table, with_other_id(id_, 60))
    before = older.snapshot.sequence
    with pytest.raises(CorruptTableError, match=f"ids {id_}"):
        act(older)
    assert tblctl.open(table.location).snapshot.sequence == before


def test_a_merge_of_a_block_without_an_id_of_its_schema_fails_and_commits_nothing(table):
    older = without_checksums(table, with_other_id(2, 60))
    outcome = older.recluster(policy="full")
    assert (outcome.committed_groups, outcome.failed_groups) == (0, 1)
    assert "lacks 1 columns" in outcome.groups[0].error


@pytest.mark.parametrize(
    "act",
    [
        lambda table: table.delete("k < 9"),
        lambda table: table.update("v = 'y'", "k < 9"),
        lambda table: table.recluster(policy="full"),
    ],
    ids=["delete", "update", "recluster"],
)
def test_a_block_is_not_replaced_if_it_has_not_the_nulls_that_its_segment_tells(table, act):
    """As if a fault had made a column null on reading: the counts do not agree, and nothing is committed."""
    storage, head = storage_of(table), table._native.head()
    document = json.loads(storage.read(snapshot_name(table)))
    for segment, ref in zip(document["segments"], head.segments, strict=True):
        rows = read_segment(storage, ref)
        place = rows.column_names.index("column_2_null_count")
        wrong = pc.subtract(rows["column_2_null_count"], 1)
        made = encode_segment(rows.set_column(place, "column_2_null_count", wrong))
        storage.write(ref.path, made.data)
        segment |= {
            "size_bytes": made.data.size,
            "footer_bytes": made.seal.footer_bytes,
            "footer_checksum": f"{made.seal.footer_checksum:016x}",
        }
    storage.write(snapshot_name(table), as_stored(document))
    again = tblctl.open(table.location)
    with pytest.raises(CorruptTableError, match="nulls in column 'v'"):
        act(again)
    assert tblctl.open(table.location).snapshot.sequence == head.sequence


def replaced(table, rows, *, sealed):
    """Write `rows` as a table's first segment; return what a snapshot says of it whose checksum was computed again."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, store_schema=False, compression="zstd", row_group_size=rows.num_rows)
    data = sink.getvalue()
    start = footer_start(data)
    made = seal(data[:start], data[start:])
    ref = table._native.head().segments[0]
    data = made.data if sealed else data
    storage_of(table).write(ref.path, data)
    return dataclasses.replace(
        ref,
        size_bytes=data.size,
        block_count=rows.num_rows,
        row_count=pc.sum(rows["row_count"]).as_py(),
        data_bytes=pc.sum(rows["size_bytes"]).as_py(),
        seal=made.seal if sealed else None,
    )


def many_blocks(table, count):
    rows = read_segment(storage_of(table), table._native.head().segments[0])
    return pa.concat_tables([rows] * math.ceil(count / rows.num_rows)).slice(0, count).combine_chunks()


def read_peak(table, ref):
    """Return by how much reading a segment raised the peak of memory; that it is refused is expected."""
    before, peak = pa.total_allocated_bytes(), pa.default_memory_pool().max_memory()
    with pytest.raises(CorruptTableError, match="its columns would take"):
        read_segment(storage_of(table), ref)
    after = pa.default_memory_pool().max_memory()
    return after - before if after > peak else 0


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(("count", "word"), [(10_000, 280_000), (30_000, 8_000)])
def test_a_segment_whose_words_decode_to_gigabytes_is_refused(table, sealed, count, word):
    """A word of 280 kB that 10,000 rows share takes 19 kB in the file and 2.8 GB in memory."""
    many = many_blocks(table, count)
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["x" * word]))
    many = many.set_column(many.column_names.index("run_id"), "run_id", shared)
    assert read_peak(table, replaced(table, many, sealed=sealed)) < 100 << 20


@pytest.mark.parametrize("sealed", [False, True])
def test_a_segment_of_many_columns_that_take_much_together_is_refused(table, sealed):
    many = many_blocks(table, 200_000)
    nothing = pa.nulls(many.num_rows, pa.int64())
    more = {f"column_{number}_null_count": nothing for number in range(900, 1_200)}
    many = pa.table(dict(zip(many.column_names, many.columns, strict=True)) | more)
    assert read_peak(table, replaced(table, many, sealed=sealed)) < 100 << 20


@pytest.mark.parametrize("sealed", [False, True])
def test_a_segment_with_a_column_of_a_wide_type_is_refused(table, sealed):
    many = many_blocks(table, 10_000)
    wide = pa.array([b"x" * 10_000] * 10_000, pa.binary(10_000))
    ref = replaced(table, many.append_column("column_900_min", wide), sealed=sealed)
    del wide
    assert read_peak(table, ref) < 100 << 20


@pytest.mark.parametrize("sealed", [False, True])
def test_a_segment_with_a_nested_column_is_refused(table, sealed):
    rows = many_blocks(table, 3)
    ref = replaced(table, rows.append_column("column_900_min", pa.array([["x"]] * 3)), sealed=sealed)
    with pytest.raises(CorruptTableError, match="nested"):
        read_segment(storage_of(table), ref)


@pytest.mark.parametrize("word", [8, 5_000])
def test_a_segment_of_10000_equal_blocks_is_read(word):
    """With keys of two columns as long as they may be, of 4 bytes a letter: what compresses best of what is written."""
    schema = pa.schema([("k", pa.string()), ("l", pa.string()), ("n", pa.int64())])
    with memory_table(schema, cluster_by=("k", "l")) as table:
        table.append(
            pa.table({"k": ["\U0001f600" * word], "l": ["\U0001f600" * word], "n": [1]}, schema=schema)
        )
        many = many_blocks(table, 10_000)
        names = pa.array([f"data/{checksum(str(number).encode()):032x}.parquet" for number in range(10_000)])
        many = many.set_column(many.column_names.index("path"), "path", names)
        ref = replaced(table, many, sealed=True)
        assert read_segment(storage_of(table), ref).num_rows == 10_000


# -- NaN --------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["with checksums", "older"])
def with_nan(request):
    """[5, NaN] in `x` and in `s.x`; 6 and 7 in another row group. Parquet's statistics leave NaN out."""
    schema = pa.schema([("x", pa.float64()), ("s", pa.struct([("x", pa.float32())])), ("k", pa.int64())])
    with memory_table(schema, options={"row_group_rows": 2}) as made:
        values = [5.0, NAN, 6.0, 7.0]
        columns = {"x": values, "s": [{"x": value} for value in values], "k": range(4)}
        made.append(pa.table(columns, schema=schema))
        yield made if request.param == "with checksums" else without_checksums(made)


@pytest.mark.parametrize("field", [pads.field("x"), pads.field("s", "x")], ids=["column", "in a struct"])
def test_rows_with_nan_are_found_by_pyarrow(with_nan, field):
    dataset = with_nan.to_dataset()
    assert dataset.to_table(filter=field != 5.0)["k"].to_pylist() == [1, 2, 3]
    assert dataset.count_rows(filter=field != 5.0) == 3
    assert dataset.to_table(filter=pc.is_nan(field))["k"].to_pylist() == [1]


def test_rows_with_nan_are_found_by_polars_and_duckdb(with_nan):
    dataset = with_nan.to_dataset()
    lazy = polars.scan_pyarrow_dataset(dataset)
    assert lazy.filter(polars.col("x") != 5.0).collect()["k"].to_list() == [1, 2, 3]
    assert duckdb.from_arrow(dataset).filter("x <> 5").order("k").project("k").fetchall() == [
        (1,),
        (2,),
        (3,),
    ]


def test_only_row_groups_with_nan_lack_bounds(with_nan):
    data = storage_of(with_nan).read(with_nan.files()[0].path)
    footer = pq.read_metadata(io.BytesIO(data))
    known = [
        [footer.row_group(group).column(place).statistics.has_min_max for place in range(3)]
        for group in range(2)
    ]
    assert known == [[False, False, True], [True, True, True]]
    assert footer.row_group(0).column(0).statistics.null_count == 0


def test_an_older_block_with_nan_is_handed_out_converted(with_nan):
    """Its file has bounds that engines would take to be of NaN too."""
    older = with_nan._native.head().segments[0].seal is None
    formats = {type(fragment.format) for fragment in with_nan.to_dataset().get_fragments()}
    assert formats == {pads.IpcFileFormat if older else pads.ParquetFileFormat}


# -- datasets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["page header", "footer"])
def test_a_dataset_raises_on_damage_that_pages_own_checksums_do_not_cover(table, where):
    storage, name = storage_of(table), table.files()[0].path
    data = bytearray(storage.read(name))
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0)
    data[chunk.data_page_offset + 2 if where == "page header" else len(data) - 40] ^= 1
    storage.write(name, bytes(data))
    with pytest.raises(CorruptTableError, match="checksum"):
        table.to_dataset()
