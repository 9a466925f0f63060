"""Make the table of the Iceberg demo with PyIceberg, or count what a query reads of it.

python demo_iceberg.py fill FILE BATCHES      a table sorted by l_shipdate, which grows by batches in the order of rows
python demo_iceberg.py query WHERE            what PyIceberg would read, as JSON on the standard output
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import IdentityTransform

CATALOG, TABLE = "demo", "tpch.lineitem"


def fill(file: str, batches: int) -> None:
    """Create the table anew, and append the rows."""
    rows = pq.read_table(file)
    catalog = load_catalog(CATALOG)
    catalog.create_namespace_if_not_exists("tpch")
    if catalog.table_exists(TABLE):
        catalog.purge_table(TABLE)
    table = catalog.create_table(TABLE, rows.schema)
    with table.update_sort_order() as order:
        order.asc("l_shipdate", IdentityTransform())
    bounds = [rows.num_rows * number // batches for number in range(batches + 1)]
    for start, stop in itertools.pairwise(bounds):
        table.append(rows.slice(start, stop - start))
    with table.transaction() as change:
        change.set_properties(
            {"write.target-file-size-bytes": str(Path(file).stat().st_size // (batches // 2))}
        )
    print(f"appended {rows.num_rows:,} rows in {batches} commits")


def query(where: str) -> None:
    """Print how many files a scan reads, and their bytes."""
    table = load_catalog(CATALOG).load_table(TABLE)
    files = [task.file for task in table.scan(row_filter=where).plan_files()]
    sizes = sum(file.file_size_in_bytes for file in files)
    print(json.dumps({"blocks_read": len(files), "bytes_to_read": sizes}))


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    if command == "fill":
        fill(words[0], int(words[1]))
    else:
        query(words[0])
