"""Every error that tblctl raises. They are defined in `tblctl.tableformat.errors`."""

from __future__ import annotations

from tblctl.tableformat.errors import *  # noqa: F403
