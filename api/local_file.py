"""Write a file of the caller's on the local disk: it appears whole, or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the path to write to; at the end its content becomes that of `path`, and replaces an older one.

    After an error `path` is as before. What is no regular file, and what is named by a device, such as /dev/stdout or a
    pipe, is written to itself.
    """
    given = Path(path)
    _, *first = given.absolute().parts
    is_device = first[:1] in (["dev"], ["proc"]) and first[:2] != ["dev", "shm"]  # a file system in memory
    if is_device or (given.exists() and not given.is_file()):
        yield given
        return
    target = Path(os.path.realpath(given))  # a link stays a link
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def is_full(error: BaseException) -> bool:
    """Return whether a disk, or what one may have of it, is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def why_unwritten(error: OSError) -> str:
    """Return why a file could not be written, and what to do."""
    text = error.strerror or str(error)
    return f"{text}; free space there, or name another place" if is_full(error) else text
