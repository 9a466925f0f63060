"""How this version treats tables that a newer tblctl has written to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arrow_rows import multiset
from tables import as_stored

import tblctl
from tblctl import errors
from tblctl.tableformat.native.log.snapshot_file import CHECKSUMS_FROM, FORMAT_VERSION, WRITER_VERSION
from tblctl.tableformat.native.read.metadata import block_metadata

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
        document["sorts"]["1"].update(kind="peano", parameters={"bits": 8})
        document["min_writer_version"] = WRITER_VERSION + 1

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
    as_if_newer(location, lambda document: document.update(min_writer_version=WRITER_VERSION + 1))
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


OPERATIONS: dict[str, Callable[[str], object]] = {
    "scan": lambda location: tblctl.open(location).scan().to_arrow(),
    "append": lambda location: tblctl.open(location).append(pa.table({"a": [4]})),
    "recluster": lambda location: tblctl.open(location).recluster(policy="full"),
    "gc": lambda location: tblctl.open(location).gc(keep=1, older_than=0),
    "check": lambda location: tblctl.open(location).check(deep=True),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_table_of_a_newer_format_is_refused_and_left_as_it_is(location: str, name: str) -> None:
    as_if_newer(location, lambda document: document.update(format_version=2))
    before = {path: path.read_bytes() for path in Path(location).rglob("*") if path.is_file()}
    with pytest.raises(errors.UnsupportedFormatError, match="format version 2"):
        OPERATIONS[name](location)
    assert {path: path.read_bytes() for path in Path(location).rglob("*") if path.is_file()} == before


EARLIER = sorted(path.parent for path in (Path(__file__).parents[1] / "data").glob("*/expected.json"))


@pytest.mark.parametrize("folder", EARLIER, ids=lambda folder: folder.name)
def test_a_table_of_every_earlier_version_is_reclustered_and_upgraded(folder: Path, tmp_path: Path) -> None:
    """The rows stay; what is written is of this version; what older versions wrote is gone after a gc."""
    shutil.copytree(folder / "table", tmp_path / "table")
    table = tblctl.open(tmp_path / "table")
    table.append(table.scan().to_arrow())  # what lies over each block, so that all are rewritten
    expected = multiset(table.scan().to_arrow())
    assert table.recluster(policy="full").committed_groups
    for tag in table.tags():
        table.delete_tag(tag)
    table.gc(keep=1, older_than=0)
    assert multiset(table.scan().to_arrow()) == expected
    report = table.check(deep=True)
    assert report.ok, report.problems
    head = tblctl.open(tmp_path / "table")._native.head()
    assert head.min_writer_version >= CHECKSUMS_FROM
    assert all(segment.seal is not None for segment in head.segments)
    sealed = block_metadata(table._native.storage, head).values("footer_checksum")
    assert sealed.null_count == 0


def test_there_is_a_table_of_every_earlier_version() -> None:
    written = {json.loads(path.read_bytes()).get("min_writer_version", 1) for path in _newest_snapshots()}
    assert written >= set(range(1, CHECKSUMS_FROM))
    assert FORMAT_VERSION == 1, "keep a table of format version 1 here, and add one of each later one"


def _newest_snapshots() -> list[Path]:
    return [max((folder / "table" / "metadata" / "snapshots").iterdir()) for folder in EARLIER]
