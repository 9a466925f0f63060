"""The examples of docs/your-data.md run as they are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application

from .files import interleaved

PAGE = (Path(__file__).parents[2] / "docs" / "your-data.md").read_text(encoding="utf-8")


def test_every_example_on_parquet_and_delta_runs(tmp_path, monkeypatch):
    deltalake = pytest.importorskip("deltalake")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    interleaved(tmp_path / "events", count=3, rows=4)
    for number in range(2):
        rows = pa.table({"at": [number, 10 + number], "id": [1, 2]})
        deltalake.write_deltalake("events_delta", rows, mode="append")
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in blocks] == ["sh", "python", "sh", "python", "python"]
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, "docs/your-data.md", "exec"), {})
            continue
        for line in text.splitlines():
            program, *words = shlex.split(line)
            done = CliRunner().invoke(application, words)
            assert (program, done.exit_code) == ("tblctl", 0), f"{line}: {done.output}"
    assert tblctl.open("table").snapshot.rows == 12
    assert tblctl.open("plain").info("at").rows == 7
    assert tblctl.open("from_delta").snapshot.rows == 4
