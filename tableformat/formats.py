"""The table formats: the port of a table by its location.

Planning, measuring and reclustering name no format; they take the port.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tblctl.tableformat.environment import SYSTEM, Environment
from tblctl.tableformat.iceberg.location import is_iceberg, parse_location
from tblctl.tableformat.port import TablePort
from tblctl.tableformat.storage import Storage


def open_port(
    location: str | os.PathLike[str],
    options: Mapping[str, Any] | None = None,
    env: Environment = SYSTEM,
) -> TablePort[Any]:
    """Return the port of the table at a location; nothing is read yet.

    Args:
        location: a path or an fsspec URL; or `iceberg://CATALOG/NAMESPACE.TABLE`.
        options: options of the fsspec filesystem; or properties of the catalog.
        env: clocks and names.
    """
    if is_iceberg(location):
        from tblctl.tableformat.iceberg.port import IcebergPort

        properties = {name: str(value) for name, value in (options or {}).items()}
        return IcebergPort.of_catalog(parse_location(location), properties, env)
    from tblctl.tableformat.native.port import NativePort
    from tblctl.tableformat.native.table import NativeTable

    return NativePort(NativeTable(Storage(location, options), env))
