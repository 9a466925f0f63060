"""Verify blocks before their files are exposed to engines that read Parquet themselves."""

from __future__ import annotations

import pyarrow as pa

from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.parquet.opened import BlockAddress, open_block, open_source, opening, title_of
from tblctl.tableformat.parquet.sealed import Place, open_verified, reader, verified_end
from tblctl.tableformat.storage import Storage


def verify_block(storage: Storage, address: BlockAddress) -> pa.Buffer | None:
    """Verify a block's size and footer. A block in memory is verified whole and returned; None for others.

    Raises:
        CorruptTableError: the block is missing or damaged.
    """
    if address.seal is None:
        open_block(storage, address).source.close()
        return None
    place = Place(name=address.path, title=title_of(storage, address))
    with opening(storage, address), open_source(storage, address) as source:
        return _verified(place, address.size_bytes, address.seal, source)


def _verified(place: Place, size_bytes: int, seal: Seal, source: pa.NativeFile) -> pa.Buffer | None:
    fetch = reader(source)
    end = fetch(max(0, size_bytes - seal.footer_bytes), size_bytes)
    if isinstance(source, pa.BufferReader):
        verified, _ = open_verified(place, seal, size_bytes, end, fetch)
        return verified.whole()
    verified_end(place, seal, size_bytes, end)
    return None
