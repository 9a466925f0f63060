"""Every request of every operation to S3 fails in turn, in every way: nothing is lost, and gc leaves nothing over.

A fault that passes is not seen by the caller. One that lasts is an error of tblctl's, after which the table is as
before or as after the operation. Either way the next operation succeeds. In ordinary tests every operation meets each
kind of fault, at a tenth of its requests or at four; `make test-thorough` tries every fault at every request.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from operations import OPERATIONS, At
from profiles import THOROUGH
from proxy import CuttingProxy
from servers import S3Server
from tables import State, assert_sound, named_objects, objects_of, state_of
from wire import KINDS, TIMEOUT_SECONDS, set_fault, timeout_seconds, turns

from tblctl.errors import TableNotFoundError, TblctlError
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.s3 import S3Backend

JUDGED = 1
"""How many ends in spite of a fault, and how many with an error, are followed by the next operation."""


@dataclass(kw_only=True)
class Copies:
    """Copies of a table on MinIO, each reached through the proxy, and judged without it."""

    server: S3Server
    proxy: CuttingProxy
    template: dict[str, bytes]

    def fresh(self) -> At:
        """Return where a new copy is."""
        place = self.server.location()
        direct = At(url=place.url, options=place.storage_options)
        for name, data in self.template.items():
            Storage(direct.url, direct.options).write(name, data)
        return direct

    def through(self, direct: At, seconds: float = TIMEOUT_SECONDS) -> At:
        """Return where the same copy is through the proxy, for a client that waits so long for a reply."""
        timeouts = {"read_timeout": seconds, "connect_timeout": 5}
        options = {**direct.options, "endpoint_url": self.proxy.endpoint_url, "config_kwargs": timeouts}
        return At(url=direct.url, options=options)

    def requests(self) -> int:
        """Return how many requests went through the proxy, without the test of the server that a process makes once."""
        return sum(".tmp-probe-" not in exchange.path for exchange in self.proxy.exchanges)

    def was_hit(self) -> bool:
        """Return whether a fault came."""
        return any(exchange.action != "forward" for exchange in self.proxy.exchanges)

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
    table.append(pa.Table.from_pylist([{"id": 1000}], schema=table.schema))
    table.gc(keep=1, older_than=0)
    assert len(table.scan().to_arrow()) == before + 1, where
    assert_sound(table)
    assert set(objects_of(at.url, dict(at.options))) - {"metadata/latest"} == named_objects(table), where


@pytest.mark.parametrize(
    ("copies", "name"), [(name, name) for name in OPERATIONS], indirect=["copies"], ids=list(OPERATIONS)
)
def test_every_request_of_an_operation_fails_in_turn(copies: Copies, name: str) -> None:
    act: Callable[[At], object] = OPERATIONS[name].act
    direct = copies.fresh()
    before = state(direct)
    copies.proxy.clear()
    act(copies.through(direct))
    requests = copies.requests()
    after, judged = state(direct), Counter[bool]()
    direct = copies.fresh()
    for number, fault in turns(requests, seed=len(name), every=10):
        where = f"{name}: {fault} at request {number} of {requests}"
        set_fault(copies.proxy, number, fault)
        failed: TblctlError | None = None
        try:
            act(copies.through(direct, timeout_seconds(fault)))
        except TblctlError as error:
            failed = error
        assert copies.was_hit(), where
        copies.proxy.clear()
        assert failed is None or "times" in fault, f"{where}: {failed}"
        if copies.differs(direct):
            found = state(direct)
            assert found == after or (failed and found == before), where
            judged[bool(failed)] += 1
            if THOROUGH or judged[bool(failed)] <= JUDGED:
                assert_usable(direct, where)
            direct = copies.fresh()
        else:
            assert before == after or failed, where


def test_every_operation_meets_each_kind_of_fault_at_requests_far_apart() -> None:
    for requests, seed in itertools.product(range(1, 80), range(20)):
        found = list(turns(requests, seed=seed, every=10))
        kinds = [kind for _, fault in found for kind, faults in KINDS.items() if fault in faults]
        assert set(kinds) == KINDS.keys()
        numbers = {number for number, _ in found}
        assert min(numbers) >= 1
        assert max(numbers) <= requests
        assert len(numbers) == min(requests, len(found))
