"""Read the footer of a file of another writer, without data: checked first, since pyarrow trusts footers."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.tableformat.parquet.footer import MAGIC, footer_of
from tblctl.tableformat.parquet.footer_check import MOST_CHUNK_BYTES, check_footer
from tblctl.tableformat.parquet.thrift import Struct


def checked_footer(
    fetch: Callable[[int, int], pa.Buffer], size_bytes: int, *, row_count: int | None
) -> tuple[Struct, pq.FileMetaData]:
    """Return a file's footer as a tree, and as pyarrow parses it.

    Args:
        fetch: returns the bytes between two offsets.
        size_bytes: of the file.
        row_count: the rows that it must have; None if they are not known.

    Raises:
        ValueError: there is none, or it contradicts itself. `read_errors.ARROW_ERRORS` lists what pyarrow raises.
    """
    footer, pages_stop = footer_of(fetch, size_bytes)
    check_footer(footer, pages_stop=pages_stop, row_count=row_count, most_chunk_bytes=MOST_CHUNK_BYTES)
    alone = MAGIC + fetch(pages_stop, size_bytes).to_pybytes()  # a file that consists of a footer only
    return footer, pq.read_metadata(pa.BufferReader(pa.py_buffer(alone)))
