"""Read position delete files: which rows of which data files are deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import CorruptTableError, ObjectNotFoundError
from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.deletes import PATH_COLUMN, POSITION_COLUMN
from tblctl.tableformat.model.schema.field_ids import field_id
from tblctl.tableformat.parquet.footer import footer_of
from tblctl.tableformat.parquet.footer_check import MOST_CHUNK_BYTES, check_footer
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS, read_error
from tblctl.tableformat.storage.ranges import RangedInput

_NAMES = {PATH_COLUMN: "file_path", POSITION_COLUMN: "pos"}


class PositionDeletes:
    """The rows of position delete files. Each file is read once in a process. Threads may share it. Pickles empty."""

    def __init__(self, storages: DataStorage) -> None:
        self._storages = storages
        self._files: dict[str, dict[str, np.ndarray]] = {}
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[PositionDeletes], tuple[DataStorage]]:
        return type(self), (self._storages,)

    def paths(self, delete: str) -> frozenset[str]:
        """Return the data files that a delete file has rows of.

        Raises:
            CorruptTableError: it is missing or damaged.
        """
        return frozenset(self._read([delete])[0])

    def positions(self, path: str, deletes: Sequence[str]) -> np.ndarray:
        """Return the positions of deleted rows of a data file, ascending, each once.

        Args:
            path: of the data file.
            deletes: paths of delete files that may have rows of it.

        Raises:
            CorruptTableError: a delete file is missing or damaged.
        """
        found = [rows[path] for rows in self._read(deletes) if path in rows]
        return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)

    def _read(self, deletes: Iterable[str]) -> list[dict[str, np.ndarray]]:
        wanted = list(deletes)
        with self._lock:
            missing = [path for path in dict.fromkeys(wanted) if path not in self._files]
            self._files.update(
                zip(missing, in_parallel(self._rows, missing, threads=IO_THREADS), strict=True)
            )
            return [self._files[path] for path in wanted]

    def _rows(self, path: str) -> dict[str, np.ndarray]:
        storage, name = self._storages.place_of(path)
        try:
            source = storage.open_input(name)
            if isinstance(source, RangedInput):
                source.close()
                source = pa.BufferReader(storage.read(name))
            with source:
                _check_footer(source)
                file = pq.ParquetFile(source)
                names = [_column(file.schema_arrow, id_) for id_ in (PATH_COLUMN, POSITION_COLUMN)]
                rows = file.read(names)
            return _by_path(rows.column(names[0]), rows.column(names[1]))
        except (ObjectNotFoundError, FileNotFoundError) as error:
            msg = (
                f"position delete file {path} is missing, although the snapshot names it; nothing was changed"
            )
            raise CorruptTableError(msg, name=path) from error
        except ARROW_ERRORS as error:
            found = read_error(storage, name, error, uri=path)
            if not isinstance(found, CorruptTableError):  # the storage failed, which says nothing of the file
                raise found from error
            msg = f"position delete file {path} cannot be read: {error}; nothing was changed"
            raise CorruptTableError(msg, name=path) from error


def _check_footer(source: pa.NativeFile) -> None:
    """Refuse a footer that contradicts itself: some end the process inside Arrow."""
    footer, pages_stop = footer_of(lambda start, stop: source.read_at(stop - start, start), source.size())
    check_footer(footer, pages_stop=pages_stop, row_count=None, most_chunk_bytes=MOST_CHUNK_BYTES)


def _column(schema: pa.Schema, id_: int) -> str:
    """Return the name of the column with an id, or with the usual name if the writer wrote no ids."""
    by_id = [field.name for field in schema if field_id(field) == id_]
    if by_id:
        return str(by_id[0])
    if _NAMES[id_] in schema.names:
        return _NAMES[id_]
    raise ValueError(f"it has no column {_NAMES[id_]!r}")


def _by_path(paths: pa.ChunkedArray, positions: pa.ChunkedArray) -> dict[str, np.ndarray]:
    if paths.null_count or positions.null_count:
        raise ValueError("it has rows without a path or without a position")
    coded = pc.dictionary_encode(paths.cast(pa.large_string())).combine_chunks()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    codes, numbers = np.asarray(coded.indices), np.asarray(positions.cast(pa.int64()))
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(coded.dictionary) + 1))
    return {
        path: numbers[order[bounds[code] : bounds[code + 1]]]
        for code, path in enumerate(coded.dictionary.to_pylist())
    }
