"""What of PyIceberg merge tasks need where they run: nothing, if new files simply lie in folders."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

from tblctl.errors import InvalidOptionError
from tblctl.tableformat.iceberg.writing import locations

from .lake import Lake, append, fields
from .merging import opened, paths_of

SCHEMA = fields(id=LongType(), region=StringType())
REGIONS = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "the region"))

WORKER = """
import pickle, sys
sys.modules["pyiceberg"] = None  # so that an import of it fails
io, sort, blocks = pickle.loads(sys.stdin.buffer.read())
for block in blocks:
    with io.open(block) as reader:
        rows = reader.rows(range(len(reader.group_rows)))
    builder = io.build(sort=sort, level=1, run_id="ab", partition=block.partition)
    builder.adding(rows, [rows.num_rows])()
    (record,) = builder.finish()
    print(record.path)
"""


def partitioned(lake: Lake) -> Table:
    table = lake.create("t", SCHEMA, partition_spec=REGIONS)
    append(table, id=[1, 2, 3], region=["a b/c", "eu", None])
    with table.update_schema() as update:
        update.add_column("later", StringType())
    return table


def registered(lake: Lake, folder: Path) -> Table:
    """Return a table of a file without column ids, which its name mapping gives."""
    path = folder / "file.parquet"
    pq.write_table(pa.table({"id": pa.array([1, 2]), "region": ["a", "b"]}), path)
    table = lake.create("t", SCHEMA)
    table.add_files([f"file://{path}"])
    return table


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


@pytest.mark.parametrize("kind", ["partitioned", "along a curve", "registered"])
def test_a_task_reads_and_writes_without_pyiceberg(lake: Lake, tmp_path: Path, kind: str) -> None:
    table = registered(lake, tmp_path) if kind == "registered" else partitioned(lake)
    io, blocks = opened(table, cluster_by="zorder(id, region)" if kind == "along a curve" else "id")
    data = pickle.dumps((io, io.outputs.layout.sort, blocks))
    done = subprocess.run([sys.executable, "-c", WORKER], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    made = sorted(map(folder_of, done.stdout.decode().split("\n")[:-1]))
    expected = sorted(map(folder_of, paths_of(table)))
    assert made == ([f"{table.location()}/data"] if kind == "registered" else expected)


def path_in(outputs: Any, partition: str) -> str:
    return folder_of(outputs._path_of("x.parquet", partition))


def test_a_name_mapping_that_is_none_stops_no_pickle_but_the_task(lake: Lake, tmp_path: Path) -> None:
    table = registered(lake, tmp_path)
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": "[{]"})
    io, (block,) = opened(table)
    with pytest.raises(InvalidOptionError, match="is no name mapping"):
        pickle.loads(pickle.dumps(io)).open(block)


def test_folders_in_tasks_are_those_of_the_driver(lake: Lake) -> None:
    io, blocks = opened(partitioned(lake))
    sent = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(io.outputs))))
    partitions = {block.partition for block in blocks}
    assert len(partitions) == 3
    for partition in partitions:
        assert path_in(sent, partition) == path_in(io.outputs, partition)


@pytest.mark.parametrize("why", ["hashes", "very many partitions"])
def test_tasks_name_files_themselves_where_folders_do_not_say_all(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    properties = {"write.object-storage.enabled": "true"} if why == "hashes" else {}
    if why != "hashes":
        monkeypatch.setattr(locations, "_MOST_FOLDERS", 2)
    table = lake.create("t", SCHEMA, partition_spec=REGIONS, properties=properties)
    append(table, id=[1, 2, 3], region=["a", "b", "c"])
    io, blocks = opened(table)
    sent = pickle.loads(pickle.dumps(io.outputs))
    for block in blocks:
        path = sent._path_of("x.parquet", block.partition)
        assert path == io.outputs._path_of("x.parquet", block.partition)
        assert "/the+region=" in path
        assert path.endswith("/x.parquet")
