"""Replacements of data files, made by hand: what a merge would hand to the commit, without a merge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

import tblctl
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.iceberg.own_files import KEYS, OwnName, encode_keys
from tblctl.tableformat.iceberg.record import DataFileRecord
from tblctl.tableformat.port import Replacement
from tests.iceberg.position_deletes import folder_of


def rows_of(table: Table, files: Sequence[Any]) -> pa.Table:
    """Return the stored rows of some data files."""
    found = [pq.read_table(file.file_path.removeprefix("file://")) for file in files]
    return pa.concat_tables(found)


def sorted_ids(table: Table) -> list[Any]:
    """Return the values of the column `id` that readers see, sorted."""
    found: list[Any] = sorted(table.refresh().scan().to_arrow()["id"].to_pylist())
    return found


def data_files(table: Table) -> list[Any]:
    """Return the live data files, by path."""
    found = [task.file for task in table.refresh().scan().plan_files()]
    return sorted(found, key=lambda file: str(file.file_path))


def record_of(version: Any, rows: pa.Table, *, like: str, level: int = 1) -> DataFileRecord:
    """Write rows, sorted by `id`, as a file of tblctl's in the partition of another, and return its record."""
    table_schema = version.metadata.schema()
    schema = schema_to_pyarrow(table_schema)
    rows = pa.table([rows[name] for name in schema.names], schema=schema).sort_by("id")
    block = version.blocks([like])[like]
    code = version.partitions.texts.index(block.partition)
    sort = version.sort
    name = OwnName(table=version.metadata.table_uuid.hex, level=level, sort_id=sort.id, run_id="ab")
    path = f"{version.data_folder}/{name.with_id(SYSTEM.new_id())}"
    ends = [rows["id"][place] for place in (0, rows.num_rows - 1)]
    made: dict[str, Any] = {
        "path": path,
        "row_count": rows.num_rows,
        "uncompressed_bytes": 1,
        "decoded_bytes": rows.nbytes,
        "schema_id": 0,
        "level": level,
        "run_id": "ab",
        "cluster_key_id": sort.id,
        "key_min": (ends[0],),
        "key_max": (ends[1],),
        "same_key_rows": 1,
        "partition": block.partition,
        "spec_id": version.partitions.spec_ids[code],
        "partition_values": version.partitions.values[code],
        "value_counts": dict.fromkeys(range(1, len(schema) + 1), rows.num_rows),
        "null_counts": {place + 1: rows.column(place).null_count for place in range(len(schema))},
    }
    local = path.removeprefix("file://")
    keys = encode_keys(DataFileRecord(size_bytes=0, **made))
    pq.write_table(rows.replace_schema_metadata({KEYS: keys}), local)
    return DataFileRecord(size_bytes=Path(local).stat().st_size, **made)


def replacement_of(version: Any, files: Sequence[Any], *, without: Sequence[int] = ()) -> Replacement:
    """Return the replacement of some files of one partition by one; without the rows that have some ids."""
    rows = rows_of(version, files)
    if without:
        rows = rows.filter(pc.invert(pc.is_in(rows["id"], pa.array(without, rows["id"].type))))
    added = (record_of(version, rows, like=files[0].file_path),) if rows.num_rows else ()
    return Replacement(
        removed=frozenset(str(file.file_path) for file in files),
        added=added,
        detail={"recluster": {"policy": "test"}},
    )


def port_of(table: Table, *, cluster_by: str | None = "id", **more: Any) -> Any:
    """Return the port of a table, by a cluster key."""
    port = tblctl.from_iceberg(table, **more)._port
    return port if cluster_by is None else port.clustered_by(cluster_by)  # type: ignore[attr-defined]


def ids_of(files: list[Any]) -> list[list[int]]:
    """Return the stored values of the column `id` of data files."""
    return [pq.read_table(file.file_path.removeprefix("file://"))["id"].to_pylist() for file in files]


def ours(table: Table) -> set[str]:
    """Return the names of metadata files that tblctl wrote."""
    return {path.name for path in (folder_of(table) / "metadata").glob("tblctl-*")}


class Meanwhile:
    """Makes a table's catalog do something at its first commits: fail, or first let others commit.

    Args:
        table: of the catalog.
        acts: called with the real commit, one after the other; later commits go through.
    """

    def __init__(self, table: Table, *acts: Callable[[Callable[[], Any]], Any]) -> None:
        self.calls = 0
        self._real = type(table.catalog).commit_table
        self._catalog = table.catalog
        self._acts = list(acts)

    def __enter__(self) -> Self:
        def commit_table(table: Table, requirements: Any, updates: Any) -> Any:
            self.calls += 1
            act = self._acts.pop(0) if self._acts else lambda real: real()
            hidden, self._acts = self._acts, []
            try:
                return act(lambda: self._real(self._catalog, table, requirements, updates))
            finally:
                self._acts = hidden

        self._catalog.commit_table = commit_table  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        del self._catalog.commit_table


def raising(error: Exception, *, landed: bool = False) -> Callable[[Callable[[], Any]], Any]:
    def act(real: Callable[[], Any]) -> Any:
        if landed:
            real()
        raise error

    return act


def after(change: Callable[[], Any]) -> Callable[[Callable[[], Any]], Any]:
    def act(real: Callable[[], Any]) -> Any:
        change()
        return real()

    return act
