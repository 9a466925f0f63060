"""Avro object container files: the header, and the blocks of records, decompressed.

Source: Apache Avro 1.11 specification, "Object Container Files".
"""

from __future__ import annotations

import bz2
import json
import lzma
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_CHECKSUM_BYTES = 4
_RAW_DEFLATE = -15
_MOST_VARINT_BITS = 63
_MOST_SNAPPY = 64
"""Times. Snappy makes at most 64 bytes of three; who claims more is damaged, and would have memory allocated."""

_MOST_BLOCK_BYTES = 2**28
"""Of a decompressed block. Writers make blocks of 16 KB to some MB; a few bytes may claim to be a terabyte."""

_MOST_FILE_BYTES = 2**31
"""Of all blocks of a file, decompressed. A manifest of 8 MB has less than 100."""

_MOST_XZ_MEMORY = 2**27
"""Bytes. The highest level of xz needs 65 MiB to decompress."""


_DAMAGE = (
    IndexError,
    EOFError,
    OSError,
    ValueError,
    RecursionError,
    zlib.error,
    lzma.LZMAError,
    pa.ArrowException,
)
"""What reading a damaged file raises: its bytes end, do not decompress, or are no JSON."""


class AvroError(ValueError):
    """The bytes are no valid Avro container file; the message says what is wrong and where."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Container:
    """The content of one file.

    Attributes:
        schema: the writer's schema, as parsed JSON.
        schema_text: the same as text. Files of equal texts can be decoded together.
        metadata: the header's other entries.
        blocks: the records of each block, encoded.
        counts: how many records each block has.
    """

    schema: Any
    schema_text: bytes
    metadata: Mapping[str, bytes]
    blocks: tuple[bytes, ...]
    counts: tuple[int, ...]


def read_container(data: bytes) -> Container:
    """Return the content of a file.

    Raises:
        AvroError: it is no Avro file, it is cut off, or its codec is unknown.
    """
    if data[:4] != _MAGIC:
        raise AvroError(f"it begins with {data[:4]!r}, expected {_MAGIC!r}: not an Avro file")
    try:
        metadata, at = _read_metadata(data, len(_MAGIC))
        sync = _bytes_at(data, at, _SYNC_BYTES)
        codec = metadata.pop("avro.codec", b"null").decode()
        text = metadata.pop("avro.schema")
        decompress = _CODECS[codec]
        blocks, counts = _read_blocks(data, at + _SYNC_BYTES, sync, decompress)
        return Container(
            schema=json.loads(text), schema_text=text, metadata=metadata, blocks=blocks, counts=counts
        )
    except AvroError:
        raise
    except KeyError as error:
        known = ", ".join(_CODECS)
        raise AvroError(f"the header lacks {error}, or names a codec other than {known}") from error
    except _DAMAGE as error:
        raise AvroError(f"it is cut off or damaged ({error})") from error


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return the whole number that begins at a place, and the place after it.

    Raises:
        IndexError: the data ends within it.
        AvroError: it has more than 64 bits.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 (the highest bit says that more bytes follow)
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > _MOST_VARINT_BITS:
            raise AvroError(f"a number at byte {at} has more than 64 bits")


def _read_metadata(data: bytes, at: int) -> tuple[dict[str, bytes], int]:
    found: dict[str, bytes] = {}
    while True:
        count, at = read_long(data, at)
        if count == 0:
            return found, at
        if count < 0:  # a size in bytes follows
            _, at = read_long(data, at)
        for _ in range(abs(count)):
            key, at = _read_bytes(data, at)
            found[key.decode()], at = _read_bytes(data, at)


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_long(data, at)
    return _bytes_at(data, at, length), at + length


def _bytes_at(data: bytes, at: int, length: int) -> bytes:
    if length < 0 or at + length > len(data):
        raise AvroError(f"a text at byte {at} has {length} bytes, more than there are")
    return data[at : at + length]


def _read_blocks(
    data: bytes, at: int, sync: bytes, decompress: Callable[[bytes], bytes]
) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    blocks, counts = [], []
    total = 0
    while at < len(data):
        count, at = read_long(data, at)
        size, at = read_long(data, at)
        end = at + size
        if count < 0 or size < 0 or data[end : end + _SYNC_BYTES] != sync:
            raise AvroError(f"the block at byte {at} is cut off or damaged")
        block = decompress(data[at:end])
        if count > len(block) or (block and not count):
            raise AvroError(f"the block at byte {at} claims {count} records in {len(block)} bytes")
        total += len(block)
        if total > _MOST_FILE_BYTES:
            raise AvroError(f"it has more than {_MOST_FILE_BYTES} bytes when decompressed")
        blocks.append(block)
        counts.append(count)
        at = end + _SYNC_BYTES
    return tuple(blocks), tuple(counts)


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, most: int, /) -> bytes: ...


def _decompressed(with_: _Decompressor, data: bytes) -> bytes:
    found = with_.decompress(data, _MOST_BLOCK_BYTES + 1)
    _require_small(len(found))
    if not with_.eof:
        raise AvroError("a block ends before its compressed data do: it is damaged")
    return found


def _require_small(size_bytes: int) -> None:
    if size_bytes > _MOST_BLOCK_BYTES:
        raise AvroError(f"a block has more than {_MOST_BLOCK_BYTES} bytes when decompressed")


def _inflate(data: bytes) -> bytes:
    return _decompressed(zlib.decompressobj(_RAW_DEFLATE), data)


def _unsnappy(data: bytes) -> bytes:
    """Snappy without frames; a CRC-32 of the uncompressed bytes follows."""
    body = data[:-_CHECKSUM_BYTES]
    size = shift = 0
    for byte in body:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004
            break
    if size > _MOST_SNAPPY * len(body):
        raise AvroError(f"a block of {len(body)} bytes claims to have {size} uncompressed: it is damaged")
    _require_small(size)
    found: bytes = pa.decompress(body, decompressed_size=size, codec="snappy", asbytes=True)
    if zlib.crc32(found) != int.from_bytes(data[-_CHECKSUM_BYTES:], "big"):
        raise AvroError("the checksum of a block does not match: it is damaged")
    return found


def _unzstd(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        found: bytes = stream.read(_MOST_BLOCK_BYTES + 1)
    _require_small(len(found))
    return found


def _unxz(data: bytes) -> bytes:
    return _decompressed(lzma.LZMADecompressor(memlimit=_MOST_XZ_MEMORY), data)


def _unbzip2(data: bytes) -> bytes:
    return _decompressed(bz2.BZ2Decompressor(), data)


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _inflate,
    "snappy": _unsnappy,
    "zstandard": _unzstd,
    "bzip2": _unbzip2,
    "xz": _unxz,
}
