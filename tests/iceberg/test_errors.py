"""What is wrong with an Iceberg table, its catalog or its storage is said in one sentence, with what to do."""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import Table
from pyiceberg.types import LongType

import tblctl
from tblctl.cli.failures import exit_code
from tblctl.cli.main import application
from tblctl.tableformat.errors import (
    AccessDeniedError,
    CorruptTableError,
    InvalidKeyError,
    InvalidOptionError,
    ObjectNotFoundError,
    SnapshotNotFoundError,
    StorageError,
    TableNotFoundError,
    TblctlError,
    UnsupportedFormatError,
)
from tblctl.tableformat.iceberg.location import IcebergLocation, parse_location, parse_names
from tblctl.tableformat.storage import Storage

from .lake import NAME, Lake, append, fields, rewrite_metadata


@pytest.fixture
def table(lake: Lake) -> Table:
    found = lake.create("t", fields(id=LongType()), properties={"tblctl.cluster-by": "id"})
    append(found, id=[1, 2])
    append(found, id=[2, 3])
    return found


def failure(kind: type[TblctlError], use: Callable[[], Any]) -> TblctlError:
    """Return the error that a call raises: of exactly this kind, in one line."""
    with pytest.raises(TblctlError) as caught:
        use()
    assert type(caught.value) is kind, repr(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


def test_unknown_tables_and_namespaces_are_named(lake: Lake, table: Table) -> None:
    for name in ("db.nothing", "nowhere.t", "a.b.c.t"):
        error = failure(
            TableNotFoundError,
            lambda name=name: tblctl.open(f"iceberg://lake/{name}", catalog_options=lake.options),
        )
        assert f"iceberg://lake/{name}" in str(error)
        assert "tblctl info --all iceberg://CATALOG" in str(error)
        assert exit_code(error) == 1


def test_an_unknown_catalog_is_named_with_those_there_are(lake: Lake) -> None:
    error = failure(InvalidOptionError, lambda: tblctl.open("iceberg://no_such_catalog/db.t"))
    assert "'no_such_catalog' cannot be opened: it has no uri" in str(error)
    assert "--uri" not in str(error), "an option of another command"
    assert "PYICEBERG_CATALOG__NO_SUCH_CATALOG__URI" in str(error)
    assert "--catalog-option uri=" in str(error)
    assert exit_code(error) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"type": "nonsense"},
        {"uri": "ftp://x"},
        {"type": "sql"},
        {"type": "sql", "uri": "nonsense"},
        {"type": "sql", "uri": "sqlite:////nowhere/at/all/catalog.db"},
        {"type": "sql", "uri": "postgresql+psycopg2://127.0.0.1:1/x"},
        {"type": "rest", "uri": "http://127.0.0.1:1"},
        {"type": "hive", "uri": "thrift://127.0.0.1:1"},
        {"py-catalog-impl": "no.such.Catalog"},
    ],
    ids=lambda options: options.get("uri") or options.get("type") or "impl",
)
def test_catalogs_that_cannot_be_opened_are_named(lake: Lake, options: dict[str, str]) -> None:
    with pytest.raises((InvalidOptionError, StorageError), match="cat") as caught:
        tblctl.open("iceberg://cat/db.t", catalog_options=options)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_catalog_whose_library_is_missing_says_what_to_install(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyiceberg.catalog.dynamodb", None)
    error = failure(
        InvalidOptionError, lambda: tblctl.open("iceberg://cat/db.t", catalog_options={"type": "dynamodb"})
    )
    assert "catalog cat" in str(error)
    assert "pip install" in str(error)
    assert exit_code(error) == 2


def test_a_database_that_is_gone_is_not_made_anew(lake: Lake, table: Table) -> None:
    other = lake.folder / "new.db"
    options = lake.options | {"uri": f"sqlite:///{other}"}
    error = failure(InvalidOptionError, lambda: tblctl.open("iceberg://lake/db.t", catalog_options=options))
    assert f"there is no database {other}" in str(error)
    assert not other.exists()


def test_a_database_without_a_catalog_gets_none(lake: Lake, table: Table) -> None:
    other = lake.folder / "new.db"
    other.touch()
    options = lake.options | {"uri": f"sqlite:///{other}"}
    error = failure(TableNotFoundError, lambda: tblctl.open("iceberg://lake/db.t", catalog_options=options))
    assert "has no tables of an Iceberg catalog" in str(error)
    assert other.stat().st_size == 0


def test_a_damaged_database_is_named(lake: Lake, table: Table) -> None:
    (lake.folder / "catalog.db").write_bytes(b"nonsense" * 1000)
    error = failure(StorageError, lambda: lake.open("t"))
    assert "catalog lake" in str(error)


def test_a_secret_in_a_catalogs_address_is_not_shown(lake: Lake) -> None:
    options = {"type": "sql", "uri": "postgresql+psycopg2://me:hunter2@127.0.0.1:1/x"}
    with pytest.raises(TblctlError) as caught:
        tblctl.open("iceberg://cat/db.t", catalog_options=options)
    assert "hunter2" not in str(caught.value)


def test_a_table_that_was_dropped_meanwhile_is_not_found(lake: Lake, table: Table) -> None:
    opened = lake.open("t")
    handle = tblctl.from_iceberg(table)
    lake.catalog.drop_table("db.t")
    for use in (opened.info, opened.history, handle.plan, lambda: opened.snapshot):
        assert "db.t" in str(failure(TableNotFoundError, use))


@pytest.mark.parametrize("branch", ["nope", "t1"])
def test_an_unknown_branch_is_an_input_error(lake: Lake, table: Table, branch: str) -> None:
    table.manage_snapshots().create_tag(table.history()[0].snapshot_id, "t1").commit()
    error = failure(SnapshotNotFoundError, lambda: lake.open("t", branch=branch))
    assert repr(branch) in str(error)
    assert exit_code(error) == 1


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def manifests_of(table: Table) -> list[Path]:
    snapshot = table.current_snapshot()
    return [local(manifest.manifest_path) for manifest in snapshot.manifests(table.io)]


def test_a_missing_manifest_is_named(lake: Lake, table: Table) -> None:
    (path, *_) = manifests_of(table)
    path.unlink()
    error = failure(ObjectNotFoundError, lambda: lake.open("t").info())
    assert path.name in str(error)
    assert "iceberg://lake/db.t" in str(error)
    assert exit_code(error) == 1
    report = lake.open("t").check()
    assert not report.ok
    assert path.name in report.problems[0]


def test_a_missing_manifest_list_is_named(lake: Lake, table: Table) -> None:
    path = local(table.current_snapshot().manifest_list)
    path.unlink()
    error = failure(ObjectNotFoundError, lambda: lake.open("t").info())
    assert path.name in str(error)
    assert not lake.open("t").check().ok


def damaged(data: bytes) -> list[bytes]:
    """Return the content cut off at many places, and with a byte changed at many places."""
    step = max(1, len(data) // 60)
    cut = [data[:end] for end in range(0, len(data), step)]
    flipped = [
        data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
        for at in range(0, len(data), step)
        for flip in (0x01, 0x80, 0xFF)
    ]
    return [*cut, *flipped, b"nonsense", data + b"more"]


@pytest.mark.parametrize("what", ["manifest", "list"])
def test_damaged_metadata_is_an_error_of_tblctl_or_does_no_harm(lake: Lake, table: Table, what: str) -> None:
    path = manifests_of(table)[0] if what == "manifest" else local(table.current_snapshot().manifest_list)
    whole = path.read_bytes()
    found: list[TblctlError] = []
    for data in damaged(whole):
        path.write_bytes(data)
        try:
            lake_info(table)
        except TblctlError as error:
            found.append(error)
    assert all("iceberg://lake/db.t" in str(error) for error in found)
    assert sum(isinstance(error, CorruptTableError) for error in found) > 60
    path.write_bytes(whole[: len(whole) // 2])
    error = failure(CorruptTableError, lambda: lake_info(table))
    assert path.name in str(error)
    assert not lake.open("t").check().ok


def test_a_manifest_list_with_a_field_of_another_type_is_damaged(lake: Lake, table: Table) -> None:
    path = local(table.current_snapshot().manifest_list)
    whole = path.read_bytes()
    wrong = whole.replace(b'"field-id": 502, "type": "int"', b'"field-id": 502, "type":"long"')
    assert len(wrong) == len(whole)
    assert wrong != whole
    path.write_bytes(wrong)
    error = failure(CorruptTableError, lambda: lake_info(table))
    assert "iceberg://lake/db.t" in str(error)
    assert path.name in str(error)


def lake_info(table: Table) -> Any:
    return tblctl.from_iceberg(table).info()


def test_metadata_that_is_no_json_is_named(lake: Lake, table: Table) -> None:
    path = local(table.metadata_location)
    for text in ("{", "[]", "{}", "", '{"format-version": 2}'):
        path.write_text(text)
        error = failure(CorruptTableError, lambda: lake.open("t"))
        assert "iceberg://lake/db.t" in str(error)
    path.unlink()
    assert path.name in str(failure(ObjectNotFoundError, lambda: lake.open("t")))


def test_a_newer_format_version_is_refused_by_its_number(lake: Lake, table: Table) -> None:
    rewrite_metadata(lake, "t", lambda metadata: metadata.update({"format-version": 4}))
    error = failure(UnsupportedFormatError, lambda: lake.open("t"))
    assert "version 4" in str(error)


def test_a_type_that_pyiceberg_does_not_know_is_refused(lake: Lake, table: Table) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata["format-version"] = 3
        metadata["next-row-id"] = 0
        metadata["schemas"][-1]["fields"].append({"id": 9, "name": "v", "type": "variant", "required": False})

    rewrite_metadata(lake, "t", change)
    error = failure(UnsupportedFormatError, lambda: lake.open("t"))
    assert "variant" in str(error)


def test_a_current_snapshot_that_metadata_lacks_is_corrupt(lake: Lake, table: Table) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = 42

    rewrite_metadata(lake, "t", change)
    error = failure(CorruptTableError, lambda: lake.open("t").info())
    assert "42" in str(error)


@pytest.mark.parametrize(
    "location", ["iceberg://", "iceberg://lake", "iceberg://lake/t", "iceberg://lake/a..b", "iceberg:///a.b"]
)
def test_locations_that_name_no_table_are_refused(lake: Lake, location: str) -> None:
    error = failure(InvalidOptionError, lambda: tblctl.open(location, catalog_options=lake.options))
    assert "iceberg://CATALOG/NAMESPACE.TABLE" in str(error)
    assert exit_code(error) == 2


def test_names_with_dots_are_quoted(lake: Lake) -> None:
    for names in (("db", "a.b"), ("a.b", "c.d", "t"), ("db", "t"), ("x.y", 'a"b'), ('"', '".""')):
        location = IcebergLocation(catalog="lake", table=names)
        assert parse_location(str(location)) == location


@pytest.mark.parametrize("name", ['a"b', "a?b", "a#b", "a.b?c=d&e", "a b", "u:p@h/x"])
def test_tables_of_odd_names_are_found_and_measured(lake: Lake, name: str) -> None:
    names = ("db", name)
    table = lake.catalog.create_table(names, fields(id=LongType()), location=str(lake.folder / "plain"))
    append(table, id=[1])
    [found] = tblctl.find_tables(f"iceberg://{NAME}", catalog_options=lake.options)
    assert parse_location(found).table == names
    assert tblctl.open(found, catalog_options=lake.options).info("id").rows == 1
    [surveyed] = tblctl.survey([found], columns="id", catalog_options=lake.options)
    assert (surveyed.location, surveyed.error) == (found, None)


def test_a_namespace_with_a_dot_is_quoted(lake: Lake) -> None:
    lake.catalog.create_namespace(("x.y",))
    lake.catalog.create_table(("x.y", "t"), fields(id=LongType()), location=str(lake.folder / "plain"))
    words = {"catalog_options": lake.options}
    found = tblctl.find_tables(f"iceberg://{NAME}", namespace='"x.y"', **words)
    assert found == ["iceberg://lake/x.y.t"], "PyIceberg's SQL catalogs join the names of a namespace"
    assert parse_names('"x.y".a') == ("x.y", "a")
    error = failure(
        InvalidOptionError, lambda: tblctl.find_tables("iceberg://lake", namespace='"x.y', **words)
    )
    assert "is no namespace" in str(error)


@pytest.mark.parametrize("driver", ["sqlite", "sqlite+pysqlite"])
def test_no_driver_of_sqlite_makes_a_database(lake: Lake, driver: str) -> None:
    other = lake.folder / "new.db"
    options = lake.options | {"uri": f"{driver}:///{other}"}
    failure(InvalidOptionError, lambda: tblctl.open("iceberg://lake/db.t", catalog_options=options))
    assert not other.exists()


def test_a_table_of_a_catalog_in_memory_cannot_be_sent_to_another_process(tmp_path: Path) -> None:
    catalog = InMemoryCatalog("m", warehouse=str(tmp_path))
    catalog.create_namespace("db")
    table = tblctl.from_iceberg(catalog.create_table("db.t", fields(id=LongType())))
    with pytest.raises(InvalidOptionError, match="in the memory of this process"):
        pickle.dumps(table)


@pytest.mark.parametrize("use", ["suggest", "picture"])
def test_a_wrong_key_property_stops_only_what_needs_the_key(lake: Lake, table: Table, use: str) -> None:
    with table.transaction() as change:
        change.set_properties({"tblctl.cluster-by": "nothing"})
    if use == "suggest":
        assert lake.open("t").suggest().candidates
        assert lake.open("t").suggest().cluster_by == ()
    else:
        lake.open("t").picture(lake.folder / "t.html", columns="id")
    error = failure(InvalidKeyError, lambda: lake.open("t").info())
    assert "--columns a,b` to measure" in str(error)


def test_tables_are_found_in_namespaces_at_every_depth(lake: Lake, table: Table) -> None:
    for name in ("db.inner", "db.inner.most", "other", "db_x"):
        lake.catalog.create_namespace(name)
    for name in ("db.inner.a", "db.inner.most.b", "other.c", "db_x.d"):
        lake.catalog.create_table(name, fields(id=LongType()))
    from tblctl.iceberg import find_iceberg_tables

    def found(**more: str) -> list[str]:
        tables = find_iceberg_tables(f"iceberg://{NAME}", catalog_options=lake.options, **more)
        return [name.removeprefix("iceberg://lake/") for name in tables]

    assert found() == ["db.inner.a", "db.inner.most.b", "db.t", "db_x.d", "other.c"]
    assert found(namespace="db") == ["db.inner.a", "db.inner.most.b", "db.t"]
    assert found(namespace="db.inner") == ["db.inner.a", "db.inner.most.b"]
    failure(TableNotFoundError, lambda: found(namespace="nowhere"))


def test_a_storage_that_pyiceberg_does_not_know_is_named(lake: Lake, table: Table) -> None:
    def change(metadata: dict[str, Any]) -> None:
        for snapshot in metadata["snapshots"]:
            snapshot["manifest-list"] = "nonsense://bucket/list.avro"

    rewrite_metadata(lake, "t", change)
    error = failure(StorageError, lambda: lake.open("t").info())
    assert "nonsense://bucket/list.avro" in str(error)


def test_a_storage_library_that_cannot_be_loaded_is_named(lake: Lake, table: Table) -> None:
    options = lake.options | {"py-io-impl": "no.such.FileIO"}
    error = failure(InvalidOptionError, lambda: tblctl.open("iceberg://lake/db.t", catalog_options=options))
    assert "no.such.FileIO" in str(error)


def test_a_metadata_file_on_unknown_storage_is_named(lake: Lake, table: Table) -> None:
    with contextlib.closing(sqlite3.connect(lake.folder / "catalog.db")) as database, database:
        database.execute("UPDATE iceberg_tables SET metadata_location = 'nonsense://bucket/1.metadata.json'")
    error = failure(StorageError, lambda: lake.open("t"))
    assert "nonsense" in str(error)


@pytest.fixture
def configured(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The catalog is in PyIceberg's own configuration, which it reads when it is imported."""
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    for name, value in lake.options.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    return lake


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("info", "iceberg://lake/db.t"), 0, "depth"),
        (("check", "iceberg://lake/db.t"), 0, ""),
        (("info", "iceberg://lake/db.nothing"), 1, "no table at iceberg://lake/db.nothing"),
        (("info", "iceberg://nope/db.t"), 2, "catalog 'nope'"),
        (("info", "iceberg://lake"), 2, "names no Iceberg table"),
        (("info", "iceberg://lake/db.t", "--columns", "nope"), 2, "nope"),
        (("recluster", "iceberg://lake/db.t"), 0, "reclustered 4 rows"),
        (("gc", "iceberg://lake/db.t", "--older-than", "1h"), 2, "at least 24h"),
        (("drop", "iceberg://lake/db.t"), 2, "Iceberg"),
        (("history", "iceberg://lake/db.nothing"), 1, "no table at"),
    ],
)
def test_commands_end_with_a_message_and_a_code(
    configured: Lake, table: Table, words: tuple[str, ...], code: int, said: str
) -> None:
    result = CliRunner().invoke(application, list(words))
    assert result.exit_code == code, result.output
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_a_damaged_table_fails_its_check(configured: Lake, table: Table) -> None:
    manifests_of(table)[0].write_bytes(b"Obj\x01nonsense")
    result = CliRunner().invoke(application, ["check", "iceberg://lake/db.t", "--json"])
    assert result.exit_code == 1
    assert not json.loads(result.stdout)["ok"]
    shutil.rmtree(lake_tables := configured.folder / "tables")
    assert not lake_tables.exists()
    result = CliRunner().invoke(application, ["info", "iceberg://lake/db.t"])
    assert result.exit_code == 1
    assert "missing" in result.output or "No such file" in result.output


def test_a_catalog_that_never_answers_is_given_up() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        options = {
            "type": "rest",
            "uri": f"http://127.0.0.1:{server.getsockname()[1]}",
            "tblctl.request-timeout": "0.5",
        }
        with pytest.raises(StorageError, match="timed out"):
            tblctl.open("iceberg://slow/a.b", catalog_options=options)


@pytest.mark.parametrize("call", ["write", "delete"])
@pytest.mark.parametrize("folder", ["data", "metadata", "elsewhere"])
def test_a_recluster_that_may_not_write_where_manifests_or_data_go_is_refused_before_it_merges(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, folder: str, call: str
) -> None:
    if folder == "elsewhere":
        with table.transaction() as transaction:
            transaction.set_properties({"write.metadata.path": f"{table.location()}/elsewhere"})
    before, real = table.refresh().metadata_location, getattr(Storage, call)

    def denied(storage: Storage, names: Any, *more: Any) -> Any:
        if f"/{folder}/tblctl-" in str(names):
            raise AccessDeniedError("not for you")
        return real(storage, names, *more)

    monkeypatch.setattr(Storage, call, denied)
    error = failure(AccessDeniedError, lambda: lake.open("t").recluster(policy="full"))
    assert f"/{folder}; nothing was changed" in str(error)
    assert table.refresh().metadata_location == before
