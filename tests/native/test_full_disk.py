"""The disk fills up at each write of each operation: a clear error, no part of anything, and the table as it was.

The writes are those to the files of the table: blocks, segments, snapshots, the hint. From the one that fails on none
succeeds, until space was made. Ordinary tests take every third write; `make test-thorough` all.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from operations import CHANGES, RECLUSTERS, At, nothing
from profiles import THOROUGH
from tables import State, named_objects, objects_of, state_of

from tblctl.errors import CommitOutcomeUnknownError, StorageError, TableNotFoundError, TblctlError

OPERATIONS = CHANGES | RECLUSTERS
PARTLY = {"gc", "recluster, two commits"}
"""These commit more than once, and what is committed stays. gc first commits its fence."""


class Disk:
    """A disk below a folder that is full from the nth write on; half of that one's bytes have room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.writes, self.most = 0, 10**6
        real = os.write

        def write(handle: int, data: memoryview) -> int:
            if not Path(f"/proc/self/fd/{handle}").readlink().is_relative_to(folder):
                return real(handle, data)
            self.writes += 1
            if self.writes > self.most:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self.writes == self.most and len(data) > 1:
                self.writes -= 1
                self.most -= 1
                return real(handle, data[: len(data) // 2])
            return real(handle, data)

        monkeypatch.setattr(os, "write", write)

    def fills_at(self, nth: int) -> None:
        self.writes, self.most = 0, nth

    def has_room(self) -> None:
        self.writes, self.most = 0, 10**6


def state(at: At) -> State | None:
    try:
        return state_of(at.open())
    except TableNotFoundError:
        return None


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = OPERATIONS[name]
    disk = Disk(monkeypatch, tmp_path)
    trial = At(url=str(tmp_path / "trial"))
    operation.build(trial)
    disk.has_room()
    operation.act(trial)
    writes, after = disk.writes, state(trial)
    for nth in range(1, writes + 1) if THOROUGH else range(1 + len(name) % 3, writes + 1, 3):
        where = f"{name}: no space from write {nth} of {writes} on"
        at = At(url=str(tmp_path / str(nth)))
        operation.build(at)
        before, there = state(at), objects_of(at.url) if operation.build is not nothing else {}
        disk.fills_at(nth)
        failed: TblctlError | None = None
        try:
            operation.act(at)
        except TblctlError as error:
            failed = error
        disk.has_room()
        if failed:
            assert_clear(failed, at, where)
            found = objects_of(at.url) if Path(at.url).exists() else {}
            if name in PARTLY:
                assert found.keys() - there.keys() <= named_objects(at.open()), where
            else:
                assert state(at) == before, where
                assert found == there, (where, set(found) ^ set(there))
            operation.act(at)
        assert state(at) == after, where


def assert_clear(error: TblctlError, at: At, where: str) -> None:
    """Assert that an error names the table, and says what to do."""
    assert isinstance(error, StorageError), where
    assert not isinstance(error, CommitOutcomeUnknownError), where
    assert at.url in str(error), where
    assert "No space left on device" in str(error), where
    assert "free some space" in str(error), where
