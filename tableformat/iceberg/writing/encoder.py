"""Encode a data file, and count what only its rows show: NaN inside lists and maps."""

from __future__ import annotations

from collections import Counter

from tblctl.tableformat.iceberg.writing.metrics import Primitive, repeated_nans
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.parquet.block_writer import BlockEncoder, Layout, PreparedRows
from tblctl.tableformat.parquet.sinks import StreamedPages


class DataFileEncoder(BlockEncoder):
    """A data file under construction, whose pages go to the storage as they are made.

    Args:
        layout: how rows become files.
        sort: the order in which rows come; None for none.
        sink: takes the file's bytes.
        columns: of the file, in its order.
    """

    def __init__(
        self, layout: Layout, sort: Sort | None, sink: StreamedPages, columns: tuple[Primitive, ...]
    ) -> None:
        super().__init__(layout, sort, sink)
        self.sink = sink
        self.repeated_nans: Counter[int] = Counter()
        self._columns = columns

    def add(self, window: PreparedRows) -> None:
        """Append at least one row."""
        super().add(window)
        self.repeated_nans.update(repeated_nans(window.rows, self._columns))
