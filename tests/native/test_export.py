"""Export: rows as plain Parquet files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from faults import Faults, inject
from tables import SCHEMA, rows

import tblctl
from tblctl import exporting
from tblctl.errors import InvalidOptionError, StorageError, UnknownColumnError, UnsupportedFormatError
from tblctl.tableformat.storage import Storage


@pytest.fixture
def table(tmp_path):
    made = tblctl.create(tmp_path / "t", SCHEMA, cluster_by="id", options={"block_rows": 4})
    made.append(rows(*range(10)))
    return made


def test_rows_are_written_as_files_that_other_engines_read(table, tmp_path):
    done = table.export(tmp_path / "out", where="id >= 3", columns=["id"])
    assert (done.rows, done.files, done.snapshot) == (7, 1, 2)
    found = pyarrow.dataset.dataset(tmp_path / "out").to_table()
    assert sorted(found["id"].to_pylist()) == list(range(3, 10))
    assert found.column_names == ["id"]
    assert tblctl.open(tmp_path / "out").info("id").rows == 7


def test_files_end_at_about_a_size_and_no_rows_are_one_file_with_the_columns(table, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "FILE_BYTES", 1)
    monkeypatch.setattr(exporting, "_GROUP_ROWS", 4)
    assert table.export(tmp_path / "out").files == 3
    assert pq.read_table(tmp_path / "out").num_rows == 10
    assert table.export(tmp_path / "none", where="id > 99").files == 1
    assert pq.read_table(tmp_path / "none").schema.names == ["id", "v"]


def test_a_folder_with_anything_in_it_is_refused_unless_only_parquet_is_to_be_replaced(table, tmp_path):
    table.export(tmp_path / "out")
    (before,) = (tmp_path / "out").iterdir()
    with pytest.raises(InvalidOptionError, match="is not empty"):
        table.export(tmp_path / "out")
    table.export(tmp_path / "out", where="id = 1", overwrite=True)
    (after,) = (tmp_path / "out").iterdir()
    assert (before.name != after.name, pq.read_table(after).num_rows) == (True, 1)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidOptionError, match=r"other things than Parquet files, such as 'notes\.txt'"):
        table.export(tmp_path / "out", overwrite=True)
    for place in (table.location, f"{table.location}/data"):
        with pytest.raises(UnsupportedFormatError, match="a table of tblctl"):
            table.export(place, overwrite=True)
    with pytest.raises(UnknownColumnError):
        table.export(tmp_path / "new", columns=["nope"])
    assert not (tmp_path / "new").exists()


def test_an_export_that_fails_leaves_the_old_files_and_none_of_its_own(table, monkeypatch):
    monkeypatch.setattr(exporting, "FILE_BYTES", 1)
    monkeypatch.setattr(exporting, "_GROUP_ROWS", 4)
    place = "memory://export-fails/out"
    Storage(place).write("old.parquet", b"old")
    faults = Faults()
    faults.fail(operation="write", name="part-.*-00001")
    with inject(faults), pytest.raises(StorageError):
        table.export(place, overwrite=True)
    assert [item.name for item in Storage(place).list()] == ["old.parquet"]
    Storage(place).delete_all()


def test_an_older_version_is_exported_as_it_was(table, tmp_path):
    table.append(pa.table({"id": [77], "v": ["x"]}, schema=SCHEMA))
    assert tblctl.open(table.location, as_of=2).export(tmp_path / "out").rows == 10
