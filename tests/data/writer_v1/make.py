"""Make the table of writer version 1 in this folder. It is the last version without checksums and a horizon.

    python tests/data/writer_v1/make.py

It was run with the last commit whose writers were of version 1. The table stays unchanged, and is read and written for
ever. It has a recluster with its record, a batch of a stream, a tombstone, a tag, and NaN in a block's footer
statistics.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pyarrow as pa

import tblctl
from tblctl.tableformat.model.snapshot import Batch
from tblctl.tableformat.native.write.input_rows import open_source
from tblctl.tableformat.storage import Storage

HERE = Path(__file__).resolve().parent
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.float64()), ("s", pa.string())])


def rows(*ids: int) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "x": [math.nan if i % 2 else float(i // 4) for i in ids],
            "s": [f"s{i % 3}" for i in ids],
        },
        schema=SCHEMA,
    )


def make(folder: Path) -> None:
    table = tblctl.create(folder, SCHEMA, cluster_by="id", options={"block_rows": 8, "row_group_rows": 4})
    table.append(rows(*range(0, 32, 2)))
    table.append(rows(*range(1, 33, 2)))
    table.tag("unsorted")
    assert table.recluster(final=True).committed_groups
    table._native.write(
        "append", source=open_source(rows(100, 101), Storage), batch=Batch(stream="one", number=4)
    )
    table.delete("id = 7")
    table.add_column("note", "string")
    table.gc(keep=1, older_than=0)


if __name__ == "__main__":
    shutil.rmtree(HERE / "table", ignore_errors=True)
    make(HERE / "table")
    found = tblctl.open(HERE / "table").scan().to_arrow().sort_by("id")
    (HERE / "expected.json").write_text(json.dumps(found["id"].to_pylist()) + "\n", encoding="utf-8")
