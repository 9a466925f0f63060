"""Policies learn which run each block belongs to: from native segments, or the names of own Iceberg files."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

import tblctl
from tblctl.maintain.request import Request, selectable, table_view
from tblctl.tableformat.formats import open_port
from tblctl.tableformat.iceberg.own_files import OwnName
from tblctl.tableformat.iceberg.own_index import OwnIndex
from tblctl.tableformat.model.runs import NO_RUN, run_number, run_numbers
from tblctl.tableformat.model.schema.schema import Schema

ANYWHERE = Request.of(policy="runs", condition=lambda _: None, options=None)


def view_of(location):
    version, view = selectable(open_port(location).newest(), ANYWHERE)
    return version, view


def runs_of(location):
    """Return the runs of a table's blocks, and how many blocks each has."""
    version, view = view_of(location)
    found = table_view(version, view).run.tolist()
    return {run: found.count(run) for run in found}


@pytest.fixture
def table(tmp_path):
    made = tblctl.create(str(tmp_path / "t"), "k: int64", cluster_by="k", options={"block_rows": 10})
    for _ in range(3):
        made.append(pa.table({"k": list(range(40))}))
    return made


def test_an_append_is_a_run_and_so_is_a_merge(table):
    assert sorted(runs_of(table.location).values()) == [4, 4, 4]
    table.recluster(policy="full")
    assert list(runs_of(table.location).values()) == [12]


def test_a_delete_keeps_the_runs_of_what_it_leaves(table):
    before = runs_of(table.location)
    table.delete("k = 5")
    assert runs_of(table.location) == before


def test_a_view_keeps_the_runs_of_the_blocks_that_stay(table):
    _, view = view_of(table.location)
    first = view.listing.paths.to_pylist()[:4]
    found = view.replaced(frozenset(first), []).listing
    assert found.run.tolist() == view.listing.run.tolist()[4:]


def test_runs_have_the_same_number_at_every_reading():
    names = pa.array(["0196f2a4c0de" + "ab" * 10, None, "0", "a run", "0196f2a4c0de" + "ab" * 10])
    found = run_numbers(names).tolist()
    assert found == [run_number(name) for name in names.to_pylist()]
    assert found[0] == found[4] >= 0
    assert found[1:3] == [NO_RUN, NO_RUN]
    assert len({found[0], found[3], NO_RUN}) == 3
    assert run_numbers(names.dictionary_encode()).tolist() == found
    assert run_numbers(names[:0]).tolist() == []


@dataclass
class Entries:
    path: pa.Array

    def __len__(self):
        return len(self.path)


def test_own_iceberg_files_say_their_run_in_their_name():
    own = OwnName(table="ab" * 16, level=1, sort_id=3, run_id="0196f2a4c0de" + "cd" * 10)
    paths = [
        f"s3://b/t/{own.with_id('ef' * 16)}",
        "s3://b/t/other.parquet",
        f"s3://b/t/{own.with_id('01' * 16)}",
    ]
    index = OwnIndex(
        Entries(pa.array(paths)),
        own.table,
        Schema.create(pa.schema([("k", pa.int64())])),
        side_rows=lambda _: [],
        footers=lambda _: [],
    )
    number = run_number(own.run_id)
    assert index.runs(3).tolist() == [number, NO_RUN, number]
    assert index.runs(4).tolist() == [NO_RUN] * 3, "runs by another sort overlap by this one"
