"""`full` puts the rows of other writers' files in order, of files that overlap nothing, too. It does so once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyiceberg.io.pyarrow as writer
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

import tblctl

from .lake import Lake, append, fields

COLUMNS = fields(id=LongType(), other=LongType())
BY_BOTH = SortOrder(SortField(1, IdentityTransform()), SortField(2, IdentityTransform()))
FULL: dict[str, Any] = {"policy": "full", "final": True}


def ids_in(table: Table) -> list[list[int]]:
    """Return the ids of each file, in the order in which they are stored."""
    files = sorted(task.file.file_path for task in table.refresh().scan().plan_files())
    found = [writer.pq.read_table(path.removeprefix("file://"))["id"].to_pylist() for path in files]
    return sorted(found, key=min)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let PyIceberg claim an order of the files that it writes, as Spark does."""

    def claim(order: int) -> None:
        real = DataFile.from_args.__func__

        def from_args(cls: Any, *args: Any, **more: Any) -> Any:
            return real(cls, *args, **more | {"sort_order_id": order})

        monkeypatch.setattr(DataFile, "from_args", classmethod(from_args))

    return claim


def filled(lake: Lake, **how: Any) -> Table:
    """Return a table of three files that overlap nothing, each larger than half a file."""
    small = {"write.target-file-size-bytes": "1000"}
    table = lake.create("t", COLUMNS, properties=small, **how)
    for first in (0, 10, 20):
        append(table, id=[first + 2, first, first + 1], other=[0, 0, 0])
    return table


def test_files_that_overlap_nothing_are_sorted_once(lake: Lake) -> None:
    table = filled(lake)
    opened = tblctl.from_iceberg(table)
    assert opened.recluster(cluster_by=["id"], final=True).commits == 0, "levels looks at depth alone"
    assert opened.recluster(cluster_by=["id"], **FULL).commits == 1
    assert ids_in(table) == [[0, 1, 2], [10, 11, 12], [20, 21, 22]]
    assert opened.recluster(cluster_by=["id"], **FULL).commits == 0
    assert opened.recluster(**FULL).commits == 0
    assert opened.check(deep=True).ok
    append(table.refresh(), id=[32, 30], other=[0, 0])
    outcome = opened.recluster(**FULL)
    assert (outcome.rounds, outcome.rows) == (1, 2), "those in order stay"


def test_a_single_file_gets_the_key_that_is_asked_for(lake: Lake) -> None:
    table = lake.create("t", COLUMNS)
    append(table, id=[3, 1, 2], other=[0, 0, 0])
    assert tblctl.from_iceberg(table).recluster(cluster_by=["id"], **FULL).commits == 1
    assert table.refresh().properties["tblctl.cluster-by"] == "id"
    assert ids_in(table) == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("key", "commits"), [(None, 0), (["id nulls first"], 0), (["other"], 1), (["id desc"], 1)]
)
def test_a_file_whose_writer_claims_the_order_stays(
    lake: Lake, claims: Callable[[int], None], key: list[str] | None, commits: int
) -> None:
    """Files in the order of two columns are in that of the first, too. A claim is believed, and not checked."""
    table = lake.create("t", COLUMNS, sort_order=BY_BOTH)
    claims(table.sort_order().order_id)
    append(table, id=[2, 1], other=[5, 4])
    how = FULL if key is None else {**FULL, "cluster_by": key}
    assert tblctl.from_iceberg(table).recluster(**how).commits == commits
    assert tblctl.from_iceberg(table).check(deep=True).ok


def test_a_file_that_is_in_no_claimed_order_is_sorted(lake: Lake, claims: Callable[[int], None]) -> None:
    table = lake.create("t", COLUMNS, sort_order=BY_BOTH)
    claims(0)  # unsorted, in Iceberg
    append(table, id=[2, 1], other=[5, 4])
    assert tblctl.from_iceberg(table).recluster(**FULL).commits == 1
    assert ids_in(table) == [[1, 2]]
