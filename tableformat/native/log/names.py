"""Every object name of the native format. Names are built and parsed only here.

Names are relative to the table's root:

    data/<id>.parquet                       a block
    metadata/segments/<id>.parquet          a segment
    metadata/snapshots/<20 digits>.json     a snapshot, or the tombstone it became
    metadata/latest                         a hint of the newest sequence
    metadata/records/<id>.json              the record of a recluster, block by block
    metadata/plans/, metadata/claims/       reserved for plans and claims of work

An id is 32 lower-case hexadecimal digits. A name from metadata with another form is refused. So metadata cannot direct
a read or a delete outside of the table's root.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tblctl.tableformat.errors import CorruptTableError

DATA = "data/"
METADATA = "metadata/"
SEGMENTS = "metadata/segments/"
SNAPSHOTS = "metadata/snapshots/"
LATEST = "metadata/latest"
RECORDS = "metadata/records/"
RECORD = "record"  # the key of a summary's detail that names one

_TEMPORARY = ".tmp-"
_ID = r"[0-9a-f]{32}"
_BLOCK = re.compile(rf"data/{_ID}\.parquet")
_SEGMENT = re.compile(rf"metadata/segments/{_ID}\.parquet")
_RECORD = re.compile(rf"metadata/records/{_ID}\.json")
_SNAPSHOT = re.compile(r"metadata/snapshots/([0-9]{20})\.json")


def block_path(block_id: str) -> str:
    """Return the name of the block `block_id`."""
    return checked_block_path(f"{DATA}{block_id}.parquet")


def segment_path(segment_id: str) -> str:
    """Return the name of the segment `segment_id`."""
    return checked_segment_path(f"{SEGMENTS}{segment_id}.parquet")


def record_path(record_id: str) -> str:
    """Return the name of the record `record_id`."""
    return checked_record_path(f"{RECORDS}{record_id}.json")


def snapshot_path(sequence: int) -> str:
    """Return the name of the snapshot `sequence`, which is at least 1."""
    return f"{SNAPSHOTS}{sequence:020d}.json"


def probe_path(probe_id: str) -> str:
    """Return the name of a probe object that shows the storage's time. Named like a leftover, so that gc removes it."""
    return f"{METADATA}{_TEMPORARY}clock-{probe_id}"


def is_leftover(name: str) -> bool:
    """Return whether an object is unfinished metadata or a probe of a killed writer."""
    return name.startswith(METADATA) and name.rpartition("/")[2].startswith(_TEMPORARY)


def sequence_of(name: str) -> int | None:
    """Return the sequence in a snapshot's name; None for any other name."""
    found = _SNAPSHOT.fullmatch(name)
    return int(found.group(1)) if found else None


def checked_block_path(name: object) -> str:
    """Return `name` if it is a block's name.

    Raises:
        CorruptTableError: it is anything else, such as a path out of the table's root.
    """
    return _checked(name, _BLOCK, "a block's name (data/<id>.parquet)")


def are_block_paths(names: Any) -> Any:
    """Return which names of a pyarrow column are blocks' names; 0.3 s for 1,000,000."""
    import pyarrow.compute as pc

    return pc.match_substring_regex(names, rf"\A{_BLOCK.pattern}\z")


def checked_segment_path(name: object) -> str:
    """Return `name` if it is a segment's name; raise `CorruptTableError` otherwise."""
    return _checked(name, _SEGMENT, "a segment's name (metadata/segments/<id>.parquet)")


def record_of(detail: Mapping[str, Any]) -> str | None:
    """Return the name of the record in a summary's detail, or None; raise `CorruptTableError` for a malformed name."""
    return None if RECORD not in detail else checked_record_path(detail[RECORD])


def checked_record_path(name: object) -> str:
    """Return `name` if it is a record's name; raise `CorruptTableError` otherwise."""
    return _checked(name, _RECORD, "a record's name (metadata/records/<id>.json)")


def _checked(name: object, form: re.Pattern[str], expected: str) -> str:
    if not isinstance(name, str) or not form.fullmatch(name):
        shown = repr(name)[:120]
        msg = f"metadata names the object {shown}, expected {expected}; refusing to touch it"
        raise CorruptTableError(msg, name=shown)
    return name
