"""A file that is opened again: what its footer says was worked out before, and nothing is mixed up."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, StringType

from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.iceberg.reading import inputs
from tblctl.tableformat.parquet import columns
from tblctl.tableformat.parquet import opened as checking
from tblctl.tableformat.parquet.footer import MAGIC
from tblctl.tableformat.parquet.opened import CheckedFooters

from .lake import Lake, append, fields
from .merging import numbered, opened
from .test_column_ids import add, create

SCHEMA = fields(id=LongType(), region=StringType())
ROWS = {"id": [3, 1, 2], "region": ["a", None, "b"]}


class Counted:
    """A function that counts its calls."""

    def __init__(self, work: Any) -> None:
        self.work = work
        self.calls = 0

    def __call__(self, *args: Any, **more: Any) -> Any:
        self.calls += 1
        return self.work(*args, **more)


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> Counted:
    counter = Counted(getattr(module, name))
    monkeypatch.setattr(module, name, counter)
    return counter


def read_twice(io: Any, block: Any, times: int) -> None:
    """Open a block again and again, and require that keys and rows are right whatever was read before."""
    sort = io.outputs.layout.sort
    for _ in range(times):
        with io.open(block) as reader:
            assert reader.keys([0], sort).column(0).to_pylist() == ROWS["id"]
    with io.open(block) as reader:
        assert reader.rows([0]).to_pydict() == ROWS
        assert reader.keys([0], sort).column(0).to_pylist() == ROWS["id"]
        assert reader.rows([0]).to_pydict() == ROWS


def local(block: Any) -> str:
    return str(block.path.removeprefix("file://"))


def footer_in(path: Path) -> tuple[bytes, int]:
    """Return the bytes of a file, and where its footer begins."""
    data = path.read_bytes()
    return data, len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def test_ids_and_null_counts_are_worked_out_once_for_a_file_with_ids(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create("t", SCHEMA)
    append(table, **ROWS)
    naming = counted(monkeypatch, inputs, "with_ids")
    nulls = counted(monkeypatch, columns, "_nulls")
    io, (block,) = opened(table)
    read_twice(io, block, 3)
    assert naming.calls == 1
    assert nulls.calls == len(SCHEMA.fields)


def test_a_file_without_ids_is_named_anew_where_other_columns_are_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table(ROWS), path)
    table = lake.create("t", SCHEMA)
    table.add_files([f"file://{path}"])
    naming = counted(monkeypatch, inputs, "with_ids")
    io, (block,) = opened(table)
    read_twice(io, block, 1)
    assert naming.calls == 1 + 1 + 3, "for the file, for its keys, and for each change of columns"


def test_metadata_that_a_writer_leaves_in_the_schema_changes_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg's Java writer leaves its schema there."""
    table = create(lake, SCHEMA)
    add(table, numbered(pa.table(ROWS), (1, 2)).replace_schema_metadata({"iceberg.schema": "x"}))
    naming = counted(monkeypatch, inputs, "with_ids")
    io, (block,) = opened(table)
    read_twice(io, block, 1)
    assert naming.calls == 1


def test_a_footer_that_the_driver_checked_is_not_checked_again_in_a_task(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create("t", SCHEMA)
    append(table, **ROWS)
    io, (block,) = opened(table)
    checks = counted(monkeypatch, checking, "check_footer")
    read_twice(io, block, 1)
    read_twice(pickle.loads(pickle.dumps(io)), block, 1)
    assert checks.calls == 1


@pytest.mark.parametrize("change", ["bytes", "rows"])
def test_another_footer_than_the_driver_checked_is_checked(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    table = lake.create("t", SCHEMA)
    append(table, **ROWS)
    io, (block,) = opened(table)
    read_twice(io, block, 1)
    sent = pickle.loads(pickle.dumps(io))
    if change == "rows":
        block = dataclasses.replace(block, row_count=block.row_count + 1)
    else:
        path = Path(local(block))
        data, start = footer_in(path)
        path.write_bytes(data[:start] + MAGIC + data[start + len(MAGIC) :])  # which begins no footer
    checks = counted(monkeypatch, checking, "read_footer")
    with pytest.raises(CorruptTableError):
        sent.open(block)
    assert checks.calls == 1


def test_as_many_footers_are_kept_as_may_be(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create("t", SCHEMA)
    append(table, **ROWS)
    append(table, id=[7], region=["other"])
    _, blocks = opened(table)
    checks = counted(monkeypatch, checking, "check_footer")
    kept = CheckedFooters(most=1)
    for _ in range(2):
        for block in blocks:
            data, start = footer_in(Path(local(block)))
            address = inputs.address_of(block.path, "name", size_bytes=len(data), rows=block.stored_rows)
            kept.require_safe(data[start:-8], start, address)
    assert checks.calls == 3
