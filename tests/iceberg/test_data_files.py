"""New data files: their names, places, columns, encodings, and what their footers say."""

from __future__ import annotations

import contextlib
import datetime
import gc
import logging
import math
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

import tblctl
from tblctl.errors import InvalidOptionError
from tblctl.tableformat.errors import StorageError
from tblctl.tableformat.iceberg.own_files import decode_keys, parse_name
from tblctl.tableformat.iceberg.writing.locations import Locations, location_properties, partition_path
from tblctl.tableformat.keys.order import key_table
from tblctl.tableformat.storage.local import LocalUpload

from .lake import Lake, append, fields, version_of
from .replacing import port_of
from .test_final import COLUMNS as WIDE
from .test_final import KEYS, rows_of

PLAIN = fields(id=LongType(), region=StringType(), number=DoubleType())
EVERY = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "uuid", UUIDType(), required=False),
    NestedField(3, "items", ListType(6, UUIDType(), element_required=False), required=False),
    NestedField(4, "map", MapType(7, StringType(), 8, IntegerType(), value_required=False), required=False),
    NestedField(
        5, "inner", StructType(NestedField(9, "amount", DecimalType(12, 2), required=False)), required=False
    ),
)


def plain(lake: Lake, *, rows: int = 50, appends: int = 2, region: Any = "eu", **how: Any) -> Table:
    table = lake.create("t", PLAIN, **how)
    for begin in range(appends):
        ids = list(range(begin, rows * appends, appends))
        append(table, id=ids, region=[region] * rows, number=[float(id_) for id_ in ids])
    return table


def new_files(table: Table, cluster_by: str | None = "id") -> list[Any]:
    tblctl.from_iceberg(table).recluster(cluster_by=cluster_by, final=True)
    found = [task.file for task in table.refresh().scan().plan_files()]
    assert found
    assert all(parse_name(file.file_path) for file in found)
    return sorted(found, key=lambda file: str(file.file_path))


def local(file: Any) -> str:
    return str(file.file_path.removeprefix("file://"))


def test_name_says_table_level_sort_and_run(lake: Lake) -> None:
    table = plain(lake)
    (file,) = new_files(table)
    name = parse_name(file.file_path)
    assert name is not None
    assert name.table == table.metadata.table_uuid.hex
    assert name.sort_id == version_of(table).sort.id
    assert name.level == 1
    assert name.run_id != "0"


def test_files_lie_in_the_data_folder(lake: Lake) -> None:
    table = plain(lake)
    (file,) = new_files(table)
    assert file.file_path.rpartition("/")[0] == f"{table.location()}/data"


def test_files_lie_where_the_data_path_says(lake: Lake, tmp_path: Path) -> None:
    (file,) = new_files(plain(lake, properties={"write.data.path": f"file://{tmp_path}/elsewhere"}))
    assert file.file_path.startswith(f"file://{tmp_path}/elsewhere/tblctl-")


def test_object_storage_locations_have_folders_of_hashes(lake: Lake) -> None:
    (file,) = new_files(plain(lake, properties={"write.object-storage.enabled": "true"}))
    assert re.search(r"/data/[01]{4}/[01]{4}/[01]{4}/[01]{8}/tblctl-[^/]*$", file.file_path)


class Custom(LocationProvider):
    def new_data_location(self, data_file_name: str, partition_key: Any = None) -> str:
        folder = self.table_properties["mine.folder"]
        return f"{self.table_location}/{folder}/{data_file_name}"


def test_provider_of_the_table_names_files(lake: Lake) -> None:
    named = {"write.py-location-provider.impl": f"{__name__}.Custom", "mine.folder": "chosen"}
    (file,) = new_files(plain(lake, properties=named))
    assert "/chosen/tblctl-" in file.file_path


def test_provider_that_cannot_be_loaded_is_named(lake: Lake) -> None:
    table = plain(lake)
    found = Locations(
        table_location=table.location(),
        properties={"write.py-location-provider.impl": "no.such.Thing"},
        specs=table.specs(),
        schema=table.schema(),
    )
    with pytest.raises(InvalidOptionError, match=r"no\.such\.Thing"):
        found.path_of("a.parquet", 0, ())


def test_providers_get_only_what_they_may_need() -> None:
    given = {"write.data.path": "p", "s3.secret-access-key": "x", "comment": "y"}
    assert location_properties(given) == {"write.data.path": "p"}


def test_partition_folders_are_those_of_pyiceberg(lake: Lake) -> None:
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "region"),
        PartitionField(1, 1001, BucketTransform(4), "id bucket"),
        PartitionField(3, 1002, DayTransform(), "day"),
        PartitionField(5, 1003, TruncateTransform(2), "short"),
        PartitionField(4, 1004, IdentityTransform(), "date"),
    )
    schema = fields(
        id=LongType(), region=StringType(), ts=TimestampType(), date=DateType(), other=StringType()
    )
    table = lake.create("t", schema, partition_spec=spec)
    moment = datetime.datetime(1969, 12, 31, 5)
    regions = ["a/b=c d%", "\u00fc", "", None, "eu"]
    for _ in range(2):
        count = len(regions)
        dates = [datetime.date(2024, 2, 29)] * (count - 1) + [None]
        others = ["\u00fc\u00fc\u00fc"] * count
        append(table, id=[7] * count, region=regions, ts=[moment] * count, date=dates, other=others)

    def folders() -> list[str]:
        paths = [task.file.file_path for task in table.refresh().scan().plan_files()]
        return sorted({path.rpartition("/")[0] for path in paths})

    before = folders()
    assert len(before) == len(regions)
    new_files(table)
    assert folders() == before


def test_folder_of_a_dropped_columns_partition_has_the_value() -> None:
    spec = PartitionSpec(PartitionField(99, 1000, IdentityTransform(), "gone"))
    assert partition_path(spec, ("a b",), PLAIN) == "gone=a+b"


def test_fields_have_ids_at_every_level_and_the_names_of_the_format(lake: Lake) -> None:
    table = lake.create("t", EVERY)
    for begin in (0, 2):
        types = table.schema().as_arrow()
        uuids = pa.array([bytes(16), None], types.field("uuid").type)
        columns = [
            pa.array([begin, begin + 1], pa.int64()),
            uuids,
            pa.LargeListArray.from_arrays([0, 2, 2], uuids, type=types.field("items").type),
            pa.array([[("a", 1)], None], types.field("map").type),
            pa.array([{"amount": None}, None], types.field("inner").type),
        ]
        table.append(pa.table(columns, schema=types))
    before = table.scan().to_arrow().sort_by("id").to_pylist()
    (file,) = new_files(table)
    footer = pq.read_metadata(local(file))
    columns = [footer.schema.column(place) for place in range(footer.num_columns)]
    assert [column.path for column in columns] == [
        "id",
        "uuid",
        "items.list.element",
        "map.key_value.key",
        "map.key_value.value",
        "inner.amount",
    ]
    logical = [str(column.logical_type) for column in columns]
    assert logical[1] == logical[2] == "UUID"
    stored = pq.read_schema(local(file))

    def ids(field: pa.Field) -> list[int]:
        children = [field.type.field(place) for place in range(field.type.num_fields)]
        if pa.types.is_map(field.type):
            children = [field.type.key_field, field.type.item_field]
        return [int(field.metadata[b"PARQUET:field_id"]), *(id_ for child in children for id_ in ids(child))]

    assert [ids(field) for field in stored] == [[1], [2], [3, 6], [4, 7, 8], [5, 9]]
    assert sorted(table.refresh().scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == before
    assert b"ARROW:schema" not in footer.metadata


def encodings(file: Any) -> set[str]:
    footer = pq.read_metadata(local(file))
    return {
        name
        for group in range(footer.num_row_groups)
        for place in range(footer.num_columns)
        for name in footer.row_group(group).column(place).encodings
    }


def wide(lake: Lake, count: int = 2_000, **how: Any) -> Table:
    table = lake.create("t", WIDE, **how)
    for seed in range(2):
        append(table, **rows_of(seed, count))
    return table


def test_encodings_are_those_that_every_reader_knows(lake: Lake) -> None:
    (file,) = new_files(wide(lake))
    assert encodings(file) <= {"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY"}


def test_differences_are_encoded_where_the_table_allows_it(lake: Lake) -> None:
    (file,) = new_files(wide(lake, properties={"tblctl.parquet.delta-encodings": "true"}))
    assert any(name.startswith("DELTA") for name in encodings(file))


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"])
def test_codec_is_that_of_the_table(lake: Lake, codec: str) -> None:
    (file,) = new_files(plain(lake, properties={"write.parquet.compression-codec": codec}))
    used = pq.read_metadata(local(file)).row_group(0).column(0).compression
    assert used.lower() == codec


def test_level_is_that_of_the_table(lake: Lake) -> None:
    sizes = []
    for level in ("1", "19"):
        table = wide(lake, properties={"write.parquet.compression-level": level})
        sizes.append(sum(file.file_size_in_bytes for file in new_files(table)))
        lake.catalog.drop_table("db.t")
    assert sizes[1] < sizes[0]


def test_properties_that_are_not_followed_are_named(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    table = plain(
        lake,
        properties={
            "write.parquet.bloom-filter-enabled.column.id": "true",
            "write.parquet.compression-codec": "zstd",
        },
    )
    with caplog.at_level(logging.WARNING, "tblctl"):
        new_files(table)
    assert "write.parquet.bloom-filter-enabled.column.id" in caplog.text
    assert "compression-codec" not in caplog.text


def test_row_groups_have_the_size_of_the_table_by_the_bytes_of_its_rows(lake: Lake) -> None:
    table = wide(lake, 4_000)
    old = [task.file for task in table.scan().plan_files()]
    row_bytes = sum(file.file_size_in_bytes for file in old) / 8_000
    with table.transaction() as change:
        change.set_properties({"write.parquet.row-group-size-bytes": str(int(row_bytes * 1_000))})
    (file,) = new_files(table)
    footer = pq.read_metadata(local(file))
    rows = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    assert len(rows) in {8, 9}
    assert max(rows) <= 1_001
    assert len(file.split_offsets) == len(rows)


def test_row_groups_without_a_size_have_65536_rows(lake: Lake) -> None:
    assert version_of(plain(lake)).options.row_group_rows == 65_536


ORDER = SortField(source_id=3, direction=SortDirection.ASC, null_order=NullOrder.NULLS_LAST)
BY_ID = SortField(source_id=1, direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST)


@pytest.mark.parametrize(
    ("numbers", "order", "by", "is_set"),
    [
        ([1.0, 2.0, None], [ORDER], None, True),
        ([1.0, math.nan], [ORDER], None, False),
        ([-0.0, 0.0], [ORDER], None, False),
        ([-1.0, 1.0], [BY_ID], None, True),
        ([1.0, 2.0], [BY_ID, ORDER], "id desc", False),
        ([1.0, 2.0], [BY_ID], "id", False),
        ([1.0, 2.0], [BY_ID], "id desc", True),
        ([1.0, 2.0], [BY_ID], "id desc nulls first", False),
    ],
)
def test_sort_order_is_recorded_only_if_rows_are_in_it(
    lake: Lake, numbers: list[Any], order: list[SortField], by: str | None, is_set: bool
) -> None:
    table = lake.create("t", PLAIN, sort_order=SortOrder(*order))
    for _ in range(2):
        append(table, id=list(range(len(numbers))), region=["a"] * len(numbers), number=numbers)
    (file,) = new_files(table, by)
    assert file.sort_order_id == (table.sort_order().order_id if is_set else None)


@pytest.mark.parametrize("key", KEYS)
def test_keys_in_footers_are_those_of_the_first_row_and_the_last(lake: Lake, key: str) -> None:
    table = wide(lake, properties={"write.target-file-size-bytes": "60000"})
    files = new_files(table, KEYS[key])
    assert len(files) > 1
    version = version_of(table)
    for file in files:
        opened = pq.ParquetFile(local(file))
        row = decode_keys(opened.metadata.metadata[b"tblctl.keys"])
        assert row is not None
        keys = key_table(opened.read().cast(version.schema.logical), version.sort, version.schema)
        for end, place in (("low", 0), ("high", keys.num_rows - 1)):
            expected = [column[place].as_py() for column in keys.columns]
            found = [row[f"{end}.{number}"][0].as_py() for number in range(keys.num_columns)]
            assert repr(found).replace("-0.0", "0.0") == repr(expected).replace("-0.0", "0.0")
        assert row["exact"][0].as_py()


def built(table: Table, *, rows: int = 3_000) -> tuple[Any, pa.Table]:
    """Return a builder of the table's files, and rows in order."""
    version = port_of(table).newest()
    io = port_of(table).block_io(version)
    made = pa.table(rows_of(1, rows), schema=WIDE.as_arrow()).sort_by("id")
    builder = io.build(sort=version.sort, level=1, run_id="ab", partition="")
    return builder, made.cast(io.schema.logical)


class Recorded:
    """Replaces `LocalUpload.write`: counts bytes, and fails once there are too many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: float = math.inf) -> None:
        self.sizes: list[int] = []
        real = LocalUpload.write

        def write(upload: LocalUpload, data: Any) -> None:
            self.sizes.append(memoryview(data).nbytes)
            if sum(self.sizes) > most:
                raise StorageError("the disk is full")
            real(upload, data)

        monkeypatch.setattr(LocalUpload, "write", write)


def everything_in(table: Table) -> set[Path]:
    folder = Path(table.location().removeprefix("file://")) / "data"
    return {path for path in folder.rglob("*") if path.is_file()}


def test_pages_leave_before_the_file_is_complete(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tblctl.tableformat.parquet.sinks._BUFFER_BYTES", 1_000)
    table = wide(lake, 10)
    builder, rows = built(table)
    seen = Recorded(monkeypatch)
    sizes = []
    for start in range(0, rows.num_rows, 500):
        builder.adding(rows.slice(start, 500), [500])()
        sizes.append(sum(seen.sizes))
    assert all(after - before > 10_000 for before, after in zip([0, *sizes], sizes, strict=False))
    (record,) = builder.finish()
    assert sum(seen.sizes) == record.size_bytes
    assert seen.sizes[-1] < 10_000  # the footer
    builder.discard()


@pytest.mark.parametrize("most", [10, 50_000, 100_000])
def test_failed_upload_leaves_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    table = wide(lake, 10)
    before = everything_in(table)
    builder, rows = built(table)
    Recorded(monkeypatch, most)

    def build() -> None:
        for start in range(0, rows.num_rows, 500):
            builder.adding(rows.slice(start, 500), [500])()
        builder.finish()

    with pytest.raises(StorageError):
        build()
    builder.discard()
    assert everything_in(table) == before


def test_failed_upload_of_the_end_leaves_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = wide(lake, 10)
    before = everything_in(table)
    builder, rows = built(table)
    builder.adding(rows, [rows.num_rows])()

    def finish(_: LocalUpload) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(LocalUpload, "finish", finish)
    with pytest.raises(StorageError):
        builder.finish()
    assert everything_in(table) == before
    builder.discard()


def test_discarded_builder_leaves_nothing(lake: Lake) -> None:
    table = wide(lake, 10)
    before = everything_in(table)
    for is_complete in (False, True):
        builder, rows = built(table)
        builder.adding(rows, [rows.num_rows])()
        if is_complete:
            builder.finish()
        assert everything_in(table) != before
        builder.discard()
        assert everything_in(table) == before


def test_files_have_the_target_size(lake: Lake) -> None:
    """Rows in order compress better than they did in arrival order. Files get the size that the property names."""
    target = 60_000
    table = lake.create("t", PLAIN, properties={"write.target-file-size-bytes": str(target)})
    rng = random.Random(7)
    for _ in range(12):
        ids = [rng.randrange(60_000) for _ in range(20_000)]
        append(table, id=ids, region=[f"region {id_:040}" for id_ in ids], number=[float(id_) for id_ in ids])
    stored = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    sizes = [file.file_size_in_bytes / target for file in new_files(table, "id")]
    assert sum(sizes) < 0.7 * stored / target
    assert len(sizes) > 4
    assert min(sizes) > 0.75
    assert max(sizes) < 1.2


def test_discarded_builder_writes_to_no_other_file(lake: Lake, tmp_path: Path) -> None:
    """Parquet's writer ends its file when it is collected. The handle may belong to somebody else by then."""
    table = wide(lake, 10)
    builder, rows = built(table)
    builder.adding(rows, [rows.num_rows])()
    builder.discard()
    others = [(tmp_path / str(number)).open("wb") for number in range(20)]
    del builder
    gc.collect()
    for file in others:
        file.close()
    assert all((tmp_path / str(number)).stat().st_size == 0 for number in range(20))


def test_discard_never_raises(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The task's own error must be seen, not that of the cleaning."""
    table = wide(lake, 10)
    builder, rows = built(table)
    builder.adding(rows, [rows.num_rows])()
    builder.finish()

    def delete(*_: Any) -> None:
        raise StorageError("not allowed")

    monkeypatch.setattr("tblctl.tableformat.storage.Storage.delete", delete)
    with caplog.at_level(logging.WARNING, "tblctl"):
        builder.discard()
    assert "not allowed" in caplog.text


def test_failed_merge_leaves_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = wide(lake, properties={"write.target-file-size-bytes": "50000"})
    before = everything_in(table)
    Recorded(monkeypatch, 80_000)
    with contextlib.suppress(tblctl.errors.TblctlError):
        outcome = tblctl.from_iceberg(table).recluster(cluster_by="id", final=True)
        assert not outcome.commits
        assert outcome.failed_groups
    assert everything_in(table) == before


def test_copied_row_groups_have_no_nan_counts_inside_lists(lake: Lake) -> None:
    """Rows of copied row groups are not seen. A count of the others alone would be wrong."""
    from pyiceberg.types import FloatType

    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "list", ListType(3, FloatType(), element_required=False), required=False),
    )
    table = lake.create("t", schema)
    for begin in (0, 1):
        append(table, id=[begin, begin + 2], list=[[math.nan, 1.0], None])
    (file,) = new_files(table)
    assert file.nan_value_counts[3] == 2
    port = port_of(table)
    version = port.newest()
    io = port.block_io(version)
    (block,) = io.live([version.blocks([file.file_path])[file.file_path]])
    builder = io.build(sort=version.sort, level=2, run_id="ab", partition="")
    builder.copy(block, [0])
    rows = pa.table({"id": [9], "list": [[math.nan]]}, schema=schema.as_arrow()).cast(io.schema.logical)
    builder.adding(rows, [1])()
    (record,) = builder.finish()
    assert 3 not in record.nan_counts
    assert record.value_counts[3] == 7  # four numbers, two null lists, and the new number
    builder.discard()


def test_plain_readers_read_new_files(lake: Lake) -> None:
    duckdb = pytest.importorskip("duckdb")
    table = wide(lake)
    before = table.scan().to_arrow().sort_by([("id", "ascending"), ("noise", "ascending")])
    (file,) = new_files(table)
    after = table.refresh().scan().to_arrow().sort_by([("id", "ascending"), ("noise", "ascending")])
    assert repr(after.to_pylist()) == repr(before.to_pylist())
    found = duckdb.sql(
        f"select count(*), sum(id), count(sparse), min(text) from read_parquet('{local(file)}')"
    )
    text = before["text"].to_pylist()
    ids = before["id"].to_pylist()
    assert found.fetchall() == [(4_000, sum(ids), 4_000 - before["sparse"].null_count, min(text))]
