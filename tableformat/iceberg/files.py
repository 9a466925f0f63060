"""The data files of one snapshot as columns. Statistics of a column are decoded when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.iceberg.bounds import TRUNCATION, FileColumn, file_column
from tblctl.tableformat.iceberg.entries import (
    DELETED,
    DamagedManifestError,
    Decoded,
    FileEntries,
    ManifestSource,
    read_entries,
)
from tblctl.tableformat.iceberg.footers import FooterBounds, ParquetFile
from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.statistics import ColumnStatistics
from tblctl.tableformat.once import once

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

ReadAll = Callable[[Sequence[str]], Sequence[bytes]]
"""Returns the contents of files, in order."""

Kept = Callable[[FileEntries, Sequence[Any]], np.ndarray]
"""Returns which of some files are looked at, given also the Avro schemas of their entries."""

ReadFooters = Callable[[Sequence[ParquetFile], Sequence[Leaf]], list[dict[int, FooterBounds]]]
"""Returns for each file the bounds of columns by id, as far as its footer has them."""


class DataFiles:
    """The live data files that manifests name, one row each; a `BlockStatistics`.

    Files without records are left out: there is nothing in them to read, or to rewrite.

    Args:
        location: the table, for errors.
        manifests: those of data files.
        read: reads files.
        text_length: text and binary of fewer characters or bytes than this were not truncated.
        footers: reads bounds from files' footers, for those whose manifest has none, or inexact ones; None reads none.
        kept: leaves out other files; None for none.
    """

    def __init__(
        self,
        location: str,
        manifests: Sequence[ManifestFile],
        read: ReadAll,
        *,
        text_length: int = TRUNCATION,
        footers: ReadFooters | None = None,
        kept: Kept | None = None,
    ) -> None:
        self._footers = footers
        self._kept = kept
        self._left_out = 0
        self._is_repeated: np.ndarray | None = None
        self._location = location
        self._text_length = text_length
        self._manifests = tuple(manifests)
        self._read = read
        self._columns: dict[int, FileColumn] = {}
        self._core: tuple[FileEntries, np.ndarray] | None = None
        self._layouts: tuple[Any, ...] = ()

    def fetch(self, leaves: Iterable[Leaf]) -> None:
        """Decode the statistics of some columns, all at once."""
        wanted = list({leaf.id: leaf for leaf in leaves if leaf.id not in self._columns}.values())
        if self._core is not None and not wanted:
            return
        decoded = decode_manifests(self._location, self._manifests, self._read, [leaf.id for leaf in wanted])
        entries = decoded.entries
        if self._core is None:
            chosen = self._chosen(entries, decoded.layouts)
            self._core = entries if len(chosen) == len(entries) else entries.take(chosen), chosen
            self._layouts = decoded.layouts
        files, chosen = self._core
        for leaf in wanted:
            bounds = decoded.columns.pop(leaf.id)
            bounds = bounds if len(chosen) == len(bounds.nulls) else bounds.take(chosen)
            self._columns[leaf.id] = file_column(leaf, bounds, files.rows, self._text_length)
        if self._footers is not None:
            self._refine(wanted, self._footers)

    def _chosen(self, entries: FileEntries, layouts: Sequence[Any]) -> np.ndarray:
        """Return the places of the files."""
        live = (entries.status != DELETED) & (entries.content == 0) & (entries.rows > 0)
        chosen = np.flatnonzero(live)
        if self._kept is None:
            return chosen
        files = entries.take(chosen)
        kept = self._kept(files, layouts)
        self._left_out = int(np.count_nonzero(~kept))
        self._is_repeated = _is_repeated(files.path)[kept]  # perhaps by an entry that is left out
        found: np.ndarray = chosen[kept]
        return found

    @property
    def left_out(self) -> int:
        """How many files of the manifests are left out."""
        self.fetch(())
        return self._left_out

    @property
    def row_bytes(self) -> float:
        """How many bytes a row takes on storage, on average; 0 without files."""
        return float(self.entries.size_bytes.sum()) / max(int(self.entries.rows.sum()), 1)

    def fill(self, leaf: Leaf, values: pa.Array, held: np.ndarray) -> None:
        """Take a column's bounds from elsewhere unless manifests have exact ones: a file has one value, or only nulls.

        Args:
            leaf: the column, which was fetched.
            values: of its statistic type, one for each file.
            held: where there is one.
        """
        column = self._columns[leaf.id]
        if column.statistics is not None:
            rows = np.flatnonzero(held & ~column.exact)
            nulls = np.where(np.asarray(values.is_valid()), 0, self.row_count)
            found = _Bounds(low=values, high=values, null_count=nulls, exact=np.ones(len(values), bool))
            self._columns[leaf.id] = _replaced(column, rows, found, self.row_count)

    def _refine(self, leaves: Sequence[Leaf], read: ReadFooters) -> None:
        """Read the footers of Parquet files in which bounds of a column are unknown or inexact."""
        entries = self.entries
        wanted = np.zeros(len(entries), bool)
        for leaf in leaves:
            column = self._columns[leaf.id]
            if column.statistics is not None:
                wanted |= ~column.exact & (column.statistics.null_count != entries.rows)
        wanted &= np.asarray(pc.equal(pc.utf8_upper(entries.format), "PARQUET"))
        rows = np.flatnonzero(wanted)
        found = read(parquet_files(entries, rows), leaves)
        for leaf in leaves:
            column = self._columns[leaf.id]
            if column.statistics is None:
                continue
            mine = [place for place, bounds in enumerate(found) if leaf.id in bounds]
            taken = [found[place][leaf.id] for place in mine]
            kind = column.statistics.min.type
            bounds = _Bounds(
                low=pa.array([item.low for item in taken], kind),
                high=pa.array([item.high for item in taken], kind),
                null_count=np.array([item.null_count for item in taken], np.int64),
                exact=np.array([item.exact for item in taken], bool),
            )
            self._columns[leaf.id] = _replaced(column, rows[mine], bounds, self.row_count, all_files=False)

    @property
    def entries(self) -> FileEntries:
        """The files."""
        self.fetch(())
        assert self._core is not None
        return self._core[0]

    @once
    def listed_twice(self) -> np.ndarray | None:
        """The files that have several entries (`add_files` can do that): readers read them as often. None if none has.

        Both entries have one name, so neither can be replaced alone.
        """
        paths = self.entries.path
        found = _is_repeated(paths) if self._is_repeated is None else self._is_repeated
        return found if found.any() else None

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
        """Return for each file whether the bounds of a column are values of it, and its nulls and NaN are counted."""
        self.fetch([leaf])
        return self._columns[leaf.id].exact


def decode_manifests(
    location: str,
    manifests: Sequence[ManifestFile],
    read: ReadAll,
    column_ids: Sequence[int] = (),
    *,
    stored: bool = False,
) -> Decoded:
    """Return the entries of manifests in order, and what they say of some columns; see `read_entries`.

    Raises:
        CorruptTableError: a manifest cannot be read; names it.
    """
    try:
        return read_entries(_sources(manifests, read), column_ids, stored=stored)
    except DamagedManifestError as error:
        raise _damaged(location, error.path, error) from error
    except _DAMAGE as error:
        raise _damaged(location, _damaged_one(_sources(manifests, read), column_ids), error) from error


_READ_BYTES = 64 * 2**20
"""Of manifests that are fetched together, and held until they are decoded."""


def _sources(manifests: Sequence[ManifestFile], read: ReadAll) -> Iterator[ManifestSource]:
    """Yield manifests with their contents, fetched many at a time."""
    ends = np.cumsum([manifest.manifest_length for manifest in manifests], dtype=np.int64) // _READ_BYTES
    for together in np.split(np.arange(len(manifests)), np.flatnonzero(np.diff(ends)) + 1):
        chosen = [manifests[place] for place in together.tolist()]
        data = list(read([manifest.manifest_path for manifest in chosen]))
        for manifest in chosen:
            yield ManifestSource(
                path=manifest.manifest_path,
                data=data.pop(0),
                spec_id=manifest.partition_spec_id,
                snapshot_id=-1 if manifest.added_snapshot_id is None else manifest.added_snapshot_id,
                sequence_number=manifest.sequence_number or 0,
                size_bytes=manifest.manifest_length,
            )


def _damaged(location: str, path: str, error: Exception) -> CorruptTableError:
    msg = f"{location}: manifest {path} cannot be read: {' '.join(str(error).split())}"
    return CorruptTableError(msg, name=path)


def parquet_files(entries: FileEntries, rows: np.ndarray) -> list[ParquetFile]:
    """Return some of the files, to read their footers."""
    paths = entries.path.take(pa.array(rows)).to_pylist()
    figures = zip(paths, entries.size_bytes[rows].tolist(), entries.rows[rows].tolist(), strict=True)
    return [ParquetFile(path=path, size_bytes=size, rows=count) for path, size, count in figures]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Bounds:
    """Bounds of a column that come from elsewhere than manifests."""

    low: pa.Array
    high: pa.Array
    null_count: np.ndarray
    exact: np.ndarray


def _replaced(
    column: FileColumn, rows: np.ndarray, found: _Bounds, row_count: np.ndarray, *, all_files: bool = True
) -> FileColumn:
    """Return the column with other bounds in some files. `found` has those of all files, or of these files alone.

    Values of all files are not NaN; bounds may leave NaN out. A file of floats is exact only if its NaN are counted.
    """
    held = column.statistics
    assert held is not None
    places = np.full(len(held.null_count), -1)
    places[rows] = rows if all_files else np.arange(len(rows))
    chosen = places >= 0
    take = pa.array(np.where(chosen, places, 0), mask=~chosen)
    mask = pa.array(chosen)
    low, high = (
        pc.if_else(mask, new.take(take), old) for new, old in ((found.low, held.min), (found.high, held.max))
    )
    nulls, exact = held.null_count.copy(), column.exact.copy()
    nulls[rows] = found.null_count[places[rows]]
    exact[rows] = found.exact[places[rows]]
    nans = held.nan_count
    if nans is not None:
        nans = np.where(nulls == row_count, 0, nans)
        if all_files:
            nans[rows] = 0
        exact &= nans >= 0
    statistics = replace(held, min=low, max=high, null_count=nulls, nan_count=nans)
    return FileColumn(statistics=statistics, exact=exact)


_DAMAGE = (ValueError, ArithmeticError, LookupError, TypeError, MemoryError)
"""What columns of damaged bytes raise: text that is no UTF-8, lengths beyond the file."""


def _damaged_one(sources: Iterable[ManifestSource], column_ids: Sequence[int]) -> str:
    """Return the path of the manifest that cannot be read; of the first one if each can be read alone."""
    first = ""
    for source in sources:
        first = first or source.path
        try:
            read_entries([source], column_ids)
        except _DAMAGE:
            return source.path
    return first


def _is_repeated(values: pa.Array) -> np.ndarray:
    """Return which values occur more than once."""
    if pc.count_distinct(values).as_py() == len(values):
        return np.zeros(len(values), bool)
    coded = values.dictionary_encode()
    places = np.asarray(coded.indices)
    found: np.ndarray = np.bincount(places, minlength=len(coded.dictionary))[places] > 1
    return found
