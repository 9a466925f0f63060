"""A Delta table behind the port: read only, and seen as it was when it was opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.tableformat.delta.log import DeltaLog, read_log
from tblctl.tableformat.delta.statistics import DeltaStatistics
from tblctl.tableformat.environment import SYSTEM, Environment
from tblctl.tableformat.errors import TableNotFoundError
from tblctl.tableformat.folder.listing import Files
from tblctl.tableformat.folder.names import Chosen
from tblctl.tableformat.folder.port import FolderPort
from tblctl.tableformat.folder.statistics import FileStatistics
from tblctl.tableformat.folder.version import FolderVersion
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import type_problems
from tblctl.tableformat.once import once
from tblctl.tableformat.storage import Storage


class DeltaVersion(FolderVersion):
    """`tblctl.tableformat.port.Version` of a Delta table: its files as the log has them."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        names = log.files["path"].combine_chunks().cast(pa.large_string())
        files = Files(
            names=names,
            size_bytes=np.asarray(log.files["size_bytes"]),
            modified_seconds=np.asarray(log.files["modification_time"]) / 1000,
        )
        super().__init__(log.url, files, list)

    @property
    def table_id(self) -> str:
        """The table's own."""
        return self._log.table_id

    @once
    def id(self) -> str:
        """The version's number."""
        return str(self._log.version)

    @once
    def folder_columns(self) -> tuple[str, ...]:
        """None: the columns that the table is partitioned by are its own."""
        return ()

    @once
    def schema(self) -> Schema:
        """The table's columns, without those of types that tblctl does not have."""
        known = [item for item in self._log.schema if not type_problems(item.type, item.name)]
        return Schema.create(pa.schema(known))

    @once
    def measured(self) -> FileStatistics:
        """The statistics of the files that have rows."""
        return DeltaStatistics(self._log)


class DeltaPort(FolderPort):
    """`tblctl.tableformat.port.TablePort` of a Delta table; see `tblctl.tableformat.delta.log.read_log`."""

    def __init__(
        self,
        location: str | os.PathLike[str],
        options: Mapping[str, Any] | None = None,
        env: Environment = SYSTEM,
    ) -> None:
        self._given = os.fspath(location)
        self._options = options
        super().__init__(Storage(self._given.removeprefix("delta:")), Chosen(), env)

    @once
    def _version(self) -> DeltaVersion:
        log = read_log(self._given, self._options)
        if not log.files.num_rows:
            raise TableNotFoundError(f"the Delta table {log.url} has no files to measure")
        return DeltaVersion(log)

    def __reduce__(self) -> tuple[Any, ...]:
        return (partial(type(self)), (self._given, self._options, self.env))
