"""Write data files of one snapshot's table inside merge tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.parquet.block_builder import ParquetBlockBuilder
from tblctl.tableformat.parquet.block_reader import ParquetBlockReader
from tblctl.tableformat.parquet.block_writer import Layout

if TYPE_CHECKING:
    from tblctl.tableformat.environment import Environment
    from tblctl.tableformat.iceberg.version import IcebergVersion


class Outputs:
    """Writes data files. Pickles into tasks, without the version."""

    layout: Layout

    def __init__(self, version: IcebergVersion, storages: DataStorage, env: Environment) -> None:
        raise NotImplementedError

    def build(
        self,
        *,
        sort: Sort | None,
        level: int,
        run_id: str | None,
        partition: str,
        open: Callable[[Block], ParquetBlockReader],
    ) -> ParquetBlockBuilder:
        """Begin a data file of a partition."""
        raise NotImplementedError
