"""Which data files the rows of position delete files are about."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tblctl.tableformat.errors import CorruptTableError, ObjectNotFoundError, UnsupportedFormatError
from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.deletes import PATH_COLUMN, DeleteFiles
from tblctl.tableformat.model.schema.field_ids import field_id


class DeleteRows:
    """Reads the paths in position delete files, each file once."""

    def __init__(self, location: str, storages: DataStorage) -> None:
        self._location = location
        self._storages = storages
        self._paths: dict[str, frozenset[str]] = {}

    def paths(self, deletes: DeleteFiles, path: str) -> frozenset[str]:
        """Return the data files that a position delete file has rows of.

        Raises:
            UnsupportedFormatError: it is not Parquet.
            CorruptTableError: it is missing, or cannot be read.
        """
        found = self._paths.get(path)
        if found is None:
            row = pc.index(deletes.entries.path, pa.scalar(path, pa.large_string())).as_py()
            found = self._paths[path] = self._read(deletes, row, path)
        return found

    def _read(self, deletes: DeleteFiles, row: int, path: str) -> frozenset[str]:
        only = deletes.entries.referenced[row].as_py()
        if only is not None:
            return frozenset([only])
        form = deletes.entries.format[row].as_py().upper()
        if form != "PARQUET":
            msg = f"{self._location}: delete file {path} is {form}; tblctl reads those in Parquet"
            raise UnsupportedFormatError(msg)
        storage, name = self._storages.place_of(path)
        try:
            with pq.ParquetFile(storage.open_input(name)) as file:
                column = next(
                    item.name
                    for item in file.schema_arrow
                    if field_id(item) == PATH_COLUMN or item.name == "file_path"
                )
                values = file.read([column]).column(0)
        except (pa.ArrowException, ObjectNotFoundError, StopIteration) as error:
            msg = (
                f"{self._location}: delete file {path} cannot be read: {error or 'it has no column of paths'}"
            )
            raise CorruptTableError(msg, name=path) from error
        return frozenset(pc.unique(values).to_pylist())
