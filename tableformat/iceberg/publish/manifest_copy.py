"""Write some entries of a manifest into a new one, with another status. Their files are copied as they are encoded.

An entry that is carried over becomes EXISTING, with its snapshot id and both sequence numbers written out: an ADDED
entry without them would inherit those of the new snapshot, and its deletes would stop applying (Apache Iceberg
specification, "Sequence Number Inheritance").
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.tableformat.errors import InternalError
from tblctl.tableformat.iceberg.avro.chunk import Slices
from tblctl.tableformat.iceberg.avro.columns import Decoder, Whole
from tblctl.tableformat.iceberg.avro.container import Container
from tblctl.tableformat.iceberg.avro.types import type_name

EXISTING, ADDED, DELETED = 0, 1, 2

_HEAD = {0: "status", 1: "snapshot_id", 3: "sequence_number", 4: "file_sequence_number"}
_BLOCK_BYTES = 64_000
_RAW_DEFLATE = -15
_LEVEL = 1


class OldLayoutError(ValueError):
    """The manifest's schema has no place for sequence numbers: it is one of format version 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EntryHeads:
    """What is written of entries in front of their files; one number for each entry."""

    status: np.ndarray
    snapshot_id: np.ndarray
    sequence_number: np.ndarray
    file_sequence_number: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Excerpt:
    """Some entries of a manifest, to be copied.

    Attributes:
        source: the manifest.
        rows: the numbers of the entries, ascending.
        heads: what to write in front of their files.
    """

    source: Container
    rows: np.ndarray
    heads: EntryHeads


def copy_entries(excerpts: Sequence[Excerpt], *, sync: bytes) -> bytes:
    """Return a manifest with entries of others, at least one. The others have one spec, and one Avro schema.

    Args:
        excerpts: what to copy, in order.
        sync: 16 random bytes.

    Raises:
        OldLayoutError: the others are of format version 1.
        AvroError: one is damaged.
    """
    first = excerpts[0].source
    if any(excerpt.source.schema_text != first.schema_text for excerpt in excerpts):
        raise InternalError("entries of manifests with several Avro schemas cannot be in one")
    return _container(first, [entry for excerpt in excerpts for entry in _encoded(excerpt)], sync)


def _encoded(excerpt: Excerpt) -> list[bytes]:
    """Return the entries of an excerpt as they are written."""
    source = excerpt.source
    fields = source.schema["fields"]
    keys = [field.get("field-id", field["name"]) for field in fields]
    if 3 not in keys or 4 not in keys:  # noqa: PLR2004 (the ids of the sequence numbers)
        raise OldLayoutError
    columns: list[list[bytes]] = []
    copied = _copied(source, {key for key in keys if key not in _HEAD})
    for key, field in zip(keys, fields, strict=True):
        if key in _HEAD:
            encode = _number_encoder(field["type"])
            columns.append([encode(value) for value in getattr(excerpt.heads, _HEAD[key]).tolist()])
        else:
            columns.append(copied[key].take(pa.array(excerpt.rows)).to_pylist())
    return [b"".join(parts) for parts in zip(*columns, strict=True)]


def _copied(source: Container, keys: set[int | str]) -> dict[int | str, pa.Array]:
    """Return the encoded values of top-level fields, one for each entry."""
    selection = {key: Whole() for key in keys}
    parts: dict[int | str, list[pa.Array]] = {key: [] for key in keys}
    for _, found, _ in Decoder(source.schema, selection).decode([source]):
        for key in keys:
            value: Slices = found[key]
            parts[key].append(value.to_arrow())
    return {key: pa.concat_arrays(values) for key, values in parts.items()}


def _number_encoder(schema: Any) -> Callable[[int], bytes]:
    """Return a function that encodes whole numbers by a schema: a number, or a union of null and one."""
    kind, full = type_name(schema, {})
    if kind in ("int", "long"):
        return write_long
    if kind == "union":
        kinds = [type_name(branch, {})[0] for branch in full]
        branch = next((number for number, name in enumerate(kinds) if name in ("int", "long")), None)
        if branch is not None:
            prefix = write_long(branch)
            return lambda value: prefix + write_long(value)
    raise OldLayoutError


def write_long(value: int) -> bytes:
    """Return a whole number as Avro encodes it."""
    rest = (value << 1) ^ (value >> 63)
    found = bytearray()
    while rest > 0x7F:  # noqa: PLR2004
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _container(source: Container, entries: list[bytes], sync: bytes) -> bytes:
    metadata = {**source.metadata, "avro.schema": source.schema_text, "avro.codec": b"deflate"}
    found = [b"Obj\x01", _write_map(metadata), sync]
    begin = 0
    while begin < len(entries):
        end, size = begin, 0
        while end < len(entries) and size < _BLOCK_BYTES:
            size += len(entries[end])
            end += 1
        packer = zlib.compressobj(_LEVEL, wbits=_RAW_DEFLATE)
        data = packer.compress(b"".join(entries[begin:end])) + packer.flush()
        found += [write_long(end - begin), write_long(len(data)), data, sync]
        begin = end
    return b"".join(found)


def _write_map(values: Mapping[str, bytes]) -> bytes:
    found = [write_long(len(values))]
    for key, value in values.items():
        encoded = key.encode()
        found += [write_long(len(encoded)), encoded, write_long(len(value)), value]
    return b"".join([*found, write_long(0)])
