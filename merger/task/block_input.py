"""Look at a block in key order before it is merged: read and check its keys, and find its row groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.merger.task.row_ranges import overlapping
from tblctl.merger.task.spec import InputSplit
from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.keys.order import is_sorted, key_range, sort_indices
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.values import python_value
from tblctl.tableformat.port import BlockIO, BlockReader

_CHUNK_BYTES = 512
"""Memory of one column chunk's entry in an open Parquet footer."""


@dataclass(frozen=True, kw_only=True)
class RowGroupRange:
    """Rows of one row group.

    Attributes:
        group: the row group.
        start, stop: the rows, counted in it.
        row_bytes: approximate memory of a row.
        stored_bytes: bytes of the whole row group in the file.
        is_copyable: it is the whole row group, and `BlockBuilder.copy` takes it.
    """

    group: int
    start: int
    stop: int
    row_bytes: float
    stored_bytes: int
    is_copyable: bool = False

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.stop - self.start


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockInput:
    """An input split of a block in key order, with facts from the block's footer.

    Attributes:
        split: which rows.
        ranges: the same, by row group.
        copied: row groups whose rows are copied, not decoded.
        group_bytes, stored_bytes: of its largest row group, see `BlockReader`.
        footer_bytes: memory of the open block.
        codable: columns that can be read as dictionaries, see `BlockReader`.
    """

    split: InputSplit
    ranges: tuple[RowGroupRange, ...]
    group_bytes: int
    stored_bytes: int
    footer_bytes: int
    codable: frozenset[int] = frozenset()
    copied: frozenset[int] = frozenset()

    @property
    def decoded(self) -> tuple[RowGroupRange, ...]:
        """The rows that are decoded."""
        return tuple(item for item in self.ranges if item.group not in self.copied)

    @property
    def order(self) -> tuple[int, int]:
        """Its place among the inputs of a task."""
        return self.split.place, 0

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(item.rows for item in self.ranges)

    @property
    def row_bytes(self) -> float:
        """Approximate memory of a decoded row."""
        return self.decoded_bytes / max(sum(item.rows for item in self.decoded), 1)

    @property
    def bytes_read(self) -> int:
        """Bytes of the file read for the rows."""
        return sum(item.stored_bytes for item in self.ranges)

    @property
    def bytes_copied(self) -> int:
        """Those of them that belong to copied row groups."""
        return sum(item.stored_bytes for item in self.ranges if item.group in self.copied)

    @property
    def decoded_bytes(self) -> float:
        """Approximate memory of the decoded rows."""
        return sum(item.rows * item.row_bytes for item in self.decoded)

    @property
    def each_row_bytes(self) -> np.ndarray:
        """Approximate memory of each row, float32."""
        sizes = np.array([item.row_bytes for item in self.ranges], dtype=np.float32)
        return np.repeat(sizes, [item.rows for item in self.ranges])


def keys_in_order(reader: BlockReader, split: InputSplit, sort: Sort) -> tuple[pa.Table, bool]:
    """Return the keys of a split in key order, for a block in any order, and whether the block is in key order.

    Raises:
        CorruptTableError: the block is damaged, or not in the order that its metadata states.
    """
    if split.is_ordered:
        return _ordered_keys(reader, split, sort)[0], True
    keys = reader.keys(range(len(reader.group_rows)), sort).combine_chunks()
    if is_sorted(keys, sort):
        return keys.slice(split.start, split.rows), True
    return keys.take(sort_indices(keys, sort).slice(split.start, split.rows)), False


def look_at(io: BlockIO, split: InputSplit, sort: Sort) -> tuple[pa.Table, BlockInput]:
    """Return the keys of a split of a block in key order, and the facts of its footer.

    Raises:
        CorruptTableError: the block is damaged, or not in the order that its metadata states.
    """
    with io.open(split.block) as reader:
        keys, ranges = _ordered_keys(reader, split, sort)
        if not io.can_copy(split.block):
            ranges = tuple(replace(item, is_copyable=False) for item in ranges)
        return keys, BlockInput(
            split=split,
            ranges=ranges,
            group_bytes=max(reader.group_bytes[item.group] for item in ranges),
            stored_bytes=max(item.stored_bytes for item in ranges),
            footer_bytes=_CHUNK_BYTES * len(reader.group_rows) * len(io.schema.leaves),
            codable=reader.codable,
        )


def _ordered_keys(
    reader: BlockReader, split: InputSplit, sort: Sort
) -> tuple[pa.Table, tuple[RowGroupRange, ...]]:
    """Return the keys of a split of a block in key order, checked, and the row groups that they are of."""
    ranges = tuple(_range(reader, *one) for one in overlapping(reader.group_rows, split.start, split.stop))
    keys = reader.keys([item.group for item in ranges], sort).slice(ranges[0].start, split.rows)
    if not is_sorted(keys, sort):
        raise _damaged(split.block, f"is not in the order of cluster key {sort.id}, as its metadata says")
    _check_ends(split, keys, sort)
    return keys, ranges


def _range(reader: BlockReader, group: int, start: int, stop: int) -> RowGroupRange:
    return RowGroupRange(
        group=group,
        start=start,
        stop=stop,
        row_bytes=max(1.0, reader.group_bytes[group] / reader.group_rows[group]),
        stored_bytes=reader.stored_bytes[group],
        is_copyable=stop - start == reader.group_rows[group] and group in reader.copyable,
    )


def _check_ends(split: InputSplit, keys: pa.Table, sort: Sort) -> None:
    """Compare the first and last key with the metadata, if the split has them."""
    cluster = split.block.cluster
    if cluster is None or cluster.cluster_key_id != sort.id or not cluster.exact:
        return
    found = key_range(keys, sort)
    if split.start == 0 and _differ(found.min, cluster.min):
        raise _damaged(split.block, f"begins with the key {found.min}, its metadata says {cluster.min}")
    if split.stop == split.block.row_count and _differ(found.max, cluster.max):
        raise _damaged(split.block, f"ends with the key {found.max}, its metadata says {cluster.max}")


def _differ(found: Sequence[pa.Scalar], stated: Sequence[Any]) -> bool:
    """Return whether keys certainly differ. Values of a column that was widened since may have other Python types."""
    return any(_differs(scalar, value) for scalar, value in zip(found, stated, strict=True))


def _differs(scalar: pa.Scalar, stated: Any) -> bool:
    value = python_value(scalar)
    counts_units = pa.types.is_temporal(scalar.type) and isinstance(value, int)
    is_nan = isinstance(value, float) and math.isnan(value)
    return type(value) is type(stated) and not counts_units and not is_nan and value != stated


def _damaged(block: Block, problem: str) -> CorruptTableError:
    msg = f"block {block.path} {problem}; `tblctl check --deep` finds other damage"
    return CorruptTableError(msg, name=block.path)
