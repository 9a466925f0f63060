"""Packages that Spark downloads from Maven when a session starts."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def loaded_alone() -> Iterator[None]:
    """Let one process of this machine at a time start a session that loads packages.

    Sessions share a folder of jars. With an empty one, two that start together both write the same jar, and the first
    lacks the classes that it had not read before (`NoClassDefFoundError`).
    """
    with (Path(tempfile.gettempdir()) / f"tblctl-packages-{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
