"""The disk of an Iceberg table fills up at each write of a recluster and a gc: a clear error, and nothing left over."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.types import LongType, StringType

import tblctl
from tblctl.errors import CommitOutcomeUnknownError, TblctlError

from .lake import Lake, append, fields
from .leftovers import named_files, own_files

IDS = [*range(12), 3, 30]
OPERATIONS: dict[str, Callable[[tblctl.IcebergTable], Any]] = {
    "recluster": lambda table: table.recluster(policy="full"),
    "gc": lambda table: table.gc(keep=1, expire_older_than=0),
}


class Half:
    """A stream that takes the first half of what is written, and then finds the disk full."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: bytes) -> int:
        self._stream.write(bytes(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


class Disk:
    """What is written to a table: data files by tblctl, metadata through PyIceberg. It is full from the nth file on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.writes, self.most = 0, 10**6
        write, create = os.write, PyArrowFile.create

        def written(handle: int, data: memoryview) -> int:
            if Path(f"/proc/self/fd/{handle}").readlink().is_relative_to(folder):
                self.writes += 1
                if self.writes >= self.most:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(handle, data)

        def created(file: PyArrowFile, *rest: Any, **more: Any) -> Any:
            self.writes += 1
            stream = create(file, *rest, **more)
            return Half(stream) if self.writes >= self.most else stream

        monkeypatch.setattr(os, "write", written)
        monkeypatch.setattr(PyArrowFile, "create", created)

    def fills_at(self, nth: int) -> None:
        self.writes, self.most = 0, nth


def made(folder: Path) -> Lake:
    lake = Lake(folder)
    table = lake.create("t", fields(id=LongType(), s=StringType()), properties={"tblctl.cluster-by": "id"})
    for first in range(3):
        append(table, id=list(range(first, 12, 3)), s=["x"] * 4)
    append(table, id=[3, 30], s=["y", "z"])
    return lake


def ids(lake: Lake) -> list[int]:
    return sorted(lake.load("t").scan().to_arrow()["id"].to_pylist())


def files(lake: Lake) -> set[str]:
    return {f"{path}" for path in (lake.folder / "tables").rglob("*") if path.is_file()}


def plain(paths: set[str]) -> set[str]:
    return {path.removeprefix("file://") for path in paths}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act, disk = OPERATIONS[name], Disk(monkeypatch, tmp_path)
    trial = made(tmp_path / "trial")
    disk.fills_at(10**6)
    act(trial.open("t"))
    writes = disk.writes
    assert writes
    for nth in range(1, writes + 1):
        where = f"{name}: no space from file {nth} of {writes} on"
        lake = made(tmp_path / str(nth))
        before = files(lake)
        disk.fills_at(nth)
        failed: TblctlError | None = None
        try:
            outcome = act(lake.open("t"))
        except TblctlError as error:
            failed = error
        text = str(failed) if failed else " ".join(str(group.error) for group in outcome.groups)
        never_full = disk.writes < nth  # how many files there are may differ from one run to the next
        disk.fills_at(10**6)
        if never_full:
            continue
        assert "No space left on device" in text, where
        assert f"{lake.folder}/tables/db/t/" in text or (failed and "iceberg://lake/db.t: " in text), where
        assert "free some space and try again" in text, where
        assert ids(lake) == sorted(IDS), where
        table = lake.load("t")
        assert failed is None or not isinstance(failed, CommitOutcomeUnknownError), where
        left = files(lake) - before  # PyIceberg may leave half of a metadata file, which nothing names
        assert own_files(table, left) <= plain(named_files(table)), where
        act(lake.open("t"))
        assert ids(lake) == sorted(IDS), where
