"""Tables unlike lineitem: many columns, large values, lists of varying length, unsorted rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import tblctl

BLOCKS = 16
COLUMNS = 300
TEXT_BYTES = 1 << 20
MOST_ITEMS = 400


def wide(rng: np.random.Generator, size_bytes: int) -> pa.Table:
    """Return rows of 300 numbers and a key."""
    rows = max(1, size_bytes // (8 * COLUMNS))
    columns = {f"c{number}": rng.integers(0, 1 << 40, rows) for number in range(COLUMNS)}
    return pa.table({"k": rng.integers(0, 1 << 40, rows), **columns})


def large_texts(rng: np.random.Generator, size_bytes: int) -> pa.Table:
    """Return rows of 1 MB text each."""
    rows = max(2, size_bytes // TEXT_BYTES)
    texts = [rng.integers(0, 256, TEXT_BYTES // 2, dtype=np.uint8).tobytes().hex() for _ in range(rows)]
    return pa.table({"k": rng.integers(0, 1 << 40, rows), "s": texts})


def lists(rng: np.random.Generator, size_bytes: int) -> pa.Table:
    """Return rows of lists of pairs, from none to 400."""
    rows = max(2, size_bytes // (MOST_ITEMS * 8))
    ends = np.concatenate([[0], np.cumsum(rng.integers(0, MOST_ITEMS, rows))]).astype(np.int32)
    pairs = pa.StructArray.from_arrays(
        [pa.array(rng.integers(0, 1 << 40, int(ends[-1]))), pa.array(rng.random(int(ends[-1])))], ["a", "b"]
    )
    return pa.table(
        {"k": rng.integers(0, 1 << 40, rows), "l": pa.ListArray.from_arrays(pa.array(ends), pairs)}
    )


SHAPES: dict[str, Callable[[np.random.Generator, int], pa.Table]] = {
    "300 columns": wide,
    "1 MB texts": large_texts,
    "lists of structs": lists,
}


def make_shape(place: Path, shape: str, size_bytes: int, *, is_sorted: bool) -> tblctl.Table:
    """Make a table of 16 blocks that all span all keys. For sorted blocks the key is set before the appends."""
    rng = np.random.default_rng(7)

    def tables() -> Iterator[pa.Table]:
        for _ in range(BLOCKS):
            yield SHAPES[shape](rng, size_bytes // BLOCKS)

    table = None
    for rows in tables():
        if table is None:
            table = tblctl.create(place, rows.schema, cluster_by="k" if is_sorted else None)
        table.append(rows)
    assert table is not None
    if not is_sorted:
        table.set_cluster_key("k")
    return table
