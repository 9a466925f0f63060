"""Open data files of one snapshot inside merge tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.parquet.block_reader import ParquetBlockReader
from tblctl.tableformat.port import BlockReader

if TYPE_CHECKING:
    from tblctl.tableformat.iceberg.version import IcebergVersion


class Inputs:
    """Data files of one snapshot. Pickles into tasks with what `live` found of its blocks, and without the version."""

    def __init__(self, version: IcebergVersion, storages: DataStorage) -> None:
        self._version: IcebergVersion | None = version
        self._storages = storages

    def live(self, blocks: Sequence[Block]) -> tuple[Block, ...]:
        """Return blocks without their deleted rows. Only where the version is: on the driver."""
        raise NotImplementedError

    def can_copy(self, block: Block) -> bool:
        """Return whether row groups of a block may be copied undecoded: it is one of tblctl's, without deletes."""
        raise NotImplementedError

    def open(self, block: Block, *, coded: Collection[int] = ()) -> BlockReader:
        """Open a block that `live` returned."""
        raise NotImplementedError

    def open_whole(self, block: Block) -> ParquetBlockReader:
        """Open a block that may be copied."""
        raise NotImplementedError
