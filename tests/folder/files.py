"""Folders of plain Parquet for tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

LONG_AGO = 1_700_000_000.0
"""When files were last written, so that what is kept of them holds."""


def write(folder: Path, name: str, columns: Any, **options: Any) -> Path:
    """Write a file; folders are made."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def interleaved(folder: Path, count: int = 8, rows: int = 20) -> Path:
    """Write files of which each has keys of the whole range in the column `at`; `id` counts on, file by file."""
    for number in range(count):
        at = [row * count + number for row in range(rows)]
        ids = [number * rows + row for row in range(rows)]
        write(folder, f"part-{number}.parquet", {"at": at, "id": ids})
    return folder
