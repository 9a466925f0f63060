"""Whole tables, by location: create, open, find, drop."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tblctl.as_of import AsOf, version_as_of
from tblctl.columns import columns_of
from tblctl.delta import holds_delta, is_delta, open_delta
from tblctl.folder import open_folder
from tblctl.iceberg import is_iceberg, open_iceberg, refuse_for_native, refuse_iceberg
from tblctl.table import Table
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.errors import TableNotFoundError
from tblctl.tableformat.model.options import POLICY, record_rate
from tblctl.tableformat.native.port import NativePort
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from tblctl.tableformat.model.scan_report import ScanReport
    from tblctl.tableformat.native.write.input_rows import InputRows


def create(
    location: str | os.PathLike[str],
    schema: pa.Schema | str | Mapping[str, Any] | Any,
    *,
    cluster_by: str | Sequence[str] = (),
    sample: Any = None,
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """Create an empty table.

    Args:
        location: a path or an fsspec URL; nothing may be there.
        schema: text such as "a: int64 not null, b: string"; a pyarrow schema; a dict of names and types, such as
            {"a": "int64"}; or rows in memory (pyarrow, pandas, Polars), whose columns the table gets. They are not
            appended: `table.append(rows)` does that.
        cluster_by: terms of the cluster key, such as "l_shipdate" or "bucket(16, id) desc nulls first"; or a curve
            through 2 to 4 columns: "hilbert(ts, customer)", "zorder(ts, customer, country)"; or a tree made from a file
            of conditions: "qdtree(file:cuts.sql, min_rows=100000)".
        sample: rows like those to come, as `Table.append` takes them, though not a Spark DataFrame. A curve or a tree
            is made from them; other keys need none. They are not appended.
        options: see `tblctl.OPTION_DOCS`. The log warns of a `recluster.mode` that has no effect without a key.
        storage_options: options of the fsspec filesystem, such as `key`, `secret`, `endpoint_url`.

    Raises:
        TableExistsError: the location is not empty.
        InvalidSchemaError, InvalidKeyError, InvalidOptionError: each lists every problem.
    """
    refuse_iceberg(location, "create")
    columns = columns_of(schema)
    native = NativeTable(Storage(location, storage_options), SYSTEM)

    def sampled() -> InputRows | None:
        if sample is None:
            return None
        from tblctl.tableformat.native.write.input_rows import open_source

        return open_source(sample, native.storage.elsewhere)

    if POLICY in (options or {}):
        from tblctl.policies import require_policy_of

        require_policy_of(options or {})
    made = native.create(columns, cluster_by, options or {}, sampled)
    if options:
        from tblctl.maintain.after_write import warn_without_key

        warn_without_key(native.storage.url, made.options, has_key=made.sort is not None)
    return Table(native)


def open(
    location: str | os.PathLike[str],
    *,
    as_of: AsOf = None,
    storage_options: Mapping[str, Any] | None = None,
    on_scan: Callable[[ScanReport], None] | None = None,
    catalog_options: Mapping[str, str] | None = None,
    branch: str | None = None,
    metadata_cache: str | os.PathLike[str] | None = None,
    refine: bool = False,
    record: str | None = None,
) -> Table:
    """Open a table.

    Args:
        location: a path or an fsspec URL; or `iceberg://CATALOG/NAMESPACE.TABLE` for an Iceberg table, which is an
            `IcebergTable` then: it has the methods of `ClusteredTable`, but those of `Table` that write rows are its
            engines'. A folder, a glob or a file of plain Parquet is a `ParquetFolder`, which is only measured; so is a
            `DeltaTable`: `delta:PATH`, or the path of a folder with its log.
        as_of: a sequence, a tag, or a time (datetime or ISO text; UTC without a zone) for the table as it was, read
            only. None for the live table: every call sees the newest snapshot.
        storage_options: options of the fsspec filesystem.
        on_scan: called with a `ScanReport` after every scan. Reads through `to_dataset` are not reported, since other
            engines do them.
        catalog_options: properties of the catalog, beside PyIceberg's own configuration; for Iceberg only.
        branch: the branch of the Iceberg table; None for main.
        metadata_cache: a folder of this machine to keep manifests of remote storage in, which never change (Iceberg),
            and what footers of plain Parquet files say. None: they are kept in memory.
        refine: also read the footers of data files whose Iceberg manifest has no bounds of a column, or inexact ones.
        record: off, on, or sample:0.1: whether this handle's scans are recorded, instead of what the table's option
            `recluster.record` says. Only for tables of tblctl's own format.

    Raises:
        TableNotFoundError: there is no table at the location, and no Parquet file.
        UnsupportedFormatError: the folder is a table of Iceberg or Hudi, or a Delta table with features that are not
            read.
        SnapshotNotFoundError: `as_of` names no readable snapshot.
    """
    record_rate("off" if record is None else record)
    if is_iceberg(location):
        table: Any = open_iceberg(
            location,
            catalog_options=catalog_options,
            branch="main" if branch is None else branch,
            as_of=as_of,
            metadata_cache=metadata_cache,
            refine=refine,
        )
        return table  # type: ignore[no-any-return]
    refuse_for_native(catalog_options=catalog_options, branch=branch, refine=refine)
    if is_delta(location):
        return _measured(location, storage_options, as_of, metadata_cache)
    native = NativeTable(Storage(location, storage_options), SYSTEM)
    port = NativePort(native)
    try:
        newest = port.newest()
    except TableNotFoundError:
        return _measured(location, storage_options, as_of, metadata_cache)
    pinned = None if as_of is None else version_as_of(port, as_of, newest).snapshot
    return Table(native, pinned=pinned, on_scan=on_scan, record=record)


def _measured(
    location: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
    as_of: AsOf,
    metadata_cache: str | os.PathLike[str] | None,
) -> Table:
    """Return what is at a location that is no table of tblctl: a Delta table, or plain files."""
    found: Any
    if is_delta(location) or holds_delta(location, storage_options):
        found = open_delta(location, storage_options=storage_options, as_of=as_of)
    else:
        found = open_folder(
            location, storage_options=storage_options, as_of=as_of, metadata_cache=metadata_cache
        )
    return found  # type: ignore[no-any-return]


def exists(location: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return whether there is a table at the location."""
    refuse_iceberg(location, "exists")
    return NativeTable(Storage(location, storage_options), SYSTEM).exists()


def drop(
    location: str | os.PathLike[str],
    *,
    if_exists: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> bool:
    """Delete a table and everything below its location. Return whether there was one.

    Raises:
        TableNotFoundError: there is none, unless `if_exists`.
    """
    refuse_iceberg(location, "drop")
    try:
        NativeTable(Storage(location, storage_options), SYSTEM).drop()
    except TableNotFoundError:
        if if_exists:
            return False
        raise
    return True


def read_schema(path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> pa.Schema:
    """Return the schema of a Parquet or Arrow IPC file, for a table like it.

    Raises:
        InvalidDataError: the file is missing, or in neither format.
    """
    from tblctl.tableformat.native.write.input_rows import open_source

    return open_source(os.fspath(path), lambda url: Storage(url, storage_options)).schema
