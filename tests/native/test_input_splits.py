"""Input splits of a scan: together they are the scan, they have about the same size, and workers need no PyIceberg."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tables import SCHEMA, native_of, rows

import tblctl
from tblctl.errors import CorruptTableError, SnapshotNotFoundError
from tblctl.tableformat.native.read.input_splits import SplitReader, cut_into_splits
from tblctl.tableformat.native.read.scan import select_blocks
from tblctl.tableformat.predicate.nodes import Node, node_of
from tblctl.tableformat.predicate.sql.conditions import parse_where


def make(url: str) -> tblctl.Table:
    table = tblctl.create(url, SCHEMA, cluster_by="id", options={"block_rows": 50, "row_group_rows": 10})
    generator = random.Random(5)
    for size in (1, 20, 130, 50, 7):
        table.append(rows(*(generator.randrange(400) for _ in range(size))))
    return table


def condition_of(table: tblctl.Table, where: str | None) -> Node | None:
    schema = native_of(table).head().schema
    return None if where is None else node_of(parse_where(where, schema), schema)


def reader_of(table: tblctl.Table, columns: tuple[str, ...], condition: Node | None) -> SplitReader:
    native = native_of(table)
    head = native.head()
    return SplitReader(
        storage=native.storage,
        sequence=head.sequence,
        schema=head.schema,
        columns=columns,
        condition=condition,
    )


@pytest.mark.parametrize(
    "where", [None, "id < 100", "id = 17 or v like 'x3%'", "id < 0", "id >= 0 and v is null"]
)
@pytest.mark.parametrize("least", [1, 3, 100])
def test_all_shares_together_are_the_scan(tmp_path: Path, where: str | None, least: int) -> None:
    table = make(str(tmp_path))
    native = native_of(table)
    condition = condition_of(table, where)
    selection = select_blocks(native.storage, native.head(), condition)
    splits = cut_into_splits(selection, least=least, most_bytes=1 << 30)
    reader = pickle.loads(pickle.dumps(reader_of(table, ("v", "id"), condition)))
    assert len(splits) == min(least, len(selection.rows))
    assert all(split.blocks for split in splits)
    parts = [part for split in pickle.loads(pickle.dumps(splits)) for part in reader.tables(split)]
    found = [row for part in parts for row in part.to_pylist()]
    expected = table.scan(where=where, columns=["v", "id"]).to_arrow()
    assert sorted(map(repr, found)) == sorted(map(repr, expected.to_pylist()))
    assert all(part.schema.equals(expected.schema) for part in parts)


def test_a_block_whose_statistics_allow_rows_that_no_row_group_has_yields_none(tmp_path: Path) -> None:
    table = tblctl.create(
        tmp_path, "k: int64", cluster_by="k", options={"row_group_rows": 100, "block_rows": 1000}
    )
    table.append(pa.table({"k": [*range(100), *range(200, 300)]}))
    for where, count in (("k = 150", 0), ("k = 250", 1)):
        condition = condition_of(table, where)
        selection = select_blocks(native_of(table).storage, native_of(table).head(), condition)
        (split,) = cut_into_splits(selection, least=1, most_bytes=1 << 30)
        found = reader_of(table, ("k",), condition).tables(split)
        assert sum(part.num_rows for part in found) == count


def test_splits_are_about_as_large_as_each_other_and_no_larger_than_said(tmp_path: Path) -> None:
    table = make(str(tmp_path))
    native = native_of(table)
    sizes = {block.path: block.decoded_bytes for block in table.files()}
    selection = select_blocks(native.storage, native.head(), None)
    for most_bytes, least in ((sum(sizes.values()), 3), (2 * max(sizes.values()), 1)):
        splits = cut_into_splits(selection, least=least, most_bytes=most_bytes)
        loads = [sum(sizes[address.path] for address, _ in split.blocks) for split in splits]
        assert max(loads) - min(loads) <= max(sizes.values())
        assert max(loads) <= most_bytes + max(sizes.values())
        assert len(splits) >= least


def test_a_share_is_read_without_pyiceberg(tmp_path: Path) -> None:
    table = make(str(tmp_path / "table"))
    native = native_of(table)
    condition = condition_of(table, "id < 100 and v like 'x%' and id in (1, 2, 3, 40, 50, 60) or id is null")
    selection = select_blocks(native.storage, native.head(), condition)
    (split,) = cut_into_splits(selection, least=1, most_bytes=1 << 30)
    work = tmp_path / "work"
    work.write_bytes(pickle.dumps((reader_of(table, ("id",), condition), split)))
    program = (
        "import pickle, sys\nreader, split = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(sum(part.num_rows for part in reader.tables(split)), 'pyiceberg' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(work)], capture_output=True, text=True)
    expected = sum(part.num_rows for part in reader_of(table, ("id",), condition).tables(split))
    assert done.stdout.split() == [str(expected), "False"], done.stderr


def test_a_share_of_a_version_that_gc_removed_says_so(tmp_path: Path) -> None:
    table = make(str(tmp_path))
    native = native_of(table)
    reader = reader_of(table, ("id",), None)
    (split,) = cut_into_splits(
        select_blocks(native.storage, native.head(), None), least=1, most_bytes=1 << 30
    )
    table.overwrite(pa.table({"id": [1], "v": ["x"]}, schema=SCHEMA))
    table.gc(keep=1, older_than=0)
    with pytest.raises(SnapshotNotFoundError, match="expired while it was read"):
        list(reader.tables(split))


def test_a_block_that_is_missing_is_damage(tmp_path: Path) -> None:
    table = make(str(tmp_path))
    native = native_of(table)
    (split,) = cut_into_splits(
        select_blocks(native.storage, native.head(), None), least=1, most_bytes=1 << 30
    )
    (tmp_path / split.blocks[0][0].path).unlink()
    with pytest.raises(CorruptTableError, match="is missing"):
        list(reader_of(table, ("id",), None).tables(split))
