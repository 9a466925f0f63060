"""Blocks and what is known of them without reading them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tblctl.tableformat.model.seal import Seal

CONSTANT_LEVEL = -1
"""Level of a block that holds one key only and is full: clustering it again cannot help."""

FULL_SHARE = 0.8
"""A block is full from this share of `block_rows` or `block_bytes` on (DESIGN "Selection", Databend 1.2.453)."""


def is_full(row_count: int, size_bytes: int, *, block_rows: int, block_bytes: int) -> bool:
    """Tell whether a block of so many rows and uncompressed bytes counts as full."""
    return row_count >= math.floor(FULL_SHARE * block_rows) or size_bytes >= FULL_SHARE * block_bytes


@dataclass(frozen=True, kw_only=True)
class ClusterStatistics:
    """A block's place in key order (RFC 5.1).

    Attributes:
        cluster_key_id: the sort whose key `min` and `max` are tuples of; the block's rows are in its order.
        min: the key of the first row; one value a term.
        max: the key of the last row.
        exact: false where long strings were shortened, so that `min` and `max` only bound the keys.
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
        row_count: rows that readers give; see `without`.
        size_bytes: the file's size.
        uncompressed_bytes: the sum of its column chunks before compression, as its Parquet footer states.
        decoded_bytes: what its rows take in memory as Arrow arrays; `block_bytes` limits this.
        schema_id: the schema it was written with.
        run_id: the run it belongs to; None if it was written without a cluster key.
        cluster: None if its rows are in no order.
        seal: what its end must agree with; None if it was written by a tblctl that kept no checksums.
        partition: the values of the table's partition columns that all its rows have, as text; empty without any.
        deleted_rows: rows that are stored in it and not in the table, as far as deletes were read.
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
        """Return the block once it is known how many of its rows are deleted; its key bounds only bound the rest."""
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
