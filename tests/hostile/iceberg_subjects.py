"""Metadata and files of Iceberg tables, and calls that parse them."""

from __future__ import annotations

import atexit
import base64
import functools
import json
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hostile.mutations import text_of
from hostile.native_subjects import ID, read_everything
from iceberg.lake import Lake, fields
from iceberg.manifest_files import MemoryIO, records_of, repacked
from iceberg.position_deletes import delete_rows
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, DoubleType, LongType, StringType, TimestampType, UUIDType

from tblctl.errors import TblctlError
from tblctl.tableformat.iceberg.appending.lists import LISTS, lists_of
from tblctl.tableformat.iceberg.appending.lists import text_of as text_of_lists
from tblctl.tableformat.iceberg.avro.container import read_container
from tblctl.tableformat.iceberg.curves import property_of, stored_sort
from tblctl.tableformat.iceberg.data_storage import DataStorage, split_uri
from tblctl.tableformat.iceberg.entries import DamagedManifestError, ManifestSource, read_entries
from tblctl.tableformat.iceberg.files import DataFiles
from tblctl.tableformat.iceberg.footers import ParquetFile, read_footers, read_own_keys
from tblctl.tableformat.iceberg.metadata_files import KeptFiles, MetadataFiles
from tblctl.tableformat.iceberg.options import least_text_length, not_honoured, options_of, style_of
from tblctl.tableformat.iceberg.own_files import KEYS, decode_keys, parse_name
from tblctl.tableformat.iceberg.own_keys import SIDE_FILES, keys_of, read_side_file, side_files_named
from tblctl.tableformat.iceberg.partitions import partitions_of
from tblctl.tableformat.iceberg.publish.summary import DETAIL, detail_of
from tblctl.tableformat.iceberg.reading.column_ids import NameMapping, with_ids
from tblctl.tableformat.iceberg.reading.position_deletes import PositionDeletes
from tblctl.tableformat.iceberg.version import IcebergVersion
from tblctl.tableformat.model.cluster_key import parse_key
from tblctl.tableformat.model.snapshot import ImportList
from tblctl.tableformat.model.tree import Cut, Tree
from tblctl.tableformat.parquet.opened import BlockAddress
from tblctl.tableformat.storage import Storage

TABLE = "iceberg://lake/db.t"
LIST = "memory/list.avro"
_MANIFEST = "memory/manifest.avro"
_FOLDER = "memory://hostile/iceberg"

__all__ = ["DamagedManifestError"]


@functools.cache
def _lake() -> Lake:
    """Return a catalog with one table: partitioned, reclustered by tblctl, with rows deleted by position."""
    folder = tempfile.TemporaryDirectory(prefix="tblctl-hostile-")
    atexit.register(folder.cleanup)
    lake = Lake(Path(folder.name))
    schema = fields(
        id=LongType(),
        region=StringType(),
        share=DoubleType(),
        at=TimestampType(),
        price=DecimalType(9, 2),
        key=UUIDType(),
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    made = lake.create(
        "t", schema, partition_spec=spec, properties={"tblctl.cluster-by": "id, truncate(3, region)"}
    )
    for first in (0, 5):
        ids = range(first, first + 10)
        made.append(
            pa.table(
                {
                    "id": list(ids),
                    "region": ["eu" if n % 2 else "us" for n in ids],
                    "share": [n / 3 for n in ids],
                    "at": pa.array([n * 10**12 for n in ids], pa.timestamp("us")),
                    "price": pa.array([Decimal(n) for n in ids], pa.decimal128(9, 2)),
                    "key": pa.array([bytes([n]) * 16 for n in ids], pa.binary(16)),
                },
                schema=made.schema().as_arrow(),
            )
        )
    lake.open("t").recluster(policy="full")
    made = lake.load("t")
    task = next(iter(made.scan().plan_files()))
    delete_rows(made, {task.file.file_path: [0, 2]}, like=task.file)
    return lake


@functools.cache
def _version() -> IcebergVersion:
    return _lake().open("t")._port.newest()


def _local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


@functools.cache
def _metadata_path() -> Path:
    return _local(_lake().load("t").metadata_location)


@functools.cache
def metadata() -> Sequence[bytes]:
    return [path.read_bytes() for path in sorted(_metadata_path().parent.glob("*.json"), reverse=True)][:3]


def parse_metadata(data: bytes) -> object:
    """Do everything that reads a table, each in spite of what the others raise."""
    metadata()
    _metadata_path().write_bytes(data)
    table = _lake().open("t")
    raised: list[TblctlError] = []
    for read in (
        lambda: table.info().to_dict(),
        lambda: table.info(columns=["id"], where="region = 'eu'").to_dict(),
        lambda: [item.to_dict() for item in table.history()],
        lambda: table.plan(policy="full").to_json(),
        lambda: table.gc(dry_run=True).to_dict(),
        table.cluster_by.__len__,
    ):
        try:
            read()
        except TblctlError as error:
            raised.append(error)
    if raised:
        raise raised[0]
    return table


# -- manifest lists and manifests


def _plain(data: bytes) -> bytes:
    """Return an Avro file with its block not compressed, so that a change of a byte reaches what is in it."""
    schema, records = records_of(data)
    return repacked(schema, records, sizes=[100])


@functools.cache
def lists() -> Sequence[bytes]:
    snapshots = _version().metadata.snapshots[-3:]
    return [_plain(_local(snapshot.manifest_list).read_bytes()) for snapshot in snapshots]


def parse_list(data: bytes) -> object:
    return MetadataFiles(TABLE, MemoryIO({LIST: data}), KeptFiles()).manifests(LIST)


@functools.cache
def manifests() -> Sequence[bytes]:
    paths = sorted(_metadata_path().parent.glob("*-m*.avro")) + sorted(_metadata_path().parent.glob("*.avro"))
    contents = {path: path.read_bytes() for path in paths}
    return [_plain(data) for data in contents.values() if b"data_file" in read_container(data).schema_text][
        :4
    ]


def _source(data: bytes) -> ManifestSource:
    return ManifestSource(path=_MANIFEST, data=data, spec_id=0, snapshot_id=7, sequence_number=5)


def parse_manifest(data: bytes) -> object:
    return read_entries([_source(data)], [1, 2, 3, 2**31 - 102])


def parse_avro(data: bytes) -> object:
    return read_container(data)


def parse_bounds(data: bytes) -> object:
    """Decode the bounds of every column, and the partitions."""
    version = _version()
    given: Any = SimpleNamespace(
        manifest_path=_MANIFEST,
        manifest_length=len(data),
        partition_spec_id=0,
        added_snapshot_id=7,
        sequence_number=5,
    )

    def read(paths: Sequence[str]) -> Iterable[bytes]:
        return [data for _ in paths]

    files = DataFiles(TABLE, [given], read)
    files.fetch(version.schema.leaves)
    specs = version.metadata.specs()
    schema = version.metadata.schema()
    return partitions_of(files.entries, files.layouts, specs, schema, version.metadata.default_spec_id).texts


# -- files of rows


@functools.cache
def data_files() -> Sequence[bytes]:
    tasks = list(_lake().load("t").scan().plan_files())
    return [_local(task.file.file_path).read_bytes() for task in tasks]


@functools.cache
def _rows() -> int:
    return next(iter(_lake().load("t").scan().plan_files())).file.record_count


def parse_data_file(data: bytes) -> object:
    schema = _version().schema
    storage = Storage(_FOLDER)
    storage.write("data.parquet", data)
    address = BlockAddress(
        path="data.parquet",
        size_bytes=len(data),
        row_count=_rows(),
        uncompressed_bytes=2**62,
        column_ids=frozenset(),
        seal=None,
        uri=f"{_FOLDER}/data.parquet",
    )

    def named(file: pa.Schema, has_int96: bool) -> pa.Schema:
        return with_ids(file, has_int96, schema=schema, mapping=None, path=address.uri)

    return read_everything(storage, address, schema, named=named)


def parse_footer_bounds(data: bytes) -> object:
    files = MemoryIO({"x": data})
    described = [ParquetFile(path="x", size_bytes=len(data), rows=_rows())]
    keys = [rows for rows in read_own_keys(files, described) if rows is not None]
    _used(keys)
    return read_footers(files, described, _version().schema.leaves, null_if_absent=[1])


def _used(side: Sequence[pa.Table]) -> object:
    """Do with rows of keys what an `OwnIndex` does."""
    version = _version()
    paths = pa.array([*[row["path"][0].as_py() for row in _side_rows()][:3], "another"])
    return keys_of(paths, version.sort, version.schema, side, lambda _places: {})


@functools.cache
def delete_files() -> Sequence[bytes]:
    return [path.read_bytes() for path in _metadata_path().parents[1].glob("data/deletes-*.parquet")] * 2


def parse_delete_file(data: bytes) -> object:
    Storage(_FOLDER).write("deletes.parquet", data)
    found = PositionDeletes(DataStorage({}))
    return found.positions("x", [f"{_FOLDER}/deletes.parquet"])


@functools.cache
def side_files() -> Sequence[bytes]:
    version = _version()
    paths = [path for snapshot in version.metadata.snapshots for path in side_files_named(snapshot)]
    return [_local(path).read_bytes() for path in paths] * 2


@functools.cache
def _side_rows() -> Sequence[pa.Table]:
    return [rows for data in side_files() if (rows := read_side_file(data)) is not None]


def parse_side_file(data: bytes) -> object:
    rows = read_side_file(data)
    return None if rows is None else _used([rows])


def path_lists() -> Sequence[bytes]:
    return [b'["s3://b/keys-1.parquet", "s3://b/keys-2.parquet"]', b"[]"]


def parse_path_list(data: bytes) -> object:
    text = data.decode("utf-8", "surrogateescape")
    return side_files_named(
        SimpleNamespace(summary=SimpleNamespace(additional_properties={SIDE_FILES: text}))
    )


@functools.cache
def footer_keys() -> Sequence[bytes]:
    """Return the rows of keys as Arrow streams: the base64 around them is put there when they are parsed."""
    found = [pq.read_metadata(pa.BufferReader(data)).metadata or {} for data in data_files()]
    return [base64.b64decode(item[KEYS.encode()]) for item in found if KEYS.encode() in item]


def parse_footer_keys(data: bytes) -> object:
    rows = decode_keys(base64.b64encode(data))
    return None if rows is None else _used([rows])


# -- texts


_TREE = "qdtree(file:cuts.sql)"


def curves() -> Sequence[bytes]:
    schema = _version().schema
    key = parse_key("hilbert(id, share, price, region)", schema)
    sort = _version().sort_by(", ".join(key.texts(schema)))
    cut = Cut(column_id=schema.leaf("id").id, operator="<", values=pa.array([5], pa.int64()))
    columns = ((cut.column_id, pa.int64()),)
    tree = Tree(
        text=_TREE, columns=columns, cuts=(cut,), nodes=(0, -1, -1), by=((1, "identity", True, False),)
    )
    return [json.dumps(dict(sort.parameters)).encode(), json.dumps(dict(tree.to_parameters())).encode()]


def parse_curve(data: bytes) -> object:
    """Boundaries or trees that cannot be read are not used: whatever a property has, it raises nothing."""
    schema = _version().schema
    key = parse_key("hilbert(id, share, price, region)", schema)
    packed = base64.b64encode(zlib.compress(data)).decode()
    for text in (packed, text_of(data)):
        found = stored_sort({property_of(key): text}, key, schema)
        assert found is None or found.terms == key.terms
        tree = parse_key(_TREE, schema)
        stored_sort({property_of(tree): text}, tree, schema)
    return packed


def own_names() -> Sequence[bytes]:
    return [
        f"s3://b/data/tblctl-{ID}-l{level}-s{5:012x}-r{'a' * 32}-{ID}.parquet".encode()
        for level in (0, -1, 12)
    ]


def parse_own_name(data: bytes) -> object:
    """What is taken for tblctl's own name is exactly one that tblctl makes."""
    path = data.decode("utf-8", "surrogateescape")
    found = parse_name(path)
    split_uri(path)
    if found is not None:
        unique = path[-len(ID) - len(".parquet") :].removesuffix(".parquet")
        again = found.with_id(unique)
        assert path.endswith(again) or int(found.level) == 0, (path, again)
    return found


@functools.cache
def import_properties() -> Sequence[bytes]:
    refs = [
        ImportList(path=f"{ID}-{ID}.arrow", size_bytes=600 + count, checksum=2**64 - 1, file_count=count)
        for count in (1, 2)
    ]
    return [text_of_lists(refs[:count]).encode() for count in (1, 2)]


def parse_import_property(data: bytes) -> object:
    return lists_of(TABLE, {LISTS: data.decode("utf-8", "surrogateescape")})


def details() -> Sequence[bytes]:
    return [b'{"policy":"levels","groups":[{"removed":["a"],"added":["b"],"seconds":1.5}]}', b"{}"]


def parse_detail(data: bytes) -> object:
    return detail_of({DETAIL: data.decode("utf-8", "surrogateescape")})


def name_mappings() -> Sequence[bytes]:
    return [
        b'[{"field-id":1,"names":["id","ID"]},{"field-id":2,"names":["s"],"fields":[{"field-id":3,"names":["x"]}]}]',
        b'[{"names":["id"]}]',
    ]


def parse_name_mapping(data: bytes) -> object:
    return NameMapping.parse(data.decode("utf-8", "surrogateescape"))


def properties() -> Sequence[bytes]:
    found = {
        "write.parquet.compression-codec": "zstd",
        "write.parquet.compression-level": "3",
        "write.parquet.row-group-size-bytes": "134217728",
        "write.parquet.page-size-bytes": "1048576",
        "write.parquet.page-row-limit": "20000",
        "write.parquet.dict-size-bytes": "2097152",
        "write.target-file-size-bytes": "536870912",
        "write.metadata.metrics.default": "truncate(16)",
        "tblctl.parquet.delta-encodings": "true",
    }
    return [json.dumps(found).encode(), b'{"write.parquet.compression-codec": "gzip"}']


def parse_properties(data: bytes) -> object:
    """Read properties of a table, which are texts by name: PyIceberg refuses others."""
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict):
        return None
    texts = {name: value if isinstance(value, str) else str(value)[:100] for name, value in given.items()}
    not_honoured(texts)
    least_text_length(texts)
    style_of(texts, ())
    return options_of(texts, lambda: 10.0)
