"""Every request of an operation on an Iceberg table on MinIO fails in turn: no row is lost, and gc leaves nothing over.

PyIceberg's own requests, for the table's metadata, go through the same proxy. `native/test_wire.py` has the faults, and
does the same for tables of tblctl's own format.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from profiles import THOROUGH
from proxy import CuttingProxy
from pyiceberg.catalog import load_catalog
from pyiceberg.types import LongType, StringType
from servers import S3Server
from wire import TIMEOUT_SECONDS, set_fault, timeout_seconds, turns

import tblctl
from tblctl.errors import TblctlError
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.iceberg.location import parse_location
from tblctl.tableformat.iceberg.port import IcebergPort
from tblctl.tableformat.storage import Storage

from .lake import append, fields
from .leftovers import named_files, own_files

TABLE = "db.t"
LATER_SECONDS = 2 * 86_400.0
"""How far the clock of gc is ahead: what reclusters leave behind stays for a day."""

OPERATIONS: dict[str, Callable[[tblctl.IcebergTable], object]] = {
    "info": lambda table: table.info(),
    "plan": lambda table: table.plan(),
    "history": lambda table: (table.history(), table.depth_history()),
    "check": lambda table: table.check(),
    "suggest": lambda table: table.suggest(),
    "compare": lambda table: table.compare(*[entry.sequence for entry in table.history()][:2]),
    "delete_files": lambda table: table.delete_files(),
    "recluster": lambda table: table.recluster(),
    "gc": lambda table: table.gc(),
    "expiry": lambda table: table.gc(keep=1, expire_older_than=0),
}
CHANGES = frozenset({"recluster", "gc", "expiry"})
PROPERTIES = {"cluster_by", "location", "options", "schema", "snapshot"}
"""Read the newest metadata alone, as `info` does first."""

TRIED_ELSEWHERE = {
    "picture",
    "estimate",
    "schedule",
    "pending_plans",
    "recluster_pending",
    "cancel_plan",
    "import_workload",
    "workload",
    "choose_key",
    "savings",
    "close",
}
"""The last one waits for work of this process alone. Logs of queries are one object each, which nothing names. Savings
and the choice of a key read them, and versions as `compare` does. The first two read as `info` and `history` do. Plans
lie in a storage of their own, as those of native tables do."""


def test_every_public_operation_is_tried() -> None:
    names = {name for name in dir(tblctl.IcebergTable) if not name.startswith("_")}
    assert names <= {"depth_history", *OPERATIONS, *PROPERTIES, *TRIED_ELSEWHERE}


class Lake:
    """A table of three overlapping files on MinIO that was merged once, in a catalog that can be set back."""

    def __init__(self, folder: Path, minio: S3Server, proxy: CuttingProxy) -> None:
        self._folder, self._proxy, self._minio = folder, proxy, minio
        self._warehouse = f"s3://{minio.bucket}/{uuid.uuid4().hex}"
        catalog = load_catalog("lake", **self.options())
        catalog.create_namespace("db")
        # A storage that is gone for good is waited for a minute: not here, where it is gone many times.
        properties = {"tblctl.cluster-by": "id", "commit.retry.num-retries": "3"}
        table = catalog.create_table(TABLE, fields(id=LongType(), s=StringType()), properties=properties)
        for first in range(3):
            append(table, id=list(range(first, 12, 3)), s=["x"] * 4)
        self.open().recluster()
        append(table.refresh(), id=[3, 30], s=["y", "z"])
        append(table.refresh(), id=[4, 31], s=["y", "z"])
        catalog.close()
        shutil.copy(self._database, f"{self._database}.kept")
        storage = self.storage()
        self._objects = {item.name: storage.read(item.name) for item in storage.list()}

    @property
    def _database(self) -> Path:
        return self._folder / "catalog.db"

    def options(self, *, through: bool = False, seconds: float = TIMEOUT_SECONDS) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{self._database}",
            "warehouse": self._warehouse,
            "s3.endpoint": self._proxy.endpoint_url if through else self._minio.endpoint_url,
            "s3.access-key-id": self._minio.key,
            "s3.secret-access-key": self._minio.secret,
            "s3.region": "us-east-1",
            "s3.request-timeout": str(seconds),
            "s3.retry-strategy-impl": "wire.FewTries",
        }

    def storage(self) -> Storage:
        return Storage(self._warehouse, self._minio.storage_options)

    def open(self, **environment: Any) -> tblctl.IcebergTable:
        return self._opened(self.options(), Environment(**environment))

    def open_through(self, seconds: float = TIMEOUT_SECONDS) -> tblctl.IcebergTable:
        """Return the table as it is through the proxy, for a client that waits so long for a reply."""
        return self._opened(self.options(through=True, seconds=seconds), Environment())

    def _opened(self, options: dict[str, str], env: Environment) -> tblctl.IcebergTable:
        place = parse_location(f"iceberg://lake/{TABLE}")
        return tblctl.IcebergTable(IcebergPort.of_catalog(place, options, env))

    def ids(self) -> list[int]:
        table = load_catalog("lake", **self.options()).load_table(TABLE)
        return sorted(table.scan().to_arrow()["id"].to_pylist())

    def snapshot(self) -> object:
        return self.open().snapshot.sequence

    def set_back(self) -> None:
        shutil.copy(f"{self._database}.kept", self._database)
        storage = self.storage()
        there = {item.name for item in storage.list()}
        storage.delete(sorted(there - self._objects.keys()))
        for name in self._objects.keys() - there:
            storage.write(name, self._objects[name])

    def assert_usable(self, where: str) -> None:
        """Assert that the next recluster succeeds, and that gc, days later, leaves nothing of tblctl's."""
        ids = self.ids()
        outcome = self.open().recluster(policy="full")
        assert not outcome.failed_groups, where
        self.open(now=lambda: time.time() + LATER_SECONDS).gc(keep=1, expire_older_than=0)
        table = load_catalog("lake", **self.options()).load_table(TABLE)
        named = named_files(table)
        there = {f"{self._warehouse}/{item.name}" for item in self.storage().list()}
        assert named <= there, where
        assert own_files(table, there) <= named, where
        assert self.ids() == ids, where


@pytest.fixture
def wired(tmp_path: Path, minio: S3Server, proxy: CuttingProxy) -> Lake:
    return Lake(tmp_path, minio, proxy)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_request_of_an_operation_fails_in_turn(name: str, wired: Lake, proxy: CuttingProxy) -> None:
    act, ids, judged = OPERATIONS[name], wired.ids(), Counter[bool]()
    proxy.clear()
    act(wired.open_through())
    requests = sum(".tmp-probe-" not in exchange.path for exchange in proxy.exchanges)
    assert requests
    wired.set_back()
    before = wired.snapshot()
    for number, fault in turns(requests, seed=len(name), every=100):
        where = f"{name}: {fault} at request {number} of {requests}"
        set_fault(proxy, number, fault)
        failed: TblctlError | None = None
        try:
            act(wired.open_through(timeout_seconds(fault)))
        except TblctlError as error:
            failed = error
        assert any(exchange.action != "forward" for exchange in proxy.exchanges), where
        proxy.clear()
        # PyIceberg writes the metadata of an expiry, and gives up on some faults that pass; a recluster asks it again.
        # Arrow ends an upload twice if the first reply was cut, and then misses it.
        gave_up = name == "expiry" or "NO_SUCH_UPLOAD" in str(failed)
        assert failed is None or "times" in fault or gave_up, f"{where}: {failed}"
        assert wired.ids() == ids, where
        if name not in CHANGES and wired.snapshot() == before:
            continue
        judged[bool(failed)] += 1
        if THOROUGH or judged[bool(failed)] <= 1:
            wired.assert_usable(where)
        wired.set_back()
