"""Add the rows of imported files to an Iceberg table: data files, the list of files, and the commit of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptTableError,
    InvalidOptionError,
    TblctlError,
)
from tblctl.tableformat.iceberg.appending.commit import AppendDrafts, OtherImportError
from tblctl.tableformat.iceberg.appending.lists import FOLDER, LISTS, Lists, text_of
from tblctl.tableformat.iceberg.appending.rows import write_rows
from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.publish.commit import Branch, commit_snapshot
from tblctl.tableformat.iceberg.record import DataFileRecord
from tblctl.tableformat.iceberg.version import IcebergVersion
from tblctl.tableformat.iceberg.writing.outputs import Outputs
from tblctl.tableformat.progress import Progress

if TYPE_CHECKING:
    from tblctl.tableformat.model.snapshot import ImportList

_NEWEST_FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class Appended:
    """What one commit added.

    Attributes:
        version: the table's then.
        is_behind: whether other imports committed meanwhile, so that files to come may have been taken.
        files, rows, size_bytes: of its new data files.
    """

    version: IcebergVersion
    is_behind: bool
    files: int
    rows: int
    size_bytes: int


class Appender:
    """Adds rows to one branch of a table, and knows which files' rows it has.

    Args:
        newest: returns the branch's newest version.
        branch: returns the branch.
        storages: returns what reads and writes the files of a version.
        env: clocks and names.
    """

    def __init__(
        self,
        newest: Callable[[], IcebergVersion],
        branch: Callable[[], Branch],
        storages: Callable[[IcebergVersion], DataStorage],
        env: Environment,
    ) -> None:
        self._newest = newest
        self._branch = branch
        self._storages = storages
        self._env = env
        self._base: IcebergVersion | None = None  # whose lists have none of the files to come

    def begin(self) -> pa.Table:
        """Read the newest version, and return the files in its lists.

        Raises:
            InvalidOptionError: tblctl adds no rows to such a table; says why.
            CorruptTableError: a list is missing or damaged.
        """
        while True:
            version = self._newest()
            try:
                files = self._lists(version).files()
            except CorruptTableError:  # or removed, since another import folded it
                if _names_same_lists(self._newest(), version):
                    raise
                continue
            _require_appendable(version)
            self._base = version
            return files

    def append(
        self,
        tables: Iterable[pa.Table],
        files: pa.Table,
        detail: Mapping[str, Any],
        *,
        memory_bytes: int | None,
        progress: Progress | None = None,
    ) -> Appended | None:
        """Add rows, and the files that they are from to the table's lists; None if another import took one of these.

        Args:
            tables: the rows, of any schemas that fit the table's.
            files: as `tableformat.import_lists` has them; no list has any that `begin` or the last commit saw.
            detail: of the snapshot.
            memory_bytes: for rows; None for the default of the table's options.
            progress: called as rows are written.

        Raises:
            InvalidDataError: a value does not fit its column. This and all others: nothing was committed.
            CommitOutcomeUnknownError: it is unknown whether the commit happened; no file was deleted.
        """
        assert self._base is not None, "begin comes first"
        base = self._base
        outputs = Outputs(base.at(None), self._storages(base), self._env)  # those of before are not read
        memory = memory_bytes or base.options.memory_bytes
        written = write_rows(outputs, tables, memory_bytes=memory, env=self._env, progress=progress)
        paths = [record.path for record in written]
        try:
            committed = self._commit(base, written, files, detail)
        except CommitOutcomeUnknownError:
            raise
        except TblctlError:  # after others, such as an interrupt, it may have happened: gc looks later
            outputs.discard(paths)
            raise
        if committed is None:
            outputs.discard(paths)
            return None
        done, is_behind = committed
        self._base = done
        return Appended(
            version=done,
            is_behind=is_behind,
            files=len(written),
            rows=sum(record.row_count for record in written),
            size_bytes=sum(record.size_bytes for record in written),
        )

    def _commit(
        self,
        base: IcebergVersion,
        records: list[DataFileRecord],
        files: pa.Table,
        detail: Mapping[str, Any],
    ) -> tuple[IcebergVersion, bool] | None:
        is_behind = False
        while True:
            lists = self._lists(base)
            committed = self._attempt(lists, base, records, files, detail)
            if committed is not None:
                done, refs = committed
                lists.remove_unused(refs, self._env)
                # After a lost reply the version has the head's properties: another import may have named its list.
                return done, is_behind or done.metadata.properties.get(LISTS) != text_of(refs)
            head = self._newest()
            _require_same_table(head, base)
            base, is_behind = head, True
            if self._took_any(base, files, besides=lists.refs):
                return None

    def _attempt(
        self,
        lists: Lists,
        base: IcebergVersion,
        records: list[DataFileRecord],
        files: pa.Table,
        detail: Mapping[str, Any],
    ) -> tuple[IcebergVersion, tuple[ImportList, ...]] | None:
        """Commit; return the version and its lists, or None if another import committed since the base."""
        try:
            refs = lists.with_files(files, self._env)
        except CorruptTableError:  # or the other import folded a list, and removed it
            if _names_same_lists(self._newest(), base):
                raise
            return None
        text = text_of(refs)
        drafts = AppendDrafts(base, records, text, detail, env=self._env, storages=self._storages(base))
        try:
            return commit_snapshot(self._branch(), drafts, {LISTS: text}), refs
        except OtherImportError:
            return None

    def _took_any(self, head: IcebergVersion, files: pa.Table, besides: tuple[ImportList, ...]) -> bool:
        listed = self._lists(head).files(besides)["path"].combine_chunks()
        return bool(pc.any(pc.is_in(files["path"], listed)).as_py())

    def _lists(self, version: IcebergVersion) -> Lists:
        folder = f"{version.metadata.location.rstrip('/')}/{FOLDER}"
        return Lists(version, self._storages(version).folder(folder))


def _names_same_lists(one: IcebergVersion, other: IcebergVersion) -> bool:
    return one.metadata.properties.get(LISTS) == other.metadata.properties.get(LISTS)


def _require_same_table(head: IcebergVersion, base: IcebergVersion) -> None:
    """Refuse to go on in a table that took another one's name.

    Raises:
        ConflictError: it did.
    """
    if head.table_id != base.table_id:
        msg = f"{base.location} was dropped and created again while files were imported: nothing more is committed"
        raise ConflictError(msg)


def _require_appendable(version: IcebergVersion) -> None:
    """Refuse a table that tblctl adds no rows to.

    Raises:
        InvalidOptionError: says why, and what to do.
    """
    metadata = version.metadata
    asked = metadata.properties.get("write.format.default", "parquet")
    why = None
    if metadata.format_version > _NEWEST_FORMAT:
        why = f"has format version {metadata.format_version}, and tblctl writes no more than {_NEWEST_FORMAT}"
    elif any(spec.fields for spec in metadata.specs().values()):
        why = "is or was partitioned, and tblctl puts imported rows into tables without partitions only"
    elif asked.lower() != "parquet":
        why = f"has the property write.format.default = {asked}, and tblctl writes Parquet alone"
    if why is not None:
        msg = f"{version.location} {why}: append the files with an engine, or import into a new table"
        raise InvalidOptionError(msg)
