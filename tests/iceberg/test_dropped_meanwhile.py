"""A table that is dropped, or replaced by another one of its name, during a recluster: an error, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

import tblctl
from tblctl import errors
from tests.iceberg.lake import Lake, append, fields
from tests.iceberg.leftovers import named_files
from tests.iceberg.replacing import Meanwhile, after, raising, sorted_ids
from tests.iceberg.rest_catalog import RestCatalog

COLUMNS = fields(id=LongType(), s=StringType())
BY_TEXT = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "s"))
NEW = [7, 8, 9]


class Change:
    """Drops the table, or replaces it; knows which files it had before, and which the new one has."""

    def __init__(self, lake: Lake, kind: str) -> None:
        self.lake, self.replaces = lake, kind == "replaced"
        self.old: set[Path] = set()
        self.new: set[Path] = set()

    def files(self) -> set[Path]:
        return {path for path in (self.lake.folder / "tables").rglob("*") if path.is_file()}

    def __call__(self) -> None:
        self.old = self.files()
        self.lake.catalog.drop_table("db.t")
        if self.replaces:
            table = self.lake.create("t", COLUMNS)
            append(table, id=NEW, s=["new"] * len(NEW))
            self.new = {Path(name.removeprefix("file://")) for name in named_files(table.refresh())}
            self.new |= {Path(entry.metadata_file) for entry in table.metadata.metadata_log}

    def assert_harmless(self) -> None:
        """Require that the new table is as it was made."""
        assert self.old, "nothing was changed"
        assert self.new <= self.files()
        if self.replaces:
            table = self.lake.load("t")
            assert sorted_ids(table) == NEW
            assert len(table.metadata.snapshots) == 1
            assert tblctl.from_iceberg(table).check(deep=True).problems == ()
            assert table.properties == {}
        else:
            assert not self.lake.catalog.table_exists("db.t")


@pytest.fixture(params=["dropped", "replaced"])
def change(request: pytest.FixtureRequest, lake: Lake) -> Change:
    """Return a change of a table of two partitions, each of two files that overlap."""
    table = lake.create("t", COLUMNS, partition_spec=BY_TEXT, properties={"commit.retry.min-wait-ms": "1"})
    for first in range(2):
        append(table, id=list(range(first, 40, 2)), s=["a", "b"] * 10)
    return Change(lake, request.param)


def test_after_the_plan(change: Change) -> None:
    opened = change.lake.open("t")
    plan = opened.plan(policy="full", cluster_by="id")
    change()
    kind = errors.InvalidOptionError if change.replaces else errors.TableNotFoundError
    with pytest.raises(kind, match="made for another table" if change.replaces else "no table at"):
        opened.recluster(plan, cluster_by="id")
    change.assert_harmless()
    assert change.files() == change.old | change.new


def test_during_the_merge(change: Change) -> None:
    def progress(*_: Any) -> None:
        if not change.old:
            change()

    with pytest.raises(errors.TableNotFoundError, match="dropped" if change.replaces else "no table at"):
        change.lake.open("t").recluster(cluster_by="id", policy="full", progress=progress)
    change.assert_harmless()
    left = change.files() - change.new
    assert {path for path in left if "tblctl-" in path.name} == set(), "files of the merge are left"


def committed(real: Callable[[], Any]) -> Any:
    return real()


@pytest.mark.parametrize("commits_before", [0, 1])
def test_while_a_commit_is_on_its_way_to_the_catalog(change: Change, commits_before: int) -> None:
    table = change.lake.load("t")
    acts = [*[committed] * commits_before, after(change)]
    with Meanwhile(table, *acts), pytest.raises(errors.CommitOutcomeUnknownError) as caught:
        tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full", commit_every=1)
    assert "the table was dropped while the recluster committed" in str(caught.value)
    change.assert_harmless()


def test_after_a_commit_without_an_answer(change: Change) -> None:
    """It may have happened: the dropped table may be restored, with the new files in it."""

    def act(real: Callable[[], Any]) -> Any:
        answered = raising(ConnectionError("gone"), landed=True)
        try:
            answered(real)
        finally:
            change()

    table = change.lake.load("t")
    with Meanwhile(table, act), pytest.raises(errors.CommitOutcomeUnknownError, match="table was dropped"):
        tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    change.assert_harmless()
    assert change.old <= change.files()


def test_through_a_rest_catalog(change: Change) -> None:
    def commit(real: Callable[[], None]) -> None:
        change()
        real()

    with RestCatalog(change.lake.catalog, on_commit=commit) as server:
        table: Table = load_catalog("rest", type="rest", uri=server.uri).load_table("db.t")
        with pytest.raises(errors.CommitOutcomeUnknownError, match="the table was dropped"):
            tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    change.assert_harmless()
