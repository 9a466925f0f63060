"""Make the table of format version 1 in this folder, and its expected rows as expected.json.

    python tests/data/format_v1/make.py

Do not run it again after the release of version 1: from then on the committed table stays unchanged and is read for
ever. It has two key definitions with transforms, a tag, a tombstone, schema changes of every kind, and blocks of each
schema.
"""

from __future__ import annotations

import datetime
import json
import math
import shutil
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from arrow_rows import canonical  # noqa: E402

import tblctl  # noqa: E402

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int8()),
        ("ratio", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("name", pa.string_view()),
        ("day", pa.date32()),
        ("mode", pa.dictionary(pa.int8(), pa.string())),
        ("place", pa.struct([("tags", pa.list_(pa.string()))])),
    ]
)


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    odd = {"ratio": [math.nan, -0.0, math.inf, None, 0.5], "name": ["", None, "é", "n" * 200, "Zürich"]}
    columns = {
        "id": list(numbers),
        "small": [None if i % 5 == 4 else i - 12 for i in numbers],
        "ratio": [odd["ratio"][i % 5] for i in numbers],
        "price": [None if i % 6 == 5 else Decimal(i * 101 - 500) / 100 for i in numbers],
        "name": [odd["name"][i % 5] for i in numbers],
        "day": [datetime.date(1969, 12, 25) + datetime.timedelta(days=i) for i in numbers],
        "mode": [["AIR", "MAIL", None][i % 3] for i in numbers],
        "place": [None if i % 7 == 6 else {"tags": ["a"] * (i % 3)} for i in numbers],
    }
    return pa.table([pa.array(columns[item.name], item.type) for item in SCHEMA], schema=SCHEMA)


def make(folder: Path) -> None:
    options = {"block_rows": 20, "row_group_rows": 8}
    table = tblctl.create(folder, SCHEMA, cluster_by=["year(day)", "truncate(4, id) desc"], options=options)
    table.append(rows(0, 12))
    table.tag("first")
    table.add_column("note", "string")
    table.rename_column("ratio", "share")
    table.widen_column("small", "int32")
    table.set_cluster_key("name desc nulls first, bucket(4, id)")
    more = rows(12, 8).rename_columns(["share" if name == "ratio" else name for name in SCHEMA.names])
    table.append(more.append_column("note", pa.array([f"note {i}" for i in range(8)])))
    table.delete("id = 3")
    table.update("note = 'changed'", "id = 13")
    table.drop_column("price")
    table.gc(keep=1, older_than=0)


def described(folder: Path) -> dict:
    """Return the contents that a reader must find, as JSON values."""
    table = tblctl.open(folder)
    versions = {}
    for name, as_of in (("head", None), ("first", "first")):
        version = tblctl.open(folder, as_of=as_of)
        found = version.scan().to_arrow().sort_by("id")
        versions[name] = {
            "schema": [str(field) for field in version.schema],
            "cluster_by": list(version.cluster_by),
            "rows": plain(canonical(found)),
            "files": sorted((file.to_dict() for file in version.files()), key=lambda file: file["path"]),
        }
    return {
        "versions": versions,
        "history": [item.to_dict() for item in table.history()],
        "tags": table.tags(),
    }


def plain(value):
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Decimal) else value


if __name__ == "__main__":
    shutil.rmtree(HERE / "table", ignore_errors=True)
    make(HERE / "table")
    text = json.dumps(described(HERE / "table"), ensure_ascii=False)
    (HERE / "expected.json").write_text(text + "\n", encoding="utf-8")
