"""Iceberg tables by the leaves of a tree: the tree lives in a property, and everybody else reads the table as ever."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyiceberg.table import Table

import tblctl
from tblctl.cli.main import application
from tblctl.tableformat.errors import InvalidKeyError, InvalidPredicateError, TblctlError
from tblctl.tableformat.iceberg import curves

from .lake import Lake, version_of
from .test_curves import small
from .test_final import all_rows, files_of

CONDITIONS = "a < 50\nb IN (3, 5)\ns LIKE '1%' AND b > 20\n"


def filed(tmp_path: Path, text: str = CONDITIONS, more: str = ", min_rows=20") -> str:
    (tmp_path / "cuts.sql").write_text(text)
    return f"qdtree(file:{tmp_path}/cuts.sql{more})"


def kept(table: Table) -> dict[str, str]:
    found = table.refresh().properties
    return {name: text for name, text in found.items() if name.startswith(("tblctl.cl", "tblctl.tree"))}


def tree_property(table: Table) -> str:
    (name,) = (name for name in kept(table) if name.startswith("tblctl.tree."))
    return name


def test_a_table_is_put_by_leaf_and_stays_without_the_file(lake: Lake, tmp_path: Path) -> None:
    made = small(lake)
    rows, key = all_rows(made), filed(tmp_path, more=', min_rows=20, by="s"')
    table = tblctl.from_iceberg(made)
    before = made.metadata_location
    assert table.info(columns=key).average_depth > 1
    assert table.plan("full", cluster_by=key).groups
    assert made.refresh().metadata_location == before, "what is asked is not kept"
    outcome = table.recluster(cluster_by=key, final=True)
    assert outcome.commits >= 1
    assert all_rows(made) == rows
    assert kept(made)["tblctl.cluster-by"] == key
    tree = json.loads(zlib.decompress(base64.b64decode(kept(made)[tree_property(made)])))
    assert tree["text"] == key
    assert tree["by"] == [[3, "identity", False, False]]
    assert {file.file.sort_order_id for file in made.scan().plan_files()} <= {None, 0}
    (tmp_path / "cuts.sql").unlink()
    again = tblctl.from_iceberg(made.refresh())
    assert version_of(made).cluster_by == (key,)
    assert again.info().unclustered_block_count == 0
    assert again.recluster(final=True).commits == 0
    assert again.check(deep=True).problems == ()
    files = files_of(made)
    with pytest.raises(InvalidKeyError, match="type it again to grow a new tree"):
        again.recluster(cluster_by="same")
    with pytest.raises(InvalidKeyError, match="no file of conditions"):
        again.recluster(cluster_by=key)
    assert files_of(made) == files


def test_a_tree_that_the_property_lacks_is_never_grown_from_the_file_that_it_names(
    lake: Lake, tmp_path: Path
) -> None:
    made = small(lake, filed(tmp_path))
    table = tblctl.from_iceberg(made)
    for use in (table.info, lambda: table.recluster(policy="full")):
        with pytest.raises(InvalidKeyError, match="name a key: `recluster --cluster-by"):
            use()
    table.recluster(cluster_by=filed(tmp_path), policy="full")
    name = tree_property(made)
    for text in ("", "AAAA", base64.b64encode(zlib.compress(b"{}")).decode()):
        with made.transaction() as change:
            change.set_properties({name: text})
        with pytest.raises(InvalidKeyError, match="has no tree of columns"):
            tblctl.from_iceberg(made.refresh()).info()
    assert len(files_of(made)) == len(files_of(made.refresh()))


def test_a_dropped_column_of_the_tree_is_an_error_and_a_renamed_one_is_none(
    lake: Lake, tmp_path: Path
) -> None:
    made = small(lake)
    tblctl.from_iceberg(made).recluster(cluster_by=filed(tmp_path), policy="full")
    with made.update_schema() as change:
        change.rename_column("b", "other")
    assert tblctl.from_iceberg(made.refresh()).info().unclustered_block_count == 0
    with made.update_schema() as change:
        change.delete_column("other")
    with pytest.raises(InvalidKeyError, match="has no tree of columns that the table has"):
        tblctl.from_iceberg(made.refresh()).info()


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("gone = 1", InvalidPredicateError, "gone"),
        ("a < 5 AND a > 7", InvalidPredicateError, "no row satisfies"),
        ("TRUE", InvalidPredicateError, "holds for all rows or for none"),
        ("a = = 1", InvalidPredicateError, "cannot read the condition"),
        ("s LIKE '%x'", InvalidKeyError, "suggests a cut"),
    ],
)
def test_conditions_of_no_use_are_refused_and_nothing_changes(
    lake: Lake, tmp_path: Path, text: str, kind: type[TblctlError], words: str
) -> None:
    made = small(lake, "a")
    before = made.metadata_location
    with pytest.raises(kind, match=words):
        tblctl.from_iceberg(made).recluster(cluster_by=filed(tmp_path, text))
    assert made.refresh().metadata_location == before


def test_a_tree_needs_rows_and_room_in_a_property(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = small(lake)
    monkeypatch.setattr(curves, "MOST_CHARACTERS", 50)
    with pytest.raises(InvalidKeyError, match="give a larger min_rows"):
        tblctl.from_iceberg(made).recluster(cluster_by=filed(tmp_path))
    made.delete()
    with pytest.raises(InvalidKeyError, match="a tree takes its cuts from rows"):
        tblctl.from_iceberg(made.refresh()).info(columns=filed(tmp_path))


def test_the_command_takes_a_tree(lake: Lake, tmp_path: Path) -> None:
    made, key = small(lake), filed(tmp_path)
    options = [f"--catalog-option={name}={value}" for name, value in lake.options.items()]
    where = "iceberg://lake/db.t"

    def run(*words: str) -> str:
        found = CliRunner().invoke(application, [*words, *options])
        assert found.exit_code == 0, found.output
        return found.stdout

    what_if = json.loads(run("info", where, "--columns", key, "--json"))
    run("recluster", where, "--cluster-by", key, "--final")
    figures = json.loads(run("info", where, "--json"))
    assert figures["cluster_by_keys"] == [key]
    assert what_if["average_depth"] > figures["average_depth"]
    assert kept(made)["tblctl.cluster-by"] == key
