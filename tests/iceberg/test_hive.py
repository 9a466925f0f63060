"""Hive's metastore as the catalog: all commands, races through its locks, lost replies, and its errors."""

from __future__ import annotations

import copy
import json
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from click.testing import CliRunner
from hive_metastore import ttypes
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType

import tblctl
from tblctl import errors
from tblctl.cli.main import application

from .lake import append, fields
from .metastore import Cut, Metastore
from .replacing import data_files, ours, port_of, replacement_of, sorted_ids

ALTER = "alter_table_with_environment_context"
DOWN = ttypes.MetaException("the database is down")


@pytest.fixture
def metastore() -> Iterator[Metastore]:
    with Metastore() as running:
        yield running


@pytest.fixture
def options(metastore: Metastore, tmp_path: Path) -> dict[str, str]:
    return {
        "type": "hive",
        "uri": metastore.uri,
        "warehouse": f"file://{tmp_path}/warehouse",
        "lock-check-min-wait-time": "0.01",
        "lock-check-max-wait-time": "0.01",
    }


@pytest.fixture
def table(options: dict[str, str], tmp_path: Path) -> Table:
    """Return a table of two partitions, of two overlapping files each: ids 0 to 19, and 20 to 39."""
    catalog = load_catalog("prod", **options)
    catalog.create_namespace("db", {"location": f"file://{tmp_path}/warehouse/db"})
    made = catalog.create_table(
        "db.t",
        fields(id=LongType(), part=IntegerType()),
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part")),
        properties={"commit.retry.min-wait-ms": "1"},
    )
    for first in range(2):
        ids = list(range(first, 40, 2))
        append(made, id=ids, part=[id_ // 20 for id_ in ids])
    return made.refresh()


def run(options: dict[str, str], *words: str, code: int = 0) -> str:
    """Run the command; return what it prints, errors too."""
    given = [word for key, value in options.items() for word in ("--catalog-option", f"{key}={value}")]
    found = CliRunner().invoke(application, [*words, *given])
    assert found.exit_code == code, (found.output, found.exception)
    return found.output


def another(options: dict[str, str]) -> Table:
    """Return the table as another writer opens it."""
    return load_catalog("prod", **options).load_table("db.t")


def first(change: Callable[[], Any]) -> Callable[[Callable[[], Any]], Any]:
    """Return a fault: something happens before the call is carried out."""

    def fault(real: Callable[[], Any]) -> Any:
        change()
        return real()

    return fault


def raising(error: Exception, *, done: bool = False) -> Callable[[Callable[[], Any]], Any]:
    def fault(real: Callable[[], Any]) -> Any:
        if done:
            real()
        raise error

    return fault


def test_all_commands_work(options: dict[str, str], table: Table) -> None:
    name = "iceberg://prod/db.t"
    assert json.loads(run(options, "info", name, "--columns", "id", "--json"))["average_depth"] == 2.0
    dry = run(options, "recluster", name, "--cluster-by", "id", "--dry-run", "--json")
    assert len(json.loads(dry)["groups"]) == 2
    assert len(table.refresh().metadata.snapshots) == 2, "a dry run writes nothing"
    assert json.loads(run(options, "plan", name, "--cluster-by", "id", "--json"))["groups"]
    done = json.loads(run(options, "recluster", name, "--cluster-by", "id", "--final", "--json"))
    assert (done["committed_groups"], done["depth_after"]) == (2, 1.0)
    assert json.loads(run(options, "info", name, "--json"))["average_depth"] == 1.0
    again = json.loads(run(options, "recluster", name, "--final", "--json"))
    assert again["committed_groups"] == 0
    assert len(json.loads(run(options, "history", name, "--json"))) == 3
    run(options, "check", name, "--deep")
    run(options, "suggest", name)
    run(options, "depth", name, "id")
    assert "db.t" in run(options, "info", "--all", "iceberg://prod")
    assert "db.t" in run(options, "info", "--all", "iceberg://prod", "--namespace", "db")
    run(options, "gc", name, "--dry-run")
    run(options, "gc", name, "--keep", "1", "--expire-older-than", "0s")
    assert len(table.refresh().metadata.snapshots) == 1
    assert sorted_ids(table) == list(range(40))


def test_the_metastore_has_the_tables_parameters_and_no_lock_after_a_recluster(
    options: dict[str, str], metastore: Metastore, table: Table
) -> None:
    metastore.table("t").parameters["of.somebody.else"] = "kept"
    opened = tblctl.open("iceberg://prod/db.t", catalog_options=options)
    assert opened.recluster(cluster_by="id", policy="full", final=True).committed_groups == 2
    found = metastore.table("t").parameters
    assert found["tblctl.cluster-by"] == "id"
    assert found["of.somebody.else"] == "kept"
    assert found["metadata_location"] == table.refresh().metadata_location
    assert metastore.locks == []


def test_an_append_between_plan_and_commit_is_no_conflict(
    options: dict[str, str], metastore: Metastore, table: Table
) -> None:
    metastore.fail("lock", first(lambda: append(another(options), id=[100], part=[0])))
    outcome = tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    assert (outcome.committed_groups, outcome.conflicted_groups) == (2, 0)
    assert metastore.calls.count(ALTER) == 2 + 1 + 1, (
        "two appends, another, and one commit: a retry in between"
    )
    assert sorted_ids(table) == [*range(40), 100]


def test_a_group_whose_rows_were_deleted_meanwhile_is_dropped(
    options: dict[str, str], metastore: Metastore, table: Table
) -> None:
    metastore.fail("lock", first(lambda: another(options).delete(EqualTo("id", 25))))
    outcome = tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    assert (outcome.committed_groups, outcome.conflicted_groups) == (1, 1)
    assert sorted_ids(table) == [id_ for id_ in range(40) if id_ != 25]


@pytest.mark.parametrize("lost", ["reply", "request"])
@pytest.mark.parametrize("how", ["cut", "refused"])
def test_an_alter_table_without_an_answer_is_looked_into(
    metastore: Metastore, table: Table, lost: str, how: str
) -> None:
    """The client, cut off, cannot give its lock back: a second try waits until Hive has ended the lock."""
    error = Cut() if how == "cut" else ttypes.MetaException("Timeout when executing method: alter_table")
    metastore.fail(ALTER, raising(error, done=lost == "reply"))
    metastore.fail("check_lock", first(metastore.release_locks))
    outcome = tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    assert (outcome.committed_groups, outcome.failed_groups) == (2, 0)
    assert metastore.calls.count(ALTER) == (3 if lost == "reply" else 4)
    assert len(table.refresh().metadata.snapshots) == 3
    assert sorted_ids(table) == list(range(40))
    assert {Path(file.file_path.removeprefix("file://")).exists() for file in data_files(table)} == {True}


def test_an_outcome_that_stays_unknown_keeps_all_files(
    options: dict[str, str], metastore: Metastore, table: Table
) -> None:
    with table.transaction() as change_:
        change_.set_properties({"commit.retry.num-retries": "2"})
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, [file for file in data_files(table) if file.partition[0] == 0])

    def lost(real: Callable[[], Any]) -> Any:
        real()
        metastore.fail("get_table", *[raising(DOWN)] * 9)
        raise Cut

    metastore.fail(ALTER, lost)
    with pytest.raises(errors.CommitOutcomeUnknownError, match="tblctl history"):
        port.replace(base, change)
    metastore.faults.clear()
    assert sorted_ids(another(options)) == list(range(40))
    assert all(Path(file.file_path.removeprefix("file://")).exists() for file in data_files(table))
    assert ours(table)


def test_another_writers_lock_is_waited_for(metastore: Metastore, table: Table) -> None:
    metastore.locks.append((99, ("db", "t")))
    metastore.fail("check_lock", *[lambda real: real()] * 5, first(metastore.release_first))
    outcome = tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    assert (outcome.committed_groups, outcome.failed_groups) == (2, 0)
    assert metastore.locks == []
    assert sorted_ids(table) == list(range(40))


def test_a_table_that_is_dropped_while_it_is_merged_is_not_made_anew(
    options: dict[str, str], metastore: Metastore, table: Table
) -> None:
    """PyIceberg's commit creates a table that the metastore does not have, unless something is required of it."""
    metastore.fail("lock", first(lambda: table.catalog.drop_table("db.t")))
    with pytest.raises(errors.CommitOutcomeUnknownError, match="dropped"):
        tblctl.from_iceberg(another(options)).recluster(cluster_by="id", policy="full")
    assert metastore.tables == {}


@pytest.mark.parametrize("call", ["get_table", "get_all_databases"])
@pytest.mark.parametrize("error", ["refused", "cut"])
def test_a_metastore_that_fails_is_named(
    options: dict[str, str], metastore: Metastore, table: Table, call: str, error: str
) -> None:
    """Hive's own errors are frozen: nobody can raise them again."""
    metastore.fail(call, raising(DOWN if error == "refused" else Cut()))
    words = ["iceberg://prod/db.t", "--columns", "id"] if call == "get_table" else ["--all", "iceberg://prod"]
    told = run(options, "info", *words, code=1)
    assert "cannot be read" in told
    assert "a bug in tblctl" not in told
    assert error == "cut" or "the database is down" in told
    run(options, "info", *words)


def test_what_is_no_table_of_iceberg_is_said_to_be_none(
    options: dict[str, str], metastore: Metastore, table: Table
) -> None:
    for name, parameters in (("plain", {}), ("orc", {"table_type": "orc"})):
        made = copy.deepcopy(metastore.table("t"))
        made.tableName, made.parameters = name, parameters
        metastore.tables["db", name] = made
        told = run(options, "info", f"iceberg://prod/db.{name}", code=1)
        assert "Property table_type" in told
        assert "cannot be read" not in told
    assert run(options, "info", "--all", "iceberg://prod").count("iceberg://") == 1
    for name in ("db.none", "none.t", "a.b.t"):
        assert "there is no table" in run(options, "info", f"iceberg://prod/{name}", code=1)
    assert "there is no table" in run(
        options, "info", "--all", "iceberg://prod", "--namespace", "none", code=1
    )


def test_threads_share_a_table(options: dict[str, str], metastore: Metastore, table: Table) -> None:
    """Each call waits for one of another thread: connections are open side by side."""
    opened = tblctl.open("iceberg://prod/db.t", catalog_options=options)
    both = Barrier(2)
    metastore.fail("get_table", *[first(lambda: both.wait(30))] * 8)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: opened.info(columns="id").average_depth, range(8)))
    assert found == [2.0] * 8


def test_a_metastore_that_never_answers_is_given_up() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        uri = f"thrift://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(errors.StorageError, match="timeout"):
            tblctl.open("iceberg://slow/a.b", catalog_options={"uri": uri, "tblctl.request-timeout": "0.5"})


def test_of_several_addresses_the_first_that_answers_is_used(options: dict[str, str], table: Table) -> None:
    options["uri"] = f"thrift://127.0.0.1:1,{options['uri']}"
    assert "rows" in run(options, "info", "iceberg://prod/db.t", "--columns", "id")
    options["uri"] = "thrift://127.0.0.1:1,thrift://127.0.0.1:1"
    assert "Could not connect" in run(options, "info", "iceberg://prod/db.t", "--columns", "id", code=1)


@pytest.mark.parametrize("uri", ["metastore.example", "thrift://metastore.example", "thrift://:9083"])
def test_an_address_that_is_none_is_said_to_be_none(uri: str) -> None:
    with pytest.raises(errors.InvalidOptionError, match="expected thrift://HOST:PORT"):
        tblctl.open("iceberg://prod/db.t", catalog_options={"type": "hive", "uri": uri})


@pytest.mark.parametrize("ugi", ["etl:analysts", "etl"])
def test_the_user_is_told_to_the_metastore(
    options: dict[str, str], metastore: Metastore, table: Table, ugi: str
) -> None:
    run(options | {"ugi": ugi}, "info", "iceberg://prod/db.t", "--columns", "id")
    assert {user for user, _ in metastore.users} == {"etl"}
    metastore.fail("set_ugi", raising(Cut()))
    told = run(options | {"ugi": ugi}, "info", "iceberg://prod/db.t", "--columns", "id", code=1)
    assert "cannot be read" in told


def test_kerberos_without_its_libraries_says_what_to_install(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "puresasl", None)
    told = run(options | {"hive.kerberos-authentication": "true"}, "info", "iceberg://prod/db.t", code=2)
    assert "pip install 'pyiceberg[hive-kerberos]'" in told
