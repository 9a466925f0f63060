"""How an Iceberg table's properties say that files are to be written."""

from __future__ import annotations

from collections.abc import Mapping

from tblctl.tableformat.model.options import TableOptions

EXPANSION = 4
"""Bytes in memory for each byte in a file: an estimate, since manifests do not say. Plans compare files with the target
size only, and the same number is on both sides."""

_TARGET = "write.target-file-size-bytes"
_DEFAULT_TARGET = 512 * 2**20
_MOST_TARGET = 2**37
_MOST_ROWS = 2**31 - 1


def options_of(properties: Mapping[str, str]) -> TableOptions:
    """Return the options of a table. A property that is no size counts as not set, as in Iceberg's own readers."""
    text = properties.get(_TARGET, "")
    target = int(text) if text.isdecimal() and int(text) > 0 else _DEFAULT_TARGET
    return TableOptions(block_rows=_MOST_ROWS, block_bytes=min(target, _MOST_TARGET) * EXPANSION, row_group_rows=65_536)
