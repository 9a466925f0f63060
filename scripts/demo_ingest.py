"""Append a Parquet file to a table in batches, in the order of its rows.

python demo_ingest.py FILE TABLE BATCHES
"""

from __future__ import annotations

import itertools
import sys

import pyarrow.parquet as pq

import tblctl


def main(file: str, location: str, batches: int) -> None:
    """Append the rows, and print how many."""
    rows = pq.read_table(file)
    table = tblctl.open(location)
    bounds = [rows.num_rows * number // batches for number in range(batches + 1)]
    for start, stop in itertools.pairwise(bounds):
        table.append(rows.slice(start, stop - start))
    print(f"appended {rows.num_rows:,} rows in {batches} batches: snapshot {table.snapshot.sequence}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
