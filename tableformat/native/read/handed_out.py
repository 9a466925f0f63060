"""Verify blocks before their files are handed to engines that read Parquet themselves."""

from __future__ import annotations

import pyarrow as pa

from tblctl.tableformat.errors import CorruptTableError, ObjectNotFoundError
from tblctl.tableformat.native.log.names import checked_block_path
from tblctl.tableformat.parquet.damage import ARROW_ERRORS, read_error
from tblctl.tableformat.parquet.reader import BlockAddress, BlockFile
from tblctl.tableformat.parquet.sealed import Place, open_verified, reader, verified_end
from tblctl.tableformat.storage import Storage


def verify_block(storage: Storage, address: BlockAddress) -> pa.Buffer | None:
    """Verify a block's size and footer. One that is in memory is verified whole, and returned; None for others.

    Raises:
        CorruptTableError: it is missing or damaged.
    """
    if address.seal is None:
        with BlockFile(storage, address):
            return None
    path = checked_block_path(address.path)
    try:
        with storage.open_input(path, size_bytes=address.size_bytes) as source:
            return _verified(storage, address, source)
    except ObjectNotFoundError as error:
        msg = f"{storage.url}: block {path} is missing, although the snapshot names it"
        raise CorruptTableError(msg, name=path) from error
    except ARROW_ERRORS as error:
        raise read_error(storage, path, error) from error


def _verified(storage: Storage, address: BlockAddress, source: pa.NativeFile) -> pa.Buffer | None:
    path, size, seal = address.path, address.size_bytes, address.seal
    title = f"{storage.url}: block {path}"
    if source.size() != size:
        msg = f"{title} has {source.size()} bytes, expected {size}"
        raise CorruptTableError(msg, name=path)
    assert seal is not None
    fetch, place = reader(source), Place(name=path, title=title)
    end = fetch(max(0, size - seal.footer_bytes), size)
    if isinstance(source, pa.BufferReader):
        verified, _ = open_verified(place, seal, size, end, fetch)
        return verified.whole()
    verified_end(place, seal, size, end)
    return None
