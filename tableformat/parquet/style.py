"""How a table format wants its Parquet files, apart from the table's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class FileStyle:
    """What files of one table have in common besides `TableOptions`.

    Attributes:
        differences: numbers and text may be encoded as differences (DELTA_*), which some readers cannot read.
        arrow_schema: the footer has the schema for Arrow's readers, so that they restore types that Parquet lacks.
        uuids: ids of the 16-byte columns that are UUIDs in Parquet's schema.
        page_bytes, page_rows, dictionary_bytes: most of a page, and of a dictionary; None for pyarrow's defaults.
        bloom_filters: for columns by their paths in the file: the number of distinct values in a row group to make room
            for, and the share of false positives.
    """

    differences: bool = True
    arrow_schema: bool = True
    uuids: frozenset[int] = frozenset()
    page_bytes: int | None = None
    page_rows: int | None = None
    dictionary_bytes: int | None = None
    bloom_filters: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    def writer_options(self) -> dict[str, Any]:
        """Return arguments of `pyarrow.parquet.ParquetWriter`."""
        filters = {path: {"ndv": ndv, "fpp": fpp} for path, (ndv, fpp) in self.bloom_filters.items()}
        found = {
            "data_page_size": self.page_bytes,
            "max_rows_per_page": self.page_rows,
            "dictionary_pagesize_limit": self.dictionary_bytes,
            "bloom_filter_options": filters or None,
        }
        return {name: value for name, value in found.items() if value is not None}


NATIVE = FileStyle()
"""Blocks of native tables."""
