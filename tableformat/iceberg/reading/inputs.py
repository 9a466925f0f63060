"""Open data files of one snapshot inside merge tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tblctl.tableformat.errors import InternalError, InvalidOptionError
from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.deletes import EQUALITY, deletes_of
from tblctl.tableformat.iceberg.own_files import parse_name
from tblctl.tableformat.iceberg.reading.column_check import require_columns
from tblctl.tableformat.iceberg.reading.column_ids import NAME_MAPPING, NameMapping, with_ids
from tblctl.tableformat.iceberg.reading.data_file import DataFile
from tblctl.tableformat.iceberg.reading.given_ids import GivenIds
from tblctl.tableformat.iceberg.reading.live_reader import LiveReader
from tblctl.tableformat.iceberg.reading.position_deletes import PositionDeletes
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.once import once
from tblctl.tableformat.parquet.block_reader import ParquetBlockReader
from tblctl.tableformat.parquet.footer_check import MOST_CHUNK_BYTES
from tblctl.tableformat.parquet.opened import BlockAddress, CheckedFooters, IdleBlocks, Tails
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.port import BlockReader

if TYPE_CHECKING:
    from tblctl.tableformat.iceberg.version import IcebergVersion


class Inputs:
    """Data files of one snapshot. Pickles into tasks without the version; what these need travels with each file.

    Args:
        version: the snapshot.
        storages: finds the storage of a file.
    """

    def __init__(self, version: IcebergVersion, storages: DataStorage) -> None:
        self._version: IcebergVersion | None = version
        self._storages = storages
        self._schema = version.schema
        self._codec = version.options.compression
        self._table = version.metadata.table_uuid.hex
        self._location = version.location
        self._given = GivenIds.of(version.metadata)
        self._mapping_text = version.metadata.properties.get(NAME_MAPPING)
        self._deletes = PositionDeletes(storages)
        self._tails = Tails()
        self._idle = IdleBlocks()
        self._checked = CheckedFooters()

    def __getstate__(self) -> dict[str, Any]:
        with suppress(InvalidOptionError):  # whoever opens a file says it
            _ = self._mapping  # so that tasks need no PyIceberg to parse it
        return vars(self) | {"_version": None}

    def live(self, blocks: Sequence[Block]) -> tuple[Block, ...]:
        """Return data files without their deleted rows. Only where the version is: on the driver.

        Raises:
            InvalidOptionError: equality deletes apply to one.
            CorruptTableError: a delete file is missing or damaged.
        """
        version = self._version
        if version is None:
            raise InternalError("deletes of data files are looked up where the merge was planned")
        return tuple(self._without_deleted(file) for file in self._described(version, blocks))

    def _described(self, version: IcebergVersion, blocks: Sequence[Block]) -> list[DataFile]:
        files = [version.data_file(block) for block in blocks]
        found = deletes_of(
            [file.path for file in files],
            [file.sequence_number for file in files],
            [version.partition_key(file.path) for file in files],
            version.deletes,
        )
        entries = version.deletes.entries
        for file, numbers in zip(files, found, strict=True):
            if (entries.content[list(numbers)] == EQUALITY).any():
                msg = f"{self._location}: equality deletes apply to {file.path}: have an engine apply them first"
                raise InvalidOptionError(msg)
        return [
            replace(file, deletes=tuple(entries.path[number].as_py() for number in numbers))
            for file, numbers in zip(files, found, strict=True)
        ]

    def _without_deleted(self, file: DataFile) -> Block:
        return file.without(len(self._positions(file))) if file.deletes else file

    def _positions(self, file: DataFile) -> np.ndarray:
        """Return the positions of deleted rows. Some may lie beyond the file: deletes say nothing of its length."""
        found = self._deletes.positions(file.path, file.deletes)
        return found[(found >= 0) & (found < file.stored_rows)]

    def can_copy(self, block: Block) -> bool:
        """Return whether row groups of a file may be copied undecoded: it is one of tblctl's, without deletes."""
        name = parse_name(block.path)
        mine = name is not None and name.table == self._table
        return mine and not (isinstance(block, DataFile) and block.deletes)

    def open(self, block: Block, *, coded: Collection[int] = ()) -> BlockReader:
        """Open a file that `live` returned.

        Raises:
            CorruptTableError: it is missing or damaged, or its columns are not those that its manifest counts.
            InvalidDataError: its columns have no ids.
        """
        if not isinstance(block, DataFile):
            raise InternalError(f"{block.path} was not looked up before it was opened")
        file = self.open_stored(block, coded)
        lacking = [id_ for id_, _ in block.constants if id_ not in file.leaf_ids]
        if self.can_copy(block) and not lacking:
            return self._plain(file)
        return LiveReader(
            file,
            self._schema,
            decoded_bytes=file.decoded_bytes,
            codec=self._codec,
            tails=self._tails,
            positions=self._positions(block) if block.deletes else np.zeros(0, np.int64),
            constants=self._constants(block),
            null_counts=dict(block.null_counts),
        )

    def open_stored(self, block: DataFile, coded: Collection[int] = ()) -> BlockFile:
        """Open a file with all its stored rows. Raises as `open`."""
        file = self._opened(block, coded)
        try:
            require_columns(file, block, self._schema, given=self._given)
        except BaseException:
            file.__exit__()
            raise
        return file

    def forget_open(self) -> None:
        """Let open files go: they read with the credentials with which they were opened."""
        self._idle = IdleBlocks()

    def open_whole(self, block: Block) -> ParquetBlockReader:
        """Open a file that may be copied."""
        return self._plain(self._opened(block, ()))

    def _plain(self, file: BlockFile) -> ParquetBlockReader:
        return ParquetBlockReader(
            file,
            self._schema,
            decoded_bytes=file.decoded_bytes,
            codec=self._codec,
            tails=self._tails,
        )

    def _opened(self, block: Block, coded: Collection[int]) -> BlockFile:
        storage, name = self._storages.place_of(block.path)
        address = address_of(block.path, name, size_bytes=block.size_bytes, rows=block.stored_rows)
        named = partial(with_ids, schema=self._schema, mapping=self._mapping, path=block.path)
        return BlockFile(
            storage,
            address,
            self._tails,
            coded=coded,
            idle=self._idle,
            checked=self._checked,
            named=named,
        )

    @once
    def _mapping(self) -> NameMapping | None:
        return None if self._mapping_text is None else NameMapping.parse(self._mapping_text)

    def _constants(self, block: DataFile) -> dict[int, pa.Scalar]:
        found: dict[int, pa.Scalar] = {}
        for id_, value in block.constants:
            leaf = self._schema.leaf_by_id(id_)
            if leaf is not None and value is not None:
                found[id_] = value if isinstance(value, pa.Scalar) else pa.scalar(value)
        return found


def address_of(uri: str, name: str, *, size_bytes: int, rows: int) -> BlockAddress:
    """Return what is needed to open a Parquet file of a table: its name in its storage, and what its manifest says."""
    return BlockAddress(
        path=name,
        size_bytes=size_bytes,
        row_count=rows,
        uncompressed_bytes=MOST_CHUNK_BYTES,
        column_ids=frozenset(),
        seal=None,
        uri=uri,
    )
