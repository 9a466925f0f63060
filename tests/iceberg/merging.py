"""Merges of Iceberg tables: what is open inside them, and the rows that readers see before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

import tblctl
from tblctl.tableformat.model.schema.field_ids import with_id

from .replacing import data_files, port_of, rows_of


def rows_in(table: pa.Table) -> Counter[str]:
    """Return the rows, in no order. NaN equals NaN, and -0.0 is not 0.0."""
    return Counter(map(repr, table.to_pylist()))


def rows_seen(table: Table) -> Counter[str]:
    """Return the rows that PyIceberg reads, in no order."""
    return rows_in(table.refresh().scan().to_arrow())


def rows_stored(table: Table) -> Counter[str]:
    """Return the rows of the live data files as pyarrow reads them: PyIceberg 0.12 reads null lists as empty ones."""
    names = [field.name for field in table.refresh().schema().fields]
    return rows_in(rows_of(table, data_files(table)).select(names))


def recluster(table: Table, cluster_by: str = "id", **options: Any) -> Any:
    """Merge all files of each partition into one run; return the outcome."""
    return tblctl.from_iceberg(table).recluster(cluster_by=cluster_by, policy="full", **options)


def assert_same_rows(table: Table, cluster_by: str = "id", *, expected: Counter[str] | None = None) -> Any:
    """Merge all files, and require that all of them were merged and no row changed; return the outcome.

    Args:
        table: to merge.
        cluster_by: the cluster key.
        expected: the rows that must be stored in the end; None for what PyIceberg reads before the merge.
    """
    before = paths_of(table)
    seen = rows_seen(table) if expected is None else None
    outcome = recluster(table, cluster_by)
    assert [group.error for group in outcome.groups if group.error] == []
    assert outcome.committed_groups, "nothing was merged"
    assert not before & paths_of(table)
    if expected is None:
        assert rows_seen(table) == seen
    else:
        assert rows_stored(table) == expected
    return outcome


def assert_refused(table: Table, *texts: str, cluster_by: str = "id") -> None:
    """Try to merge all files, and require that this fails, says some texts, and changes nothing."""
    snapshot = table.refresh().current_snapshot()
    outcome = recluster(table, cluster_by)
    assert outcome.failed_groups
    assert not outcome.committed_groups
    for text in texts:
        assert text in str(outcome.groups[0].error)
    assert table.refresh().current_snapshot() == snapshot


def paths_of(table: Table) -> set[str]:
    return {str(file.file_path) for file in data_files(table)}


def opened(table: Table, paths: Sequence[str] | None = None, cluster_by: str = "id") -> tuple[Any, list[Any]]:
    """Return what opens files of the newest version, and some of its files without their deleted rows."""
    port = port_of(table, cluster_by=cluster_by)
    version = port.newest()
    blocks = version.blocks(sorted(paths_of(table)) if paths is None else paths)
    io = port.block_io(version)
    return io, list(io.live(list(blocks.values())))


def numbered(rows: pa.Table, ids: Iterable[int]) -> pa.Table:
    """Return rows whose columns have field ids."""
    fields = [with_id(field, id_) for field, id_ in zip(rows.schema, ids, strict=True)]
    return rows.cast(pa.schema(fields))
