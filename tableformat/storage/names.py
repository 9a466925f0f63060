"""Which object names are safe: relative, '/'-separated, and unable to lead out of the table's root. Pure."""

from __future__ import annotations

import re

from tblctl.tableformat.errors import CorruptTableError

MAX_NAME_BYTES = 1024  # S3's limit for a whole key

_DRIVE = re.compile(r"[A-Za-z]:")


def check_name(name: object) -> str:
    """Return `name` if it is safe to read, write or delete below the table's root.

    Raises:
        CorruptTableError: it is absolute, has an empty part, '.', '..', a backslash, NUL or a drive letter, cannot be
            encoded, or is longer than 1024 bytes. Names come from the table's metadata, so the metadata is damaged.
    """
    problem = name_problem(name)
    if problem is not None or not isinstance(name, str):
        shown = repr(name)[:120]
        msg = f"unsafe name {shown} ({problem}): expected a relative path below the table's root; refusing to touch it"
        raise CorruptTableError(msg, name=shown)
    return name


def check_prefix(prefix: object) -> str:
    """Return `prefix` if a safe name may start with it: '' is every object, 'data/' a folder, 'data/ab' part of a name.

    Raises:
        CorruptTableError: no safe name starts with it.
    """
    if prefix == "":
        return ""
    if isinstance(prefix, str) and prefix.endswith("/"):
        check_name(prefix[:-1])
        return prefix
    return check_name(prefix)


def name_problem(name: object) -> str | None:
    """Return why `name` is unsafe, or None."""
    if not isinstance(name, str):
        return f"it is a {type(name).__name__}, not a string"
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError:
        return "it cannot be encoded as UTF-8"
    if size_bytes > MAX_NAME_BYTES:
        return f"it is longer than {MAX_NAME_BYTES} bytes"
    if "\\" in name or "\0" in name:
        return "it has a backslash or a NUL"
    if name.startswith("/") or _DRIVE.match(name):
        return "it is absolute"
    parts = name.split("/")
    if "" in parts:
        return "it has an empty part"
    if "." in parts or ".." in parts:
        return "it has the part '.' or '..'"
    return None
