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
