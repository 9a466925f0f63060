"""Where the queries of an Iceberg table are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.workload.place import LogPlace

if TYPE_CHECKING:
    from tblctl.tableformat.iceberg.data_storage import DataStorage
    from tblctl.tableformat.iceberg.version import IcebergVersion

LOG_PATH, LOG_FOLDER = "tblctl.workload.path", "tblctl-workload"
"""The table's property that says where queries are recorded, and the folder below its location without that."""


def log_place_of(version: IcebergVersion, storages: DataStorage) -> LogPlace:
    """Return the place that the table's property names, or a folder below its location.

    Raises:
        InvalidOptionError: the property is a relative path.
    """
    given = version.metadata.properties.get(LOG_PATH)
    if given and "://" not in given and not given.startswith("/"):
        msg = f"{LOG_PATH} is {given!r:.140}: expected a URL, or a path that begins with /"
        raise InvalidOptionError(msg)
    place = given or f"{version.metadata.location.rstrip('/')}/{LOG_FOLDER}"
    return LogPlace(storage=storages.folder(place))
