"""Bring Parquet files into a table: each file once, in commits of some files each, so that it can be interrupted."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl import tables
from tblctl.results import ImportOutcome
from tblctl.sources import Paths, Source, find_sources
from tblctl.table import Table
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.errors import (
    CorruptTableError,
    InvalidKeyError,
    InvalidOptionError,
    SchemaMismatchError,
)
from tblctl.tableformat.folder.layout import wider
from tblctl.tableformat.folder.partitions import type_of_texts
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.model.cluster_key import parse_key
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.native.log.commit import after_gc
from tblctl.tableformat.native.log.import_lists import COLUMNS, read_import_lists
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.native.write.input_rows import InputRows
from tblctl.tableformat.native.write.write_planner import Taken
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.identity import identities

if TYPE_CHECKING:
    from tblctl.results import WriteOutcome
    from tblctl.tableformat.folder.listing import Files
    from tblctl.tableformat.folder.rows import FolderRows
    from tblctl.tableformat.model.snapshot import Snapshot
    from tblctl.tableformat.progress import Progress

COMMIT_BYTES = 4 << 30
"""Bytes of files that one commit takes. An interrupted import reads so much again."""

COMMIT_FILES = 10_000
"""Most files of one commit."""


def import_parquet(
    source: Paths,
    location: str | os.PathLike[str],
    *,
    hive: bool | None = None,
    cluster_by: str | Sequence[str] = (),
    recluster: bool = False,
    memory_bytes: int | None = None,
    commit_bytes: int = COMMIT_BYTES,
    storage_options: Mapping[str, Any] | None = None,
    source_options: Callable[[str], Mapping[str, Any]] | None = None,
    progress: Progress | None = None,
) -> ImportOutcome:
    """Take the rows of Parquet files into a table, which is created if there is none. Each file is taken once.

    The table keeps a list of the files that it took, by path, size and time, committed together with their rows. So an
    import that was interrupted is called again, and one that is called every hour takes the new files. Files that were
    written again since are reported, and not taken again. All footers are read before anything is written.

    Args:
        source: a folder, a glob or a file, or several.
        location: of the table, a path or an fsspec URL.
        hive: as for `Table.append`.
        cluster_by: the cluster key of a new table, as `tblctl.create` takes it. A table that exists must have it.
        recluster: carry out one round after the last commit.
        memory_bytes: memory for rows, which are sorted by the cluster key; None for the table's option.
        commit_bytes: commit after about as many bytes of files.
        storage_options: options of the fsspec filesystem, for the files and the table.
        source_options: returns those for the files at a path or URL of a folder, in place of `storage_options`.
        progress: called with (done, total, unit): footers, then bytes of files.

    Raises:
        InvalidDataError: files are empty, cut short, encrypted or no Parquet; nothing was committed. Or a file is
            damaged, or was written meanwhile: what was committed before stays.
        SchemaMismatchError: files do not fit together, or do not fit the table; names a file and its differences.
        InvalidOptionError: no such files; the table lies in a source; or `hive` is None, and folders have columns.
        InvalidKeyError: the table exists and has another cluster key.
    """
    if commit_bytes < 1:
        raise InvalidOptionError(f"commit_bytes is {commit_bytes}, expected at least 1")
    started = SYSTEM.elapsed()
    native = NativeTable(Storage(location, storage_options), SYSTEM)
    there = tables.exists(location, storage_options=storage_options)
    known = _known_of(_with_key(native, cluster_by)) if there else _Known()
    sources = find_sources(source, _reach(source_options, storage_options))
    found = _sorted_out(_apart(sources, native.storage), known.files)
    columns = native.head().schema.arrow if there else _columns_of_folders(found, hive)
    work = [item.work(hive, columns, progress) for item in found if len(item.new)]
    if work and not there:
        _create(location, work, cluster_by, storage_options)
    run = _Run(native, known=known, memory_bytes=memory_bytes, commit_bytes=commit_bytes, progress=progress)
    last = run.carry_out(work, recluster=recluster)
    return ImportOutcome(
        location=native.storage.url,
        is_new=bool(work) and not there,
        files_known=sum(item.known_count for item in found),
        files_changed=tuple(path for item in found for path in item.changed),
        seconds=SYSTEM.elapsed() - started,
        **run.figures(last),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sorted:
    """The files of a source: `new`, with what a list says of each; those taken before; those written again since."""

    source: Source
    new: Files
    listed: pa.Table
    known_count: int
    changed: tuple[str, ...]

    def work(self, hive: bool | None, columns: pa.Schema, progress: Progress | None) -> _Work:
        """Return the new files with their footers read. `columns` have the types that folders' columns get."""
        types = {field.name: field.type for field in columns}
        rows = self.source.rows(self.new, hive=hive, types=types, progress=progress)
        return _Work(rows=rows, listed=self.listed)


def _sorted_out(sources: Sequence[Source], known: pa.Table) -> list[_Sorted]:
    """Tell the new files of sources from those in a list. A file that two sources have belongs to the first."""
    found = []
    for source in sources:
        listed = _listed(source)
        at = np.asarray(pc.index_in(listed["path"], known["path"].combine_chunks()).fill_null(-1).to_numpy())
        is_known, same = at >= 0, np.ones(len(at), bool)
        for name in ("size_bytes", "modified_us"):
            before = known[name].to_numpy()[at] if known.num_rows else np.zeros(len(at), np.int64)
            same &= before == listed[name].to_numpy()
        new = np.flatnonzero(~is_known)
        changed = source.files.names.take(pa.array(np.flatnonzero(is_known & ~same)))
        found.append(
            _Sorted(
                source=source,
                new=source.files.at(new),
                listed=listed.take(pa.array(new)),
                known_count=int((is_known & same).sum()),
                changed=tuple(f"{source.port.storage.url}/{name}" for name in changed.to_pylist()),
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


def _apart(sources: Sequence[Source], table: Storage) -> Sequence[Source]:
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


def _columns_of_folders(found: Sequence[_Sorted], hive: bool | None) -> pa.Schema:
    """Return the columns that the folders of all sources give a new table: of each source alone, types may differ."""
    texts: dict[str, list[str | None]] = {}
    for item in found:
        if hive is not False and len(item.new):
            given = item.source.partitions(item.new)
            for key in given.keys:
                texts.setdefault(key, []).extend(given.texts(key))
    return pa.schema([(key, type_of_texts(values)) for key, values in texts.items()])


def _require_fit(work: Sequence[_Work], schema: Schema) -> None:
    """Refuse files whose rows cannot be converted to a table's schema; names one.

    Raises:
        SchemaMismatchError: lists every difference of one file.
    """
    for item in work:
        input_of(item.rows, ()).require_fit(schema, names_file=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Known:
    """Files that a table took; `lists` names all lists in its snapshot `sequence`. The default is a new table's."""

    sequence: int = 1
    lists: tuple[str, ...] = ()
    files: pa.Table = field(default_factory=COLUMNS.empty_table)


def _known_of(native: NativeTable, besides: Collection[str] = ()) -> _Known:
    """Return the files in a table's lists, except for some lists."""
    head = native.head()
    while True:
        try:
            refs = [ref for ref in head.imports if ref.path not in besides]
            files = read_import_lists(native.storage, refs)
        except CorruptTableError:
            head = after_gc(native.storage, head)
        else:
            return _Known(sequence=head.sequence, lists=_names_of(head), files=files)


def _names_of(head: Snapshot) -> tuple[str, ...]:
    return tuple(ref.path for ref in head.imports)


def _reach(
    options_of: Callable[[str], Mapping[str, Any]] | None, options: Mapping[str, Any] | None
) -> Callable[[str], Storage]:
    return lambda place: Storage(place, options_of(place) if options_of else options)


def _with_key(native: NativeTable, cluster_by: str | Sequence[str]) -> NativeTable:
    head = native.head()
    if cluster_by and not (head.sort and parse_key(cluster_by, head.schema).is_of(head.sort)):
        now = ", ".join(key_maker(head.sort).texts(head.schema)) if head.sort else "nothing"
        msg = (
            f"{native.storage.url} is clustered by {now}: leave the cluster key out, or change it first by "
            "`tblctl alter LOC --cluster-by ..`"
        )
        raise InvalidKeyError(msg)
    return native


def _create(
    location: str | os.PathLike[str],
    work: Sequence[_Work],
    cluster_by: str | Sequence[str],
    storage_options: Mapping[str, Any] | None,
) -> None:
    """Create a table with the columns of all files."""
    schema = united([item.rows for item in work])
    _require_fit(work, Schema.create(schema))

    def skim(columns: Sequence[str]) -> Iterator[pa.Table]:
        target = pa.schema([schema.field(name) for name in columns])
        return (rows.cast(target) for item in work for rows in item.rows.skim(columns))

    sample = InputRows(schema=schema, read=lambda: iter(()), name=work[0].rows.location, skim=skim)
    tables.create(location, schema, cluster_by=cluster_by, sample=sample, storage_options=storage_options)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Work:
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


_Portion = tuple[_Work, np.ndarray]
"""Files of one commit, by their places among those of the work."""


class _Run:
    """The commits of one import, and what they did so far."""

    def __init__(
        self,
        native: NativeTable,
        *,
        known: _Known,
        memory_bytes: int | None,
        commit_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._native = native
        self._base = known.lists  # lists that have none of the files to come
        self._sequence = known.sequence  # of the snapshot with just these lists
        self._is_behind = False  # whether others may have committed since
        self._memory_bytes = memory_bytes
        self._commit_bytes = commit_bytes
        self._progress = progress
        self._total_bytes = 0
        self.files_taken = self.rows_added = self.blocks_added = 0
        self.bytes_read = self.bytes_added = self.commits = 0

    def figures(self, last: WriteOutcome | None) -> dict[str, Any]:
        """Return what the commits did, as fields of the outcome. `last` is the outcome of the last one."""
        return {
            "snapshot": last and last.snapshot,
            "files_taken": self.files_taken,
            "rows_added": self.rows_added,
            "blocks_added": self.blocks_added,
            "bytes_added": self.bytes_added,
            "bytes_read": self.bytes_read,
            "commits": self.commits,
            "note": last.note if last else "there is no new file: nothing was committed",
            "recluster": last and last.recluster,
        }

    def carry_out(self, work: Sequence[_Work], *, recluster: bool) -> WriteOutcome | None:
        """Take the files of all work; return the outcome of the last commit.

        Raises:
            SchemaMismatchError: files do not fit the table; nothing was committed.
        """
        if not work:
            return None
        _require_fit(work, self._native.head().schema)
        table = Table(self._native)
        self._total_bytes = sum(int(item.rows.files.size_bytes.sum()) for item in work)
        left = deque((item, places) for item in work for places in item.portions(self._commit_bytes))
        last = None
        try:
            while left:
                item, places = left[0]
                done = self._take(table, item, places, recluster=recluster and len(left) == 1)
                if done is not None:
                    left.popleft()
                last = done or last
                if left and self._is_behind:
                    left = self._still_new(left)
        except BaseException as error:  # an interrupt, too
            if self.commits:
                error.add_note(f"{self.files_taken:,} files were taken before that: the same import goes on")
            raise
        table.close()
        return last

    def _take(self, table: Table, item: _Work, places: np.ndarray, *, recluster: bool) -> WriteOutcome | None:
        """Commit some files; None if another import took some of them meanwhile."""
        taken = Taken(files=item.listed.take(pa.array(places)), base=self._base)
        size = int(item.rows.files.size_bytes[places].sum())
        detail = {"import": {"from": item.rows.location, "files": len(places), "bytes": size}}
        done = table._take(  # noqa: SLF001 (of this package; not for people)
            self._input(item, places), taken, detail, memory_bytes=self._memory_bytes, recluster=recluster
        )
        if done is None:
            self._is_behind = True
            return None
        outcome, snapshot = done
        self._is_behind = snapshot.sequence != self._sequence + 1
        if not self._is_behind:  # else its lists may have files to come, of other imports
            self._base, self._sequence = _names_of(snapshot), snapshot.sequence
        self._count(outcome, len(places), size)
        return outcome

    def _still_new(self, left: Iterable[_Portion]) -> deque[_Portion]:
        """Return the portions without the files that others took meanwhile, and know from then on that they are new."""
        known = _known_of(self._native, besides=self._base)
        self._base, self._sequence, self._is_behind = known.lists, known.sequence, False
        paths = known.files["path"].combine_chunks()
        new = (
            (item, places[pc.invert(pc.is_in(item.listed["path"].take(pa.array(places)), paths)).to_numpy()])
            for item, places in left
        )
        return deque((item, places) for item, places in new if len(places))

    def _count(self, outcome: WriteOutcome, files: int, size: int) -> None:
        self.commits += 1
        self.files_taken += files
        self.bytes_read += size
        self.rows_added += outcome.rows_added
        self.blocks_added += outcome.blocks_added
        self.bytes_added += outcome.bytes_added

    def _input(self, item: _Work, places: np.ndarray) -> InputRows:
        def report(done: int, _total: int | None, unit: str) -> None:
            if self._progress:
                self._progress(self.bytes_read + done, self._total_bytes, unit)

        return input_of(item.rows, places, report)


def input_of(
    rows: FolderRows, places: Sequence[int] | np.ndarray, progress: Progress | None = None
) -> InputRows:
    """Return the rows of some files for a write."""
    (name, schema), *others = rows.schemas
    return InputRows(
        schema=schema,
        read=lambda: rows.read([int(place) for place in places], progress),
        name=name,
        others=tuple(others),
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
