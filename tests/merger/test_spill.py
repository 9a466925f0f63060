"""The spill folder: made when needed, deleted when the task ends, with clear errors."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading

import pyarrow as pa
import pytest
from arrow_rows import canonical, tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.merger.presort.spill import SESSION_PREFIX, SpillFolder
from tblctl.tableformat.errors import StorageError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.projection import conform

from ..model.strategies import SCHEMAS


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder that temporary folders are made in."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def numbers(start, stop):
    return pa.table({"n": range(start, stop)})


def test_nothing_is_made_before_something_is_written(temporary):
    with SpillFolder():
        assert list(temporary.iterdir()) == []


def test_what_is_written_is_read_piece_by_piece_and_gone_afterwards(temporary):
    with SpillFolder() as scratch:
        one = scratch.write([numbers(0, 3), numbers(3, 4)])
        other = scratch.write([numbers(9, 12)])
        (folder,) = temporary.iterdir()
        assert folder.name.startswith("tblctl-merge-")
        assert len(one) == 2
        assert [one.read(piece)["n"].to_pylist() for piece in (1, 0)] == [[3], [0, 1, 2]]
        assert other.read(0)["n"].to_pylist() == [9, 10, 11]
    assert list(temporary.iterdir()) == []


@given(SCHEMAS, st.data())
@settings(max_examples=cases(12), suppress_health_check=list(HealthCheck))
def test_pieces_of_every_type_come_back_as_they_were(columns, data):
    schema = Schema.create(columns)
    rows = conform(data.draw(tables(schema.logical)), schema)
    cuts = sorted(data.draw(st.lists(st.integers(0, rows.num_rows), max_size=3)))
    pieces = [
        rows.slice(start, stop - start)
        for start, stop in zip([0, *cuts], [*cuts, rows.num_rows], strict=True)
    ]
    with SpillFolder() as scratch:
        spilled = scratch.write(pieces)
        back = [spilled.read(number) for number in range(len(spilled))]
    assert [canonical(piece) for piece in back] == [canonical(piece) for piece in pieces]
    assert all(piece.schema.equals(rows.schema, check_metadata=True) for piece in back)


def test_threads_that_begin_at_once_share_one_folder(temporary, monkeypatch):
    both = threading.Barrier(2)
    real = tempfile.mkdtemp
    made = []

    def mkdtemp(**arguments):
        made.append(arguments)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # a second thread here would make a folder that is never deleted
        return real(**arguments)

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    with SpillFolder() as scratch:
        threads = [threading.Thread(target=scratch.write, args=([numbers(0, 2)],)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 1
        assert len(list(temporary.glob("*/*.arrow"))) == 2
    assert list(temporary.iterdir()) == []


def test_a_full_disk_is_an_error_that_names_the_folder_and_what_to_do(temporary, monkeypatch):
    real = pa.OSFile
    monkeypatch.setattr(pa, "OSFile", lambda path, mode: real("/dev/full" if mode == "wb" else path, mode))
    with SpillFolder() as scratch:
        with pytest.raises(StorageError) as caught:
            scratch.write([numbers(0, 1_000_000)])
        (folder,) = temporary.iterdir()
        assert str(folder) in str(caught.value)
        assert "No space left on device" in str(caught.value)
        assert "set TMPDIR to another place, or give more --memory" in str(caught.value)
    assert list(temporary.iterdir()) == []


def test_a_disk_on_which_no_folder_can_be_made_is_the_same_error(monkeypatch):
    def no_place():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/var/tmp']")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", no_place)
    with SpillFolder() as scratch, pytest.raises(StorageError, match=r"/var/tmp.*set TMPDIR"):
        scratch.write([numbers(0, 1)])


def test_the_folder_goes_when_writing_fails(temporary):
    def pieces():
        yield numbers(0, 3)
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError, match="the source failed"), SpillFolder() as scratch:
        scratch.write(pieces())
    assert list(temporary.iterdir()) == []


KILLED = """
import os, signal, sys, tempfile
import pyarrow as pa
from tblctl.merger.presort.spill import SpillFolder
tempfile.tempdir = sys.argv[1]
SpillFolder().write([pa.table({"n": [1]})])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_spilled_goes_when_the_next_one_spills(temporary):
    with SpillFolder() as living:
        kept = living.write([numbers(0, 3)])
        subprocess.run([sys.executable, "-c", KILLED, str(temporary)], check=False)
        assert len(list(temporary.iterdir())) == 2
        with SpillFolder() as scratch:
            scratch.write([numbers(0, 1)])
            assert len(list(temporary.iterdir())) == 2, "of the killed process nothing is left"
        assert kept.read(0)["n"].to_pylist() == [0, 1, 2]
    assert list(temporary.iterdir()) == []


def test_what_workers_of_a_killed_driver_spilled_goes_too(temporary):
    session = temporary / f"{SESSION_PREFIX}x"
    session.mkdir()
    subprocess.run([sys.executable, "-c", KILLED, str(session)], check=False)
    assert len(list(session.iterdir())) == 1
    with SpillFolder() as scratch:
        scratch.write([numbers(0, 1)])
    assert list(session.iterdir()) == []


def test_a_folder_that_is_left_twice_closes_nothing_of_others(temporary):
    scratch = SpillFolder()
    scratch.write([numbers(0, 1)])
    scratch.__exit__(None, None, None)
    with (temporary / "other").open("wb") as other:  # it takes the number of the descriptor that is free
        scratch.__exit__(None, None, None)
        other.write(b"whole")
    assert (temporary / "other").read_bytes() == b"whole"
    (temporary / "other").unlink()
