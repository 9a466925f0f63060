"""Open a block's file. Compare size, footer, row count and columns with its address before any row is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.tableformat.errors import CorruptTableError, ObjectNotFoundError
from tblctl.tableformat.model.schema.field_ids import ids_in
from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.parquet.columns import FileColumns
from tblctl.tableformat.parquet.footer import read_footer, stored_footer
from tblctl.tableformat.parquet.footer_check import check_footer
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS, read_error
from tblctl.tableformat.parquet.sealed import (
    Fetch,
    Place,
    VerifiedFile,
    checked_footer,
    open_verified,
    reader,
    verified_end,
)
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.ranges import RangedInput, RangeFile

_CHUNK_BYTES = 512
"""Memory of one column chunk's entry in a parsed footer."""

_TAIL_BYTES = 64 << 10
_TAIL_SHARE = 128
"""A footer is 0.2 % of a block of lineitem: 8 bytes, and 130 for each column chunk. One request reads this share."""


@dataclass(frozen=True, kw_only=True)
class BlockAddress:
    """Everything needed to open a block: its name, and values that its file must agree with.

    Attributes:
        path: the object's name; the table format has checked that it lies in the table.
        uncompressed_bytes: of its column chunks.
        column_ids: of the schema that it was written with, at every depth. Its file has all of them.
        seal: of its end; None if no checksums are known.
        uri: what the table format calls the file, if it has files in several storages; errors say it.
    """

    path: str
    size_bytes: int
    row_count: int
    uncompressed_bytes: int
    column_ids: frozenset[int]
    seal: Seal | None
    uri: str | None = None

    @property
    def name(self) -> str:
        """The file's name in the table, in `details["name"]` of errors and in caches."""
        return self.uri or self.path


class Tails:
    """A cache of blocks' ends with their footers: a merge opens each block for its keys, and later for its rows.

    Holds at most `most_bytes`; when it is full, nothing more is kept. Threads may share one. Pickles empty.
    """

    def __init__(self, most_bytes: int = 16 << 20) -> None:
        self._most_bytes = most_bytes
        self._kept: dict[str, bytes] = {}
        self._lock = Lock()

    def keep(self, path: str, tail: bytes) -> None:
        """Keep the end of a block."""
        with self._lock:
            if sum(map(len, self._kept.values())) + len(tail) <= self._most_bytes:
                self._kept[path] = tail

    def get(self, path: str) -> bytes | None:
        """Return the end of a block, None if it is not kept."""
        return self._kept.get(path)

    def drop(self, path: str) -> None:
        """Remove the end of a block."""
        with self._lock:
            self._kept.pop(path, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._most_bytes,))


class CheckedFooters:
    """A cache of footers that `check_footer` found safe, as digests of their bytes and of what they were compared with.

    A check takes about 1 ms for 80 column chunks. Pickles whole: a worker need not check again what the driver did, as
    long as it finds the very same bytes. When it is full, nothing more is kept. Threads may share one.
    """

    def __init__(self, digests: Iterable[bytes] = (), *, most: int = 10_000) -> None:
        self._digests = set(digests)
        self._most = most

    def require_safe(self, data: bytes, start: int, address: BlockAddress) -> None:
        """Refuse a footer that contradicts itself or its file; `start` is where it begins there.

        Raises:
            ValueError: it does.
        """
        row_count, most_bytes = address.row_count, address.uncompressed_bytes
        digest = hashlib.sha256(f"{start} {row_count} {most_bytes} ".encode() + data).digest()
        if digest in self._digests:
            return
        check_footer(read_footer(data), pages_stop=start, row_count=row_count, most_chunk_bytes=most_bytes)
        if len(self._digests) < self._most:
            self._digests.add(digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (sorted(self._digests.copy()),))


@dataclass(frozen=True, kw_only=True)
class OpenBlock:
    """A block's file after `open_block`.

    Attributes:
        source: the open file; the caller closes it.
        ranges: `source`, if ranges can be fetched before they are read; else None.
        verified: returns verified bytes only; None for a block without checksums.
        file: for pyarrow, over `verified` if there is one.
        schema: of `file`, kept because `file` makes it again on every access.
        pre_buffer: whether Arrow joins its reads.
        columns: what was worked out of its columns when it was open before; None at first.
    """

    source: pa.NativeFile
    ranges: RangeFile | None
    verified: VerifiedFile | None
    file: pq.ParquetFile
    schema: pa.Schema
    pre_buffer: bool
    columns: FileColumns | None = None

    @property
    def footer_memory_bytes(self) -> int:
        """Approximate memory of the parsed footer."""
        metadata = self.file.metadata
        return int(metadata.num_row_groups * metadata.num_columns * _CHUNK_BYTES)

    def with_dictionaries(self, names: Sequence[str]) -> pq.ParquetFile:
        """Return the file opened again, with some text columns as Arrow dictionaries."""
        return _parquet_file(
            self.source, self.verified, self.file.metadata, pre_buffer=self.pre_buffer, dictionaries=names
        )

    def read_at(self, start: int, size: int) -> bytes | pa.Buffer:
        """Return some bytes, verified if the block has checksums."""
        if self.verified is None:
            return self.source.read_at(size, start)
        return self.verified.read_at(start, start + size)


class IdleBlocks:
    """A cache of open blocks that will be read again: a merge reads the keys of its blocks before their rows.

    Keeps the last `most_files`, or fewer if their footers exceed about `most_bytes`, and closes the others. Threads may
    share one. Pickles empty.
    """

    def __init__(self, most_files: int = 64, most_bytes: int = 16 << 20) -> None:
        self._most_files = most_files
        self._most_bytes = most_bytes
        self._kept: dict[str, OpenBlock] = {}  # the oldest comes first
        self._bytes = 0
        self._lock = Lock()

    def keep(self, path: str, block: OpenBlock) -> None:
        """Keep a block open. If there are too many, close others, or this one."""
        with self._lock:
            surplus = [self._kept.pop(path)] if path in self._kept else []
            self._kept[path] = block
            self._bytes += block.footer_memory_bytes - sum(item.footer_memory_bytes for item in surplus)
            while len(self._kept) > self._most_files or self._bytes > self._most_bytes:
                surplus.append(self._kept.pop(next(iter(self._kept))))
                self._bytes -= surplus[-1].footer_memory_bytes
        for item in surplus:
            item.source.close()

    def take(self, path: str) -> OpenBlock | None:
        """Remove and return a kept block; None if it is not there."""
        with self._lock:
            block = self._kept.pop(path, None)
            if block is not None:
                self._bytes -= block.footer_memory_bytes
            return block

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._most_files, self._most_bytes))


def open_block(
    storage: Storage,
    address: BlockAddress,
    tails: Tails | None = None,
    *,
    ahead: bool = False,
    checked: CheckedFooters | None = None,
) -> OpenBlock:
    """Open a block, and verify its footer before pyarrow parses it.

    On a remote storage it takes one request, or none if the block's end is in `tails`. `ahead`: memory suffices to hold
    all stored bytes of one call at once. `checked`: footers of blocks without checksums that need no check.

    Raises:
        CorruptTableError: it is missing or damaged.
    """
    with opening(storage, address):
        source = open_source(storage, address)
        ranges = source.ranges if isinstance(source, RangedInput) else None
        if ranges:
            _provide_tail(ranges, address, tails)
        checked = checked or CheckedFooters()
        verified, metadata = _verified_footer(storage, address, reader(ranges or source), checked)
        # If ranges cannot be fetched ahead, Arrow joins its reads. On a local disk the only gain is that Python's lock
        # is taken once for many column chunks, 7 % of a scan; the cost is to hold them all at once.
        pre_buffer = not ranges and (ahead or not storage.is_local)
        file = _parquet_file(source, verified, metadata, pre_buffer=pre_buffer)
        schema = file.schema_arrow
    _require_rows_and_columns(storage, address, file.metadata, schema)
    return OpenBlock(
        source=source, ranges=ranges, verified=verified, file=file, schema=schema, pre_buffer=pre_buffer
    )


@contextmanager
def opening(storage: Storage, address: BlockAddress) -> Iterator[None]:
    """Turn errors inside into one of three: the block is missing, it is damaged, or the storage failed."""
    try:
        yield
    except (ObjectNotFoundError, FileNotFoundError) as error:
        msg = f"{title_of(storage, address)} is missing, although the snapshot names it"
        raise CorruptTableError(msg, name=address.name) from error
    except ARROW_ERRORS as error:
        raise read_error(storage, address.path, error, uri=address.uri) from error


def open_source(storage: Storage, address: BlockAddress) -> pa.NativeFile:
    """Open a block's file. Refuse it if its size differs from its address."""
    source = storage.open_input(address.path, size_bytes=address.size_bytes)
    size_bytes, expected = source.size(), address.size_bytes
    if size_bytes != expected:
        source.close()
        raise refused(storage, address, f"has {size_bytes} bytes, expected {expected}")
    return source


def refused(storage: Storage, address: BlockAddress, why: str) -> CorruptTableError:
    """Return the error that a block differs from its address."""
    return CorruptTableError(f"{title_of(storage, address)} {why}", name=address.name)


def title_of(storage: Storage, address: BlockAddress) -> str:
    """Return a block's name in messages."""
    return address.uri or f"{storage.url}: block {address.path}"


def _provide_tail(ranges: RangeFile, address: BlockAddress, tails: Tails | None) -> None:
    """Get the end of a remote block into memory: from `tails`, or with one request."""
    name, size, seal = address.name, address.size_bytes, address.seal
    tail = tails.get(name) if tails else None
    if tail is None:
        tail_bytes = seal.footer_bytes if seal else max(_TAIL_BYTES, size // _TAIL_SHARE)
        tail = ranges.fetch(max(0, size - tail_bytes), size)
        if tails:
            tails.keep(name, tail)
    ranges.keep(size - len(tail), tail)


def require_safe_footer(storage: Storage, address: BlockAddress) -> None:
    """Check a sealed block's footer before pyarrow parses it. That of an unsealed one is checked whenever it is opened.

    Raises:
        CorruptTableError: the block is missing or damaged, or its footer contradicts itself or the arguments.
    """
    seal, size = address.seal, address.size_bytes
    if seal is None:
        return
    place = Place(name=address.name, title=title_of(storage, address))
    with opening(storage, address), open_source(storage, address) as source:
        end = verified_end(place, seal, size, reader(source)(max(0, size - seal.footer_bytes), size))
        checked_footer(end, size, row_count=address.row_count, most_chunk_bytes=address.uncompressed_bytes)


def _verified_footer(
    storage: Storage, address: BlockAddress, fetch: Fetch, checked: CheckedFooters
) -> tuple[VerifiedFile | None, pq.FileMetaData | None]:
    """Return the verified file and its footer.

    For a block without checksums, check the footer, leave its parsing to pyarrow, and return None twice.
    """
    size, seal = address.size_bytes, address.seal
    if seal is None:
        checked.require_safe(*stored_footer(fetch, size), address)
        return None, None
    end = fetch(max(0, size - seal.footer_bytes), size)
    place = Place(name=address.name, title=title_of(storage, address))
    return open_verified(place, seal, size, end, fetch)


_READ_BYTES = 1 << 18


def _parquet_file(
    source: pa.NativeFile,
    verified: VerifiedFile | None,
    metadata: pq.FileMetaData | None,
    *,
    pre_buffer: bool,
    dictionaries: Sequence[str] = (),
) -> pq.ParquetFile:
    return pq.ParquetFile(
        source if verified is None else pa.PythonFile(verified, mode="r"),
        metadata=metadata,
        pre_buffer=pre_buffer,
        # Checksums of chunks need whole chunks. Others are read as they are decoded: they may take 100 MB and more.
        buffer_size=0 if pre_buffer or verified is not None else _READ_BYTES,
        page_checksum_verification=verified is None,
        coerce_int96_timestamp_unit="us",  # other writers' INT96 reaches beyond the years of nanoseconds
        read_dictionary=dictionaries or None,
    )


def _require_rows_and_columns(
    storage: Storage, address: BlockAddress, metadata: pq.FileMetaData, schema: pa.Schema
) -> None:
    """Refuse a footer with another number of rows, or without a column, which would be read as null."""
    row_count, expected = metadata.num_rows, address.row_count
    if row_count != expected:
        raise refused(storage, address, f"has {row_count} rows, expected {expected}")
    missing = address.column_ids - ids_in(schema)
    if missing:
        ids = ", ".join(map(str, sorted(missing)[:8]))
        why = f"lacks {len(missing)} columns of the schema it was written with: those of ids {ids}"
        raise refused(storage, address, why)
