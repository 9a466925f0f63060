"""How this version treats tables that a newer tblctl has written to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tables import as_stored

import tblctl
from tblctl import errors

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def location(tmp_path: Path) -> str:
    table = tblctl.create(str(tmp_path / "t"), "a: int64", cluster_by=["a"])
    table.append(pa.table({"a": [3, 1, 2]}))
    return str(tmp_path / "t")


def as_if_newer(location: str, change: Change) -> None:
    """Change the newest snapshot's JSON as a newer writer might have written it."""
    path = max((Path(location) / "metadata" / "snapshots").iterdir())
    document = json.loads(path.read_bytes())
    change(document)
    path.write_bytes(as_stored(document))


def test_an_unknown_option_does_not_hide_a_table(location: str) -> None:
    as_if_newer(location, lambda document: document["options"].update(target_level=3))
    assert tblctl.open(location).scan().to_arrow().num_rows == 3


def test_unknown_keys_do_not_hide_a_table(location: str) -> None:
    as_if_newer(location, lambda document: document.update(statistics={"of": "another kind"}))
    assert tblctl.open(location).scan().to_arrow().num_rows == 3


def test_blocks_of_an_unknown_kind_of_sort_read_as_unordered(location: str) -> None:
    def change(document: dict[str, Any]) -> None:
        document["sorts"]["1"].update(kind="hilbert", parameters={"bits": 8})
        document["min_writer_version"] = 4

    as_if_newer(location, change)
    table = tblctl.open(location)
    assert table.cluster_by == ()
    assert sorted(table.scan(where="a > 1").to_arrow()["a"].to_pylist()) == [2, 3]


@pytest.mark.parametrize(
    "write",
    [
        lambda table: table.append(pa.table({"a": [4]})),
        lambda table: table.delete("a = 1"),
        lambda table: table.tag("v1"),
        lambda table: table.gc(keep=1, older_than=0),
    ],
    ids=["append", "delete", "tag", "gc"],
)
def test_a_table_of_newer_writers_is_read_but_not_written(
    location: str, write: Callable[[tblctl.Table], object]
) -> None:
    as_if_newer(location, lambda document: document.update(min_writer_version=4))
    table = tblctl.open(location)
    before = sorted(path.name for path in Path(location).rglob("*"))
    with pytest.raises(errors.UnsupportedFormatError, match="newer tblctl"):
        write(table)
    assert sorted(path.name for path in Path(location).rglob("*")) == before
    assert table.scan().to_arrow().num_rows == 3


def test_a_reader_whose_snapshot_expired_is_told_so(location: str) -> None:
    old = tblctl.open(location, as_of=2)
    table = tblctl.open(location)
    table.overwrite(pa.table({"a": [9]}))
    table.gc(keep=1, older_than=0)
    with pytest.raises(errors.SnapshotNotFoundError, match="expired while it was read"):
        old.scan().to_arrow()
    with pytest.raises(errors.SnapshotNotFoundError, match="expired"):
        tblctl.open(location, as_of=2)
