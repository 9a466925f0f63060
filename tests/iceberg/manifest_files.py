"""Manifests for tests: written by PyIceberg in memory, and rewritten by fastavro in other ways."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib

import fastavro
import pyarrow as pa
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import ManifestWriterV1, ManifestWriterV2

from tblctl.tableformat.iceberg.avro.container import read_container
from tblctl.tableformat.iceberg.entries import ManifestSource

SYNC = bytes(range(100, 116))
PATH = "memory/manifest.avro"


class _Writing(io.BytesIO):
    def __init__(self, io_, location):
        super().__init__()
        self._io, self._location = io_, location

    def close(self):
        self._io.files[self._location] = self.getvalue()
        super().close()


class _File(InputFile, OutputFile):
    def __init__(self, io_, location):
        super().__init__(location)
        self._io = io_

    def __len__(self):
        return len(self._io.files[self.location])

    def exists(self):
        return self.location in self._io.files

    def open(self, seekable=True):
        return io.BytesIO(self._io.files[self.location])

    def create(self, overwrite=False):
        return _Writing(self._io, self.location)

    def to_input_file(self):
        return self


class MemoryIO(FileIO):
    """PyIceberg's files in a dictionary."""

    def __init__(self, files=None):
        super().__init__()
        self.files = files or {}

    def new_input(self, location):
        return _File(self, location)

    def new_output(self, location):
        return _File(self, location)

    def delete(self, location):
        del self.files[location]


class _WriterV2(ManifestWriterV2):
    """Writes any entry, as other writers do."""

    def prepare_entry(self, entry):
        return entry


class _WriterV3(_WriterV2):
    """PyIceberg 0.12 has the schema of v3, but no writer."""

    @property
    def version(self):
        return 3


WRITERS = {1: ManifestWriterV1, 2: _WriterV2, 3: _WriterV3}


def written(entries, *, schema, spec, version=2, codec="null", snapshot_id=77, sequence_number=5):
    """Return a manifest with these entries as PyIceberg writes it, and how a manifest list describes it."""
    files = MemoryIO()
    with WRITERS[version](spec, schema, files.new_output(PATH), snapshot_id, codec) as writer:
        for entry in entries:
            writer.add_entry(entry)
    manifest = writer.to_manifest_file()
    manifest.sequence_number = 0 if version == 1 else sequence_number
    return files.files[PATH], manifest


def source_of(data, manifest):
    """Return the manifest as the decoder takes it."""
    return ManifestSource(
        path=manifest.manifest_path,
        data=data,
        spec_id=manifest.partition_spec_id,
        snapshot_id=manifest.added_snapshot_id,
        sequence_number=manifest.sequence_number,
    )


def _snappy(data):
    return pa.compress(data, codec="snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big")


def _deflate(data):
    return zlib.compress(data, wbits=-15)


CODECS = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": lambda data: pa.compress(data, codec="zstd", asbytes=True),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def long(value):
    """Return a whole number as Avro encodes it."""
    zigzag = (value << 1) ^ (value >> 63)
    found = bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes(found) + bytes([zigzag])


def text(value):
    return long(len(value)) + value


def packed(schema_text, blocks, codec="null"):
    """Return an Avro file of blocks, each given by how many records it has and their bytes."""
    header = {b"avro.schema": schema_text, b"avro.codec": codec.encode()}
    pairs = b"".join(text(key) + text(value) for key, value in header.items())
    parts = [b"Obj\x01", long(len(header)), pairs, long(0), SYNC]
    for count, data in blocks:
        parts += [long(count), text(CODECS[codec](data)), SYNC]
    return b"".join(parts)


def records_of(data):
    """Return the schema of an Avro file and its records as dictionaries."""
    container = read_container(data)
    records = []
    for block, count in zip(container.blocks, container.counts, strict=True):
        reader = io.BytesIO(block)
        records += [fastavro.schemaless_reader(reader, container.schema, None) for _ in range(count)]
        assert not reader.read()
    return container.schema, records


def encoded(schema, record):
    """Return one record as Avro encodes it."""
    found = io.BytesIO()
    fastavro.schemaless_writer(found, schema, record)
    return found.getvalue()


def repacked(schema, records, *, sizes, codec="null"):
    """Return an Avro file of the records in blocks of these sizes, in turn."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    data = [encoded(parsed, record) for record in records]
    blocks, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        blocks.append((len(data[at : at + size]), b"".join(data[at : at + size])))
        at, turn = at + size, turn + 1
    return packed(json.dumps(schema).encode(), blocks, codec)
