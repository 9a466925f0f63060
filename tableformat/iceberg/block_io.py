"""Read and write data files of an Iceberg table inside merge tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tblctl.tableformat.concurrency import IO_THREADS
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.reading.inputs import Inputs
from tblctl.tableformat.iceberg.writing.outputs import Outputs
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.parquet.block_builder import ParquetBlockBuilder
from tblctl.tableformat.port import BlockReader


@dataclass(frozen=True, kw_only=True)
class IcebergBlockIO:
    """`tblctl.tableformat.port.BlockIO` of one snapshot. Pickles into tasks, secrets included.

    Attributes:
        env: clocks and names.
        storages: finds the storage of a file.
        inputs: opens data files.
        outputs: writes data files.
    """

    env: Environment
    storages: DataStorage
    inputs: Inputs
    outputs: Outputs

    @property
    def schema(self) -> Schema:
        """The columns that are read and written."""
        return self.outputs.layout.schema

    @property
    def options(self) -> TableOptions:
        """How blocks are written."""
        return self.outputs.layout.options

    @property
    def file_bytes(self) -> int:
        """Bytes on storage that a file should have."""
        return self.outputs.target_bytes

    @property
    def opens(self) -> int:
        """How many blocks to open at once."""
        storage, _ = self.storages.place_of(self.outputs.location)
        return 1 if storage.is_local else IO_THREADS

    def renew(self) -> bool:
        """Ask the catalog for credentials, if it vends any. Files that are open with those of before are not reused."""
        if not self.storages.renew():
            return False
        self.inputs.forget_open()
        return True

    def live(self, blocks: Sequence[Block]) -> tuple[Block, ...]:
        """Return blocks without their deleted rows."""
        return self.inputs.live(blocks)

    def can_copy(self, block: Block) -> bool:
        """Return whether row groups of a block may be copied undecoded."""
        return self.inputs.can_copy(block)

    def open(self, block: Block, *, coded: Collection[int] = ()) -> BlockReader:
        """Open a block that `live` returned."""
        return self.inputs.open(block, coded=coded)

    def build(
        self, *, sort: Sort | None, level: int, run_id: str | None, partition: str = ""
    ) -> ParquetBlockBuilder:
        """Begin a data file of a partition."""
        return self.outputs.build(
            sort=sort, level=level, run_id=run_id, partition=partition, open=self.inputs.open_whole
        )

    def discard(self, paths: Sequence[str]) -> None:
        """Delete files, as far as possible."""
        self.outputs.discard(paths)
