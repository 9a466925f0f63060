"""Commands whose output finds the disk full: one message that names the file, no part of it, and no old file lost."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tables import SCHEMA, objects_of, rows

import tblctl
from tblctl.cli.main import application

FULL = "/dev/full"


@pytest.fixture
def location(tmp_path: Path) -> Path:
    table = tblctl.create(tmp_path / "t", SCHEMA, cluster_by="id", options={"block_rows": 4})
    table.append(rows(1, 3, 5))
    table.append(rows(2, 4, 6))
    return tmp_path / "t"


def full_for_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files of Python that are opened for writing find the disk full."""
    real = Path.open

    def opened(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if "w" not in mode and "a" not in mode:
            return real(path, mode, *rest, **more)
        real(path, mode).close()  # a full disk has room for a name
        return real(Path(FULL), mode, *rest, **more)

    monkeypatch.setattr(Path, "open", opened)
    for name, kind in (("write_text", "w"), ("write_bytes", "wb")):

        def write(path: Path, content: Any, kind: str = kind, **more: Any) -> int:
            with path.open(kind, **more) as file:
                return int(file.write(content))

        monkeypatch.setattr(Path, name, write)


def full_for_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files that pyarrow writes find the disk full."""
    new_writer = tblctl.cli.show.output.new_writer  # type: ignore[attr-defined]

    def writer(path: Path, schema: pa.Schema, **more: Any) -> Any:
        path.touch()
        return new_writer(Path(FULL), schema, **more)

    monkeypatch.setattr("tblctl.cli.show.output.new_writer", writer)


@pytest.mark.parametrize(
    ("words", "file", "full"),
    [
        (("plan", "LOC", "--output", "FILE"), "plan.json", full_for_python),
        (("info", "LOC", "--picture", "FILE"), "depth.svg", full_for_python),
        (("info", "LOC", "--picture", "FILE"), "depth.html", full_for_python),
        (("info", "LOC", "--picture", "FILE"), "depth.png", full_for_python),
        (("scan", "LOC", "--output", "FILE"), "rows.parquet", full_for_arrow),
        (("scan", "LOC", "--output", "FILE"), "rows.arrow", full_for_arrow),
        (("scan", "LOC", "--output", "FILE"), "rows.csv", full_for_arrow),
    ],
)
@pytest.mark.parametrize("before", [None, b"older"])
def test_an_output_on_a_full_disk_is_one_message_and_leaves_nothing(
    location: Path,
    words: tuple[str, ...],
    file: str,
    full: Callable[[pytest.MonkeyPatch], None],
    before: bytes | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = tmp_path / file
    if before is not None:
        target.write_bytes(before)
    there, table = sorted(tmp_path.iterdir()), objects_of(str(location))
    places = {"LOC": str(location), "FILE": str(target)}
    full(monkeypatch)
    done = CliRunner().invoke(application, [places.get(word, word) for word in words])
    monkeypatch.undo()
    assert done.exit_code == 1, done.output
    assert str(target) in done.stderr
    assert "No space left on device" in done.stderr
    assert "free space there, or name another place" in done.stderr
    assert "bug" not in done.stderr
    assert sorted(tmp_path.iterdir()) == there
    assert before is None or target.read_bytes() == before
    assert objects_of(str(location)) == table


def test_a_report_on_a_full_disk_is_one_message(
    location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = CliRunner().invoke(application, ["scan", str(location), "--report", FULL])
    assert done.exit_code == 1
    assert f"cannot append to {FULL}: No space left on device; free space there" in done.stderr


@pytest.mark.parametrize(
    "words", [("info", "LOC"), ("scan", "LOC", "--json"), ("scan", "LOC", "--output", "-")]
)
def test_a_full_standard_output_is_one_message(location: Path, words: tuple[str, ...]) -> None:
    given = [str(location) if word == "LOC" else word for word in words]
    with Path(FULL).open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tblctl.cli", *given],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    said = json.loads(done.stderr)["message"] if "--json" in words else done.stderr
    assert said.removeprefix("tblctl: error: ").startswith("standard output cannot be written: "), done.stderr
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("/spill/1.arrow", "tblctl: error: /spill/1.arrow cannot be written: "),
        (None, "tblctl: error: no space left for a file: "),
    ],
)
def test_another_file_on_a_full_disk_is_not_called_standard_output(
    location: Path, file: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file)

    monkeypatch.setattr(tblctl.Table, "info", full)
    done = CliRunner().invoke(application, ["info", str(location)])
    assert done.exit_code == 1
    assert done.stderr.startswith(said), done.stderr
    assert "No space left on device" in done.stderr
    assert "standard output cannot be written" not in done.stderr
    assert "bug" not in done.stderr


def test_a_plan_through_a_link_or_to_a_device_leaves_these_as_they_are(
    location: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "plan.json"
    link.symlink_to(tmp_path / "elsewhere" / "plan.json")
    assert CliRunner().invoke(application, ["plan", str(location), "--output", str(link)]).exit_code == 0
    assert link.is_symlink()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["plan.json"]
    assert (
        CliRunner().invoke(application, ["plan", str(location), "--output", os.devnull, "--json"]).exit_code
        == 0
    )
    assert not Path(os.devnull).is_file()
    shown = CliRunner().invoke(application, ["plan", str(location), "--output", "-", "--json"]).stdout
    assert shown.count('"groups"') >= 2


def test_a_plan_can_go_through_a_pipe_and_keeps_who_may_read_its_file(location: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tblctl.cli", "plan", str(location), "--output"]
    piped = subprocess.run([*words, "/dev/stdout"], capture_output=True, text=True)
    assert piped.returncode == 0, piped.stderr
    assert '"groups"' in piped.stdout
    kept = tmp_path / "plan.json"
    kept.touch(mode=0o600)
    assert subprocess.run([*words, str(kept)]).returncode == 0
    assert kept.stat().st_mode & 0o777 == 0o600
