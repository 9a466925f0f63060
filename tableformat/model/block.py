"""Blocks and their metadata."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tblctl.tableformat.model.seal import Seal

CONSTANT_LEVEL = -1
"""Level of a full block that holds one key only: clustering it again cannot help."""

FULL_SHARE = 0.8
"""A block is full if it has at least this share of `block_rows` or `block_bytes` (as in Databend 1.2.453)."""


def is_full(row_count: int, size_bytes: int, *, block_rows: int, block_bytes: int) -> bool:
    """Return whether a block of these rows and uncompressed bytes counts as full."""
    return row_count >= math.floor(FULL_SHARE * block_rows) or size_bytes >= FULL_SHARE * block_bytes


@dataclass(frozen=True, kw_only=True)
class ClusterStatistics:
    """A block's place in key order (RFC 5.1).

    Attributes:
        cluster_key_id: the sort that the block's rows are in the order of. `min` and `max` are its keys.
        min: the key of the first row; one value for each term.
        max: the key of the last row.
        exact: false if long strings were truncated, so that `min` and `max` only bound the keys.
        level: how many times the rows were clustered; -1 for constant and full.
    """

    cluster_key_id: int
    min: tuple[Any, ...]
    max: tuple[Any, ...]
    exact: bool
    level: int


@dataclass(frozen=True, kw_only=True)
class Block:
    """One immutable Parquet file of a table.

    Attributes:
        path: the object's name under the table's root.
        row_count: rows that readers return; see `without`.
        size_bytes: the file's size.
        uncompressed_bytes: the sum of its column chunks before compression, as its Parquet footer states.
        decoded_bytes: memory of its rows as Arrow arrays; `block_bytes` limits this.
        schema_id: the schema it was written with.
        run_id: the run it belongs to; None if it was written without a cluster key.
        cluster: None if its rows are in no order.
        seal: verifies its end; None if it was written by a tblctl version without checksums.
        partition: its rows' values of the table's partition columns, as text; empty without partition columns.
        deleted_rows: rows in the file that are deleted from the table, as far as deletes were read.
    """

    path: str
    row_count: int
    size_bytes: int
    uncompressed_bytes: int
    decoded_bytes: int
    schema_id: int
    run_id: str | None
    cluster: ClusterStatistics | None
    seal: Seal | None = None
    partition: str = ""
    deleted_rows: int = 0

    @property
    def stored_rows(self) -> int:
        """Rows in the file, deleted or not; at least 1."""
        return self.row_count + self.deleted_rows

    def without(self, deleted_rows: int) -> Block:
        """Return the block with this number of its rows deleted. Its key bounds then only bound the rest."""
        if not deleted_rows:
            return self
        left = self.row_count - deleted_rows
        return replace(
            self,
            row_count=left,
            deleted_rows=self.deleted_rows + deleted_rows,
            decoded_bytes=self.decoded_bytes * left // self.row_count,
            cluster=self.cluster and replace(self.cluster, exact=False),
        )
