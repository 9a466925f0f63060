"""SQL catalogs on PostgreSQL: all commands, conflicts, Spark beside, and errors that show no password."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from postgres import PostgresServer
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, StringType
from servers import missing_server

import tblctl
from tblctl.cli.main import application
from tblctl.tableformat.errors import StorageError, TblctlError

from .lake import NAME, Lake, append, fields
from .replacing import Meanwhile, after, sorted_ids
from .spark_process import MissingError, SparkProcess

pytestmark = pytest.mark.xdist_group("postgres")

DRIVER = "org.postgresql:postgresql:42.7.7"


@pytest.fixture
def lake(postgres: PostgresServer, tmp_path: Path) -> Lake:
    uri = postgres.uri(postgres.create_database())
    return Lake(tmp_path, uri=uri, warehouse=f"file://{tmp_path}/tables", schema_version="v1")


@pytest.fixture
def table(lake: Lake) -> Table:
    """Return a table of two partitions, of two overlapping files each."""
    made = lake.create(
        "t",
        fields(id=LongType(), part=IntegerType(), s=StringType()),
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part")),
        properties={"commit.retry.min-wait-ms": "1"},
    )
    for first in range(2):
        ids = list(range(first, 40, 2))
        append(made, id=ids, part=[id_ // 20 for id_ in ids], s=[f"row {id_}" for id_ in ids])
    return made.refresh()


def run(lake: Lake, *words: str, code: int = 0) -> str:
    """Run the command; return all that it prints."""
    found = CliRunner().invoke(application, [*words, "--catalog-option", f"uri={lake.options['uri']}"])
    assert found.exit_code == code, found.output
    return found.output


def test_all_commands_work(lake: Lake, table: Table, postgres: PostgresServer) -> None:
    name = f"iceberg://{NAME}/db.t"
    told = [run(lake, "info", name, "--columns", "id", "--json")]
    assert json.loads(told[0])["average_depth"] == 2.0
    told += [
        run(lake, "recluster", name, "--cluster-by", "id", "--policy", "full", "--dry-run"),
        run(lake, "recluster", name, "--cluster-by", "id", "--policy", "full"),
        run(lake, "info", name),
        run(lake, "history", name),
        run(lake, "check", name),
        run(lake, "gc", name, "--dry-run"),
        run(lake, "gc", name, "--keep", "1", "--expire-older-than", "0s"),
        run(lake, "info", "--all", f"iceberg://{NAME}"),
    ]
    assert sorted_ids(table) == list(range(40))
    assert len(table.metadata.snapshots) == 1
    assert json.loads(run(lake, "info", name, "--json"))["average_depth"] == 1.0
    assert not [text for text in told if postgres.password in text]


def test_a_catalog_of_the_environment_is_found_from_the_shell(lake: Lake, table: Table) -> None:
    known = {f"PYICEBERG_CATALOG__LAKE__{name.upper()}": lake.options[name] for name in ("type", "uri")}
    words = ["recluster", f"iceberg://{NAME}/db.t", "--cluster-by", "id", "--policy", "full"]
    subprocess.run(
        [sys.executable, "-m", "tblctl.cli", *words],
        env=os.environ | known,
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert table.refresh().current_snapshot().summary.operation.value == "replace"


def test_the_api_works_and_pickles(lake: Lake, table: Table, postgres: PostgresServer) -> None:
    opened = lake.open("t")
    outcome = opened.recluster(cluster_by="id", policy="full", final=True)
    assert (outcome.committed_groups, outcome.failed_groups, outcome.depth_after) == (2, 0, 1.0)
    assert opened.gc(keep=1, expire_older_than=0).snapshots_expired
    assert sorted_ids(table) == list(range(40))
    assert postgres.password not in repr(opened) + repr(outcome) + repr(opened.history())


def test_a_group_whose_rows_were_deleted_meanwhile_is_dropped(table: Table) -> None:
    with Meanwhile(
        table, after(lambda: table.catalog.load_table("db.t").delete(EqualTo("id", 25)))
    ) as meanwhile:
        outcome = tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    assert meanwhile.calls == 3, "the change, and two attempts"
    assert (outcome.committed_groups, outcome.conflicted_groups) == (1, 1)
    assert sorted_ids(table) == [id_ for id_ in range(40) if id_ != 25]


def test_an_append_meanwhile_is_no_conflict(table: Table) -> None:
    def change() -> None:
        append(table.catalog.load_table("db.t"), id=[100], part=[0], s=["new"])

    with Meanwhile(table, after(change)) as meanwhile:
        outcome = tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    assert meanwhile.calls == 3, "the change, and two attempts"
    assert (outcome.committed_groups, outcome.conflicted_groups) == (2, 0)
    assert sorted_ids(table) == [*range(40), 100]


def test_connections_that_the_server_ended_are_made_anew(
    lake: Lake, table: Table, postgres: PostgresServer
) -> None:
    opened = lake.open("t")
    for _ in range(2):
        assert opened.info(columns="id").average_depth == 2.0
        assert postgres.end_connections(lake.options["uri"].rpartition("/")[2]) > 0
    assert opened.recluster(cluster_by="id", policy="full").committed_groups == 2


def test_a_commit_outlives_the_end_of_connections(lake: Lake, table: Table, postgres: PostgresServer) -> None:
    """A merge may take hours, in which a database restarts, or a firewall drops what is idle."""
    database = lake.options["uri"].rpartition("/")[2]
    with Meanwhile(table, after(lambda: postgres.end_connections(database))) as meanwhile:
        outcome = tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    assert meanwhile.calls == 2
    assert (outcome.committed_groups, outcome.failed_groups) == (2, 0)
    assert sorted_ids(table) == list(range(40))


def test_a_wrong_password_is_told_without_it(lake: Lake, table: Table, postgres: PostgresServer) -> None:
    uri = lake.options["uri"].replace(postgres.password, "wrong-secret")
    with pytest.raises(StorageError, match="password authentication failed") as caught:
        tblctl.open(f"iceberg://{NAME}/db.t", catalog_options=lake.options | {"uri": uri})
    assert f"iceberg://{NAME}/db.t" in str(caught.value)
    assert "wrong-secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    lake.options["uri"] = uri
    told = run(lake, "info", f"iceberg://{NAME}/db.t", code=1)
    assert "password authentication failed" in told
    assert "wrong-secret" not in told


def test_an_unknown_database_is_told(postgres: PostgresServer, lake: Lake, table: Table) -> None:
    uri = postgres.uri("no_such_database")
    with pytest.raises(TblctlError, match="no_such_database") as caught:
        tblctl.open(f"iceberg://{NAME}/db.t", catalog_options=lake.options | {"uri": uri})
    assert postgres.password not in str(caught.value)


def test_a_database_without_a_catalog_gets_none(postgres: PostgresServer, lake: Lake) -> None:
    name = postgres.create_database()
    with pytest.raises(TblctlError) as caught:
        tblctl.open(f"iceberg://{NAME}/db.t", catalog_options=lake.options | {"uri": postgres.uri(name)})
    assert postgres.password not in str(caught.value)


def test_spark_shares_the_catalog(lake: Lake, table: Table, postgres: PostgresServer) -> None:
    """Over JDBC Spark deletes and inserts between reclusters, and reads the rows that PyIceberg reads."""
    address = lake.options["uri"].rpartition("/")[2]
    catalog = {
        "type": "jdbc",
        "uri": f"jdbc:postgresql://{postgres.host}:{postgres.port}/{address}",
        "jdbc.user": postgres.user,
        "jdbc.password": postgres.password,
        "jdbc.schema-version": "V1",
        "warehouse": lake.options["warehouse"],
    }
    try:
        spark = SparkProcess(lake.folder, catalog=catalog, packages=[DRIVER])
    except MissingError as error:
        missing_server(f"Iceberg's Spark cannot run: {error}")
    with spark:
        opened = lake.open("t")
        spark.sql("ALTER TABLE db.t SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
        assert opened.recluster(cluster_by="id", policy="full").committed_groups == 2
        spark.sql("DELETE FROM db.t WHERE id % 4 = 0", "INSERT INTO db.t VALUES (5, 0, 'again')")
        assert opened.delete_files() == {"position": 2, "equality": 0}
        assert opened.recluster(policy="full").committed_groups > 0
        expected = sorted([id_ for id_ in range(40) if id_ % 4] + [5])
        assert sorted(row["id"] for row in spark.sql("SELECT id FROM db.t")) == expected
        assert sorted_ids(table) == expected
