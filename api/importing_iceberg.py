"""The Iceberg table that an import puts rows into."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tblctl.iceberg import IcebergTable
from tblctl.importing_work import Done, Work, require_fit, united
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.errors import InvalidKeyError, TableNotFoundError
from tblctl.tableformat.iceberg.location import parse_location
from tblctl.tableformat.iceberg.port import IcebergPort
from tblctl.tableformat.model.cluster_key import parse_key
from tblctl.tableformat.model.schema.schema import Schema

if TYPE_CHECKING:
    from tblctl.results import Outcome
    from tblctl.sources import Source
    from tblctl.tableformat.native.write.input_rows import InputRows


class IcebergTarget:
    """`tblctl.importing.Target` of an Iceberg table."""

    def __init__(
        self,
        location: str | os.PathLike[str],
        cluster_by: str | Sequence[str],
        catalog_options: Mapping[str, str] | None,
    ) -> None:
        self._place = parse_location(location)
        self._cluster_by = cluster_by
        self._options = dict(catalog_options or {})
        self._port = IcebergPort.of_catalog(self._place, self._options, SYSTEM)
        self._appender = self._port.appender()

    @property
    def url(self) -> str:
        """The table, for people."""
        return self._port.location

    def known(self) -> pa.Table | None:
        """Return the files that the table took; None if there is no table.

        Raises:
            InvalidKeyError: it has another cluster key than the one given.
        """
        try:
            version = self._port.newest()
        except TableNotFoundError:
            return None
        given = self._cluster_by
        if given and parse_key(given, version.schema).texts(version.schema) != version.cluster_by:
            msg = (
                f"{self.url} is clustered by {', '.join(version.cluster_by) or 'nothing'}: leave the cluster key out; "
                "`tblctl recluster LOC --cluster-by ..` changes it"
            )
            raise InvalidKeyError(msg)
        return self.refresh()

    def apart(self, sources: Sequence[Source]) -> Sequence[Source]:
        """Return the sources: a folder that holds an Iceberg table is none, whenever it came there."""
        return sources

    @property
    def schema(self) -> Schema:
        """The table's columns."""
        return self._port.newest().schema

    def create(self, work: Sequence[Work]) -> None:
        """Create a table with the columns of all files."""
        from tblctl.tableformat.iceberg.appending.create import create_table, storable

        schema = united([item.rows for item in work])
        require_fit(work, Schema.create(storable(schema)))
        create_table(self._place, self._options, schema, self._cluster_by)
        self.refresh()

    def refresh(self) -> pa.Table:
        """Return the files in the table's lists."""
        return self._appender.begin()

    def take(
        self,
        rows: InputRows,
        files: pa.Table,
        detail: Mapping[str, Any],
        *,
        memory_bytes: int | None,
        last: bool,
    ) -> tuple[Done | None, bool]:
        """Commit the rows of some files; as `NativeTarget.take`."""
        found = self._appender.append(rows.read(), files, detail, memory_bytes=memory_bytes)
        if found is None:
            return None, True
        done = Done(
            snapshot=found.version.id,
            rows_added=found.rows,
            blocks_added=found.files,
            bytes_added=found.size_bytes,
            note=None,
            recluster=self._reclustered(found.version.id) if last else None,
        )
        return done, found.is_behind

    def _reclustered(self, snapshot: str) -> Outcome | None:
        from tblctl.maintain.after_write import attempted

        written = f"snapshot {snapshot} of {self.url} is written"
        return attempted(partial(IcebergTable(self._port).recluster), written)

    def close(self) -> None:
        """Do nothing: no round runs in the background."""
