"""The data files of one snapshot as columns. Statistics of a column are decoded when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.iceberg.bounds import FileColumn, file_column
from tblctl.tableformat.iceberg.entries import (
    DELETED,
    ColumnBounds,
    DamagedManifestError,
    Decoded,
    FileEntries,
    ManifestSource,
    read_entries,
)
from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.statistics import ColumnStatistics

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

ReadAll = Callable[[Sequence[str]], Sequence[bytes]]
"""Returns the contents of files, in order."""


class DataFiles:
    """The live data files that manifests name, one row each; a `BlockStatistics`.

    Files without records are left out: there is nothing in them to read, or to rewrite.
    """

    def __init__(self, location: str, manifests: Sequence[ManifestFile], read: ReadAll) -> None:
        self._location = location
        self._manifests = tuple(manifests)
        self._read = read
        self._columns: dict[int, FileColumn] = {}
        self._core: tuple[FileEntries, np.ndarray] | None = None
        self._layouts: tuple[Any, ...] = ()

    def fetch(self, leaves: Iterable[Leaf]) -> None:
        """Decode the statistics of some columns, all at once."""
        wanted = [leaf for leaf in leaves if leaf.id not in self._columns]
        if self._core is not None and not wanted:
            return
        decoded = self._decoded([leaf.id for leaf in wanted])
        entries = decoded.entries
        if self._core is None:
            live = (entries.status != DELETED) & (entries.content == 0) & (entries.rows > 0)
            chosen = np.flatnonzero(live)
            self._core = entries.take(chosen), chosen
            self._layouts = decoded.layouts
        files, chosen = self._core
        for leaf in wanted:
            self._columns[leaf.id] = file_column(leaf, _taken(decoded.columns[leaf.id], chosen), files.rows)

    @property
    def entries(self) -> FileEntries:
        """The files."""
        self.fetch(())
        assert self._core is not None
        return self._core[0]

    @property
    def layouts(self) -> tuple[Any, ...]:
        """The Avro schemas of entries; `entries.layout` are places in it."""
        self.fetch(())
        return self._layouts

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def row_count(self) -> np.ndarray:
        """Records in each file, deleted ones among them."""
        return self.entries.rows

    def column(self, leaf: Leaf) -> ColumnStatistics | None:
        """Return the statistics of one column."""
        self.fetch([leaf])
        return self._columns[leaf.id].statistics

    def is_exact(self, leaf: Leaf) -> np.ndarray:
        """Return for each file whether the bounds of a column are values of it."""
        self.fetch([leaf])
        return self._columns[leaf.id].exact

    def _decoded(self, column_ids: Sequence[int]) -> Decoded:
        data = self._read([manifest.manifest_path for manifest in self._manifests])
        sources = [
            ManifestSource(
                path=manifest.manifest_path,
                data=found,
                spec_id=manifest.partition_spec_id,
                snapshot_id=-1 if manifest.added_snapshot_id is None else manifest.added_snapshot_id,
                sequence_number=manifest.sequence_number or 0,
            )
            for manifest, found in zip(self._manifests, data, strict=True)
        ]
        try:
            return read_entries(sources, column_ids)
        except DamagedManifestError as error:
            msg = f"{self._location}: manifest {error.path} cannot be read: {error}"
            raise CorruptTableError(msg, name=error.path) from error


def _taken(bounds: ColumnBounds, rows: np.ndarray) -> ColumnBounds:
    import pyarrow as pa

    places = pa.array(rows)
    return ColumnBounds(
        values=bounds.values[rows],
        nulls=bounds.nulls[rows],
        nans=bounds.nans[rows],
        lower=bounds.lower.take(places),
        upper=bounds.upper.take(places),
    )
