"""Credentials that a REST catalog vends, and that expire while a table is merged."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

import tblctl
from tblctl.conditions import resolved
from tblctl.maintain.recluster import recluster
from tblctl.maintain.request import Request
from tblctl.merger.engines.engine import failure
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.presort.decide import THRESHOLDS
from tblctl.merger.task.merge import run_task
from tblctl.merger.task.spec import MergeTask
from tblctl.tableformat.errors import AccessDeniedError
from tblctl.tableformat.iceberg.data_storage import DataStorage

from .lake import Lake, append, fields
from .replacing import data_files, replacement_of, sorted_ids
from .rest_catalog import RestCatalog

PARTITIONS = 4


class Vendor:
    """Vends a token, which is good until the next one is needed. It does not say when it expires."""

    def __init__(self, *, session: bool = True) -> None:
        self._numbers = itertools.count(1)
        self._session = session
        self.expire()

    def expire(self) -> None:
        self.token = f"token-{next(self._numbers)}-secret"

    def __call__(self) -> dict[str, str]:
        return {"s3.session-token": self.token} if self._session else {}


@pytest.fixture
def table(lake: Lake) -> Table:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    made = lake.create("t", fields(id=LongType(), part=LongType()), partition_spec=spec)
    for first in (0, 1):
        ids = list(range(first, 40, 2))
        append(made, id=ids, part=[id_ // 10 for id_ in ids])
    return made


@pytest.fixture
def vendor() -> Vendor:
    return Vendor()


@pytest.fixture
def server(lake: Lake, table: Table, vendor: Vendor) -> Iterator[RestCatalog]:
    del table
    with RestCatalog(lake.catalog, config=vendor) as running:
        yield running


def port_at(server: RestCatalog) -> Any:
    loaded = load_catalog("rest", type="rest", uri=server.uri).load_table("db.t")
    return tblctl.from_iceberg(loaded)._port.clustered_by("id")  # type: ignore[attr-defined]


class Jobs:
    """An engine that ships credentials with each job of two tasks, as Spark's does, to a storage that looks at them.

    Args:
        is_good: whether the storage takes a token.
        after: called after each task that was merged.
    """

    name = "local"
    thresholds = THRESHOLDS
    parallelism = 1
    cut = LocalEngine.cut

    def __init__(self, is_good: Callable[[str], bool], after: Callable[[], None] = lambda: None) -> None:
        self.runs: list[tuple[int, int]] = []
        self._is_good, self._after = is_good, after

    def run(self, io: Any, tasks: Iterable[MergeTask], done: Any, **_: Any) -> None:
        for job in pairs(tasks):
            shipped = pickle.loads(pickle.dumps(io))
            for task in job:
                self.runs.append((task.group, task.number))
                if self._is_good(shipped.storages._properties.get("s3.session-token", "")):
                    done(run_task(shipped, task))
                    self._after()
                else:
                    done(failure(task, AccessDeniedError("the token has expired")))


def pairs(tasks: Iterable[MergeTask]) -> Iterator[tuple[MergeTask, ...]]:
    waiting = iter(tasks)
    while found := tuple(itertools.islice(waiting, 2)):
        yield found


def merged(server: RestCatalog, engine: Jobs) -> Any:
    request = Request.of(policy="full", condition=lambda schema: resolved(None, schema), options=None)
    return recluster(port_at(server), request, lambda _: engine)


def test_tasks_whose_credentials_expired_run_again_with_fresh_ones(
    server: RestCatalog, table: Table, vendor: Vendor
) -> None:
    """Of each job the first task is in time, and the second one is not."""
    engine = Jobs(lambda token: token == vendor.token, vendor.expire)
    outcome = merged(server, engine)
    assert (outcome.committed_groups, outcome.failed_groups) == (PARTITIONS, 0), outcome.groups
    assert len(engine.runs) > len(set(engine.runs)) == PARTITIONS
    assert sorted_ids(table) == list(range(40))
    assert len(data_files(table)) == PARTITIONS
    assert "secret" not in repr(outcome) + repr(outcome.to_dict())


def test_tasks_that_are_always_denied_fail_in_the_end(server: RestCatalog, table: Table) -> None:
    engine = Jobs(lambda _: False)
    outcome = merged(server, engine)
    assert (outcome.committed_groups, outcome.failed_groups) == (0, PARTITIONS)
    assert len(engine.runs) == 3 * PARTITIONS
    assert "the token has expired" in str(outcome.groups[0].error)
    assert len(data_files(table)) == 2 * PARTITIONS


def test_tasks_denied_with_keys_that_do_not_expire_do_not_run_again(lake: Lake, table: Table) -> None:
    with RestCatalog(lake.catalog, config=Vendor(session=False)) as running:
        engine = Jobs(lambda _: False)
        assert merged(running, engine).failed_groups == PARTITIONS
    assert len(engine.runs) == PARTITIONS == len(data_files(table)) // 2


def test_a_catalog_that_does_not_answer_leaves_tasks_denied(
    server: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: DataStorage) -> bool:
        raise AccessDeniedError("the catalog refuses")

    monkeypatch.setattr(DataStorage, "renew", fails)
    engine = Jobs(lambda _: False)
    assert merged(server, engine).failed_groups == PARTITIONS
    assert len(engine.runs) == PARTITIONS


def test_a_commit_long_after_the_plan_uses_the_credentials_of_the_table_as_loaded_for_it(
    server: RestCatalog, table: Table, vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = port_at(server)
    base = port.newest()
    files = [file for file in data_files(table) if file.partition[0] == 0]
    replacement = replacement_of(base, files)
    old, used = vendor.token, []
    vendor.expire()
    real = DataStorage.place_of

    def place_of(storages: DataStorage, uri: str) -> Any:
        used.append(storages._properties["s3.session-token"])
        return real(storages, uri)

    monkeypatch.setattr(DataStorage, "place_of", place_of)
    port.replace(base, replacement)
    assert set(used) == {vendor.token} != {old}
    assert sorted_ids(table) == list(range(40))


def test_manifests_are_read_with_fresh_credentials_after_a_denial(
    server: RestCatalog, vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = port_at(server).newest()
    vendor.expire()
    real = PyArrowFileIO.new_input

    def new_input(io: PyArrowFileIO, location: str) -> Any:
        if io.properties.get("s3.session-token", vendor.token) != vendor.token:
            raise OSError("AWS Error UNKNOWN (HTTP status 400): Unable to parse ExceptionName: ExpiredToken")
        return real(io, location)

    monkeypatch.setattr(PyArrowFileIO, "new_input", new_input)
    assert len(base.files) == 2 * PARTITIONS
