"""Delta tables: measured as tables are, and never written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tblctl.as_of import AsOf
from tblctl.folder import ParquetFolder
from tblctl.tableformat.delta.log import is_delta
from tblctl.tableformat.delta.port import DeltaPort
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.folder.names import DELTA_LOG, split_glob
from tblctl.tableformat.storage import Storage

__all__ = ["DeltaTable", "holds_delta", "is_delta", "open_delta"]


class DeltaTable(ParquetFolder):
    """A Delta table, as it was when it was opened: `info`, `suggest`, `picture`.

    Nothing is written to it. Which files count, and their bounds, come from its log; no file is opened.
    """

    _kind = "a Delta table"

    def first_steps(self, columns: str | Sequence[str]) -> str:
        """Return a shell command that makes a clustered table `NEW` of these rows.

        Args:
            columns: the key's terms.
        """
        terms = columns if isinstance(columns, str) else ", ".join(columns)
        code = (
            "import tblctl; from deltalake import DeltaTable; "
            f"rows = DeltaTable({self.location!r}).to_pyarrow_dataset(); "
            f"tblctl.create('NEW', rows.schema, cluster_by={terms!r}).append(rows)"
        )
        return f"python -c {shlex.quote(code)}" if set(code) & set('"$`\\!') else f'python -c "{code}"'


def holds_delta(location: str | os.PathLike[str], options: Mapping[str, Any] | None) -> bool:
    """Return whether there is a Delta table's log at a location, even an empty folder of this machine."""
    if split_glob(os.fspath(location))[1] is not None:
        return False
    storage = Storage(location, options)
    if storage.is_local:
        return not storage.is_missing_folder and f"{DELTA_LOG}/" in storage.folders()
    return next(iter(storage.list(f"{DELTA_LOG}/")), None) is not None


def open_delta(
    location: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    as_of: AsOf = None,
) -> DeltaTable:
    """Open a Delta table at its newest version.

    Raises:
        TableNotFoundError: there is none, or it has no files.
        UnsupportedFormatError: it has deletion vectors, column mapping, or features that are not known here.
        UnsupportedBackendError: deltalake is not installed.
        InvalidOptionError: `as_of` is given.
    """
    port = DeltaPort(location, storage_options)
    if as_of is not None:
        msg = f"{port.location} is a Delta table, of which tblctl measures the newest version only; as_of names another"
        raise InvalidOptionError(msg)
    port.newest()
    return DeltaTable(port)
