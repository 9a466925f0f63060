"""Divide a scan into input splits (`ScanSplit`) that other processes read. Decisions are made once, here."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.statistics import SOME
from tblctl.tableformat.native.read.scan import Selection, blame_expiry, condition_columns, rows_satisfying
from tblctl.tableformat.parquet.opened import BlockAddress
from tblctl.tableformat.parquet.reader import BlockFile, row_group_windows
from tblctl.tableformat.predicate.nodes import Node
from tblctl.tableformat.storage import Storage

_WINDOW_BYTES = 32 << 20
"""Decoded bytes of the row groups that are read at once; on S3, with concurrent requests."""


@dataclass(frozen=True, kw_only=True)
class ScanSplit:
    """An input split: blocks to read, each with whether its rows must be filtered."""

    blocks: tuple[tuple[BlockAddress, bool], ...]


def cut_into_splits(selection: Selection, *, least: int, most_bytes: int) -> list[ScanSplit]:
    """Return the chosen blocks in splits of about equal decoded bytes, at most `most_bytes` unless a block exceeds it.

    There are at least `least` splits, if there are enough blocks; none without blocks. The largest blocks go first,
    each to the smallest split. So no split exceeds the mean by more than a block. O(n log n).
    """
    addresses = selection.addresses()
    sizes = selection.metadata.values("decoded_bytes").take(pa.array(selection.rows)).to_pylist()
    filtered = (selection.outcome == SOME).tolist()
    count = min(len(addresses), max(least, math.ceil(sum(sizes) / most_bytes)))
    splits: list[list[tuple[BlockAddress, bool]]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for place in sorted(range(len(addresses)), key=lambda place: -sizes[place]):
        load, number = loads[0]
        splits[number].append((addresses[place], filtered[place]))
        heapq.heapreplace(loads, (load + sizes[place], number))
    return [ScanSplit(blocks=tuple(blocks)) for blocks in splits]


@dataclass(frozen=True, kw_only=True)
class SplitReader:
    """Reads splits of one snapshot. Pickles into tasks, secrets included: never show or log that.

    Attributes:
        columns: names of top-level columns or nested fields `a.b`.
        condition: for the rows to return, resolved, so that tasks do not need PyIceberg; None for all rows.
    """

    storage: Storage
    sequence: int
    schema: Schema
    columns: tuple[str, ...]
    condition: Node | None

    def tables(self, split: ScanSplit) -> Iterator[pa.Table]:
        """Yield the matching rows, in read types. Holds 32 MiB of a block at a time, while 32 MiB more are fetched."""
        try:
            for address, filtered in split.blocks:
                yield from self._rows(address, self.condition if filtered else None)
        except CorruptTableError as error:
            blame_expiry(self.storage, self.sequence, error)
            raise

    def _rows(self, address: BlockAddress, condition: Node | None) -> Iterator[pa.Table]:
        names = [*self.columns]
        names += [name for name in condition_columns(condition, self.schema) if name not in names]
        with BlockFile(self.storage, address) as file:
            projection = file.projection(self.schema, names)
            windows = list(
                row_group_windows(file.metadata, file.row_groups(condition, self.schema), _WINDOW_BYTES)
            )
            for groups, following in zip(windows, [*windows[1:], []], strict=False):  # there may be none
                for needed in (groups, following):
                    if needed:
                        file.will_need(needed, projection)
                rows = file.read(groups, projection, use_threads=False)
                if condition is not None:
                    rows = rows.filter(rows_satisfying(rows, condition, self.schema))
                yield rows.select(list(self.columns))
