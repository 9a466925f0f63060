"""A scan of one version of a table, with results as Arrow, pandas or Polars."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tblctl.results import ScanExplanation
from tblctl.tableformat.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from tblctl.tableformat.native.read.scan import Scanner


class Scan:
    """Rows of one version of a table. Nothing is read before one of the `to_...` methods is called."""

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner

    @property
    def snapshot(self) -> int:
        """The sequence of the version that is read. Later commits do not change it."""
        return self._scanner.snapshot.sequence

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, in read types."""
        return self._scanner.schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream. Reading keeps pace with the consumer, about 256 MiB of blocks at a time.

        No thread runs between two batches.
        """
        batches = (batch for table in self._scanner.tables() for batch in table.to_batches())
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows for any library that takes Arrow streams: DuckDB, Polars, pandas and others.

        See the Arrow PyCapsule interface.
        """
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Return all rows as a pyarrow Table."""
        tables = list(self._scanner.tables(window_bytes=math.inf))
        return pa.concat_tables(tables) if tables else pa.Table.from_batches([], self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame.

        Raises:
            InputError: pandas is not installed.
        """
        _need("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a Polars DataFrame.

        Raises:
            InputError: Polars is not installed.
        """
        polars = _need("polars")
        frame: pl.DataFrame = polars.from_arrow(self.to_arrow())
        return frame

    def explain(self) -> ScanExplanation:
        """Return what would be read, from metadata alone."""
        from tblctl.tableformat.native.read.scan import explained

        scanner = self._scanner
        found = explained(scanner)
        snapshot = scanner.snapshot
        return ScanExplanation(
            snapshot=snapshot.sequence,
            where=scanner.request.where,
            columns=scanner.request.columns,
            blocks_total=found.blocks_total,
            blocks_pruned=found.blocks_pruned,
            blocks_read=found.blocks_read,
            blocks_whole=found.blocks_whole,
            bytes_total=snapshot.data_bytes,
            bytes_to_read=found.bytes_to_read,
            segments_total=found.segments_total,
            segments_pruned=found.segments_pruned,
            rows_total=snapshot.row_count,
        )

    def __repr__(self) -> str:
        return f"Scan(snapshot={self._scanner.snapshot.sequence}, where={self._scanner.request.where!r})"


def _need(package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        msg = f"{package} is not installed; `pip install {package}`, or use to_arrow()"
        raise InputError(msg) from error
