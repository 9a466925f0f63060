"""Which data files the rows of position delete files are about."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.deletes import DeleteFiles
from tblctl.tableformat.iceberg.reading.position_deletes import PositionDeletes


class DeleteRows:
    """The paths in position delete files. Each is read once, or not at all if its entry names its one data file."""

    def __init__(self, storages: DataStorage) -> None:
        self._read = PositionDeletes(storages)

    def paths(self, deletes: DeleteFiles, path: str) -> frozenset[str]:
        """Return the data files that a position delete file has rows of.

        Raises:
            CorruptTableError: it is missing or damaged.
        """
        row = pc.index(deletes.entries.path, pa.scalar(path, pa.large_string())).as_py()
        only = deletes.entries.referenced[row].as_py()
        return self._read.paths(path) if only is None else frozenset([only])
