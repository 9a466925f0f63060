"""Workers for races between processes: they must be importable by a fresh interpreter."""

from __future__ import annotations

import pickle
import time
from typing import Any

import tblctl
from tblctl.tableformat.storage import Storage


def create_all(pickled: bytes, worker: int, names: list[str], start_seconds: float) -> list[bool]:
    """Try to create every name, from `start_seconds` on, and return which ones this worker won."""
    storage: Storage = pickle.loads(pickled)
    storage.modified(names[:1])  # connect before the race
    time.sleep(max(0.0, start_seconds - time.time()))
    return [storage.create(name, f"worker {worker}".encode()) for name in names]


def collect_for(url: str, options: dict[str, Any], seconds: float) -> None:
    """Collect garbage again and again, with no grace."""
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        tblctl.open(url, storage_options=options).gc(keep=1, older_than=0)


def read_it(storage: Storage, name: str) -> bytes:
    return storage.read(name)
