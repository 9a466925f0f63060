"""Every error that tblctl raises; see `tblctl.tableformat.errors`, their owner."""

from __future__ import annotations

from tblctl.tableformat.errors import *  # noqa: F403
