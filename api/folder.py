"""Plain Parquet files that no table format describes: measured as tables are, and never written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tblctl.clustered import ClusteredTable
from tblctl.tableformat.errors import InvalidKeyError, InvalidOptionError

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

    from tblctl.advise.gain import Gain
    from tblctl.as_of import AsOf
    from tblctl.metrics.information import ClusteringInfo
    from tblctl.pictures.file import Drawing
    from tblctl.tableformat.folder.port import FolderPort
    from tblctl.tableformat.folder.version import FolderVersion
    from tblctl.tableformat.progress import Progress

    Where = str | BooleanExpression | None

__all__ = ["NotInFolderError", "ParquetFolder", "open_folder"]


class NotInFolderError(InvalidOptionError, AttributeError):
    """An operation that plain Parquet files do not have, since no table format keeps track of them."""


class _Refused:
    """An attribute in the place of a method that plain files do not have."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: ParquetFolder | None, owner: type) -> Any:
        if instance is None:
            return self
        raise instance._not_here(self._name)  # noqa: SLF001 (of the class that it is made for)


class ParquetFolder(ClusteredTable):
    """A folder, a glob or a file of plain Parquet, as it was when it was opened: `info`, `suggest`, `picture`.

    Nothing is written to it. Bounds come from the statistics in the files' footers; no row is read.
    """

    _kind = "a folder of plain Parquet files"

    plan: Any = _Refused()
    recluster: Any = _Refused()
    estimate: Any = _Refused()
    gc: Any = _Refused()
    check: Any = _Refused()
    compare: Any = _Refused()
    schedule: Any = _Refused()
    pending_plans: Any = _Refused()
    recluster_pending: Any = _Refused()
    cancel_plan: Any = _Refused()
    workload: Any = _Refused()
    import_workload: Any = _Refused()
    savings: Any = _Refused()
    choose_key: Any = _Refused()

    def __getattr__(self, name: str) -> Any:
        """Explain that an operation of `Table` is not there."""
        from tblctl.table import Table

        if name.startswith("_") or not hasattr(Table, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise self._not_here(name)

    @property
    def folder_columns(self) -> tuple[str, ...]:
        """The columns that only folders' names give, such as year in `year=2024/a.parquet`."""
        version: FolderVersion = self._version()  # type: ignore[assignment]
        return version.folder_columns

    def info(
        self,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
        *,
        worst: int = 5,
        boxes: bool = False,
    ) -> ClusteringInfo:
        """Return how deep the files lie by some columns.

        Args:
            columns: the terms to measure by; needed, since plain files have no cluster key.
            where: as for `ClusteredTable.info`.
            worst: as for `ClusteredTable.info`.
            boxes: as for `ClusteredTable.info`.

        Raises:
            InvalidKeyError: no `columns`, or a term is not valid.
            InvalidDataError: files are empty, cut short, encrypted or no Parquet.
            SchemaMismatchError: files have different schemas.
        """
        self._require_columns(columns)
        return super().info(columns, where, worst=worst, boxes=boxes)

    def gain(self, columns: str | Sequence[str]) -> Gain:
        """Return what clustering the files by some columns would bring: files read now and then, bytes to rewrite.

        Raises:
            InvalidKeyError: a term is not valid.
        """
        from tblctl.advise.gain import gain
        from tblctl.maintain.measure import sort_to_measure

        return self._read(lambda version: gain(version, sort_to_measure(version, columns)))

    def load(self, *, progress: Progress | None = None) -> None:
        """Read what other calls need of all files, unless that was done: their footers.

        Args:
            progress: called with (done, total, "files").

        Raises:
            InvalidDataError, SchemaMismatchError: as for `info`.
        """
        port: FolderPort = self._port  # type: ignore[assignment]
        port.progress = progress
        try:
            _ = port.newest().measured
        finally:
            port.progress = None

    def first_steps(self, columns: str | Sequence[str]) -> str:
        """Return a shell command that makes a clustered table `NEW` of these rows.

        Args:
            columns: the key's terms.
        """
        terms = columns if isinstance(columns, str) else ", ".join(columns)
        hive = "--hive " if self.folder_columns or "=" in self.location else ""
        return f"tblctl import {shlex.quote(self.location)} NEW {hive}--cluster-by {shlex.quote(terms)}"

    def picture(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
        compare: tuple[AsOf, AsOf] | None = None,
    ) -> Drawing:
        """Draw how deep the files lie by some columns. Return the drawing, which a notebook shows.

        Args:
            path: as for `ClusteredTable.picture`.
            columns: the terms; needed.
            where: as for `ClusteredTable.picture`.
            compare: refused: plain files have no versions.

        Raises:
            InvalidKeyError: no `columns`, or a term is not valid.
            InvalidOptionError: as for `ClusteredTable.picture`.
        """
        self._require_columns(columns)
        if compare is not None:
            raise self._not_here("compare")
        return super().picture(path, columns=columns, where=where)

    def _not_here(self, what: str) -> NotInFolderError:
        """Return the error that these files do not have an operation."""
        return NotInFolderError(
            f"{what} is for tables; {self.location} is {self._kind}, which tblctl only measures: `tblctl "
            f"info`, `depth` and `suggest`. This makes a table of its rows: `{self.first_steps('..')}`"
        )

    def _require_columns(self, columns: str | Sequence[str] | None) -> None:
        if columns is None:
            names = self.schema.names
            few = ", ".join(names[:8]) + (", .." if len(names) > 8 else "")  # noqa: PLR2004 (fits a line)
            msg = (
                f"{self.location} is {self._kind}, without a cluster key to measure by: name "
                f"columns (`--columns a,b`) of {few}; `tblctl suggest` ranks them"
            )
            raise InvalidKeyError(msg)


def open_folder(
    location: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    as_of: AsOf = None,
    metadata_cache: str | os.PathLike[str] | None = None,
) -> ParquetFolder:
    """Open a folder, a glob or a file of plain Parquet. Its files are listed at once, their footers read when needed.

    Raises:
        TableNotFoundError: there are no such files.
        UnsupportedFormatError: the folder is, holds, or is inside of a table of some format.
        InvalidOptionError: `as_of` is given.
    """
    from tblctl.tableformat.folder.port import FolderPort
    from tblctl.tableformat.storage.file_cache import FileCache

    cache = None if metadata_cache is None else FileCache(Path(metadata_cache))
    port = FolderPort.of(location, storage_options, cache=cache)
    port.newest()
    if as_of is not None:
        msg = f"{port.location} is a folder of plain Parquet files: it has no versions that as_of could name"
        raise InvalidOptionError(msg)
    return ParquetFolder(port)
