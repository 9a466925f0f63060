"""A table that writers of version 1 left, without checksums and a horizon, is read and written on."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path

import pytest
from tables import native_of

import tblctl
from tblctl.errors import CorruptTableError
from tblctl.tableformat.model.snapshot import Batch

FOLDER = Path(__file__).parents[1] / "data" / "writer_v1"
MAKE = runpy.run_path(str(FOLDER / "make.py"))
IDS = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def table(tmp_path: Path) -> tblctl.Table:
    return tblctl.open(shutil.copytree(FOLDER / "table", tmp_path / "table"))


def ids(table: tblctl.Table, where: str | None = None) -> list[int]:
    return sorted(table.scan(where, columns=["id"]).to_arrow()["id"].to_pylist())


def test_it_is_read_and_sound() -> None:
    table = tblctl.open(FOLDER / "table")
    assert ids(table) == IDS == [*range(7), *range(8, 32), 100, 101]
    assert ids(table, "x >= 5") == [i for i in IDS if i % 2 == 0 and i >= 20]
    assert ids(tblctl.open(FOLDER / "table", as_of="unsorted")) == list(range(32))
    assert table.check(deep=True).problems == ()
    assert (native_of(table).head().min_writer_version, native_of(table).head().horizon_us) == (1, 0)
    assert [item.readable for item in table.history()].count(False) > 0


def test_its_rows_with_nan_are_found_through_to_dataset() -> None:
    import pyarrow.compute as pc

    dataset = tblctl.open(FOLDER / "table").to_dataset()
    other_than_7 = [i for i in IDS if i not in {28, 30}]  # in their row group all others are NaN
    assert sorted(dataset.to_table(filter=pc.field("x") != 7.0)["id"].to_pylist()) == other_than_7
    assert dataset.count_rows(filter=pc.field("x") != 7.0) == len(other_than_7)


@pytest.mark.parametrize("sequence", range(1, 10))
def test_a_damaged_snapshot_of_it_is_still_told(table: tblctl.Table, sequence: int) -> None:
    path = Path(table.location) / "metadata" / "snapshots" / f"{sequence:020d}.json"
    if not path.exists():
        pytest.skip("it has fewer")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptTableError, match="damaged"):
        tblctl.open(table.location).history()


def test_it_is_written_on_and_becomes_one_of_version_2(table: tblctl.Table) -> None:
    table.append(MAKE["rows"](200, 201).append_column("note", [["a", "b"]]))
    assert native_of(table).head().min_writer_version == 2
    assert table.delete("id in (3, 20)").rows_removed == 2
    assert table.update({"note": "n"}, "id < 3").rows_added == 3
    table.append(MAKE["rows"](0, 16, 31).append_column("note", [["c"] * 3]))
    assert table.recluster(policy="full").committed_groups
    expected = sorted([*(i for i in IDS if i not in {3, 20}), 200, 201, 0, 16, 31])
    assert ids(table) == expected
    assert native_of(table).head().has_batch(Batch(stream="one", number=4))
    assert table.check(deep=True).problems == ()
    table.delete_tag("unsorted")
    assert table.gc(keep=1, older_than=0).snapshots_expired
    assert ids(table) == expected
    assert table.check(deep=True).problems == ()
    assert native_of(table).head().horizon_us > 0


def test_the_committed_table_stays_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 100_000
