"""Snapshots and tombstones as JSON objects: encode, decode, and refuse everything else.

docs/FORMAT.md describes the layout; this module is its only implementation.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tblctl.tableformat.errors import CorruptTableError, TblctlError, UnsupportedFormatError
from tblctl.tableformat.keys.kinds import KINDS, key_maker
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.options import AUTO, INLINE, OFF, OPTION_DOCS, TableOptions
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.model.snapshot import (
    ColumnBounds,
    ImportList,
    SegmentRef,
    Snapshot,
    Summary,
    Tombstone,
)
from tblctl.tableformat.native.log.checked_json import has_checksum, with_checksum
from tblctl.tableformat.native.log.names import (
    checked_import_list_path,
    checked_segment_path,
    snapshot_path,
)

FORMAT_VERSION = 1
"""Version of snapshot, segment and block layout. A reader refuses a higher one."""

WRITER_VERSION = 6
"""Version of this writer: what it knows and keeps. A snapshot states the least version it needs (`least_writer`)."""

CHECKSUMS_FROM = 2
"""From this version on, writers know checksums and gc's horizon. Their objects without a valid checksum are damaged."""

_SORTS_FROM = 3
"""From this version on, writers know several live sorts."""

_MODES_FROM = 4
"""From this version on, writers know other modes than off and inline, count commits, and keep a table's policy."""

_LAYOUTS_FROM = 5
"""From this version on, writers know curves and trees, and the ids of sorts that left the snapshot."""

_IMPORTS_FROM = 6
"""From this version on, writers know lists of imported files."""

MAX_SEGMENT_BLOCKS = 1_000_000
"""A segment that claims more blocks than this counts as damaged (tblctl writes at most 10,000)."""

MAX_TIMESTAMP_MS = 253_402_300_799_999
"""The end of the year 9999."""

_SNAPSHOT = "snapshot"
_TOMBSTONE = "tombstone"
_WRITES = "writes_since_recluster"
_LAST_SORT = "last_sort_id"
_T = TypeVar("_T")


def least_writer(snapshot: Snapshot) -> int:
    """Return the least version of writers that keep everything in a snapshot."""
    options = snapshot.options
    has_modes = options.recluster_mode not in (OFF, INLINE) or options.recluster_every != 1
    has_modes |= options.recluster_policy is not None
    if snapshot.imports:
        return max(snapshot.min_writer_version, _IMPORTS_FROM)
    if snapshot.has_layouts:
        return max(snapshot.min_writer_version, _LAYOUTS_FROM)
    needed = _MODES_FROM if has_modes else _SORTS_FROM if snapshot.live_beside else CHECKSUMS_FROM
    return max(snapshot.min_writer_version, needed)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the object's content."""
    document = {
        **_head(_SNAPSHOT, snapshot, snapshot.min_writer_version),
        "schema_id": snapshot.schema_id,
        "schemas": {str(key): value.to_json() for key, value in snapshot.schemas.items()},
        "sorts": {str(key): value.to_json() for key, value in snapshot.sorts.items()},
        "cluster_key_id": snapshot.cluster_key_id,
        "options": {**snapshot.options.to_json(), AUTO: snapshot.options.recluster_mode == INLINE},
        "tags": dict(snapshot.tags),
        "retained_from": snapshot.retained_from,
        "segments": [_encode_segment(segment) for segment in snapshot.segments],
    }
    if snapshot.streams:
        document["streams"] = dict(snapshot.streams)
    if snapshot.horizon_us:
        document["horizon"] = snapshot.horizon_us
    if snapshot.clock_resets:
        document["clock_resets"] = list(snapshot.clock_resets)
    if snapshot.live_beside:
        document["live_sorts"] = list(snapshot.live_beside)
    if snapshot.last_sort_id:
        document[_LAST_SORT] = snapshot.last_sort_id
    if snapshot.imports:
        document["imports"] = [_encode_import_list(item) for item in snapshot.imports]
    if snapshot.writes_since_recluster:
        document[_WRITES] = snapshot.writes_since_recluster
    return with_checksum(document)


def encode_tombstone(tombstone: Tombstone) -> bytes:
    """Return the object's content."""
    return with_checksum(_head(_TOMBSTONE, tombstone, CHECKSUMS_FROM))


def check_writable(head: Snapshot) -> None:
    """Refuse to commit on top of a snapshot that needs writers of a newer version.

    Raises:
        UnsupportedFormatError: its `min_writer_version` is above ours.
    """
    if head.min_writer_version > WRITER_VERSION:
        msg = (
            f"{snapshot_path(head.sequence)} needs writers of version {head.min_writer_version}; "
            f"this tblctl is of version {WRITER_VERSION} and can only read it: install a newer tblctl"
        )
        raise UnsupportedFormatError(msg, version=head.min_writer_version)


def decode(data: bytes, sequence: int) -> Snapshot | Tombstone:
    """Return the snapshot or tombstone that `data`, the object of `sequence`, holds.

    Raises:
        UnsupportedFormatError: it was written in a newer format version.
        CorruptTableError: neither `encode_snapshot` nor `encode_tombstone` wrote it.
    """
    name = snapshot_path(sequence)
    try:
        is_verified = has_checksum(data)
        document = json.loads(data, parse_constant=_refuse_number, parse_float=_finite)
        if not isinstance(document, dict):
            msg = "not a JSON object"
            raise TypeError(msg)  # noqa: TRY301
        _check_version(document, name)
        if not is_verified:
            _check_unverified(document)
        kind = document["kind"]
        if document["sequence"] != sequence:
            msg = f"it says sequence {document['sequence']!r}"
            raise ValueError(msg)  # noqa: TRY301
        if kind == _TOMBSTONE:
            return Tombstone(**_decode_head(document))
        if kind != _SNAPSHOT:
            msg = f"kind {kind!r}"
            raise ValueError(msg)  # noqa: TRY301
        return _decode_snapshot(document)
    except UnsupportedFormatError:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        NotImplementedError,
        RecursionError,
        TblctlError,
    ) as error:
        what = f"missing {error}" if isinstance(error, KeyError) else str(error)
        msg = f"{name} is damaged: {what[:300]}; restore it from a copy, or read an older snapshot"
        raise CorruptTableError(msg, name=name) from error


def _check_unverified(document: Mapping[str, Any]) -> None:
    """Refuse a document without a checksum from a writer that writes one."""
    version = document.get("min_writer_version", 1)
    if "checksum" in document or not isinstance(version, int) or version >= CHECKSUMS_FROM:
        msg = f"it lacks the checksum that a writer of version {version!r:.80} writes"
        raise ValueError(msg)


def _refuse_number(text: str) -> float:
    msg = f"{text} is not JSON"
    raise ValueError(msg)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _head(kind: str, item: Snapshot | Tombstone, min_writer_version: int) -> dict[str, Any]:
    summary = item.summary
    return {
        "format_version": FORMAT_VERSION,
        "min_writer_version": min_writer_version,
        "kind": kind,
        "sequence": item.sequence,
        "commit_id": item.commit_id,
        "table_id": item.table_id,
        "timestamp_ms": item.timestamp_ms,
        "summary": {name: getattr(summary, name) for name in _SUMMARY_FIELDS}
        | {"operation": summary.operation, "detail": dict(summary.detail)},
    }


_CHECKSUM_DIGITS = 16

_SUMMARY_FIELDS = (
    "rows",
    "blocks",
    "data_bytes",
    "rows_added",
    "rows_removed",
    "blocks_added",
    "blocks_removed",
    "bytes_added",
)


def _encode_segment(segment: SegmentRef) -> dict[str, Any]:
    return {
        "path": segment.path,
        "size_bytes": segment.size_bytes,
        **({} if segment.seal is None else _encode_seal(segment.seal)),
        "block_count": segment.block_count,
        "row_count": segment.row_count,
        "data_bytes": segment.data_bytes,
        "bounds": {
            str(key): [value.min, value.max, value.null_count] for key, value in segment.bounds.items()
        },
    }


def _encode_seal(seal: Seal) -> dict[str, Any]:
    return {"footer_bytes": seal.footer_bytes, "footer_checksum": f"{seal.footer_checksum:016x}"}


def _encode_import_list(item: ImportList) -> dict[str, Any]:
    return {
        "path": item.path,
        "size_bytes": item.size_bytes,
        "checksum": f"{item.checksum:016x}",
        "file_count": item.file_count,
    }


def _decode_import_lists(document: Mapping[str, Any]) -> tuple[ImportList, ...]:
    """Return the lists of imported files that a snapshot names."""
    found = document.get("imports", [])
    if not isinstance(found, list):
        msg = "imports is not a list"
        raise TypeError(msg)
    return tuple(
        ImportList(
            path=checked_import_list_path(item["path"]),
            size_bytes=_count(item, "size_bytes", least=1),
            checksum=_checksum(item, "checksum"),
            file_count=_count(item, "file_count", least=1),
        )
        for item in found
    )


def _checksum(item: Mapping[str, Any], key: str) -> int:
    text = _text(item, key)
    if len(text) != _CHECKSUM_DIGITS or not set(text) <= set("0123456789abcdef"):
        msg = f"{key} is {text!r:.80}, expected {_CHECKSUM_DIGITS} hexadecimal digits"
        raise ValueError(msg)
    return int(text, 16)


def _decode_seal(item: Mapping[str, Any]) -> Seal | None:
    if "footer_bytes" not in item and "footer_checksum" not in item:
        return None
    return Seal(footer_bytes=_count(item, "footer_bytes"), footer_checksum=_checksum(item, "footer_checksum"))


def _check_version(document: Mapping[str, Any], name: str) -> None:
    version = document["format_version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        msg = f"format_version {version!r}"
        raise ValueError(msg)
    if version > FORMAT_VERSION:
        msg = (
            f"{name} is in format version {version}; this tblctl reads versions up to {FORMAT_VERSION}: "
            "install a newer tblctl"
        )
        raise UnsupportedFormatError(msg, version=version)


def _decode_head(document: Mapping[str, Any]) -> dict[str, Any]:
    summary = document["summary"]
    detail = summary["detail"]
    if not isinstance(detail, dict):
        msg = "summary.detail is not an object"
        raise TypeError(msg)
    return {
        "sequence": _count(document, "sequence", least=1),
        "commit_id": _text(document, "commit_id"),
        "table_id": _text(document, "table_id"),
        "timestamp_ms": _count(document, "timestamp_ms", most=MAX_TIMESTAMP_MS),
        "summary": Summary(
            operation=_text(summary, "operation"),
            detail=detail,
            **{name: _count(summary, name) for name in _SUMMARY_FIELDS},
        ),
    }


def _decode_snapshot(document: Mapping[str, Any]) -> Snapshot:
    key_id = document["cluster_key_id"]
    streams = document.get("streams", {})
    segments, resets = document["segments"], document.get("clock_resets", [])
    if not isinstance(segments, list) or not isinstance(resets, list):
        msg = "segments or clock_resets is not a list"
        raise TypeError(msg)
    sorts = _by_id(document["sorts"], _decode_sort)
    known = {key: sort for key, sort in sorts.items() if sort is not None}
    snapshot = Snapshot(
        **_decode_head(document),
        min_writer_version=_count(document, "min_writer_version", least=1),
        schema_id=_count(document, "schema_id"),
        schemas=_by_id(document["schemas"], _decode_schema),
        sorts=known,
        cluster_key_id=None if key_id in sorts.keys() - known.keys() else _cluster_key_id(document),
        options=TableOptions.from_mapping(_known_options(document["options"])),
        segments=tuple(_segment_of(json.dumps(item)) for item in segments),
        tags={str(tag): _count(document["tags"], tag, least=1) for tag in document["tags"]},
        retained_from=_count(document, "retained_from", least=1),
        streams={str(name): _count(streams, name) for name in streams},
        horizon_us=_count(document, "horizon") if "horizon" in document else 0,
        clock_resets=tuple(_count({"clock_resets": item}, "clock_resets", least=2) for item in resets),
        live_beside=tuple(sort_id for sort_id in _live_beside(document) if sort_id in known),
        writes_since_recluster=_count({_WRITES: 0, **document}, _WRITES),
        last_sort_id=_count({_LAST_SORT: 0, **document}, _LAST_SORT),
        imports=_decode_import_lists(document),
    )
    _check_snapshot(snapshot)
    return snapshot


def _decode_schema(item: Any) -> Schema:
    return _schema_of(json.dumps(item))


@functools.lru_cache(maxsize=64)
def _schema_of(text: str) -> Schema:
    """Return the schema of a JSON text. Cached: it takes 0.5 ms for 16 columns, and every snapshot repeats it."""
    return Schema.from_json(json.loads(text))


def _decode_sort(item: Mapping[str, Any]) -> Sort | None:
    """Return a sort; None if this version does not know its kind. Its blocks then count as unordered."""
    kind = item["kind"]
    return Sort.from_json(item) if kind in KINDS or not isinstance(kind, str) else None


def _live_beside(document: Mapping[str, Any]) -> list[int]:
    """Return the ids of the live sorts besides the current one."""
    found = document.get("live_sorts", [])
    if not isinstance(found, list):
        msg = "live_sorts is not a list"
        raise TypeError(msg)
    return [_count({"live_sorts": item}, "live_sorts", least=1) for item in found]


def _cluster_key_id(document: Mapping[str, Any]) -> int | None:
    return None if document["cluster_key_id"] is None else _count(document, "cluster_key_id")


def _known_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that this version knows. Others are for newer writers (`min_writer_version`).

    The mode says more than its synonym, which is there for older writers.
    """
    ignored = {AUTO} if "recluster.mode" in options else set()
    return {name: value for name, value in options.items() if name in OPTION_DOCS.keys() - ignored}


def _check_snapshot(snapshot: Snapshot) -> None:
    """Refuse a snapshot whose parts contradict each other."""
    paths = {segment.path for segment in snapshot.segments}
    if len(paths) != len(snapshot.segments):
        msg = "a segment is listed twice"
        raise ValueError(msg)
    if len({item.path for item in snapshot.imports}) != len(snapshot.imports):
        msg = "a list of imported files is named twice"
        raise ValueError(msg)
    for key, sort in snapshot.sorts.items():
        if sort.id != key:
            msg = f"sort {key} says that its id is {sort.id}"
            raise ValueError(msg)
    for sort in snapshot.live_sorts.values():
        for column_id in key_maker(sort).column_ids:
            if snapshot.schema.leaf_by_id(column_id) is None:
                msg = f"its sort {sort.id} needs column id {column_id}, which its schema does not have"
                raise ValueError(msg)
    if max((snapshot.retained_from, *snapshot.tags.values(), *snapshot.clock_resets)) > snapshot.sequence:
        msg = f"retained_from {snapshot.retained_from}, a tag or a clock reset is above its own sequence"
        raise ValueError(msg)
    if any(first >= second for first, second in itertools.pairwise(snapshot.clock_resets)):
        msg = f"clock_resets {snapshot.clock_resets!r:.80} do not ascend"
        raise ValueError(msg)
    stated = snapshot.summary.rows, snapshot.summary.blocks, snapshot.summary.data_bytes
    if stated != (snapshot.row_count, snapshot.block_count, snapshot.data_bytes):
        msg = f"its summary says (rows, blocks, bytes) {stated}, its segments add up to something else"
        raise ValueError(msg)


@functools.lru_cache(maxsize=4096)
def _segment_of(text: str) -> SegmentRef:
    """Decode a segment's JSON. Snapshots share most segments with the one before: this takes a third of the time."""
    item = json.loads(text)
    block_count = _count(item, "block_count", least=1)
    if block_count > MAX_SEGMENT_BLOCKS:
        msg = f"a segment of {block_count} blocks"
        raise ValueError(msg)
    return SegmentRef(
        path=checked_segment_path(item["path"]),
        size_bytes=_count(item, "size_bytes", least=1),
        block_count=block_count,
        row_count=_count(item, "row_count", least=1),
        data_bytes=_count(item, "data_bytes", least=1),
        bounds=_by_id(item["bounds"], _decode_bounds),
        seal=_decode_seal(item),
    )


def _decode_bounds(item: Any) -> ColumnBounds:
    low, high, null_count = item
    if not isinstance(null_count, int) or not -1 <= null_count < 1 << 63:
        msg = f"null count {null_count!r:.80}"
        raise ValueError(msg)
    return ColumnBounds(min=low, max=high, null_count=null_count)


def _by_id(items: Mapping[str, Any], decode_item: Callable[[Any], _T]) -> dict[int, _T]:
    return {int(key): decode_item(value) for key, value in items.items()}


def _count(mapping: Mapping[str, Any], key: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
    value = mapping[key]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        msg = f"{key} is {value!r:.80}, expected an integer from {least} to {most}"
        raise ValueError(msg)
    return value


def _text(mapping: Mapping[str, Any], key: str) -> str:
    value = mapping[key]
    if not isinstance(value, str):
        msg = f"{key} is {value!r:.80}, expected a string"
        raise TypeError(msg)
    return value
