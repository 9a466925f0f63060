"""Replacements of data files, made by hand: what a merge would hand to the commit, without a merge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
