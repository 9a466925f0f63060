"""A table that is consumed column by column, so that each column is freed after its use."""

from __future__ import annotations

import pyarrow as pa

from tblctl.tableformat.errors import InternalError


class Columns:
    """Rows whose columns can be taken once each. Threads may take different ones at the same time.

    The caller must not keep the table from which it is made.
    """

    def __init__(self, rows: pa.Table) -> None:
        self.schema: pa.Schema = rows.schema
        self.num_rows: int = rows.num_rows
        self._columns: list[pa.ChunkedArray | None] = rows.columns

    def __len__(self) -> int:
        return len(self._columns)

    def take(self, place: int) -> pa.Array:
        """Return a column as one array, and keep no reference to it.

        Raises:
            InternalError: it was taken before.
        """
        column, self._columns[place] = self._columns[place], None
        if column is None:
            raise InternalError(f"column {self.schema.names[place]!r} cannot be taken twice")
        return column.combine_chunks()
