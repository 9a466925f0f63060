"""The same folder is measured alike on each storage, also by a glob."""

from __future__ import annotations

import pytest

import tblctl
from tblctl.errors import UnsupportedFormatError

from .files import interleaved


def test_a_folder_is_measured_on_each_storage(location, tmp_path):
    storage = location.storage()
    for path in sorted(interleaved(tmp_path / "made").iterdir()):
        storage.write(f"in/year=2024/{path.name}", path.read_bytes())
    storage.write("in/_SUCCESS", b"")
    opened = {"storage_options": location.storage_options}
    for place, files in ((f"{location.url}/in", 8), (f"{location.url}/in/year=*/part-[0-2]*", 3)):
        table = tblctl.open(place, **opened)
        found = table.info("year, at")
        assert (found.total_block_count, found.rows, found.unknown_block_count) == (files, files * 20, 0)
        assert found.average_depth == files
        assert table.folder_columns == ("year",)
    storage.write("in/_delta_log/0.json", b"{}")
    with pytest.raises(UnsupportedFormatError, match="Delta"):
        tblctl.open(f"{location.url}/in/year=2024", **opened)


def test_files_are_imported_exported_and_appended_on_each_storage(location, tmp_path):
    storage = location.storage()
    for path in sorted(interleaved(tmp_path / "made", count=3, rows=2).iterdir()):
        storage.write(f"in/year=2024/{path.name}", path.read_bytes())
    how = {"hive": True, "storage_options": location.storage_options}
    source, target = f"{location.url}/in", f"{location.url}/table"
    assert tblctl.import_parquet(source, target, commit_bytes=1, **how).files_taken == 3
    again = tblctl.import_parquet([source, f"{source}/year=2024/part-1.parquet"], target, **how)
    assert (again.files_taken, again.files_known, again.files_changed) == (0, 4, ())
    table = tblctl.open(target, storage_options=location.storage_options)
    assert table.export(f"{location.url}/out", where="id < 4").rows == 4
    table.append(f"{location.url}/out")
    assert table.info("year").rows == 10
