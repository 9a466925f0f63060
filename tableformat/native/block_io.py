"""Read and write blocks of a native table inside merge tasks, a row group or less at a time."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tblctl.tableformat.concurrency import IO_THREADS
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import InternalError, TblctlError
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.native.blocks import address_of
from tblctl.tableformat.native.log.names import block_path
from tblctl.tableformat.parquet.block_builder import NewBlock, ParquetBlockBuilder
from tblctl.tableformat.parquet.block_reader import ParquetBlockReader
from tblctl.tableformat.parquet.block_writer import BlockEncoder, Layout
from tblctl.tableformat.parquet.opened import IdleBlocks, Tails
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.storage import Storage

LOG = logging.getLogger("tblctl")


@dataclass(frozen=True, kw_only=True)
class NativeBlockIO:
    """`tblctl.tableformat.port.BlockIO` of one snapshot.

    `layout` is the snapshot's. `column_ids` has the column ids of every schema that the table had, by schema id.
    """

    storage: Storage
    env: Environment
    layout: Layout
    column_ids: Mapping[int, frozenset[int]]
    tails: Tails = field(default_factory=Tails, compare=False)
    idle: IdleBlocks = field(default_factory=IdleBlocks, compare=False)

    @property
    def schema(self) -> Schema:
        """The columns that are read and written."""
        return self.layout.schema

    @property
    def options(self) -> TableOptions:
        """How blocks are written."""
        return self.layout.options

    @property
    def file_bytes(self) -> None:
        """None: rows and bytes in memory decide how large blocks are."""
        return

    @property
    def opens(self) -> int:
        """How many blocks to open at once."""
        return 1 if self.storage.is_local else IO_THREADS

    def open(self, block: Block, *, coded: Collection[int] = ()) -> ParquetBlockReader:
        """Open a block."""
        address = address_of(block, self.column_ids)
        return ParquetBlockReader(
            BlockFile(self.storage, address, self.tails, coded=coded, idle=self.idle),
            self.schema,
            decoded_bytes=block.decoded_bytes,
            codec=self.options.compression,
            tails=self.tails,
        )

    def renew(self) -> bool:
        """Return false: whoever opened the table gave credentials."""
        return False

    def live(self, blocks: Sequence[Block]) -> tuple[Block, ...]:
        """Return the blocks unchanged: native blocks have no deleted rows."""
        return tuple(blocks)

    def can_copy(self, block: Block) -> bool:
        """Return true: every block was written by tblctl."""
        del block
        return True

    def build(
        self, *, sort: Sort | None, level: int, run_id: str | None, partition: str = ""
    ) -> ParquetBlockBuilder:
        """Begin a block. Its rows become several blocks if one would exceed `block_bytes`.

        Raises:
            InternalError: a partition is given; native tables have none.
        """
        if partition:
            msg = f"a block of partition {partition!r} cannot be written into a table without partitions"
            raise InternalError(msg)
        begin = partial(self._begin, sort, level, run_id)
        return ParquetBlockBuilder(
            self.layout,
            sort,
            begin=begin,
            open=self.open,
            discard=self.discard,
            most_bytes=self.options.block_bytes,
        )

    def _begin(self, sort: Sort | None, level: int, run_id: str | None) -> NewBlock:
        path = block_path(self.env.new_id())
        encoder = BlockEncoder(self.layout, sort)
        store = partial(encoder.store, self.storage, path, level=level, run_id=run_id)
        return NewBlock(path=path, encoder=encoder, store=store)

    def discard(self, paths: Sequence[str]) -> None:
        """Delete blocks, as far as possible."""
        try:
            self.storage.delete(list(paths))
        except TblctlError as error:
            LOG.warning("blocks that are not needed could not be deleted, gc will: %s", error)
