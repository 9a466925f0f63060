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
    if _is_device(given) or (given.exists() and not given.is_file()):
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


def _is_device(path: Path) -> bool:
    """Return whether a path is one of devices or of processes: by its name, and by the file system that it is on.

    Other file systems are mounted below /dev, such as one in memory.
    """
    root, *first = path.absolute().parts
    if first[:1] not in (["dev"], ["proc"]):
        return False
    try:
        there = path.parent.stat().st_dev
    except OSError:
        return False
    return there in {
        place.stat().st_dev for place in (Path(root, "dev"), Path(root, "proc")) if place.exists()
    }


def is_full(error: BaseException) -> bool:
    """Return whether a disk, or what one may have of it, is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def why_unwritten(error: OSError) -> str:
    """Return why a file could not be written, and what to do."""
    text = error.strerror or str(error)
    return f"{text}; free space there, or name another place" if is_full(error) else text
