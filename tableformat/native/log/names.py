"""Every object name of the native format. Names are built and parsed only here.

Names are relative to the table's root:

    data/<id>.parquet                       a block
    metadata/segments/<id>.parquet          a segment
    metadata/snapshots/<20 digits>.json     a snapshot, or the tombstone it became
    metadata/latest                         a hint of the newest sequence
    metadata/records/<id>.json              the record of a recluster, block by block
    metadata/imports/<id>.arrow             a list of files whose rows the table took
    metadata/plans/<id>-<9 digits>.json     a pending plan; the digits are the seconds that it lives
    metadata/claims/<id>-<8 digits>-<4 digits>.json
                                            a claim of a group: the plan's id, the group's number, which attempt it is

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
IMPORTS = "metadata/imports/"
PLANS = "metadata/plans/"
CLAIMS = "metadata/claims/"
RECORD = "record"  # the key of a summary's detail that names one

_TEMPORARY = ".tmp-"
_ID = r"[0-9a-f]{32}"
_BLOCK = re.compile(rf"data/{_ID}\.parquet")
_SEGMENT = re.compile(rf"metadata/segments/{_ID}\.parquet")
_RECORD = re.compile(rf"metadata/records/{_ID}\.json")
_IMPORT_LIST = re.compile(rf"metadata/imports/{_ID}\.arrow")
_SNAPSHOT = re.compile(r"metadata/snapshots/([0-9]{20})\.json")
_PLAN = re.compile(rf"metadata/plans/({_ID})-([0-9]{{9}})\.json")
_CLAIM = re.compile(rf"metadata/claims/({_ID})-([0-9]{{8}})-([0-9]{{4}})\.json")

MOST_PLAN_SECONDS = 10**9 - 1
"""A pending plan's name has room for this many seconds."""

MOST_GROUPS, MOST_ATTEMPTS = 10**8, 10**4
"""A claim's name has room for group numbers and attempts below these."""


def block_path(block_id: str) -> str:
    """Return the name of the block `block_id`."""
    return checked_block_path(f"{DATA}{block_id}.parquet")


def segment_path(segment_id: str) -> str:
    """Return the name of the segment `segment_id`."""
    return checked_segment_path(f"{SEGMENTS}{segment_id}.parquet")


def record_path(record_id: str) -> str:
    """Return the name of the record `record_id`."""
    return checked_record_path(f"{RECORDS}{record_id}.json")


def import_list_path(list_id: str) -> str:
    """Return the name of the list `list_id` of imported files."""
    return checked_import_list_path(f"{IMPORTS}{list_id}.arrow")


def snapshot_path(sequence: int) -> str:
    """Return the name of the snapshot `sequence`, which is at least 1."""
    return f"{SNAPSHOTS}{sequence:020d}.json"


def plan_path(plan_id: str, lifetime_seconds: int) -> str:
    """Return the name of the pending plan `plan_id`, which expires so long after the storage's time of its object."""
    return f"{PLANS}{plan_id}-{lifetime_seconds:09d}.json"


def plan_of(name: str) -> tuple[str, int] | None:
    """Return the id and the lifetime in seconds in a pending plan's name; None for any other name."""
    found = _PLAN.fullmatch(name)
    return (found.group(1), int(found.group(2))) if found else None


def claim_path(plan_id: str, group: int, attempt: int) -> str:
    """Return the name of a claim: of a group of a pending plan, the attempts numbered from 0."""
    return f"{claims_of(plan_id)}{group:08d}-{attempt:04d}.json"


def claims_of(plan_id: str) -> str:
    """Return what the names of all claims of a pending plan begin with."""
    return f"{CLAIMS}{plan_id}-"


def claim_of(name: str) -> tuple[str, int, int] | None:
    """Return the plan's id, the group and the attempt in a claim's name; None for any other name."""
    found = _CLAIM.fullmatch(name)
    return (found.group(1), int(found.group(2)), int(found.group(3))) if found else None


def is_plan_id(text: str) -> bool:
    """Return whether a text has the form of a pending plan's id."""
    return re.fullmatch(_ID, text) is not None


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


def checked_import_list_path(name: object) -> str:
    """Return `name` if it is that of a list of imported files; raise `CorruptTableError` otherwise."""
    return _checked(name, _IMPORT_LIST, "the name of a list of imported files (metadata/imports/<id>.arrow)")


def _checked(name: object, form: re.Pattern[str], expected: str) -> str:
    if not isinstance(name, str) or not form.fullmatch(name):
        shown = repr(name)[:120]
        msg = f"metadata names the object {shown}, expected {expected}; refusing to touch it"
        raise CorruptTableError(msg, name=shown)
    return name
