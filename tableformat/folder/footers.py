"""Read the footers of plain Parquet files, many at a time: a few kilobytes of each, never its rows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.tableformat.concurrency import IO_THREADS, cpu_threads, in_parallel
from tblctl.tableformat.errors import CorruptTableError, InvalidDataError
from tblctl.tableformat.folder.layout import Layout, StoredLeaf
from tblctl.tableformat.folder.listing import Files
from tblctl.tableformat.folder.parts import Cells, Part, columns_of, joined
from tblctl.tableformat.parquet.checked_footer import checked_footer
from tblctl.tableformat.parquet.footer import MAGIC, TAIL_BYTES, has_exact_bounds, stored_footer
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS, read_error
from tblctl.tableformat.parquet.thrift import Struct, read_struct
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.storage import Storage

LOG = logging.getLogger("tblctl")

TOGETHER = 1_000
"""Most files that are read before they become columns: what is kept of one meanwhile are Python objects."""

MOST_CELLS = 300_000
"""Most column chunks of such files, about 50 MB. How many a file has is seen in the first files."""

_LEAST_TOGETHER = 16

_END_BYTES = 64 * 1024
"""What is fetched of a file's end at once. Longer footers, of some thousand column chunks, cost a second request."""

_ENCRYPTED = b"PARE"
_ENCRYPTION = 8
"""The field of a footer that says how columns are encrypted (parquet.thrift, FileMetaData)."""

_MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class _Read:
    """What one file's footer says. `cells` and `exact` have an item for each leaf of the layout."""

    layout: Layout
    rows: int
    decoded_bytes: int
    group_rows: list[int]
    cells: list[list[tuple[object, object, int]]]
    exact: list[bool]


class _Layouts:
    """The layouts seen so far; threads share it."""

    def __init__(self) -> None:
        self._found: list[Layout] = []
        self._lock = Lock()

    def of(self, schema: pa.Schema, name: str) -> Layout:
        for known in self._found:
            if known.stored.equals(schema):
                return known
        with self._lock:
            for known in self._found:
                if known.stored.equals(schema):
                    return known
            self._found.append(Layout(stored=schema, first=name))
            return self._found[-1]


def read_parts(
    storage: Storage,
    files: Files,
    *,
    together: int = TOGETHER,
    most_cells: int = MOST_CELLS,
    progress: Progress | None = None,
) -> list[Part]:
    """Return what the footers of files say, by layout.

    Memory: at most `together` files, of about `most_cells` column chunks, as objects; all others as columns.

    Raises:
        InvalidDataError: files are empty, cut short, encrypted or no Parquet; names some of them.
        ObjectNotFoundError: one is gone.
    """
    layouts = _Layouts()
    parts: list[Part] = []
    threads = cpu_threads() if storage.is_local else IO_THREADS
    start, size = 0, min(together, _LEAST_TOGETHER)
    while start < len(files):
        places = range(start, min(start + size, len(files)))
        names = files.names.slice(places.start, len(places)).to_pylist()

        def read(item: tuple[int, str]) -> _Read | InvalidDataError:
            place, name = item
            try:
                return _read(storage, name, int(files.size_bytes[place]), layouts)
            except InvalidDataError as error:
                return error

        found = in_parallel(read, zip(places, names, strict=True), threads=threads)
        _raise_problems([item for item in found if isinstance(item, InvalidDataError)])
        good = [item for item in found if isinstance(item, _Read)]
        cells = sum(len(item.group_rows) * len(item.cells) for item in good) // len(good)
        size = min(together, max(_LEAST_TOGETHER, most_cells // max(cells, 1)))
        for layout in {id(item.layout): item.layout for item in good}.values():
            mine = [number for number, item in enumerate(good) if item.layout is layout]
            parts.append(_part(layout, [good[number] for number in mine], files, start + np.array(mine)))
        start = places.stop
        if progress:
            progress(start, len(files), "files")
    return joined(parts)


def _raise_problems(problems: list[InvalidDataError]) -> None:
    if problems:
        shown = [str(problem) for problem in problems[:_MOST_NAMED]]
        more = len(problems) - len(shown)
        tail = f"; and {more:,} more" if more else ""
        advice = "move such files away, or name the others by a glob in quotes"
        raise InvalidDataError(f"{'; '.join(shown)}{tail}: {advice}", files=len(problems))


def _part(layout: Layout, found: list[_Read], files: Files, places: np.ndarray) -> Part:
    columns: dict[str, pa.Array | np.ndarray] = {
        "name": files.names.take(pa.array(places)),
        "size_bytes": files.size_bytes[places],
        "modified_seconds": files.modified_seconds[places],
        "rows": np.array([item.rows for item in found], np.int64),
        "decoded_bytes": np.array([item.decoded_bytes for item in found], np.int64),
    }
    for number, leaf in enumerate(layout.leaves):
        cells = Cells()
        for owner, item in enumerate(found):
            cells.add(owner, item.group_rows, item.cells[number])
        try:
            low, high, nulls = cells.bounds(leaf, len(found))
        except ARROW_ERRORS as error:
            LOG.warning("the bounds of %s in %s and others are unknown: %s", leaf.path, layout.first, error)
            low = high = pa.nulls(len(found), leaf.kind)
            nulls = np.full(len(found), -1, np.int64)
        columns[f"low {number}"], columns[f"high {number}"] = low, high
        columns[f"null_count {number}"] = nulls
        columns[f"exact {number}"] = np.array([item.exact[number] for item in found], bool)
    return Part(layout=layout, rows=pa.table(columns, schema=columns_of(layout)))


def _read(storage: Storage, name: str, size_bytes: int, layouts: _Layouts) -> _Read:
    try:
        with storage.open_input(name, size_bytes=size_bytes) as source:
            fetch = _from_end(source, size_bytes)
            try:
                footer, metadata = checked_footer(fetch, size_bytes, row_count=None)
                return _parsed(footer, metadata, layouts, name)
            except ARROW_ERRORS as error:
                other = read_error(storage, name, error)
                if not isinstance(other, CorruptTableError):
                    raise other from error
                why = _why(fetch, size_bytes) or f"is damaged: {str(error)[:200]}"
                msg = f"{storage.url}/{name} {why}"
                raise InvalidDataError(msg, name=name) from error
    except OSError as error:  # at the first read, that of the end
        raise read_error(storage, name, error) from error


def _from_end(source: pa.NativeFile, size_bytes: int) -> Callable[[int, int], pa.Buffer]:
    """Return a function that returns the bytes between two offsets; the last ones are fetched once."""
    first = max(0, size_bytes - _END_BYTES)
    end = source.read_at(size_bytes - first, first)

    def fetch(start: int, stop: int) -> pa.Buffer:
        if start < first:
            return pa.py_buffer(source.read_at(stop - start, start))
        return pa.py_buffer(end[start - first : stop - first])

    return fetch


def _why(fetch: Callable[[int, int], pa.Buffer], size_bytes: int) -> str | None:
    """Return what is wrong with a file that cannot be read, as far as its ends show it; None if they do not."""
    expected = "expected a Parquet file"
    if size_bytes == 0:
        return f"is empty (0 bytes), {expected}"
    tail = fetch(max(0, size_bytes - len(MAGIC)), size_bytes).to_pybytes()
    head = fetch(0, min(size_bytes, len(MAGIC))).to_pybytes()
    if _ENCRYPTED in {tail, head}:
        return "is encrypted: its footer can be read only with its key"
    if head != MAGIC:
        return f"is not Parquet: it begins with {head!r}, expected {MAGIC!r}"
    if tail != MAGIC or size_bytes < TAIL_BYTES + len(MAGIC):
        return f"is cut short: its {size_bytes:,} bytes do not end with a footer"
    with suppress(*ARROW_ERRORS):
        if _ENCRYPTION in read_struct(stored_footer(fetch, size_bytes)[0])[0]:  # (a signature may follow it)
            return "has encrypted columns, which can be read only with their keys"
    return None


def _parsed(footer: Struct, metadata: pq.FileMetaData, layouts: _Layouts, name: str) -> _Read:
    layout = layouts.of(metadata.schema.to_arrow_schema().remove_metadata(), name)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    numbers = range(len(groups))
    return _Read(
        layout=layout,
        rows=metadata.num_rows,
        decoded_bytes=sum(group.total_byte_size for group in groups),
        group_rows=[group.num_rows for group in groups],
        cells=[[_cell(group.column(leaf.place), leaf) for group in groups] for leaf in layout.leaves],
        exact=[
            all(has_exact_bounds(footer, number, leaf.place) for number in numbers) for leaf in layout.leaves
        ],
    )


def _cell(chunk: pq.ColumnChunkMetaData, leaf: StoredLeaf) -> tuple[object, object, int]:
    """Return the least and the greatest value of a column chunk, None if unknown, and its nulls, -1 if unknown."""
    found = chunk.statistics
    if found is None:
        return None, None, -1
    nulls = found.null_count if found.has_null_count else -1
    if not found.has_min_max:
        return None, None, nulls
    if pa.types.is_temporal(leaf.kind):
        return (
            (None, None, nulls) if found.physical_type == "INT96" else (found.min_raw, found.max_raw, nulls)
        )
    try:
        return found.min, found.max, nulls
    except UnicodeDecodeError:  # text that its writer cut within a character
        return None, None, nulls
