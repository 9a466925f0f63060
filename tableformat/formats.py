"""The formats of tables: what puts a table behind the port, whichever it has.

Outside of a format's own folder nothing else names it, for planning, measuring and reclustering.
"""

from __future__ import annotations

from typing import Any

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.port import TablePort
from tblctl.tableformat.storage import Storage


def port_of(storage: Storage, env: Environment) -> TablePort[Any]:
    """Return the port of the table at a location; nothing is read yet."""
    from tblctl.tableformat.native.port import NativePort
    from tblctl.tableformat.native.table import NativeTable

    return NativePort(NativeTable(storage, env))
