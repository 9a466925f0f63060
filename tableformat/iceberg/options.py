"""How an Iceberg table's properties say that files are to be written."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from tblctl.tableformat.iceberg.bounds import TRUNCATION
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.parquet.style import FileStyle

EXPANSION = 4
"""Bytes in memory for each byte in a file: an estimate, since manifests do not say.

Whether a file is full, and how many files a group becomes, does not depend on it: plans compare files with the target
size, and the same number is on both sides; tasks correct file sizes as they write (`merger/task/file_sizes.py`). What
merges hold in memory does not either: readers take it from footers (`parquet/decoded_size.py`). It scales limits that
are given in bytes of memory: `--max-group-bytes`, and from which size on a round runs on Spark.
"""

_TARGET = "write.target-file-size-bytes"
METRICS = "write.metadata.metrics."
_TRUNCATE = re.compile(r"truncate\((\d{1,9})\)")
_PARQUET = "write.parquet."
_DIFFERENCES = "tblctl.parquet.delta-encodings"
_CODECS = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "brotli": "brotli",
    "uncompressed": "none",
}
_LEVELS = {"zstd": (1, 22), "gzip": (1, 9), "brotli": (0, 11)}
_HONOURED = frozenset(
    f"{_PARQUET}{name}"
    for name in (
        "compression-codec",
        "compression-level",
        "row-group-size-bytes",
        "page-size-bytes",
        "page-row-limit",
        "dict-size-bytes",
    )
)
_GROUP_BYTES = f"{_PARQUET}row-group-size-bytes"
_GROUP_ROWS = 65_536
_LEAST_GROUP_ROWS = 64
"""A row group has an entry of some 100 bytes a column in the footer, whatever its size."""

_LEAST_ROW_BYTES = 0.01
_DEFAULT_TARGET = 512 * 2**20
_MOST_TARGET = 2**37
_MOST_ROWS = 2**31 - 1


POLICY = "tblctl.recluster.policy"
"""The property that names the policy of plans and reclusters that name none."""


def options_of(properties: Mapping[str, str], row_bytes: Callable[[], float] | None = None) -> TableOptions:
    """Return the options of a table. A property that is no size counts as not set, as in Iceberg's own readers.

    Args:
        properties: of the table.
        row_bytes: returns how many bytes a row takes in the table's files. Asked only if row groups have a size.
    """
    return TableOptions(
        block_rows=_MOST_ROWS,
        block_bytes=target_bytes(properties) * EXPANSION,
        row_group_rows=_group_rows(number(properties, _GROUP_BYTES), row_bytes),
        compression=_codec(properties),
        compression_level=_level(properties),
        recluster_policy=properties.get(POLICY, "").strip()[:100] or None,
    )


def _group_rows(size_bytes: int | None, row_bytes: Callable[[], float] | None) -> int:
    """Return how many rows row groups have, so that they take about `size_bytes` in files."""
    if size_bytes is None or row_bytes is None:
        return _GROUP_ROWS
    return min(max(_LEAST_GROUP_ROWS, int(size_bytes / max(row_bytes(), _LEAST_ROW_BYTES))), _MOST_ROWS)


def target_bytes(properties: Mapping[str, str]) -> int:
    """Return the size that files of a table should have, in bytes on storage."""
    return min(number(properties, _TARGET) or _DEFAULT_TARGET, _MOST_TARGET)


def number(properties: Mapping[str, str], name: str) -> int | None:
    """Return a whole number above 0 that a property has; None if it has none."""
    text = properties.get(name, "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _codec(properties: Mapping[str, str]) -> str:
    given = properties.get("write.parquet.compression-codec", "zstd").lower()
    return _CODECS.get(given, "zstd")


def _level(properties: Mapping[str, str]) -> int | None:
    """Return the level of compression: the property's if the codec has it, else 1 for zstd, or the codec's own."""
    text = properties.get("write.parquet.compression-level", "")
    least, most = _LEVELS.get(_codec(properties), (0, -1))
    if text.isdecimal() and least <= int(text) <= most:
        return int(text)
    return 1 if _codec(properties) == "zstd" else None


def style_of(properties: Mapping[str, str], uuids: Collection[int]) -> FileStyle:
    """Return how files are written beside the options: encodings that all readers of Iceberg know, unless allowed.

    Args:
        properties: of the table.
        uuids: ids of columns of UUIDs.
    """
    return FileStyle(
        differences=properties.get(_DIFFERENCES, "").lower() == "true",
        arrow_schema=False,
        uuids=frozenset(uuids),
        page_bytes=number(properties, f"{_PARQUET}page-size-bytes"),
        page_rows=number(properties, f"{_PARQUET}page-row-limit"),
        dictionary_bytes=number(properties, f"{_PARQUET}dict-size-bytes"),
    )


def not_honoured(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the properties of a table about its Parquet files that tblctl does not follow, sorted."""
    found = {name for name in properties if name.startswith(_PARQUET) and name not in _HONOURED}
    codec = properties.get("write.parquet.compression-codec", "zstd").lower()
    if codec not in _CODECS:
        found.add("write.parquet.compression-codec")
    return tuple(sorted(found))


def least_text_length(properties: Mapping[str, str]) -> int:
    """Return the length from which on some column's bounds may be truncated (`write.metadata.metrics.*`).

    Files may be older than the properties, or than a column's name. So the shortest length counts for all columns, and
    Iceberg's default always does.
    """
    modes = (value for name, value in properties.items() if name.startswith(METRICS))
    found = (_TRUNCATE.fullmatch(mode.strip().lower()) for mode in modes)
    return min([TRUNCATION, *(int(match[1]) for match in found if match)])
