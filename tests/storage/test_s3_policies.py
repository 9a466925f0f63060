"""The policies of docs/s3-policies on MinIO: what each role can do, and how the rest is refused.

A refused operation leaves every object as it was: it did no work before.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from s3_users import POLICIES, ROLES, Users
from servers import S3Server
from tables import objects_of

import tblctl
from tblctl.errors import AccessDeniedError
from tblctl.tableformat.storage import Storage


class Tenant:
    """A table in a bucket, another one beside it, and a user of each role for the table."""

    def __init__(self, minio: S3Server) -> None:
        self.prefix = uuid.uuid4().hex
        self.url = f"s3://{minio.bucket}/{self.prefix}/table"
        self.other = f"s3://{minio.bucket}/{self.prefix}/table-2"
        self.users = Users(minio, f"{self.prefix}/table")
        self.saved: dict[str, bytes] = {}

    def options(self, role: str | None) -> dict[str, Any]:
        return self.users.options(role)

    def table(self, role: str | None = None) -> tblctl.Table:
        return tblctl.open(self.url, storage_options=self.options(role))

    def objects(self) -> dict[str, bytes]:
        return objects_of(self.url, self.options(None))


@pytest.fixture(scope="module")
def tenants(minio: S3Server) -> Iterator[Tenant]:
    made = Tenant(minio)
    for url in (made.url, made.other):
        options = {"block_rows": 20}
        table = tblctl.create(
            url, "a: int64, b: string", cluster_by="a", storage_options=made.options(None), options=options
        )
        for first in (0, 5):
            table.append(pa.table({"a": range(first, first + 20), "b": ["x"] * 20}))
    made.saved = made.objects()
    yield made
    made.users.end()


@pytest.fixture
def tenant(tenants: Tenant) -> Tenant:
    """The tenant with its table as it was made."""
    storage, now = Storage(tenants.url, tenants.options(None)), tenants.objects()
    if now != tenants.saved:
        storage.delete([name for name in now if name not in tenants.saved])
        for name, data in tenants.saved.items():
            storage.write(name, data)
    return tenants


READS: dict[str, Callable[[tblctl.Table], object]] = {
    "scan": lambda table: table.scan("a > 3").to_arrow(),
    "dataset": lambda table: table.to_dataset().to_table(),
    "info": lambda table: table.info().to_dict(),
    "history": lambda table: list(table.history()),
    "check": lambda table: table.check(deep=True),
    "plan": lambda table: table.plan(policy="full"),
    "suggest": lambda table: table.suggest(),
    "gc, dry run": lambda table: table.gc(keep=1, older_than=0, dry_run=True),
}
WRITES: dict[str, Callable[[tblctl.Table], object]] = {
    "append": lambda table: table.append(pa.table({"a": [1], "b": ["y"]})),
    "delete": lambda table: table.delete("a < 3"),
    "update": lambda table: table.update("b = 'z'", "a > 20"),
    "overwrite": lambda table: table.overwrite(pa.table({"a": [1], "b": ["y"]}), where="a = 1"),
    "recluster": lambda table: table.recluster(policy="full"),
    "add column": lambda table: table.add_column("c", pa.int32()),
    "tag": lambda table: table.tag("v1"),
    "rollback": lambda table: table.rollback(2),
}
UPKEEP: dict[str, Callable[[tblctl.Table], object]] = {"gc": lambda table: table.gc(keep=1, older_than=0)}


def refused(tenant: Tenant, role: str, act: Callable[[tblctl.Table], object]) -> str:
    """Return the error of an operation that must be refused and leave everything as it was, but for a probe."""
    before = tenant.objects()
    with pytest.raises(AccessDeniedError) as caught:
        act(tenant.table(role))
    after = tenant.objects()
    assert {name: data for name, data in after.items() if "/.tmp-" not in name} == before
    assert f"password-of-{role}" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("role", ROLES)
def test_every_role_reads(tenant: Tenant, role: str) -> None:
    before = tenant.objects()
    for read in READS.values():
        read(tenant.table(role))
    assert tenant.objects() == before


@pytest.mark.parametrize("name", [*WRITES, *UPKEEP])
def test_a_reader_is_refused_before_anything_is_written(tenant: Tenant, name: str) -> None:
    message = refused(tenant, "reader", (WRITES | UPKEEP)[name])
    assert tenant.url in message
    assert "denied" in message.lower()


@pytest.mark.parametrize("role", ["writer", "maintainer"])
def test_a_writer_writes_without_permission_to_delete(tenant: Tenant, role: str) -> None:
    for name, write in WRITES.items():
        before = tenant.table().snapshot.sequence
        write(tenant.table(role))
        assert tenant.table().snapshot.sequence > before, name
    assert tenant.table().check(deep=True).ok


def test_a_writer_that_loses_a_race_needs_no_permission_to_delete(tenant: Tenant) -> None:
    table = tenant.table("writer")
    rows = pa.table({"a": [1], "b": ["y"]})
    table._native.head()
    tenant.table().append(rows)
    table.append(rows)
    assert tenant.table().scan("b = 'y'").to_arrow().num_rows == 2


def test_a_gc_that_may_not_delete_is_refused_before_it_expires_anything(tenant: Tenant) -> None:
    message = refused(tenant, "writer", UPKEEP["gc"])
    assert "delete" in message
    assert [item.readable for item in tenant.table().history()] == [True] * len(
        list(tenant.table().history())
    )


def test_a_maintainer_collects_garbage(tenant: Tenant) -> None:
    table = tenant.table("maintainer")
    table.recluster(policy="full")
    before = tenant.objects()
    assert table.gc(keep=1, older_than=0).objects_deleted
    assert len(tenant.objects()) < len(before)
    assert table.check(deep=True).ok


@pytest.mark.parametrize("role", ["writer", "maintainer"])
def test_a_writer_creates_a_table_where_its_policy_allows(tenant: Tenant, role: str) -> None:
    made = tblctl.create(f"{tenant.url}/{role}", "a: int64", storage_options=tenant.options(role))
    assert made.append(pa.table({"a": [1]})).rows_added == 1


@pytest.mark.parametrize("role", ROLES)
def test_no_role_reaches_another_table_of_the_bucket(tenant: Tenant, role: str) -> None:
    with pytest.raises(AccessDeniedError):
        tblctl.open(tenant.other, storage_options=tenant.options(role)).scan().to_arrow()
    with pytest.raises(AccessDeniedError):
        tblctl.create(f"{tenant.other}-3", "a: int64", storage_options=tenant.options(role))


def test_no_role_may_drop_a_table_but_the_maintainer(tenant: Tenant) -> None:
    for role in ("reader", "writer"):
        before = tenant.objects()
        with pytest.raises(AccessDeniedError):
            tblctl.drop(tenant.url, storage_options=tenant.options(role))
        assert tenant.objects() == before
    tblctl.drop(tenant.url, storage_options=tenant.options("maintainer"))
    assert not tenant.objects()


@pytest.mark.parametrize(
    ("role", "more"), [("reader", set()), ("writer", {"Put"}), ("maintainer", {"Put", "Delete"})]
)
def test_a_policy_allows_what_its_role_needs_and_no_more(role: str, more: set[str]) -> None:
    statements = json.loads((POLICIES / f"{role}.json").read_text(encoding="utf-8"))["Statement"]
    actions = {action for item in statements for action in [item["Action"]] if isinstance(action, str)}
    actions |= {
        action for item in statements if isinstance(item["Action"], list) for action in item["Action"]
    }
    put = {"s3:PutObject", "s3:AbortMultipartUpload"} if "Put" in more else set()
    assert actions == {"s3:ListBucket", "s3:GetObject"} | put | (
        {"s3:DeleteObject"} if "Delete" in more else set()
    )
    assert all("*" not in item["Resource"].removesuffix("/*") for item in statements)
