"""Encode a data file, and count what only its rows show: NaN inside lists and maps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from tblctl.tableformat.iceberg.options import EXPANSION
from tblctl.tableformat.iceberg.writing.metrics import Primitive, repeated_nans
from tblctl.tableformat.model.block import FULL_SHARE
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.parquet.block_writer import BlockEncoder, Layout, PreparedRows
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.parquet.sinks import StreamedPages
from tblctl.tableformat.parquet.statistics import Measured


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
        self._repeated_nans: Counter[int] = Counter()
        self._has_copies = False
        self._columns = columns

    def add(self, window: PreparedRows) -> None:
        """Append at least one row."""
        super().add(window)
        self._repeated_nans.update(repeated_nans(window.rows, self._columns))

    def copy(
        self, file: BlockFile, group: int, keys: pa.Table | None, measured: Mapping[int, Measured]
    ) -> None:
        """Append a row group as it is stored."""
        super().copy(file, group, keys, measured)
        self._has_copies = True

    def is_full(self) -> bool:
        """Return whether the file counts as full: by its bytes on storage."""
        return self.page_bytes * EXPANSION >= FULL_SHARE * self._layout.options.block_bytes

    @property
    def repeated_nans(self) -> Mapping[int, int]:
        """How many NaN columns inside lists and maps have, by id; nothing if a row group was copied unseen."""
        return {} if self._has_copies else self._repeated_nans
