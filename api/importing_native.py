"""The table of tblctl's own format that an import puts rows into."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tblctl import tables
from tblctl.importing_work import Done, Work, apart, require_fit, united
from tblctl.table import Table
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.errors import CorruptTableError, InvalidKeyError
from tblctl.tableformat.import_lists import COLUMNS, read_import_lists
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.model.cluster_key import parse_key
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.native.log.commit import after_gc
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.native.write.input_rows import InputRows
from tblctl.tableformat.native.write.write_planner import Taken
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from tblctl.sources import Source
    from tblctl.tableformat.model.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True, eq=False)
class _Known:
    """Files that a table took; `lists` names all lists in its snapshot `sequence`. The default is a new table's."""

    sequence: int = 1
    lists: tuple[str, ...] = ()
    files: pa.Table = field(default_factory=COLUMNS.empty_table)


class NativeTarget:
    """`tblctl.importing.Target` of tblctl's own format."""

    def __init__(
        self,
        location: str | os.PathLike[str],
        cluster_by: str | Sequence[str],
        storage_options: Mapping[str, Any] | None,
    ) -> None:
        self._location = location
        self._cluster_by = cluster_by
        self._options = storage_options
        self._native = NativeTable(Storage(location, storage_options), SYSTEM)
        self._known = _Known()
        self._base: tuple[str, ...] = ()  # lists that have none of the files to come
        self._table = Table(self._native)

    @property
    def url(self) -> str:
        """The table, for people."""
        return self._native.storage.url

    def known(self) -> pa.Table | None:
        """Return the files that the table took; None if there is no table.

        Raises:
            InvalidKeyError: it has another cluster key than the one given.
        """
        if not tables.exists(self._location, storage_options=self._options):
            return None
        self._require_key()
        return self.refresh()

    def apart(self, sources: Sequence[Source]) -> Sequence[Source]:
        """Return the sources; refuse to put the table inside of one."""
        return apart(sources, self._native.storage)

    @property
    def schema(self) -> Schema:
        """The table's columns."""
        return self._native.head().schema

    def create(self, work: Sequence[Work]) -> None:
        """Create a table with the columns of all files."""
        schema = united([item.rows for item in work])
        require_fit(work, Schema.create(schema))

        def skim(columns: Sequence[str]) -> Iterator[pa.Table]:
            target = pa.schema([schema.field(name) for name in columns])
            return (rows.cast(target) for item in work for rows in item.rows.skim(columns))

        sample = InputRows(schema=schema, read=lambda: iter(()), name=work[0].rows.location, skim=skim)
        tables.create(
            self._location,
            schema,
            cluster_by=self._cluster_by,
            sample=sample,
            storage_options=self._options,
        )

    def refresh(self) -> pa.Table:
        """Return the files that other imports took since the files to come were found to be new."""
        known = _known_of(self._native, besides=self._base)
        self._base, self._known = known.lists, known
        return known.files

    def take(
        self,
        rows: InputRows,
        files: pa.Table,
        detail: Mapping[str, Any],
        *,
        memory_bytes: int | None,
        last: bool,
    ) -> tuple[Done | None, bool]:
        """Commit the rows of some files, with a list of these.

        Args:
            rows: the rows.
            files: as lists of imported files have them.
            detail: of the snapshot.
            memory_bytes: for rows; None for the table's option.
            last: whether a round of recluster follows.

        Returns:
            What was done, None if another import took some of the files; and whether others may have committed.
        """
        taken = Taken(files=files, base=self._base)
        done = self._table._take(  # noqa: SLF001 (of this package; not for people)
            rows, taken, detail, memory_bytes=memory_bytes, recluster=last
        )
        if done is None:
            return None, True
        outcome, snapshot = done
        is_behind = snapshot.sequence != self._known.sequence + 1
        if not is_behind:  # else its lists may have files to come, of other imports
            self._base = _names_of(snapshot)
            self._known = _Known(sequence=snapshot.sequence, lists=self._base)
        figures = ("snapshot", "rows_added", "blocks_added", "bytes_added", "note", "recluster")
        return Done(**{name: getattr(outcome, name) for name in figures}), is_behind

    def close(self) -> None:
        """Wait for what follows the commits."""
        self._table.close()

    def _require_key(self) -> None:
        head = self._native.head()
        given = self._cluster_by
        if given and not (head.sort and parse_key(given, head.schema).is_of(head.sort)):
            now = ", ".join(key_maker(head.sort).texts(head.schema)) if head.sort else "nothing"
            msg = (
                f"{self.url} is clustered by {now}: leave the cluster key out, or change it first by "
                "`tblctl alter LOC --cluster-by ..`"
            )
            raise InvalidKeyError(msg)


def _known_of(native: NativeTable, besides: Collection[str]) -> _Known:
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
