"""Nessie, a REST catalog that shows the newest snapshot alone: reclusters work there, gc is refused.

Part of `make test-trino`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, StringType
from servers import S3Server

import tblctl
from tblctl.cli.main import application
from tblctl.tableformat.errors import InvalidOptionError

from ..iceberg.lake import append, fields
from ..iceberg.replacing import Meanwhile, after, sorted_ids
from .processes import OF_TEST_TRINO, run_nessie

pytestmark = [OF_TEST_TRINO, pytest.mark.xdist_group("nessie")]


@pytest.fixture(scope="module")
def options(minio: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The properties of a catalog of Nessie."""
    with run_nessie(tmp_path_factory.mktemp("nessie"), minio) as uri:
        yield {
            "type": "rest",
            "uri": uri,
            **minio.catalog_options,
        }


@pytest.fixture(scope="module")
def catalog(options: dict[str, str]) -> Catalog:
    found = load_catalog("nessie", **options)
    found.create_namespace("db")
    return found


@pytest.fixture
def table(catalog: Catalog, request: pytest.FixtureRequest) -> Table:
    """Return a table of two partitions, of two overlapping files each."""
    made = catalog.create_table(
        f"db.{request.node.name}",
        fields(id=LongType(), part=IntegerType(), s=StringType()),
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part")),
        properties={"commit.retry.min-wait-ms": "1"},
    )
    for first in range(2):
        ids = list(range(first, 40, 2))
        append(made.refresh(), id=ids, part=[id_ // 20 for id_ in ids], s=[f"row {id_}" for id_ in ids])
    return made.refresh()


def opened(table: Table, options: dict[str, str]) -> Any:
    return tblctl.open(f"iceberg://nessie/{'.'.join(table.name())}", catalog_options=options)


def rows_of(table: Table) -> list[str]:
    return sorted(map(repr, table.refresh().scan().to_arrow().to_pylist()))


def test_reclusters_keep_rows(table: Table, options: dict[str, str]) -> None:
    before = rows_of(table)
    found = opened(table, options)
    assert found.info(columns="id").average_depth == 2.0
    outcome = found.recluster(cluster_by="id", policy="full", final=True)
    assert (outcome.committed_groups, outcome.failed_groups, outcome.depth_after) == (2, 0, 1.0)
    assert rows_of(table) == before
    assert found.info().average_depth == 1.0
    assert found.recluster(policy="full", final=True).commits == 0
    append(table.refresh(), id=[7, 8], part=[0, 0], s=["a", "b"])
    assert found.recluster(policy="full", final=True).committed_groups == 1
    assert len(rows_of(table)) == 42
    assert table.refresh().current_snapshot().summary.operation.value == "replace"


def test_a_group_whose_rows_were_deleted_meanwhile_is_dropped(table: Table, options: dict[str, str]) -> None:
    def delete() -> None:
        load_catalog("nessie", **options).load_table(table.name()).delete(EqualTo("id", 25))

    with Meanwhile(table, after(delete)):
        outcome = tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    assert (outcome.committed_groups, outcome.conflicted_groups, outcome.failed_groups) == (1, 1, 0)
    assert sorted_ids(table) == [id_ for id_ in range(40) if id_ != 25]


def test_an_append_meanwhile_is_no_conflict(table: Table, options: dict[str, str]) -> None:
    def change() -> None:
        append(load_catalog("nessie", **options).load_table(table.name()), id=[100], part=[0], s=["new"])

    with Meanwhile(table, after(change)):
        outcome = tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    assert (outcome.committed_groups, outcome.conflicted_groups, outcome.failed_groups) == (2, 0, 0)
    assert sorted_ids(table) == [*range(40), 100]


def test_gc_is_refused(table: Table, options: dict[str, str]) -> None:
    """Nessie shows `gc.enabled=false`, and hides history where a table has it otherwise."""
    found = opened(table, options)
    found.recluster(cluster_by="id", policy="full")
    before = rows_of(table)
    with pytest.raises(InvalidOptionError, match=r"gc\.enabled is false"):
        found.gc()
    with table.transaction() as change:
        change.set_properties({"gc.enabled": "true"})
    for how in ({}, {"keep": 1, "expire_older_than": 0}):
        with pytest.raises(InvalidOptionError, match="newest snapshot alone"):
            found.gc(**how)
    assert rows_of(table) == before


def test_the_command(table: Table, options: dict[str, str], minio: S3Server) -> None:
    given = [word for name, value in options.items() for word in ("--catalog-option", f"{name}={value}")]
    name = f"iceberg://nessie/{'.'.join(table.name())}"
    for words, code in (
        (["info", name, "--columns", "id"], 0),
        (["recluster", name, "--cluster-by", "id", "--policy", "full"], 0),
        (["check", name], 0),
        (["history", name], 0),
        (["gc", name], 2),
    ):
        done = CliRunner().invoke(application, [*words, *given])
        assert done.exit_code == code, done.output
        assert minio.secret not in done.output
    assert sorted_ids(table) == list(range(40))
