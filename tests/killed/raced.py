"""Tables for races of processes that are killed: native ones, and Iceberg tables that PyIceberg writes to."""

from __future__ import annotations

import random
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.table import TableProperties
from sqlalchemy.exc import SQLAlchemyError
from tables import assert_sound, named_objects, objects_of

import tblctl
from tblctl.errors import CommitOutcomeUnknownError, ConflictError, StorageError, TblctlError
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.iceberg.location import parse_location
from tblctl.tableformat.iceberg.port import IcebergPort
from tblctl.tableformat.storage import Storage
from tests.iceberg.leftovers import named_files, own_files

from .model import KEYS
from .worker import SCHEMA, rows_of

POLICIES = ("levels", "levels", "full", "runs", "depth")
PATIENCE = 50
"""How often a read, or a change that another writer's commit overtook, is tried."""


@dataclass(frozen=True, kw_only=True)
class NativeRaced:
    """A table of tblctl's own format."""

    url: str
    storage_options: dict[str, Any]

    def create(self) -> None:
        options = {"block_rows": 150, "recluster.record": "on"}
        tblctl.create(
            self.url, SCHEMA, cluster_by="key", options=options, storage_options=self.storage_options
        )

    def open(self, **more: Any) -> tblctl.Table:
        return tblctl.open(self.url, storage_options=self.storage_options, **more)

    def commit(self, owner: int, change: Mapping[str, Any]) -> int:
        table = self.open()
        where = f"owner = {owner} AND key >= {change['low']} AND key < {change['high']}"
        match change["kind"]:
            case "append" if change["value"] % 4 == 0:
                return self._import(rows_of(owner, change), f"{owner}/{change['first']}")
            case "append":
                found = table.append(rows_of(owner, change))
            case "overwrite":
                found = table.overwrite(rows_of(owner, change), where=where)
            case "delete":
                found = table.delete(where)
            case _:
                found = table.update({"value": change["value"]}, where)
        return found.attempts

    def _import(self, rows: pa.Table, name: str) -> int:
        """Import a file of rows, twice: the second time takes nothing."""
        folder, sink = f"{self.url}-files/{name}", pa.BufferOutputStream()
        pq.write_table(rows, sink)
        Storage(folder, self.storage_options).write("rows.parquet", sink.getvalue())
        how = {"storage_options": self.storage_options}
        assert tblctl.import_parquet(folder, self.url, **how).rows_added == rows.num_rows
        assert patiently(lambda: tblctl.import_parquet(folder, self.url, **how)).files_known == 1
        return 1

    def rows(self, owner: int | None) -> pa.Table:
        where = None if owner is None else f"owner = {owner}"
        return patiently(lambda: self.open().scan(where).to_arrow())

    def read_twice(self) -> tuple[pa.Table, pa.Table]:
        pinned = self.open()
        pinned = self.open(as_of=pinned.snapshot.sequence)
        found = pinned.scan().to_arrow(), pinned.scan().to_arrow()
        pinned.scan(f"key < {KEYS // 10}").to_arrow()
        pinned.close()  # writes the log of these queries, for policy workload
        return found

    def recluster(self, chance: random.Random) -> Any:
        table, policy = self.open(), chance.choice([*POLICIES, "workload"])
        if chance.random() < 0.1 and table.schedule(policy).id:
            return table.recluster_pending()
        return table.recluster(policy=policy, commit_every=chance.choice([None, 1]))

    def collect(self, chance: random.Random) -> None:
        """Collect garbage, and give up plans, whose processes may have been killed."""
        table = self.open()
        for plan in table.pending_plans():
            table.cancel_plan(plan.id)
        table.gc(keep=chance.choice([1, 20]), older_than=chance.choice([0, 2, 10]))

    def depth(self) -> float:
        return self.open().info().average_depth

    def judge(self) -> tuple[int, int]:
        """Recluster to the end, collect garbage, and assert that nothing else is there; return rows and blocks."""
        table = self.open()
        assert_sound(table)
        for plan in table.pending_plans():
            table.cancel_plan(plan.id)
        table.recluster(final=True)
        table.gc(keep=1, older_than=0)
        assert set(objects_of(self.url, self.storage_options)) - {"metadata/latest"} == named_objects(table)
        assert_sound(table)
        return table.snapshot.rows, table.snapshot.blocks


NAME, TABLE = "lake", "db.killed"


@dataclass(frozen=True, kw_only=True)
class IcebergRaced:
    """An Iceberg table in a SQL catalog, which PyIceberg writes to, and tblctl reclusters."""

    options: dict[str, str]

    def create(self) -> None:
        catalog = load_catalog(NAME, **self.options)
        catalog.create_namespace("db")
        properties = {"tblctl.cluster-by": "key", "write.target-file-size-bytes": "6000"}
        properties["commit.manifest.min-count-to-merge"] = "10"
        for operation in ("delete", "update"):  # of Spark
            properties[f"write.{operation}.mode"] = "merge-on-read"
            properties[f"write.{operation}.isolation-level"] = "snapshot"
        catalog.create_table(TABLE, SCHEMA, properties=properties)

    def load(self) -> Any:
        return patiently(self._load)

    def _load(self) -> Any:
        with errors_of_pyiceberg():
            return load_catalog(NAME, **self.options).load_table(TABLE)

    def open(self, **environment: Any) -> tblctl.IcebergTable:
        place = parse_location(f"iceberg://{NAME}/{TABLE}")
        return tblctl.IcebergTable(IcebergPort.of_catalog(place, self.options, Environment(**environment)))

    def commit(self, owner: int, change: Mapping[str, Any]) -> int:
        for attempt in range(1, PATIENCE):
            table = self.load()
            try:
                with errors_of_pyiceberg():
                    _write(table, owner, change)
            except ConflictError:
                time.sleep(0.02 * random.random() * attempt)
                continue
            return attempt
        raise ConflictError("other writers were always faster")

    def rows(self, owner: int | None) -> pa.Table:
        return patiently(lambda: self._rows(None if owner is None else EqualTo("owner", owner)))

    def _rows(self, where: Any = None, snapshot: int | None = None) -> pa.Table:
        more = {} if where is None else {"row_filter": where}
        with errors_of_pyiceberg():
            return self._load().scan(snapshot_id=snapshot, **more).to_arrow()

    def read_twice(self) -> tuple[pa.Table, pa.Table]:
        snapshot = self.load().metadata.current_snapshot_id
        if snapshot is None:
            return SCHEMA.empty_table(), SCHEMA.empty_table()
        return self._rows(snapshot=snapshot), self._rows(snapshot=snapshot)

    def recluster(self, chance: random.Random) -> Any:
        how = {"policy": chance.choice(POLICIES), "commit_every": chance.choice([None, 1])}
        return self.open().recluster(**how)

    def collect(self, chance: random.Random) -> None:
        """Expire snapshots; what reclusters left behind is too young to be deleted, by Iceberg's rules."""
        self.open().gc(keep=chance.choice([3, 20]), expire_older_than=chance.choice([2, 10]))

    def depth(self) -> float:
        return self.open().info().average_depth

    def judge(self) -> tuple[int, int]:
        """Recluster to the end, collect garbage as if days later, and assert that nothing of tblctl's is left over."""
        table = self.open()
        report = table.check()
        assert report.ok, report.problems
        table.recluster(final=True)
        later = self.open(now=lambda: time.time() + 2 * 86_400)
        later.gc(keep=1, expire_older_than=0)
        snapshot = table.snapshot
        named = {path.rpartition("/")[2] for path in named_files(self.load())}
        there = {name.rpartition("/")[2] for name in self.files()}
        assert not (missing := named - there), missing
        assert not (left := own_files(self.load(), there) - named), left
        assert table.check().ok
        return snapshot.rows, snapshot.blocks

    def files(self) -> list[str]:
        """Return the names of all objects in the warehouse."""
        s3 = {"key": "s3.access-key-id", "secret": "s3.secret-access-key", "endpoint_url": "s3.endpoint"}
        options = {name: self.options[key] for name, key in s3.items() if key in self.options}
        return [item.name for item in Storage(self.options["warehouse"], options).list()]


def _write(table: Any, owner: int, change: Mapping[str, Any]) -> None:
    """Commit a change once, on the version that was loaded: PyIceberg's own retries could bring back deleted rows."""
    TableProperties.COMMIT_NUM_RETRIES_DEFAULT = 0
    warnings.filterwarnings("ignore", message="Merge on read is not yet supported")
    own = EqualTo("owner", owner)
    where = And(own, GreaterThanOrEqual("key", change["low"]), LessThan("key", change["high"]))
    match change["kind"]:
        case "append":
            table.append(rows_of(owner, change))
        case "overwrite":
            table.overwrite(rows_of(owner, change), overwrite_filter=where)
        case "delete":
            table.delete(where)
        case _:
            rows = table.scan(row_filter=where).to_arrow().cast(SCHEMA)
            value = pa.repeat(pa.scalar(change["value"], pa.int64()), rows.num_rows)
            place = SCHEMA.get_field_index("value")
            table.overwrite(rows.set_column(place, "value", value), overwrite_filter=where)


@contextmanager
def errors_of_pyiceberg() -> Iterator[None]:
    """Turn what PyIceberg, and the database and storage below it, raise into tblctl's errors."""
    try:
        yield
    except (CommitFailedException, ValidationException) as error:
        raise ConflictError(str(error)) from error
    except SQLAlchemyError as error:  # also of a commit that the database may have carried out
        raise CommitOutcomeUnknownError(str(error)) from error
    except OSError as error:  # a snapshot that expired meanwhile
        raise StorageError(str(error)) from error


def patiently(read: Callable[[], Any]) -> Any:
    """Read, again if what was being read expired meanwhile."""
    for left in reversed(range(PATIENCE)):
        try:
            return read()
        except TblctlError:
            if not left:
                raise
            time.sleep(0.02)
    raise AssertionError


KINDS = ("native on disk", "native on MinIO", "Iceberg on disk", "Iceberg on MinIO")


def made(kind: str, folder: Path, server: Callable[[str], Any]) -> NativeRaced | IcebergRaced:
    """Create a table of a kind. The catalog of Iceberg tables is in SQLite, or if they are on MinIO in PostgreSQL.

    Args:
        kind: one of `KINDS`.
        folder: of the test.
        server: returns a running server by its name, minio or postgres.
    """
    place = server("minio").location() if kind.endswith("MinIO") else None
    if kind.startswith("native"):
        where = {"url": str(folder / "table"), "storage_options": {}}
        if place:
            where = {"url": place.url, "storage_options": place.storage_options}
        table: Any = NativeRaced(**where)
    else:
        options = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/tables",
            "schema_version": "v1",  # Spark reads no other
        }
        if place:
            postgres, minio = server("postgres"), server("minio")
            options |= {
                "uri": postgres.uri(postgres.create_database()),
                "warehouse": f"s3://{minio.bucket}/{uuid.uuid4().hex}",
                **minio.catalog_options,
            }
        table = IcebergRaced(options=options)
    table.create()
    return table
