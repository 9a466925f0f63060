"""Verify blocks before their files are exposed to engines that read Parquet themselves."""

from __future__ import annotations

import pyarrow as pa

from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.parquet.opened import BlockAddress, open_block, open_source, opening, title_of
from tblctl.tableformat.parquet.sealed import Place, VerifiedFile, checked_footer, reader, verified_end
from tblctl.tableformat.storage import Storage


def verify_block(storage: Storage, address: BlockAddress) -> pa.Buffer | None:
    """Verify a block's size and footer. A block in memory is verified whole and returned; None for others.

    Raises:
        CorruptTableError: the block is missing or damaged.
    """
    if address.seal is None:
        open_block(storage, address).source.close()
        return None
    with opening(storage, address), open_source(storage, address) as source:
        return _verified(storage, address, address.seal, source)


def _verified(storage: Storage, address: BlockAddress, seal: Seal, source: pa.NativeFile) -> pa.Buffer | None:
    place, size = Place(name=address.path, title=title_of(storage, address)), address.size_bytes
    fetch = reader(source)
    end = verified_end(place, seal, size, fetch(max(0, size - seal.footer_bytes), size))
    metadata = checked_footer(
        end, size, row_count=address.row_count, most_chunk_bytes=address.uncompressed_bytes
    )
    if isinstance(source, pa.BufferReader):
        return VerifiedFile(place, end, metadata, size, fetch).whole()
    return None
