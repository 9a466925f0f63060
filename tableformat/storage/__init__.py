"""Storage: the only owner of fsspec, and of the operation that commits depend on: create a name only if it is free."""

from __future__ import annotations

from tblctl.tableformat.storage.backend import ObjectInfo
from tblctl.tableformat.storage.storage import Storage

__all__ = ["ObjectInfo", "Storage"]
