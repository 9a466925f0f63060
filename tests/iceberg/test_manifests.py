"""Manifests are decoded as PyIceberg reads them, whoever wrote them and however."""

from __future__ import annotations

import dataclasses
import io
import json
import random
import uuid
from decimal import Decimal

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)

from tblctl.tableformat.iceberg.entries import read_entries

from .manifest_files import (
    CODECS,
    PATH,
    MemoryIO,
    long,
    packed,
    records_of,
    repacked,
    source_of,
    text,
    written,
)

TYPES = (
    LongType(),
    StringType(),
    DateType(),
    TimestampType(),
    DecimalType(9, 2),
    UUIDType(),
    BinaryType(),
    FixedType(5),
    BooleanType(),
    DoubleType(),
)
SCHEMA = Schema(*(NestedField(i + 1, f"c{i}", kind, required=False) for i, kind in enumerate(TYPES)))
COLUMN_IDS = (1, 2, 3, 200, 2**31 - 102)
DAYS = st.integers(-20_000, 40_000)
MICROS = st.integers(0, 4 * 10**15)
PARTITIONS = {  # source, transform -> values
    (1, IdentityTransform()): st.integers(-(2**63), 2**63 - 1),
    (1, BucketTransform(16)): st.integers(0, 15),
    (2, TruncateTransform(3)): st.text(max_size=3),
    (2, VoidTransform()): st.none(),
    (3, DayTransform()): DAYS,
    (4, IdentityTransform()): MICROS,
    (4, HourTransform()): st.integers(0, 10**6),
    (4, YearTransform()): st.integers(-50, 80),
    (5, IdentityTransform()): st.integers(-(10**8), 10**8).map(lambda n: Decimal(n).scaleb(-2)),
    (6, IdentityTransform()): st.uuids(),
    (7, IdentityTransform()): st.binary(max_size=9),
    (8, IdentityTransform()): st.binary(min_size=5, max_size=5),
    (9, IdentityTransform()): st.booleans(),
    (10, IdentityTransform()): st.floats(allow_nan=False),
}
LONGS = st.integers(0, 2**63 - 1) | st.integers(0, 300)
BYTES = st.binary(max_size=40)
SNAPSHOTS = st.sampled_from([1, 63, 64, 77, 2**40, 8_273_645_091_827_364_509, 2**63 - 1])


def maps(values):
    ids = st.sampled_from(COLUMN_IDS) | st.integers(0, 2**31 - 1)
    return st.none() | st.dictionaries(ids, values, max_size=6)


def specs():
    chosen = st.lists(st.sampled_from(list(PARTITIONS)), max_size=3, unique=True)
    return chosen.map(
        lambda pairs: PartitionSpec(
            *(
                PartitionField(source_id=source, field_id=1000 + i, transform=transform, name=f"p{i}")
                for i, (source, transform) in enumerate(pairs)
            ),
            spec_id=3,
        )
    )


@st.composite
def entries_of(draw, spec, version):
    kinds = [(field.source_id, field.transform) for field in spec.fields]
    paths = draw(st.sampled_from(["s3://bucket/warehouse/db/table/data/", "", "é/", "x"]))

    def entry(values):
        (
            (status, snapshot, numbers),
            partition,
            (name, file_format, content),
            (rows, size),
            counts,
            bounds,
            rest,
        ) = values
        file = DataFile.from_args(
            content=content if version > 1 else DataFileContent.DATA,
            file_path=paths + name,
            file_format=file_format,
            partition=Record(*partition),
            record_count=rows,
            file_size_in_bytes=size,
            column_sizes=counts[0],
            value_counts=counts[1],
            null_value_counts=counts[2],
            nan_value_counts=counts[3],
            lower_bounds=bounds[0],
            upper_bounds=bounds[1],
            key_metadata=rest[0],
            split_offsets=rest[1],
            equality_ids=rest[2] if version > 1 else None,
            sort_order_id=rest[3],
        )
        return ManifestEntry.from_args(
            status=status,
            snapshot_id=7 if version == 1 and snapshot is None else snapshot,
            sequence_number=numbers[0] if version > 1 else None,
            file_sequence_number=numbers[1] if version > 1 else None,
            data_file=file,
        )

    values = st.tuples(
        st.tuples(
            st.sampled_from(ManifestEntryStatus),
            st.none() | SNAPSHOTS,
            st.tuples(*[st.none() | st.integers(0, 300)] * 2),
        ),
        st.tuples(*(st.none() | PARTITIONS[kind] for kind in kinds)),
        st.tuples(st.text(max_size=30), st.sampled_from(FileFormat), st.sampled_from(DataFileContent)),
        st.tuples(LONGS, LONGS),
        st.tuples(*[maps(LONGS)] * 4),
        st.tuples(*[maps(BYTES)] * 2),
        st.tuples(
            st.none() | BYTES,
            st.none() | st.lists(LONGS, max_size=4),
            st.none() | st.lists(st.integers(0, 200), max_size=3),
            st.none() | st.integers(0, 9),
        ),
    )
    return [entry(drawn) for drawn in draw(st.lists(values, min_size=1, max_size=12))]


@st.composite
def manifests(draw, versions=(1, 2, 3)):
    """A manifest of PyIceberg's: its bytes, and how a manifest list describes it."""
    version = draw(st.sampled_from(versions))
    spec = draw(specs())
    entries = draw(entries_of(spec, version))
    codec = draw(st.sampled_from(["null", "deflate", "zstandard", "bzip2"]))
    number = draw(st.sampled_from([0, 5, 400]))
    return written(entries, schema=SCHEMA, spec=spec, version=version, codec=codec, sequence_number=number)


def read(data, manifest, columns=COLUMN_IDS):
    return read_entries([source_of(data, manifest)], columns)


NOT_COMPARED = {"manifest", "layout", "partition", "referenced"}
"""Fields of entries that PyIceberg has not, or has in another form."""


def as_rows(decoded):
    """Return everything that was decoded, but for the partitions, as a list of dictionaries."""
    entries = decoded.entries
    names = [field.name for field in dataclasses.fields(entries) if field.name not in NOT_COMPARED]
    columns = {name: getattr(entries, name) for name in names}
    for column, bounds in decoded.columns.items():
        columns |= {f"{name} {column}": getattr(bounds, name) for name in ("nulls", "nans", "lower", "upper")}
    lists = {
        name: (values.tolist() if isinstance(values, np.ndarray) else values.to_pylist())
        for name, values in columns.items()
    }
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def by_pyiceberg(data, manifest, columns=COLUMN_IDS):
    """Return the same as `as_rows`, as PyIceberg reads it."""
    return [
        row_of(entry, columns)
        for entry in manifest.fetch_manifest_entry(MemoryIO({PATH: data}), discard_deleted=False)
    ]


def number(value):
    return -1 if value is None else int(value)


def row_of(entry, columns):
    file = entry.data_file
    row = {
        "status": number(entry.status),
        "snapshot_id": number(entry.snapshot_id),
        "sequence_number": number(entry.sequence_number),
        "file_sequence_number": number(entry.file_sequence_number),
        "content": number(file.content),
        "path": file.file_path,
        "format": file.file_format.value,
        "spec_id": file.spec_id,
        "rows": file.record_count,
        "size_bytes": file.file_size_in_bytes,
        "sort_order_id": number(file.sort_order_id),
        "encrypted": file.key_metadata is not None,
    }
    for column in columns:
        row |= {
            f"nulls {column}": number((file.null_value_counts or {}).get(column)),
            f"nans {column}": number((file.nan_value_counts or {}).get(column)),
            f"lower {column}": (file.lower_bounds or {}).get(column),
            f"upper {column}": (file.upper_bounds or {}).get(column),
        }
    return row


def partitions(decoded):
    """Return the partition of each entry as fastavro decodes its bytes."""
    found = []
    for layout, value in zip(
        decoded.entries.layout.tolist(), decoded.entries.partition.to_pylist(), strict=True
    ):
        file = next(field for field in decoded.layouts[layout]["fields"] if field["name"] == "data_file")
        kind = next(field["type"] for field in file["type"]["fields"] if field["name"] == "partition")
        reader = io.BytesIO(value)
        found.append(fastavro.schemaless_reader(reader, kind, None))
        assert not reader.read()
    return found


@given(manifest=manifests())
@settings(max_examples=cases(50))
def test_manifests_of_pyiceberg_are_decoded_as_it_reads_them(manifest):
    decoded = read(*manifest)
    assert as_rows(decoded) == by_pyiceberg(*manifest)
    _, records = records_of(manifest[0])
    assert partitions(decoded) == [record["data_file"]["partition"] for record in records]


@given(several=st.lists(manifests(), max_size=5))
@settings(max_examples=cases(20))
def test_many_manifests_are_decoded_in_their_order(several):
    decoded = read_entries([source_of(*manifest) for manifest in several], COLUMN_IDS)
    expected = [by_pyiceberg(*manifest) for manifest in several]
    assert as_rows(decoded) == [row for rows in expected for row in rows]
    assert decoded.entries.manifest.tolist() == [i for i, rows in enumerate(expected) for _ in rows]


@given(
    manifest=manifests(),
    codec=st.sampled_from(list(CODECS)),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3),
)
@settings(max_examples=cases(50))
def test_every_codec_and_block_size_is_decoded_alike(manifest, codec, sizes):
    schema, records = records_of(manifest[0])
    data = repacked(schema, records, sizes=sizes, codec=codec)
    assert as_rows(read(data, manifest[1])) == by_pyiceberg(*manifest)


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
@given(manifest=manifests(), interval=st.integers(0, 3_000))
@settings(max_examples=cases(10))
def test_files_of_fastavro_are_decoded_alike(codec, manifest, interval):
    schema, records = records_of(manifest[0])
    found = io.BytesIO()
    fastavro.writer(found, schema, records, codec=codec, sync_interval=interval)
    decoded = read(found.getvalue(), manifest[1])
    assert as_rows(decoded) == by_pyiceberg(*manifest)
    assert partitions(decoded) == [record["data_file"]["partition"] for record in records]


EXTRA = {  # types that a later version, or another writer, may add
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=9),
    "bytes": BYTES,
    "null": st.none(),
    json.dumps({"type": "fixed", "name": "f", "size": 5}): st.binary(min_size=5, max_size=5),
    json.dumps({"type": "fixed", "name": "z", "size": 0}): st.just(b""),
    json.dumps({"type": "enum", "name": "e", "symbols": ["A", "B", "C"]}): st.sampled_from("ABC"),
    json.dumps({"type": "map", "values": "long"}): st.dictionaries(st.text(max_size=3), LONGS, max_size=3),
    json.dumps({"type": "map", "values": {"type": "array", "items": "double"}}): st.dictionaries(
        st.text(max_size=3), st.lists(st.floats(allow_nan=False), max_size=3), max_size=3
    ),
    json.dumps({"type": "array", "items": "string"}): st.lists(st.text(max_size=9), max_size=4),
    json.dumps({"type": "array", "items": "null"}): st.lists(st.none(), max_size=300),
    json.dumps({"type": "array", "items": {"type": "array", "items": "int"}}): st.lists(
        st.lists(st.integers(-99, 99), max_size=3), max_size=3
    ),
    json.dumps({"type": "record", "name": "r0", "fields": []}): st.just({}),
    json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": ["null", "long"]}],
        }
    ): st.fixed_dictionaries({"a": st.text(max_size=5), "b": st.none() | LONGS}),
    json.dumps(["null", "string", "long", {"type": "array", "items": ["null", "int"]}]): st.none()
    | st.text(max_size=9)
    | LONGS
    | st.lists(st.none() | st.integers(0, 9), max_size=3),
}


def with_records(schema, change):
    """Return a copy of a schema with its records changed, the nested ones too; partitions and maps stay as they are."""
    if isinstance(schema, list):
        return [with_records(branch, change) for branch in schema]
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return schema
    fields = [
        field if field["name"] == "partition" else {**field, "type": with_records(field["type"], change)}
        for field in schema["fields"]
    ]
    return {**schema, "fields": change(schema["name"], fields)}


def swapped(fields):
    """Return fields with the branches of their unions the other way round."""
    return [
        {
            key: value[::-1] if key == "type" and isinstance(value, list) else value
            for key, value in field.items()
            if key != "default"
        }
        for field in fields
    ]


@given(data=st.data())
@settings(max_examples=cases(70))
def test_unknown_fields_other_orders_and_swapped_unions_are_decoded_alike(data):
    manifest = data.draw(manifests())
    schema, records = records_of(manifest[0])
    extra = {
        ("data_file" if inside else "entry", f"extra{i}", kind)
        for i, (kind, inside) in enumerate(
            data.draw(st.lists(st.tuples(st.sampled_from(list(EXTRA)), st.booleans()), max_size=4))
        )
    }
    top = schema["name"]
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    shuffle, swap = data.draw(st.booleans()), data.draw(st.booleans())
    named = data.draw(st.booleans())

    def change(name, fields):
        mine = [
            {"name": field, "type": renamed(kind, field)} | ({"field-id": 9000 + i} if named else {})
            for i, (where, field, kind) in enumerate(sorted(extra))
            if (where == "entry") == (name == top)
        ]
        fields = [*fields, *mine]
        if swap:
            fields = swapped(fields)
        if shuffle:
            rng.shuffle(fields)
        return fields

    for record in records:
        for where, field, kind in extra:
            (record if where == "entry" else record["data_file"])[field] = data.draw(EXTRA[kind])
    changed = with_records(schema, change)
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    rewritten = repacked(changed, records, sizes=sizes, codec=data.draw(st.sampled_from(["null", "deflate"])))
    decoded = read(rewritten, manifest[1])
    assert as_rows(decoded) == by_pyiceberg(*manifest)
    assert partitions(decoded) == [record["data_file"]["partition"] for record in records]


def renamed(kind, name):
    """Return an Avro type; names of types are unique in a schema."""
    if not kind.startswith(("{", "[")):
        return kind
    found = json.loads(kind)
    if isinstance(found, dict) and "name" in found:
        found["name"] = f"{found['name']}_{name}"
    return found


UNPARTITIONED = PartitionSpec(spec_id=0)
FOLDER = "s3://bucket/warehouse/db/table/data/"


def entry(
    number, *, snapshot=8_273_645_091_827_364_509, sequence=None, status=ManifestEntryStatus.ADDED, **fields
):
    file = {
        "content": DataFileContent.DATA,
        "file_path": f"{FOLDER}{number:05d}-{uuid.UUID(int=number)}.parquet",
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": 1000 + number,
        "file_size_in_bytes": 10**6 + number,
        "value_counts": {1: 1000, 2: 1000},
        "null_value_counts": {1: 0, 2: number},
        "lower_bounds": {1: number.to_bytes(8, "little"), 2: b"low"},
        "upper_bounds": {1: (number + 9).to_bytes(8, "little"), 2: b"upper" * (number % 7)},
    }
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot,
        sequence_number=sequence,
        file_sequence_number=sequence,
        data_file=DataFile.from_args(**(file | fields)),
    )


def check(entries, *, sizes, codec="null", version=2):
    manifest = written(entries, schema=SCHEMA, spec=UNPARTITIONED, version=version)
    schema, records = records_of(manifest[0])
    data = repacked(schema, records, sizes=sizes, codec=codec)
    assert as_rows(read(data, manifest[1])) == by_pyiceberg(*manifest)
    return manifest


SNAPSHOT_IDS = (1, 64, 8_273_645_091_827_364_509, 8_273_645_091_827_364_510, 2**35)


@pytest.mark.parametrize("size", [1, 2, 7, 64, 500])
@pytest.mark.parametrize("version", [1, 2])
def test_entries_of_many_snapshots_in_one_manifest_are_found(size, version):
    entries = [
        entry(
            i,
            snapshot=SNAPSHOT_IDS[i * i % 5],
            sequence=None if i % 3 == 0 else i * i % 300,
            status=ManifestEntryStatus(1 if i % 3 == 0 else (i % 2) * 2),
        )
        for i in range(300)
    ]
    check(entries, sizes=[size], version=version)


@pytest.mark.parametrize("folder", ["s3://b/", "x", ""])
def test_paths_that_a_hash_spreads_over_folders_are_found(folder):
    rng = random.Random(5)
    entries = [entry(i, file_path=f"{folder}{rng.getrandbits(20):020b}/{i}.parquet") for i in range(200)]
    check(entries, sizes=[40])


def test_a_bound_that_contains_whole_records_is_no_record():
    plain = [entry(i) for i in range(20)]
    data, _ = written(plain, schema=SCHEMA, spec=UNPARTITIONED)
    schema, records = records_of(data)
    whole = [
        repacked(schema, [record], sizes=[1]).split(packed(json.dumps(schema).encode(), []))[1]
        for record in records
    ]
    for field in ("key_metadata", "lower_bounds", "upper_bounds"):
        entries = [
            entry(i, **{field: whole[i] if field == "key_metadata" else {2: whole[i] * 2, 1: whole[i][:40]}})
            if i % 3
            else plain[i]
            for i in range(20)
        ]
        for sizes in ([20], [3, 1], [2]):
            check(entries, sizes=sizes)


def test_a_file_path_within_bounds_is_no_record():
    entries = [
        entry(
            i,
            content=DataFileContent.POSITION_DELETES,
            lower_bounds={2**31 - 102: f"{FOLDER}{i}".encode()},
            upper_bounds={2**31 - 102: f"{FOLDER}{i}/z".encode(), 2: b"\x00\x00\x02\x02" + FOLDER.encode()},
        )
        for i in range(50)
    ]
    check(entries, sizes=[50])


@given(garbage=st.lists(st.binary(max_size=60), min_size=2, max_size=30), data=st.data())
@settings(max_examples=cases(30))
def test_prefixes_of_records_within_values_are_no_records(garbage, data):
    first = written([entry(0)], schema=SCHEMA, spec=UNPARTITIONED)[0]
    schema, records = records_of(first)
    prefix = repacked(schema, records, sizes=[1]).split(packed(json.dumps(schema).encode(), []))[1][2:90]
    cut = st.integers(0, len(prefix))
    entries = [
        entry(
            i,
            key_metadata=value + prefix[: data.draw(cut)] + value,
            lower_bounds={2: prefix[data.draw(cut) :]},
        )
        for i, value in enumerate(garbage)
    ]
    check(entries, sizes=[data.draw(st.integers(1, 30))])


def test_maps_in_several_blocks_with_and_without_sizes_are_read():
    schema, records = records_of(written([entry(0)], schema=SCHEMA, spec=UNPARTITIONED)[0])
    record = repacked(schema, records, sizes=[1]).split(packed(json.dumps(schema).encode(), []))[1]
    body = record[len(long(1)) :]
    whole = body[len(long(len(body) - 18)) : -16]
    counts = long(2) + long(1) + long(1000) + long(2) + long(1000) + long(0)
    assert counts in whole
    bounds = long(2) + long(1) + text(bytes(8)) + long(2) + text(b"low") + long(0)
    assert bounds in whole
    split = long(1) + long(1) + long(1000) + long(-1) + long(3) + long(2) + long(1000) + long(0)
    apart = long(-1) + long(10) + long(1) + text(bytes(8)) + long(1) + long(2) + text(b"low") + long(0)
    other = whole.replace(counts, split).replace(bounds, apart)
    manifest = written([entry(0)] * 4, schema=SCHEMA, spec=UNPARTITIONED)
    data = packed(json.dumps(schema).encode(), [(4, whole + other + other + whole)])
    assert as_rows(read(data, manifest[1])) == by_pyiceberg(*manifest)


def test_maps_whose_columns_are_in_another_order_in_each_entry_are_read():
    entries = []
    for i in range(40):
        ids = random.Random(i).sample(range(1, 12), i % 11)
        entries.append(
            entry(
                i,
                value_counts={id_: id_ * 1000 for id_ in ids},
                null_value_counts={id_: id_ for id_ in ids[::-1]},
                lower_bounds={id_: b"x" * id_ * 9 for id_ in ids},
            )
        )
    check(entries, sizes=[40])


def test_a_manifest_without_entries_has_none():
    manifest = written([entry(0)], schema=SCHEMA, spec=UNPARTITIONED)
    schema, _ = records_of(manifest[0])
    for blocks in ([], [(0, b"")]):
        decoded = read(packed(json.dumps(schema).encode(), blocks), manifest[1])
        assert len(decoded.entries) == 0
        assert len(decoded.columns[1].lower) == 0
    assert len(read_entries([], [1]).entries) == 0
