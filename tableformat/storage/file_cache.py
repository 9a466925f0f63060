"""Keep what was read of remote metadata in a folder of this machine: fetching it takes most of the time of `info`."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import xxhash

LOG = logging.getLogger("tblctl")

_CHECKSUM_BYTES = 8
_SUFFIX = ".manifest"


class FileCache:
    """Files by URL, in a folder that only its owner can read: metadata holds values of the table.

    A URL's content never changes, or whoever asks verifies that it still holds.

    Processes may share the folder. A file that is damaged counts as missing. If the folder cannot be written, nothing
    is kept, and nothing fails. Threads may share an instance.

    Args:
        folder: made if it is missing.
        most_bytes: what was used longest ago is deleted above this, once in each process.
    """

    def __init__(self, folder: Path, most_bytes: int = 2**30) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._is_usable: bool | None = None
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._folder, self._most_bytes))

    def get(self, url: str) -> bytes | None:
        """Return a file's content; None if it is not kept."""
        path = self._path(url)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        return body if _checksum(url, body) == checksum else None

    def put(self, url: str, data: bytes) -> None:
        """Keep a file's content."""
        if not self._usable():
            return
        try:
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                try:
                    file.write(data)
                    file.write(_checksum(url, data))
                    file.flush()
                    Path(file.name).replace(self._path(url))
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
        except OSError as error:
            self._give_up(error)

    def _path(self, url: str) -> Path:
        return self._folder / f"{hashlib.sha256(url.encode()).hexdigest()}{_SUFFIX}"

    def _usable(self) -> bool:
        """Return whether the folder can be written; make it, and delete old files, at the first call."""
        with self._lock:
            if self._is_usable is None:
                try:
                    self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._delete_old()
                    self._is_usable = True
                except OSError as error:
                    self._give_up(error)
            return bool(self._is_usable)

    def _delete_old(self) -> None:
        left = self._most_bytes
        for _, size, path in sorted(self._kept(), reverse=True):
            left -= size
            if left < 0:
                path.unlink(missing_ok=True)

    def _kept(self) -> Iterator[tuple[float, int, Path]]:
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):  # another process deleted it
                status = path.stat()
                yield status.st_mtime, status.st_size, path

    def _give_up(self, error: OSError) -> None:
        LOG.warning("metadata cannot be kept in %s: %s", self._folder, error)
        self._is_usable = False


def _checksum(url: str, data: bytes) -> bytes:
    """Return a checksum of the URL and the content, so that one file cannot be taken for another."""
    found = xxhash.xxh3_64(url.encode())
    found.update(data)
    return found.digest()
