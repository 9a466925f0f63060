"""What footers say is kept for the next call, and never believed of files that changed."""

from __future__ import annotations

import os

import pytest

import tblctl
from tblctl.tableformat.folder import footers
from tblctl.tableformat.folder.port import FolderPort

from .files import interleaved, write


@pytest.fixture
def read(monkeypatch):
    """The names of the files whose footers are read."""
    names = []
    plain = footers._read

    def noted(storage, name, *rest):
        names.append(name)
        return plain(storage, name, *rest)

    monkeypatch.setattr(footers, "_read", noted)
    return names


@pytest.fixture
def look(tmp_path):
    interleaved(tmp_path / "in")
    return lambda column="at": (
        tblctl.open(tmp_path / "in", metadata_cache=tmp_path / "cache").info(column).to_dict()
    )


def test_the_next_call_reads_no_footer_and_finds_the_same(look, read):
    first = {name: look(name) for name in ("at", "id")}
    assert len(read) == 8
    assert {name: look(name) for name in ("at", "id")} == first
    assert len(read) == 8


def test_only_files_that_are_new_or_changed_are_read_again(look, read, tmp_path):
    look()
    read.clear()
    write(tmp_path / "in", "new.parquet", {"at": [5], "id": [-1]})
    write(tmp_path / "in", "part-3.parquet", {"at": [7, 8, 9], "id": [1, 2, 3]})
    (tmp_path / "in" / "part-5.parquet").unlink()
    os.utime(tmp_path / "in" / "part-6.parquet", (1_600_000_000, 1_600_000_000))
    found = look()
    assert sorted(read) == ["new.parquet", "part-3.parquet", "part-6.parquet"]
    assert found == tblctl.open(tmp_path / "in").info("at").to_dict()
    assert found["rows"] == 6 * 20 + 1 + 3


def test_files_of_several_schemas_are_kept(read, tmp_path):
    write(tmp_path / "in", "a.parquet", {"x": [1]})
    write(tmp_path / "in", "b.parquet", {"x": [1], "s": [{"y": 2.5}]})
    for _ in range(2):
        table = tblctl.open(tmp_path / "in", metadata_cache=tmp_path / "cache")
        assert table.schema.names == ["x", "s"]
        assert table.info("s.y").unknown_block_count == 0
    assert len(read) == 2


def test_a_file_that_was_just_written_is_not_kept(look, read, tmp_path):
    os.utime(tmp_path / "in" / "part-3.parquet")
    look()
    read.clear()
    look()
    assert read == ["part-3.parquet"]


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 5_000])
def test_a_damaged_cache_is_no_error(look, read, tmp_path, damage):
    first = look()
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(damage)
    assert look() == first
    assert len(read) == 16


def test_a_cache_of_anything_else_is_no_error(look, read, tmp_path, caplog):
    first = look()
    port = FolderPort.of(tmp_path / "in")
    from tblctl.tableformat.storage.file_cache import FileCache

    FileCache(tmp_path / "cache").put(f"footers 1 {port.location}", b"neither Arrow nor anything else")
    assert look() == first
    assert "cannot be read" in caplog.text


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    interleaved(tmp_path / "in")
    (tmp_path / "file").write_text("")
    table = tblctl.open(tmp_path / "in", metadata_cache=tmp_path / "file" / "cache")
    assert table.info("at").total_block_count == 8


def test_no_cache_is_written_unless_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    tblctl.open(interleaved(tmp_path / "in")).info("at")
    assert not (tmp_path / "home").exists()
