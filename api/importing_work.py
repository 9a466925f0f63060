"""The files of an import before they are taken: which are new, what footers say, their rows. Nothing is written."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.sources import Paths, Source, find_sources
from tblctl.tableformat.errors import InvalidOptionError, SchemaMismatchError
from tblctl.tableformat.folder.layout import wider
from tblctl.tableformat.folder.partitions import type_of_texts
from tblctl.tableformat.import_lists import COLUMNS
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.native.write.input_rows import InputRows
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.identity import identities

if TYPE_CHECKING:
    from tblctl.results import Outcome
    from tblctl.tableformat.folder.listing import Files
    from tblctl.tableformat.folder.rows import FolderRows
    from tblctl.tableformat.model.record import BlockRecord
    from tblctl.tableformat.native.write.writer import BlockWriter
    from tblctl.tableformat.progress import Progress

COMMIT_FILES = 10_000
"""Most files of one commit."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """Files to take: their rows, and what a list of imported files says of each."""

    rows: FolderRows
    listed: pa.Table

    def portions(self, most_bytes: int) -> Iterator[np.ndarray]:
        """Yield the places of the files of each commit."""
        ends = np.cumsum(self.rows.files.size_bytes)
        start = 0
        while start < len(ends):
            before = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, before + most_bytes, side="right"))
            stop = min(max(stop, start + 1), start + COMMIT_FILES)
            yield np.arange(start, stop)
            start = stop


@dataclass(frozen=True, kw_only=True)
class Done:
    """What one commit of an import did; fields as of `WriteOutcome`."""

    snapshot: int | str | None
    rows_added: int
    blocks_added: int
    bytes_added: int
    note: str | None
    recluster: Outcome | None


@dataclass(frozen=True, kw_only=True, eq=False)
class SortedFiles:
    """The files of a source.

    Attributes:
        source: where they are.
        new: those that were not taken.
        listed: what a list says of each new one.
        known_count: how many were taken before, and are as they were.
        changed: paths of those that were taken before, and written again since.
        changed_listed: what a list says of each of these as it is now.
    """

    source: Source
    new: Files
    listed: pa.Table
    known_count: int
    changed: tuple[str, ...]
    changed_listed: pa.Table

    def work(self, hive: bool | None, columns: pa.Schema, progress: Progress | None) -> Work:
        """Return the new files with their footers read. `columns` have the types that folders' columns get."""
        types = {field.name: field.type for field in columns}
        rows = self.source.rows(self.new, hive=hive, types=types, progress=progress)
        return Work(rows=rows, listed=self.listed)


def sorted_out(sources: Sequence[Source], known: pa.Table) -> list[SortedFiles]:
    """Tell the new files of sources from those in a list, oldest first: the last entry of a path counts.

    A file that two sources have belongs to the first.
    """
    found = []
    known = known.take(pa.array(np.arange(known.num_rows)[::-1]))  # `index_in` finds the first
    for source in sources:
        listed = _listed(source)
        at = np.asarray(pc.index_in(listed["path"], known["path"].combine_chunks()).fill_null(-1).to_numpy())
        is_known, same = at >= 0, np.ones(len(at), bool)
        for name in ("size_bytes", "modified_us"):
            before = known[name].to_numpy()[at] if known.num_rows else np.zeros(len(at), np.int64)
            same &= before == listed[name].to_numpy()
        new = np.flatnonzero(~is_known)
        again = pa.array(np.flatnonzero(is_known & ~same))
        changed = source.files.names.take(again)
        found.append(
            SortedFiles(
                source=source,
                new=source.files.at(new),
                listed=listed.take(pa.array(new)),
                known_count=int((is_known & same).sum()),
                changed=tuple(f"{source.port.storage.url}/{name}" for name in changed.to_pylist()),
                changed_listed=listed.take(again),
            )
        )
        known = pa.concat_tables([known, found[-1].listed])
    return found


def _listed(source: Source) -> pa.Table:
    """Return what a list of imported files says of a source's files."""
    files = source.files
    return pa.table(
        {
            "path": identities(source.port.storage.identity, files.names),
            "size_bytes": files.size_bytes,
            "modified_us": np.floor(files.modified_seconds * 1e6).astype(np.int64),
        },
        schema=COLUMNS,
    )


def apart(sources: Sequence[Source], table: Storage) -> Sequence[Source]:
    """Return the sources; refuse a table inside of one: the next import would find the table's own files.

    Raises:
        InvalidOptionError: it is.
    """
    place = str(Path(table.url).resolve()) if table.is_local else table.url
    for source in sources:
        if source.port.lists(place):
            msg = (
                f"{table.url} lies in {source.port.location}, whose files are to be imported: the next import would "
                "find the table's own files there; give the table a place outside"
            )
            raise InvalidOptionError(msg)
    return sources


def columns_of_folders(found: Sequence[SortedFiles], hive: bool | None) -> pa.Schema:
    """Return the columns that the folders of all sources give a new table: of each source alone, types may differ."""
    texts: dict[str, list[str | None]] = {}
    for item in found:
        if hive is not False and len(item.new):
            given = item.source.partitions(item.new)
            for key in given.keys:
                texts.setdefault(key, []).extend(given.texts(key))
    return pa.schema([(key, type_of_texts(values)) for key, values in texts.items()])


def require_fit(work: Sequence[Work], schema: Schema) -> None:
    """Refuse files whose rows cannot be converted to a table's schema; names one.

    Raises:
        SchemaMismatchError: lists every difference of one file.
    """
    for item in work:
        input_of(item.rows, ()).require_fit(schema, names_file=True)


def input_of(
    rows: FolderRows, places: Sequence[int] | np.ndarray, progress: Progress | None = None
) -> InputRows:
    """Return the rows of some files for a write."""
    (name, schema), *others = rows.schemas
    left = [int(place) for place in places]
    taken_bytes = 0

    def report(done: int, total: int | None, unit: str) -> None:
        if progress:
            progress(taken_bytes + done, total, unit)

    def copy(writer: BlockWriter) -> list[BlockRecord]:
        nonlocal taken_bytes
        found = rows.take_whole(left, writer.options, writer.copy_file, report)
        taken_bytes = int(rows.files.size_bytes[list(found)].sum())
        left[:] = [place for place in left if place not in found]
        return list(found.values())

    return InputRows(
        schema=schema,
        read=lambda: rows.read(left, report),
        name=name,
        others=tuple(others),
        copy=copy,
    )


def rows_of(
    paths: Paths,
    reach: Callable[[str], Storage],
    *,
    hive: bool | None,
    schema: Schema,
) -> InputRows:
    """Return the rows of folders, globs and files for a write to a table of a schema. All footers are read.

    Raises:
        InvalidOptionError, InvalidDataError, SchemaMismatchError: as for `import_parquet`.
    """
    types = {field.name: field.type for field in schema.arrow}
    parts = [
        input_of(item, range(len(item.files)))
        for item in (
            source.rows(source.files, hive=hive, types=types) for source in find_sources(paths, reach)
        )
    ]
    first, *rest = parts
    return InputRows(
        schema=first.schema,
        read=lambda: itertools.chain.from_iterable(part.read() for part in parts),
        name=first.name,
        others=(*first.others, *(item for part in rest for item in ((part.name, part.schema), *part.others))),
    )


def united(rows: Sequence[FolderRows]) -> pa.Schema:
    """Return the columns of all files, each with the type that holds the values of all.

    Raises:
        SchemaMismatchError: files have types of a column of which none holds the other's values.
    """
    found: dict[str, pa.DataType] = {}
    for item in rows:
        for column in item.united():
            mine = found.get(column.name, column.type)
            both = wider(mine, column.type)
            if both is None and column.name in item.given:
                both = pa.string()  # as among the folders of one location
            if both is None:
                difference = f"{column.name} is {column.type} in {item.location}, and {mine} before"
                raise SchemaMismatchError(
                    f"files have different schemas: {difference}", differences=(difference,)
                )
            found[column.name] = both
    return pa.schema(list(found.items()))
