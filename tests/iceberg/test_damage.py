"""A damaged manifest is an error that names it, or has other values; never a crash, a hang, or a flood of memory."""

from __future__ import annotations

import dataclasses
import json
import random
import resource
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.tableformat.iceberg.avro import container
from tblctl.tableformat.iceberg.avro.container import AvroError, read_container
from tblctl.tableformat.iceberg.entries import DamagedManifestError, read_entries

from .manifest_files import CODECS, SYNC, long, packed, records_of, repacked, source_of, text, written
from .test_manifests import SCHEMA, UNPARTITIONED, as_rows, entry, read

CHECKED = {"snappy", "bzip2", "xz"}
"""Codecs with a checksum of each block."""

PLAIN = written([entry(i) for i in range(6)], schema=SCHEMA, spec=UNPARTITIONED)
ROWS = as_rows(read(*PLAIN))


def small(codec, sizes=(2,)):
    schema, records = records_of(PLAIN[0])
    return repacked(schema, records, sizes=sizes, codec=codec)


def outcome(data):
    """Return the rows that are read, or None if the manifest is refused. Any other error is raised."""
    try:
        return as_rows(read(data, PLAIN[1]))
    except DamagedManifestError as error:
        refused = error
    assert refused.path == PLAIN[1].manifest_path
    assert str(refused)
    return None


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_cut_at_any_byte_is_refused_or_lacks_its_last_blocks(codec):
    data = small(codec)
    for size in range(len(data)):
        found = outcome(data[:size])
        assert found is None or found in ([], ROWS[:2], ROWS[:4])
        if found is not None:
            assert data[:size].endswith(SYNC)


def test_a_file_cut_between_blocks_is_refused_if_the_manifest_list_says_its_size():
    data = small("deflate")
    source = source_of(data, PLAIN[1])
    whole = {**vars(source), "size_bytes": len(data)}
    assert as_rows(read_entries([type(source)(**whole)], (1, 2, 3)))
    for size in range(len(data)):
        with pytest.raises(DamagedManifestError, match="cut off"):
            read_entries([type(source)(**whole | {"data": data[:size]})])


@pytest.mark.parametrize("codec", CODECS)
@given(seed=st.integers(0, 2**32), sizes=st.sampled_from([(1,), (2,), (6,)]))
@settings(max_examples=cases(30))
def test_flipped_bits_are_refused_or_harmless_where_a_checksum_tells(codec, seed, sizes):
    rng = random.Random(seed)
    data = bytearray(small(codec, sizes))
    begin = data.index(SYNC) + len(SYNC)
    for _ in range(10):
        place = rng.randrange(len(data) * 8)
        data[place // 8] ^= 1 << place % 8
        found = outcome(bytes(data))
        if codec in CHECKED and place // 8 >= begin:
            assert found in (None, ROWS)
        data[place // 8] ^= 1 << place % 8


@pytest.mark.parametrize("codec", ["null", "deflate"])
@given(seed=st.integers(0, 2**32), count=st.integers(2, 60))
@settings(max_examples=cases(20))
def test_a_file_with_many_flipped_bits_is_refused_or_read(codec, seed, count):
    rng = random.Random(seed)
    data = bytearray(small(codec, (3,)))
    for _ in range(count):
        place = rng.randrange(len(data) * 8)
        data[place // 8] ^= 1 << place % 8
    outcome(bytes(data))


def test_every_single_bit_of_the_schema_may_be_wrong():
    data = bytearray(small("null", (6,)))
    for place in range(4 * 8, data.index(SYNC) * 8, 7):
        data[place // 8] ^= 1 << place % 8
        outcome(bytes(data))
        data[place // 8] ^= 1 << place % 8


@given(garbage=st.binary(max_size=400), count=st.integers(0, 2**62))
@settings(max_examples=cases(50))
def test_blocks_of_garbage_are_refused_or_read(garbage, count):
    schema = read_container(PLAIN[0]).schema_text
    for claimed in (count, count % 5):
        outcome(packed(schema, [(claimed, garbage)]))


FALSE = [2**62, 2**40, 2**31, 10**6, 70_000, -1, -(2**62), -(2**63)]


@pytest.mark.parametrize("claimed", FALSE)
@pytest.mark.parametrize("what", ["records", "pairs", "text", "block", "header", "snappy"])
def test_a_false_count_costs_no_time_and_no_memory(what, claimed):
    data = _with_false_count(what, claimed)
    began = time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DamagedManifestError):
        read(data, PLAIN[1])
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 2**10


def _with_false_count(what, claimed):
    container = read_container(small("null", (6,)))
    schema, block = container.schema_text, container.blocks[0]
    false = long(claimed)
    if what == "records":
        return packed(schema, [(claimed, block)])
    if what == "pairs":
        counts = long(2) + long(1) + long(1000) + long(2) + long(1000)
        assert counts in block
        return packed(schema, [(6, block.replace(counts, false + counts[1:]) + bytes(100_000))])
    if what == "text":
        bound = text(b"low")
        assert bound in block
        return packed(schema, [(6, block.replace(bound, false + bound[1:], 1))])
    if what == "block":
        data = packed(schema, [(6, block)])
        return data.replace(long(len(block)), false)
    if what == "header":
        data = packed(schema, [])
        return data.replace(text(b"avro.schema"), false + b"avro.schema", 1)
    huge = packed(schema, [(6, block)], "snappy")
    size = bytes(byte for byte in _varint(len(block)))
    return huge.replace(size, bytes(_varint(claimed % 2**63)), 1)


def _varint(value):
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_a_block_that_grows_beyond_all_bounds_is_refused_before_it_does(codec, monkeypatch):
    monkeypatch.setattr(container, "_MOST_BLOCK_BYTES", 10**6)
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": "null"}]}).encode()
    for size in (10**6, 10**6 + 1, 10**7):
        data = packed(schema, [(1, bytes(size))], codec=codec)
        if size <= 10**6:
            assert len(read_container(data).blocks[0]) == size
            continue
        with pytest.raises(AvroError, match="more than 1000000 bytes when decompressed"):
            read_container(data)
    source = source_of(data, PLAIN[1])
    with pytest.raises(DamagedManifestError, match="when decompressed") as caught:
        read_entries([dataclasses.replace(source, size_bytes=None)])
    assert caught.value.path == source.path
    monkeypatch.setattr(container, "_MOST_FILE_BYTES", 10**5)
    with pytest.raises(AvroError, match="more than 100000 bytes when decompressed"):
        read_container(packed(schema, [(1, bytes(60_000))] * 2, codec=codec))


def test_a_block_with_bytes_but_no_records_is_refused():
    container = read_container(PLAIN[0])
    assert outcome(packed(container.schema_text, [(0, container.blocks[0])])) is None


BAD_SCHEMAS = [
    "",
    "nonsense",
    "[]",
    "{}",
    "null",
    "7",
    '"string"',
    '{"type": "record", "name": "x", "fields": []}',
    '{"type": "record", "name": "x", "fields": 5}',
    '{"type": "record", "name": "x", "fields": [7]}',
    '{"type": "record", "name": "x"}',
    '{"type": "record", "name": [], "fields": []}',
    '{"type": "record", "name": "x", "fields": [{"name": "a", "type": "x"}]}',
    '{"type": "record", "name": "x", "fields": [{"name": "a", "field-id": [], "type": "int"}]}',
    '{"type": "record", "name": "x", "fields": [{"name": "a", "type": {"type": "fixed", "name": "f"}}]}',
    '{"type": "record", "name": "x", "fields": [{"name": "a", "type": {"type": "fixed", "name": "f", "size": -1}}]}',
    '{"type": "record", "name": "x", "fields": [{"name": "a", "type": {"type": "array"}}]}',
    '{"type": "record", "name": "x", "fields": [{"name": "status", "field-id": 0, "type": "string"}]}',
    "[" * 100_000,
    '{"type":' * 500 + "1" + "}" * 500,
]


@pytest.mark.parametrize("schema", BAD_SCHEMAS, ids=lambda schema: schema[:60])
def test_a_schema_that_is_none_is_refused(schema):
    assert outcome(packed(schema.encode(), [(1, b"\x02")])) is None


def _without(schema, name):
    return {
        **schema,
        "fields": [
            {**field, "type": _without(field["type"], name)} if field["name"] == "data_file" else field
            for field in schema["fields"]
            if field["name"] != name
        ],
    }


REQUIRED = [
    "status",
    "data_file",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
]


@pytest.mark.parametrize("name", REQUIRED)
def test_entries_without_a_required_field_are_refused(name):
    schema, records = records_of(PLAIN[0])
    for record in records:
        for held in (record, record["data_file"]):
            if name in held:
                del held[name]
                break
    assert outcome(repacked(_without(schema, name), records, sizes=[6])) is None


@pytest.mark.parametrize(
    ("name", "kind", "value"), [("record_count", "string", "x"), ("file_path", "long", 5)]
)
def test_a_field_of_another_type_is_refused(name, kind, value):
    schema, records = records_of(PLAIN[0])
    schema = json.loads(json.dumps(schema))
    file = next(field["type"] for field in schema["fields"] if field["name"] == "data_file")
    next(field for field in file["fields"] if field["name"] == name)["type"] = kind
    for record in records:
        record["data_file"][name] = value
    assert outcome(repacked(schema, records, sizes=[6])) is None


def test_a_path_that_is_no_text_is_refused():
    block = read_container(PLAIN[0]).blocks[0].replace(b"s3://", b"s3:/\xff")
    assert outcome(packed(read_container(PLAIN[0]).schema_text, [(1, block)])) is None


@pytest.mark.parametrize("codec", ["lz4", "", "\u00e9"])
def test_an_unknown_codec_is_refused(codec):
    data = small("null").replace(
        text(b"avro.codec") + text(b"null"), text(b"avro.codec") + text(codec.encode())
    )
    with pytest.raises(AvroError, match=r"codec|damaged"):
        read_container(data)


def test_the_error_names_the_damaged_manifest_of_many():
    good = source_of(small("null"), PLAIN[1])
    bad = type(good)(**vars(good) | {"path": "bad", "data": _with_false_count("text", 10**6)})
    for place in range(4):
        sources = [good] * 3
        sources.insert(place, bad)
        with pytest.raises(DamagedManifestError) as caught:
            read_entries(sources)
        assert caught.value.path == "bad"
