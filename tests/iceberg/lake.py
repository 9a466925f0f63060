"""Iceberg tables for tests: a catalog in an SQLite file, and tables in the folder beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField

import tblctl

NAME = "lake"


class Lake:
    """A catalog named `lake` with the namespace `db`."""

    def __init__(self, folder: Path, **more: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.options = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": str(folder / "tables"),
        } | more
        self.catalog: Catalog = load_catalog(NAME, **self.options)
        self.catalog.create_namespace_if_not_exists("db")

    def create(self, name: str, schema: Schema | pa.Schema, **more: Any) -> Table:
        """Create a table of PyIceberg's."""
        return self.catalog.create_table(f"db.{name}", schema, **more)

    def load(self, name: str) -> Table:
        return self.catalog.load_table(f"db.{name}")

    def open(self, name: str, **more: Any) -> Any:
        """Open a table with tblctl, by its location."""
        return tblctl.open(f"iceberg://{NAME}/db.{name}", catalog_options=self.options, **more)


def fields(**types: Any) -> Schema:
    """Return a schema of optional columns."""
    return Schema(
        *(NestedField(place, name, kind) for place, (name, kind) in enumerate(types.items(), start=1))
    )


def append(table: Table, **columns: Any) -> None:
    """Append rows: one commit, one file for each partition."""
    schema = table.schema().as_arrow()
    table.append(pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema))


def version_of(table: Table, **more: Any) -> Any:
    """Return the newest version of a table, behind the port."""
    return tblctl.from_iceberg(table, **more)._port.newest()


def rewrite_metadata(lake: Lake, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the JSON of a table's metadata where it lies: what another writer, or a fault, could have left there."""
    path = Path(lake.load(name).metadata_location.removeprefix("file://"))
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def with_snapshots(metadata: TableMetadata, count: int) -> dict[str, Any]:
    """Return metadata with `count` more snapshots, each with the files of the newest, an hour after the one before."""
    found: dict[str, Any] = json.loads(metadata.model_dump_json(by_alias=True))
    last = found["snapshots"][-1]
    summary: Mapping[str, str] = last["summary"]
    for number in range(1, count + 1):
        snapshot = last | {
            "snapshot-id": 10_000_000 + number,
            "parent-snapshot-id": found["snapshots"][-1]["snapshot-id"],
            "sequence-number": last["sequence-number"] + number,
            "timestamp-ms": last["timestamp-ms"] + number * 3_600_000,
            "summary": dict(summary),
        }
        found["snapshots"].append(snapshot)
        found["snapshot-log"].append(
            {"snapshot-id": snapshot["snapshot-id"], "timestamp-ms": snapshot["timestamp-ms"]}
        )
    newest = found["snapshots"][-1]
    found["last-sequence-number"] = newest["sequence-number"]
    found["last-updated-ms"] = newest["timestamp-ms"]
    found["current-snapshot-id"] = newest["snapshot-id"]
    found["refs"]["main"]["snapshot-id"] = newest["snapshot-id"]
    return found
