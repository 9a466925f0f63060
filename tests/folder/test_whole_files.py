"""Files that are copied on import as they are: the rows, the figures and every reader agree with encoding them."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_rows import canonical, memory_table, multiset, tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases
from tables import assert_sound

import tblctl
from tblctl import errors
from tblctl.errors import CorruptTableError, InvalidDataError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.parquet.thrift import read_struct, write_struct
from tblctl.tableformat.projection import conform
from tblctl.tableformat.storage import Storage

from ..model.strategies import SCHEMAS

COLUMNS = {"at": pa.int64(), "s": pa.string(), "x": pa.float64(), "day": pa.date32()}
SNAPPY = {"compression": "snappy", "row_group_size": 5}


def block(ats, *, texts=None, floats=None):
    """Return as many rows as a block of the tables here has."""
    count = len(ats)
    return pa.table(
        {
            "at": pa.array(ats, pa.int64()),
            "s": texts or [f"text {at}" for at in ats],
            "x": floats or [at / 2 for at in ats],
            "day": pa.array(range(count), pa.date32()),
        }
    )


def put(table, rows, name="a.parquet", **options):
    """Write a file beside a table in memory, and return its place."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **{**SNAPPY, **options})
    place = table.location.removesuffix("/table") + "/in"
    Storage(place).write(name, sink.getvalue())
    return place


def made(*, cluster_by="at", **options):
    return memory_table(pa.schema(COLUMNS), cluster_by=cluster_by, options={"block_rows": 10, **options})


def with_footer(place, change):
    """Write a file again with its row groups' descriptions changed."""
    data = Storage(place).read("a.parquet")
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(data[-8 - length : -8])
    for group in footer[4][1][1]:
        change(group)
    end = write_struct(footer)
    Storage(place).write("a.parquet", data[: -8 - length] + end + len(end).to_bytes(4, "little") + b"PAR1")


def codecs(table):
    """Return the codec of each block: a copied one has its file's, others the table's."""
    storage = Storage(table.location)
    found = [storage.read(item.name) for item in storage.list("data/")]
    return sorted(pq.read_metadata(io.BytesIO(data)).row_group(0).column(0).compression for data in found)


def assert_same(table, rows):
    assert multiset(table.scan().to_arrow().select(rows.column_names)) == multiset(rows)
    assert_sound(table)
    assert table.check(deep=True).problems == ()


@settings(max_examples=cases(12), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_copied_file_has_the_rows_and_figures_of_an_encoded_one_whatever_its_types(data):
    number = pa.field("row number", pa.int64())
    columns = data.draw(SCHEMAS.filter(lambda schema: number.name not in schema.names)).append(number)
    rows = data.draw(tables(columns, min_rows=7, max_rows=8))
    if data.draw(st.booleans()):
        rows = rows.set_column(rows.num_columns - 1, number, pa.array(range(rows.num_rows), pa.int64()))
    how = {
        "row_group_size": data.draw(st.integers(1, 8)),
        "use_dictionary": data.draw(st.booleans()),
        "data_page_version": data.draw(st.sampled_from(["1.0", "2.0"])),
        "write_statistics": data.draw(st.booleans()),
        "store_decimal_as_integer": data.draw(st.booleans()),
        "write_page_index": data.draw(st.booleans()),
    }
    with memory_table(columns, cluster_by='"row number"', options={"block_rows": 8}) as table:
        try:
            place = put(table, rows, **how)
            stored = pq.read_table(io.BytesIO(Storage(place).read("a.parquet")))
        except (pa.ArrowException, OverflowError):
            return  # pyarrow's own writer or reader cannot do it
        tblctl.import_parquet(place, table.location)
        expected = conform(stored, Schema.create(columns))
        assert multiset(table.scan().to_arrow()) == multiset(expected)
        assert table.check(deep=True).problems == ()


def test_a_sorted_file_of_one_block_is_copied_and_clustered_and_others_are_not():
    with made() as table:
        place = put(table, block(range(10)))
        put(table, block([*range(9, -1, -1)]), "b.parquet")
        put(table, block(range(5)), "small.parquet")
        put(table, block(range(11)), "large.parquet")
        tblctl.import_parquet(place, table.location)
        assert codecs(table) == ["SNAPPY", "SNAPPY", "ZSTD", "ZSTD"]
        info = table.info()
        assert (info.total_block_count, info.unclustered_block_count) == (4, 1)
        rows = pa.concat_tables(
            [block(range(10)), block(range(9, -1, -1)), block(range(5)), block(range(11))]
        )
        assert_same(table, rows)
        table.recluster(final=True)
        assert table.info().unclustered_block_count == 0
        assert_same(table, rows)


def test_copies_are_found_by_conditions_and_keep_what_their_footers_say():
    with made() as table:
        place = put(table, block(range(10), floats=[float("nan"), *map(float, range(9))]))
        tblctl.import_parquet(place, table.location)
        assert codecs(table) == ["SNAPPY"]
        for where, count in (
            ("at >= 7", 3),
            ("s = 'text 3'", 1),
            ("x <> 5", 9),
            ("at < 0", 0),
        ):
            assert table.count(where) == count, where
        (name,) = [item.name for item in Storage(table.location).list("data/")]
        file = pq.ParquetFile(io.BytesIO(Storage(table.location).read(name)))
        assert [int(field.metadata[b"PARQUET:field_id"]) for field in file.schema_arrow] == [1, 2, 3, 4]
        assert file.metadata.row_group(0).column(2).statistics.has_min_max is False
        assert file.metadata.row_group(1).sorting_columns == (pq.SortingColumn(0),)


def test_other_readers_read_a_copied_block(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    table = tblctl.create(tmp_path / "t", pa.schema(COLUMNS), options={"block_rows": 10})
    pq.write_table(block(range(10)), tmp_path / "in.parquet", **SNAPPY)
    tblctl.import_parquet(tmp_path / "in.parquet", table.location)
    assert codecs(table) == ["SNAPPY"]
    (path,) = (tmp_path / "t" / "data").glob("*.parquet")
    assert canonical(pq.read_table(path)) == canonical(block(range(10)))
    found = duckdb.sql(
        f"SELECT count(*), sum(\"at\"), max(s) FROM read_parquet('{path}') WHERE x >= 1"
    ).fetchall()
    assert found == [(8, 44, "text 9")]


def test_a_damaged_byte_of_a_copied_block_is_found_when_it_is_read():
    with made() as table:
        tblctl.import_parquet(put(table, block(range(10))), table.location)
        storage = Storage(table.location)
        (name,) = [item.name for item in storage.list("data/")]
        whole = storage.read(name)
        for place in (10, len(whole) // 3):
            data = bytearray(whole)
            data[place] ^= 1
            storage.write(name, bytes(data))
            with pytest.raises(CorruptTableError, match="checksum"):
                table.scan().to_arrow()


@pytest.mark.parametrize(
    "rows",
    [
        block(range(10)).rename_columns(["at", "S", "x", "day"]),
        block(range(10)).select(["s", "at", "x", "day"]),
        block(range(10)).select(["at", "s", "x"]),
        block(range(10)).set_column(0, "at", pa.array(range(10), pa.int32())),
    ],
    ids=["another name", "another order", "a column less", "another type"],
)
def test_files_of_another_layout_are_encoded(rows):
    with memory_table(pa.schema({**COLUMNS, "S": pa.string()}), options={"block_rows": 10}) as table:
        table.drop_column("s" if "S" in rows.column_names else "S")
        tblctl.import_parquet(put(table, rows), table.location)
        assert codecs(table) == ["ZSTD"]
        assert table.count() == 10


def test_folders_columns_are_not_in_files_so_these_are_encoded():
    with memory_table(pa.schema({**COLUMNS, "year": pa.int32()}), options={"block_rows": 10}) as table:
        tblctl.import_parquet(put(table, block(range(10)), "year=1/a.parquet"), table.location, hive=True)
        assert codecs(table) == ["ZSTD"]
        assert set(table.scan().to_arrow()["year"].to_pylist()) == {1}


def test_text_that_is_none_is_refused_though_pages_are_not_decoded():
    broken = pa.Array.from_buffers(
        pa.string(),
        10,
        [
            None,
            pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in range(11))),
            pa.py_buffer(b"\xff" * 10),
        ],
    )
    with made() as table:
        rows = block(range(10)).set_column(1, "s", broken)
        place = put(table, rows, write_statistics=False)
        with pytest.raises(InvalidDataError, match=r"a.parquet: column 's' has broken values"):
            tblctl.import_parquet(place, table.location)
        assert table.count() == 0


def test_a_page_that_differs_from_its_checksum_is_not_copied():
    with made() as table:
        place = put(table, block(range(10)), write_page_checksum=True)
        data = bytearray(Storage(place).read("a.parquet"))
        chunk = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0)
        data[chunk.data_page_offset + chunk.total_compressed_size - 30] ^= 1
        Storage(place).write("a.parquet", bytes(data))
        with pytest.raises(InvalidDataError, match=r"a.parquet is damaged"):
            tblctl.import_parquet(place, table.location)
        assert table.count() == 0
        assert [item.name for item in Storage(table.location).list("data/")] == []


def test_sizes_that_a_writer_left_out_are_not_believed():
    """A row group that claims fewer bytes than a chunk of it has would be refused as a block later."""
    with made() as table:
        place = put(table, block(range(10)))
        with_footer(place, lambda group: group.update({2: (group[2][0], 1)}))
        tblctl.import_parquet(place, table.location)
        assert codecs(table) == ["ZSTD"]
        assert_same(table, block(range(10)))


def test_files_whose_writer_counted_nulls_several_times_are_encoded():
    with made(cluster_by="s") as table:
        rows = block(range(10)).set_column(0, "at", pa.array([None, *range(9)], pa.int64()))
        place = put(table, rows)

        def change(group):
            statistics = group[1][1][1][0][3][1][12][1]
            if statistics[3][1]:
                statistics[3] = statistics[3][0], 20

        with_footer(place, change)
        tblctl.import_parquet(place, table.location)
        assert codecs(table) == ["ZSTD"]
        assert (table.count('"at" IS NULL'), table.count('"at" = 5')) == (1, 1)
        table.delete('"at" IS NULL')
        assert table.count() == 9


def test_files_that_count_no_nulls_in_structs_where_there_are_some_are_encoded():
    columns = {**COLUMNS, "t": pa.struct({"a": pa.int64()})}
    with memory_table(pa.schema(columns), options={"block_rows": 10}) as table:
        values = pa.array([{"a": None}, *({"a": n} for n in range(9))], columns["t"])
        place = put(table, block(range(10)).append_column("t", values))

        def change(group):
            statistics = group[1][1][1][4][3][1][12][1]
            statistics[3] = statistics[3][0], 0

        with_footer(place, change)
        tblctl.import_parquet(place, table.location)
        assert codecs(table) == ["ZSTD"]
        assert table.count("t.a IS NULL") == 1
        table.delete("t.a IS NOT NULL")
        assert table.count() == 1


def test_files_of_milliseconds_are_cast_before_they_are_whole_seconds():
    """Least and greatest value are whole seconds, another one is not."""
    columns = {**COLUMNS, "seen": pa.timestamp("s")}
    with memory_table(pa.schema(columns), options={"block_rows": 10}) as table:
        seen = pa.array([0, 1500, *[2000] * 8], pa.timestamp("ms"))
        rows = block(range(10)).append_column("seen", seen)
        with pytest.raises(errors.TblctlError, match="seen"):
            tblctl.import_parquet(put(table, rows), table.location)
        assert table.count() == 0
        whole = rows.set_column(4, "seen", pa.array([n * 1000 for n in range(10)], pa.timestamp("ms")))
        tblctl.import_parquet(put(table, whole), table.location)
        assert (codecs(table), table.count()) == (["ZSTD"], 10)
