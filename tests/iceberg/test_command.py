"""The command on Iceberg tables: what people type, what they see, and what is refused."""

from __future__ import annotations

import datetime
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

import tblctl
from tblctl.cli.main import application
from tblctl.tableformat.iceberg import port
from tblctl.tableformat.model.snapshot import Summary

COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
)
DAY = datetime.datetime(2026, 1, 1)


def rows(ids: range, region: str | None = "eu") -> pa.Table:
    """Rows whose times follow their ids, an hour each."""
    times = [DAY + datetime.timedelta(hours=id) for id in ids]
    arrays = [
        pa.array(ids, pa.int64()),
        pa.array([region] * len(ids), pa.string()),
        pa.array(times, pa.timestamp("us")),
    ]
    return pa.table(arrays, names=["id", "region", "at"])


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture
def catalog(uri: str, tmp_path: Path) -> Catalog:
    """A catalog with `sales.orders`, three files that overlap, sorted by id, and `sales.web.hits`, partitioned."""
    found = load_catalog("prod", type="sql", uri=uri, warehouse=f"file://{tmp_path}/warehouse")
    found.create_namespace("sales")
    found.create_namespace("sales.web")
    orders = found.create_table(
        "sales.orders", COLUMNS, sort_order=SortOrder(SortField(1, transform=IdentityTransform()))
    )
    for first in (0, 5, 10):
        orders.append(rows(range(first, first + 10)))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    hits = found.create_table(("sales", "web", "hits"), COLUMNS, partition_spec=spec)
    for region in ("eu", "us", None):
        hits.append(pa.concat_tables([rows(range(10), region), rows(range(5), "eu")]))
    return found


@pytest.fixture
def words(uri: str, catalog: Catalog) -> tuple[str, ...]:
    return ("--catalog-option", f"uri={uri}")


def run(*words: object) -> Result:
    return CliRunner().invoke(application, [str(word) for word in words])


def done(*words: object) -> str:
    result = run(*words)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def as_json(*words: object) -> Any:
    return json.loads(done(*words, "--json"))


def refused(*words: object) -> str:
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert "bug in tblctl" not in result.stderr
    return result.stderr


ORDERS = "iceberg://prod/sales.orders"
HITS = "iceberg://prod/sales.web.hits"


def test_info_shows_how_deep_the_files_of_a_sorted_table_lie(words: tuple[str, ...]) -> None:
    text = done("info", ORDERS, *words)
    assert text.splitlines()[:3] == [
        "cluster key  id nulls first",
        "rows         30",
        "blocks       3",
    ]
    found = as_json("info", ORDERS, *words)
    assert (found["average_depth"], found["average_overlaps"]) == (2.0, 1.3333)
    assert (found["unclustered_block_count"], found["unknown_block_count"]) == (0, 0)
    assert found["delete_files"] == {"position": 0, "equality": 0}


def test_columns_and_where_are_taken_as_everywhere(words: tuple[str, ...]) -> None:
    assert as_json("info", ORDERS, "--columns", "day(at) desc", *words)["cluster_by_keys"] == ["day(at) desc"]
    assert as_json("info", ORDERS, "--where", "id > 17", *words)["total_block_count"] == 1
    assert as_json("depth", ORDERS, "at", *words)["average_depth"] == 2.0


def test_partitions_are_measured_apart_and_named(words: tuple[str, ...]) -> None:
    found = as_json("info", HITS, "--columns", "id", *words)
    assert found["total_block_count"] == 5
    assert found["depth"]["max"] == 3
    assert found["worst"][0]["partition"] == "region=eu"
    table = done("info", HITS, "--columns", "id", *words)
    assert "worst  partition" in table
    assert "region=eu" in table


def test_a_dry_run_shows_groups_and_changes_nothing(words: tuple[str, ...], catalog: Catalog) -> None:
    before = catalog.load_table(("sales", "web", "hits")).metadata_location
    text = done("recluster", HITS, "--cluster-by", "id", "--dry-run", *words)
    assert "region=eu" in text
    assert text.endswith("Nothing was changed.\n")
    plan = as_json("recluster", HITS, "--cluster-by", "id", "--dry-run", "--policy", "full", *words)
    snapshot = catalog.load_table(("sales", "web", "hits")).current_snapshot()
    assert snapshot is not None
    assert plan["snapshot"] == str(snapshot.snapshot_id)  # 63 bits: numbers of JSON have 53
    assert plan["groups"][0]["partition"] == "region=eu"
    assert [len(group["blocks"]) for group in plan["groups"]] == [
        3,
        1,
        1,
    ]  # the others' files are sorted alone
    assert tblctl.Plan.from_json(plan).snapshot == plan["snapshot"]
    assert catalog.load_table(("sales", "web", "hits")).metadata_location == before


def test_a_table_without_a_key_says_what_to_do_on_iceberg(words: tuple[str, ...]) -> None:
    shown = run("info", HITS, *words)
    assert shown.exit_code == 0
    message = refused("recluster", "--dry-run", HITS, *words)
    assert "ALTER TABLE sales.web.hits WRITE ORDERED BY" in message
    for text in (shown.stdout, message):
        assert "--cluster-by a,b" in text
        assert "tblctl alter" not in text


def test_all_tables_of_a_catalog_are_listed_worst_first(words: tuple[str, ...]) -> None:
    found = as_json("info", "--all", "iceberg://prod", "--columns", "id", *words)
    assert [(item["location"], item["error"]) for item in found] == [(HITS, None), (ORDERS, None)]
    assert [item["rows"] for item in found] == [45, 30]
    inside = as_json("info", "--all", "iceberg://prod", "--namespace", "sales.web", "--columns", "id", *words)
    assert [item["location"] for item in inside] == [HITS]
    result = run("info", "--all", "iceberg://prod", "--namespace", "nothing", *words)
    assert result.exit_code == 1
    assert "nothing" in result.stderr


def test_history_and_suggest_and_check_and_pictures_work(words: tuple[str, ...], tmp_path: Path) -> None:
    history = as_json("history", ORDERS, *words)
    assert [entry["operation"] for entry in history] == ["append"] * 3
    assert [entry["rows"] for entry in history] == [30, 20, 10]
    assert all(isinstance(entry["sequence"], str) for entry in history)
    assert (history[0]["tags"], history[0]["options"]) == ([], None)
    assert as_json("suggest", HITS, *words)["candidates"]
    counts = {"snapshots": 3, "segments": 3, "blocks": 3, "rows": 30}
    assert as_json("check", ORDERS, *words) == {"ok": True, "deep": False, "problems": [], **counts}
    picture = tmp_path / "orders.svg"
    done("info", ORDERS, "--picture", picture, "--history", *words)
    assert picture.read_text().startswith("<?xml")
    first, last = history[-1]["sequence"], history[0]["sequence"]
    compared = as_json("info", ORDERS, "--compare", f"{first}:{last}", *words)["compared"]
    assert [(version["snapshot"], version["average_depth"]) for version in compared] == [
        (first, 1.0),
        (last, 2.0),
    ]


def test_info_says_how_many_delete_files_there_are(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "delete files" not in done("info", ORDERS, *words)
    monkeypatch.setattr(tblctl.IcebergTable, "delete_files", lambda _: {"position": 3, "equality": 1})
    assert "(delete files: 3 position, 1 equality; rows count as stored)" in done("info", ORDERS, *words)

    def fail(_: object) -> None:
        raise tblctl.errors.ObjectNotFoundError("it is missing")

    monkeypatch.setattr(tblctl.IcebergTable, "delete_files", fail)
    assert "(delete files cannot be counted: it is missing)" in done("info", ORDERS, *words)
    assert as_json("info", ORDERS, *words)["delete_files"] is None


def test_a_branch_is_measured(words: tuple[str, ...], catalog: Catalog) -> None:
    orders = catalog.load_table("sales.orders")
    first = orders.history()[0].snapshot_id
    orders.manage_snapshots().create_branch(first, "audit").commit()
    assert as_json("info", ORDERS, "--branch", "audit", *words)["rows"] == 10
    listed = as_json("info", "--all", "iceberg://prod", "--branch", "main", *words)
    assert [item["error"] for item in listed] == [None, None]
    branched = run("info", "--all", "iceberg://prod", "--branch", "audit", "--json", *words)
    found = {item["location"]: (item["rows"], item["error"]) for item in json.loads(branched.stdout)}
    assert found[ORDERS] == (10, None)
    assert "no branch 'audit'" in found[HITS][1]
    result = run("info", ORDERS, "--branch", "adit", *words)
    assert result.exit_code == 1
    assert "no branch 'adit'" in result.stderr
    assert "audit, main" in result.stderr


def test_catalogs_come_from_pyicebergs_own_configuration(uri: str, catalog: Catalog) -> None:
    environment = {**os.environ, "PYICEBERG_CATALOG__PROD__URI": uri}
    words = [sys.executable, "-m", "tblctl.cli", "info", ORDERS, "--json"]
    found = subprocess.run(words, env=environment, capture_output=True, check=True)
    assert json.loads(found.stdout)["rows"] == 30


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("gc", ORDERS, "--older-than", "1h"), "at least 24h"),
        (("recluster", "/nowhere", "--cluster-by", "id", "--dry-run"), "no table"),
    ],
)
def test_what_this_version_cannot_do_is_refused(
    words: tuple[str, ...], command: tuple[str, ...], expected: str
) -> None:
    if command[1] == "/nowhere":
        words = ()
    result = run(*command, *words)
    assert result.exit_code in (1, 2)
    assert expected in result.stderr
    assert "bug in tblctl" not in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("append", ORDERS, "x.parquet"),
        ("scan", ORDERS),
        ("delete", ORDERS, "--where", "id = 1"),
        ("update", ORDERS, "--set", "id = 1"),
        ("overwrite", ORDERS, "x.parquet"),
        ("alter", ORDERS, "--cluster-by", "id"),
        ("create", ORDERS, "--schema", "id: int64"),
        ("drop", ORDERS, "--yes"),
        ("files", ORDERS),
        ("rollback", ORDERS, "--to", "1"),
        ("tag", ORDERS, "v1"),
    ],
    ids=lambda command: command[0],
)
def test_commands_of_the_native_format_refuse_iceberg_tables(command: tuple[str, ...]) -> None:
    message = refused(*command)
    assert "is for tables of tblctl's own format" in message
    assert ORDERS in message


def test_options_of_catalogs_are_refused_for_native_tables(tmp_path: Path) -> None:
    tblctl.create(str(tmp_path / "t"), "id: int64", cluster_by="id")
    for option in (("--branch", "main"), ("--catalog-option", "uri=x")):
        assert "Iceberg" in refused("info", tmp_path / "t", *option)
    assert "Iceberg" in refused("info", "--all", tmp_path, "--namespace", "a")
    assert "tblctl alter" in refused("recluster", tmp_path / "t", "--cluster-by", "id", "--dry-run")


@pytest.mark.parametrize(
    "location", ["iceberg://", "iceberg://prod", "iceberg://prod/", "iceberg://prod/a", "iceberg://prod/a..b"]
)
def test_a_location_that_names_no_table_is_refused_with_its_form(location: str) -> None:
    assert "iceberg://CATALOG/NAMESPACE.TABLE" in refused("info", location)


def test_operations_of_the_native_format_are_refused_by_name(catalog: Catalog) -> None:
    table: Any = tblctl.from_iceberg(catalog.load_table("sales.orders"))
    with pytest.raises(tblctl.errors.InvalidOptionError, match="append is for tables of tblctl's own format"):
        table.append(rows(range(3)))
    assert not hasattr(table, "append")
    with pytest.raises(AttributeError, match="no attribute 'apend'"):
        table.apend()


def test_from_iceberg_takes_a_table_and_sees_later_commits(catalog: Catalog) -> None:
    orders = catalog.load_table("sales.orders")
    table = tblctl.from_iceberg(orders)
    assert (table.location, table.cluster_by) == (ORDERS, ("id nulls first",))
    assert table.info().average_depth == 2.0
    catalog.load_table("sales.orders").append(rows(range(20, 25)))
    assert table.info().rows == 35
    assert orders.metadata.current_snapshot_id != int(table.snapshot.sequence)  # the caller's is as it was
    plan = table.plan(policy="full", cluster_by=["id"])
    assert sum(len(group.blocks) for group in plan.groups) == 4


def test_secrets_of_the_configuration_are_not_shown_either() -> None:
    prefix = "PYICEBERG_CATALOG__LEAK__"
    configured = {f"{prefix}TYPE": "rest", f"{prefix}URI": "http//me:open-sesame@127.0.0.1:1/x"}
    words = [sys.executable, "-m", "tblctl.cli", "info", "iceberg://leak/a.b", "--debug"]
    found = subprocess.run(words, env=os.environ | configured, capture_output=True, text=True)
    assert found.returncode in (1, 2)
    assert "leak" in found.stderr
    assert "open-sesame" not in found.stdout + found.stderr


def test_a_survey_has_figures_of_tables_whose_summaries_lack_totals(
    uri: str, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        port, "_summary", lambda snapshot: Summary(operation="append", rows=0, blocks=0, data_bytes=0)
    )
    [found] = tblctl.survey([ORDERS], catalog_options={"uri": uri})
    assert (found.rows, found.blocks, found.bytes > 0) == (30, 3, True)


def test_tables_of_both_formats_are_opened_with_the_same_options(
    uri: str, catalog: Catalog, tmp_path: Path
) -> None:
    native = str(tmp_path / "native")
    tblctl.create(native, "id: int64", cluster_by="id").append(pa.table({"id": [1, 2]}))
    options = {"catalog_options": {"uri": uri}, "refine": True}
    found = tblctl.survey([native, ORDERS], **options)
    assert {(item.location, item.error) for item in found} == {(native, None), (ORDERS, None)}
    watched = tblctl.watch([native, ORDERS], every=60, options={"threshold": 1}, **options)
    rounds = [next(watched) for _ in range(2)]
    assert [(item.location, item.status) for item in rounds] == [(ORDERS, "reclustered"), (native, "idle")]


def test_an_old_snapshot_whose_metadata_is_gone_has_no_depth(uri: str, catalog: Catalog) -> None:
    orders = catalog.load_table("sales.orders")
    Path(orders.snapshots()[0].manifest_list.removeprefix("file://")).unlink()
    table = tblctl.open(ORDERS, catalog_options={"uri": uri})
    assert [point.average_depth for point in table.depth_history()] == [2.0, 2.0, None]
    Path(orders.snapshots()[-1].manifest_list.removeprefix("file://")).unlink()
    with pytest.raises(tblctl.errors.ObjectNotFoundError):
        table.depth_history()


def test_a_handle_can_be_pickled_and_shows_no_secret(uri: str, catalog: Catalog) -> None:
    options = {"uri": uri, "s3.secret-access-key": "secret-of-the-bucket"}
    table = tblctl.open(ORDERS, catalog_options=options)
    assert "secret" not in repr(table)
    for handle in (table, tblctl.from_iceberg(catalog.load_table("sales.orders"))):
        assert pickle.loads(pickle.dumps(handle)).info().average_depth == 2.0


@pytest.mark.parametrize(
    "words",
    [
        ("type=nothing", "password=open-sesame"),
        ("uri=postgresql+psycopg2://me:open-sesame@127.0.0.1:1/db",),
        ("type=rest", "uri=http://127.0.0.1:1", "credential=me:open-sesame"),
        ("py-catalog-impl=no.such.module", "token=open-sesame"),
        ("type=rest", "uri=http//me:open-sesame@127.0.0.1:1"),
    ],
    ids=["type", "database", "rest", "implementation", "mistyped address"],
)
def test_a_catalog_that_cannot_be_opened_is_named_without_its_secrets(words: tuple[str, ...]) -> None:
    result = run("info", ORDERS, *(item for word in words for item in ("--catalog-option", word)), "--debug")
    assert result.exit_code in (1, 2)
    assert "prod" in result.stderr
    assert "bug in tblctl" not in result.stderr
    assert "open-sesame" not in result.output


def test_a_key_by_which_nothing_was_merged_is_not_kept_and_that_is_said(
    words: tuple[str, ...], catalog: Catalog
) -> None:
    one = catalog.create_table("sales.single", COLUMNS, properties={"tblctl.cluster-by": "at"})
    one.append(rows(range(5)))
    full = ("--policy", "full", "--no-include-unclustered")
    text = done("recluster", "iceberg://prod/sales.single", "--cluster-by", "id", *full, *words)
    assert "the table's cluster key stays at" in text
    assert "ALTER TABLE sales.single SET TBLPROPERTIES ('tblctl.cluster-by' = 'id')" in text
    assert "in 1 of them rows may be in another order" in text
    found = as_json("recluster", "iceberg://prod/sales.single", "--cluster-by", "id", *words)
    assert "stays at" in found["note"]
    assert one.refresh().properties["tblctl.cluster-by"] == "at"
    same = as_json("recluster", "iceberg://prod/sales.single", "--cluster-by", "at", *words)
    assert "cluster key" not in same["note"]


def test_without_any_key_a_recluster_that_merged_nothing_says_so(
    words: tuple[str, ...], catalog: Catalog
) -> None:
    catalog.create_table("sales.none", COLUMNS).append(rows(range(5)))
    found = as_json("recluster", "iceberg://prod/sales.none", "--cluster-by", "id", *words)
    assert "the table still has no cluster key" in found["note"]


def test_another_key_replaces_that_of_the_property_and_says_so(
    words: tuple[str, ...], catalog: Catalog
) -> None:
    recluster = ("recluster", ORDERS, *words)
    assert "cluster key" not in done(*recluster, "--cluster-by", "id")  # it had none
    table = catalog.load_table("sales.orders")
    assert table.properties["tblctl.cluster-by"] == "id"
    table.append(rows(range(3, 9)))
    assert "cluster key" not in done(*recluster, "--cluster-by", "id", "--policy", "full")
    table.refresh().append(rows(range(3, 9)))
    text = done(*recluster, "--cluster-by", "region, id", "--policy", "full")
    assert "the cluster key (property tblctl.cluster-by) was id, and is region, id now" in text
    assert table.refresh().properties["tblctl.cluster-by"] == "region, id"


def test_entries_of_other_files_that_a_commit_writes_again_are_counted(
    words: tuple[str, ...], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each append has a manifest: of a file in each of the two partitions that it has rows of."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    table = catalog.create_table("sales.copied", COLUMNS, partition_spec=spec)
    table.append(pa.concat_tables([rows(range(10), "eu"), rows(range(10), "us")]))
    table.append(pa.concat_tables([rows(range(10), "eu"), rows(range(10), "de")]))
    full = ("--policy", "full", "--no-include-unclustered")
    recluster = ("recluster", "iceberg://prod/sales.copied", "--cluster-by", "id", *full, *words)
    outcome = as_json(*recluster)
    assert (outcome["committed_groups"], outcome["entries_copied"]) == (1, 2)
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["tblctl.entries-copied"] == "2"
    assert as_json(*recluster)["entries_copied"] == 0
    table.refresh().append(pa.concat_tables([rows(range(10), "eu"), rows(range(10), "fr")]))
    monkeypatch.setattr("tblctl.cli.show.outcomes._MANY_ENTRIES", 1)
    assert "manifest entries of other files were copied" in done(*recluster)
