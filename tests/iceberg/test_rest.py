"""REST catalogs: commits through them, their errors, and what they vend."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.types import LongType

import tblctl
from tblctl import errors
from tests.iceberg.lake import Lake, append, fields
from tests.iceberg.replacing import data_files, ours, replacement_of, sorted_ids
from tests.iceberg.rest_catalog import RestCatalog

Commit = Callable[[], None]


@pytest.fixture
def made(lake: Lake) -> Lake:
    table = lake.create("t", fields(id=LongType()), properties={"commit.retry.min-wait-ms": "1"})
    append(table, id=[1, 3])
    append(table, id=[2, 4])
    return lake


def port_at(server: RestCatalog) -> object:
    table = load_catalog("rest", type="rest", uri=server.uri).load_table("db.t")
    return tblctl.from_iceberg(table)._port.clustered_by("id")  # type: ignore[attr-defined]


def test_a_commit(made: Lake) -> None:
    with RestCatalog(made.catalog) as server:
        port = port_at(server)
        base = port.newest()  # type: ignore[attr-defined]
        port.replace(base, replacement_of(base, data_files(made.load("t"))))  # type: ignore[attr-defined]
        opened = tblctl.open("iceberg://rest/db.t", catalog_options={"type": "rest", "uri": server.uri})
        assert len(opened._port.newest().files) == 1
    assert sorted_ids(made.load("t")) == [1, 2, 3, 4]


@pytest.mark.parametrize("status", [500, 502, 504, 503, 429])
@pytest.mark.parametrize("landed", [True, False])
def test_an_answer_that_says_nothing_is_looked_into(made: Lake, status: int, landed: bool) -> None:
    calls = []

    def fail_once(commit: Commit) -> int | None:
        calls.append(1)
        if len(calls) == 1:
            if landed:
                commit()
            return status
        commit()
        return None

    with RestCatalog(made.catalog, on_commit=fail_once) as server:
        port = port_at(server)
        base = port.newest()  # type: ignore[attr-defined]
        port.replace(base, replacement_of(base, data_files(made.load("t"))))  # type: ignore[attr-defined]
    table = made.load("t")
    assert len(calls) == (1 if landed else 2)
    assert sorted_ids(table) == [1, 2, 3, 4]
    assert len(table.metadata.snapshots) == 3
    assert len(data_files(table)) == 1


@pytest.mark.parametrize(
    ("status", "error"), [(403, errors.AccessDeniedError), (401, errors.AccessDeniedError)]
)
def test_a_refusal_leaves_nothing(made: Lake, status: int, error: type[Exception]) -> None:
    with RestCatalog(made.catalog, on_commit=lambda _: status) as server:
        port = port_at(server)
        base = port.newest()  # type: ignore[attr-defined]
        with pytest.raises(error):
            port.replace(base, replacement_of(base, data_files(made.load("t"))))  # type: ignore[attr-defined]
    assert not ours(made.load("t"))
    assert sorted_ids(made.load("t")) == [1, 2, 3, 4]


def test_what_a_catalog_vends_is_not_shown(made: Lake) -> None:
    vended = {
        "s3.access-key-id": "k",
        "s3.secret-access-key": "vended-secret",
        "s3.session-token": "vended-token",
    }
    with RestCatalog(made.catalog, config=lambda: vended) as server:
        opened = tblctl.open("iceberg://rest/db.t", catalog_options={"type": "rest", "uri": server.uri})
        plan = opened.plan(policy="full", cluster_by="id")
        assert plan.groups
        assert "vended" not in repr(plan) + repr(opened) + repr(opened.history())
