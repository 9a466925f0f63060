"""Find all tables below a folder, and rank tables by how badly they are clustered."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tblctl.iceberg import find_iceberg_tables, is_iceberg, refuse_for_native, shown_location
from tblctl.results import SnapshotInfo
from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import TableNotFoundError, problem_of
from tblctl.tableformat.native.log.names import METADATA, SNAPSHOTS
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.location import shown_url
from tblctl.tables import open as open_table

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

    from tblctl.metrics.information import ClusteringInfo
    from tblctl.table import Table

TABLES_AT_ONCE = 4
"""How many tables are measured at once. Each may hold the metadata of a million blocks."""


@dataclass(frozen=True, kw_only=True)
class SurveyedTable:
    """One table of a survey.

    Attributes:
        location: as given or found.
        rows, blocks, bytes: size of the whole table; 0 after an error. None if its writer did not say, and it was not
            measured as a whole (Iceberg).
        info: its figures; None without a cluster key, or after an error.
        error: why the table could not be measured; None if it was.
    """

    location: str
    rows: int | None = 0
    blocks: int | None = 0
    bytes: int | None = 0
    info: ClusteringInfo | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON values."""
        return {
            "location": self.location,
            "error": self.error,
            "rows": self.rows,
            "blocks": self.blocks,
            "bytes": self.bytes,
            "info": self.info and self.info.to_dict(),
        }


def find_tables(
    location: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    catalog_options: Mapping[str, str] | None = None,
    namespace: str | None = None,
) -> list[str]:
    """Return the locations of all tables at or below a folder, sorted. Tables inside of tables are not found.

    For `iceberg://CATALOG` those of the catalog; `namespace` restricts them to one and those below it.

    Costs one listing for each folder outside of tables, and two for each table. The objects in `data` are not listed.

    Raises:
        TableNotFoundError: there is no table.
    """
    if is_iceberg(location):
        return find_iceberg_tables(location, catalog_options=catalog_options, namespace=namespace)
    refuse_for_native(catalog_options=catalog_options, namespace=namespace)
    storage = Storage(location, storage_options)
    root = os.fspath(location)
    found: list[str] = []
    folders = [""]
    while folders:
        below = in_parallel(storage.folders, folders, threads=IO_THREADS)
        inner = dict(zip(folders, below, strict=True))
        candidates = [folder for folder in folders if folder + METADATA in inner[folder]]
        metadata = in_parallel(
            storage.folders, [folder + METADATA for folder in candidates], threads=IO_THREADS
        )
        tables = {
            folder for folder, names in zip(candidates, metadata, strict=True) if folder + SNAPSHOTS in names
        }
        found += [f"{root.rstrip('/')}/{folder[:-1]}" if folder else root for folder in tables]
        folders = [name for folder in folders if folder not in tables for name in inner[folder]]
    if not found:
        msg = f"there is no table at or below {storage.url}"
        raise TableNotFoundError(msg)
    return sorted(found)


def survey(
    locations: Sequence[str],
    *,
    columns: str | Sequence[str] | None = None,
    where: str | BooleanExpression | None = None,
    worst: int = 5,
    storage_options: Mapping[str, Any] | None = None,
    catalog_options: Mapping[str, str] | None = None,
    metadata_cache: str | os.PathLike[str] | None = None,
    refine: bool = False,
    branch: str | None = None,
) -> tuple[SurveyedTable, ...]:
    """Measure tables, worst first.

    The order is:

    1. tables with no block, or less than half of the blocks, in the order of the key
    2. the others, the deepest on average first
    3. tables without a cluster key
    4. tables that could not be measured

    Args:
        locations: locations of the tables; each is measured once.
        columns: as for `Table.info`.
        where: as for `Table.info`.
        worst: as for `Table.info`.
        storage_options: options of the fsspec filesystem.
        catalog_options: properties of the catalog of Iceberg tables.
        metadata_cache: as for `tblctl.open`.
        refine: as for `tblctl.open`.
        branch: of Iceberg tables; those without it cannot be measured. None: main.
    """
    opened = functools.partial(
        open_any,
        storage_options=storage_options,
        catalog_options=catalog_options,
        metadata_cache=metadata_cache,
        refine=refine,
        branch=branch,
    )

    def look(location: str) -> SurveyedTable:
        try:
            table = opened(location)
            version = table.snapshot
            info = (
                table.info(columns, where, worst=worst) if columns is not None or version.cluster_by else None
            )
        except Exception as error:  # noqa: BLE001 (one bad table must not end a survey of hundreds)
            return SurveyedTable(location=shown(location), error=problem_of(error))
        return _measured(shown(location), version, info, whole=where is None)

    found = in_parallel(look, dict.fromkeys(locations), threads=TABLES_AT_ONCE)
    return tuple(sorted(found, key=_badness))


def open_any(
    location: str, *, catalog_options: Mapping[str, str] | None, refine: bool, **opening: Any
) -> Table:
    """Open one of several tables, with arguments of `tblctl.open` for all of them.

    Tables of the native format are opened without options of catalogs and `refine`; a branch is refused for them.
    """
    if is_iceberg(location):
        return open_table(location, catalog_options=catalog_options, refine=refine, **opening)
    return open_table(location, **opening)


def shown(location: str) -> str:
    """Return a location as messages show it: without secrets."""
    return shown_location(location) if is_iceberg(location) else shown_url(location)


def _measured(
    location: str, version: SnapshotInfo, info: ClusteringInfo | None, *, whole: bool
) -> SurveyedTable:
    """Return the figures of a table. Sizes are those of `info` if it is of all blocks: summaries may lack totals."""
    if info is None or not whole:
        return SurveyedTable(
            location=location, rows=version.rows, blocks=version.blocks, bytes=version.bytes, info=info
        )
    return SurveyedTable(
        location=location, rows=info.rows, blocks=info.total_block_count, bytes=info.bytes, info=info
    )


def _badness(table: SurveyedTable) -> tuple[int, float, float]:
    info = table.info
    if info is None:
        return (1 if table.error is None else 2, 0.0, 0.0)
    if info.average_depth is None or info.average_overlaps is None or info.is_mostly_unclustered:
        return (0, -math.inf, -float(info.total_block_count))
    return (0, -info.average_depth, -info.average_overlaps)
