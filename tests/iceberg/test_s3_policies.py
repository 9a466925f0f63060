"""The policies of docs/s3-policies for an Iceberg table on MinIO: who reads, appends, reclusters and collects garbage.

The catalog is a database that all may write. A refused operation changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from s3_users import ROLES, Users
from servers import S3Server
from tables import objects_of

import tblctl
from tblctl.errors import AccessDeniedError

TABLE, OTHER = "db.t", "db.t2"
IDS = sorted([*range(20), *range(5, 25)])


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": range(first, first + count)})


class Tenant:
    """A table of two overlapping files, another one beside it, and a user of each role for the first."""

    def __init__(self, folder: Path, minio: S3Server) -> None:
        self._minio, self._folder = minio, folder
        self._warehouse = f"s3://{minio.bucket}/{uuid.uuid4().hex}"
        catalog = load_catalog("lake", **self.options())
        catalog.create_namespace("db")
        for name in (TABLE, OTHER):
            table = catalog.create_table(name, rows(0, 1).schema, properties={"tblctl.cluster-by": "id"})
            table.append(rows(0, 20))
            table.append(rows(5, 20))
            if name == TABLE:
                self.url = table.location()
        self.users = Users(minio, self.url.removeprefix(f"s3://{minio.bucket}/"))

    def options(self, role: str | None = None) -> dict[str, str]:
        key, secret = self.users.credentials(role) if role else (self._minio.key, self._minio.secret)
        return {
            "type": "sql",
            "uri": f"sqlite:///{self._folder}/catalog.db",
            "warehouse": self._warehouse,
            "s3.endpoint": self._minio.endpoint_url,
            "s3.access-key-id": key,
            "s3.secret-access-key": secret,
            "s3.region": "us-east-1",
        }

    def open(self, role: str | None = None, name: str = TABLE) -> tblctl.IcebergTable:
        return tblctl.open(f"iceberg://lake/{name}", catalog_options=self.options(role))

    def by_pyiceberg(self, role: str | None = None) -> Table:
        return load_catalog("lake", **self.options(role)).load_table(TABLE)

    def ids(self) -> list[int]:
        return sorted(self.by_pyiceberg().scan().to_arrow()["id"].to_pylist())

    def objects(self) -> dict[str, bytes]:
        return objects_of(self.url, self._minio.storage_options)


@pytest.fixture
def tenant(tmp_path: Path, minio: S3Server) -> Iterator[Tenant]:
    made = Tenant(tmp_path, minio)
    yield made
    made.users.end()


READS: dict[str, Callable[[tblctl.IcebergTable], object]] = {
    "info": lambda table: table.info(),
    "plan": lambda table: table.plan(policy="full"),
    "history": lambda table: (table.history(), table.depth_history()),
    "check": lambda table: table.check(),
    "suggest": lambda table: table.suggest(),
    "delete_files": lambda table: table.delete_files(),
    "gc, dry run": lambda table: table.gc(keep=1, expire_older_than=0, dry_run=True),
}
UPKEEP: dict[str, Callable[[tblctl.IcebergTable], object]] = {
    "recluster": lambda table: table.recluster(policy="full"),
    "gc": lambda table: table.gc(keep=1, expire_older_than=0),
}


def test_every_role_reads_its_table_and_no_other(tenant: Tenant) -> None:
    before = tenant.objects()
    for role in ROLES:
        for read in READS.values():
            read(tenant.open(role))
        with pytest.raises(AccessDeniedError):
            tenant.open(role, OTHER).info()
    assert tenant.objects() == before


def test_a_reader_is_refused_before_anything_is_written(tenant: Tenant) -> None:
    before = tenant.objects()
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        tenant.by_pyiceberg("reader").append(rows(100, 1))
    for name, act in UPKEEP.items():
        with pytest.raises(AccessDeniedError, match=r"denied.*nothing was changed") as caught:
            act(tenant.open("reader"))
        assert "iceberg://lake/db.t" in str(caught.value), name
        assert "password-of" not in str(caught.value), name
        assert len(tenant.by_pyiceberg().snapshots()) == 2, name
        assert tenant.objects() == before, name


def test_a_writer_appends_with_pyiceberg_and_maintains_nothing(tenant: Tenant) -> None:
    """Without the permission to delete nothing is merged, and nothing expires: all that is left is a probe."""
    tenant.by_pyiceberg("writer").append(rows(100, 1))
    before = tenant.objects()
    for name, act in UPKEEP.items():
        with pytest.raises(AccessDeniedError, match="nothing was changed"):
            act(tenant.open("writer"))
        assert len(tenant.by_pyiceberg().snapshots()) == 3, name
        left = tenant.objects().keys() - before.keys()
        assert all(path.endswith("-probe") for path in left), name
    assert before.items() <= tenant.objects().items()
    assert tenant.ids() == [*IDS, 100]


def test_a_maintainer_reclusters_and_collects_garbage(tenant: Tenant) -> None:
    outcome = tenant.open("maintainer").recluster(policy="full")
    assert (outcome.committed_groups, outcome.failed_groups, outcome.depth_after) == (1, 0, 1.0)
    before = tenant.objects()
    found = tenant.open("maintainer").gc(keep=1, expire_older_than=0)
    assert len(found.snapshots_expired) == 2
    assert len(found.objects_deleted) >= 2
    assert len(tenant.objects()) < len(before)
    assert len(tenant.by_pyiceberg().snapshots()) == 1
    assert tenant.ids() == IDS
    assert tenant.open("reader").check().ok
