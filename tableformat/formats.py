"""The formats of tables: what puts a table behind the port, whichever it has, and the packages that its tasks import.

Outside of a format's own folder nothing else names it, for planning, measuring and reclustering.
"""

from __future__ import annotations

from typing import Any

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.port import TablePort
from tblctl.tableformat.storage import Storage

PACKAGES = (
    "tblctl.tableformat",
    "tblctl.tableformat.keys",
    "tblctl.tableformat.model",
    "tblctl.tableformat.model.schema",
    "tblctl.tableformat.native",
    "tblctl.tableformat.native.log",
    "tblctl.tableformat.native.read",
    "tblctl.tableformat.native.upkeep",
    "tblctl.tableformat.native.write",
    "tblctl.tableformat.parquet",
    "tblctl.tableformat.predicate",
    "tblctl.tableformat.predicate.sql",
    "tblctl.tableformat.storage",
)
"""A list, since an editable installation has no folder to walk."""


def port_of(storage: Storage, env: Environment) -> TablePort[Any]:
    """Return the port of the table at a location; nothing is read yet."""
    from tblctl.tableformat.native.port import NativePort
    from tblctl.tableformat.native.table import NativeTable

    return NativePort(NativeTable(storage, env))
