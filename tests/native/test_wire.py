"""Every request of every operation to S3 fails in turn, in every way: nothing is lost, and gc leaves nothing over.

A fault that passes is not seen by the caller. One that lasts is an error of tblctl's, after which the table is as
before or as after the operation. In ordinary tests every fourth request gets a fault, others in each operation;
`make test-thorough` tries every fault at every request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from operations import OPERATIONS, At
from profiles import THOROUGH
from proxy import CuttingProxy
from servers import S3Server
from tables import State, assert_sound, named_objects, objects_of, rows, state_of
from wire import TIMEOUT_SECONDS, turns

from tblctl.errors import TableNotFoundError, TblctlError
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.s3 import S3Backend


@dataclass(kw_only=True)
class Copies:
    """Copies of a table on MinIO, each reached through the proxy, and judged without it."""

    server: S3Server
    proxy: CuttingProxy
    template: dict[str, bytes]

    def fresh(self) -> tuple[At, At]:
        """Return where a new copy is: directly, and through the proxy."""
        place = self.server.location()
        direct = At(url=place.url, options=place.storage_options)
        for name, data in self.template.items():
            Storage(direct.url, direct.options).write(name, data)
        timeouts = {"read_timeout": TIMEOUT_SECONDS, "connect_timeout": 5}
        options = {**direct.options, "endpoint_url": self.proxy.endpoint_url, "config_kwargs": timeouts}
        return direct, At(url=direct.url, options=options)

    def differs(self, at: At) -> bool:
        """Return whether there are other objects than in the template."""
        known = {name: len(data) for name, data in self.template.items()}
        return {item.name: item.size_bytes for item in Storage(at.url, at.options).list()} != known


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """The clients of S3, by their options: it takes 0.1 s of processor time to make one."""
    return {}


@pytest.fixture
def copies(
    minio: S3Server,
    proxy: CuttingProxy,
    request: pytest.FixtureRequest,
    kept: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Copies:
    make = S3Backend._open
    monkeypatch.setattr(
        S3Backend,
        "_open",
        lambda self: kept.get(repr(self._options)) or kept.setdefault(repr(self._options), make(self)),
    )
    built = At(url=minio.location().url, options=minio.storage_options)
    OPERATIONS[request.param].build(built)
    return Copies(server=minio, proxy=proxy, template=objects_of(built.url, dict(built.options)))


def state(at: At) -> State | None:
    try:
        return state_of(at.open())
    except TableNotFoundError:
        return None


def assert_usable(at: At, where: str) -> None:
    """Assert that the next operation succeeds, and that gc leaves exactly what is named."""
    table = at.create() if state(at) is None else at.open()
    before = len(table.scan().to_arrow())
    more = rows(1000)
    table.append(more.select([name for name in more.column_names if name in table.schema.names]))
    table.gc(keep=1, older_than=0)
    assert len(table.scan().to_arrow()) == before + 1, where
    assert_sound(table)
    assert set(objects_of(at.url, dict(at.options))) - {"metadata/latest"} == named_objects(table), where


@pytest.mark.parametrize(
    ("copies", "name"), [(name, name) for name in OPERATIONS], indirect=["copies"], ids=list(OPERATIONS)
)
def test_every_request_of_an_operation_fails_in_turn(copies: Copies, name: str) -> None:
    act: Callable[[At], object] = OPERATIONS[name].act
    direct, through = copies.fresh()
    before = state(direct)
    copies.proxy.clear()
    act(through)
    requests = len(copies.proxy.exchanges)
    after, judged = state(direct), 0
    direct, through = copies.fresh()
    for number, fault in turns(requests, seed=len(name), every=4):
        where = f"{name}: {fault} at request {number} of {requests}"
        copies.proxy.clear()
        copies.proxy.on(nth=number, **fault)
        failed: TblctlError | None = None
        try:
            act(through)
        except TblctlError as error:
            failed = error
        copies.proxy.clear()
        assert failed is None or "times" in fault, f"{where}: {failed}"
        if copies.differs(direct):
            found = state(direct)
            assert found == after or (failed and found == before), where
            if failed and (THOROUGH or judged < 2):
                judged += 1
                assert_usable(direct, where)
            direct, through = copies.fresh()
        else:
            assert before == after or failed, where
