"""Bring Parquet files into a table: each file once, in commits of some files each, so that it can be interrupted."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.iceberg import is_iceberg, refuse_for_native
from tblctl.importing_work import (
    Done,
    SortedFiles,
    Work,
    columns_of_folders,
    input_of,
    require_fit,
    sorted_out,
)
from tblctl.results import ImportOutcome
from tblctl.sources import Paths, Source, find_sources
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.import_lists import COLUMNS
from tblctl.tableformat.native.write.input_rows import InputRows
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from tblctl.tableformat.model.schema.schema import Schema
    from tblctl.tableformat.progress import Progress

COMMIT_BYTES = 4 << 30
"""Bytes of files that one commit takes. An interrupted import reads so much again."""


class Target(Protocol):
    """The table that an import puts rows into: `NativeTarget`, or `IcebergTarget`."""

    @property
    def url(self) -> str:
        """The table, for people."""
        ...

    @property
    def schema(self) -> Schema:
        """The table's columns."""
        ...

    def known(self) -> pa.Table | None:
        """Return the files that the table took; None if there is no table. Refuse another cluster key than it has."""
        ...

    def apart(self, sources: Sequence[Source]) -> Sequence[Source]:
        """Return the sources; refuse those in which the next import would find the table's own files."""
        ...

    def create(self, work: Sequence[Work]) -> None:
        """Create the table, with the columns of all files."""
        ...

    def refresh(self) -> pa.Table:
        """Return files that other imports took meanwhile, and know from then on that no other file to come is taken."""
        ...

    def take(
        self,
        rows: InputRows,
        files: pa.Table,
        detail: Mapping[str, Any],
        *,
        memory_bytes: int | None,
        last: bool,
    ) -> tuple[Done | None, bool]:
        """Commit the rows of some files with a list of these; recluster after the `last`.

        Returns:
            What was done, None if another import took some of the files; and whether others may have committed.
        """
        ...

    def close(self) -> None:
        """Wait for what follows the commits."""
        ...


def import_parquet(
    source: Paths,
    location: str | os.PathLike[str],
    *,
    hive: bool | None = None,
    cluster_by: str | Sequence[str] = (),
    recluster: bool = False,
    accept_changed: bool = False,
    memory_bytes: int | None = None,
    commit_bytes: int = COMMIT_BYTES,
    storage_options: Mapping[str, Any] | None = None,
    source_options: Callable[[str], Mapping[str, Any]] | None = None,
    catalog_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> ImportOutcome:
    """Take the rows of Parquet files into a table, which is created if there is none. Each file is taken once.

    The table keeps a list of the files taken, by path, size and time, committed together with their rows. So an import
    that was interrupted goes on when it is called again. Files that were written again since are reported, and not
    taken again. All footers are read before anything is written.

    Args:
        source: a folder, a glob or a file, or several.
        location: of the table: a path, an fsspec URL, or `iceberg://CATALOG/NAMESPACE.TABLE` (unpartitioned if new).
        hive: as for `Table.append`.
        cluster_by: the cluster key of a new table, as `tblctl.create` takes it. A table that exists must have it.
        recluster: carry out one round after the last commit.
        accept_changed: files that were written again count as taken as they are now, and are not reported again.
        memory_bytes: memory for rows, which are sorted by the cluster key; None for the table's option.
        commit_bytes: commit after about as many bytes of files.
        storage_options: options of the fsspec filesystem, for the files and the table.
        source_options: returns those for the files at a path or URL of a folder, in place of `storage_options`.
        catalog_options: properties of the catalog, beside PyIceberg's own configuration; for Iceberg only.
        progress: called with (done, total, unit): footers, then bytes of files.

    Raises:
        InvalidDataError: files are empty, cut short, encrypted or no Parquet: nothing was committed. Or a file is
            damaged, or was written meanwhile: earlier commits stay.
        SchemaMismatchError: files do not fit together, or do not fit the table; names a file and its differences.
        InvalidOptionError: no such files; the table lies in a source, or gets no rows; `hive` is needed.
        InvalidKeyError: the table exists and has another cluster key.
    """
    if commit_bytes < 1:
        raise InvalidOptionError(f"commit_bytes is {commit_bytes}, expected at least 1")
    started, target = SYSTEM.elapsed(), _target(location, cluster_by, storage_options, catalog_options)
    known = target.known()
    sources = target.apart(find_sources(source, _reach(source_options, storage_options)))
    found = sorted_out(sources, COLUMNS.empty_table() if known is None else known)
    work = _work_for(target, found, hive=hive, is_new=known is None, progress=progress)
    run = _Run(target, memory_bytes=memory_bytes, commit_bytes=commit_bytes, progress=progress)
    last = run.carry_out(work, recluster=recluster)
    run.accept(found if accept_changed else ())
    return ImportOutcome(
        location=target.url,
        is_new=bool(work) and known is None,
        files_known=sum(item.known_count for item in found),
        files_changed=tuple(path for item in found for path in item.changed),
        seconds=SYSTEM.elapsed() - started,
        **run.figures(last),
    )


def _work_for(
    target: Target,
    found: Sequence[SortedFiles],
    *,
    hive: bool | None,
    is_new: bool,
    progress: Progress | None,
) -> list[Work]:
    """Return the new files with their footers read. A new table is created, if there are any."""
    columns = columns_of_folders(found, hive) if is_new else target.schema.arrow
    work = [item.work(hive, columns, progress) for item in found if len(item.new)]
    if work and is_new:
        target.create(work)
    return work


def _target(
    location: str | os.PathLike[str],
    cluster_by: str | Sequence[str],
    storage_options: Mapping[str, Any] | None,
    catalog_options: Mapping[str, str] | None,
) -> Target:
    if is_iceberg(location):
        from tblctl.importing_iceberg import IcebergTarget

        return IcebergTarget(location, cluster_by, catalog_options)
    from tblctl.importing_native import NativeTarget

    refuse_for_native(catalog_options=catalog_options)
    return NativeTarget(location, cluster_by, storage_options)


def _reach(
    options_of: Callable[[str], Mapping[str, Any]] | None, options: Mapping[str, Any] | None
) -> Callable[[str], Storage]:
    return lambda place: Storage(place, options_of(place) if options_of else options)


_Portion = tuple[Work, np.ndarray]
"""Files of one commit, by their places among those of the work."""


class _Run:
    """The commits of one import, and what they did so far."""

    def __init__(
        self,
        target: Target,
        *,
        memory_bytes: int | None,
        commit_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._target = target
        self._is_behind = False  # whether others may have committed since
        self._memory_bytes = memory_bytes
        self._commit_bytes = commit_bytes
        self._progress = progress
        self._total_bytes = 0
        self.files_taken = self.rows_added = self.blocks_added = 0
        self.bytes_read = self.bytes_added = self.commits = 0

    def figures(self, last: Done | None) -> dict[str, Any]:
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

    def carry_out(self, work: Sequence[Work], *, recluster: bool) -> Done | None:
        """Take the files of all work; return the outcome of the last commit.

        Raises:
            SchemaMismatchError: files do not fit the table; nothing was committed.
        """
        if not work:
            return None
        require_fit(work, self._target.schema)
        self._total_bytes = sum(int(item.rows.files.size_bytes.sum()) for item in work)
        left = deque((item, places) for item in work for places in item.portions(self._commit_bytes))
        last = None
        try:
            while left:
                item, places = left[0]
                done = self._take(item, places, recluster=recluster and len(left) == 1)
                if done is not None:
                    left.popleft()
                last = done or last
                if left and self._is_behind:
                    left = self._still_new(left)
        except BaseException as error:  # an interrupt, too
            if self.commits:
                error.add_note(f"{self.files_taken:,} files were taken before that: the same import goes on")
            raise
        self._target.close()
        return last

    def accept(self, found: Sequence[SortedFiles]) -> None:
        """Commit that changed files count as taken as they are now, without their rows."""
        for item in found:
            if not item.changed:
                continue
            self._target.refresh()
            nothing = InputRows(
                schema=self._target.schema.logical, read=lambda: iter(()), name=item.source.port.location
            )
            accepted = {"from": item.source.port.location, "files": 0, "accepted": len(item.changed)}
            self._target.take(
                nothing, item.changed_listed, {"import": accepted}, memory_bytes=None, last=False
            )

    def _take(self, item: Work, places: np.ndarray, *, recluster: bool) -> Done | None:
        """Commit some files; None if another import took some of them meanwhile."""
        size = int(item.rows.files.size_bytes[places].sum())
        detail = {"import": {"from": item.rows.location, "files": len(places), "bytes": size}}
        outcome, self._is_behind = self._target.take(
            self._input(item, places),
            item.listed.take(pa.array(places)),
            detail,
            memory_bytes=self._memory_bytes,
            last=recluster,
        )
        if outcome is not None:
            self._count(outcome, len(places), size)
        return outcome

    def _still_new(self, left: Iterable[_Portion]) -> deque[_Portion]:
        """Return the portions without the files that others took meanwhile."""
        paths = self._target.refresh()["path"].combine_chunks()
        self._is_behind = False
        new = (
            (item, places[pc.invert(pc.is_in(item.listed["path"].take(pa.array(places)), paths)).to_numpy()])
            for item, places in left
        )
        return deque((item, places) for item, places in new if len(places))

    def _count(self, outcome: Done, files: int, size: int) -> None:
        self.commits += 1
        self.files_taken += files
        self.bytes_read += size
        self.rows_added += outcome.rows_added
        self.blocks_added += outcome.blocks_added
        self.bytes_added += outcome.bytes_added

    def _input(self, item: Work, places: np.ndarray) -> InputRows:
        def report(done: int, _total: int | None, unit: str) -> None:
            if self._progress:
                self._progress(self.bytes_read + done, self._total_bytes, unit)

        return input_of(item.rows, places, report)
