"""Files of the caller's: whole or not at all, and devices written to themselves."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tblctl.local_file import whole_file

IN_MEMORY = Path("/dev/shm")


def test_what_a_process_has_open_is_written_to_itself() -> None:
    reader, writer = os.pipe()
    try:
        for folder in ("/dev/fd", "/proc/self/fd"):
            if Path(folder).exists():
                with whole_file(f"{folder}/{writer}") as part:
                    assert str(part) == f"{folder}/{writer}"
        with whole_file(os.devnull) as part:
            assert str(part) == os.devnull
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.skipif(
    not os.path.ismount(IN_MEMORY) or not os.access(IN_MEMORY, os.W_OK), reason="none below /dev"
)
def test_a_file_on_another_file_system_below_dev_appears_whole() -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        target = Path(folder, "plan.json")
        with whole_file(target) as part:
            part.write_text("half")
            assert part != target
            assert not target.exists()
        assert target.read_text() == "half"


def test_a_folder_below_dev_that_is_not_there_is_no_device() -> None:
    with pytest.raises(FileNotFoundError), whole_file("/dev/nowhere/at/all") as part:
        part.write_text("")
