"""Connect native snapshots to Parquet files: how new blocks are laid out, and how existing ones are opened."""

from __future__ import annotations

from collections.abc import Mapping

from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.log.names import checked_block_path
from tblctl.tableformat.parquet.block_writer import Layout
from tblctl.tableformat.parquet.opened import BlockAddress


def layout_of(snapshot: Snapshot) -> Layout:
    """Return the layout of blocks that are written on top of `snapshot`."""
    return Layout(
        schema_id=snapshot.schema_id, schema=snapshot.schema, sort=snapshot.sort, options=snapshot.options
    )


def address_of(block: Block, column_ids: Mapping[int, frozenset[int]]) -> BlockAddress:
    """Return how to open a block.

    Args:
        block: the block.
        column_ids: of every schema that the table had.

    Raises:
        CorruptTableError: its path is not a block's name, or the table never had its schema.
    """
    return BlockAddress(
        path=checked_block_path(block.path),
        size_bytes=block.size_bytes,
        row_count=block.row_count,
        uncompressed_bytes=block.uncompressed_bytes,
        column_ids=known_ids(block.path, block.schema_id, column_ids),
        seal=block.seal,
    )


def known_ids(path: str, schema_id: int, column_ids: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """Return the column ids of a block written with a schema.

    Raises:
        CorruptTableError: the table never had the schema.
    """
    found = column_ids.get(schema_id)
    if found is None:
        msg = f"block {path} has schema {schema_id} in its metadata, but the snapshot does not define it"
        raise CorruptTableError(msg, name=path)
    return found
