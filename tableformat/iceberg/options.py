"""How an Iceberg table's properties say that files are to be written."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tblctl.tableformat.iceberg.bounds import TRUNCATION
from tblctl.tableformat.model.options import TableOptions

EXPANSION = 4
"""Bytes in memory for each byte in a file: an estimate, since manifests do not say. Plans compare files with the target
size only, and the same number is on both sides."""

_TARGET = "write.target-file-size-bytes"
_METRICS = "write.metadata.metrics."
_TRUNCATE = re.compile(r"truncate\((\d{1,9})\)")
_DEFAULT_TARGET = 512 * 2**20
_MOST_TARGET = 2**37
_MOST_ROWS = 2**31 - 1


def options_of(properties: Mapping[str, str]) -> TableOptions:
    """Return the options of a table. A property that is no size counts as not set, as in Iceberg's own readers."""
    text = properties.get(_TARGET, "")
    target = int(text) if text.isdecimal() and int(text) > 0 else _DEFAULT_TARGET
    return TableOptions(
        block_rows=_MOST_ROWS, block_bytes=min(target, _MOST_TARGET) * EXPANSION, row_group_rows=65_536
    )


def least_text_length(properties: Mapping[str, str]) -> int:
    """Return the length from which on some column's bounds may be truncated (`write.metadata.metrics.*`).

    Files may be older than the properties, or than a column's name. So the shortest length counts for all columns, and
    Iceberg's default always does.
    """
    modes = (value for name, value in properties.items() if name.startswith(_METRICS))
    found = (_TRUNCATE.fullmatch(mode.strip().lower()) for mode in modes)
    return min([TRUNCATION, *(int(match[1]) for match in found if match)])
