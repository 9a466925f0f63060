"""A table written by the first version of the format is read for ever, and can be written on."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path

import pytest

import tblctl
from tblctl.errors import SnapshotNotFoundError
from tblctl.tableformat.native.read.metadata import block_metadata

FOLDER = Path(__file__).parents[1] / "data" / "format_v1"
MAKE = runpy.run_path(str(FOLDER / "make.py"))
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def copy(tmp_path):
    return Path(shutil.copytree(FOLDER / "table", tmp_path / "table"))


def test_the_table_holds_what_it_held():
    before = {path: path.stat().st_mtime_ns for path in (FOLDER / "table").rglob("*")}
    found = json.loads(json.dumps(MAKE["described"](FOLDER / "table")))
    for version in found["history"]:  # options younger than this table have their defaults
        younger = {"recluster.mode": "off", "recluster.every": 1, "recluster.policy": None}
        younger |= {"recluster.record": "off", "recluster.record_literals": "full"}
        options = version["options"] or younger.copy()
        assert {name: options.pop(name) for name in younger} == younger
    for name, version in EXPECTED["versions"].items():
        for part, value in version.items():
            assert found["versions"][name][part] == value, (name, part)
    assert found == EXPECTED
    assert {path: path.stat().st_mtime_ns for path in (FOLDER / "table").rglob("*")} == before


def test_the_table_is_sound_and_prunes():
    table = tblctl.open(FOLDER / "table")
    report = table.check(deep=True)
    assert report.ok, report.problems
    ids = [row[0] for row in EXPECTED["versions"]["head"]["rows"]]
    assert sorted(table.to_dataset().to_table()["id"].to_pylist()) == ids
    assert table.scan("id >= 16").to_arrow().num_rows == sum(number >= 16 for number in ids)
    assert table.scan("id >= 16").explain().blocks_pruned > 0
    assert table.scan("small = -7").to_arrow()["id"].to_pylist() == [5]
    assert table.scan("share = 0", columns=["id"]).to_arrow().num_rows == 4  # -0.0 in blocks of both schemas


def test_segments_that_lack_a_younger_column_do_not_know_it_until_blocks_are_rewritten(copy):
    native = tblctl.open(copy)._native
    assert block_metadata(native.storage, native.head()).values("same_key_rows").null_count == 2
    tblctl.open(copy).delete("id = 12")
    assert block_metadata(native.storage, native.head()).values("same_key_rows").null_count == 1


def test_expired_snapshots_are_told_but_not_read():
    expired = [item["sequence"] for item in EXPECTED["history"] if not item["readable"]]
    assert expired
    with pytest.raises(SnapshotNotFoundError, match="expired"):
        tblctl.open(FOLDER / "table", as_of=expired[0])


def test_the_table_can_be_written_on(copy):
    table = tblctl.open(copy)
    table.append(table.scan("id < 5").to_arrow())
    assert table.delete("id >= 12").rows_removed == sum(
        row[0] >= 12 for row in EXPECTED["versions"]["head"]["rows"]
    )
    assert table.update("note = NULL", "id = 5").rows_added == 1
    table.set_cluster_key(EXPECTED["versions"]["first"]["cluster_by"])
    table.append(table.scan("id = 0", limit=1).to_arrow())
    assert {file.cluster_key_id for file in table.files()} == {1, 2}
    assert table.check(deep=True).ok
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 0, 0, 1, 1, 2, 2, 4, 4, *range(5, 12)]
    table.rollback("first")
    assert table.scan().to_arrow().num_rows == len(EXPECTED["versions"]["first"]["rows"])
    table.gc(keep=1, older_than=0)
    assert table.check(deep=True).ok


@pytest.mark.parametrize(
    ("act", "kept"),
    [
        (lambda table: table.delete("id < 6"), lambda id_: id_ >= 6),
        (lambda table: table.update("note = 'new'", "id < 6"), lambda _id: True),
        (lambda table: table.recluster(policy="full"), lambda _id: True),
    ],
    ids=["delete", "update", "recluster"],
)
def test_blocks_without_checksums_can_be_replaced_by_blocks_with_them(copy, act, kept):
    table = tblctl.open(copy)
    expected = table.scan().to_arrow().sort_by("id").to_pylist()
    before = {file.path for file in table.files()}
    act(table)
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    names = [name for name in table.schema.names if name not in {"note", "share"}]  # (a share may be NaN)
    assert [[row[name] for name in names] for row in found] == [
        [row[name] for name in names] for row in expected if kept(row["id"])
    ]
    native = tblctl.open(copy)._native
    metadata = block_metadata(native.storage, native.head())
    sealed = metadata.values("footer_checksum").is_valid().to_pylist()
    assert sealed == [path not in before for path in metadata.values("path").to_pylist()]
    assert any(sealed)
    assert table.check(deep=True).ok


def test_the_committed_table_stays_small():
    assert sum(path.stat().st_size for path in (FOLDER / "table").rglob("*") if path.is_file()) < 60_000


def test_the_script_still_makes_such_a_table(tmp_path):
    """Except for names and times, its values may not depend on the machine or the day."""
    MAKE["make"](tmp_path / "table")
    found = json.loads(json.dumps(MAKE["described"](tmp_path / "table")))
    for name, version in EXPECTED["versions"].items():
        assert {key: value for key, value in found["versions"][name].items() if key != "files"} == {
            key: value for key, value in version.items() if key != "files"
        }
    assert [item["operation"] for item in found["history"]] == [
        item["operation"] for item in EXPECTED["history"]
    ]
